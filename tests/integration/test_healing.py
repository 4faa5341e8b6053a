"""Gangs that are bound in part are completed or rolled back, and outdated reports are replaced."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio.config import ConfigException

from allaboard.app import App
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.reflector import Reflector
from allaboard.model.gang import Gang
from allaboard.model.pod import Pod
from allaboard.placement import Plan
from allaboard.planning.planner import Planner
from allaboard.planning.search_processes import SearchOverrunError
from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER, Hold
from tests.cluster import Cluster, Home

from .conftest import StartApp, gang_pod
from .test_all_or_none import bound, conditions, message, pod_condition, replica_set, warnings

pytestmark = pytest.mark.usefixtures("impatient")

POD_GROUP = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}


@pytest.fixture
async def cluster(home: Home) -> AsyncIterator[Cluster]:
    """Yield a cluster whose bound pods don't start during a test, so that they can be released."""
    async with home.open(startup_delay=3600) as opened:
        yield opened


def pod_group(name: str, minimum: int) -> dict[str, Any]:
    return {**POD_GROUP, "metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": minimum}}


def is_unbound_and_refused(cluster: Cluster) -> bool:
    return not bound(cluster) and "undone" not in message(cluster) and "0 of 3 members placeable" in message(cluster)


async def test_gang_that_cannot_be_completed_is_rolled_back_and_its_pods_are_recreated(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", nth=3, times=FOR_EVER, status=403, message="no more"))
    deletes = cluster.faults.pause("delete", "pods", times=2)
    await start_app()
    cluster.create(replica_set())
    await asyncio.wait_for(deletes.arrived(), 20)
    first = set(bound(cluster))
    assert len(first) == 2
    deletes.release()
    # The next attempt may replace the PodGroup's message before the test reads it; the event stays.
    await cluster.wait_for(lambda s: bool(warnings(s, "GangUndone")), message="the rollback is reported")
    await cluster.wait_for(lambda s: not bound(s) and len(s.list("pods")) == 3, message="the members are recreated and unbound")
    assert not first & {pod["metadata"]["name"] for pod in cluster.list("pods")}


async def test_failed_release_is_retried_until_no_member_is_bound(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(bind_attempts=2)
    cluster.add_node("node-1")
    third = Hold()
    cluster.faults.add(Fault("bind", "pods", nth=3, status=403, message="no more", hold=third))
    cluster.faults.add(Fault("delete", "pods", times=9, status=503))
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: len(bound(s)) == 2, message="two of three are bound")
    cluster.patch("nodes", "node-1", {"spec": {"unschedulable": True}})
    third.release()
    await cluster.wait_for(is_unbound_and_refused, message="no member is bound")


async def test_partially_bound_gang_that_becomes_invalid_is_rolled_back(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(bind_attempts=1)
    cluster.add_node("node-1")
    again = Hold()
    cluster.faults.add(Fault("bind", "pods", nth=3, status=500))
    cluster.faults.add(Fault("bind", "pods", nth=4, times=FOR_EVER, status=500, hold=again))
    cluster.create(replica_set())
    await asyncio.wait_for(again.arrived(), 20)
    assert len(bound(cluster)) == 2
    third = next(pod["metadata"]["name"] for pod in cluster.list("pods") if not pod["spec"].get("nodeName"))
    cluster.patch("pods", third, {"metadata": {"annotations": {"allaboard.dev/objective": "tetris"}}})
    again.release()
    await cluster.wait_for(lambda s: not bound(s), message="the partially bound gang is rolled back")


async def test_gang_becomes_whole_despite_an_unexpected_error_in_one_bind(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    binds = 0
    post = ApiServer.post

    async def failing_post(self: ApiServer, path: str, body: Any, query: Any = None) -> Any:
        nonlocal binds
        if path.endswith("/binding") and not query:
            binds += 1
            if binds == 3:
                raise ConfigException("exec: process returned 1")
        return await post(self, path, body, query)

    monkeypatch.setattr(ApiServer, "post", failing_post)
    await start_app()
    cluster.add_node("node-1")
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: len(bound(s)) == 3, message="the third is bound at the next try")


async def test_operator_that_is_stopped_during_a_commit_ends_the_commit_first(cluster: Cluster, start_app: StartApp) -> None:
    app = await start_app()
    cluster.add_node("node-1")
    third = cluster.faults.pause("bind", "pods", nth=3)
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: len(bound(s)) == 2)
    stopping = asyncio.create_task(app.stop())
    await asyncio.sleep(0)
    third.release()
    await stopping
    assert len(bound(cluster)) == 3
    assert len([event for event in cluster.list("events") if event.get("reason") == "Scheduled"]) == 4  # of three pods and of the gang


async def test_gang_becomes_whole_when_the_token_expires_during_its_binds(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", nth=3, status=401))
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert not warnings(cluster, "GangUndone")


async def test_surplus_member_whose_bind_was_refused_is_reported_and_retried(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(bind_attempts=1)
    cluster.add_node("node-1")
    second = Hold()
    cluster.faults.add(Fault("bind", "pods", name="c", status=403, message="not yet"))
    cluster.faults.add(Fault("bind", "pods", name="c", nth=2, status=403, message="not yet", hold=second))
    for name in "abc":
        cluster.create(gang_pod(name, minimum=2))
    await cluster.wait_for(lambda s: "not yet" in pod_condition(s, "c").get("message", ""))
    second.release()
    await cluster.wait_for(lambda s: sorted(bound(s)) == ["a", "b", "c"])


async def test_freed_memory_wakes_a_gang_whose_refusal_names_only_cpu_if_another_member_can_move(cluster: Cluster, app: App) -> None:
    """Pod b is refused for cpu. The freed memory lets pod a move to node-2, which leaves the cpu of node-1 to pod b."""
    cluster.add_node("node-1", cpu="4", memory="4Gi")
    cluster.add_node("node-2", cpu="2", memory="4Gi")
    foreign_requests = {"cpu": "0", "memory": "2Gi"}
    cluster.create(gang_pod("foreign", "other", 1, requests=foreign_requests, schedulerName="someone", nodeName="node-2"))
    cluster.create(gang_pod("a", minimum=2, requests={"cpu": "2", "memory": "3Gi"}))
    cluster.create(gang_pod("b", minimum=2, requests={"cpu": "4", "memory": "1Gi"}))
    await cluster.wait_for(lambda s: "1 of 2 members placeable" in message(s))
    cluster.delete("pods", "foreign")
    await cluster.wait_for(lambda s: sorted(bound(s)) == ["a", "b"])


async def test_watch_that_broke_resumes_after_its_last_event_and_repeats_no_older_states(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await start_app()
    cluster.add_node("node-1")
    seen: list[tuple[str, str]] = []
    app.view.listen(on_pod=lambda old, new: seen.append((new.name, new.node_name)) if new else None)
    cluster.create(gang_pod("a", minimum=1))
    await cluster.wait_for(lambda s: bound(s) == ["a"])
    note, broken = Reflector._queue_event, []

    def breaking(self: Reflector, event: dict[str, Any]) -> None:
        if "b" in str(event["object"]["metadata"].get("name")) and not broken and self.path.endswith("/pods"):
            broken.append(self.path)
            raise ApiError(0, "Unreachable", "connection reset by peer")
        note(self, event)

    monkeypatch.setattr(Reflector, "_queue_event", breaking)
    seen.clear()
    cluster.create(gang_pod("b", "other", minimum=1))
    await cluster.wait_for(lambda s: sorted(bound(s)) == ["a", "b"])
    assert broken
    assert ("a", "") not in seen


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Running", "running": 3},
        {"phase": "Running", "running": 3, "reason": "Scheduled", "message": "3 members bound", "schedulerName": "second"},
    ],
    ids=["of-another-kind", "another-allaboard"],
)
async def test_status_of_another_schedulers_pod_group_is_not_changed(cluster: Cluster, app: App, status: dict[str, Any]) -> None:
    cluster.add_node("node-1")
    cluster.create(pod_group("theirs", 3))
    cluster.patch("podgroups", "theirs", {"status": status}, subresource="status")
    app.observe_pod_group("MODIFIED", cluster.get("podgroups", "theirs") or {})
    cluster.create(gang_pod("ours", "ours", minimum=1))
    await cluster.wait_for(lambda s: "1 member bound" in message(s, "ours"))
    assert (cluster.get("podgroups", "theirs") or {})["status"] == status


async def test_pod_group_status_names_the_scheduler_that_writes_it(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    cluster.create(gang_pod("a", minimum=1))
    await cluster.wait_for(lambda s: (s.get("podgroups", "gang") or {}).get("status", {}).get("schedulerName") == "allaboard")


async def test_older_state_of_a_pod_group_never_replaces_a_newer_one(cluster: Cluster, app: App) -> None:
    cluster.create(pod_group("gang", 2))
    old = cluster.get("podgroups", "gang")
    cluster.patch("podgroups", "gang", {"spec": {"minMember": 3}})
    new = cluster.get("podgroups", "gang")
    assert old is not None and new is not None
    app.observe_pod_group("MODIFIED", new)
    app.observe_pod_group("MODIFIED", old)
    (gang,) = app.registry.gangs()
    assert gang.min_member == 3
    app.observe_pod_group("DELETED", old)
    assert list(app.registry.gangs())


async def test_pod_group_message_follows_changes_of_the_minimum(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    group = pod_group("gang", 2)
    cluster.create(group)
    app.observe_pod_group("ADDED", cluster.get("podgroups", "gang") or {})
    for name in "ab":
        pod = gang_pod(name)
        pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "gang"}
        cluster.create(pod)
    await cluster.wait_for(lambda s: "2 members bound" in message(s))
    for minimum, words in ((3, "2 of 3 exist"), (2, "2 members bound")):
        cluster.patch("podgroups", "gang", {"spec": {"minMember": minimum}})
        app.observe_pod_group("MODIFIED", cluster.get("podgroups", "gang") or {})
        await cluster.wait_for(lambda s, words=words: words in message(s))  # type: ignore[misc]


async def test_timeout_of_a_waiting_gang_is_reported_once_and_cleared_when_the_gang_runs(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(schedule_timeout_seconds=1)
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: conditions(s).get("Timeout") == "True" and bool(warnings(s, "Timeout")))
    cluster.add_node("node-1")
    await cluster.wait_for(lambda s: conditions(s).get("Timeout") == "False" and len(bound(s)) == 3)
    assert len(warnings(cluster, "Timeout")) == 1


async def test_gang_that_has_ended_is_reported_as_ended(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    for name in "ab":
        cluster.create(gang_pod(name, minimum=2))
    await cluster.wait_for(lambda s: "2 members bound" in message(s))
    for name in "ab":
        cluster.patch("pods", name, {"status": {"phase": "Succeeded"}}, subresource="status")
    await cluster.wait_for(lambda s: "ended: 2 members succeeded" in message(s))


async def test_slow_rollback_does_not_delay_other_gangs(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", name="gang-*", nth=3, status=403))
    deletes = cluster.faults.pause("delete", "pods", times=2)
    cluster.create(replica_set())
    await asyncio.wait_for(deletes.arrived(), 20)
    cluster.create(gang_pod("other", "other", minimum=1))
    await cluster.wait_for(lambda s: bound(s, "other") == ["other"])
    assert len(bound(cluster, "gang")) == 2, "the rollback is still in progress"
    deletes.release()


async def test_event_that_could_not_be_created_is_created_later(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.faults.add(Fault("create", "events", times=1, status=403))
    cluster.create(gang_pod("a", minimum=1))
    await cluster.wait_for(lambda s: bool(pod_condition(s, "a")))
    cluster.add_node("node-1", cpu="500m")
    await cluster.wait_for(lambda s: bool(warnings(s, "FailedScheduling")))


async def test_partially_bound_gang_is_not_placed_before_a_gang_of_higher_priority(cluster: Cluster, app: App) -> None:
    """Raising the minimum of a bound gang must not move it to the front of the queue."""
    cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})
    cluster.add_node("node-1", cpu="1")
    cluster.create(pod_group("low", 1))
    app.observe_pod_group("ADDED", cluster.get("podgroups", "low") or {})
    for name in ("low-0", "low-1"):
        pod = gang_pod(name)
        pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "low"}
        cluster.create(pod)
    await cluster.wait_for(lambda s: len(bound(s)) == 1)
    cluster.create(gang_pod("high", "zhigh", minimum=1, priorityClassName="high"))
    cluster.patch("podgroups", "low", {"spec": {"minMember": 2}})
    app.observe_pod_group("MODIFIED", cluster.get("podgroups", "low") or {})
    await cluster.wait_for(lambda s: "0 of 1 members placeable" in message(s, "zhigh") and "1 of 2" in message(s, "low"))
    cluster.add_node("node-2", cpu="1")
    await cluster.wait_for(lambda s: len(bound(s)) == 2)
    assert bound(cluster, "high") == ["high"]


async def test_operator_is_not_ready_after_one_of_its_tasks_has_ended(start_app: StartApp, kubeconfig: Path) -> None:
    app = await start_app()
    assert app.is_ready
    app._tasks[0].cancel()
    await asyncio.gather(app._tasks[0], return_exceptions=True)
    assert not app.is_ready


async def wait_until_scheduling_pauses(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(50):
        while "nothing is decided" not in caplog.text:  # noqa: ASYNC110  # a log has no event to wait for
            await asyncio.sleep(0)


async def test_scheduling_pauses_while_the_api_server_is_silent_and_then_resumes(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="allaboard")
    app = await start_app()
    cluster.add_node("node-1")
    with monkeypatch.context() as silent:
        silent.setattr(Reflector, "silence_seconds", 1000.0)
        cluster.create(replica_set())
        await cluster.wait_for(lambda s: len(s.list("pods")) == 3)
        await wait_until_scheduling_pauses(caplog)
        assert not app.is_ready
        assert not bound(cluster)
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert app.is_ready


async def test_plan_of_a_long_search_is_not_bound_while_the_api_server_is_silent(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="allaboard")
    await start_app()
    cluster.add_node("node-1")
    plan_at_length = Planner.plan_at_length
    with monkeypatch.context() as silent:

        async def overrunning(self: Planner, gang: Gang, without: Sequence[Pod] = ()) -> Plan:
            raise SearchOverrunError("the search took too long")

        async def falling_silent(self: Planner, gang: Gang) -> Plan:
            plan = await plan_at_length(self, gang)
            silent.setattr(Reflector, "silence_seconds", 1000.0)
            return plan

        silent.setattr(Planner, "plan", overrunning)
        silent.setattr(Planner, "plan_at_length", falling_silent)
        cluster.create(replica_set())
        await wait_until_scheduling_pauses(caplog)
        assert not bound(cluster)
    await cluster.wait_for(lambda s: len(bound(s)) == 3)


async def test_whole_gang_is_not_reported_as_kept_open_after_an_unexpected_error(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await start_app()
    assert app._scheduler is not None
    cluster.add_node("node-1", cpu="3")
    for name in "abc":
        cluster.create(gang_pod(name, minimum=3))
    await cluster.wait_for(lambda s: "3 members bound" in message(s))
    plan, searched = Planner.plan, []

    async def failing_once(self: Planner, gang: Gang, without: Sequence[Gang] = ()) -> Plan:
        searched.append(gang.key)
        if len(searched) == 1:
            raise RuntimeError("a defect")
        return await plan(self, gang, without)

    monkeypatch.setattr(Planner, "plan", failing_once)
    cluster.create(gang_pod("foreign", "other", 1, schedulerName="someone", nodeName="node-1"))
    cluster.delete("pods", "c", grace=0)
    cluster.create(gang_pod("d", minimum=3))
    await cluster.wait_for(lambda s: "2 of 3 members placeable" in message(s))
    assert "stays partially bound" not in message(cluster)
    assert not warnings(cluster, "KeptOpen")
