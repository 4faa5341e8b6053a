"""Walltimes that job operators' objects state: a bind writes them to the pods, and a cluster without these kinds loses nothing else."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from allaboard.app import App
from allaboard.gangs import owner_watches
from allaboard.kube import first_served
from allaboard.model.gang import GangKey
from allaboard.model.pod import WALLTIME
from allaboard_sandbox.faults import Fault
from tests.cluster import Body, Cluster
from tests.stories import gang_pod, gpu_nodes, manifest

from .conftest import StartApp

RAY_KINDS = {"rayjobs": "RayJob", "rayclusters": "RayCluster"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (owner_watches, first_served):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr(owner_watches, "_WATCH_SECONDS", 1)


def a_definition(plural: str) -> Body:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.ray.io"},
        "spec": {
            "group": "ray.io",
            "scope": "Namespaced",
            "names": {"kind": RAY_KINDS[plural], "plural": plural},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


async def define_ray(cluster: Cluster) -> None:
    for plural in RAY_KINDS:
        cluster.create(a_definition(plural))
    await cluster.wait_for(lambda s: all(is_defined(s, plural) for plural in RAY_KINDS), message="RayJobs and RayClusters are served")


def is_defined(cluster: Cluster, plural: str) -> bool:
    found = cluster.get("customresourcedefinitions", f"{plural}.ray.io", "") or {}
    return any(each["type"] == "Established" and each["status"] == "True" for each in (found.get("status") or {}).get("conditions") or ())


def remove_ray(cluster: Cluster) -> None:
    for plural in RAY_KINDS:
        if cluster.get("customresourcedefinitions", f"{plural}.ray.io", ""):
            cluster.delete("customresourcedefinitions", f"{plural}.ray.io", "")


@pytest.fixture
async def ray(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Yield a cluster on which the test may define the kinds of KubeRay."""
    yield cluster
    remove_ray(cluster)


def owner(created: Body) -> Body:
    names = {"apiVersion": created["apiVersion"], "kind": created["kind"], "name": created["metadata"]["name"]}
    return {**names, "uid": created["metadata"]["uid"], "controller": True}


def a_ray_job(cluster: Cluster, seconds: int) -> Body:
    """Create a RayJob and its RayCluster, as KubeRay does, and return the owner reference of the RayCluster's pods."""
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "train"}, "spec": {"activeDeadlineSeconds": seconds}}
    references = [owner(cluster.create(job))]
    metadata = {"name": "train-abc12", "ownerReferences": references}
    return owner(cluster.create({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": {}}))


def owned_pods(cluster: Cluster, reference: Body, *names: str, **fields: Any) -> None:
    for name in names:
        pod = gang_pod(name, "train", len(names), **fields)
        pod["metadata"]["ownerReferences"] = [reference]
        cluster.create(pod)


def walltimes(cluster: Cluster) -> dict[str, str | None]:
    """Return the walltime that a bind has written to each bound pod."""
    bound = (pod["metadata"] for pod in cluster.list("pods") if pod["spec"].get("nodeName"))
    return {metadata["name"]: (metadata.get("annotations") or {}).get(WALLTIME) for metadata in bound}


async def has_walltime(cluster: Cluster, app: App, walltime: float, name: str = "train") -> None:
    def is_reached(cluster: Cluster) -> bool:
        gang = app.registry.gang(GangKey("default", name))
        return gang is not None and gang.walltime == walltime

    await cluster.wait_for(is_reached, message=f"the walltime is {walltime}")


async def test_bind_writes_the_deadline_of_a_tfjob_to_its_pods(cluster: Cluster, start_app: StartApp) -> None:
    gpu_nodes(cluster)
    (job,) = manifest("tfjob-smoke-gpu.yaml")
    job["spec"]["runPolicy"] = {"activeDeadlineSeconds": 5400}
    await start_app()
    cluster.create(job)
    await cluster.wait_for(lambda s: len(walltimes(s)) == 5, message="the gang is bound")
    assert set(walltimes(cluster).values()) == {"5400"}


async def test_walltime_is_known_when_a_restarted_scheduler_decides(cluster: Cluster, start_app: StartApp) -> None:
    gpu_nodes(cluster)
    (job,) = manifest("tfjob-smoke-gpu.yaml")
    job["spec"]["runPolicy"] = {"activeDeadlineSeconds": 5400}
    cluster.create(job)
    await cluster.wait_for(lambda s: len(s.list("pods")) == 5, message="the pods exist")
    await start_app()
    await cluster.wait_for(lambda s: len(walltimes(s)) == 5, message="the gang is bound")
    assert set(walltimes(cluster).values()) == {"5400"}


async def test_ray_job_that_is_installed_later_states_the_walltime_of_its_clusters_pods(ray: Cluster, start_app: StartApp) -> None:
    app = await start_app()
    await define_ray(ray)
    reference = a_ray_job(ray, 600)
    owned_pods(ray, reference, "head", "worker")
    await has_walltime(ray, app, 600.0)
    ray.patch("rayjobs", "train", {"spec": {"activeDeadlineSeconds": 900}})
    await has_walltime(ray, app, 900.0)
    ray.add_node("n", cpu="8")
    await ray.wait_for(lambda s: walltimes(s) == {"head": "900", "worker": "900"})


async def test_crd_that_is_removed_makes_nothing_stale_and_is_read_again_when_it_comes_back(
    ray: Cluster, start_app: StartApp, caplog: pytest.LogCaptureFixture
) -> None:
    await define_ray(ray)
    app = await start_app(stale_seconds=6)
    owned_pods(ray, a_ray_job(ray, 600), "head", "worker")
    await has_walltime(ray, app, 600.0)
    for name in ("head", "worker"):
        ray.delete("pods", name, grace=0)
    remove_ray(ray)
    await ray.wait_for(lambda s: not any(is_defined(s, plural) for plural in RAY_KINDS), message="nothing of KubeRay is served")
    ray.add_node("n", cpu="8")
    ray.create(gang_pod("other", "other", 1))
    await ray.wait_for(lambda s: walltimes(s) == {"other": None})
    assert app.is_ready
    ray.delete("pods", "other", grace=0)
    await define_ray(ray)
    owned_pods(ray, a_ray_job(ray, 900), "head", "worker", requests={"cpu": "6"})
    await has_walltime(ray, app, 900.0)
    assert app.is_ready
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    # A real API server may report nothing for seconds, which is long for so small a `stale_seconds`.
    assert not [each for each in warnings if "ray" in each and "reported nothing" not in each]


@pytest.mark.sandbox_only("injects refusals")
async def test_missing_right_to_read_tfjobs_is_logged_once_and_stops_nothing_else(
    cluster: Cluster, start_app: StartApp, caplog: pytest.LogCaptureFixture
) -> None:
    gpu_nodes(cluster)
    cluster.faults.add(Fault("list", "tfjobs", times=10_000, status=403, message="tfjobs is forbidden"))
    (job,) = manifest("tfjob-smoke-gpu.yaml")
    job["spec"]["runPolicy"] = {"activeDeadlineSeconds": 5400}
    app = await start_app()
    cluster.create(job)
    await cluster.wait_for(lambda s: len(walltimes(s)) == 5, message="the gang is bound")
    assert set(walltimes(cluster).values()) == {None}
    assert app.is_ready
    messages = [each.getMessage() for each in caplog.records if "walltimes" in each.getMessage()]
    assert len(messages) == 1
    assert messages[0].startswith("walltimes of TFJob.kubeflow.org aren't read: ")
    cluster.faults.clear()
    await has_walltime(cluster, app, 5400.0, "tf-smoke-gpu")
