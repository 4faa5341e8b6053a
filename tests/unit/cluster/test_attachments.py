"""Each node can attach as many further volumes as kube-scheduler would count, whatever the order of events."""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.cluster.attachments import UNLIMITED
from allaboard.cluster.storage_objects import Claim, Shape, StorageClass, StoredVolume
from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.volumes import Attaches, Volume

DISK, FILE = "disk.example.com", "file.example.com"
SPEC = SchedulingSpec((("pods", 1),))


def a_node(name: str) -> Node:
    return Node(name, name, (("pods", 110),))


def a_pod(name: str, *claims: str, node: str = "", disks: tuple[Volume, ...] = ()) -> Pod:
    return Pod("ns", name, f"uid-{name}", "1", 0.0, "default-scheduler", node, "Pending", 0, replace(SPEC, claims=claims, disks=disks))


def free(view: ClusterView, driver: str = DISK) -> dict[str, int]:
    snapshot = view.snapshot()
    amounts = snapshot.attachable.get(driver)
    return {} if amounts is None else {node.name: int(amounts[row]) for row, node in enumerate(snapshot.nodes)}


def a_view(*limits: tuple[str, int]) -> ClusterView:
    """Return a view with nodes of these (name, limit of disks), and with the claims c0 to c3, each bound to a volume of its own."""
    view = ClusterView()
    for name, limit in limits:
        view.upsert_node(a_node(name))
        view.volumes.limits.upsert(name, {DISK: limit})
    for number in range(4):
        view.volumes.claims.upsert(f"ns/c{number}", Claim(f"pv{number}"))
        view.volumes.volumes.upsert(f"pv{number}", StoredVolume(attached=Volume(DISK, f"h{number}")))
    return view


names, nodes, claims = st.sampled_from("pqrs"), st.sampled_from(["n1", "n2"]), st.sampled_from(["c0", "c1", "c2", "c3"])
volumes = st.sampled_from([None, Volume(DISK, "h0"), Volume(DISK, "h1"), Volume(FILE, "f")])
events = st.one_of(
    st.tuples(st.just("bound"), names, nodes, st.lists(claims, max_size=3, unique=True)),
    st.tuples(st.just("assumed"), names, nodes, st.lists(claims, max_size=3, unique=True)),
    st.tuples(st.just("gone"), names),
    st.tuples(st.just("claim"), claims, st.sampled_from(["", "pv0", "pv1", "pv2"])),
    st.tuples(st.just("claim gone"), claims),
    st.tuples(st.just("volume"), st.sampled_from(["pv0", "pv1", "pv2"]), volumes),
    st.tuples(st.just("volume gone"), st.sampled_from(["pv0", "pv1", "pv2"])),
    st.tuples(st.just("limits"), nodes, st.dictionaries(st.sampled_from([DISK, FILE]), st.integers(0, 3))),
    st.tuples(st.just("node gone"), nodes),
)  # fmt: skip


@dataclass
class Ledger:
    """The cluster as plain tables: the model with which the view is compared."""

    bound: dict[str, str] = field(default_factory=dict)
    stored: dict[str, Volume | None] = field(default_factory=dict)
    limits: dict[str, dict[str, int]] = field(default_factory=dict)
    pods: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    def free(self, node: str, driver: str) -> int:
        used = {claim for where, claims in self.pods.values() if where == node for claim in claims}
        volumes = {self.stored.get(self.bound.get(claim, "")) for claim in used} - {None}
        limit = self.limits.get(node, {}).get(driver)
        return UNLIMITED if limit is None else limit - sum(volume.driver == driver for volume in volumes if volume)

    def expected(self, driver: str) -> dict[str, int]:
        is_limited = any(driver in limits for limits in self.limits.values())
        return {node: self.free(node, driver) for node in ("n1", "n2")} if is_limited else {}


