"""A kube-scheduler configuration file has several scheduler names for one process, and changes while the process runs."""

from pathlib import Path

import pytest

from allaboard.reloading import Reloading
from allaboard.settings.options import load_settings
from tests.cluster import Body, Cluster

from .conftest import StartApp, gang_pod

FILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: pack
  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
- schedulerName: spread
  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: LeastAllocated}}}]
"""


def member(name: str, gang: str, scheduler: str) -> Body:
    pod: Body = gang_pod(name, gang, 3, cpu="1")
    pod["spec"]["schedulerName"] = scheduler
    return pod


def nodes(cluster: Cluster, gang: str) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in cluster.list("pods") if pod["metadata"]["name"].startswith(gang)}


async def placed(cluster: Cluster, gang: str, scheduler: str) -> set[str]:
    """Create a gang of three, wait until it is bound, and return its nodes."""
    for number in range(3):
        cluster.create(member(f"{gang}-{number}", gang, scheduler))
    await cluster.wait_for(lambda it: "" not in nodes(it, gang), message=f"{gang} is bound")
    return nodes(cluster, gang)


async def test_each_scheduler_name_has_a_profile_of_its_own_and_a_changed_file_is_reloaded(
    cluster: Cluster, start_app: StartApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(FILE)
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    for number in range(3):
        cluster.add_node(f"node-{number}", cpu="16", memory="64Gi")
    app = await start_app()

    full = await placed(cluster, "packed", "pack")
    assert len(full) == 1
    assert await placed(cluster, "spread", "spread") == {"node-0", "node-1", "node-2"} - full

    reloading = Reloading(app.settings, app.apply)
    path.write_text(FILE.replace("MostAllocated", "Nonsense"))
    await reloading.check()
    assert await placed(cluster, "still", "pack") == full

    path.write_text(FILE.replace("MostAllocated", "LeastAllocated"))
    await reloading.check()
    assert await placed(cluster, "changed", "pack") == {"node-0", "node-1", "node-2"} - full
    assert load_settings().scheduler_names == app.settings.scheduler_names
