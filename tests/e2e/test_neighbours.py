"""Pods of another scheduler are not changed, and nodes that two schedulers share are not overcommitted."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import Body, Cluster, Home
from tests.stories import bound, gang_pod, pods, running, status_of

from .controlplane.operators import OperatorProcess
from .kubelets import admitting
from .workloads import deployment, overcommitted, partially_bound


@pytest.fixture
def kube_scheduler(control_plane: Any) -> Iterator[None]:
    """Run kube-scheduler during the test."""
    control_plane.start_scheduler()
    yield
    control_plane.stop_scheduler()


async def test_pod_that_names_another_scheduler_is_not_changed(cluster: Cluster) -> None:
    cluster.add_node("node-1", cpu="16")
    others = [gang_pod(f"other-{number}", "others", schedulerName="somebody-else") for number in range(3)]
    before = _revisions([cluster.create(pod) for pod in others])

    for number in range(3):
        cluster.create(gang_pod(f"ours-{number}", "ours"))
    await cluster.wait_for(lambda s: running(s, "ours") == 3, message="ours run")

    assert _revisions(pods(cluster, "other-")) == before
    assert not [event for event in cluster.list("events") if _is_about(event, "other")]
    assert cluster.get("podgroups", "others") is None


async def test_two_schedulers_that_take_turns_do_not_overcommit_nodes(cluster: Cluster, kube_scheduler: None) -> None:
    _nodes(cluster)

    for workload in _workloads(random.Random(0)):
        cluster.create(workload)
        await cluster.wait_for(_is_at_rest, timeout=20, message="each pod runs or is refused")

    assert overcommitted(cluster) == []
    assert partially_bound(cluster) == {}
    assert _bound_by(cluster, "allaboard"), "no gang was scheduled"
    assert _bound_by(cluster, "default-scheduler"), "kube-scheduler bound no pod"


@pytest.mark.parametrize("seed", range(3))
async def test_two_schedulers_that_race_for_capacity_do_not_overcommit_nodes(
    seed: int, home: Home, operator: OperatorProcess | None, kube_scheduler: None
) -> None:
    async with home.open(startup_delay=3600) as cluster, admitting(cluster):
        _nodes(cluster)

        for workload in _workloads(random.Random(seed)):
            await asyncio.to_thread(cluster.create, workload)

        await cluster.wait_for(_is_at_rest, timeout=20, message="each pod runs or is refused")
        assert overcommitted(cluster) == []
        # Running members are not released when a kubelet has rejected the other members.
        await cluster.wait_for(
            lambda s: all(_is_reported_as_partially_bound(s, name) for name in partially_bound(s)),
            message="partially bound gangs are reported",
        )
        assert _bound_by(cluster, "allaboard"), "no gang was scheduled"


def _nodes(cluster: Cluster) -> None:
    for number in range(1, 5):
        cluster.add_node(f"node-{number}", cpu="8", memory="16Gi", pods=12, gpus=4)


def _bound_by(cluster: Cluster, scheduler: str) -> int:
    return sum(1 for pod in bound(cluster) if pod["spec"]["schedulerName"] == scheduler)


def _revisions(found: list[Body]) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in found}


def _workloads(choose: random.Random) -> list[Body]:
    """Return more workloads than fit, in random order: gangs for the operator, and Deployments for kube-scheduler.

    The Deployments alone don't fill the nodes: kube-scheduler binds each pod at once, whereas gangs must be complete first.
    """
    found = []
    for number in range(10):
        requests = {"cpu": choose.choice(("500m", "1", "2")), "memory": choose.choice(("512Mi", "1Gi", "2Gi"))}
        if choose.random() < 0.5:
            requests["nvidia.com/gpu"] = "1"
        found.append(deployment(f"ours-{number}", choose.randint(2, 4), requests))
        theirs = deployment(f"theirs-{number}", choose.randint(1, 4), requests, scheduler="default-scheduler")
        found += [theirs] if number < 6 else []
    choose.shuffle(found)
    return found


def _is_at_rest(cluster: Cluster) -> bool:
    """Return whether all replicas exist, and each pod runs or was refused."""
    wanted = sum(each["spec"]["replicas"] for each in cluster.list("deployments"))
    found = [pod for pod in pods(cluster) if pod["status"]["phase"] != "Failed"]
    return len(found) == wanted and all(pod["status"]["phase"] == "Running" or _is_refused(pod) for pod in found)


def _is_refused(pod: Body) -> bool:
    conditions = pod["status"].get("conditions") or []
    return not pod["spec"].get("nodeName") and any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


def _is_reported_as_partially_bound(cluster: Cluster, gang: str) -> bool:
    conditions = status_of(cluster, gang).get("conditions") or []
    return any(each["type"] == "PartiallyBound" and each["status"] == "True" for each in conditions)


def _is_about(event: Body, prefix: str) -> bool:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return str(about.get("name", "")).startswith(prefix)
