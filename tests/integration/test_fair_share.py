"""The fair order on a cluster: the namespace that uses less of it goes first, also after a restart of the scheduler."""

import pytest

from tests.cluster import Cluster

from .conftest import StartApp, gang_pod

FAIR = {"enabled": True}


def on_nodes(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.list("pods", None) if pod["spec"].get("nodeName")}


@pytest.mark.parametrize("is_fair", [True, False])
async def test_gang_of_the_namespace_that_uses_less_starts_next(cluster: Cluster, start_app: StartApp, is_fair: bool) -> None:
    """The namespace ``heavy`` runs three pods and waits with an older gang; ``light`` runs one pod and waits with a younger gang."""
    cluster.add_node("n", cpu="4")
    for namespace in ("heavy", "light"):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for number in range(3):
        cluster.create(gang_pod(f"busy-{number}", f"busy-{number}", 1, namespace="heavy", requests={"cpu": "1"}))
    cluster.create(gang_pod("light-busy", "light-busy", 1, namespace="light", requests={"cpu": "1"}))
    # The pods run before the scheduler is started again: its shares come from the running pods alone.
    first = await start_app(fair_share={"enabled": is_fair}, reservations=0)
    await cluster.wait_for(lambda s: len(on_nodes(s)) == 4)
    await first.stop()
    cluster.create(gang_pod("older", "older", 1, namespace="heavy", requests={"cpu": "1"}))
    cluster.create(gang_pod("younger", "younger", 1, namespace="light", requests={"cpu": "1"}))
    await start_app(fair_share={"enabled": is_fair}, reservations=0)
    await cluster.wait_for(
        lambda s: all(
            (s.get("PodGroup", name, ns) or {}).get("status", {}).get("reason") for name, ns in (("older", "heavy"), ("younger", "light"))
        )
    )
    cluster.finish_pod("busy-2", "heavy")
    await cluster.wait_for(lambda s: len(on_nodes(s)) == 5)
    assert ("younger" in on_nodes(cluster)) is is_fair
