"""A gang that is to be placed, as a problem for the search."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from allaboard.model.fit import FitScoring
from allaboard.model.gang import Gang, Objective
from allaboard.model.packing import PACKING, Packing
from allaboard.model.rules import rules_of
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, Problem, build_problem
from allaboard.placement.contest.contest import Waiting
from allaboard.placement.problem.draft import Asking, Draft, Packer
from allaboard.settings.options import Settings


@dataclass(frozen=True, slots=True)
class Packings:
    """How nodes are scored: by the profile of a gang's scheduler name, unless the gang wants something else than that; else by ours."""

    ours: Packing = PACKING
    profiles: Mapping[str, tuple[Objective, FitScoring]] = field(default_factory=dict)

    @classmethod
    def by(cls, settings: Settings) -> Self:
        """Those of the operator's settings."""
        return cls(settings.packing.parsed, {name: (profile.objective, profile.scoring) for name, profile in settings.profiles.items()})

    def of(self, gang: Gang) -> Packing | FitScoring:
        """How nodes are scored for ``gang``."""
        objective, scoring = self.profiles.get(gang.scheduler_name, (None, None))
        return scoring if scoring is not None and gang.objective is objective else self.ours


def problem_of(gang: Gang, minimum: int, snapshot: Snapshot, filters: NodeFilters, packing: Packing | FitScoring) -> Problem:
    """The placement of the candidates of ``gang``, at least ``minimum`` of them and of each role what it lacks."""
    return build_problem(
        gang.candidates,
        minimum,
        snapshot,
        objective=gang.objective,
        packing=packing,
        topology=gang.topology,
        rules=rules_of(gang),
        filters=filters,
    )


def draft_of(gang: Gang, minimum: int, snapshot: Snapshot, packer: Packer, packing: Packing | FitScoring) -> Draft:
    """The same, to be built elsewhere."""
    return Draft(
        pods=[Asking(pod.uid, pod.spec) for pod in gang.candidates],
        minimum=minimum,
        snapshot=replace(snapshot, nodes=()),
        nodes=packer.packed(snapshot.nodes),
        objective=gang.objective,
        packing=packing,
        topology=gang.topology,
        rules=rules_of(gang),
    )


def size_of(gang: Gang, nodes: int) -> int:
    """How much there is to look at to build the problem of a gang: cells of a quarter to half a microsecond each."""
    specs = {id(pod.spec): pod.spec for pod in gang.candidates}  # equal specs are mostly one object
    return nodes * sum(1 + spec.rules for spec in specs.values())


def waiting_of(gang: Gang, seed: int, *, is_protected: bool) -> Waiting:
    """The same for a gang that is placed together with others."""
    return Waiting(
        pods=gang.candidates,
        minimum=gang.least,
        seed=seed,
        objective=gang.objective,
        topology=gang.topology,
        rules=rules_of(gang),
        must_not_be_overtaken=is_protected,
    )
