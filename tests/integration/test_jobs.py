"""Jobs that would count released pods as failures are suspended and resumed instead, where their gangs allow it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from allaboard.binding.job_policy import SUSPENDED
from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.cluster import Body, Cluster, Home

from .conftest import StartApp
from .test_all_or_none import bound, message, warnings
from .test_recovery import crash, job

pytestmark = pytest.mark.usefixtures("impatient")

UNDO = {"allaboard.dev/undo": "suspend"}


@pytest.fixture
async def cluster(home: Home) -> AsyncIterator[Cluster]:
    """Yield a cluster with one node, on which bound pods don't start during a test."""
    async with home.open(startup_delay=3600) as opened:
        opened.add_node("node-1")
        yield opened


def suspendable(**spec: Any) -> Body:
    """Return a Job of three pods that fails with the first lost pod, and may be suspended."""
    made = job()
    made["spec"]["template"]["metadata"]["annotations"] = UNDO
    made["spec"] |= spec
    return made


def refuse_one_bind(cluster: Cluster) -> None:
    """Refuse all binds after the second."""
    cluster.faults.add(Fault("bind", "pods", nth=3, times=FOR_EVER, status=403, message="no more"))


def read(cluster: Cluster) -> Body:
    return cluster.get("jobs", "gang") or {}


def status(cluster: Cluster) -> Body:
    return read(cluster).get("status") or {}


def is_labelled(cluster: Cluster) -> bool:
    return SUSPENDED in (read(cluster)["metadata"].get("labels") or {})


def was_suspended(cluster: Cluster) -> bool:
    """Return whether the Job controller reports that it has suspended and resumed the Job."""
    return any(each["type"] == "Suspended" and each["status"] == "False" for each in status(cluster).get("conditions") or ())


async def test_partially_bound_job_is_suspended_and_resumed_after_its_timeout_without_a_failure(
    cluster: Cluster, start_app: StartApp
) -> None:
    refuse_one_bind(cluster)
    cluster.create(suspendable())
    await cluster.wait_for(lambda s: len(s.list("pods")) == 3)
    first = {pod["metadata"]["uid"] for pod in cluster.list("pods")}
    await start_app(schedule_timeout_seconds=2)
    await cluster.wait_for(lambda s: bool(warnings(s, "KeptOpen")), message="the gang is kept open until its timeout")
    assert "the job is suspended and resumed if the gang isn't whole after 2 s" in warnings(cluster, "KeptOpen")[0]
    # While a bind is refused, the Job is suspended again and again; the event stays.
    await cluster.wait_for(lambda s: bool(warnings(s, "GangUndone")), message="the Job was suspended and resumed")
    cluster.faults.clear()
    await cluster.wait_for(lambda s: len(bound(s)) == 3 and not is_labelled(s), message="the gang is whole")
    # The Job controller reports this after it has recreated the pods.
    await cluster.wait_for(was_suspended, message="the Job controller says that the Job was suspended and goes on")
    assert not first & {pod["metadata"]["uid"] for pod in cluster.list("pods")}
    assert not status(cluster).get("failed")
    assert read(cluster)["spec"]["suspend"] is False


@pytest.mark.parametrize("state", ["suspending", "gone", "resumed"])
async def test_suspended_job_is_resumed_by_the_next_scheduler_after_a_crash(state: str, cluster: Cluster, start_app: StartApp) -> None:
    refuse_one_bind(cluster)
    app = await start_app(schedule_timeout_seconds=1)
    nth = {"suspending": 1, "gone": 2, "resumed": 2}[state]
    hold = cluster.faults.pause("patch", "jobs", nth=nth, after=state != "gone")
    cluster.create(suspendable())
    await asyncio.wait_for(hold.arrived(), 20)
    await crash(app)
    await hold.abandoned()
    cluster.faults.clear()
    await start_app()
    await cluster.wait_for(lambda s: len(bound(s)) == 3, message="the gang is whole")
    await cluster.wait_for(lambda s: not is_labelled(s))
    assert read(cluster)["spec"]["suspend"] is False
    assert not status(cluster).get("failed")


async def test_job_that_a_user_has_suspended_is_not_resumed(cluster: Cluster, start_app: StartApp) -> None:
    cluster.create(suspendable(suspend=True))
    await start_app(resync_seconds=1)
    await cluster.wait_for(lambda s: any(each["type"] == "Suspended" for each in status(s).get("conditions") or ()))
    await asyncio.sleep(2.5)  # longer than two resyncs, which check Jobs with our label
    assert read(cluster)["spec"]["suspend"] is True


