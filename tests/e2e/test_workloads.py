"""Gangs of pods that the real controllers create, replace and roll out."""

from typing import Any

import pytest

from tests.cluster import Body, Cluster
from tests.stories import bound, pods, running, status_of

from .workloads import deployment, job, partially_bound, stateful_set

CPU = {"cpu": "2"}


def uids(found: list[Body]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in found}


def condition(cluster: Cluster, kind: str, name: str, type: str) -> str:
    status = (cluster.get(kind, name) or {}).get("status") or {}
    return next((each["status"] for each in status.get("conditions") or [] if each["type"] == type), "")


async def test_deployment_starts_whole_when_there_is_capacity_for_all_replicas(cluster: Cluster) -> None:
    cluster.add_node("node-1", cpu="4")
    cluster.create(deployment("web", 4, CPU))
    await cluster.wait_for(lambda s: "2 of 4" in status_of(s, "web").get("message", ""), message="the gang's refusal is reported")
    assert not bound(cluster)

    cluster.add_node("node-2", cpu="4")

    await cluster.wait_for(lambda s: running(s, "web") == 4, message="all run")
    await cluster.wait_for(lambda s: condition(s, "deployments", "web", "Available") == "True", message="the Deployment is available")


async def test_second_of_two_jobs_runs_when_the_first_is_complete_if_only_one_fits(cluster: Cluster) -> None:
    cluster.add_node("node-1", cpu="4")
    cluster.add_node("node-2", cpu="4")
    for name in ("first", "second"):
        cluster.create(job(name, 4, CPU, duration="2s"))
    await cluster.wait_for(lambda s: sorted((running(s, "first"), running(s, "second"))) == [0, 4], message="one of them runs")
    assert not partially_bound(cluster)

    for name in ("first", "second"):
        await cluster.wait_for(lambda s, name=name: condition(s, "jobs", name, "Complete") == "True", message=f"{name} is complete")


@pytest.mark.parametrize("make", [deployment, stateful_set])
async def test_replacement_of_a_deleted_member_is_bound_and_the_other_members_stay(make: Any, cluster: Cluster) -> None:
    cluster.add_node("node-1", cpu="8")
    cluster.create(make("web", 4, CPU))
    await cluster.wait_for(lambda s: running(s, "web") == 4, message="all run")
    first = pods(cluster, "web")
    lost = first[0]["metadata"]

    cluster.delete("pods", lost["name"])

    await cluster.wait_for(lambda s: lost["uid"] not in uids(pods(s)) and running(s, "web") == 4, message="the gang is whole again")
    assert len(uids(first) & uids(pods(cluster))) == 3


@pytest.mark.parametrize(
    ("strategy", "cpu"),
    [
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}, "12"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, "8"),
        ({"type": "Recreate"}, "8"),
    ],
    ids=["new pods first", "one by one in full nodes", "all at once"],
)
async def test_rollout_ends_with_only_new_members(strategy: Body, cpu: str, cluster: Cluster) -> None:
    cluster.add_node("node-1", cpu=cpu)
    cluster.create(deployment("web", 4, CPU, strategy=strategy))
    await cluster.wait_for(lambda s: running(s, "web") == 4, message="all run")
    old = uids(pods(cluster, "web"))

    cluster.patch("deployments", "web", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})

    # Checked in this order, because a pod that is gone doesn't return before the second check.
    await cluster.wait_for(lambda s: not old & uids(s.list("pods")) and running(s, "web") == 4, timeout=20, message="all are new")
    await cluster.wait_for(lambda s: status_of(s, "web").get("running") == 4, message="the PodGroup counts the new members")
    assert not partially_bound(cluster)


@pytest.mark.parametrize("make", [deployment, stateful_set])
async def test_rollout_of_ten_members_one_by_one_is_not_delayed_by_backoff(make: Any, cluster: Cluster) -> None:
    """If replaced members counted as lost, the rollout would take four minutes."""
    cluster.add_node("node-1", cpu="20")
    web = make("web", 10, CPU)
    if web["kind"] == "Deployment":
        web["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    cluster.create(web)
    await cluster.wait_for(lambda s: running(s, "web") == 10, message="all run")
    before = uids(pods(cluster, "web"))

    template = {"metadata": {"annotations": {"revision": "2"}}}
    cluster.patch(f"{web['kind'].lower()}s", "web", {"spec": {"template": template}})

    await cluster.wait_for(lambda s: running(s, "web") == 10 and not uids(pods(s, "web")) & before, message="all ten are new")
