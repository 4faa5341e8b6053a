"""Binds and releases wait for their turns, are retried, and get a reply that says whether the pod is bound."""

import asyncio
from typing import Any

import pytest

from allaboard.binding.bind import Binder
from allaboard.binding.outcomes import Result
from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError
from allaboard.kube.paths import ApiPath
from allaboard.leadership.lease import LeaseLostError
from allaboard.model.pod import Pod, pod_from
from tests.unit.binding.fences import Deposed
from tests.unit.leadership.elections import now, virtually


class Server(ApiServer):
    """A server that answers no bind in the namespace evil, and counts these binds."""

    def __init__(self) -> None:
        self.unanswered = 0

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        if "/evil/" in str(path):
            self.unanswered += 1
            await asyncio.Future()
        return {}


def a_pod(name: str, namespace: str) -> Pod:
    return pod_from({"metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}, "spec": {}, "status": {}})


async def test_binds_of_a_large_gang_do_not_use_up_the_limit_of_concurrent_requests() -> None:
    server = Server()
    binder = Binder(server, concurrency=8)
    evil = [asyncio.create_task(binder.bind(a_pod(f"e{number}", "evil"), "n1", "stamp")) for number in range(1000)]
    while not server.unanswered:  # noqa: ASYNC110  # the server signals nothing
        await asyncio.sleep(0)
    async with asyncio.timeout(50):
        assert (await binder.bind(a_pod("a", "team"), "n1", "stamp")).is_bound
    assert server.unanswered == 4  # the limit for a namespace whose speed is unknown
    for task in evil:
        task.cancel()
    await asyncio.gather(*evil, return_exceptions=True)


async def at_once(seconds: float) -> None:
    """Pause for no time."""


class Refusing(ApiServer):
    """A server that doesn't answer the first bind, and denies later binds although the pod is unchanged, as a webhook may."""

    def __init__(self, versions: list[str], status: int = 409) -> None:
        self.versions = versions
        self.status = status
        self.binds = 0

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        self.binds += 1
        raise ApiError(0, "Unreachable", "no answer") if self.binds == 1 else ApiError(self.status, "Denied", "denied by a webhook")

    async def get(self, path: ApiPath, query: Any = None) -> dict[str, Any]:
        version = self.versions.pop(0) if len(self.versions) > 1 else self.versions[0]
        return {"metadata": {"name": "a", "namespace": "team", "uid": "a", "resourceVersion": version}, "spec": {}, "status": {}}


@pytest.mark.parametrize(("version", "in_doubt"), [("1", "1"), ("2", "")])
async def test_conflict_resolves_an_unanswered_bind_only_if_the_pod_has_a_newer_version(version: str, in_doubt: str) -> None:
    binder = Binder(Refusing([version]), sleep=at_once)
    reply = await binder.bind(a_pod("a", "team"), "n1", "stamp")
    assert (reply.result, reply.in_doubt) == (Result.UNANSWERED, in_doubt)


async def test_bind_stays_unresolved_when_a_webhook_answers_not_found_for_an_existing_pod() -> None:
    reply = await Binder(Refusing(["1"], 404), sleep=at_once).bind(a_pod("a", "team"), "n1", "stamp")
    assert (reply.result, reply.in_doubt) == (Result.UNANSWERED, "1")


class Throttling(ApiServer):
    """A server that asks for a pause before another bind, and can't be reached when the pod is read."""

    def __init__(self) -> None:
        pass

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        raise ApiError(429, "TooManyRequests", "later", 8.0)

    async def get(self, path: ApiPath, query: Any = None) -> dict[str, Any]:
        raise ApiError(0, "Unreachable", "connection reset")


async def test_failed_bind_still_returns_its_retry_after_header_when_the_pod_cannot_be_read() -> None:
    reply = await Binder(Throttling(), sleep=at_once).bind(a_pod("a", "team"), "n1", "stamp")
    assert (reply.result, reply.retry_after) == (Result.UNANSWERED, 8.0)


class Kept(ApiServer):
    """A server with one pod. The server records the paths of all requests that would change or delete the pod."""

    def __init__(self) -> None:
        self.changed: list[str] = []

    async def get(self, path: ApiPath, query: Any = None) -> dict[str, Any]:
        return {
            "metadata": {"name": "a", "namespace": "team", "uid": "a", "resourceVersion": "1"},
            "spec": {"nodeName": "n1"},
            "status": {},
        }

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        self.changed.append(str(path))
        return {}

    async def delete(self, path: ApiPath, body: Any = None) -> dict[str, Any]:
        self.changed.append(str(path))
        return {}


@pytest.mark.parametrize("even_running", [False, True])
async def test_deposed_leader_releases_no_pod(even_running: bool) -> None:
    """The deposed leader knows the newest version of the pod, so no precondition would make its request fail."""
    server = Kept()
    with pytest.raises(LeaseLostError):
        await Binder(server, fence=Deposed(), sleep=at_once).release(a_pod("a", "team"), even_running=even_running)
    assert server.changed == []


class Silent(ApiServer):
    """A server that answers no bind, as with a webhook that hangs."""

    def __init__(self) -> None:
        pass

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        return await asyncio.Future()


def test_dry_run_waits_at_most_five_seconds_for_an_answer() -> None:
    async def play() -> None:
        began = now()
        reply = await Binder(Silent()).bind(a_pod("a", "team"), "n1", "stamp", dry_run=True)
        assert reply.result is Result.UNANSWERED
        assert now() - began == pytest.approx(5.0, abs=0.1)

    virtually(play())


class Hanging(Silent):
    """A server that doesn't answer a bind within the client's time limit of 15 s."""

    async def get(self, path: ApiPath, query: Any = None) -> dict[str, Any]:
        return {"metadata": {"name": "a", "namespace": "team", "uid": "a", "resourceVersion": "1"}, "spec": {}, "status": {}}

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        await asyncio.sleep(15)
        raise ApiError(0, "Timeout", "no answer within 15 s")


def test_bind_without_an_answer_for_15_seconds_is_not_sent_again_and_stays_unresolved() -> None:
    async def play() -> None:
        began = now()
        reply = await Binder(Hanging()).bind(a_pod("a", "team"), "n1", "stamp")
        assert (reply.result, reply.in_doubt) == (Result.UNANSWERED, a_pod("a", "team").resource_version)
        assert now() - began == pytest.approx(15.0, abs=0.1)

    virtually(play())


class Busy(ApiServer):
    """A server that is too busy for binds in the namespace evil. The first bind elsewhere fails by an expired token; later ones succeed."""

    def __init__(self) -> None:
        self.binds: list[Any] = []

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        if "/evil/" in str(path):
            raise ApiError(503, "ServiceUnavailable", "busy")
        self.binds.append(body)
        if len(self.binds) == 1:
            raise ApiError(401, "Unauthorized", "the token has expired")
        return {}


async def test_bind_that_pauses_between_two_tries_does_not_count_as_a_concurrent_request() -> None:
    pausing = asyncio.Event()

    async def pause(seconds: float) -> None:
        pausing.set()
        await asyncio.Future()

    binder = Binder(Busy(), concurrency=1, sleep=pause)
    evil = asyncio.create_task(binder.bind(a_pod("e", "evil"), "n1", "stamp"))
    await pausing.wait()
    async with asyncio.timeout(50):
        team = asyncio.create_task(binder.bind(a_pod("a", "team"), "n1", "stamp"))
        pausing.clear()
        await pausing.wait()  # the bind in ``team`` had a turn: its token has expired, and it pauses, too
    for task in (evil, team):
        task.cancel()
    await asyncio.gather(evil, team, return_exceptions=True)


async def test_bind_is_sent_again_unchanged_after_an_expired_token() -> None:
    server = Busy()
    assert (await Binder(server, sleep=at_once).bind(a_pod("a", "team"), "n1", "stamp")).is_bound
    assert server.binds[0] == server.binds[1]


@pytest.mark.parametrize("was_quick", [False, True])
async def test_at_most_four_releases_in_a_namespace_are_in_flight_even_if_an_earlier_release_was_answered_quickly(was_quick: bool) -> None:
    class Slow(Kept):
        is_slow = False

        async def get(self, path: ApiPath, query: Any = None) -> dict[str, Any]:
            kept = await super().get(path, query)
            name = str(path).rpartition("/")[2]
            return {**kept, "metadata": {**kept["metadata"], "name": name, "uid": name}}

        async def delete(self, path: ApiPath, body: Any = None) -> dict[str, Any]:
            self.changed.append(str(path))
            return await asyncio.Future() if self.is_slow else {}

    server = Slow()
    binder = Binder(server)
    if was_quick:
        assert await binder.release(a_pod("first", "team"))
    server.is_slow = True
    releases = [asyncio.create_task(binder.release(a_pod(f"p{number}", "team"))) for number in range(40)]
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(server.changed) == was_quick + 4
    for task in releases:
        task.cancel()
    await asyncio.gather(*releases, return_exceptions=True)


class Touched(ApiServer):
    """A server whose pod has changed since the plan was made, so that the first bind names an outdated version."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes
        self.versions: list[str] = []

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        self.versions.append(body["metadata"]["resourceVersion"])
        if len(self.versions) == 1:
            raise ApiError(409, "Conflict", "the object has been modified")
        return {}

    async def get(self, path: ApiPath, query: Any = None) -> dict[str, Any]:
        metadata = {"name": "a", "namespace": "team", "uid": "a", "resourceVersion": "2"}
        return {"metadata": metadata | self.changes.get("metadata", {}), "spec": self.changes.get("spec", {}), "status": {}}


async def test_pod_with_an_irrelevant_change_is_bound_at_its_present_version_after_a_conflict() -> None:
    server = Touched(metadata={"annotations": {"seen": "yes"}})
    assert (await Binder(server, sleep=at_once).bind(a_pod("a", "team"), "n1", "stamp")).is_bound
    assert server.versions == ["1", "2"]


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "another"}}},
        {"spec": {"schedulerName": "another"}},
        {"spec": {"schedulingGates": [{"name": "wait"}]}},
        {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "64"}}}]}},
    ],
)
async def test_pod_that_no_longer_fits_the_plan_is_not_bound_after_a_conflict(changes: dict[str, Any]) -> None:
    server = Touched(**changes)
    reply = await Binder(server, sleep=at_once).bind(a_pod("a", "team"), "n1", "stamp")
    assert (reply.result, server.versions) == (Result.GONE, ["1"])
