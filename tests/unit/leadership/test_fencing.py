"""A new leader finds the pods that are older than its term, and fences them off."""

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
    """A server that answers with the version of the pods' collection, and accepts patches of a pod's status."""

    def __init__(self, version: Any, refuse: ApiError | None = None) -> None:
        self.page = {"metadata": {"resourceVersion": version}} if version is not None else {}
        self.refuse = refuse
        self.patches: list[dict[str, Any]] = []

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        assert (path, query) == ("/api/v1/pods", {"limit": "1"})
        return self.page

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/default/pods/a/status"  # so the permission to patch pods isn't needed
        self.patches.append(body["metadata"])
        if self.refuse:
            raise self.refuse
        return {}


def pod(version: str) -> Pod:
    return pod_from({"metadata": {"name": "a", "namespace": "default", "resourceVersion": version}})


def a_term(server: Server, **options: Any) -> Term:
    return Term(cast(ApiServer, server), attempts=1, **options)


async def test_no_pod_counts_as_older_than_a_term_that_has_not_begun() -> None:
    assert a_term(Server("7")).older([pod("3"), pod("nonsense")]) == []


@pytest.mark.parametrize(
    ("version", "is_older"), [("99", True), ("100", True), ("101", False), ("1000", False), ("", True), ("x101", True)]
)
async def test_pod_is_older_than_the_term_unless_its_version_is_a_higher_number(version: str, is_older: bool) -> None:
    term = a_term(Server("100"))
    await term.begin(3)
    assert bool(term.older([pod(version)])) is is_older


@pytest.mark.parametrize("version", [None, "", "abc", "-1"])
async def test_term_does_not_begin_when_the_version_of_the_pod_list_is_not_a_number(version: str | None) -> None:
    with pytest.raises(ApiError, match="can't be compared"):
        await a_term(Server(version)).begin(3)


async def test_write_that_fences_off_a_pod_names_term_and_pod_version_and_never_repeats_a_value() -> None:
    server = Server("100")
    marks = []
    for _ in range(2):
        term = a_term(server)
        await term.begin(3)
        await term.fence_off(pod("99"))
        assert server.patches[-1]["resourceVersion"] == "99"
        marks.append(server.patches[-1]["annotations"][EPOCH])
        # Writing the same value again would change nothing at the API server, and so fence off nothing.
        await term.fence_off(pod("101"))
        marks.append(server.patches[-1]["annotations"][EPOCH])
    assert all(mark.startswith("3/") for mark in marks)
    assert len(set(marks)) == 4


@pytest.mark.parametrize("status", [403, 404, 409, 422, 503])
async def test_pod_that_cannot_be_fenced_off_is_reported_as_an_error_and_not_raised(status: int, caplog: pytest.LogCaptureFixture) -> None:
    error = await a_term(Server("100", ApiError(status, "", "no"))).fence_off(pod("99"))
    assert error is not None
    assert error.status == status
    assert ("trying again" in caplog.text) is (status not in (404, 409))


async def test_replica_that_does_not_lead_fences_off_no_pod() -> None:
    server = Server("100")
    assert await a_term(server, fence=Deposed()).fence_off(pod("99")) is None
    assert server.patches == []


async def test_concurrent_writes_to_pods_are_limited() -> None:
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


async def test_new_leader_fences_off_all_older_pods_and_returns_those_that_cannot_be_fenced_off() -> None:
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


def test_webhook_that_never_answers_does_not_delay_the_fencing_of_other_namespaces() -> None:
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


async def test_requests_of_an_earlier_leader_count_as_in_flight_for_a_while_after_the_term_begins() -> None:
    term = a_term(Server("100"), clock=lambda: 5.0)
    await term.begin(3)
    assert term.carried_out_at == 5.0 + CARRIED_OUT_SECONDS
