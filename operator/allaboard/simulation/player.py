"""What decides in a replay where gangs go, and what it is made from."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.gang import Objective
from allaboard.placement import SearchSettings
from allaboard.simulation.fragmentation import TargetMix
from allaboard.simulation.state import ClusterState, Seat
from allaboard.simulation.workload import Arrival

Seats = tuple[Seat | None, ...]
"""One for each member of a gang, ``None`` for surplus ones that are left out."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a strategy is made from. ``mix`` is the workload that fragmentation is measured against.

    ``arguments`` are those of the strategy, from the settings.
    """

    mix: TargetMix
    seed: int
    objective: Objective
    search: SearchSettings
    arguments: Mapping[str, object] = field(default_factory=dict)


class Player(Protocol):
    """Decides in a replay where gangs go: a strategy, through ``ours``, or a baseline that knows of nothing but replays."""

    def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[Seats | None]:
        """Seats for each of ``pending``, in its order, or ``None`` for a gang that is not placed now.

        All seats together must fit. ``state`` must be left as it was found: ``state.trial()`` helps.
        """
        ...


class OneByOne(ABC):
    """Seats pods one after another, as a scheduler does that doesn't know of gangs; one that lacks its minimum gives its seats back."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @abstractmethod
    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Seat:
        """A seat for a pod of a class on one of the nodes ``fitting``: int64[k], where it fits; there is one at least."""

    def choose(self, state: ClusterState, position: int) -> Seat | None:
        """A seat for a pod of a class, ``None`` when it fits nowhere."""
        fitting = np.flatnonzero(state.fits[position])
        return self.pick(state, position, fitting) if fitting.size else None

    def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[Seats | None]:
        """As ``Player.place``."""
        if len(pending) == 1 and len(pending[0].members) == 1:
            seat = self.choose(state, pending[0].members[0])
            return [(seat,) if seat else None]
        with state.trial():
            return [self._gang(state, arrival) for arrival in pending]

    def _gang(self, state: ClusterState, arrival: Arrival) -> Seats | None:
        seats: list[Seat | None] = []
        for position in arrival.members:
            seat = self.choose(state, position)
            seats.append(seat)
            if seat:
                state.take(position, seat)
        if sum(seat is not None for seat in seats) >= arrival.minimum:
            return tuple(seats)
        for position, seat in zip(arrival.members, seats, strict=True):
            if seat:
                state.give_back(position, seat)
        return None
