"""The operator runs as a static pod of the control plane's node, installed with the commands of docs/install.md."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.cluster import Cluster
from tests.e2e.document import blocks_under
from tests.stories import gang_pod, running

from .nodes import docker
from .real import PATIENCE, ROOT, is_deployed_whole, play, status

NAMESPACE = "allaboard-system"

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
async def without_deployed_pods(cluster: Cluster, control_plane_node: str) -> AsyncIterator[None]:
    """Scale the Deployment to 0 during the test; at the end, remove the static pod and scale the Deployment to 2."""
    try:
        cluster.patch("deployments", "allaboard", {"spec": {"replicas": 0}}, NAMESPACE)
        await cluster.wait_for(lambda s: not s.list("pods", NAMESPACE), PATIENCE, "the Deployment's pods have gone")
        yield
    finally:
        cluster.patch("deployments", "allaboard", {"spec": {"replicas": 2}}, NAMESPACE)
        docker("exec", control_plane_node, "rm", "--force", "/etc/kubernetes/manifests/allaboard.yaml")
        await asyncio.to_thread(play, "kubectl delete --ignore-not-found -k config/static-pod")
        pod = f"allaboard-{control_plane_node}"
        await cluster.wait_for(lambda s: not status(s, "pods", pod, "kube-system"), PATIENCE, "the static pod is gone")
        await cluster.wait_for(is_deployed_whole, 2 * PATIENCE, "the Deployment's pods are ready again")


async def test_operator_schedules_gangs_as_a_static_pod_on_the_control_plane_node(
    cluster: Cluster, control_plane_node: str, without_deployed_pods: None
) -> None:
    cluster.add_node("node-1", cpu="4")
    for rank in range(4):
        cluster.create(gang_pod(f"gang-{rank}", minimum=4))
    for_the_cluster, for_the_node = blocks_under("As a static pod")
    await asyncio.to_thread(play, for_the_cluster)
    docker("exec", control_plane_node, "mkdir", "--parents", "/root/config/static-pod")
    docker("cp", str(ROOT / "config" / "static-pod" / "allaboard.yaml"), f"{control_plane_node}:/root/config/static-pod/allaboard.yaml")
    docker(
        "exec", "--workdir", "/root", control_plane_node, "bash", "-euc", for_the_node.replace("REGISTRY/allaboard:TAG", "allaboard:e2e")
    )

    await cluster.wait_for(lambda s: running(s, "gang") == 4, PATIENCE, "the gang runs")
    assert status(cluster, "pods", f"allaboard-{control_plane_node}", "kube-system")["phase"] == "Running"
