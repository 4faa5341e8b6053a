"""Gangs of pods that the real controllers make, replace and roll out."""

from typing import Any

import pytest

from tests.cluster import Body, Cluster
from tests.stories import bound, pods, running, status_of

from .workloads import deployment, in_part, job, stateful_set

CPU = {"cpu": "2"}


def uids(found: list[Body]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in found}


def condition(cluster: Cluster, kind: str, name: str, type: str) -> str:
    status = (cluster.get(kind, name) or {}).get("status") or {}
    return next((each["status"] for each in status.get("conditions") or [] if each["type"] == type), "")


async def test_a_deployment_starts_whole_when_there_is_room_for_all_of_it(cluster: Cluster) -> None:
    cluster.add_node("node-1", cpu="4")
    cluster.create(deployment("web", 4, CPU))
    await cluster.wait_for(lambda s: "2 of 4" in status_of(s, "web").get("message", ""), message="the gang is told what is missing")
    assert not bound(cluster)

    cluster.add_node("node-2", cpu="4")

    await cluster.wait_for(lambda s: running(s, "web") == 4, message="all run")
    await cluster.wait_for(lambda s: condition(s, "deployments", "web", "Available") == "True", message="the Deployment is available")


async def test_of_two_batch_jobs_with_room_for_one_the_second_runs_when_the_first_is_done(cluster: Cluster) -> None:
    cluster.add_node("node-1", cpu="4")
    cluster.add_node("node-2", cpu="4")
    for name in ("first", "second"):
        cluster.create(job(name, 4, CPU, duration="2s"))
    await cluster.wait_for(lambda s: sorted((running(s, "first"), running(s, "second"))) == [0, 4], message="one of them runs")
    assert not in_part(cluster)

    for name in ("first", "second"):
        await cluster.wait_for(lambda s, name=name: condition(s, "jobs", name, "Complete") == "True", message=f"{name} is complete")


@pytest.mark.parametrize("make", [deployment, stateful_set])
async def test_a_member_that_is_deleted_is_made_anew_and_takes_its_seat(make: Any, cluster: Cluster) -> None:
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
async def test_a_rollout_ends_with_all_members_new(strategy: Body, cpu: str, cluster: Cluster) -> None:
    cluster.add_node("node-1", cpu=cpu)
    cluster.create(deployment("web", 4, CPU, strategy=strategy))
    await cluster.wait_for(lambda s: running(s, "web") == 4, message="all run")
    old = uids(pods(cluster, "web"))

    cluster.patch("deployments", "web", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})

    # In this order: who is gone doesn't come back between the two looks.
    await cluster.wait_for(lambda s: not old & uids(s.list("pods")) and running(s, "web") == 4, timeout=20, message="all are new")
    await cluster.wait_for(lambda s: status_of(s, "web").get("running") == 4, message="the PodGroup counts them")
    assert not in_part(cluster)


@pytest.mark.parametrize("make", [deployment, stateful_set])
async def test_a_rollout_of_ten_members_one_by_one_waits_for_no_back_off(make: Any, cluster: Cluster) -> None:
    """Each member that is replaced would count as lost otherwise, and the ten would take four minutes."""
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
