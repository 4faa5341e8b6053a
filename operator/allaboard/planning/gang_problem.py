"""Builds the problem of placing a gang, which a search solves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from allaboard.model.fit import FitScoring
from allaboard.model.gang import Gang, Objective
from allaboard.model.packing import PACKING, Packing
from allaboard.model.pod import Pod
from allaboard.model.ranks import rank_of
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, Problem, build_problem
from allaboard.placement.contest.contest import Waiting
from allaboard.placement.problem.draft import Draft, DraftPod, Packer
from allaboard.placement.rules.members import rules_of
from allaboard.settings.options import Settings


@dataclass(frozen=True, slots=True)
class Packings:
    """The ways of scoring nodes: ``profiles`` by scheduler name, and ``ours`` for all other gangs.

    A gang that has chosen another objective than its profile's is scored by ``ours``, too.
    """

    ours: Packing = PACKING
    profiles: Mapping[str, tuple[Objective, FitScoring]] = field(default_factory=dict)

    @classmethod
    def by(cls, settings: Settings) -> Self:
        """Return the packings that the operator's settings state."""
        return cls(settings.packing.parsed, {name: (profile.objective, profile.scoring) for name, profile in settings.profiles.items()})

    def of(self, gang: Gang) -> Packing | FitScoring:
        """Return the way of scoring nodes for ``gang``."""
        objective, scoring = self.profiles.get(gang.scheduler_name, (None, None))
        return scoring if scoring is not None and gang.objective is objective else self.ours


def problem_of(gang: Gang, minimum: int, snapshot: Snapshot, filters: NodeFilters, packing: Packing | FitScoring) -> Problem:
    """Return the problem of placing waiting members of ``gang``: ``minimum`` or more in all, and of each role as many as the role lacks."""
    return build_problem(
        _ranked(gang),
        minimum,
        snapshot,
        objective=gang.objective,
        packing=packing,
        topology=gang.topology,
        ordered_by=gang.ordered_by,
        rules=rules_of(gang),
        filters=filters,
    )


def draft_of(gang: Gang, minimum: int, snapshot: Snapshot, packer: Packer, packing: Packing | FitScoring) -> Draft:
    """Return a ``Draft``, from which a worker process builds the problem that ``problem_of`` returns."""
    return Draft(
        pods=[DraftPod(pod.uid, pod.spec) for pod in _ranked(gang)],
        minimum=minimum,
        snapshot=replace(snapshot, nodes=()),
        nodes=packer.packed(snapshot.nodes),
        objective=gang.objective,
        packing=packing,
        topology=gang.topology,
        ordered_by=gang.ordered_by,
        rules=rules_of(gang),
    )


def _ranked(gang: Gang) -> Sequence[Pod]:
    """Return the candidates, by rank if the gang asks for a topology."""
    return sorted(gang.candidates, key=rank_of) if gang.ordered_by else gang.candidates


def size_of(gang: Gang, nodes: int) -> int:
    """Return the size of a gang's problem in cells: nodes times kinds of pods and their rules.

    Building a cell takes a quarter to half a microsecond.
    """
    specs = {id(pod.spec): pod.spec for pod in gang.candidates}  # equal specs are mostly one object
    return nodes * sum(1 + spec.rules for spec in specs.values())


def waiting_of(gang: Gang, seed: int) -> Waiting:
    """Return ``gang`` in the form for placing several gangs together."""
    return Waiting(
        pods=_ranked(gang),
        minimum=gang.least,
        seed=seed,
        objective=gang.objective,
        topology=gang.topology,
        ordered_by=gang.ordered_by,
        rules=rules_of(gang),
    )
