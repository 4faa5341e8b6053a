"""Tests requests for parts of GPUs, and the annotations of drivers on nodes and pods, in the formats of the drivers' sources."""

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gpu_sharing import (
    HAMI,
    VOLCANO,
    Device,
    Share,
    Shared,
    Taken,
    Unnamed,
    annotations_of,
    charge_unnamed,
    charges_of,
    shared_by,
    taken_by,
)
from allaboard.model.node import node_from
from allaboard.model.pod import Pod, Reading, pod_from
from allaboard.model.snapshot import most_frequent
from allaboard.placement.rules.devices import assign_devices_exactly

GPU = "nvidia.com/gpu"
OURS = frozenset({"allaboard"})
OF_FRACTION, OF_MEMORY = "metadata.annotations[gpu-fraction]", "metadata.annotations[gpu-memory]"

# HAMi docs/develop/protocol.md, and the output of ``MarshalNodeDevices`` for the same two devices, without fields that are false
HAMI_COLUMNS = (
    "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:"
    "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,false:"
)
HAMI_NINE = HAMI_COLUMNS.replace("true:", "true,0,hami-core:").replace("false:", "false,1,hami-core:")
HAMI_JSON = json.dumps(
    [
        {
            "id": "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec",
            "count": 10,
            "devmem": 32768,
            "devcore": 100,
            "mode": "hami-core",
            "health": True,
        },
        {"id": "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448", "count": 10, "devmem": 32768, "devcore": 100, "index": 1, "mode": "hami-core"},
    ]
)
BOTH = (
    Device("GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec", 32768, 10, True),
    Device("GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448", 32768, 10, False),
)
# volcano-vgpu-device-plugin pkg/plugin/vgpu/util/util.go ``EncodeNodeDevices``
VOLCANO_COLUMNS = "GPU-a,10,40960,NVIDIA-A100,true,hami-core:GPU-b,10,40960,NVIDIA-A100,true,mig:"

TWO = Shared("HAMi", (Device("GPU-a", 16_000, 10, True), Device("GPU-b", 8_000, 10, True)))


def raw_pod(requests: dict[str, str] | None = None, annotations: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1", **(requests or {})}}}]
    scheduler = spec.pop("scheduler", "allaboard")
    return {
        "metadata": {"name": "p", "uid": "u", "annotations": annotations or {}},
        "spec": {"schedulerName": scheduler, "containers": containers, **spec},
        "status": {},
    }


def read(*arguments: Any, **spec: Any) -> Pod:
    return pod_from(raw_pod(*arguments, **spec), reading=Reading(ours=OURS))


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"hami.io/node-nvidia-register": HAMI_COLUMNS}, Shared("HAMi", BOTH)),
        ({"hami.io/node-nvidia-register": HAMI_NINE}, Shared("HAMi", BOTH)),
        ({"hami.io/node-nvidia-register": HAMI_JSON, "hami.io/node-handshake": "Requesting_2024-05-14 07:07:33"}, Shared("HAMi", BOTH)),
        ({"hami.io/node-nvidia-register": HAMI_JSON, "hami.io/node-handshake": "Deleted_2024.05.14 07:07:33"}, Shared("HAMi")),
        (
            {"hami.io/node-nvidia-register": HAMI_JSON.replace("hami-core", "mig")},
            Shared("HAMi", tuple(each._replace(is_usable=False) for each in BOTH)),
        ),
        (
            {"volcano.sh/node-vgpu-register": VOLCANO_COLUMNS},
            Shared("Volcano", (Device("GPU-a", 40960, 10, True), Device("GPU-b", 40960, 10, False))),
        ),
        ({"hami.io/node-mlu-register": HAMI_COLUMNS}, None),
        ({}, None),
    ],
)
def test_the_devices_of_a_node_are_those_that_its_driver_lists(annotations: dict[str, str], expected: Shared | None) -> None:
    node = {"metadata": {"name": "n", "annotations": annotations}, "status": {}}
    assert node_from(node).shared == expected