def apply(event: tuple, view: ClusterView, ledger: Ledger) -> None:
    match event:
        case ("bound", name, node, used):
            view.upsert_pod(a_pod(name, *used, node=node))
            ledger.pods[name] = (node, used)
        case ("assumed", name, node, used) if name not in ledger.pods:
            view.upsert_pod(pod := a_pod(name, *used))
            view.assume_all([(pod, node)])
            ledger.pods[name] = (node, used)
        case ("gone", name):
            view.remove_pod(f"ns/{name}")
            ledger.pods.pop(name, None)
        case ("claim", claim, volume):
            view.volumes.claims.upsert(f"ns/{claim}", Claim(volume))
            ledger.bound[claim] = volume
        case ("claim gone", claim):
            view.volumes.claims.remove(f"ns/{claim}")
            ledger.bound.pop(claim, None)
        case ("volume", name, volume):
            view.volumes.volumes.upsert(name, StoredVolume(attached=volume))
            ledger.stored[name] = volume
        case ("volume gone", name):
            view.volumes.volumes.remove(name)
            ledger.stored.pop(name, None)
        case ("limits", node, found):
            view.volumes.limits.upsert(node, found)
            ledger.limits[node] = found
        case ("node gone", node):
            view.remove_node(node)
            view.upsert_node(a_node(node))


@settings(max_examples=300, deadline=None)
@given(st.lists(events, max_size=25), st.booleans())
def test_volume_is_counted_once_for_a_node_whatever_the_order_of_events(history: list[tuple], is_read_after_each_event: bool) -> None:
    view, ledger = ClusterView(), Ledger()
    for name in ("n1", "n2"):
        view.upsert_node(a_node(name))
    for event in history:
        apply(event, view, ledger)
        if is_read_after_each_event:
            assert free(view) == ledger.expected(DISK)
    assert (free(view, DISK), free(view, FILE)) == (ledger.expected(DISK), ledger.expected(FILE))
    for pod in list(view.pods()):
        view.remove_pod(pod.key)
    free(view)
    assert not (view.attached._uses or view.attached._users)


def test_claim_that_two_pods_share_is_attached_once() -> None:
    view = a_view(("n1", 2))
    for name in ("p", "q"):
        view.upsert_pod(a_pod(name, "c0", node="n1"))
    assert free(view) == {"n1": 1}
    view.remove_pod("ns/p")
    assert free(view) == {"n1": 1}
    view.remove_pod("ns/q")
    assert free(view) == {"n1": 2}


def test_two_volumes_with_the_same_handle_count_as_one() -> None:
    view = a_view(("n1", 2))
    view.volumes.volumes.upsert("pv1", StoredVolume(attached=Volume(DISK, "h0")))
    view.upsert_pod(a_pod("p", "c0", "c1", node="n1"))
    assert free(view) == {"n1": 1}


def test_pod_that_has_ended_or_is_no_longer_assumed_attaches_nothing() -> None:
    view = a_view(("n1", 2))
    view.upsert_pod(pod := a_pod("p", "c0", node="n1"))
    view.upsert_pod(replace(pod, phase="Succeeded"))
    view.upsert_pod(other := a_pod("q", "c1"))
    view.assume(other, "n1")
    assert free(view) == {"n1": 1}
    view.forget_all([other])
    assert free(view) == {"n1": 2}


def test_disk_that_a_pod_names_without_a_claim_is_counted() -> None:
    view = a_view(("n1", 2))
    view.upsert_pod(a_pod("p", "c0", node="n1", disks=(Volume(DISK, "h0"), Volume(DISK, "own"))))
    assert free(view) == {"n1": 0}


def test_node_without_a_csinode_has_no_limit() -> None:
    view = a_view(("n1", 2))
    view.upsert_node(a_node("n2"))
    view.upsert_pod(a_pod("p", "c0", node="n2"))
    assert free(view) == {"n1": 2, "n2": UNLIMITED}
    view.volumes.limits.remove("n1")
    assert view.snapshot().attachable == {}


def test_volume_that_no_other_pod_uses_counts_as_the_pods_own() -> None:
    view = a_view(("n1", 2))
    view.upsert_pod(a_pod("stranger", "c1", node="n1"))
    users = {Volume(DISK, "h0"): 1, Volume(DISK, "h1"): 1, Volume(DISK, "h2"): 2}
    assert view.attached.asked_by(a_pod("p", "c0", "c1", "c2"), users.__getitem__) == (Attaches(DISK, 1, (("h1", ("n1",)), ("h2", ()))),)


def test_a_storage_class_that_comes_later_decides_the_driver_of_claims_that_are_not_bound() -> None:
    view = a_view(("n1", 1))
    view.volumes.claims.upsert("ns/new", Claim("", shape=Shape("s")))
    view.upsert_pod(a_pod("a", "new", node="n1"))
    assert free(view) == {"n1": 1}
    view.volumes.classes.upsert("s", StorageClass(waits=True, provisioner=DISK))
    assert free(view) == {"n1": 0}
