"""No shared GPU device is assigned twice, and no device stays used once all pods are gone, whatever the order of events."""

from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gpu_sharing import Device, Share, Shared, Taken
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.placement import verify
from allaboard.placement.rules.verify import chosen_devices

GPU = "nvidia.com/gpu"
CARDS = {"n1": {"GPU-1a": 16_000, "GPU-1b": 16_000}, "n2": {"GPU-2a": 40_000, "GPU-2b": 40_000, "GPU-2c": 40_000}}
SHARES = (Share("HAMi", memory=6_000), Share("HAMi", thousandths=500), Share("HAMi", thousandths=100, cores=34))
PART = tuple(SchedulingSpec((("nvidia.com/gpu", 1), ("pods", 1)), gpu_share=share.nominal, share=share) for share in SHARES)
WHOLE = tuple(SchedulingSpec((("nvidia.com/gpu", number), ("pods", 1))) for number in (1, 2))
CPU = SchedulingSpec((("cpu", 1), ("pods", 1)))


def a_node(name: str, *, without: str = "") -> Node:
    """Return a node with the devices that its driver lists, except for ``without``."""
    devices = (Device(uuid, memory, 10, True) for uuid, memory in CARDS[name].items() if uuid != without)
    amounts = (("cpu", 64), (GPU, 10 * len(CARDS[name])), ("pods", 110))
    return Node(name=name, uid=name, allocatable=amounts, shared=Shared("HAMi", tuple(devices)))


def plain(name: str) -> Node:
    return Node(name=name, uid=name, allocatable=(("cpu", 64), (GPU, 3), ("pods", 110)))


def a_pod(name: str, spec: SchedulingSpec, node: str = "", devices: tuple[str, ...] = (), phase: str = "Pending") -> Pod:
    taken = tuple(map(Taken, devices))
    return Pod("default", name, f"uid-{name}", "1", 0.0, "allaboard", node, phase, 0, spec, devices=taken)