@pytest.mark.parametrize(
    "listing",
    ["nonsense", "GPU-a,ten,1,100,T,0,true:", "GPU-a,10,1:", "[", "[1]", '[{"id": 7}]', '[{"id": "a", "count": true, "devmem": 1}]',
     '[{"id": "a:b", "count": 1, "devmem": 1}]',
     '[{"id": "\\ud800", "count": 1, "devmem": 1, "health": true}]', "[" * 20_000, f"{'x' * 40_000}:", 12, {"a": 1}],
)  # fmt: skip
def test_a_malformed_list_of_devices_offers_no_device(listing: object) -> None:
    assert shared_by({HAMI.register: listing}) == Shared("HAMi")


@given(st.text(alphabet="GPU-a0,1:;.[]{}\"' \n٣", max_size=60))
def test_any_text_in_annotations_is_read_without_an_error(text: str) -> None:
    for driver in (HAMI, VOLCANO):
        found = shared_by({driver.register: text})
        assert found is not None
        assert all(device.memory >= 0 and device.split >= 0 for device in found.devices)
        assert all(taken.memory >= 0 and taken.cores >= 0 for taken in taken_by({driver.holds: text}))


@pytest.mark.parametrize(
    ("requests", "annotations", "share"),
    [
        ({GPU: "1", "nvidia.com/gpumem": "8192"}, {}, Share("HAMi", memory=8192)),
        ({GPU: "1", "nvidia.com/gpumem-percentage": "50"}, {}, Share("HAMi", thousandths=500)),
        ({GPU: "1", "nvidia.com/gpumem-percentage": "20", "nvidia.com/gpucores": "30"}, {}, Share("HAMi", thousandths=200, cores=30)),
        ({GPU: "1", "nvidia.com/gpucores": "30"}, {}, Share("HAMi", thousandths=1000, cores=30)),
        ({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1024"}, {}, Share("Volcano", memory=1024)),
        ({"volcano.sh/vgpu-number": "1"}, {}, Share("Volcano", thousandths=1000)),
        ({GPU: "1"}, {"gpu-fraction": "0.5"}, Share("HAMi", thousandths=500)),
        ({GPU: "1"}, {"gpu-fraction": ".3333"}, Share("HAMi", thousandths=334)),
        ({GPU: "1"}, {"gpu-memory": "4096", "gpu-fraction-num-devices": "1"}, Share("HAMi", memory=4096)),
        ({"volcano.sh/vgpu-number": "1"}, {"gpu-fraction": "0.25"}, Share("Volcano", thousandths=250)),
        ({GPU: "2"}, {}, None),
        ({"nvidia.com/mig-1g.5gb": "2"}, {}, None),
        ({"nvidia.com/gpu.shared": "1"}, {}, None),
    ],
)
def test_a_part_of_a_gpu_is_read_from_the_resources_of_each_driver(
    requests: dict[str, str], annotations: dict[str, str], share: Share | None
) -> None:
    pod = read(requests, annotations)
    assert (pod.spec.share, pod.malformed, pod.spec.unsupported) == (share, "", ())
    assert pod.spec.whole_gpus == (0 if share else int(requests.get(GPU, "0")))
    assert bool(pod.spec.gpu_share) is (share is not None)
    counted = {name for name, _ in pod.spec.requests}
    assert counted == {"cpu", "pods", *(name for name in requests if name not in (*HAMI.part_resources, *VOLCANO.part_resources))}


@pytest.mark.parametrize(
    ("requests", "annotations", "problem"),
    [
        ({GPU: "1"}, {"gpu-fraction": "1.5"}, f"{OF_FRACTION}: '1.5' is not more than 0 and less than 1, such as 0.5"),
        ({GPU: "1"}, {"gpu-fraction": "half"}, f"{OF_FRACTION}: 'half' is not more than 0 and less than 1, such as 0.5"),
        ({GPU: "1"}, {"gpu-fraction": "0"}, f"{OF_FRACTION}: '0' is not more than 0 and less than 1, such as 0.5"),
        ({GPU: "1"}, {"gpu-fraction": 0.5}, "metadata.annotations.gpu-fraction: 0.5 is not a string"),
        ({GPU: "1"}, {"gpu-memory": "4Gi"}, f"{OF_MEMORY}: '4Gi' is not a whole number of at least 1"),
        ({GPU: "1"}, {"gpu-memory": "4", "gpu-fraction": "0.5"}, f"{OF_MEMORY}: says how much of a GPU, and so does gpu-fraction"),
        (
            {GPU: "2"}, {"gpu-fraction-num-devices": "2"},
            "metadata.annotations[gpu-fraction-num-devices]: says of how many GPUs, but nothing says how much of each",
        ),
        (
            {GPU: "1"}, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"},
            "metadata.annotations[gpu-fraction-num-devices]: is 2, but nvidia.com/gpu is 1",
        ),
        (
            {"nvidia.com/gpumem": "1"}, {},
            "spec.containers.resources.requests[nvidia.com/gpumem]: "
            "says how much of a GPU, but nvidia.com/gpu doesn't say of how many GPUs",
        ),
        (
            {GPU: "1", "nvidia.com/gpumem-percentage": "101"}, {},
            "spec.containers.resources.requests[nvidia.com/gpumem-percentage]: 101 is more than 100 percent",
        ),
        (
            {GPU: "1", "nvidia.com/gpucores": "200"}, {},
            "spec.containers.resources.requests[nvidia.com/gpucores]: 200 is more than 100 percent",
        ),
        (
            {GPU: "1", "nvidia.com/gpumem": "1"}, {"gpu-fraction": "0.5"},
            "spec.containers.resources.requests[nvidia.com/gpumem]: says how much of a GPU, and so does the annotation gpu-fraction",
        ),
    ],
)  # fmt: skip
def test_the_error_names_a_malformed_request_for_a_part_of_a_gpu(
    requests: dict[str, str], annotations: dict[str, Any], problem: str
) -> None:
    assert read(requests, annotations).malformed == problem


@pytest.mark.parametrize(
    ("requests", "annotations", "beginning"),
    [
        ({}, {"gpu-fraction": "0.5"}, "annotation gpu-fraction alone is not supported, since only KAI's binder hands out such parts"),
        ({GPU: "2", "nvidia.com/gpumem": "100"}, {}, "parts of more than one GPU are not supported"),
        ({"volcano.sh/vgpu-number": "2"}, {}, "parts of more than one GPU are not supported"),
        ({GPU: "1", "volcano.sh/vgpu-number": "1"}, {}, "GPUs of several drivers are not supported"),
        ({"aliyun.com/gpu-mem": "3"}, {}, "aliyun.com/gpu-mem is not supported"),
    ],
)
def test_the_message_names_an_unsupported_request_for_parts_of_gpus(
    requests: dict[str, str], annotations: dict[str, str], beginning: str
) -> None:
    (unsupported,) = read(requests, annotations).spec.unsupported
    assert unsupported.startswith(beginning)


def test_only_one_container_may_request_gpu_parts_and_its_position_counts_init_containers() -> None:
    requesting = {"name": "a", "resources": {"requests": {GPU: "1", "nvidia.com/gpumem": "100"}}}
    idle = {"name": "b", "resources": {}}
    several = pod_from(raw_pod(containers=[requesting, {**requesting, "name": "c"}]))
    assert "parts of GPUs are supported in one container only, which must not be an init container" in several.spec.unsupported
    assert pod_from(raw_pod(containers=[idle, requesting], initContainers=[idle])).spec.device_container == 2
    assert pod_from(raw_pod(containers=[idle], initContainers=[requesting])).spec.device_container == -1


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ("GPU-a,NVIDIA,4000,30:;", (Taken("GPU-a", 4000, 30, "HAMi"),)),
        (";GPU-a,NVIDIA,4000,30:GPU-b,NVIDIA,1,0:;", (Taken("GPU-a", 4000, 30, "HAMi"), Taken("GPU-b", 1, 0, "HAMi"))),
        ("GPU-a[1-0],NVIDIA,4000,0:;", (Taken("GPU-a", 4000, 0, "HAMi"),)),
        ("GPU-a,NVIDIA,-1,0:;", ()),
        ("GPU-a", ()),
        ("", ()),
    ],
)
def test_devices_of_bound_pods_of_any_scheduler_are_read_from_their_annotation(holds: str, expected: tuple[Taken, ...]) -> None:
    pod = read({GPU: "1", "nvidia.com/gpumem": "1"}, {HAMI.holds: holds}, scheduler="hami-scheduler", nodeName="n")
    assert pod.devices == expected
    assert read({GPU: "1"}, {HAMI.holds: holds}).devices == ()  # the pod isn't bound
    assert read({}, {HAMI.holds: holds}, nodeName="n").devices == ()  # the pod requests no GPU
    ours = read({GPU: "1"}, {HAMI.holds: holds}, nodeName="n")
    assert ours.devices == tuple(Taken(taken.uuid, driver="HAMi") for taken in expected)  # how much follows from the request


