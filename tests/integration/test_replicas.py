"""One replica schedules and the other takes over; requests that the first still sends after its term are rejected."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from allaboard.app import App
from allaboard.binding.bind import STAMP
from allaboard.kube.client import ApiError, ApiServer
from allaboard.leadership.fencing import EPOCH
from allaboard.planning.search_processes import Searcher
from allaboard.settings.options import load_settings
from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.cluster import Cluster, Home

from .conftest import NAMESPACE, gang_pod, without_lease
from .test_all_or_none import bound, replica_set

# Long enough for a machine on which four control planes share two cores: an API server may then take a second to answer.
QUICK = {"lease_duration_seconds": 6, "lease_renew_deadline_seconds": 4.5, "lease_retry_seconds": 0.3}

StartReplica = Callable[..., Awaitable[App]]


@pytest.fixture
async def cluster(home: Home) -> AsyncIterator[Cluster]:
    """Yield a cluster without a Lease, whose bound pods don't start during a test, so that they could be released."""
    async with home.open(startup_delay=3600) as opened:
        without_lease(opened)
        yield opened


@pytest.fixture
def deaths() -> asyncio.Queue[App]:
    """Return the queue of replicas of which a task has died."""
    return asyncio.Queue()


@pytest.fixture
async def start_replica(cluster: Cluster, kubeconfig: Path, searcher: Searcher, deaths: asyncio.Queue[App]) -> AsyncIterator[StartReplica]:
    """Yield a function that starts a replica and returns it once it has read the cluster, whether it leads or not."""
    async with AsyncExitStack() as stack:

        async def start(**settings: object) -> App:
            options = {"metrics_port": 0, "api_port": 0, "backoff_initial_seconds": 0.05, "backoff_max_seconds": 0.2, "resync_seconds": 1.0}
            app = App(load_settings({**options, "leader_elect": True, "lease_namespace": NAMESPACE, **QUICK, **settings}), searcher)
            await app.start(lambda: deaths.put_nowait(app))
            stack.push_async_callback(app.stop)
            await within(20, app.synced.wait())
            return app

        yield start


async def within(seconds: float, happens: Awaitable[Any]) -> None:
    async with asyncio.timeout(seconds):
        await happens


async def leader(app: App) -> App:
    """Wait until ``app`` schedules, and return it."""
    await within(20, app.scheduling.wait())
    return app


async def kill(app: App) -> None:
    """Cancel all tasks of a replica, like SIGKILL: it releases, finishes and reports nothing."""
    for task in [*app._tasks, *(app._scheduler.cycle.executor.tasks.tasks() if app._scheduler else ())]:
        task.cancel()
    await asyncio.gather(*app._tasks, return_exceptions=True)


def lease(cluster: Cluster) -> dict[str, Any]:
    return (cluster.get("leases", "allaboard", NAMESPACE) or {}).get("spec") or {}


def annotations(cluster: Cluster, name: str) -> dict[str, str]:
    return (cluster.get("pods", name) or {})["metadata"].get("annotations") or {}


def scheduled(cluster: Cluster) -> list[str]:
    """Return the names of pods and gangs with an event of reason Scheduled."""
    events = (event for event in cluster.list("events") if event.get("reason") == "Scheduled")
    return [str((event.get("regarding") or event["involvedObject"])["name"]) for event in events]


