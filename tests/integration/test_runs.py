"""Successive runs of a gang: a whole run keeps its members, and members that succeeded in one run don't count for the next."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from allaboard.model.pod import STAMP
from allaboard_sandbox.faults import FOR_EVER
from tests.cluster import Cluster, Home
from tests.stories import running

from .conftest import StartApp, gang_pod
from .test_all_or_none import bound, message, pod_condition, replica_set, warnings
from .test_healing import pod_group
from .test_recovery import bind, crash, foreign_pod, job

pytestmark = pytest.mark.usefixtures("impatient")


def stamps(cluster: Cluster, prefix: str) -> set[str]:
    return {pod["metadata"]["annotations"][STAMP] for pod in cluster.list("pods") if pod["metadata"]["name"] in bound(cluster, prefix)}


class TestWithoutPodGroups:
    @pytest.fixture
    async def cluster(self, home: Home) -> Any:
        async with home.open(crds=False) as opened:
            yield opened

    async def test_whole_gang_keeps_its_members_when_the_scheduler_crashes_while_healing_it(
        self, cluster: Cluster, start_app: StartApp
    ) -> None:
        app = await start_app()
        cluster.add_node("node-1", cpu="2")
        cluster.add_node("node-2", cpu="2")
        cluster.create(replica_set(replicas=4))
        await cluster.wait_for(lambda s: running(s) == 4)
        hold = cluster.faults.pause("bind", "pods", nth=2, dry_run=False)
        for pod in cluster.list("pods"):
            if pod["spec"]["nodeName"] == "node-2":
                cluster.delete("pods", pod["metadata"]["name"], grace=0)
        await asyncio.wait_for(hold.arrived(), 20)
        await cluster.wait_for(lambda s: len(bound(s)) == 3)
        await crash(app)
        cluster.faults.clear()
        kept = set(bound(cluster))
        assert len({stamp.removesuffix("/whole") for stamp in stamps(cluster, "gang")}) == 1
        cluster.create(foreign_pod("node-2", "1"))
        await start_app(schedule_timeout_seconds=1)
        await cluster.wait_for(lambda s: len(warnings(s, "Timeout")) == 1, message="the gang's timeout is reported")
        cluster.create(replica_set("other", replicas=3))
        await cluster.wait_for(
            lambda s: len(warnings(s, "Timeout")) == 2, message="the timeout of the gang that needs its capacity is reported too"
        )
        assert set(bound(cluster, "gang")) == kept
        assert not bound(cluster, "other")


async def test_younger_partially_bound_gang_is_still_released_when_its_waiting_member_was_recreated(
    cluster: Cluster, start_app: StartApp, kubeconfig: Path
) -> None:
    cluster.add_node("node-1", cpu="4")
    for gang in ("older", "younger"):
        cluster.create(replica_set(gang, replicas=4))
        await cluster.wait_for(lambda s, gang=gang: sum(gang in pod["metadata"]["name"] for pod in s.list("pods")) == 4)  # type: ignore[misc]
        waiting = [pod["metadata"]["name"] for pod in cluster.list("pods") if gang in pod["metadata"]["name"]]
        for name in waiting[:2]:
            await bind(cluster, name, "node-1", 4)
    await asyncio.sleep(1.1)  # the API server's times are whole seconds: after a pause the next pods are younger than the last bind
    for gang in ("older", "younger"):
        name = next(p["metadata"]["name"] for p in cluster.list("pods") if gang in p["metadata"]["name"] and not p["spec"].get("nodeName"))
        cluster.delete("pods", name, grace=0)
    await cluster.wait_for(lambda s: len(s.list("pods")) == 8 and running(s) == 4)
    await start_app(schedule_timeout_seconds=1)
    await cluster.wait_for(lambda s: len(bound(s, "older")) == 4, message="the older is whole")
    assert not bound(cluster, "younger")


async def test_next_run_of_bare_pods_starts_whole_or_not_at_all(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1", cpu="4")
    for number in range(4):
        cluster.create(gang_pod(f"first-{number}", minimum=4))
    await cluster.wait_for(lambda s: running(s) == 4)
    for number in range(4):
        cluster.finish_pod(f"first-{number}")
    cluster.create(foreign_pod("node-1", "2"))
    for number in range(4):
        cluster.create(gang_pod(f"second-{number}", minimum=4))
    await cluster.wait_for(lambda s: "2 of 4 members placeable" in message(s))
    assert not bound(cluster, "second")
    cluster.delete("pods", "foreign", grace=0)
    await cluster.wait_for(lambda s: len(bound(s, "second")) == 4)
    assert len(stamps(cluster, "first") | stamps(cluster, "second")) == 2, "each run has a stamp of its own"


async def test_second_wave_of_a_job_starts_whole_or_not_at_all(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1", cpu="4")
    cluster.create(job(4, completions=8))
    await cluster.wait_for(lambda s: running(s) == 4)
    first = bound(cluster)
    cluster.patch("nodes", "node-1", {"spec": {"unschedulable": True}})
    cluster.add_node("node-2", cpu="3")  # capacity for all of the second wave but one
    for name in first:
        cluster.finish_pod(name)
    await cluster.wait_for(lambda s: len(s.list("pods")) == 8)
    second = [pod["metadata"]["name"] for pod in cluster.list("pods") if pod["metadata"]["name"] not in first]
    await cluster.wait_for(lambda s: all("Insufficient cpu" in str(pod_condition(s, name).get("message")) for name in second))
    assert set(bound(cluster)) == set(first)
    cluster.add_node("node-3", cpu="1")
    await cluster.wait_for(lambda s: set(bound(s)) == {*first, *second})


async def test_second_wave_of_a_job_waits_for_the_last_pod_of_the_first(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1", cpu="8")
    cluster.create(job(4, completions=8))
    await cluster.wait_for(lambda s: running(s) == 4)
    first = bound(cluster)
    for name in first[:3]:
        cluster.finish_pod(name)
    await cluster.wait_for(lambda s: "waiting for members: 3 of 4 exist" in message(s))
    assert set(bound(cluster)) == set(first)
    cluster.finish_pod(first[3])
    await cluster.wait_for(lambda s: len(bound(s)) == 8)


async def test_last_wave_of_a_job_may_be_smaller_than_the_minimum(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1", cpu="4")
    cluster.create(job(4, completions=5))
    await cluster.wait_for(lambda s: running(s) == 4)
    for name in bound(cluster):
        cluster.finish_pod(name)
    await cluster.wait_for(lambda s: len(bound(s)) == 5)


async def test_second_job_of_a_running_gang_starts_whole_or_not_at_all(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1", cpu="6")
    cluster.create(job(4))
    await cluster.wait_for(lambda s: running(s) == 4)
    again = job(4)
    again["metadata"]["name"] = "again"
    cluster.create(again)
    await cluster.wait_for(lambda s: "2 of 4 members placeable" in message(s))
    assert not bound(cluster, "again")
    cluster.add_node("node-2", cpu="2")
    await cluster.wait_for(lambda s: len(bound(s, "again")) == 4)
    assert len(stamps(cluster, "")) == 2, "each run has a stamp of its own"


def job_named(name: str, members: int, **spec: Any) -> dict[str, Any]:
    """Return a Job of ``members`` pods that belong to the gang of ``job()``."""
    made = job(members)
    made["metadata"]["name"] = name
    made["spec"] |= spec
    return made


async def test_job_that_does_not_fit_does_not_delay_a_later_job_of_its_gang(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1", cpu="4")
    large = job_named("large", 4)
    large["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100"
    cluster.create(large)
    await cluster.wait_for(lambda s: "0 of 4 members placeable" in message(s))
    cluster.create(job_named("small", 4))
    await cluster.wait_for(lambda s: len(bound(s, "small")) == 4)
    cluster.add_node("node-2", cpu="400")
    await cluster.wait_for(lambda s: len(bound(s, "large")) == 4, message="it is retried when there is capacity")


async def test_scaled_down_job_does_not_delay_a_later_job_of_its_gang(cluster: Cluster, start_app: StartApp) -> None:
    app = await start_app()
    cluster.add_node("node-1", cpu="8")
    cluster.create(job_named("first", 4))
    await cluster.wait_for(lambda s: running(s) == 4)
    cluster.patch("jobs", "first", {"spec": {"parallelism": 3}})
    await cluster.wait_for(lambda s: len(bound(s, "first")) == 3)
    cluster.create(job_named("second", 4))
    await cluster.wait_for(lambda s: len(bound(s, "second")) == 4)
    await app.stop()
    cluster.add_node("node-2", cpu="8")
    await start_app()
    cluster.create(job_named("third", 4))
    await cluster.wait_for(lambda s: len(bound(s, "third")) == 4, message="the same holds after an operator restart")
    assert len(bound(cluster)) == 11


async def test_overlapping_jobs_of_one_gang_do_not_wait_for_one_another(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(backoff_initial_seconds=300.0, backoff_max_seconds=300.0)
    cluster.add_node("node-1", cpu="32")
    for number in range(8):
        cluster.create(job_named(f"job-{number}", 4))
        await cluster.wait_for(lambda s, number=number: len(bound(s, f"job-{number}")) == 4)  # type: ignore[misc]


async def test_replacement_of_a_failed_worker_starts_when_the_others_have_succeeded(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1", cpu="4")
    pair = job(2)
    pair["spec"]["backoffLimit"] = 3
    cluster.create(pair)
    await cluster.wait_for(lambda s: running(s) == 2)
    first, second = bound(cluster)
    cluster.finish_pod(first)
    cluster.finish_pod(second, phase="Failed")
    await cluster.wait_for(lambda s: len(bound(s)) == 3)


async def test_replacement_in_a_run_that_was_scaled_down_below_the_minimum_is_bound(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1", cpu="8")
    cluster.create(replica_set(replicas=4))
    await cluster.wait_for(lambda s: running(s) == 4)
    cluster.patch("replicasets", "gang", {"spec": {"replicas": 2}})
    await cluster.wait_for(lambda s: len(s.list("pods")) == 2)
    cluster.delete("pods", bound(cluster)[0], grace=0)
    await cluster.wait_for(lambda s: len(bound(s)) == 2, timeout=20)


async def test_rollout_that_changes_the_minimum_binds_new_members_beside_running_ones(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1", cpu="8")
    cluster.create(replica_set("old", replicas=4))
    await cluster.wait_for(lambda s: running(s) == 4)
    newer = replica_set("new", replicas=1)
    newer["spec"]["template"]["metadata"]["labels"] |= gang_pod("x", "old", 3)["metadata"]["labels"]
    cluster.create(newer)
    await cluster.wait_for(lambda s: len(bound(s, "new")) == 1)


async def test_gang_with_a_stamped_member_is_not_placed_before_a_gang_of_higher_priority(cluster: Cluster, start_app: StartApp) -> None:
    cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100_000})
    cluster.add_node("node-1", cpu="5")
    cluster.create(foreign_pod("node-1", "4"))
    cluster.create(pod_group("low", 4))
    for number in range(4):
        pod = gang_pod(f"low-{number}")
        pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "low"}
        cluster.create(pod)
    await bind(cluster, "low-0", "node-1", 4)
    for number in range(4):
        cluster.create(gang_pod(f"high-{number}", "high", 4, priorityClassName="high"))
    cluster.delete("pods", "foreign", grace=0)
    hold = cluster.faults.pause("bind", "pods", times=FOR_EVER)
    await start_app()
    await asyncio.wait_for(hold.arrived(), 20)
    hold.release()
    await cluster.wait_for(lambda s: len(bound(s, "high")) == 4)
    assert bound(cluster, "low") == ["low-0"]