def asked(spec: SchedulingSpec, memory: int) -> int:
    """Return the thousandths of each device that a pod takes, computed by the definition."""
    if spec.share is None:
        return 1000
    by_memory = -(-spec.share.memory * 1000 // memory)
    return max(100, by_memory, spec.share.thousandths, spec.share.cores * 10)


@dataclass
class Ledger:
    """The devices of each pod as a plain table: the model with which the view is compared."""

    pods: dict[str, tuple[str, SchedulingSpec, tuple[str, ...]]] = field(default_factory=dict)

    def named_free(self, node: str, uuid: str) -> int:
        """Return the free thousandths of a device, counting only pods whose devices are known."""
        left = 1000
        for where, spec, devices in self.pods.values():
            if where == node and uuid in self._named(where, spec, devices):
                left -= asked(spec, CARDS[node][uuid])
        return left

    def unnamed(self, node: str) -> int:
        """Return the sum of the requests of a node's pods whose devices aren't known, in thousandths."""
        charges = [(spec, devices) for where, spec, devices in self.pods.values() if where == node]
        least = min(CARDS[node].values())
        return sum(asked(spec, least) * (_number(spec) - len(self._named(node, spec, devices))) for spec, devices in charges)

    @staticmethod
    def _named(node: str, spec: SchedulingSpec, devices: tuple[str, ...]) -> list[str]:
        return [device for device in devices if device in CARDS[node]][: _number(spec)]


def _number(spec: SchedulingSpec) -> int:
    return 1 if spec.share else spec.amount(GPU)


def devices_of(view: ClusterView, node: str) -> dict[str, int]:
    snapshot = view.snapshot()
    row = snapshot.row_of(node)
    assert row is not None
    assert snapshot.devices is not None
    shared = snapshot.nodes[row].shared
    assert shared is not None
    return {device.uuid: int(snapshot.devices[row, place]) for place, device in enumerate(shared.devices)}


def agrees(view: ClusterView, ledger: Ledger) -> bool:
    """Return whether the free amounts of the view fit the ledger.

    No device may have more free than the ledger's known charges leave. All devices of a node together must have as much free as the ledger
    after each of its pods is charged once.
    """
    for node in CARDS:
        free, known = devices_of(view, node), {uuid: ledger.named_free(node, uuid) for uuid in CARDS[node]}
        if any(free[uuid] > known[uuid] for uuid in free):
            return False
        if sum(max(0, each) for each in free.values()) != max(0, sum(max(0, each) for each in known.values()) - ledger.unnamed(node)):
            return False
    return True


names = st.sampled_from([f"p{number}" for number in range(6)])
specs = st.sampled_from([*PART, *WHOLE, CPU])
on = st.sampled_from(sorted(CARDS))
gangs = st.lists(st.tuples(names, specs), min_size=1, max_size=4, unique_by=lambda each: each[0])
named = st.lists(st.sampled_from(["GPU-1a", "GPU-2b", "GPU-x"]), max_size=2)
events = st.one_of(
    st.tuples(st.just("gang"), gangs, on),
    st.tuples(st.just("bound"), names),
    st.tuples(st.just("failed"), names),
    st.tuples(st.just("gone"), names),
    st.tuples(st.just("ended"), names),
    st.tuples(st.just("foreign"), names, specs, on, named),
    st.tuples(st.just("edited"), names, named),
    st.tuples(st.just("again"), on),
    st.tuples(st.just("ill"), st.sampled_from(["GPU-1a", "GPU-2c"])),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(events, max_size=30))
def test_no_gpu_device_is_assumed_twice_and_all_devices_are_free_at_the_end(history: list[tuple]) -> None:
    view, ledger = ClusterView(), Ledger()
    for node in CARDS:
        view.upsert_node(a_node(node))
    for event in history:
        match event:
            case ("gang", members, node):
                assume_a_gang(view, ledger, members, node)
            case ("bound", name) if (pod := view.pod(f"default/{name}")) and view.is_assumed(pod):
                where, _, _ = ledger.pods[name]
                view.upsert_pod(
                    replace(pod, node_name=where, devices=(Taken("GPU-1b"),))
                )  # the pod's annotation is ignored, since it has the assumed devices
            case ("failed", name) if pod := view.pod(f"default/{name}"):
                if view.is_assumed(pod):
                    del ledger.pods[name]
                view.forget_all([pod])
            case ("gone", name):
                view.remove_pod(f"default/{name}")
                ledger.pods.pop(name, None)
            case ("ended", name) if (pod := view.pod(f"default/{name}")) and pod.node_name:
                view.upsert_pod(replace(pod, phase="Succeeded"))
                ledger.pods.pop(name, None)
            case ("foreign", name, spec, node, devices) if view.pod(f"default/{name}") is None:
                view.upsert_pod(a_pod(name, spec, node, tuple(dict.fromkeys(devices))))
                ledger.pods[name] = (node, spec, tuple(dict.fromkeys(devices)))
            case ("edited", name, devices) if (pod := view.pod(f"default/{name}")) and pod.is_bound:
                annotated = tuple(dict.fromkeys(devices))
                view.upsert_pod(replace(pod, devices=tuple(map(Taken, annotated))))
                node, spec, first = ledger.pods[name]
                ledger.pods[name] = (node, spec, first or annotated)  # the first annotation stays in force
            case ("again", node):
                view.remove_node(node)
                view.upsert_node(a_node(node))
            case ("ill", uuid):
                node = next(name for name, cards in CARDS.items() if uuid in cards)
                view.upsert_node(a_node(node, without=uuid))
                view.upsert_node(a_node(node))
        assert agrees(view, ledger), event
    for pod in list(view.pods()):
        view.remove_pod(pod.key)
    assert agrees(view, Ledger())
    assert not view._assumed_devices
    assert not view._assumed


def assume_a_gang(view: ClusterView, ledger: Ledger, members: list[tuple[str, SchedulingSpec]], node: str) -> None:
    """Check a gang, choose its devices and assume it, as a transaction does. Assert that no device is overbooked or given out twice."""
    gang = [a_pod(name, spec) for name, spec in members if view.pod(f"default/{name}") is None]
    for pod in gang:
        view.upsert_pod(pod)
    snapshot = view.snapshot()
    plan = {pod.uid: node for pod in gang}
    if not gang or verify(plan, gang, snapshot):
        return
    before = devices_of(view, node)
    devices = chosen_devices(plan, gang, snapshot)
    view.assume_all(((pod, node) for pod in gang), devices)
    for pod in gang:
        ledger.pods[pod.name] = (node, pod.spec, devices.get(pod.uid, ()))
        number = 1 if pod.spec.share else pod.spec.amount(GPU)
        assert len(set(devices.get(pod.uid, ()))) == number
    after = devices_of(view, node)
    assert all(after[uuid] >= 0 for uuid in after if after[uuid] != before[uuid])
    assert not any(view.is_overbooked(node, devices.get(pod.uid, ())) for pod in gang)


@given(st.permutations([("a", PART[1]), ("b", PART[0]), ("c", PART[2]), ("d", PART[1])]))
def test_devices_of_a_plan_do_not_depend_on_the_order_of_members(members: list[tuple[str, SchedulingSpec]]) -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    gang = [a_pod(name, spec) for name, spec in members]
    found = chosen_devices({pod.uid: "n1" for pod in gang}, gang, view.snapshot())
    assert {uid.removeprefix("uid-"): devices for uid, devices in found.items()} == {
        "a": ("GPU-1a",), "d": ("GPU-1a",), "b": ("GPU-1b",), "c": ("GPU-1b",),
    }  # fmt: skip


def test_editing_the_annotation_of_a_bound_pod_does_not_move_its_charge_to_another_gpu() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    view.upsert_pod(pod := a_pod("p", WHOLE[0]))
    view.assume(pod, "n1", ["GPU-1b"])
    for annotated in (("GPU-1a",), (), ("GPU-1a",)):
        view.upsert_pod(a_pod("p", WHOLE[0], "n1", annotated))
        assert devices_of(view, "n1") == {"GPU-1a": 1000, "GPU-1b": 0}
    for annotated in ((), ("GPU-1a",), ("GPU-1b",)):  # the annotation of another scheduler's pod may come late
        view.upsert_pod(a_pod("q", WHOLE[0], "n1", annotated))
        assert devices_of(view, "n1") == {"GPU-1a": 0, "GPU-1b": 0}
    view.upsert_pod(replace(a_pod("q", WHOLE[0], "n1", ("GPU-1b",)), uid="another"))
    assert devices_of(view, "n1") == {"GPU-1a": 1000, "GPU-1b": -1000}


def test_snapshot_of_a_cluster_without_shared_gpus_has_no_devices() -> None:
    view = ClusterView()
    view.upsert_node(plain("plain"))
    view.upsert_pod(a_pod("p", WHOLE[0], "plain"))
    assert (view.snapshot().devices, view.snapshot().sharing) == (None, None)


def test_node_without_shared_gpus_has_whole_devices_beside_nodes_that_share_theirs() -> None:
    view = ClusterView()
    view.upsert_node(plain("a"))
    view.upsert_node(a_node("n1"))
    view.upsert_pod(a_pod("p", WHOLE[0], "a"))
    snapshot = view.snapshot()
    assert np.array_equal(snapshot.devices, [[1000, 1000], [1000, 1000]])
    assert snapshot.sharing is not None
    assert snapshot.sharing.driver.tolist() == [-1, 0]
    view.remove_node("n1")
    assert view.snapshot().devices is None


def test_gpu_devices_of_pods_that_a_snapshot_leaves_out_are_free_in_the_snapshot() -> None:
    view = ClusterView()
    for node in (plain("a"), a_node("n1")):
        view.upsert_node(node)
    pods = [a_pod("p", PART[1], "n1", ("GPU-1b",)), a_pod("q", WHOLE[0], "n1"), a_pod("r", WHOLE[1], "a")]
    for pod in pods:
        view.upsert_pod(pod)
    assert np.array_equal(view.snapshot().devices, [[1000, 0], [0, 500]])
    assert np.array_equal(view.snapshot().without(pods[:1]).devices, [[1000, 0], [0, 1000]])
    assert np.array_equal(view.snapshot().without(pods).devices, [[1000, 1000], [1000, 1000]])


def test_reservation_that_includes_gpus_leaves_no_device_of_the_node_free() -> None:
    view = ClusterView()
    for node in (a_node("n1"), a_node("n2")):
        view.upsert_node(node)
    view.reserve({"n1": SchedulingSpec(((GPU, 1), ("pods", 1))), "n2": SchedulingSpec((("cpu", 1), ("pods", 1)))})
    assert np.array_equal(view.snapshot().devices, [[0, 0, 0], [1000, 1000, 1000]])
    view.reserve({})
    assert np.array_equal(view.snapshot().devices, [[1000, 1000, 0], [1000, 1000, 1000]])


def test_gpu_device_that_is_assumed_and_vanishes_from_its_node_counts_as_overbooked() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    view.upsert_pod(pod := a_pod("p", PART[1]))
    view.assume(pod, "n1", ["GPU-1a"])
    assert not view.is_overbooked("n1", ["GPU-1a"])
    view.upsert_node(a_node("n1", without="GPU-1a"))
    assert view.is_overbooked("n1", ["GPU-1a"])
    assert view.as_assumed(pod) == replace(pod, node_name="n1", devices=(Taken("GPU-1a"),))


def test_bound_pod_that_names_no_gpu_device_takes_capacity_of_one_gpu_and_not_of_each() -> None:
    """The pod may have any device of the node; the two other devices are free."""
    view = ClusterView()
    view.upsert_node(a_node("n2"))
    view.upsert_pod(a_pod("stranger", PART[2], "n2"))
    assert sorted(devices_of(view, "n2").values()) == [660, 1000, 1000]
    gang = [a_pod("ours", WHOLE[1])]
    assert not verify({"uid-ours": "n2"}, gang, view.snapshot())
    assert verify({"uid-ours": "n2", "uid-p": "n2"}, [*gang, a_pod("p", WHOLE[0])], view.snapshot())


def test_assumed_gpu_devices_are_overbooked_by_a_bound_pod_that_may_use_any_of_them() -> None:
    view = ClusterView()
    view.upsert_node(a_node("n1"))
    view.upsert_pod(ours := a_pod("ours", WHOLE[1]))
    view.assume(ours, "n1", ["GPU-1a", "GPU-1b"])
    assert not view.is_overbooked("n1", ["GPU-1a", "GPU-1b"])
    view.upsert_pod(a_pod("stranger", PART[2], "n1"))
    assert view.is_overbooked("n1", ["GPU-1a", "GPU-1b"])
