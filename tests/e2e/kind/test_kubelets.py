"""Behaviour of real kubelets only: containers that need each other, late images, rejected pods, evictions and resizing."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from allaboard_sandbox import ApiError
from tests.cluster import Cluster
from tests.e2e.workloads import deployment_of, partially_bound
from tests.stories import pods, running, status_of

from .load import TAG
from .nodes import docker
from .real import PATIENCE, TINY, create_pod, free_cpu, is_deployed_whole, only_one, status, template

GONE = ("not-ready", "unreachable")

pytestmark = pytest.mark.timeout(1500)


async def test_gang_whose_containers_wait_for_each_other_on_two_nodes_succeeds(
    cluster: Cluster, worker: str, control_plane_node: str
) -> None:
    service = {"clusterIP": "None", "selector": {"app": "ranks"}, "publishNotReadyAddresses": True, "ports": [{"port": 7777}]}
    cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ranks", "namespace": "default"}, "spec": service})
    both = (worker, control_plane_node)
    for rank in range(4):
        words = ("ranks-0.ranks:7777", str(rank), "4")
        pod = template("ranks", 4, words, both, TINY, hostname=f"ranks-{rank}", subdomain="ranks", restartPolicy="Never")
        only_one(pod, port=7000 + rank // 2)
        create_pod(cluster, f"ranks-{rank}", pod)

    await cluster.wait_for(lambda s: {phase(s, f"ranks-{rank}") for rank in range(4)} == {"Succeeded"}, PATIENCE, "all ranks have met")

    nodes = [each["spec"]["nodeName"] for each in pods(cluster, "ranks")]
    assert sorted(nodes) == sorted(both * 2)
    await cluster.wait_for(lambda s: status_of(s, "ranks").get("succeeded") == 4, PATIENCE, "the PodGroup counts four successes")


async def test_rank_of_a_training_job_fails_without_the_other_ranks(cluster: Cluster, worker: str) -> None:
    """If a rank succeeded without the other ranks, the test of four ranks that succeed would prove nothing."""
    pod = template("lonely", 1, ("localhost:7777", "0", "2", "1"), [worker], TINY, restartPolicy="Never")
    create_pod(cluster, "lonely", pod)

    await cluster.wait_for(lambda s: phase(s, "lonely") == "Failed", PATIENCE, "the rank has given up")


async def test_gang_whose_image_is_missing_stays_bound_and_runs_once_the_image_is_loaded(cluster: Cluster, worker: str) -> None:
    late = "docker.io/library/allaboard-late:e2e"
    # The kubelet must not pull the image: after a failed pull it doesn't use an image that was loaded otherwise.
    pod = template("late", 2, ("pause",), [worker], TINY, image=late)
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    cluster.create(deployment_of("late", 2, pod))
    await cluster.wait_for(lambda s: waits(s, "late") == {"ErrImageNeverPull"}, PATIENCE, "the gang is bound, and has no image")
    first = {pod["metadata"]["uid"] for pod in pods(cluster, "late")}
    assert not partially_bound(cluster)

    docker("exec", worker, "ctr", "--namespace", "k8s.io", "images", "tag", TAG, late)

    try:
        await cluster.wait_for(lambda s: running(s, "late") == 2, 3 * PATIENCE, "both run")
        assert {pod["metadata"]["uid"] for pod in pods(cluster, "late")} == first
    finally:
        docker("exec", worker, "ctr", "--namespace", "k8s.io", "images", "rm", late)


async def test_gang_of_a_member_that_the_kubelet_rejects_is_whole_once_there_is_capacity(cluster: Cluster, worker: str) -> None:
    """The mirror pod of a static pod is deleted from the API, so its capacity looks free although the static pod runs on."""
    hog = template("hog", 1, ("pause",), [worker], {"cpu": f"{int(free_cpu(cluster, worker) * 1000) - 300}m"})
    spec = {key: hog["spec"][key] for key in ("containers", "terminationGracePeriodSeconds")}
    static = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hog", "namespace": "default"}, "spec": spec}
    mirror = f"hog-{worker}"
    docker("exec", "--interactive", worker, "sh", "-c", "cat >/etc/kubernetes/manifests/hog.yaml", stdin=json.dumps(static))
    try:
        await cluster.wait_for(lambda s: phase(s, mirror) == "Running", PATIENCE, "the node is nearly full")
        cluster.create(deployment_of("refused", 2, template("refused", 2, ("pause",), [worker], {"cpu": "200m"})))

        def is_rejected(s: Cluster) -> bool:
            with suppress(ApiError):  # the kubelet hasn't recreated the mirror pod yet
                s.delete("pods", mirror, grace=0)
            return "OutOfcpu" in reasons(s, "refused")

        await cluster.wait_for(is_rejected, PATIENCE, "one member is rejected")
    finally:
        docker("exec", worker, "rm", "--force", "/etc/kubernetes/manifests/hog.yaml")

    await cluster.wait_for(lambda s: running(s, "refused") == 2, 3 * PATIENCE, "the gang is whole")
    assert not partially_bound(cluster)
    assert free_cpu(cluster, worker) >= 0


async def test_capacity_of_a_member_that_the_kubelet_evicts_is_free_again(cluster: Cluster, worker: str) -> None:
    cpu = {"cpu": f"{int(free_cpu(cluster, worker) * 1000) * 2 // 5}m"}  # two fit, three don't
    volume = {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}
    for name, command in (("pair-0", ("pause",)), ("pair-1", ("fill", "/scratch/file", "8"))):
        pod = template("pair", 2, command, [worker], cpu, restartPolicy="Never", volumes=[volume])
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
        create_pod(cluster, name, pod)
    await cluster.wait_for(lambda s: "Evicted" in reasons(s, "pair-1"), 3 * PATIENCE, "one fills its volume, and is evicted")
    assert phase(cluster, "pair-0") == "Running"

    cluster.create(deployment_of("next", 1, template("next", 1, ("pause",), [worker], cpu)))

    await cluster.wait_for(lambda s: running(s, "next") == 1, PATIENCE, "another pod has the freed capacity")
    assert free_cpu(cluster, worker) >= 0


async def test_resized_requests_of_a_running_member_are_charged_to_its_node(cluster: Cluster, worker: str) -> None:
    free_milli = int(free_cpu(cluster, worker) * 1000)
    cluster.create(deployment_of("grown", 1, template("grown", 1, ("pause",), [worker], TINY)))
    await cluster.wait_for(lambda s: running(s, "grown") == 1, PATIENCE, "the pod runs")
    (pod,) = pods(cluster, "grown")

    resize(cluster, pod["metadata"]["name"], f"{free_milli - 50}m")
    await cluster.wait_for(lambda s: allocated(s, pod["metadata"]["name"]) == f"{free_milli - 50}m", PATIENCE, "the kubelet has resized it")
    cluster.create(deployment_of("next", 1, template("next", 1, ("pause",), [worker], TINY)))
    await cluster.wait_for(lambda s: "cpu" in status_of(s, "next").get("message", ""), PATIENCE, "the next pod is refused")
    assert running(cluster, "next") == 0

    cluster.delete("deployments", "grown")
    await cluster.wait_for(lambda s: running(s, "next") == 1, PATIENCE, "the next pod runs when the resized pod is gone")


async def test_gang_is_whole_again_after_a_stopped_node_has_started_again(
    cluster: Cluster, worker: str, control_plane_node: str, started: None
) -> None:
    gone = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1} for key in GONE]
    cordoned = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    master = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    pod = template("pair", 2, ("pause",), (worker, control_plane_node), TINY)
    only_one(pod, port=7000)
    pod["spec"]["tolerations"] = [*gone, cordoned, master]
    cluster.create(deployment_of("pair", 2, pod))
    await cluster.wait_for(lambda s: running(s, "pair") == 2, PATIENCE, "the gang runs on both nodes")

    docker("stop", worker)
    await cluster.wait_for(lambda s: not is_ready(s, worker), 2 * PATIENCE, "the node is lost")
    await cluster.wait_for(lambda s: len(pods(s, "pair")) == 2 and running(s, "pair") == 1, 3 * PATIENCE, "the lost member is recreated")
    assert not any(each["spec"].get("nodeName") == worker for each in pods(cluster, "pair") if each["status"]["phase"] == "Pending")

    docker("start", worker)
    await cluster.wait_for(lambda s: running(s, "pair") == 2, 4 * PATIENCE, "the gang is whole again")
    assert {each["spec"]["nodeName"] for each in pods(cluster, "pair")} == {worker, control_plane_node}


@pytest.fixture
async def started(cluster: Cluster, worker: str) -> AsyncIterator[None]:
    """Start the worker node again after a test that stops it, and wait until the node and the operator are ready."""
    yield
    docker("start", worker)
    await cluster.wait_for(lambda s: is_ready(s, worker), 2 * PATIENCE, "the node is back")
    await cluster.wait_for(is_deployed_whole, 2 * PATIENCE)


def phase(cluster: Cluster, pod: str) -> str:
    return str(status(cluster, "pods", pod).get("phase", ""))


def reasons(cluster: Cluster, prefix: str) -> set[str]:
    found = (pod for pod in cluster.list("pods") if pod["metadata"]["name"].startswith(prefix))
    return {pod["status"].get("reason", "") for pod in found}


def waits(cluster: Cluster, prefix: str) -> set[str]:
    """Return the reasons why containers of a gang wait; empty unless all members of the gang have a node."""
    found = pods(cluster, prefix)
    if not all(pod["spec"].get("nodeName") for pod in found):
        return set()
    states = (state for pod in found for state in pod["status"].get("containerStatuses") or ())
    return {state["state"].get("waiting", {}).get("reason", "") for state in states}


def allocated(cluster: Cluster, pod: str) -> str:
    states = status(cluster, "pods", pod).get("containerStatuses") or [{}]
    return str(((states[0].get("resources") or {}).get("requests") or {}).get("cpu", ""))


def resize(cluster: Cluster, pod: str, cpu: str) -> None:
    change = {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": cpu}
    cluster.patch("pods", pod, [change], subresource="resize")


def is_ready(cluster: Cluster, node: str) -> bool:
    conditions = status(cluster, "nodes", node).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