def test_an_annotation_of_one_driver_does_not_hide_the_annotation_of_another_driver() -> None:
    said = {VOLCANO.holds: "GPU-b,NVIDIA,8000,0:"}
    for forged in ("GPU-a,NVIDIA,1,1:;", "nonsense"):
        assert Taken("GPU-b", 8000, 0, "Volcano") in taken_by({HAMI.holds: forged, **said})


@pytest.mark.parametrize(
    ("share", "whole", "taken", "expected"),
    [
        (Share("HAMi", memory=4_000), 0, [Taken("GPU-a")], {0: 250}),
        (Share("HAMi", memory=4_000), 0, [Taken("GPU-b")], {1: 500}),
        (Share("HAMi", memory=4_000, cores=80), 0, [Taken("GPU-a", 4_000, 80)], {0: 800}),
        (Share("HAMi", memory=4_000), 0, [Taken("GPU-a", 1, 0)], {0: 250}),  # the annotation states less than the request
        (Share("HAMi", memory=4_000), 0, [Taken("GPU-a", 16_000, 0)], {0: 1000}),  # the annotation states more
        (Share("HAMi", thousandths=10), 0, [Taken("GPU-a")], {0: 100}),  # at most ten pods share a device
        (Share("HAMi", memory=4_000), 0, [], {0: 500}),  # the device is unknown, and may be the smallest
        (Share("HAMi", memory=4_000), 0, [Taken("GPU-x")], {0: 500}),
        (Share("HAMi", devices=2, memory=4_000), 0, [], {0: 500, 1: 500}),
        (Share("HAMi", devices=2, memory=4_000), 0, [Taken("GPU-a")], {0: 250, 1: 500}),
        (Share("HAMi", devices=2, memory=4_000), 0, [Taken("GPU-a"), Taken("GPU-b")], {0: 250, 1: 500}),
        (None, 1, [Taken("GPU-b")], {1: 1000}),
        (None, 1, [Taken("GPU-b", 2_000, 0)], {1: 250}),  # a driver gave a pod of another scheduler less than the whole GPU
        (None, 1, [Taken("GPU-a"), Taken("GPU-b")], {0: 1000}),  # an annotation gives no more devices than the request
        (None, 2, [Taken("GPU-b")], {0: 1000, 1: 1000}),
        (None, 1, [Taken("GPU-a", driver="Volcano"), Taken("GPU-b", driver="HAMi")], {1: 1000}),  # Volcano isn't the node's driver
        (None, 1, [Taken("GPU-a", driver="Volcano")], {0: 1000}),
        (None, 0, [Taken("GPU-b")], {}),
        (Share("Volcano", memory=4_000), 0, [Taken("GPU-a")], {}),
    ],
)
def test_a_pod_is_charged_for_its_request_on_the_devices_that_it_names(
    share: Share | None, whole: int, taken: list[Taken], expected: dict[int, int]
) -> None:
    assert charged(TWO, share, whole, taken) == expected


