"""Either all victims of a preemption are evicted, or none is marked as evicted in the end."""

from collections.abc import Callable
from typing import Any

import pytest

from allaboard.binding.bind import Binder
from allaboard.binding.preempting import Evicted, Evictions
from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError
from allaboard.kube.paths import ApiPath
from allaboard.model.disruption import mark_of
from allaboard.model.pod import Pod, pod_from

NAMES = ("a", "b", "c")
MARK = mark_of("team", "gang")


def a_pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    }


class Server(ApiServer):
    """A server with running pods. It refuses each call in ``refused``.

    ``calls`` are the kinds of the requests and the names of their pods: ``dry-run``, ``mark``, ``unmark``, ``evict`` and ``delete``.
    """

    def __init__(self, *refused: tuple[str, str], status: int = 403) -> None:
        self.refused, self.status = set(refused), status
        self.calls: list[tuple[str, str]] = []

    async def get(self, path: ApiPath, query: Any = None) -> dict[str, Any]:
        return a_pod(str(path).rsplit("/", 1)[1])

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        return self._answer("dry-run" if query else "evict", body["metadata"]["name"])

    async def delete(self, path: ApiPath, body: Any = None) -> dict[str, Any]:
        return self._answer("delete", str(path).rsplit("/", 1)[1])

    async def write(self, path: ApiPath, body: Any, content_type: str = "") -> None:
        [condition] = body["status"]["conditions"]
        assert (MARK in condition["message"]) == (condition["status"] == "True")
        self._answer("mark" if condition["status"] == "True" else "unmark", body["metadata"]["uid"])

    def _answer(self, kind: str, name: str) -> dict[str, Any]:
        self.calls.append((kind, name))
        if (kind, name) in self.refused:
            raise ApiError(self.status, "Refused", "not now")
        return {}

    def names(self, kind: str) -> list[str]:
        return [name for each, name in self.calls if each == kind]


async def at_once(seconds: float) -> None:
    """Pause for no time."""


async def carried_out(server: Server, is_wanted: Callable[[], bool] = lambda: True, *, despite_budgets: bool = False) -> Evicted:
    pods: list[Pod] = [pod_from(a_pod(name)) for name in NAMES]
    evictions = Evictions(Binder(server, sleep=at_once), despite_budgets)
    return await evictions.carry_out(pods, MARK, is_wanted)


def names_of(pods: Any) -> tuple[str, ...]:
    return tuple(pod.name for pod in pods)


async def test_all_victims_are_dry_run_then_marked_then_evicted() -> None:
    server = Server()
    result = await carried_out(server)
    assert server.calls == [(kind, name) for kind in ("dry-run", "mark", "evict") for name in NAMES]
    assert (names_of(result.gone), names_of(result.kept)) == (NAMES, ())


@pytest.mark.parametrize("status", [403, 429])
async def test_no_victim_is_marked_if_the_dry_run_of_one_eviction_is_refused(status: int) -> None:
    server = Server(("dry-run", "b"), status=status)
    result = await carried_out(server)
    assert {kind for kind, _ in server.calls} == {"dry-run"}
    assert (names_of(result.gone), names_of(result.kept)) == ((), ("b",))


async def test_no_victim_is_marked_if_the_gang_needs_no_victims_after_the_dry_runs() -> None:
    server = Server()
    result = await carried_out(server, lambda: False)
    assert {kind for kind, _ in server.calls} == {"dry-run"}
    assert result == Evicted()


@pytest.mark.parametrize("status", [403, 404])
async def test_no_victim_is_evicted_and_all_lose_their_marks_if_one_mark_fails(status: int) -> None:
    server = Server(("mark", "b"), status=status)
    result = await carried_out(server)
    assert server.names("unmark") == list(NAMES)
    assert server.names("evict") == []
    assert (names_of(result.gone), names_of(result.kept)) == ((), ("b",))


async def test_no_victim_is_evicted_and_all_lose_their_marks_if_the_gang_needs_no_victims_after_the_marks() -> None:
    server = Server()
    result = await carried_out(server, lambda: not server.names("mark"))
    assert server.names("mark") == server.names("unmark") == list(NAMES)
    assert server.names("evict") == []
    assert not result.gone
    assert not result.kept


async def test_a_victim_whose_eviction_is_refused_loses_its_mark_and_is_named() -> None:
    server = Server(("evict", "b"), status=429)
    result = await carried_out(server)
    assert server.names("unmark") == ["b"]
    assert (names_of(result.gone), names_of(result.kept)) == (("a", "c"), ("b",))


async def test_a_victim_that_a_disruption_budget_protects_is_deleted_if_budgets_do_not_count() -> None:
    server = Server(("dry-run", "b"), ("evict", "b"), status=429)
    result = await carried_out(server, despite_budgets=True)
    assert server.names("delete") == ["b"]
    assert server.names("unmark") == []
    assert names_of(result.gone) == NAMES


async def test_a_mark_that_cannot_be_taken_back_does_not_stop_the_others() -> None:
    server = Server(("mark", "b"), ("unmark", "a"))
    await carried_out(server)
    assert server.names("unmark") == list(NAMES)
