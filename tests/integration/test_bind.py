"""The binder handles every reply of the API server to a bind or a release, even a lost one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from allaboard.binding.bind import Binder
from allaboard.binding.outcomes import Result
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.paths import PODS
from allaboard.model.pod import STAMP, Pod, pod_from
from allaboard.placement import Violation, Wrong
from allaboard_sandbox import Fault
from tests.cluster import Cluster

from .conftest import gang_pod


@pytest.fixture
async def server(kubeconfig: object) -> AsyncIterator[ApiServer]:
    async with ApiServer.connect() as connected:
        yield connected


@pytest.fixture
def pauses() -> list[float]:
    """Return a list of the binder's pauses, in seconds: the binder adds each pause to the list, and doesn't sleep."""
    return []


@pytest.fixture
def binder(server: ApiServer, pauses: list[float]) -> Binder:
    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    return Binder(server, sleep=sleep)


@pytest.fixture
def pod(cluster: Cluster) -> Pod:
    cluster.add_node("node-1")
    cluster.add_node("node-2")
    return pod_from(cluster.create(gang_pod("a")))


def node_of(cluster: Cluster, name: str = "a") -> str:
    found = cluster.get("pods", name)
    assert found is not None
    return str(found["spec"].get("nodeName") or "")


def bind_without_stamp(cluster: Cluster, server: ApiServer, pod: Pod, node: str) -> Any:
    body = {"metadata": {"name": pod.name}, "target": {"name": node}}
    return server.post(PODS.named(pod.namespace, pod.name, "binding"), body)


async def test_bind_sets_the_node_and_the_stamp_in_one_write(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    reply = await binder.bind(pod, "node-1", "t1/3")
    assert reply.is_bound
    bound = cluster.get("pods", "a")
    assert bound is not None
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["metadata"]["annotations"][STAMP] == "t1/3"


async def test_dry_run_changes_nothing(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    assert (await binder.bind(pod, "node-1", "t1/3", dry_run=True)).is_bound
    assert node_of(cluster) == ""


async def test_recreated_pod_is_not_bound_by_the_plan_for_the_deleted_pod_of_its_name(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    cluster.delete("pods", "a")
    cluster.create(gang_pod("a"))
    assert (await binder.bind(pod, "node-1", "t1/3")).result is Result.GONE
    assert node_of(cluster) == ""


async def test_pod_that_changed_since_the_plan_is_read_again_and_bound(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    cluster.patch("pods", "a", {"metadata": {"annotations": {"touched": "yes"}}})
    assert (await binder.bind(pod, "node-1", "t1/3")).is_bound
    assert node_of(cluster) == "node-1"


async def test_pod_that_another_scheduler_bound_to_another_node_is_reported_as_bound_elsewhere(
    cluster: Cluster, server: ApiServer, binder: Binder, pod: Pod
) -> None:
    await bind_without_stamp(cluster, server, pod, "node-2")
    reply = await binder.bind(pod, "node-1", "t1/3")
    assert reply.result is Result.ELSEWHERE


async def test_pod_on_the_planned_node_without_our_stamp_counts_as_bound_by_another_scheduler(
    cluster: Cluster, server: ApiServer, binder: Binder, pod: Pod
) -> None:
    await bind_without_stamp(cluster, server, pod, "node-1")
    assert (await binder.bind(pod, "node-1", "t1/3")).result is Result.ELSEWHERE


async def test_deleted_pod_is_reported_as_gone(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    cluster.delete("pods", "a")
    assert (await binder.bind(pod, "node-1", "t1/3")).result is Result.GONE


async def test_gated_pod_is_reported_as_gated(cluster: Cluster, binder: Binder) -> None:
    cluster.add_node("node-1")
    gated = pod_from(cluster.create(gang_pod("g", schedulingGates=[{"name": "wait"}])))
    assert (await binder.bind(gated, "node-1", "t1/3")).result is Result.GATED


async def test_forbidden_bind_is_reported_as_refused_with_the_servers_message(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    cluster.faults.add(Fault("bind", "pods", status=403, message='pods "a" is forbidden: no'))
    reply = await binder.bind(pod, "node-1", "t1/3")
    assert reply.result is Result.REFUSED
    assert "forbidden" in reply.message


@pytest.mark.parametrize("status", [429, 500, 503, 504])
async def test_bind_is_retried_after_transient_errors(status: int, cluster: Cluster, binder: Binder, pod: Pod, pauses: list[float]) -> None:
    cluster.faults.add(Fault("bind", "pods", times=2, status=status))
    assert (await binder.bind(pod, "node-1", "t1/3")).is_bound
    assert len(pauses) == 2


async def test_bind_is_retried_after_the_time_in_a_short_retry_after_header(
    cluster: Cluster, binder: Binder, pod: Pod, pauses: list[float]
) -> None:
    cluster.faults.add(Fault("bind", "pods", status=429, retry_after=1))
    assert (await binder.bind(pod, "node-1", "t1/3")).is_bound
    assert pauses == [1.0]


@pytest.mark.parametrize("dry_run", [True, False])
async def test_bind_is_given_up_when_the_server_demands_a_long_pause(
    dry_run: bool, cluster: Cluster, binder: Binder, pod: Pod, pauses: list[float]
) -> None:
    cluster.faults.add(Fault("bind", "pods", status=429, retry_after=86_400, dry_run=None))
    reply = await binder.bind(pod, "node-1", "t1/3", dry_run=dry_run)
    assert (reply.result, reply.retry_after, reply.in_doubt) == (Result.UNANSWERED, 86_400, "")
    assert pauses == []


@pytest.mark.parametrize(
    ("faults", "result", "is_in_doubt"),
    [
        ([Fault("bind", "pods", times=9, status=503)], Result.UNANSWERED, True),
        ([Fault("bind", "pods", times=9, drop=True)], Result.UNANSWERED, True),
        ([Fault("bind", "pods", status=503), Fault("bind", "pods", nth=2, status=403)], Result.REFUSED, True),
        ([Fault("bind", "pods", times=9, status=429)], Result.UNANSWERED, False),
        ([Fault("bind", "pods", status=403)], Result.REFUSED, False),
        ([Fault("bind", "pods", status=503, after=True)], Result.BOUND, False),
    ],
)
async def test_bind_without_a_definite_answer_is_unresolved(
    faults: list[Fault], result: Result, is_in_doubt: bool, cluster: Cluster, binder: Binder, pod: Pod
) -> None:
    for fault in faults:
        cluster.faults.add(fault)
    reply = await binder.bind(pod, "node-1", "t1/3")
    assert (reply.result, reply.in_doubt) == (result, pod.resource_version if is_in_doubt else "")


async def test_unanswered_bind_is_no_longer_unresolved_once_its_pod_has_changed(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    cluster.faults.add(Fault("bind", "pods", status=503))
    cluster.faults.add(Fault("bind", "pods", nth=3, times=9, status=403))
    hold = cluster.faults.pause("bind", "pods", nth=2)
    binding = asyncio.create_task(binder.bind(pod, "node-1", "t1/3"))
    await asyncio.wait_for(hold.arrived(), 10)
    cluster.patch("pods", "a", {"metadata": {"annotations": {"touched": "yes"}}})
    hold.release()
    reply = await binding
    assert (reply.result, reply.in_doubt) == (Result.REFUSED, "")


GONE = Violation(Wrong.NO_NODE, "default/a", "node-1")


@pytest.mark.parametrize(("checks", "requests"), [([GONE], 0), ([None, GONE], 1)])
async def test_no_bind_is_sent_once_a_check_finds_the_node_unsuitable(
    checks: list[Violation | None], requests: int, cluster: Cluster, binder: Binder, pod: Pod
) -> None:
    cluster.faults.add(Fault("bind", "pods", times=9, status=429))
    with cluster.faults.noting() as calls:
        reply = await binder.bind(pod, "node-1", "t1/3", check=lambda: checks.pop(0))
    assert (reply.result, reply.violation) == (Result.SPOILT, GONE)
    assert sum(call.verb == "bind" for call in calls) == requests


async def test_pauses_between_refused_evictions_do_not_delay_other_binds_and_releases(cluster: Cluster, server: ApiServer) -> None:
    """Forty pods can't be evicted. Meanwhile a pod of another namespace is bound and released."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.Event().wait()

    binder = Binder(server, concurrency=2, sleep=sleep)
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}})
    cluster.add_node("node-1", cpu="300", pods=300)
    cluster.faults.add(Fault("evict", "pods", name="evil-*", times=10_000, status=429, retry_after=10))
    evil = [pod_from(cluster.create(gang_pod(f"evil-{number}", namespace="evil"))) for number in range(40)]
    releases = [asyncio.create_task(binder.release(pod, even_running=True)) for pod in evil]
    async with asyncio.timeout(50):
        while len(waits) < len(evil):  # noqa: ASYNC110  # the cluster doesn't show the pauses
            await asyncio.sleep(0.01)
        a = pod_from(cluster.create(gang_pod("a")))
        assert (await binder.bind(a, "node-1", "t1/3")).is_bound
        assert await binder.release(pod_from(cluster.get("pods", "a") or {}), even_running=True)
    for task in releases:
        task.cancel()
    await asyncio.gather(*releases, return_exceptions=True)


