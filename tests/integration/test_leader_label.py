"""Only the pod of the replica that leads has the label by which the Service of the API selects it."""

import asyncio
from contextlib import suppress
from pathlib import Path

from allaboard.kube.client import ApiServer
from allaboard.leadership.label import LEADS, keep_label, move_label
from tests.cluster import Cluster
from tests.stories import NAME, gang_pod


def leaders(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.list("pods") if (pod["metadata"].get("labels") or {}).get(LEADS) == "true"}


async def test_the_label_moves_to_the_pod_of_the_new_leader(cluster: Cluster, kubeconfig: Path) -> None:
    for name in ("first", "second"):
        cluster.create(gang_pod(name))
    async with ApiServer.connect(kubeconfig=str(kubeconfig)) as server:
        for name in ("first", "second", "second"):
            await move_label(server, "default", name)
            assert leaders(cluster) == {name}
        assert {pod["metadata"]["labels"][NAME] for pod in cluster.list("pods")} == {"gang"}  # other labels stay
        await move_label(server, "default", "of-no-cluster")
        assert leaders(cluster) == {"second"}


async def test_a_replica_is_labelled_once_it_leads(cluster: Cluster, kubeconfig: Path) -> None:
    cluster.create(gang_pod("late"))
    async with ApiServer.connect(kubeconfig=str(kubeconfig)) as server:
        leads = asyncio.Event()
        keeping = asyncio.create_task(keep_label(server, "default", "late", leads, 0.05))
        await asyncio.sleep(0)
        assert not leaders(cluster)
        leads.set()
        await cluster.wait_for(lambda home: leaders(home) == {"late"})
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
