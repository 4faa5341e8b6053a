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
from allaboard.model.topologies import LEVELS, TopologyWish, placeholder_label, topology_wish
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


def test_the_level_that_the_pod_group_requires_holds_for_roles_that_state_their_own() -> None:
    view = ClusterView()
    for row, (rack, zone) in enumerate((("r1", "c"), ("r1", "c"), ("r2", "c"), ("r2", "c"), ("r3", "c"), ("r3", "c"))):
        view.upsert_node(Node(f"n{row}", f"n{row}", (("cpu", 2000), ("pods", 110)), {"example.com/rack": rack, "example.com/zone": zone}))
    gang = a_gang(required_topology="example.com/rack", own_required_topology="example.com/zone")
    assert set(gang.together) == {("example.com/rack", ""), ("example.com/zone", "")}
    known = resolve(gang, VolumeView(), view, LEVELS)
    plan = search(problem_of(known, 4, view.snapshot(), NodeFilters(), PACKING), SearchSettings(), seed=1)
    racks = {node.labels["example.com/rack"] for node in view.snapshot().nodes if node.name in dict(plan.assignments).values()}
    assert len(racks) == 1


def test_a_gang_is_placed_in_few_domains_of_its_preferred_level() -> None:
    gang = replace(a_gang(topology="nvlink"), objective=Objective.BINPACK)
    assert len(placed(gang, a_view("nvidia.com/gpu.clique", "abab"))) == 1


def test_a_level_may_be_a_node_label_of_that_name_or_be_defined_in_the_settings() -> None:
    assert len(placed(a_gang(required_topology="rack"), a_view("rack"))) == 1
    assert len(placed(a_gang(required_topology="row"), a_view("example.com/row"), {"row": ("example.com/row",)})) == 1


def test_a_gang_without_topology_rules_is_returned_unchanged() -> None:
    gang = a_gang()
    assert resolve(gang, VolumeView(), a_view("rack")) is gang


def test_nodes_are_ordered_by_all_levels_of_the_cluster_and_by_the_labels_that_the_gang_names() -> None:
    view = ClusterView()
    view.upsert_node(Node("n", "n", (), dict.fromkeys(("topology.kubernetes.io/zone", "row", "pod", "kubernetes.io/hostname"), "x")))
    known = resolve(a_gang(required_topology="row", own_topology="segment=2@pod, preferred=zone"), VolumeView(), view)
    assert known.ordered_by == ("topology.kubernetes.io/zone", "row", "pod", "kubernetes.io/hostname")
    assert known.segments.keys() == {(2, "pod", "")}


def segmented(*nodes: str, view: ClusterView) -> Gang:
    """Return a gang of four indexed members in segments of two; members are bound to ``nodes``, empty for none."""
    gang = a_gang(own_topology="segment=2@rack")
    members = tuple(
        replace(
            pod, node_name=node, phase="Running" if node else "Pending", labels=(("batch.kubernetes.io/job-completion-index", str(rank)),)
        )
        for rank, (pod, node) in enumerate(zip(gang.members, nodes, strict=True))
    )
    for pod in members:
        view.upsert_pod(pod)
    return resolve(replace(gang, members=members[::-1]), VolumeView(), view)


def test_members_are_divided_into_segments_by_rank_and_not_by_age() -> None:
    view = a_view("rack")
    known = segmented("", "", "", "", view=view)
    [(key, segments)] = known.segments.items()
    assert key == (2, "rack", "")
    assert [[pod.name for pod in segment] for segment in segments] == [["p0", "p1"], ["p2", "p3"]]
    nodes = dict(search(problem_of(known, 4, view.snapshot(), NodeFilters(), PACKING), SearchSettings(), seed=1).assignments)
    racks = [view.node(nodes[pod.uid]).labels["rack"] for segment in segments for pod in segment]  # type: ignore[union-attr]
    assert racks[0] == racks[1]
    assert racks[2] == racks[3]


def test_replacement_joins_the_bound_members_of_its_segment() -> None:
    view = a_view("rack")
    known = segmented("n1", "", "n2", "n2", view=view)
    assert not rules_of(known).couplings
    plan = search(problem_of(known, 1, view.snapshot(), NodeFilters(), PACKING), SearchSettings(), seed=1)
    assert {view.node(name).labels["rack"] for _, name in plan.assignments} == {"b"}  # type: ignore[union-attr]


def test_members_that_have_ended_keep_their_places_in_the_segments() -> None:
    view = a_view("rack")
    known = segmented("", "", "", "", view=view)
    ended = [replace(pod, phase="Succeeded", node_name="n0") if pod.name == "p1" else pod for pod in known.members]
    [segments] = replace(known, members=tuple(ended)).segments.values()
    assert [[pod.name for pod in segment] for segment in segments] == [["p0"], ["p2", "p3"]]


def test_members_of_one_segment_that_request_different_things_hold_the_gang() -> None:
    gang = a_gang(own_topology="segment=2@rack")
    other = replace(gang.members[3], spec=SchedulingSpec((("cpu", 500), ("pods", 1))))
    held = resolve(replace(gang, members=(*gang.members[:3], other)), VolumeView(), a_view("rack")).hold
    assert held is not None
    assert held.message == "pods p0 and p3 are of one segment, and must request the same; state segments for each role"


@pytest.mark.parametrize(
    ("value", "wish"),
    [
        ("rack", TopologyWish("rack")),
        ("required=block, preferred=rack,segment=4@rack", TopologyWish("rack", "block", 4, "rack")),
        ("segment=16@example.com/row", TopologyWish(segment=16, segment_level="example.com/row")),
    ],
)
def test_topology_is_read(value: str, wish: TopologyWish) -> None:
    assert topology_wish(value) == wish


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a b", "'a b' is neither a level, such as rack, nor of the form required=block, preferred=rack, segment=4@rack"),
        ("require=rack", "nor of the form required=block, preferred=rack, segment=4@rack, each once"),
        ("required: rack", "nor of the form"),
        ("required=zone;preferred=rack", "nor of the form"),
        ("required=a,required=b", "each once"),
        ("segment=0@rack", "is not of the form 4@rack"),
        ("segment=4", "is not of the form 4@rack"),
        ("segment=4@", "nor of the form"),
    ],
)
def test_malformed_topology_is_refused_with_the_reason(value: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        topology_wish(value)


def test_a_level_whose_labels_no_node_has_is_reported_by_the_name_of_the_level() -> None:
    known = resolve(a_gang(required_topology="rack"), VolumeView(), a_view("host"))
    assert reason(Reason(Kind.UNLABELLED, rules_of(known).couplings[0].label)) == "node(s) had no label of level rack"


def test_a_required_name_that_is_no_level_and_no_label_of_any_node_is_said_to_be_neither() -> None:
    assert placeholder_label("rak", LEVELS).startswith("rak, which is none of the levels nvlink, host, rack, block, ")
    assert placeholder_label("rack", LEVELS) == "of level rack"
    assert placeholder_label("example.com/rack", LEVELS) == "example.com/rack"
