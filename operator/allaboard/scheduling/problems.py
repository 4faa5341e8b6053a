"""A gang that is to be placed, as a problem for the search."""

from dataclasses import replace

from allaboard.model.gang import Gang
from allaboard.model.packing import Packing
from allaboard.model.rules import rules_of
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, Problem, build_problem
from allaboard.placement.contest.contest import Waiting
from allaboard.placement.problem.draft import Asking, Draft, Packer


def problem_of(gang: Gang, minimum: int, snapshot: Snapshot, filters: NodeFilters, packing: Packing) -> Problem:
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


def draft_of(gang: Gang, minimum: int, snapshot: Snapshot, packer: Packer, packing: Packing) -> Draft:
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
