"""How binds wait for each other, and what becomes of them."""

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
    """Answers no bind in the namespace evil."""

    def __init__(self) -> None:
        self.asked = 0

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        if "/evil/" in str(path):
            self.asked += 1
            await asyncio.Future()
        return {}


def a_pod(name: str, namespace: str) -> Pod:
    return pod_from({"metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}, "spec": {}, "status": {}})


async def test_a_gang_of_thousands_leaves_turns_to_other_namespaces() -> None:
    server = Server()
    binder = Binder(server, concurrency=8)
    evil = [asyncio.create_task(binder.bind(a_pod(f"e{number}", "evil"), "n1", "stamp")) for number in range(1000)]
    while not server.asked:  # noqa: ASYNC110  # the server signals nothing
        await asyncio.sleep(0)
    async with asyncio.timeout(50):
        assert (await binder.bind(a_pod("a", "team"), "n1", "stamp")).is_bound
    assert server.asked == 4  # nothing is known of it yet
    for task in evil:
        task.cancel()
    await asyncio.gather(*evil, return_exceptions=True)


async def at_once(seconds: float) -> None:
    """A pause that takes no time."""


class Refusing(ApiServer):
    """Answers no first bind, and denies the next ones, though the pod stays as it was: a webhook may say so of anything."""

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
async def test_a_conflict_rules_an_unanswered_bind_out_only_if_the_pod_has_a_newer_version(version: str, in_doubt: str) -> None:
    binder = Binder(Refusing([version]), sleep=at_once)
    reply = await binder.bind(a_pod("a", "team"), "n1", "stamp")
    assert (reply.result, reply.in_doubt) == (Result.UNANSWERED, in_doubt)


async def test_a_pod_that_exists_although_a_webhook_says_not_found_may_be_bound_by_an_earlier_try() -> None:
    reply = await Binder(Refusing(["1"], 404), sleep=at_once).bind(a_pod("a", "team"), "n1", "stamp")
    assert (reply.result, reply.in_doubt) == (Result.UNANSWERED, "1")


class Throttling(ApiServer):
    """Wants to be left alone, and doesn't say how the pod is."""

    def __init__(self) -> None:
        pass

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        raise ApiError(429, "TooManyRequests", "later", 8.0)

    async def get(self, path: ApiPath, query: Any = None) -> dict[str, Any]:
        raise ApiError(0, "Unreachable", "connection reset")


async def test_retry_after_is_kept_when_the_pod_can_not_be_looked_up() -> None:
    reply = await Binder(Throttling(), sleep=at_once).bind(a_pod("a", "team"), "n1", "stamp")
    assert (reply.result, reply.retry_after) == (Result.UNANSWERED, 8.0)


class Kept(ApiServer):
    """Has a pod, and notes what is done to it."""

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
async def test_a_deposed_leader_releases_no_pod(even_running: bool) -> None:
    """What it has read is as new as any: no precondition would stop it."""
    server = Kept()
    with pytest.raises(LeaseLostError):
        await Binder(server, fence=Deposed(), sleep=at_once).release(a_pod("a", "team"), even_running=even_running)
    assert server.changed == []


class Silent(ApiServer):
    """Answers no bind, as a webhook that hangs lets it seem."""

    def __init__(self) -> None:
        pass

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        return await asyncio.Future()


def test_a_dry_run_waits_five_seconds_for_an_answer() -> None:
    async def play() -> None:
        began = now()
        reply = await Binder(Silent()).bind(a_pod("a", "team"), "n1", "stamp", dry_run=True)
        assert reply.result is Result.UNANSWERED
        assert now() - began == pytest.approx(5.0, abs=0.1)

    virtually(play())


class Hanging(Silent):
    """Answers no bind for so long that the client gives up."""

    async def get(self, path: ApiPath, query: Any = None) -> dict[str, Any]:
        return {"metadata": {"name": "a", "namespace": "team", "uid": "a", "resourceVersion": "1"}, "spec": {}, "status": {}}

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        await asyncio.sleep(15)
        raise ApiError(0, "Timeout", "no answer within 15 s")


def test_a_bind_that_was_waited_for_in_vain_is_not_made_again_but_its_gang_is_decided_about() -> None:
    async def play() -> None:
        began = now()
        reply = await Binder(Hanging()).bind(a_pod("a", "team"), "n1", "stamp")
        assert (reply.result, reply.in_doubt) == (Result.UNANSWERED, a_pod("a", "team").resource_version)
        assert now() - began == pytest.approx(15.0, abs=0.1)

    virtually(play())


class Busy(ApiServer):
    """Too busy for binds in the namespace evil; one elsewhere is bound at the second try, since its token had expired."""

    def __init__(self) -> None:
        self.binds: list[Any] = []

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        if "/evil/" in str(path):
            raise ApiError(503, "ServiceUnavailable", "busy")
        self.binds.append(body)
        if len(self.binds) == 1:
            raise ApiError(401, "Unauthorized", "the token has expired")
        return {}


async def test_a_bind_holds_no_turn_while_it_pauses_between_two_tries() -> None:
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
        await pausing.wait()  # its token has expired, and it pauses in its turn
    for task in (evil, team):
        task.cancel()
    await asyncio.gather(evil, team, return_exceptions=True)


async def test_after_an_expired_token_the_same_bind_is_made_again() -> None:
    server = Busy()
    assert (await Binder(server, sleep=at_once).bind(a_pod("a", "team"), "n1", "stamp")).is_bound
    assert server.binds[0] == server.binds[1]


@pytest.mark.parametrize("was_quick", [False, True])
async def test_no_more_than_four_releases_of_a_namespace_are_under_way_however_quick_it_was(was_quick: bool) -> None:
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
    """A server with a pod that has changed since the plan was made: the first bind names an outdated version."""

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


async def test_after_a_conflict_a_pod_that_was_only_touched_is_bound_by_its_present_version() -> None:
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
async def test_after_a_conflict_a_pod_that_is_not_what_was_planned_for_is_not_bound(changes: dict[str, Any]) -> None:
    server = Touched(**changes)
    reply = await Binder(server, sleep=at_once).bind(a_pod("a", "team"), "n1", "stamp")
    assert (reply.result, server.versions) == (Result.GONE, ["1"])
