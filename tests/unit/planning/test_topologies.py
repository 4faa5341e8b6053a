"""Tests of topology levels that a gang names, on nodes with the labels of any vendor."""

from dataclasses import replace

import pytest

from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import VolumeView
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.node import Node
from allaboard.model.packing import PACKING
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind, Reason
from allaboard.model.topologies import LEVELS
from allaboard.placement import NodeFilters, SearchSettings, search
from allaboard.placement.rules.members import rules_of
from allaboard.planning.gang_problem import problem_of
from allaboard.planning.resolve import resolve
from allaboard.report.reason_words import reason

SPEC = SchedulingSpec((("cpu", 1000), ("pods", 1)))


def a_view(label: str, domains: str = "abcabc") -> ClusterView:
    view = ClusterView()
    for row, domain in enumerate(domains):
        view.upsert_node(Node(f"n{row}", f"n{row}", (("cpu", 2000), ("pods", 110)), {label: domain, "other": "x"}))
    return view


def a_gang(**options: str) -> Gang:
    own = tuple(sorted((name.replace("_", "-"), value) for name, value in options.items() if name.startswith("own_")))
    options_of_pods = tuple((name.removeprefix("own-"), value) for name, value in own)
    members = tuple(
        Pod("team", f"p{row}", f"p{row}", "1", 0.0, "allaboard", "", "Pending", 0, SPEC, options=options_of_pods) for row in range(4)
    )
    rest = {name: value for name, value in options.items() if not name.startswith("own_")}
    return replace(Gang(GangKey("team", "g"), 4, members, 0, 0.0, Objective.SPREAD, 60), **rest)


def placed(gang: Gang, view: ClusterView, levels: dict[str, tuple[str, ...]] | None = None) -> set[str]:
    """Place a gang, and return the topology domains of its members."""
    known = resolve(gang, VolumeView(), view, {**LEVELS, **(levels or {})})
    assert known.hold is None
    snapshot = view.snapshot()
    plan = search(problem_of(known, 4, snapshot, NodeFilters(), PACKING), SearchSettings(), seed=1)
    assert plan.feasible
    [label] = {label for label in snapshot.nodes[0].labels if label != "other"}
    return {node.labels[label] for node in snapshot.nodes if node.name in dict(plan.assignments).values()}


@pytest.mark.parametrize(("level", "label"), [(level, label) for level, labels in LEVELS.items() for label in labels])
def test_the_name_of_a_level_means_the_label_that_the_nodes_have_for_that_level(level: str, label: str) -> None:
    assert len(placed(a_gang(required_topology=level), a_view(label))) == 1
    assert len(placed(a_gang(own_required_topology=level), a_view(label))) == 1


def test_a_gang_is_placed_in_few_domains_of_its_preferred_level() -> None:
    gang = replace(a_gang(topology="nvlink"), objective=Objective.BINPACK)
    assert len(placed(gang, a_view("nvidia.com/gpu.clique", "abab"))) == 1


def test_a_level_may_be_a_node_label_of_that_name_or_be_defined_in_the_settings() -> None:
    assert len(placed(a_gang(required_topology="rack"), a_view("rack"))) == 1
    assert len(placed(a_gang(required_topology="row"), a_view("example.com/row"), {"row": ("example.com/row",)})) == 1


def test_a_gang_without_topology_rules_is_returned_unchanged() -> None:
    gang = a_gang()
    assert resolve(gang, VolumeView(), a_view("rack")) is gang
    named = a_gang(topology="rack")
    assert resolve(named, VolumeView(), a_view("rack")) is named


def test_a_level_whose_labels_no_node_has_is_reported_by_the_name_of_the_level() -> None:
    known = resolve(a_gang(required_topology="rack"), VolumeView(), a_view("host"))
    assert reason(Reason(Kind.UNLABELLED, rules_of(known).couplings[0].label)) == "node(s) had no label of level rack"
