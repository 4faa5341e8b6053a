"""The interface of players, which decide in a replay where gangs go, and the settings that a player is created from."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.gang import Objective
from allaboard.placement import SearchSettings
from allaboard.planning.policy import POLICY, Policy
from allaboard.simulation.fragmentation import TargetMix
from allaboard.simulation.state import Assignment, ClusterState
from allaboard.simulation.workload import Arrival

Assignments = tuple[Assignment | None, ...]
"""One assignment for each member of a gang; None for a surplus member that isn't placed."""


Evictions = Sequence[tuple[int, Collection[int]]]
"""The number of each running gang that loses pods, with the numbers of these pods, as in ``ClusterState.started``."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings that a player is created from.

    ``mix`` is the workload that fragmentation is measured against. ``arguments`` are the strategy's own options, from the settings.
    ``policy`` says which gangs may start before others.
    """

    mix: TargetMix
    seed: int
    objective: Objective
    search: SearchSettings
    arguments: Mapping[str, object] = field(default_factory=dict)
    policy: Policy = POLICY


class Player(Protocol):
    """Decides in a replay where gangs go: a strategy of the scheduler (``ours``), or a baseline that exists in replays only."""

    def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[Assignments | None]:
        """Return the assignments of each gang in ``pending``, in the same order; None for a gang that isn't placed now.

        All assignments together must fit. ``state`` must be unchanged at the end; ``state.trial()`` ensures that.
        """
        ...

    def evictions(self) -> Evictions:
        """Return the pods to evict for gangs that the last ``place`` didn't place."""
        return ()

    def expected_start(self, name: str) -> float | None:
        """Return the start, in seconds, that was expected when the gang of this name was refused first; None if none was expected."""
        return None

    def reserved_gpus(self) -> int:
        """Return how many GPUs are free, but reserved for waiting gangs, after the last ``place``."""
        return 0


class OneByOne(Player, ABC):
    """Assigns pods one after another, like a scheduler that doesn't know gangs.

    If fewer members of a gang fit than its minimum, all its members are released again.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @abstractmethod
    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Assignment:
        """Return an assignment for a pod of the task class at ``position``.

        ``fitting``: int64[k], the rows of the nodes on which the pod fits; at least one node.
        """

    def choose(self, state: ClusterState, position: int) -> Assignment | None:
        """Return an assignment for a pod of the task class at ``position``; None if the pod fits nowhere."""
        fitting = np.flatnonzero(state.fits[position])
        return self.pick(state, position, fitting) if fitting.size else None

    def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[Assignments | None]:
        """Return the assignments of each gang in ``pending``, in the same order; None for a gang that isn't placed."""
        if len(pending) == 1 and len(pending[0].members) == 1:
            assignment = self.choose(state, pending[0].members[0])
            return [(assignment,) if assignment else None]
        with state.trial():
            return [self._gang(state, arrival) for arrival in pending]

    def _gang(self, state: ClusterState, arrival: Arrival) -> Assignments | None:
        assignments: list[Assignment | None] = []
        for position in arrival.members:
            assignment = self.choose(state, position)
            assignments.append(assignment)
            if assignment:
                state.take(position, assignment)
        if sum(assignment is not None for assignment in assignments) >= arrival.minimum:
            return tuple(assignments)
        for position, assignment in zip(arrival.members, assignments, strict=True):
            if assignment:
                state.release(position, assignment)
        return None
