"""Stories that tests play on any cluster, with the operator in the test's process or in one of its own."""

import time
from datetime import datetime
from functools import partial
from typing import Any

from allaboard.cli import bundled
from allaboard.cli.stories import manifest

from .cluster import Body, Cluster

NAME = "pod-group.scheduling.sigs.k8s.io/name"
MINIMUM = "pod-group.scheduling.sigs.k8s.io/min-available"
_OVERDUE_SECONDS = 3.0


def pods(cluster: Cluster, prefix: str = "") -> list[Body]:
    """Return the pods that aren't being deleted and whose names begin with ``prefix``."""
    found = (pod for pod in cluster.list("pods") if pod["metadata"]["name"].startswith(prefix))
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def running(cluster: Cluster, prefix: str = "") -> int:
    """Return how many pods run whose names begin with ``prefix``."""
    return sum(1 for pod in pods(cluster, prefix) if pod["status"]["phase"] == "Running")


def bound(cluster: Cluster, prefix: str = "") -> list[Body]:
    """Return the pods with a node whose names begin with ``prefix``."""
    return [pod for pod in pods(cluster, prefix) if pod["spec"].get("nodeName")]


def status_of(cluster: Cluster, pod_group: str) -> dict[str, Any]:
    """Return the status of a PodGroup; empty if there is none."""
    return (cluster.get("podgroups", pod_group) or {}).get("status") or {}


def gpu_nodes(cluster: Cluster) -> None:
    """Add two nodes, each with capacity for one job of the examples."""
    for number in (1, 2):
        cluster.add_node(f"node-{number}", cpu="8", gpus=4)


def pod_group_crd() -> Body:
    """Return the shipped CRD of PodGroups."""
    return next(crd for crd in bundled.crds() if crd["spec"]["names"]["kind"] == "PodGroup")


def gang_pod(name: str, gang: str = "gang", minimum: int | str = 3, **spec: Any) -> Body:
    """Return a bare pod of a label-pair gang with 1 cpu.

    ``spec`` may contain ``namespace``, ``requests`` and ``annotations``; other keys go into the pod's spec.
    """
    namespace, requests = spec.pop("namespace", "default"), spec.pop("requests", {"cpu": "1"})
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": {NAME: gang, MINIMUM: str(minimum)},
        "annotations": spec.pop("annotations", {}),
    }
    container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "allaboard", "containers": [container], **spec},
    }


async def a_job_whose_operator_makes_the_pod_group(cluster: Cluster) -> None:
    """Play a job of training-operator with --gang-scheduler-name=allaboard, which needs no labels of the user."""
    gpu_nodes(cluster)
    (job,) = manifest("tfjob-smoke-gpu.yaml")
    for replica in job["spec"]["tfReplicaSpecs"].values():
        del replica["template"]["metadata"]["labels"]
    cluster.create(job)
    await cluster.wait_for(partial(has_pods, "tf-smoke-gpu"), message="there are pods")
    await cluster.wait_for(lambda s: running(s) == 5, message="all five run")
    await cluster.wait_for(lambda s: status_of(s, "tf-smoke-gpu").get("phase") == "Running", message="the PodGroup says so")
    assert len({pod["spec"]["nodeName"] for pod in bound(cluster)}) == 1


def has_pods(tfjob: str, cluster: Cluster) -> bool:
    """Return whether the only job has pods; touch a job that has had none for seconds.

    training-operator looks at a job again when its status changes, and the status has a time in whole seconds. If it hasn't received its
    own PodGroup by its second look within one second, it never looks again. The touch comes late, since an early one would lose what the
    operator has noted of a new job and not written.
    """
    if cluster.list("pods"):
        return True
    now, job = time.time(), cluster.get("tfjobs", tfjob)
    if job is not None and now - datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp() > _OVERDUE_SECONDS:
        cluster.patch("tfjobs", tfjob, {"metadata": {"annotations": {"example.com/touched": f"{now:.0f}"}}})
    return False


async def a_pod_group_that_is_deleted(cluster: Cluster) -> None:
    """Play the deletion of a PodGroup: no pod is released, and a later pod is held, with the reason in its message."""
    cluster.add_node("node-1")
    for obj in manifest("podgroup.yaml"):
        cluster.create(obj)
    await cluster.wait_for(lambda s: running(s) == 3, message="all three run")
    cluster.delete("podgroups", "trio")

    def is_held(late: str) -> bool:
        messages = (event.get("message") or "" for event in cluster.list("events") if event["involvedObject"]["name"] == late)
        return any("PodGroup not found" in message for message in messages)

    def is_settled(late: str, s: Cluster) -> bool:
        return is_held(late) or bool(bound(s, late))

    # A pod that comes before the operator has received the deletion is still bound.
    for number in range(50):
        name = f"late-{number}"
        late = gang_pod(name, requests={"cpu": "10m"})
        late["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "trio"}
        cluster.create(late)
        await cluster.wait_for(partial(is_settled, name), message=f"{name} is held, or was too early")
        if not bound(cluster, name):
            break
    assert is_held(name)
    assert not bound(cluster, name)
    assert running(cluster, "trio") == 3