def charged(shared: Shared, share: Share | None, whole: int, taken: Sequence[Taken]) -> dict[int, int]:
    """Return what a pod takes of each device of a node without other pods."""
    named, unnamed = charges_of(shared, share, whole, taken)
    free = [1000 for _ in shared.devices]
    for place, thousandths in named:
        free[place] -= thousandths
    free = charge_unnamed(shared, free, {unnamed: 1} if unnamed else {})
    return {place: 1000 - left for place, left in enumerate(free) if left != 1000}


FOUR = Shared("HAMi", tuple(Device(f"GPU-{place}", 16_000, 10, True) for place in range(4)))
some_free = st.lists(st.sampled_from([0, 400, 1000]), min_size=4, max_size=4)
some_unnamed = st.lists(st.sampled_from([100, 250, 600, 1000]), max_size=4)


def left_beside(free: Sequence[int], asked: Sequence[int]) -> list[int]:
    """Return what is free on each device beside pods that ask for ``asked`` thousandths each and name no device."""
    return charge_unnamed(FOUR, free, Counter(Unnamed(each, 1) for each in asked))


@given(some_free, some_unnamed)
def test_pods_that_name_no_device_leave_as_many_whole_gpus_as_in_the_worst_case(free: list[int], asked: list[int]) -> None:
    worst = min(
        sum(each == 1000 and place not in places for place, each in enumerate(free))
        for places in itertools.product(range(4), repeat=len(asked))
    )
    assert sum(each == 1000 for each in left_beside(free, asked)) == worst


