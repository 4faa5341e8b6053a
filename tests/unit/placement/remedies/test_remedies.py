"""Tests that a remedy lets the refused gang fit, and that a smaller remedy doesn't."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.placement import build_problem
from allaboard.placement.highs import Status
from allaboard.placement.problem.problem import Problem
from allaboard.placement.remedies import remedies as remedies_module
from allaboard.placement.remedies.emptied_problem import EmptiedProblem, emptied_problem_of
from allaboard.placement.remedies.remedies import More, MoreNodes, Remedies, find_remedies
from allaboard.placement.rules.members import NO_RULES, Rules
from allaboard.placement.rules.together import TogetherRule
from allaboard.placement.solvers import milp_model
from allaboard.placement.solvers.domains import NOWHERE
from allaboard.placement.solvers.milp import Finding, solve
from tests.unit.placement.clusters import GI, GPU, node, pods, snapshot

TRAIN = {"labels": {"pool": "train"}}


def emptied_for(
    gang: Sequence[Pod],
    cluster: Snapshot,
    minimum: int | None = None,
    others: Sequence[tuple[str, Sequence[Pod]]] = (),
    rules: Rules = NO_RULES,
):
    minimum = len(gang) if minimum is None else minimum
    problem = build_problem(gang, minimum, cluster, objective=Objective.BINPACK, rules=rules)
    return emptied_problem_of(problem, gang, cluster, others, rules)


def bound(name: str, node_name: str, number: int, amounts: dict[str, int]) -> list[Pod]:
    return [replace(pod, node_name=node_name) for pod in pods(name, number, amounts)]


def least_added(emptied: EmptiedProblem, column: int) -> int | None:
    """Return the least total amount of the resource at ``column`` that must be added for the gang to fit; None if no amount suffices.

    The test tries all placements in all choices of domains.
    """
    problem = emptied.problem
    choices = itertools.product(*({*group.domains.tolist(), NOWHERE} - {-1} for group in problem.together))
    found = [least_added_within(emptied, problem.confined(domains), column) for domains in choices]
    return min((amount for amount in found if amount is not None), default=None)


def least_added_within(emptied: EmptiedProblem, problem: Problem, column: int) -> int | None:
    demand, count = problem.demand.tolist(), problem.count.tolist()
    roles = range(len(count))
    costs = {(0,) * len(count): 0}
    for row in range(len(problem.nodes)):
        free, ceiling = problem.free[:, row].tolist(), emptied.ceiling[column, row]
        ways = []
        for taken in itertools.product(*(range((count[role] if problem.admits[role, row] else 0) + 1) for role in roles)):
            load = [sum(taken[role] * demand[role][each] for role in roles) for each in range(len(free))]
            if all(load[each] <= free[each] for each in range(len(free)) if each != column) and load[column] <= max(ceiling, free[column]):
                ways.append((taken, max(0, load[column] - free[column])))
        reached: dict[tuple[int, ...], int] = {}
        for before, cost in costs.items():
            for taken, added in ways:
                after = tuple(min(a + b, most) for a, b, most in zip(before, taken, count, strict=True))
                reached[after] = min(reached.get(after, cost + added), cost + added)
        costs = reached
    return min((cost for placed, cost in costs.items() if problem.lacking(np.array(placed)) <= 0), default=None)


def fits_with(emptied: EmptiedProblem, more: More) -> bool:
    """Return whether the gang fits once the amounts that ``more`` names are free as well."""
    problem = emptied.problem
    used = emptied.slack.copy()
    for name, amount in more.where:
        used[problem.columns.index(more.resource), problem.nodes.index(name)] += amount
    free = np.maximum(used, 0)
    slots = np.where(problem.admits, 2**20, 0)
    return solve(replace(problem, free=free, slots=_slots(problem, free, slots))).finding is Finding.FITS


def _slots(problem, free, slots):
    for role, demand in enumerate(problem.demand):
        for column in np.flatnonzero(demand):
            slots[role] = np.minimum(slots[role], free[column] // demand[column])
    return slots


_AMOUNTS = st.tuples(st.integers(2, 8), st.integers(2, 8), st.integers(0, 4))  # cpu, GiB, GPUs
_TAKEN = st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 4))
_ASKED = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))


@st.composite
def crowded(draw: st.DrawFn, most_roles: int = 3) -> EmptiedProblem:
    """Draw a gang, and a few nodes that are partly or fully in use, some of them over-committed."""
    nodes, used = [], {}
    for number in range(draw(st.integers(1, 4))):
        zone = draw(st.sampled_from(({"zone": "a"}, {"zone": "b"}, {"zone": "a"}, {"zone": "b"}, {})))
        nodes.append(node(f"n{number}", amounts(draw(_AMOUNTS)), labels=zone))
        used[f"n{number}"] = amounts(draw(_TAKEN))
    gang: list[Pod] = []
    for number in range(draw(st.integers(1, most_roles))):
        selector = draw(st.sampled_from(((), (), (("zone", "a"),))))
        gang += pods(f"r{number}", draw(st.integers(1, 3)), amounts(draw(_ASKED)), node_selector=selector)
    minimum = max(1, len(gang) - draw(st.integers(0, 1)))
    # A number of some pods, of one spec or of several, is needed besides the minimum of all pods.
    some = {pod.uid for pod in gang[: draw(st.integers(0, len(gang)))]}
    parts = [(some, draw(st.integers(1, len(some))))] if some else []
    groups = [{pod.uid for pod in gang[share - 1 :: share]} for share in draw(st.sampled_from(((), (), (1,), (2,), (1, 2))))]
    together = [TogetherRule("zone", members) for members in groups if members]
    return emptied_for(gang, snapshot(nodes, used), draw(st.sampled_from((minimum, 1))) if parts else minimum, rules=Rules(parts, together))


def amounts(of: tuple[int, int, int]) -> dict[str, int]:
    cpu, memory, gpus = of
    return {"cpu": cpu * 500, "memory": memory * GI, GPU: gpus}


@settings(max_examples=400, deadline=None)
@given(emptied=st.one_of(crowded(most_roles=2), crowded(most_roles=1), crowded()))
def test_amount_of_a_remedy_suffices_and_no_smaller_amount_does(emptied) -> None:
    if not emptied.problem.nodes or solve(emptied.problem).finding is not Finding.CANNOT_FIT:
        return
    remedies = find_remedies(emptied)
    problem = emptied.problem
    least = {column: least_added(emptied, column) for column in range(problem.resources)}
    event(("more" if remedies.more else "nodes" if remedies.nodes else "nothing") + f", {len(problem.together)} domains")
    if remedies.more is None:
        assert all(amount is None for amount in least.values())
        return
    more = remedies.more
    assert more.is_least
    assert more.amount == sum(amount for _, amount in more.where) == least[problem.columns.index(more.resource)]
    assert fits_with(emptied, more)
    # The placement that is shown needs these amounts and no others.
    counts = np.zeros_like(problem.slots)
    for name, uid, number in more.placement:
        counts[next(row for row, role in enumerate(problem.roles) if uid in role.pods), problem.nodes.index(name)] += number
    lacking = np.einsum("rc,rn->cn", problem.demand, counts) - np.maximum(emptied.slack, 0)
    column = problem.columns.index(more.resource)
    assert problem.lacking(counts.sum(axis=1)) <= 0
    assert (counts <= np.where(problem.admits, problem.count[:, None], 0)).all()
    assert {problem.nodes[row]: amount for row, amount in enumerate(lacking[column].tolist()) if amount > 0} == dict(more.where)
    assert (np.delete(lacking, column, axis=0) <= 0).all()


def test_remedy_names_the_amounts_that_full_nodes_lack() -> None:
    cluster = snapshot(
        [node("a", {GPU: 8, "cpu": 9000}, **TRAIN), node("b", {GPU: 8, "cpu": 9000}, **TRAIN), node("c", {GPU: 8, "cpu": 9000})],
        {"a": {GPU: 8}, "b": {GPU: 7}},
    )
    gang = pods("worker", 3, {GPU: 1}, node_selector=(("pool", "train"),))
    assert find_remedies(emptied_for(gang, cluster)) == Remedies(More(GPU, 2, (("a", 1), ("b", 1)), "worker-0", is_least=True))


def test_remedy_names_the_node_that_lacks_least_for_one_more_pod() -> None:
    cluster = snapshot([node("a", {"cpu": 4000}), node("b", {"cpu": 4000})], {"a": {"cpu": 3000}, "b": {"cpu": 2500}})
    remedies = find_remedies(emptied_for(pods("worker", 1, {"cpu": 2000}), cluster))
    assert remedies == Remedies(More("cpu", 500, (("b", 500),), "worker-0", is_least=True))


def test_remedy_names_the_resource_with_the_smallest_shortage() -> None:
    cluster = snapshot([node("a", {"cpu": 16_000, "memory": 16 * GI})], {"a": {"cpu": 8000, "memory": 2 * GI}})
    gang = pods("worker", 1, {"cpu": 4000, "memory": 15 * GI})
    assert find_remedies(emptied_for(gang, cluster)) == Remedies(More("memory", GI, (("a", GI),), "worker-0", is_least=True))


def test_remedy_is_a_number_of_new_nodes_when_the_empty_cluster_is_too_small() -> None:
    cluster = snapshot([node("a", {"cpu": 4000}), node("b", {"cpu": 8000})])
    assert find_remedies(emptied_for(pods("worker", 10, {"cpu": 2000}), cluster)).nodes == MoreNodes(1, "b")
    two_roles = [*pods("worker", 9, {"cpu": 2000}), *pods("server", 3, {"cpu": 3000})]
    assert find_remedies(emptied_for(two_roles, cluster)).nodes == MoreNodes(2, "b")


def test_there_is_no_remedy_when_no_node_is_large_enough() -> None:
    assert find_remedies(emptied_for(pods("worker", 1, {"cpu": 9000}), snapshot([node("a", {"cpu": 4000})]))) == Remedies()
    assert find_remedies(emptied_for(pods("worker", 1, {"cpu": 1000}), snapshot([]))) == Remedies()


def test_remedy_names_the_first_gang_whose_release_suffices() -> None:
    cluster = snapshot([node("a", {GPU: 8}), node("b", {GPU: 4})], {"a": {GPU: 8}, "b": {GPU: 2}})
    others = [("small", bound("small", "b", 2, {GPU: 1})), ("large", bound("large", "a", 2, {GPU: 4}))]
    gang = pods("worker", 2, {GPU: 4})
    assert find_remedies(emptied_for(gang, cluster, others=others)).blocker == "large"
    assert find_remedies(emptied_for(gang, cluster, others=others[:1])).blocker is None


def test_release_on_an_over_committed_node_must_first_make_up_for_the_excess() -> None:
    cluster = snapshot([node("a", {GPU: 4})], {"a": {GPU: 6}})
    others = [("b", bound("b", "a", 2, {GPU: 1})), ("c", bound("c", "a", 4, {GPU: 1}))]
    assert find_remedies(emptied_for(pods("worker", 1, {GPU: 2}), cluster, others=others)).blocker == "c"


RACKS = {GPU: 8}


def test_remedy_names_the_rack_that_needs_least() -> None:
    cluster = snapshot(
        [node(f"{rack}{number}", RACKS, labels={"rack": rack}) for rack in "abc" for number in range(2)],
        {"a0": {GPU: 8}, "a1": {GPU: 8}, "b0": {GPU: 8}, "b1": {GPU: 2}, "c0": {GPU: 7}, "c1": {GPU: 7}},
    )
    gang = pods("worker", 2, {GPU: 4})
    shared = [TogetherRule("rack", {pod.uid for pod in gang})]
    others = [("first", bound("first", "a0", 1, {GPU: 4})), ("second", bound("second", "b1", 2, {GPU: 1}))]
    remedies = find_remedies(emptied_for(gang, cluster, others=others, rules=Rules(couplings=shared)))
    assert remedies == Remedies(More(GPU, 2, (("b1", 2),), "worker-0", is_least=True, domain="rack=b"), blocker="second")
    assert find_remedies(emptied_for(gang, cluster, others=others[:1], rules=Rules(couplings=shared))).blocker is None


def test_remedy_is_new_nodes_when_all_racks_are_too_small_even_when_empty() -> None:
    cluster = snapshot([node(f"{rack}0", RACKS, labels={"rack": rack}) for rack in "ab"], {"a0": {GPU: 3}})
    gang = pods("worker", 4, {GPU: 4})
    remedies = find_remedies(emptied_for(gang, cluster, rules=Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])))
    assert remedies == Remedies(nodes=MoreNodes(1, "b0", "rack=b"))


def test_remedy_does_not_call_its_amount_the_least_when_some_racks_were_not_tried() -> None:
    cluster = snapshot(
        [node(f"n{number}", RACKS, labels={"rack": str(number)}) for number in range(9)], {f"n{n}": {GPU: 8} for n in range(9)}
    )
    gang = pods("worker", 1, {GPU: 1})
    more = find_remedies(emptied_for(gang, cluster, rules=Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})]))).more
    assert more is not None
    assert (more.amount, more.is_least) == (1, False)


def test_there_is_no_remedy_when_no_node_is_in_a_rack() -> None:
    cluster = snapshot([node("a", RACKS)], {"a": RACKS})
    gang = pods("worker", 1, {GPU: 1})
    assert find_remedies(emptied_for(gang, cluster, rules=Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})]))) == Remedies()


def test_new_node_like_an_over_committed_node_counts_as_empty() -> None:
    cluster = snapshot([node("a", {GPU: 8, "pods": 9}), node("b", {GPU: 1, "pods": 9})], {"a": {GPU: 8, "pods": 10}, "b": {GPU: 1}})
    assert find_remedies(emptied_for(pods("worker", 4, {GPU: 1, "pods": 1}), cluster)) == Remedies(nodes=MoreNodes(1, "a"))


def test_remedy_does_not_call_its_amount_the_least_when_the_solver_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = snapshot([node("a", {GPU: 8})], {"a": {GPU: 8}})
    gang = [*pods("worker", 1, {GPU: 1}), *pods("other", 1, {GPU: 2})]
    found = []
    for status in (Status.OPTIMAL, Status.UNDECIDED):
        monkeypatch.setattr(
            remedies_module, "optimize", lambda *args, given=status, **options: (given, milp_model.optimize(*args, **options)[1])
        )
        more = find_remedies(emptied_for(gang, cluster)).more
        assert more is not None
        found.append((more.amount, more.is_least))
    assert found == [(3, True), (3, False)]
