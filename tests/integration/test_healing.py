"""What goes wrong half way is finished or undone, and what was said of it is taken back."""

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
    """A cluster whose pods take their time to start, so that what is bound can be released."""
    async with home.open(startup_delay=3600) as opened:
        yield opened


def pod_group(name: str, minimum: int) -> dict[str, Any]:
    return {**POD_GROUP, "metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": minimum}}


def is_absent_for_good(cluster: Cluster) -> bool:
    return not bound(cluster) and "undone" not in message(cluster) and "0 of 3 members placeable" in message(cluster)


async def test_a_gang_that_can_t_be_finished_is_undone_and_its_pods_are_made_anew(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", nth=3, times=FOR_EVER, status=403, message="no more"))
    undo = cluster.faults.pause("delete", "pods", times=2)
    await start_app()
    cluster.create(replica_set())
    await asyncio.wait_for(undo.arrived(), 20)
    first = set(bound(cluster))
    assert len(first) == 2
    undo.release()
    # The PodGroup's message may have been replaced by the next attempt's before anybody reads it; the event stays.
    await cluster.wait_for(lambda s: bool(warnings(s, "GangUndone")), message="the undo is told")
    await cluster.wait_for(lambda s: not bound(s) and len(s.list("pods")) == 3, message="the members are back, unbound")
    assert not first & {pod["metadata"]["name"] for pod in cluster.list("pods")}


async def test_a_release_that_fails_is_tried_again_until_nobody_is_left(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(bind_attempts=2)
    cluster.add_node("node-1")
    third = Hold()
    cluster.faults.add(Fault("bind", "pods", nth=3, status=403, message="no more", hold=third))
    cluster.faults.add(Fault("delete", "pods", times=9, status=503))
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: len(bound(s)) == 2, message="two of three are bound")
    cluster.patch("nodes", "node-1", {"spec": {"unschedulable": True}})
    third.release()
    await cluster.wait_for(is_absent_for_good, message="nobody is bound")


async def test_an_open_gang_that_gets_a_mistake_is_undone_all_the_same(cluster: Cluster, start_app: StartApp) -> None:
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
    await cluster.wait_for(lambda s: not bound(s), message="the open gang is undone")


async def test_a_defect_in_one_bind_leaves_no_gang_in_part(cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_stopping_in_the_middle_of_a_commit_ends_it_first(cluster: Cluster, start_app: StartApp) -> None:
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
    assert len([event for event in cluster.list("events") if event.get("reason") == "Scheduled"]) == 4  # and of the gang


async def test_a_token_that_expires_half_way_costs_nobody_a_seat(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", nth=3, status=401))
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert not warnings(cluster, "GangUndone")


async def test_a_surplus_member_that_could_not_be_bound_is_told_and_tried_again(cluster: Cluster, start_app: StartApp) -> None:
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


async def test_room_for_one_role_wakes_a_gang_that_lacked_it_for_another(cluster: Cluster, app: App) -> None:
    """The a pod could move to where memory came free, and leave its cpu to b, which was the one refused."""
    cluster.add_node("node-1", cpu="4", memory="4Gi")
    cluster.add_node("node-2", cpu="2", memory="4Gi")
    taker = {"cpu": "0", "memory": "2Gi"}
    cluster.create(gang_pod("taker", "other", 1, requests=taker, schedulerName="someone", nodeName="node-2"))
    cluster.create(gang_pod("a", minimum=2, requests={"cpu": "2", "memory": "3Gi"}))
    cluster.create(gang_pod("b", minimum=2, requests={"cpu": "4", "memory": "1Gi"}))
    await cluster.wait_for(lambda s: "1 of 2 members placeable" in message(s))
    cluster.delete("pods", "taker")
    await cluster.wait_for(lambda s: sorted(bound(s)) == ["a", "b"])


async def test_a_watch_that_breaks_goes_on_from_the_last_event_and_never_turns_back(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await start_app()
    cluster.add_node("node-1")
    seen: list[tuple[str, str]] = []
    app.view.listen(on_pod=lambda old, new: seen.append((new.name, new.node_name)) if new else None)
    cluster.create(gang_pod("a", minimum=1))
    await cluster.wait_for(lambda s: bound(s) == ["a"])
    note, broken = Reflector._note, []

    def breaking(self: Reflector, event: dict[str, Any]) -> None:
        if "b" in str(event["object"]["metadata"].get("name")) and not broken and self.path.endswith("/pods"):
            broken.append(self.path)
            raise ApiError(0, "Unreachable", "connection reset by peer")
        note(self, event)

    monkeypatch.setattr(Reflector, "_note", breaking)
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
async def test_another_schedulers_pod_group_is_left_alone(cluster: Cluster, app: App, status: dict[str, Any]) -> None:
    cluster.add_node("node-1")
    cluster.create(pod_group("theirs", 3))
    cluster.patch("podgroups", "theirs", {"status": status}, subresource="status")
    app.observe_pod_group("MODIFIED", cluster.get("podgroups", "theirs") or {})
    cluster.create(gang_pod("ours", "ours", minimum=1))
    await cluster.wait_for(lambda s: "1 member bound" in message(s, "ours"))
    assert (cluster.get("podgroups", "theirs") or {})["status"] == status


async def test_a_status_names_the_scheduler_that_writes_it(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    cluster.create(gang_pod("a", minimum=1))
    await cluster.wait_for(lambda s: (s.get("podgroups", "gang") or {}).get("status", {}).get("schedulerName") == "allaboard")


async def test_an_older_state_of_a_pod_group_never_replaces_a_newer_one(cluster: Cluster, app: App) -> None:
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


async def test_words_are_taken_back_when_they_are_no_longer_so(cluster: Cluster, app: App) -> None:
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


async def test_a_gang_that_waits_too_long_is_told_so_once_and_no_longer_when_it_runs(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(schedule_timeout_seconds=1)
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: conditions(s).get("Timeout") == "True" and bool(warnings(s, "Timeout")))
    cluster.add_node("node-1")
    await cluster.wait_for(lambda s: conditions(s).get("Timeout") == "False" and len(bound(s)) == 3)
    assert len(warnings(cluster, "Timeout")) == 1


async def test_a_gang_that_has_ended_says_that_it_has(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    for name in "ab":
        cluster.create(gang_pod(name, minimum=2))
    await cluster.wait_for(lambda s: "2 members bound" in message(s))
    for name in "ab":
        cluster.patch("pods", name, {"status": {"phase": "Succeeded"}}, subresource="status")
    await cluster.wait_for(lambda s: "ended: 2 members succeeded" in message(s))


async def test_a_slow_undo_holds_nobody_else_up(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", name="gang-*", nth=3, status=403))
    undo = cluster.faults.pause("delete", "pods", times=2)
    cluster.create(replica_set())
    await asyncio.wait_for(undo.arrived(), 20)
    cluster.create(gang_pod("other", "other", minimum=1))
    await cluster.wait_for(lambda s: bound(s, "other") == ["other"])
    assert len(bound(cluster, "gang")) == 2, "the undo is still under way"
    undo.release()


async def test_an_event_that_could_not_be_created_is_created_later(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.faults.add(Fault("create", "events", times=1, status=403))
    cluster.create(gang_pod("a", minimum=1))
    await cluster.wait_for(lambda s: bool(pod_condition(s, "a")))
    cluster.add_node("node-1", cpu="500m")
    await cluster.wait_for(lambda s: bool(warnings(s, "FailedScheduling")))


async def test_a_half_bound_gang_jumps_no_priority(cluster: Cluster, app: App) -> None:
    """Raising the minimum of a bound gang is no ticket to the front of the queue."""
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


async def test_losing_one_part_of_the_operator_is_noticed(start_app: StartApp, kubeconfig: Path) -> None:
    app = await start_app()
    assert app.is_ready
    app._tasks[0].cancel()
    await asyncio.gather(app._tasks[0], return_exceptions=True)
    assert not app.is_ready


async def nothing_is_decided(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(50):
        while "nothing is decided" not in caplog.text:  # noqa: ASYNC110  # a log tells nobody of itself
            await asyncio.sleep(0)


async def test_nothing_is_decided_while_the_api_server_is_silent_and_work_goes_on_when_it_speaks_again(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="allaboard")
    app = await start_app()
    cluster.add_node("node-1")
    with monkeypatch.context() as silent:
        silent.setattr(Reflector, "silence_seconds", 1000.0)
        cluster.create(replica_set())
        await cluster.wait_for(lambda s: len(s.list("pods")) == 3)
        await nothing_is_decided(caplog)
        assert not app.is_ready
        assert not bound(cluster)
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert app.is_ready


async def test_a_plan_found_at_length_binds_nobody_while_the_api_server_is_silent(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="allaboard")
    await start_app()
    cluster.add_node("node-1")
    plan_at_length = Planner.plan_at_length
    with monkeypatch.context() as silent:

        async def overrunning(self: Planner, gang: Gang, without: Sequence[Pod] = ()) -> Plan:
            raise SearchOverrunError("too long for its turn")

        async def falling_silent(self: Planner, gang: Gang) -> Plan:
            plan = await plan_at_length(self, gang)
            silent.setattr(Reflector, "silence_seconds", 1000.0)
            return plan

        silent.setattr(Planner, "plan", overrunning)
        silent.setattr(Planner, "plan_at_length", falling_silent)
        cluster.create(replica_set())
        await nothing_is_decided(caplog)
        assert not bound(cluster)
    await cluster.wait_for(lambda s: len(bound(s)) == 3)


async def test_a_defect_makes_no_half_gang_of_one_that_was_whole(
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
    cluster.create(gang_pod("taker", "other", 1, schedulerName="someone", nodeName="node-1"))
    cluster.delete("pods", "c", grace=0)
    cluster.create(gang_pod("d", minimum=3))
    await cluster.wait_for(lambda s: "2 of 3 members placeable" in message(s))
    assert "stays partially bound" not in message(cluster)
    assert not warnings(cluster, "KeptOpen")
