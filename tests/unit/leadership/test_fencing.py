"""What counts as older than a leader's term, and what is done about it."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest

from allaboard.kube.client import ApiError, ApiServer
from allaboard.leadership.fencing import CARRIED_OUT_SECONDS, EPOCH, Term
from allaboard.model.pod import Pod, pod_from
from tests.unit.binding.fences import Deposed
from tests.unit.leadership.elections import virtually


class Server:
    """Answers with the version of the pods' collection, and takes patches."""

    def __init__(self, version: Any, refuse: ApiError | None = None) -> None:
        self.page = {"metadata": {"resourceVersion": version}} if version is not None else {}
        self.refuse = refuse
        self.patches: list[dict[str, Any]] = []

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        assert (path, query) == ("/api/v1/pods", {"limit": "1"})
        return self.page

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/default/pods/a/status"  # the right to patch pods isn't asked for
        self.patches.append(body["metadata"])
        if self.refuse:
            raise self.refuse
        return {}


def pod(version: str) -> Pod:
    return pod_from({"metadata": {"name": "a", "namespace": "default", "resourceVersion": version}})


def a_term(server: Server, **options: Any) -> Term:
    return Term(cast(ApiServer, server), attempts=1, **options)


async def test_before_a_term_has_begun_nothing_is_older() -> None:
    assert a_term(Server("7")).older([pod("3"), pod("nonsense")]) == []


@pytest.mark.parametrize(
    ("version", "is_older"), [("99", True), ("100", True), ("101", False), ("1000", False), ("", True), ("x101", True)]
)
async def test_a_pod_is_older_unless_its_version_is_a_later_number(version: str, is_older: bool) -> None:
    term = a_term(Server("100"))
    await term.begin(3)
    assert bool(term.older([pod(version)])) is is_older


@pytest.mark.parametrize("version", [None, "", "abc", "-1"])
async def test_a_collection_whose_version_is_no_number_begins_no_term(version: str | None) -> None:
    with pytest.raises(ApiError, match="can't be compared"):
        await a_term(Server(version)).begin(3)


async def test_the_mark_names_the_term_and_the_version_that_it_replaces_and_is_never_the_same_twice() -> None:
    server = Server("100")
    marks = []
    for _ in range(2):
        term = a_term(server)
        await term.begin(3)
        await term.fence_off(pod("99"))
        assert server.patches[-1]["resourceVersion"] == "99"
        marks.append(server.patches[-1]["annotations"][EPOCH])
        # The same mark again would be no change to the API server, and fence off nothing.
        await term.fence_off(pod("101"))
        marks.append(server.patches[-1]["annotations"][EPOCH])
    assert all(mark.startswith("3/") for mark in marks)
    assert len(set(marks)) == 4


@pytest.mark.parametrize("status", [403, 404, 409, 422, 503])
async def test_a_pod_that_can_not_be_marked_fails_nothing(status: int, caplog: pytest.LogCaptureFixture) -> None:
    error = await a_term(Server("100", ApiError(status, "", "no"))).fence_off(pod("99"))
    assert error is not None
    assert error.status == status
    assert ("trying again" in caplog.text) is (status not in (404, 409))


async def test_a_replica_that_does_not_lead_marks_nothing() -> None:
    server = Server("100")
    assert await a_term(server, fence=Deposed()).fence_off(pod("99")) is None
    assert server.patches == []


async def test_no_more_pods_are_written_to_at_once_than_allowed() -> None:
    most = now = 0

    class Slow(Server):
        async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1
            return {}

    term = a_term(Slow("100"), concurrency=3)
    await asyncio.gather(*(term.fence_off(pod(str(number))) for number in range(20)))
    assert most == 3


def named(name: str, namespace: str = "default") -> Pod:
    return pod_from({"metadata": {"namespace": namespace, "resourceVersion": "99", "name": name, "uid": name}})


async def test_a_term_decides_nothing_until_all_older_pods_are_marked_but_those_that_never_can_be() -> None:
    answers = {"b": [], "c": [409, 409], "d": [403, 403], "e": [404], "f": [500]}

    class Stubborn(Server):
        async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            refusals = answers[path.split("/")[-2]]
            if refusals:
                raise ApiError(refusals.pop(0), "", "no")
            return {}

    term = a_term(Stubborn("100"))
    await term.begin(3)
    left = await term.fence_off_all(lambda: map(named, answers))
    assert [pod.name for pod in left] == ["d", "f"]
    assert answers == {"b": [], "c": [], "d": [403], "e": [], "f": []}


def test_a_webhook_that_never_answers_keeps_no_pod_of_other_namespaces_from_being_fenced_off() -> None:
    class Hanging(Server):
        async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            if "/evil/" in path:
                await asyncio.Event().wait()
            return {}

    async def play() -> Collection[Pod]:
        term = a_term(Hanging("100"))
        await term.begin(3)
        pods = [*(named(f"e{number}", "evil") for number in range(100)), *(named(f"t{number}", "team") for number in range(100))]
        return await term.fence_off_all(lambda: pods)

    left = virtually(play())
    assert {pod.namespace for pod in left} == {"evil"}
    assert len(left) == 100


async def test_what_was_sent_before_a_term_may_be_carried_out_for_a_while_after_its_beginning() -> None:
    term = a_term(Server("100"), clock=lambda: 5.0)
    await term.begin(3)
    assert term.carried_out_at == 5.0 + CARRIED_OUT_SECONDS
