"""A gang that is to be placed, as a problem for the search."""

from allaboard.model.gang import Gang
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, Problem, build_problem


def problem_of(gang: Gang, minimum: int, snapshot: Snapshot, filters: NodeFilters) -> Problem:
    """The placement of the candidates of ``gang``, at least ``minimum`` of them and of each role what it lacks."""
    candidates = gang.candidates
    lacking = gang.lacking
    return build_problem(
        candidates,
        minimum,
        snapshot,
        objective=gang.objective,
        topology=gang.topology,
        parts=[({pod.uid for pod in candidates if pod.role == role}, number) for role, number in lacking.items()],
        together=[(label, {pod.uid for pod in members}) for (label, _), members in gang.together.items()],
        filters=filters,
    )