@pytest.mark.parametrize("nth", [1, 2], ids=["suspended", "resumed"])
async def test_job_does_not_stay_suspended_if_the_answer_to_its_suspension_is_lost(nth: int, cluster: Cluster, start_app: StartApp) -> None:
    refuse_one_bind(cluster)
    cluster.faults.add(Fault("patch", "jobs", nth=nth, drop=True, after=True))
    await start_app(schedule_timeout_seconds=1)
    cluster.create(suspendable())
    await cluster.wait_for(lambda s: bool(warnings(s, "GangUndone")))
    cluster.faults.clear()
    await cluster.wait_for(lambda s: len(bound(s)) == 3 and not is_labelled(s))
    await cluster.wait_for(was_suspended, message="the Job controller says that the Job was suspended and goes on")
    assert read(cluster)["spec"]["suspend"] is False
    assert not status(cluster).get("failed")


@pytest.mark.parametrize("verb", ["patch", "list"])
async def test_job_is_kept_open_without_the_permission_to_suspend_it_and_the_permission_is_named(
    verb: str, cluster: Cluster, start_app: StartApp
) -> None:
    refuse_one_bind(cluster)
    await start_app(schedule_timeout_seconds=1)  # Jobs are listed first
    cluster.faults.add(Fault(verb, "jobs", times=FOR_EVER, status=403, message="no such right"))
    cluster.create(suspendable())
    expected = f"can't be suspended without the permission to {verb} jobs.batch: no such right"
    await cluster.wait_for(lambda s: any(expected in text for text in warnings(s, "KeptOpen")))
    assert len(bound(cluster)) == 2
    assert not is_labelled(cluster)


async def test_job_that_another_object_controls_is_not_suspended(cluster: Cluster, start_app: StartApp) -> None:
    refuse_one_bind(cluster)
    await start_app(schedule_timeout_seconds=1)
    owner = cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "boss", "namespace": "default"}})
    made = suspendable()
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": owner["metadata"]["uid"], "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    cluster.create(made)
    await cluster.wait_for(lambda s: any("since ConfigMap boss controls it" in text for text in warnings(s, "KeptOpen")))
    assert len(bound(cluster)) == 2
    assert not was_suspended(cluster)


async def test_suspended_job_of_kueue_is_not_resumed_although_it_has_our_label(cluster: Cluster, start_app: StartApp) -> None:
    made = suspendable(suspend=True)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "queue", SUSPENDED: "true"}
    cluster.create(made)
    await start_app()
    await cluster.wait_for(lambda s: not is_labelled(s))
    assert read(cluster)["spec"]["suspend"] is True


class TestWithRunningPods:
    @pytest.fixture
    async def cluster(self, home: Home) -> AsyncIterator[Cluster]:
        async with home.open() as opened:
            opened.add_node("node-1")
            yield opened

    async def test_job_with_running_pods_is_not_suspended(self, cluster: Cluster, start_app: StartApp) -> None:
        refuse_one_bind(cluster)
        await start_app(schedule_timeout_seconds=2)
        cluster.create(suspendable())
        await cluster.wait_for(lambda s: [pod["status"]["phase"] for pod in s.list("pods")].count("Running") == 2)
        await cluster.wait_for(lambda s: any("can't be suspended while its pod" in text for text in warnings(s, "KeptOpen")))
        assert [pod["status"]["phase"] for pod in cluster.list("pods")].count("Running") == 2
        cluster.faults.clear()
        await cluster.wait_for(lambda s: len(bound(s)) == 3)
        assert not was_suspended(cluster)

    async def test_running_members_are_released_only_if_the_gang_and_disruption_budgets_allow_it(
        self, cluster: Cluster, start_app: StartApp
    ) -> None:
        await start_app(schedule_timeout_seconds=2)
        made = suspendable(backoffLimit=3)
        made["spec"]["template"]["metadata"]["annotations"] = {**UNDO, "allaboard.dev/on-member-lost": "release"}
        cluster.create(made)
        await cluster.wait_for(lambda s: [pod["status"]["phase"] for pod in s.list("pods")] == ["Running"] * 3)
        budget = {"minAvailable": 3, "selector": {"matchLabels": made["spec"]["template"]["metadata"]["labels"]}}
        metadata = {"name": "keep", "namespace": "default"}
        cluster.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": budget})
        cluster.patch("nodes", "node-1", {"spec": {"unschedulable": True}})
        cluster.delete("pods", bound(cluster)[0], grace=0)
        await cluster.wait_for(
            lambda s: any("disruption budget" in text for text in warnings(s, "KeptOpen")), message="the budget prevents the release"
        )
        assert not was_suspended(cluster)
        cluster.delete("poddisruptionbudgets", "keep")
        await cluster.wait_for(was_suspended, message="the remaining members are released")
        cluster.patch("nodes", "node-1", {"spec": {"unschedulable": False}})
        await cluster.wait_for(lambda s: "3 members bound" in message(s))
        assert status(cluster).get("failed") == 1