async def test_one_replica_schedules_and_the_other_only_reads(
    cluster: Cluster, start_replica: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[tuple[ApiServer, str]] = []
    request = ApiServer.request

    async def noted(self: ApiServer, method: str, path: str, **options: Any) -> Any:
        if method != "GET" and "/leases" not in path:  # the election has a connection of its own
            writers.append((self, path))
        return await request(self, method, path, **options)

    monkeypatch.setattr(ApiServer, "request", noted)
    cluster.add_node("node-1")
    first = await leader(await start_replica())
    second = await start_replica()
    for number in range(3):
        cluster.create(replica_set(f"gang-{number}"))
    await cluster.wait_for(lambda s: len(bound(s)) == 9)
    await cluster.wait_for(lambda s: len(scheduled(s)) == 12)  # one event for each pod and each gang
    assert len({server for server, _ in writers}) == 1
    assert first.health()["leader"] is True
    assert second.health()["leader"] is False
    assert second.is_ready
    await cluster.wait_for(lambda _: second.view.counts == first.view.counts)
    assert (first.metrics.registry.get_sample_value("allaboard_leader"), second.metrics.registry.get_sample_value("allaboard_leader")) == (
        1,
        0,
    )
    assert dict(second.queue.sizes()) == {"active": 0, "backoff": 0, "unschedulable": 0}


async def test_follower_schedules_within_a_second_of_the_expiry_of_a_dead_leaders_lease(
    cluster: Cluster, start_replica: StartReplica
) -> None:
    first = await leader(await start_replica())
    second = await start_replica()
    transitions = lease(cluster)["leaseTransitions"]
    await kill(first)
    cluster.add_node("node-1")
    cluster.create(replica_set())
    loop = asyncio.get_running_loop()
    killed = loop.time()
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert loop.time() - killed <= QUICK["lease_duration_seconds"] + 1
    assert second.leads
    assert lease(cluster)["leaseTransitions"] == transitions + 1


async def test_stopped_leader_ends_its_transaction_and_then_releases_the_lease_at_once(
    cluster: Cluster, start_replica: StartReplica
) -> None:
    usual = {"lease_duration_seconds": 60, "lease_renew_deadline_seconds": 40.0, "lease_retry_seconds": 1.0}
    first = await leader(await start_replica(**usual))
    second = await start_replica(**usual)
    cluster.add_node("node-1")
    hold = cluster.faults.pause("bind", "pods", nth=3, dry_run=False)
    cluster.create(replica_set())
    await within(10, hold.arrived())
    stopping = asyncio.create_task(first.stop())
    await cluster.wait_for(lambda s: len(bound(s)) == 2)
    with cluster.faults.noting() as calls:
        async with asyncio.timeout(50):
            while sum(call.verb == "get" and call.resource == "leases" for call in calls) < 3:  # noqa: ASYNC110  # a list has no event to wait for
                await asyncio.sleep(0.01)
    assert not second.leads, "the lease has been read again, and isn't released before the last bind is answered"
    hold.release()
    await stopping
    assert len(bound(cluster)) == 3
    await within(5, second.scheduling.wait())
    assert len({annotations(cluster, name)[STAMP] for name in bound(cluster)}) == 1


async def test_leader_that_loses_the_lease_binds_and_releases_no_more_pods(
    cluster: Cluster, start_replica: StartReplica, deaths: asyncio.Queue[App], caplog: pytest.LogCaptureFixture
) -> None:
    first = await leader(await start_replica())
    cluster.add_node("node-1")
    hold = cluster.faults.pause("bind", "pods", nth=3, dry_run=False)
    cluster.create(replica_set())
    await within(10, hold.arrived())
    cluster.faults.add(Fault("update", "leases", times=FOR_EVER, status=503))
    with cluster.faults.noting() as calls:
        async with asyncio.timeout(50):
            assert await deaths.get() is first
        await within(10, hold.abandoned())
        cluster.create(gang_pod("later", "later", minimum=1))
        await asyncio.gather(*first._tasks, return_exceptions=True)
    assert deaths.empty()
    assert first.has_failed
    assert not first.is_ready
    assert not [call for call in calls if call.verb in ("bind", "delete", "evict", "patch")]
    assert len(bound(cluster)) == 2
    assert [line.getMessage() for line in caplog.records if line.levelname == "CRITICAL" and "no longer leads" in line.getMessage()]

    cluster.faults.clear()
    await leader(await start_replica())
    await cluster.wait_for(lambda s: len(bound(s)) == 4, message="the next leader finishes the gang")


async def test_bind_that_a_paused_leader_sends_after_its_term_is_rejected(
    cluster: Cluster, start_replica: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is paused between its check of the lease and its request, which no lease can prevent."""
    resumes = asyncio.Event()
    late: list[asyncio.Task[Any]] = []
    post = ApiServer.post

    async def paused_post(self: ApiServer, path: str, body: Any, query: Any = None) -> Any:
        async def send_later() -> Any:
            await resumes.wait()
            return await post(self, path, body, query)

        if path.endswith("/pods/c/binding") and not query and not late:
            late.append(asyncio.create_task(send_later()))
            return await asyncio.shield(late[0])
        return await post(self, path, body, query)

    monkeypatch.setattr(ApiServer, "post", paused_post)
    cluster.add_node("node-1")
    cluster.add_node("node-2")
    first = await leader(await start_replica())
    second = await start_replica()
    for name in "abc":
        cluster.create(gang_pod(name))
    await cluster.wait_for(lambda s: bound(s) == ["a", "b"] and bool(late), message="two are bound, the third is about to be")
    await kill(first)
    hold = cluster.faults.pause("bind", "pods", name="c", dry_run=False)
    await within(15, hold.arrived())
    assert second.leads
    resumes.set()
    with pytest.raises(ApiError) as answer:
        await within(10, late[0])
    assert answer.value.status == 409
    assert "ResourceVersion" in answer.value.message
    assert bound(cluster) == ["a", "b"]
    hold.release()
    await cluster.wait_for(lambda s: bound(s) == ["a", "b", "c"])
    assert annotations(cluster, "c")[STAMP] == annotations(cluster, "a")[STAMP], "all members belong to one run"
    assert annotations(cluster, "c")[EPOCH].startswith(f"{lease(cluster)['leaseTransitions']}/")


async def test_release_that_a_paused_leader_sends_after_its_term_is_rejected(
    cluster: Cluster, start_replica: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumes = asyncio.Event()
    late: list[asyncio.Task[Any]] = []
    delete = ApiServer.delete

    async def paused_delete(self: ApiServer, path: str, body: Any = None) -> Any:
        async def send_later() -> Any:
            await resumes.wait()
            return await delete(self, path, body)

        late.append(asyncio.create_task(send_later()))
        return await asyncio.shield(late[-1])

    monkeypatch.setattr(ApiServer, "delete", paused_delete)
    cluster.add_node("node-1")
    first = await leader(await start_replica())
    second = await start_replica()
    cluster.faults.add(Fault("bind", "pods", nth=3, status=403, message="not now"))
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: len(bound(s)) == 2)
    async with asyncio.timeout(50):
        while len(late) < 2:  # noqa: ASYNC110  # the cluster doesn't show requests that aren't sent
            await asyncio.sleep(0.01)
    await kill(first)
    await leader(second)
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    resumes.set()
    answers = await asyncio.gather(*late, return_exceptions=True)
    assert [isinstance(answer, ApiError) and answer.status for answer in answers] == [409, 409]
    assert len(bound(cluster)) == 3


async def test_program_exits_with_1_after_losing_the_lease(cluster: Cluster, kubeconfig: Path) -> None:
    options = {**QUICK, "lease_namespace": NAMESPACE, "metrics_port": 0, "api_port": 0, "health_port": 0}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "allaboard", "run", "--leader-elect"),
        env={**os.environ, **{f"ALLABOARD_{name.upper()}": str(value) for name, value in options.items()}},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await cluster.wait_for(lambda s: bool(lease(s).get("holderIdentity")))
        cluster.faults.add(Fault("update", "leases", times=FOR_EVER, status=503))
        async with asyncio.timeout(50):
            _, output = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 1
    assert output.decode().count("no longer leads") == 1
    assert "Traceback" not in output.decode()


async def test_pods_created_after_the_start_of_the_term_are_not_fenced_off(cluster: Cluster, start_replica: StartReplica) -> None:
    cluster.add_node("node-1")
    for name in "abc":
        cluster.create(gang_pod(name, "older"))
    await leader(await start_replica())
    for name in "def":
        cluster.create(gang_pod(name, "newer"))
    await cluster.wait_for(lambda s: len(bound(s)) == 6)
    assert [name for name in "abcdef" if EPOCH in annotations(cluster, name)] == ["a", "b", "c"]


@pytest.mark.parametrize("forged", ["0/", "99999999/ffffffffffff", "", "0"])
async def test_epoch_annotation_written_by_a_user_is_replaced(forged: str, cluster: Cluster, start_replica: StartReplica) -> None:
    cluster.add_node("node-1")
    for name in "abc":
        cluster.create(gang_pod(name, annotations={EPOCH: forged}))
    await leader(await start_replica())
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert all(annotations(cluster, name)[EPOCH] not in ("", forged) for name in "abc")


async def test_pod_that_changes_while_it_is_fenced_off_is_fenced_off_again(cluster: Cluster, start_replica: StartReplica) -> None:
    cluster.add_node("node-1")
    for name in "abc":
        cluster.create(gang_pod(name))
    hold = cluster.faults.pause("patch", "pods", name="b")
    cluster.faults.add(Fault("patch", "pods", name="a", times=2, status=503))
    await leader(await start_replica())
    await within(10, hold.arrived())
    cluster.patch("pods", "b", {"metadata": {"annotations": {"touched": "yes"}}})
    hold.release()
    await cluster.wait_for(lambda s: bound(s) == ["a", "b", "c"])


async def test_without_leader_election_there_is_neither_lease_nor_epoch_annotation(cluster: Cluster, start_replica: StartReplica) -> None:
    cluster.add_node("node-1")
    for name in "abc":
        cluster.create(gang_pod(name))
    app = await leader(await start_replica(leader_elect=False))
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert app.leads
    assert not lease(cluster)
    assert not any(EPOCH in annotations(cluster, name) for name in "abc")
