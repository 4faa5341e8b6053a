"""Tests of segments: every so many members, by rank, are within one domain, whenever that is possible."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.node import HOSTNAME
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.placement import build_problem, search, verify
from allaboard.placement.rules.apart import ApartRule
from allaboard.placement.rules.coupling import CouplingRule
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.segments import SegmentRule
from allaboard.placement.solvers.milp import Finding, solve
from tests.unit.placement.clusters import node, pods, snapshot
from tests.unit.placement.rules.couplings import QUICK, cluster_of, fits


@st.composite
def a_case(draw: st.DrawFn) -> tuple[list[Pod], Snapshot, Rules, int]:
    cpus = draw(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(1, 4)), min_size=1, max_size=4))
    gang = pods("r", draw(st.integers(1, 5)), {"cpu": draw(st.integers(1, 2)) * 1000})
    uids = tuple(pod.uid for pod in gang)
    rules: list[CouplingRule] = [SegmentRule(draw(st.sampled_from(["zone", HOSTNAME])), draw(st.integers(1, 3)), uids)]
    if draw(st.booleans()):
        rules.append(ApartRule(HOSTNAME, set(uids), set(uids)))
    return gang, cluster_of(cpus), Rules(couplings=rules), max(1, len(gang) - draw(st.integers(0, 4)))


@settings(max_examples=400, deadline=None)
@given(a_case())
def test_gang_is_placed_in_segments_whenever_that_is_possible(case) -> None:
    gang, cluster, rules, minimum = case
    problem = build_problem(gang, minimum, cluster, objective=Objective.BINPACK, rules=rules)
    expected = fits(gang, cluster, rules, minimum)
    event(f"fits: {expected}")
    assert solve(problem).finding is (Finding.FITS if expected else Finding.CANNOT_FIT)
    plan = search(problem, QUICK, 1)
    assert plan.feasible is expected
    if plan.feasible:
        assert verify(dict(plan.assignments), gang, cluster, rules) == ()


def racks(sizes: Sequence[int]) -> Snapshot:
    """Return nodes that take two pods each, in racks of so many nodes; the names of nodes go across the racks."""
    places = sorted((number, rack) for rack, size in enumerate(sizes) for number in range(size))
    return snapshot([node(f"n{position:02}", {"cpu": 2000}, labels={"rack": f"rack-{rack}"}) for position, (_, rack) in enumerate(places)])


@pytest.mark.parametrize(
    ("members", "size", "sizes"), [(8, 4, (2, 2, 2)), (10, 4, (3, 2, 2)), (12, 6, (4, 4)), (16, 2, (3, 3, 3)), (7, 3, (2, 3))]
)
def test_each_segment_is_within_one_rack(members: int, size: int, sizes: Sequence[int]) -> None:
    gang, cluster = pods("worker", members, {"cpu": 1000}), racks(sizes)
    rules = Rules(couplings=[SegmentRule("rack", size, tuple(pod.uid for pod in gang))])
    problem = build_problem(gang, members, cluster, objective=Objective.BINPACK, rules=rules, ordered_by=("rack",))
    assigned = dict(search(problem, QUICK, 1).assignments)
    rack_of = {each.name: each.labels["rack"] for each in cluster.nodes}
    ranks = [rack_of[assigned[pod.uid]] for pod in gang]
    assert all(len(set(ranks[first : first + size])) == 1 for first in range(0, members, size))
    assert verify(assigned, gang, cluster, rules) == ()


def test_pods_that_follow_each_other_get_nodes_that_share_as_many_levels_as_possible() -> None:
    gang = pods("worker", 12, {"cpu": 1000})
    blocks = [("b", "r1"), ("a", "r3"), ("b", "r2"), ("a", "r4"), ("b", "r1"), ("a", "r3"), ("b", "r2"), ("a", "r4")]
    cluster = snapshot(
        [node(f"n{number}", {"cpu": 2000}, labels={"block": block, "rack": rack}) for number, (block, rack) in enumerate(blocks)]
    )
    problem = build_problem(gang, 12, cluster, objective=Objective.BINPACK, ordered_by=("block", "rack"))
    assigned = dict(search(problem, QUICK, 1).assignments)
    places = [tuple(dict(each.labels).values()) for pod in gang for each in cluster.nodes if each.name == assigned[pod.uid]]
    assert sum(one != other for one, other in pairwise(places)) == len(set(places)) - 1, "each rack has successive ranks"
    assert sum(one[0] != other[0] for one, other in pairwise(places)) == len({block for block, _ in places}) - 1, "and so has each block"
