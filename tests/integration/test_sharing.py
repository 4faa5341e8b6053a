"""Parts of GPUs: a gang gets all or none, each pod is annotated with its device, and no part is assigned twice."""

from collections import Counter
from typing import Any

import pytest

from allaboard_sandbox import Fault
from tests.cluster import Body, Cluster
from tests.stories import bound, pods

from .conftest import gang_pod

GPU = "nvidia.com/gpu"
HALF = {GPU: "1", "nvidia.com/gpumem": "20480"}
CARD = 40_960

pytestmark = pytest.mark.usefixtures("app")


def hami_node(cluster: Cluster, name: str, cards: int = 2) -> None:
    """Add a node whose GPUs HAMi has registered, each for up to ten pods."""
    listing = "".join(f"GPU-{name}-{card},10,{CARD},100,NVIDIA-A100,0,true:" for card in range(cards))
    cluster.add_node(name, gpus=10 * cards)
    cluster.patch("nodes", name, {"metadata": {"annotations": {"hami.io/node-nvidia-register": listing}}}, "")


def volcano_node(cluster: Cluster, name: str, cards: int = 1) -> None:
    cluster.add_node(name, extra={"volcano.sh/vgpu-number": f"{10 * cards}"})
    listing = "".join(f"GPU-{name}-{card},10,{CARD},NVIDIA-A100,true,hami-core:" for card in range(cards))
    cluster.patch("nodes", name, {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": listing}}}, "")


def member(name: str, gang: str, minimum: int, requests: dict[str, str], annotations: dict[str, str] | None = None) -> Body:
    pod = gang_pod(name, gang, minimum, requests={"cpu": "1", **requests}, annotations=annotations or {})
    pod["spec"]["containers"][0]["resources"]["limits"] = {name: amount for name, amount in requests.items() if "/" in name}
    return pod


def single(name: str, requests: dict[str, str], annotations: dict[str, str] | None = None) -> Body:
    pod = member(name, "", 1, requests, annotations)
    del pod["metadata"]["labels"]
    return pod


def annotations(cluster: Cluster, name: str) -> dict[str, str]:
    return (cluster.get("pods", name) or {})["metadata"].get("annotations") or {}


def taken(cluster: Cluster) -> Counter[str]:
    """Return the MiB of each device that are assigned to pods."""
    found: Counter[str] = Counter()
    for pod in bound(cluster):
        for part in pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"].strip(";").split(":"):
            if part:
                uuid, _, memory, _ = part.split(",")
                assert uuid.startswith(f"GPU-{pod['spec']['nodeName']}-")
                found[uuid] += int(memory)
    return found


def message(cluster: Cluster, name: str) -> str:
    conditions: list[dict[str, Any]] = ((cluster.get("pods", name) or {}).get("status") or {}).get("conditions") or []
    return next((condition.get("message", "") for condition in conditions if condition["type"] == "PodScheduled"), "")


async def test_gang_of_half_gpus_fills_all_gpus_and_the_next_pod_waits_for_a_free_half(cluster: Cluster) -> None:
    for name in ("node-1", "node-2"):
        hami_node(cluster, name)
    for number in range(8):
        cluster.create(member(f"half-{number}", "halves", 8, HALF))
    await cluster.wait_for(lambda s: len(bound(s, "half")) == 8, message="all eight are bound")
    assert taken(cluster) == {f"GPU-node-{node}-{card}": CARD for node in (1, 2) for card in (0, 1)}
    said = annotations(cluster, "half-0")
    assert said["hami.io/vgpu-node"] == (cluster.get("pods", "half-0") or {})["spec"]["nodeName"]
    assert said["hami.io/bind-phase"] == "allocating"
    assert said["hami.io/vgpu-devices-to-allocate"] == said["hami.io/vgpu-devices-allocated"]

    cluster.create(single("ninth", HALF))
    await cluster.wait_for(lambda s: "2 Insufficient parts of nvidia.com/gpu" in message(s, "ninth"), message="the ninth pod is refused")
    device = annotations(cluster, "half-3")["hami.io/vgpu-devices-allocated"]
    cluster.delete("pods", "half-3", grace=0)
    await cluster.wait_for(lambda s: len(bound(s, "ninth")) == 1, message="the ninth pod has the half that was freed")
    assert annotations(cluster, "ninth")["hami.io/vgpu-devices-allocated"] == device


async def test_gang_that_fits_in_total_gpu_memory_but_not_on_single_gpus_is_not_bound_in_part(cluster: Cluster) -> None:
    hami_node(cluster, "node-1")
    two_thirds = {**HALF, "nvidia.com/gpumem": "27000"}
    for number in range(3):
        cluster.create(member(f"large-{number}", "large", 3, two_thirds))
    await cluster.wait_for(lambda s: "podgroup" in message(s, "large-0"), message="the gang is refused")
    assert not bound(cluster)
    cluster.create(single("small", HALF))
    await cluster.wait_for(lambda s: len(bound(s)) == 1, message="a single pod fits")


async def test_pod_that_requests_whole_gpus_gets_unshared_gpus_and_an_annotation_for_the_driver(cluster: Cluster) -> None:
    hami_node(cluster, "node-1", cards=3)
    cluster.create(single("part", {**HALF, "nvidia.com/gpucores": "10"}))
    await cluster.wait_for(lambda s: len(bound(s)) == 1, message="the part is bound")
    cluster.create(single("whole", {GPU: "2"}))
    await cluster.wait_for(lambda s: len(bound(s)) == 2, message="the whole ones are bound")
    assert sorted(taken(cluster).values()) == [CARD // 2, CARD, CARD]
    cluster.create(single("more", {GPU: "1"}))
    await cluster.wait_for(lambda s: "Insufficient nvidia.com/gpu" in message(s, "more"), message="no card is entirely free")


async def test_parts_of_gpus_that_other_schedulers_have_assigned_are_not_assigned_again(cluster: Cluster) -> None:
    hami_node(cluster, "node-1")
    stranger = single("stranger", HALF, {"hami.io/vgpu-devices-allocated": "GPU-node-1-0,NVIDIA,30000,0:;"})
    stranger["spec"] |= {"schedulerName": "hami-scheduler", "nodeName": "node-1"}
    unknown = single("unknown", {**HALF, "nvidia.com/gpumem": "4096"})
    unknown["spec"] |= {"schedulerName": "another", "nodeName": "node-1"}  # its card is unknown
    for pod in (stranger, unknown):
        cluster.create(pod)
    cluster.create(single("ours", HALF))
    await cluster.wait_for(lambda s: len(bound(s, "ours")) == 1, message="ours is bound")
    assert annotations(cluster, "ours")["hami.io/vgpu-devices-allocated"] == "GPU-node-1-1,NVIDIA,20480,0:;"
    cluster.create(single("next", HALF))
    await cluster.wait_for(lambda s: "Insufficient" in message(s, "next"), message="there is no half left")


async def test_parts_of_gpus_are_refused_where_no_driver_hands_them_out(cluster: Cluster) -> None:
    cluster.add_node("plain", gpus=4)
    cluster.create(single("part", HALF))
    words = "1 node(s) had no driver for this kind of GPU sharing (HAMi)"
    await cluster.wait_for(lambda s: words in message(s, "part"), message="the refusal names the missing driver")
    volcano_node(cluster, "node-1")
    await cluster.wait_for(lambda s: "2 node(s) had no driver" in message(s, "part"), message="Volcano's driver is of no use")
    hami_node(cluster, "node-2")
    await cluster.wait_for(lambda s: len(bound(s)) == 1, message="the node with HAMi is used")


async def test_gpu_driver_of_volcano_gets_the_annotations_that_it_reads(cluster: Cluster) -> None:
    volcano_node(cluster, "node-1")
    for number in range(2):
        requests = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory-percentage": "50"}
        cluster.create(member(f"half-{number}", "halves", 2, requests))
    await cluster.wait_for(lambda s: len(bound(s)) == 2, message="both are bound")
    for pod in bound(cluster):
        said = pod["metadata"]["annotations"]
        assert said["volcano.sh/devices-to-allocate"] == said["volcano.sh/vgpu-ids-new"] == "GPU-node-1-0,NVIDIA,20480,0:"
        assert (said["volcano.sh/vgpu-node"], said["volcano.sh/bind-phase"]) == ("node-1", "allocating")


async def test_gpu_fraction_annotation_of_kai_is_handed_out_by_the_installed_driver(cluster: Cluster) -> None:
    hami_node(cluster, "node-1", cards=1)
    cluster.create(single("alone", {}, {"gpu-fraction": "0.5"}))
    await cluster.wait_for(
        lambda s: "only KAI's binder hands out such parts" in message(s, "alone"), message="the fraction alone is refused"
    )
    cluster.create(single("nonsense", {GPU: "1"}, {"gpu-fraction": "half"}))
    await cluster.wait_for(
        lambda s: "'half' is not more than 0 and less than 1" in message(s, "nonsense"), message="the invalid fraction is held"
    )
    for number in range(2):
        cluster.create(member(f"half-{number}", "halves", 2, {GPU: "1"}, {"gpu-fraction": "0.5"}))
    await cluster.wait_for(lambda s: len(bound(s)) == 2, message="both halves are bound")
    assert taken(cluster) == {"GPU-node-1-0": CARD}


async def test_mig_devices_and_time_slices_of_a_device_plugin_are_counted_as_resources(cluster: Cluster) -> None:
    cluster.add_node("node-1", extra={"nvidia.com/mig-1g.5gb": "2", "nvidia.com/gpu.shared": "4"})
    for number in range(3):
        cluster.create(single(f"mig-{number}", {"nvidia.com/mig-1g.5gb": "1"}))
    for number in range(4):
        cluster.create(single(f"slice-{number}", {"nvidia.com/gpu.shared": "1"}))
    await cluster.wait_for(lambda s: len(bound(s)) == 6, message="as many pods are bound as there are devices")
    (left,) = (pod["metadata"]["name"] for pod in pods(cluster) if not pod["spec"].get("nodeName"))
    await cluster.wait_for(lambda s: "Insufficient nvidia.com/mig-1g.5gb" in message(s, left), message="the third is refused")


@pytest.mark.parametrize("fault", [Fault("bind", "pods", nth=2, status=500), Fault("bind", "pods", nth=2, after=True, drop=True)])
async def test_no_gpu_is_assigned_twice_or_lost_after_a_failed_or_unanswered_bind(cluster: Cluster, fault: Fault) -> None:
    hami_node(cluster, "node-1", cards=1)
    cluster.faults.add(fault)
    for number in range(2):
        cluster.create(member(f"half-{number}", "halves", 2, HALF))
    await cluster.wait_for(lambda s: len(bound(s)) == 2, message="bound in the end")
    assert taken(cluster) == {"GPU-node-1-0": CARD}
    for number in range(2):
        cluster.delete("pods", f"half-{number}", grace=0)
    cluster.create(single("whole", {GPU: "1"}))
    await cluster.wait_for(lambda s: len(bound(s)) == 1, message="all of the card is free again")


async def test_annotation_of_another_gpu_driver_does_not_change_what_a_pod_is_charged(cluster: Cluster) -> None:
    volcano_node(cluster, "v", 2)
    words = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory-percentage": "100"}
    cluster.create(single("forger", words, {"hami.io/vgpu-devices-allocated": "GPU-v-1,NVIDIA,1,1:;"}))
    await cluster.wait_for(lambda s: len(bound(s)) == 1, message="the forger has the first device")
    for name in ("second", "third"):
        cluster.create(single(name, words))
    await cluster.wait_for(lambda s: len(bound(s)) == 2 and message(s, "second") + message(s, "third"), message="there is one more")
    given = Counter(annotations(cluster, pod["metadata"]["name"])["volcano.sh/vgpu-ids-new"].split(",")[0] for pod in bound(cluster))
    assert given == {"GPU-v-0": 1, "GPU-v-1": 1}


async def test_pod_is_refused_where_a_driver_shares_gpus_if_its_label_asks_for_more_gpus_than_its_container(cluster: Cluster) -> None:
    hami_node(cluster, "node-1")
    for name, requests in (("alone", {}), ("more", {GPU: "1"})):
        pod = single(name, requests)
        pod["metadata"]["labels"] = {"genius/gpu-number": "2"}
        cluster.create(pod)
    words = "1 node(s) had a driver that gives GPUs to one container of a pod only, as many as that container requests"
    await cluster.wait_for(lambda s: all(words in message(s, name) for name in ("alone", "more")), message="both are refused")
    part = single("part", HALF)
    part["metadata"]["labels"] = {"genius/gpu-number": "2"}
    cluster.create(part)
    await cluster.wait_for(
        lambda s: "parts of more than one GPU are not supported" in message(s, "part"), message="the part is refused too"
    )
    assert not bound(cluster)
    cluster.add_node("plain", gpus=2)
    await cluster.wait_for(lambda s: len(bound(s)) == 1, message="where no driver hands GPUs out a label is enough")
