"""Tests that remedies for gangs with rules between their members let these gangs fit, by trying all placements."""

from dataclasses import replace

from hypothesis import event, given, settings

from allaboard.model.gang import Objective
from allaboard.model.node import HOSTNAME
from allaboard.model.podterms import SpreadConstraint
from allaboard.model.snapshot import Snapshot
from allaboard.placement import build_problem
from allaboard.placement.remedies.emptied_problem import emptied_problem_of
from allaboard.placement.remedies.remedies import MoreNodes, find_remedies
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.spread import SpreadRule
from tests.unit.placement.clusters import node, pods, snapshot
from tests.unit.placement.rules.couplings import cluster_of, fits
from tests.unit.placement.rules.test_couplings import a_case


def with_more(cluster: Snapshot, found: MoreNodes) -> Snapshot:
    """Return ``cluster`` with the empty nodes that a remedy names, each in the zone of the node that they are like."""
    like = next(each for each in cluster.nodes if each.name == found.like)
    new = [node(f"new{number}", dict(like.allocatable), labels={**like.labels, HOSTNAME: f"new{number}"}) for number in range(found.number)]
    return snapshot([*(node(each.name, dict(each.allocatable), labels=dict(each.labels)) for each in cluster.nodes), *new])


@settings(max_examples=300, deadline=None)
@given(a_case())
def test_more_nodes_let_a_gang_with_rules_fit(case) -> None:
    gang, cluster, rules, minimum = case
    problem = build_problem(gang, minimum, cluster, objective=Objective.BINPACK, rules=rules)
    if fits(gang, cluster, rules, minimum):
        return
    found = find_remedies(emptied_problem_of(problem, gang, cluster, (), rules))
    event("with more nodes" if found.nodes else "with more of a resource" if found.more else "nothing")
    if found.nodes is not None:
        assert fits(gang, with_more(cluster, found.nodes), rules, minimum)
    if found.more is not None:
        assert fits(gang, with_amounts(cluster, found.more.resource, dict(found.more.where)), rules, minimum)


def with_amounts(cluster: Snapshot, resource: str, where: dict[str, int]) -> Snapshot:
    """Return ``cluster`` with more of a resource on some of its nodes."""
    return snapshot(
        [
            replace(
                each,
                allocatable=tuple((name, amount + where.get(each.name, 0) * (name == resource)) for name, amount in each.allocatable),
            )
            for each in cluster.nodes
        ]
    )


def test_the_domain_of_new_nodes_is_named_if_a_rule_depends_on_it() -> None:
    gang = pods("g", 4, {"cpu": 1000})
    uids = {pod.uid for pod in gang}
    rules = Rules(couplings=[SpreadRule(SpreadConstraint("zone", (), 1, 1), ("zone",), uids, uids, (), gang[0].spec)])
    cluster = cluster_of([("a", 1), ("b", 3)])
    problem = build_problem(gang, 4, cluster, objective=Objective.BINPACK, rules=rules)
    found = find_remedies(emptied_problem_of(problem, gang, cluster, (), rules)).nodes
    assert found == MoreNodes(1, "n0", "zone=a")
