"""``allaboard plan`` predicts what happens when manifests are applied, and shows applied gangs where they run."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from allaboard.app import App
from allaboard.cli import bundled
from allaboard.cli.embedded import operator
from allaboard.cli.main import cli
from allaboard.cli.stories import Objects, manifest
from allaboard.gangs.membership import membership_of
from allaboard.model.pod import pod_from
from allaboard_sandbox import local_volume, waiting_class
from tests.cluster import Cluster, Home
from tests.stories import gpu_nodes, has_pods
from tests.unit.placement.solvers.test_search import DEMO_CPU, DEMO_MEMORY

from .conftest import StartApp, gang_pod

GANG = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "5"}

Gangs = Counter[tuple[str, int]]
"""Number of gangs by name and size."""


@dataclass(frozen=True)
class PlanAnswer:
    """An answer of ``allaboard plan``."""

    gangs: Sequence[dict[str, Any]]
    notes: str

    @property
    def pods(self) -> int:
        return sum(len(gang["assignments"]) + len(gang["unplaced"]) for gang in self.gangs)

    def all(self) -> Gangs:
        return Counter((without_suffix(gang["name"]), len(gang["assignments"]) + len(gang["unplaced"])) for gang in self.gangs)

    def fitting(self) -> Gangs:
        return Counter((without_suffix(gang["name"]), len(gang["assignments"])) for gang in self.gangs if gang["feasible"])

    def nodes(self) -> dict[str, str]:
        return {each["pod"]: each["node"] for gang in self.gangs for each in gang["assignments"]}


def without_suffix(name: str) -> str:
    """Return a name in which ``*`` replaces the suffix that a controller, or a plan, has added."""
    return re.sub(r"-([a-z0-9]{5}|[0-9]+)$", "-*", name)


async def plan(objects: Objects, folder: Path, *options: str) -> PlanAnswer:
    """Run ``allaboard plan`` on the live cluster and return its answer."""
    path = folder / "gangs.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    result = await asyncio.to_thread(CliRunner().invoke, cli, ["plan", "-f", str(path), "-o", "json", *options])
    assert result.exit_code in (0, 1), result.output
    return PlanAnswer(json.loads(result.stdout)["gangs"], result.stderr)


def is_decided(cluster: Cluster, pods: int) -> bool:
    """Return whether all pods exist, and each has a node or was refused."""

    def is_refused(pod: dict[str, Any]) -> bool:
        return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in pod["status"].get("conditions") or ())

    found = cluster.list("pods")
    return len(found) == pods and all(pod["spec"].get("nodeName") or is_refused(pod) for pod in found)


def known(app: App) -> Gangs:
    """Return the gangs that the operator knows."""
    return Counter((without_suffix(gang.key.name), len(gang.alive)) for gang in app.registry.gangs())


def bound(cluster: Cluster) -> Gangs:
    """Return the gangs with bound members, by name and number of bound members."""
    pods = [pod_from(raw) for raw in cluster.list("pods") if raw["spec"].get("nodeName")]
    return Counter((without_suffix(key.name), members) for key, members in Counter(membership_of(pod).key for pod in pods).items())


async def applied(cluster: Cluster, objects: Objects, start_app: StartApp, pods: int) -> App:
    """Apply the objects, then start the operator: its decisions must not depend on the order of events."""
    for obj in objects:
        cluster.apply(obj)
    await cluster.wait_for(lambda s: len(s.list("pods")) == pods, message=f"{pods} pods")
    app = await start_app()
    await cluster.wait_for(lambda s: is_decided(s, pods), message="each pod is bound or refused")
    return app


def workload(kind: str, api_version: str, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "w", **labels}}, "spec": {"schedulerName": "allaboard", "containers": [container]}}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": {"app": "w"}}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": {**spec, "template": template}}


def contending() -> Objects:
    """Return two gangs for a node of 8 cores. Placed one by one, only the older fits: it needs 2 cores, and the younger all 8."""
    return [gang_pod("old-a", "old", 2), gang_pod("old-b", "old", 2), gang_pod("young-a", "young", 1, requests={"cpu": "8"})]


def with_priorities() -> Objects:
    """Return two gangs of which the younger has the higher priority."""
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    return [high, gang_pod("a", "a", 1, requests={"cpu": "3"}), gang_pod("b", "b", 1, requests={"cpu": "2"}, priorityClassName="high")]


def twenty_pods() -> Objects:
    amounts = [{"cpu": str(cpu), "memory": f"{memory}Mi"} for cpu, memory in zip(DEMO_CPU, DEMO_MEMORY, strict=True)]
    found = [gang_pod(f"pod{number:02}", requests=each) for number, each in enumerate(amounts, start=1)]
    for pod in found:
        pod["metadata"]["labels"] = {}
    return found


def with_local_volumes() -> Objects:
    """Return the example of a StatefulSet, with its storage class and a free volume on each of three nodes."""
    volumes = [{**local_volume(f"disk-{number}", "standard", f"node-{number}"), "status": {"phase": "Available"}} for number in (1, 2, 3)]
    return [waiting_class("standard"), *volumes, *manifest("statefulset-volumes.yaml")]


def racks(*names: str) -> list[dict[str, Any]]:
    return [{"gpus": 4, "labels": {"topology.kubernetes.io/rack": name}} for name in names]


def shared_cards(number: int) -> dict[str, str]:
    """Return the annotation by which HAMi registers two GPU cards of a node."""
    return {"hami.io/node-nvidia-register": "".join(f"GPU-{number}{card},10,40960,100,NVIDIA-A100,0,true:" for card in "ab")}


def gpus(product: str, memory: int) -> dict[str, Any]:
    return {"gpus": 2, "labels": {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": str(memory)}}


EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "tfjob-smoke-gpu": [{"cpu": "8", "gpus": 4}] * 2,
    "two-jobs": [{"cpu": "8", "gpus": 4}],
    "nginx-min-3": [{"cpu": "4"}] * 3,
    "nginx-min-4": [{"cpu": "4"}] * 3,
    "fragmentation": [{"gpus": 4}] * 2,
    "podgroup": [{"cpu": "4"}],
    "impossible-gang": [{"cpu": "8", "gpus": 4}] * 2,
    "order-trap": [{"cpu": "53", "memory": "476G"}, {"cpu": "31", "memory": "96G"}],
    "tight-gang": [{"cpu": cpu, "memory": memory} for cpu, memory in (("16", "96Gi"), ("32", "64Gi"), ("24", "64Gi")) for _ in range(3)],
    "gpu-model": [gpus("Tesla-T4", 15360), gpus("NVIDIA-A100-SXM4-40GB", 40960), gpus("NVIDIA-H100-80GB-HBM3", 81559)],
    "priority": [{"cpu": "64", "gpus": 8}] * 4,
    "backfill": [{"cpu": "64", "gpus": 8}] * 2,
    "preemption": [{"cpu": "64", "gpus": 8}] * 2,
    "fair": [{"cpu": "64", "gpus": 8}],
    "roles-and-racks": racks("a", "a", "b", "b"),
    "gpu-sharing": [{"gpus": 20, "annotations": shared_cards(number)} for number in (1, 2)],
    "one-per-host": [{"cpu": "4"}] * 3,
    "spread-zones": [{"cpu": "4", "labels": {"topology.kubernetes.io/zone": zone}} for zone in "abc"],
    "statefulset-volumes": [{"cpu": "4"}] * 3,
    "demo-twenty-pods": [{"cpu": "8", "memory": "16Gi"}] * 3,
}
"""Nodes of each example, as ``examples/README.md`` requires them."""

PIPELINES = {"lstm-pipeline"}
"""Examples whose pods an operator creates stage by stage if pipelines are on; ``test_pipelines.py`` tests them."""

SCENES: dict[str, tuple[list[dict[str, Any]], Objects]] = {
    "gangs that contend": ([{"cpu": "8"}], contending()),
    "a gang of a higher priority": ([{"cpu": "4"}], with_priorities()),
    "many pods that contend": ([{"cpu": "8", "memory": "16Gi"}] * 3, twenty_pods()),
    "a gang of a ReplicaSet": ([{"cpu": "8"}], [workload("ReplicaSet", "apps/v1", GANG, replicas=5)]),
    "a ReplicaSet of single pods": ([{"cpu": "3"}], [workload("ReplicaSet", "apps/v1", {}, replicas=5)]),
    "a gang of a Job": ([{"cpu": "8"}], [workload("Job", "batch/v1", GANG, parallelism=5, completions=5, completionMode="Indexed")]),
    "a Job that doesn't fit": ([{"cpu": "4"}], [workload("Job", "batch/v1", GANG, parallelism=5, completions=9)]),
    **{name: (nodes, manifest(f"{name}.yaml")) for name, nodes in EXAMPLES.items()},
    "a StatefulSet with a volume on each node": (EXAMPLES["statefulset-volumes"], with_local_volumes()),
}


def test_every_example_has_a_test_that_compares_its_plan_with_its_binds() -> None:
    assert {path.stem for path in bundled.examples()} == EXAMPLES.keys() | PIPELINES


@pytest.mark.parametrize("scene", SCENES)
async def test_plan_names_the_gangs_that_are_bound_when_manifests_are_applied(
    scene: str, cluster: Cluster, kubeconfig: Path, start_app: StartApp, tmp_path: Path
) -> None:
    nodes, objects = SCENES[scene]
    for number, node in enumerate(nodes, start=1):
        cluster.add_node(f"node-{number}", **{name: value for name, value in node.items() if name != "annotations"})
        cluster.patch("nodes", f"node-{number}", {"metadata": {"annotations": node.get("annotations", {})}}, "")
    answer = await plan(objects, tmp_path)

    app = await applied(cluster, objects, start_app, answer.pods)

    assert answer.all() == known(app)
    assert answer.fitting() == bound(cluster)


@pytest.mark.parametrize(
    "scene", ["gangs that contend", "a ReplicaSet of single pods", "a gang of a Job", "two-jobs", "nginx-min-3", "podgroup"]
)
async def test_plan_shows_applied_gangs_where_they_run_and_does_not_place_them_again(
    scene: str, cluster: Cluster, kubeconfig: Path, start_app: StartApp, tmp_path: Path
) -> None:
    nodes, objects = SCENES[scene]
    for number, node in enumerate(nodes, start=1):
        cluster.add_node(f"node-{number}", **node)
    before = await plan(objects, tmp_path)
    app = await applied(cluster, objects, start_app, before.pods)

    answer = await plan(objects, tmp_path)

    assert answer.all() == known(app)
    assert answer.nodes() == {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.list("pods") if "nodeName" in pod["spec"]}
    assert "already" in answer.notes
    assert "already" not in before.notes


async def test_job_whose_pod_group_its_operator_creates_is_planned_as_one_gang(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = manifest("tfjob-smoke-gpu.yaml")
    for replica in job["spec"]["tfReplicaSpecs"].values():
        del replica["template"]["metadata"]["labels"]
    async with home.open(gang_scheduler_name="allaboard") as cluster:
        gpu_nodes(cluster)
        home.write_operator_kubeconfig(cluster, tmp_path / "kubeconfig")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        answer = await plan([job], tmp_path, "--gang-scheduler-name", "allaboard")
        cluster.create(job)
        await cluster.wait_for(partial(has_pods, "tf-smoke-gpu"), message="the job has pods")
        await cluster.wait_for(lambda s: len(s.list("pods")) == 5, message="five pods")
        async with operator(tmp_path / "kubeconfig") as app:
            await cluster.wait_for(lambda s: is_decided(s, 5), message="all five are bound")
            assert answer.all() == known(app) == Counter({("tf-smoke-gpu", 5): 1})
            assert answer.fitting() == bound(cluster)
        # Once the Job is applied, the labels of its pods name their gang.
        assert (await plan([job], tmp_path)).fitting() == bound(cluster)


async def test_waiting_gang_of_the_cluster_is_planned_before_the_gangs_of_the_manifests(
    cluster: Cluster, kubeconfig: Path, start_app: StartApp, tmp_path: Path
) -> None:
    cluster.add_node("node-1", cpu="4")
    cluster.create(gang_pod("waiting-a", "waiting", 1, requests={"cpu": "3"}))
    objects = [gang_pod("young-a", "young", 1, requests={"cpu": "3"}), gang_pod("zero-a", "zero", 1, requests={"cpu": "1"})]
    answer = await plan(objects, tmp_path)

    await applied(cluster, objects, start_app, 3)

    assert answer.fitting() + Counter({("waiting", 1): 1}) == bound(cluster)
    assert "a gang that waits in the cluster is placed, too: default/waiting" in answer.notes
