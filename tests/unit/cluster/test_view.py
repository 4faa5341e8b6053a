"""The live view equals a view that is built from the final state, whatever the order of events."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.binding.pod_domains import forbidden_domains
from allaboard.cluster.stores import NodeStore
from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import GpuRequest, HostPort, NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gpu_inventory import GpuPolicy
from allaboard.model.gpu_request import with_gpus
from allaboard.model.gpus import Cards, Measure
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.podterms import LabelExpression, PodTerm
from allaboard.model.requests import as_requests

TERM = PodTerm("zone", (LabelExpression("app", "In", ("a",)),))
SPECS = (
    SchedulingSpec(requests=(("cpu", 1000), ("pods", 1))),
    SchedulingSpec(requests=(("memory", 2**30), ("nvidia.com/gpu", 1), ("pods", 1))),
    SchedulingSpec(requests=(("pods", 1),), host_ports=(HostPort("10.0.0.1", "TCP", 80),), unstated=(("cpu", 100), ("memory", 2**21))),
    SchedulingSpec(requests=(("pods", 1),), anti_affinity=(TERM,)),
    SchedulingSpec(requests=(("cpu", 500), ("pods", 1)), preferred_pods=((10, TERM), (-3, TERM)), pod_affinity=(TERM,)),
)


def a_node(name: str, cpu: int = 4000) -> Node:
    return Node(name=name, uid=f"uid-{name}", allocatable=(("cpu", cpu), ("memory", 2**34), ("nvidia.com/gpu", 4), ("pods", 110)))


def a_pod(name: str, *, node: str = "", uid: str = "", phase: str = "Pending", spec: SchedulingSpec = SPECS[0]) -> Pod:
    return Pod(
        namespace="default",
        name=name,
        uid=uid or f"uid-{name}",
        resource_version="1",
        created=0.0,
        scheduler_name="allaboard",
        node_name=node,
        phase=phase,
        priority=0,
        spec=spec,
    )


def rules_about(view: ClusterView) -> object:
    """Return what the pods that have a node ask of a pod with the label that their terms select: domains to avoid, and scores."""
    labels = (("app", "a"),)
    return view.anti_affinity.domains("default", labels), view.preferences.scores("default", labels)


def used(view: ClusterView, node: str, resource: str) -> int:
    snapshot = view.snapshot()
    row, column = snapshot.row_of(node), snapshot.column_of(resource)
    assert row is not None
    return int(snapshot.used[row, column]) if column is not None else 0


names = st.sampled_from(["a", "b", "c"])
nodes = st.sampled_from(["n1", "n2", "n3"])
events = st.one_of(
    st.tuples(
        st.just("pod"), names, st.sampled_from(["", "n1", "n2", "n3"]), st.sampled_from(["1", "2"]),
        st.sampled_from(["Pending", "Running", "Succeeded"]), st.sampled_from(SPECS),
    ),
    st.tuples(st.just("pod gone"), names),
    st.tuples(st.just("node"), nodes, st.sampled_from([4000, 8000])),
    st.tuples(st.just("node gone"), nodes),
    st.tuples(st.just("assume"), names, nodes),
    st.tuples(st.just("assume all"), st.lists(st.tuples(names, nodes), max_size=3)),
    st.tuples(st.just("forget"), names),
    st.tuples(st.just("forget all"), st.lists(names)),
)  # fmt: skip


def play(view: ClusterView, event: tuple[object, ...]) -> None:
    """Apply one event of a history to ``view``."""
    match event:
        case ("pod", str(name), str(node), str(uid), str(phase), SchedulingSpec() as spec):
            view.upsert_pod(a_pod(name, node=node, uid=f"{name}-{uid}", phase=phase, spec=spec))
        case ("pod gone", str(name)):
            view.remove_pod(f"default/{name}")
        case ("node", str(name), int(cpu)):
            view.upsert_node(a_node(name, cpu))
        case ("node gone", str(name)):
            view.remove_node(name)
        case ("assume", str(name), str(node)) if pod := view.pod(f"default/{name}"):
            view.assume(pod, node)
        case ("assume all", list() as several):
            view.assume_all((pod, str(node)) for name, node in several if (pod := view.pod(f"default/{name}")))
        case ("forget", str(name)) if pod := view.pod(f"default/{name}"):
            view.forget(pod)
        case ("forget all", list() as several):
            view.forget_all(filter(None, (view.pod(f"default/{name}") for name in several)))


@settings(max_examples=300)
@given(st.lists(events, max_size=40))
def test_view_after_any_history_equals_a_view_built_from_the_final_state(history: list[tuple[object, ...]]) -> None:
    view = ClusterView()
    for event in history:
        play(view, event)

    rebuilt = ClusterView()
    assumed = {pod.uid: view._assumed[pod.uid] for pod in view.pods() if view.is_assumed(pod)}
    for node in view.snapshot().nodes:
        rebuilt.upsert_node(node)
    for pod in view.pods():
        rebuilt.upsert_pod(pod)
        if pod.uid in assumed:
            rebuilt.assume(pod, assumed[pod.uid])

    assert rebuilt.snapshot().nodes == view.snapshot().nodes
    for name in (node.name for node in view.snapshot().nodes):
        for resource in ("cpu", "memory", "pods", "nvidia.com/gpu"):
            assert used(view, name, resource) == used(rebuilt, name, resource)
    assert view.snapshot().host_ports == rebuilt.snapshot().host_ports
    assert np.array_equal(view.snapshot().unstated, rebuilt.snapshot().unstated)
    assert view.snapshot().mix == rebuilt.snapshot().mix
    assert rules_about(view) == rules_about(rebuilt)


@given(st.lists(st.tuples(names, nodes), max_size=6), st.lists(st.sampled_from(SPECS), min_size=3, max_size=3))
def test_pods_that_are_assumed_together_are_charged_like_pods_that_are_assumed_one_by_one(
    assignments: list[tuple[str, str]], specs: list[SchedulingSpec]
) -> None:
    at_once, one_by_one = ClusterView(), ClusterView()
    pods = {name: a_pod(name, spec=spec) for name, spec in zip("abc", specs, strict=True)}
    for view in (at_once, one_by_one):
        for node in ("n1", "n2", "n3"):
            view.upsert_node(a_node(node))
        for pod in pods.values():
            view.upsert_pod(pod)
    at_once.assume_all((pods[name], node) for name, node in assignments)
    for name, node in assignments:
        one_by_one.assume(pods[name], node)
    at_once.forget_all([pods["a"], pods["b"]])
    for name in "ab":
        one_by_one.forget(pods[name])
    assert np.array_equal(at_once.snapshot().used, one_by_one.snapshot().used)
    assert at_once.snapshot().host_ports == one_by_one.snapshot().host_ports
    assert rules_about(at_once) == rules_about(one_by_one)


@pytest.mark.parametrize("end", ["failed", "gone", "replaced"])
def test_listeners_get_the_node_of_an_assumed_pod_that_ends_before_its_bind_is_seen(end: str) -> None:
    view, calls = ClusterView(), []
    view.listen(lambda old, new: calls.append((old, new)))
    view.upsert_node(a_node("n1"))
    view.upsert_pod(a_pod("a"))
    view.assume(a_pod("a"), "n1")
    if end == "gone":
        view.remove_pod("default/a")
    else:
        view.upsert_pod(a_pod("a", node="n1", phase="Failed") if end == "failed" else a_pod("a", uid="another"))
    old, new = calls[-1]
    assert set(old.freed(new)) == {"cpu", "pods"}
    assert used(view, "n1", "cpu") == 0


def test_assumed_pod_that_is_bound_is_charged_once() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    pod = a_pod("a")
    view.upsert_pod(pod)
    view.assume(pod, "n1")
    assert used(view, "n1", "cpu") == 1000

    view.upsert_pod(replace(pod, node_name="n1"))

    assert used(view, "n1", "cpu") == 1000
    assert not view.is_assumed(pod)


def test_forgetting_an_assumed_pod_after_its_bind_was_seen_keeps_its_charge() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    pod = a_pod("a")
    view.upsert_pod(pod)
    view.assume(pod, "n1")
    view.upsert_pod(replace(pod, node_name="n1"))

    view.forget(pod)

    assert used(view, "n1", "cpu") == 1000


def test_pod_that_is_recreated_under_the_name_of_an_assumed_pod_is_not_assumed() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    old = a_pod("a", uid="1")
    view.upsert_pod(old)
    view.assume(old, "n1")

    view.upsert_pod(a_pod("a", uid="2"))

    assert used(view, "n1", "cpu") == 0


def test_terminating_pod_is_charged_and_finished_pod_is_not() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    pod = a_pod("a", node="n1", phase="Running")
    view.upsert_pod(replace(pod, is_terminating=True))
    assert used(view, "n1", "cpu") == 1000
    view.upsert_pod(replace(pod, phase="Succeeded"))
    assert used(view, "n1", "cpu") == 0


def test_pods_that_came_before_their_node_are_charged() -> None:
    view = ClusterView()
    view.upsert_pod(a_pod("a", node="late"))
    view.upsert_node(a_node("late"))
    assert used(view, "late", "cpu") == 1000


def with_anti_affinity_to(**labels: str) -> SchedulingSpec:
    expressions = tuple(LabelExpression(key, "In", (value,)) for key, value in labels.items())
    return SchedulingSpec((("pods", 1),), anti_affinity=(PodTerm("zone", expressions),))


def test_bound_pods_forbid_their_domains_to_pods_that_their_anti_affinity_matches() -> None:
    view = ClusterView()
    view.upsert_node(replace(a_node("n1"), labels={"zone": "a"}))
    view.upsert_node(replace(a_node("n2"), labels={"zone": "b"}))
    view.upsert_node(a_node("n3"))
    holder = a_pod("db", node="n1", spec=with_anti_affinity_to(app="web"))
    view.upsert_pod(holder)
    web = (("app", "web"),)

    assert forbidden_domains(view, "default", web) == ((NodeSelectorTerm((Requirement("zone", "NotIn", ("a",)),)),),)
    assert forbidden_domains(view, "default", ()) == ()
    assert forbidden_domains(view, "elsewhere", web) == ()
    view.upsert_pod(replace(holder, phase="Succeeded"))
    assert forbidden_domains(view, "default", web) == ()
    assert not view.anti_affinity


def test_snapshot_does_not_change_when_the_view_does() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    before = view.snapshot()
    copied = before.used.copy()
    view.upsert_pod(a_pod("a", node="n1"))
    assert np.array_equal(before.used, copied)
    assert not before.used.flags.writeable


def test_heartbeat_without_a_change_keeps_the_nodes_of_the_snapshot() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    before = view.snapshot()
    view.upsert_node(a_node("n1"))
    assert view.snapshot().nodes is before.nodes


def test_rows_of_removed_nodes_are_used_again() -> None:
    view = ClusterView()
    for generation in range(1000):
        view.upsert_node(a_node(f"n{generation}"))
        view.upsert_pod(a_pod("a", uid=str(generation), node=f"n{generation}"))
        view.remove_pod("default/a")
        view.remove_node(f"n{generation}")
    assert len(view._usage._used) <= 16


def test_snapshot_that_leaves_out_some_pods_equals_the_snapshot_of_a_view_without_these_pods() -> None:
    view, other = ClusterView(), ClusterView()
    pods = [a_pod(name, node=node, spec=spec) for name, node, spec in zip("abc", ("n1", "n1", "gone"), SPECS[:2] * 2, strict=False)]
    for each in (view, other):
        each.upsert_node(a_node("n1"))
    for pod in pods:
        view.upsert_pod(pod)
    other.upsert_pod(pods[1])
    assert (view.snapshot().without([pods[0], pods[2]]).used == other.snapshot().used).all()
    assert used(view, "n1", "cpu") == 1000, "the view itself is unchanged"


def test_node_store_with_a_selector_holds_only_nodes_that_have_its_labels() -> None:
    view = ClusterView()
    store = NodeStore(view, {"pool": "train"})
    for name, labels in (("ours", {"pool": "train", "zone": "a"}), ("theirs", {"pool": "web"}), ("unlabelled", {})):
        store.upsert(name, replace(a_node(name), labels=labels))
    assert [node.name for node in view.snapshot().nodes] == ["ours"]
    store.upsert("theirs", replace(a_node("theirs"), labels={"pool": "train"}))
    store.upsert("ours", replace(a_node("ours"), labels={"pool": "web"}))
    assert [node.name for node in view.snapshot().nodes] == ["theirs"]


def test_new_node_is_not_charged_for_pods_of_a_removed_node() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    view.upsert_pod(a_pod("a", node="n1"))
    view.remove_node("n1")
    view.upsert_node(a_node("n2"))
    assert used(view, "n2", "cpu") == 0
    view.remove_pod("default/a")
    view.upsert_node(a_node("n1"))
    assert (used(view, "n1", "cpu"), used(view, "n2", "cpu")) == (0, 0)


def test_reserved_capacity_stays_reserved_when_a_node_offers_a_new_resource() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n", cpu=1000))
    view.reserve({"n": SPECS[0]})
    view.upsert_node(replace(a_node("n", cpu=1000), allocatable=(("cpu", 1000), ("new.com/thing", 1), ("pods", 110))))
    view.upsert_pod(a_pod("a", node="n"))
    assert view.snapshot().free.min() < 0


def labelled(number: int, node: str = "n1", *, requests: int = 0, name: str = "p", uid: str = "") -> Pod:
    spec = with_gpus(SchedulingSpec(as_requests({"pods": 1, "nvidia.com/gpu": requests})), GpuRequest(number) if number else None)
    return a_pod(name, node=node, uid=uid, spec=spec)


def test_change_of_the_gpu_label_of_a_bound_pod_does_not_change_its_charge() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    for first, charged in ((0, 0), (2, 2)):
        view.upsert_pod(labelled(first, uid=f"of {first}"))
        for later in (3, 0, 1_000_000, 0, 1):
            view.upsert_pod(labelled(later, uid=f"of {first}"))
            assert used(view, "n1", "nvidia.com/gpu") == charged
    view.upsert_pod(labelled(4, uid="another"))
    assert used(view, "n1", "nvidia.com/gpu") == 4
    view.remove_pod("default/p")
    assert used(view, "n1", "nvidia.com/gpu") == 0


@pytest.mark.parametrize("comes_before_its_node", [False, True])
@pytest.mark.parametrize(("requests", "charged"), [(0, 4), (2, 4), (9, 9)])
def test_pod_is_charged_by_label_for_at_most_the_gpus_of_its_node(comes_before_its_node: bool, requests: int, charged: int) -> None:
    view = ClusterView()
    pod = labelled(1_000_000, requests=requests)
    for step in (lambda: view.upsert_pod(pod), lambda: view.upsert_node(a_node("n1")))[:: 1 if comes_before_its_node else -1]:
        step()
    assert used(view, "n1", "nvidia.com/gpu") == charged
    view.remove_pod(pod.key)
    assert used(view, "n1", "nvidia.com/gpu") == 0


def test_pod_that_was_removed_before_its_node_came_leaves_no_trace() -> None:
    view = ClusterView()
    for name in ("one", "two"):
        pod = replace(labelled(2), name=name)
        view.upsert_pod(pod)
        assert pod.key in view._before_node[pod.node_name]
    for name in ("one", "two"):
        view.remove_pod(f"default/{name}")
    assert not view._before_node


class CountedLabels(dict[str, str]):
    """Labels of a node that count their lookups."""

    lookups = 0

    def __contains__(self, key: object) -> bool:
        type(self).lookups += 1
        return super().__contains__(key)


def test_first_topology_label_that_some_node_has_is_found_without_reading_labels_of_nodes() -> None:
    view = ClusterView()
    for name, label in (("n1", "rack"), ("n2", "rack"), ("n3", "zone")):
        view.upsert_node(replace(a_node(name), labels=CountedLabels({label: name, "host": name})))
    CountedLabels.lookups = 0
    for number in range(1000):
        assert view.label_of((f"x{number}", "rack", "zone")) == "rack"
        assert view.label_of((f"x{number}",)) == ""
    assert CountedLabels.lookups == 0
    view.remove_node("n1")
    assert view.label_of(("rack", "zone")) == "rack"
    view.upsert_node(replace(a_node("n2"), labels={"host": "n2"}))
    assert view.label_of(("rack", "zone")) == "zone"


def cards_with(*xids: float) -> Cards:
    values = np.full((len(Measure), 1, len(xids)), np.nan, dtype=np.float32)
    values[Measure.XID, 0] = xids
    names = (tuple(map(str, range(len(xids)))),)
    return Cards({"n1": 0}, names, ("Tesla T4",), np.zeros((1, len(xids)), dtype=np.int32), values)


def test_node_offers_only_its_healthy_gpus_and_listeners_get_each_change() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    calls = []
    view.listen(on_cards=lambda old, new: calls.append((old, new)))
    before = view.snapshot()
    view.observe_cards(cards_with(0, 79, 13, 0))
    now = view.snapshot()
    column = now.column_of("nvidia.com/gpu")
    assert (before.allocatable[0, column], now.allocatable[0, column]) == (4, 3)
    assert calls == [(before.gpus, now.gpus)]
    view.observe_cards(view.cards)
    assert len(calls) == 1
    assert view.snapshot().gpus is now.gpus  # the inventory is computed once
    view.apply(GpuPolicy(excludes_unhealthy=False))
    assert view.snapshot().allocatable[0, column] == 4
    assert len(calls) == 2


def test_gpu_inventory_follows_the_nodes() -> None:
    view = ClusterView()
    assert view.snapshot().gpus is None
    view.upsert_node(replace(a_node("n1"), labels={"nvidia.com/gpu.product": "Tesla-T4"}))
    gpus = view.snapshot().gpus
    assert gpus is not None
    assert gpus.names == (("Tesla T4",),)
    view.upsert_node(replace(a_node("n1"), labels={"nvidia.com/gpu.product": "A10"}))
    gpus = view.snapshot().gpus
    assert gpus is not None
    assert gpus.names == (("A10",),)
    view.remove_node("n1")
    assert view.snapshot().gpus is None


def test_terms_that_select_namespaces_follow_the_labels_of_namespaces() -> None:
    of_team = PodTerm("zone", (LabelExpression("app", "Exists"),), in_any_namespace=True, of_namespaces=(LabelExpression("of", "Exists"),))
    view, labels = ClusterView(), (("app", "a"),)
    view.upsert_pod(a_pod("holder", node="n1", spec=replace(SPECS[0], anti_affinity=(of_team,))))
    version = view.labels.version
    assert view.anti_affinity.domains("team", labels) == {}
    view.namespaces.upsert("team", {"of": "x"})
    assert view.anti_affinity.domains("team", labels) == {"zone": {"n1": 1}}
    assert view.labels.version > version