@pytest.mark.parametrize("times", [1, 4])
async def test_bind_whose_reply_was_lost_is_reported_as_bound(times: int, cluster: Cluster, binder: Binder, pod: Pod) -> None:
    cluster.faults.add(Fault("bind", "pods", times=times, drop=True, after=True))
    assert (await binder.bind(pod, "node-1", "t1/3")).is_bound
    assert node_of(cluster) == "node-1"


async def test_bind_counts_as_unanswered_when_every_try_fails_with_a_server_error(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    cluster.faults.add(Fault("bind", "pods", times=100, status=503))
    assert (await binder.bind(pod, "node-1", "t1/3")).result is Result.UNANSWERED
    assert node_of(cluster) == ""


async def test_release_deletes_a_pod_that_has_not_started(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    assert await binder.release(pod)
    assert cluster.get("pods", "a") is None


async def test_release_that_conflicts_repeatedly_raises_an_error(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    cluster.faults.add(Fault("delete", "pods", times=5, status=409))
    with pytest.raises(ApiError) as refusal:
        await binder.release(pod)
    assert refusal.value.status == 409
    assert await binder.release(pod)


async def test_release_keeps_a_pod_that_has_started(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    await binder.bind(pod, "node-1", "t1/3")
    await cluster.wait_for(lambda s: (s.get("pods", "a") or {})["status"]["phase"] == "Running")
    assert not await binder.release(pod)
    assert cluster.get("pods", "a") is not None


async def test_running_pod_is_released_only_as_an_eviction_that_its_disruption_budget_allows(
    cluster: Cluster, binder: Binder, pod: Pod
) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": dict(pod.labels)}},
    }
    await binder.bind(pod, "node-1", "t1/3")
    await cluster.wait_for(lambda s: (s.get("pods", "a") or {})["status"]["phase"] == "Running")
    cluster.create(budget)
    await cluster.wait_for(lambda s: ((s.get("poddisruptionbudgets", "keep") or {}).get("status") or {}).get("observedGeneration") == 1)
    with pytest.raises(ApiError, match="disruption budget"):
        await binder.release(pod, even_running=True)
    assert cluster.get("pods", "a") is not None
    cluster.delete("poddisruptionbudgets", "keep")
    assert await binder.release(pod, even_running=True)
    await cluster.wait_for(lambda s: s.get("pods", "a") is None)


async def test_release_never_deletes_a_new_pod_with_the_name_of_the_released_pod(cluster: Cluster, binder: Binder, pod: Pod) -> None:
    cluster.delete("pods", "a")
    cluster.create(gang_pod("a"))
    assert await binder.release(pod)
    assert cluster.get("pods", "a") is not None


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [(502, "<html>Bad Gateway</html>", "Bad Gateway"), (403, "", "HTTP 403"), (200, "not json", "not JSON"), (500, "[1]", "[1]")],
)
async def test_answer_that_is_not_json_raises_a_readable_error(status: int, body: str, words: str, server: ApiServer) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    proxy = web.Application()
    proxy.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(proxy)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        with pytest.raises(ApiError, match=words.replace("[", r"\[")):
            await server.get(PODS.everywhere)
    finally:
        await runner.cleanup()