@given(some_free, some_unnamed)
def test_pods_that_name_no_device_are_charged_once_for_their_request(free: list[int], asked: list[int]) -> None:
    left = left_beside(free, asked)
    assert sum(left) == max(0, sum(free) - sum(asked))
    assert min(left) >= 0


@given(st.lists(st.sampled_from([100, 300, 1000]), max_size=6), some_unnamed)
def test_a_device_lacks_at_most_the_amount_that_pods_without_named_devices_request(ours: list[int], asked: list[int]) -> None:
    known = [1000] * 4
    for part in ours:
        if (places := assign_devices_exactly(left_beside(known, asked), [part])) is not None:
            known[places[0]] -= part
    assert min(known) >= 0  # so a device lacks no more than what the pods without named devices request of it
    assert known == [1000] * 4 or sum(known) >= sum(asked)  # in sum the devices have enough for all pods


def test_annotations_for_hami_are_those_that_its_device_plugin_reads() -> None:
    """The format is that of docs/develop/protocol.md, pkg/util/util.go ``GetPendingPod`` and pkg/device/devices.go ``DecodePodDevices``."""
    share = Share("HAMi", memory=3_000, cores=30)
    assert annotations_of(TWO, share, 1, ["GPU-b"], "n", 1_700_000_000.9) == {
        "hami.io/vgpu-node": "n",
        "hami.io/vgpu-time": "1700000000",
        "hami.io/bind-time": "1700000000",
        "hami.io/bind-phase": "allocating",
        "hami.io/vgpu-devices-to-allocate": ";GPU-b,NVIDIA,3000,30:;",
        "hami.io/vgpu-devices-allocated": ";GPU-b,NVIDIA,3000,30:;",
    }
    whole = annotations_of(TWO, None, 0, ["GPU-a", "GPU-b"], "n", 0)
    assert whole["hami.io/vgpu-devices-allocated"] == "GPU-a,NVIDIA,16000,100:GPU-b,NVIDIA,8000,100:;"


def test_annotations_for_volcano_are_those_that_its_device_plugin_reads() -> None:
    """The format is that of volcano pkg/scheduler/api/devices/nvidia/vgpu/device_info.go ``Allocate``."""
    node = Shared("Volcano", (Device("GPU-a", 40_960, 10, True),))
    assert annotations_of(node, Share("Volcano", thousandths=500), 2, ["GPU-a"], "n", 5) == {
        "volcano.sh/vgpu-node": "n",
        "volcano.sh/vgpu-time": "5",
        "volcano.sh/bind-time": "5",
        "volcano.sh/bind-phase": "allocating",
        "volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,20480,0:",
        "volcano.sh/devices-to-allocate": "GPU-a,NVIDIA,20480,0:",
    }


@given(
    st.builds(Share, st.just("HAMi"), thousandths=st.integers(0, 1000), memory=st.integers(0, 16_000), cores=st.integers(0, 100)).filter(
        lambda share: share.thousandths or share.memory
    ),
    st.sampled_from(["GPU-a", "GPU-b"]),
)
def test_annotations_that_a_bind_writes_charge_a_pod_as_much_as_was_assumed_for_the_pod(share: Share, uuid: str) -> None:
    assumed = charged(TWO, share, 0, [Taken(uuid)])
    written = annotations_of(TWO, share, 0, [uuid], "n", 0)
    assert charged(TWO, share, 0, taken_by(written)) == assumed


def test_a_workload_distinguishes_gpu_parts_of_different_sizes() -> None:
    specs = [read({GPU: "1", **words}).spec for words in ({}, {"nvidia.com/gpumem": "1"}, {"nvidia.com/gpumem": "2"})]
    assert len(most_frequent([{spec.demand: 1 for spec in specs}])) == 3


def test_a_pod_of_another_scheduler_with_a_malformed_request_is_charged_for_all_of_its_devices() -> None:
    words = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-cores": "900"}
    assert read(words, scheduler="volcano", nodeName="n").spec.share == Share("Volcano", 1, 1000)
