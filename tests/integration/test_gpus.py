"""GPU requests by labels and annotations, as users see them: the nodes of pods, and the reasons of refusals."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allaboard.model.gpus import Cards, Measure
from tests.cluster import Body, Cluster

from .conftest import StartApp, gang_pod
from .test_all_or_none import bound, warnings

GENIUS_FILE = Path(__file__).parents[1] / "unit" / "settings" / "genius.yaml"
PRODUCT, MEMORY, COUNT = "nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.count"


def a_pod(name: str, asked: Mapping[str, str], gpus: int = 0, scheduler: str = "allaboard", **annotations: str) -> Body:
    requests = {"cpu": "100m"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    labels = {f"genius/{key}": value for key, value in asked.items()}
    written = {f"allaboard.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {"name": "main", "image": "pause", "resources": {"requests": requests, "limits": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": written},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


def gpu_node(cluster: Cluster, name: str, gpus: int, product: str = "GeForce-GTX-1070-Ti", memory: int = 8192) -> None:
    cluster.add_node(name, gpus=gpus, labels={PRODUCT: product, MEMORY: str(memory), COUNT: str(gpus)})


def measured(nodes: Mapping[str, Sequence[Mapping[Measure, float]]], model: str = "GeForce GTX 1070 Ti") -> Cards:
    """Return the GPU cards of nodes with the measurements of each card."""
    most = max(map(len, nodes.values()))
    values = np.full((len(Measure), len(nodes), most), np.nan, dtype=np.float32)
    models = np.full((len(nodes), most), -1, dtype=np.int32)
    for row, cards in enumerate(nodes.values()):
        models[row, : len(cards)] = 0
        for card, known in enumerate(cards):
            for measure, value in known.items():
                values[measure, row, card] = value
    names = tuple(tuple(str(card) for card in range(len(cards))) for cards in nodes.values())
    return Cards({name: row for row, name in enumerate(nodes)}, names, (model,), models, values)


def node_of(cluster: Cluster, name: str) -> str:
    pod = cluster.get("pods", name)
    assert pod is not None
    return str(pod["spec"].get("nodeName") or "")


def warnings_about(cluster: Cluster, name: str) -> str:
    """Return the messages of all warnings about a pod."""
    events: list[dict[str, Any]] = [each for each in cluster.list("events") if each["type"] == "Warning"]
    mine = [each for each in events if (each.get("involvedObject") or each.get("regarding") or {}).get("name") == name]
    return " ".join(each.get("message") or each.get("note") or "" for each in mine)


async def is_refused(cluster: Cluster, name: str, *words: str) -> None:
    await cluster.wait_for(lambda s: all(each in warnings_about(s, name) for each in words), message=f"{name} is refused with {words}")
    assert not node_of(cluster, name)


async def is_bound(cluster: Cluster, *names: str) -> None:
    await cluster.wait_for(lambda s: all(node_of(s, name) for name in names), message=f"{names} are bound")


async def test_pod_that_asks_for_more_gpus_than_are_free_is_refused_with_the_node_that_has_most(
    cluster: Cluster, start_app: StartApp
) -> None:
    gpu_node(cluster, "node-1", 2)
    await start_app(scheduler_names=("allaboard", "genius-scheduler"))
    cluster.create(a_pod("one", {"gpu-number": "1", "priority": "10"}, scheduler="genius-scheduler"))
    await is_bound(cluster, "one")
    cluster.create(a_pod("three", {"gpu-number": "3"}))
    await is_refused(cluster, "three", "1 Insufficient nvidia.com/gpu", "gpu-number", "node-1")
    # A label alone is charged: of the two GPUs one is left.
    cluster.create(a_pod("two", {"gpu-number": "2"}))
    await is_refused(cluster, "two", "gpu-number asks for 2 nvidia.com/gpu; node-1 has most free: 1.")
    cluster.create(a_pod("last", {}, gpus=1))
    await is_bound(cluster, "last")
    cluster.delete("pods", "one", grace=0)
    cluster.delete("pods", "last", grace=0)
    await is_bound(cluster, "two")


async def test_expression_for_a_gpu_model_matches_all_spellings_of_the_model(cluster: Cluster, start_app: StartApp) -> None:
    gpu_node(cluster, "old", 4, "Tesla-V100-SXM2-16GB", 16384)
    gpu_node(cluster, "game", 4)
    await start_app()
    cluster.create(a_pod("by-label", {"gpu-model": "1070.Ti"}, gpus=1))
    cluster.create(a_pod("by-annotation", {"gpu-model": "V100"}, gpus=1, gpu_model="^geforce gtx_1070|A100"))
    await is_bound(cluster, "by-label", "by-annotation")
    assert {node_of(cluster, "by-label"), node_of(cluster, "by-annotation")} == {"game"}
    cluster.create(a_pod("nowhere", {"gpu-model": "H100"}, gpus=1))
    await is_refused(cluster, "nowhere", "2 node(s) didn't match gpu-model")


async def test_each_gpu_must_have_more_free_memory_than_a_pod_asks_for_each_gpu(cluster: Cluster, start_app: StartApp) -> None:
    gpu_node(cluster, "node-1", 2)
    app = await start_app()
    cluster.create(a_pod("exactly", {"gpu-memory-each": "8192"}))
    await is_refused(cluster, "exactly", "1 node(s) didn't match gpu-memory-each")
    cluster.create(a_pod("all", {"gpu-memory-total": "16384"}))
    cluster.create(a_pod("a-bit-less", {"gpu-number": "2"}, gpu_memory_each="7Gi"))
    await is_bound(cluster, "all", "a-bit-less")
    app.view.observe_cards(measured({"node-1": [{Measure.FREE: 8000.0}, {Measure.FREE: 1000.0}]}))
    cluster.create(a_pod("too-much", {"gpu-memory-total": "9001"}))
    await is_refused(cluster, "too-much", "1 node(s) didn't match gpu-memory-total")
    # A new measurement wakes the pod that waited for memory.
    app.view.observe_cards(measured({"node-1": [{Measure.FREE: 8000.0}, {Measure.FREE: 1001.0 + 64}]}))
    await is_bound(cluster, "too-much")


async def test_node_that_fails_four_gpu_filters_is_refused_with_four_reasons(cluster: Cluster, start_app: StartApp) -> None:
    gpu_node(cluster, "node-1", 2)
    await start_app()
    cluster.create(a_pod("all", {"gpu-number": "3", "gpu-memory-each": "9000", "gpu-memory-total": "99999", "gpu-model": "A100"}))
    reasons = (
        "1 Insufficient nvidia.com/gpu",
        "1 node(s) didn't match gpu-memory-each",
        "1 node(s) didn't match gpu-memory-total",
        "1 node(s) didn't match gpu-model",
    )
    await is_refused(cluster, "all", f"0/1 nodes are available: {', '.join(reasons)}.")


@pytest.mark.parametrize(
    ("label", "value"), [("gpu-number", "-1"), ("gpu-memory-each", "8Gi"), ("priority", "high"), ("gpu-model", "A100.")]
)
async def test_pod_with_an_invalid_gpu_label_is_held_and_the_label_is_named(
    label: str, value: str, cluster: Cluster, start_app: StartApp
) -> None:
    gpu_node(cluster, "node-1", 2)
    await start_app()
    # The API server takes only labels that end in a letter or digit, so two of the values are replaced.
    stated = {"-1": "1x", "A100.": "x" * 63}.get(value, value)
    pod = a_pod("odd", {label: stated}, gpus=1)
    if label == "gpu-model":
        del pod["metadata"]["labels"][f"genius/{label}"]
        pod["metadata"]["annotations"][f"allaboard.dev/{label}"] = "(" * 3
    cluster.create(pod)
    await is_refused(cluster, "odd", label)


@pytest.mark.parametrize(("is_charged", "bound"), [(True, 1), (False, 2)])
async def test_gpus_that_a_label_asks_for_are_charged_unless_the_setting_charged_by_label_is_off(
    is_charged: bool, bound: int, cluster: Cluster, start_app: StartApp
) -> None:
    gpu_node(cluster, "node-1", 2)
    await start_app(gpu={"charged_by_label": is_charged})
    for name in ("first", "second"):
        cluster.create(a_pod(name, {"gpu-number": "2"}, gpus=1))
    if bound == 2:
        await is_bound(cluster, "first", "second")
    else:
        await cluster.wait_for(lambda s: any("Insufficient nvidia.com/gpu" in warnings_about(s, name) for name in ("first", "second")))
        assert sum(bool(node_of(cluster, name)) for name in ("first", "second")) == bound


async def test_node_with_the_idler_and_cooler_gpus_is_preferred_to_equal_nodes(cluster: Cluster, start_app: StartApp) -> None:
    for number in (1, 2, 3):
        gpu_node(cluster, f"node-{number}", 2)
    app = await start_app()
    busy = {Measure.POWER: 180.0, Measure.UTILIZATION: 0.9, Measure.TEMPERATURE: 80.0, Measure.ENCODER: 0.5, Measure.DECODER: 0.5}
    idle = {Measure.POWER: 40.0, Measure.UTILIZATION: 0.0, Measure.TEMPERATURE: 40.0, Measure.ENCODER: 0.0, Measure.DECODER: 0.0}
    app.view.observe_cards(measured({"node-1": [busy] * 2, "node-2": [busy] * 2, "node-3": [idle] * 2}))
    cluster.create(a_pod("first", {}, gpus=1))
    await is_bound(cluster, "first")
    assert node_of(cluster, "first") == "node-3"


async def test_gang_that_asks_for_a_gpu_model_is_placed_whole_on_nodes_with_it(cluster: Cluster, start_app: StartApp) -> None:
    for number in range(4):
        gpu_node(cluster, f"node-{number}", 4, "NVIDIA-A100-SXM4-80GB" if number % 2 else "Tesla-T4", 81920 if number % 2 else 15360)
    await start_app()
    for number in range(8):
        member = gang_pod(f"w-{number}", "train", 8, requests={"nvidia.com/gpu": "1"}, annotations={"allaboard.dev/gpu-model": "A100"})
        member["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
        cluster.create(member)
    await cluster.wait_for(lambda s: len(bound(s)) == 8)
    assert {pod["spec"]["nodeName"] for pod in cluster.list("pods")} == {"node-1", "node-3"}


async def test_gpu_with_an_error_is_not_used_unless_an_application_caused_the_error(cluster: Cluster, start_app: StartApp) -> None:
    gpu_node(cluster, "node-1", 2)
    app = await start_app()
    app.view.observe_cards(measured({"node-1": [{Measure.XID: 79.0}, {Measure.XID: 13.0}]}))
    cluster.create(a_pod("both", {}, gpus=2))
    await cluster.wait_for(lambda s: any("1 Insufficient nvidia.com/gpu" in each for each in warnings(s, "FailedScheduling")))
    await is_refused(cluster, "both", "1 Insufficient nvidia.com/gpu", "1 node(s) had GPUs with errors")
    assert "never fits" not in warnings_about(cluster, "both")
    app.view.observe_cards(measured({"node-1": [{Measure.XID: 0.0}, {Measure.XID: 13.0}]}))
    await is_bound(cluster, "both")


async def test_gang_that_requires_the_level_nvlink_is_placed_in_one_domain(cluster: Cluster, start_app: StartApp) -> None:
    for number in range(6):
        cluster.add_node(f"node-{number}", gpus=2, labels={"nvidia.com/gpu.clique": f"abc.{number % 3}"})
    await start_app()
    for number in range(4):
        asked = {"allaboard.dev/required-topology": "nvlink"}
        member = gang_pod(f"w-{number}", "train", 4, requests={"nvidia.com/gpu": "1"}, annotations=asked)
        member["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
        cluster.create(member)
    await cluster.wait_for(lambda s: len(bound(s)) == 4)
    assert len({int(pod["spec"]["nodeName"][-1]) % 3 for pod in cluster.list("pods")}) == 1


async def test_configuration_and_pods_of_the_scheduler_genius_work_unchanged(
    cluster: Cluster, start_app: StartApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLABOARD_CONFIG", str(GENIUS_FILE))
    gpu_node(cluster, "worse", 2, "GeForce-GTX-1070-Ti", 8192)
    gpu_node(cluster, "better", 2, "GeForce-GTX-1080-Ti", 11264)
    await start_app(leader_elect=False)
    asked = {"gpu-number": "1", "gpu-memory-each": "8000", "gpu-memory-total": "10000", "gpu-model": "GTX.10.0.Ti", "priority": "10"}
    cluster.create(a_pod("gpu-pod", asked, scheduler="genius-scheduler"))
    await is_bound(cluster, "gpu-pod")
    assert node_of(cluster, "gpu-pod") == "better"


async def test_gpu_model_of_a_pod_group_applies_to_members_that_request_gpus(cluster: Cluster, start_app: StartApp) -> None:
    gpu_node(cluster, "a100", 2, "NVIDIA-A100-SXM4-80GB", 81920)
    gpu_node(cluster, "t4", 2, "Tesla-T4", 15360)
    cluster.add_node("cpus")
    await start_app(objective="spread")
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default", "annotations": {"allaboard.dev/gpu-model": "T4"}},
        "spec": {"minMember": 3},
    }
    cluster.create(group)
    for name, gpus in (("w-0", 1), ("w-1", 1), ("ps", 0)):
        pod = a_pod(name, {}, gpus=gpus)
        pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "train"
        cluster.create(pod)
    await is_bound(cluster, "w-0", "w-1", "ps")
    assert (node_of(cluster, "w-0"), node_of(cluster, "w-1")) == ("t4", "t4")
    assert node_of(cluster, "ps") != "t4"


async def test_pod_with_the_higher_genius_priority_is_placed_first(cluster: Cluster, start_app: StartApp) -> None:
    gpu_node(cluster, "node-1", 1)
    await start_app()
    cluster.create(a_pod("there", {}, gpus=1))
    await is_bound(cluster, "there")
    cluster.create(a_pod("old", {}, gpus=1))
    await is_refused(cluster, "old", "1 Insufficient nvidia.com/gpu")
    cluster.create(a_pod("urgent", {"priority": "10"}, gpus=1))
    await is_refused(cluster, "urgent", "1 Insufficient nvidia.com/gpu")
    cluster.delete("pods", "there", grace=0)
    await is_bound(cluster, "urgent")
    assert not node_of(cluster, "old")
