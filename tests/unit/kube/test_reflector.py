"""A reflector keeps its store up to date, says how old its state may be, and replaces a watch that is silent or broken."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.kube import reflector as reflector_module
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.paths import PODS
from allaboard.kube.reflector import Reflector

Script = Callable[["Server"], AsyncIterator[bytes]]
Project = Callable[[dict[str, Any]], Any]


def event(kind: str, name: str, version: int, namespace: str = "team", **fields: Any) -> bytes:
    raw = {"kind": "Pod", "metadata": {"name": name, "namespace": namespace, "resourceVersion": str(version)}, **fields}
    return json.dumps({"type": kind, "object": raw}).encode()


class Server:
    """A server whose lists are empty, and whose watches play its scripts in turn; the last script is played again and again."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.versions: list[str] = []
        self.lists = 0
        self.now = 1000.0
        self.list_seconds = 0.0
        self.opened = asyncio.Event()

    async def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        self.lists += 1
        self.now += self.list_seconds
        return {"metadata": {"resourceVersion": "1"}, "items": []}

    @asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        self.versions.append(query["resourceVersion"])
        self.opened.set()
        yield (self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0])(self)


class Store:
    """A store that records what is applied, with None for a removal."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, Any]] = []

    def upsert(self, key: str, record: Any) -> None:
        self.applied.append((key, record))

    def remove(self, key: str) -> None:
        self.applied.append((key, None))

    def known(self) -> set[str]:
        return set()


def spec_of(raw: dict[str, Any]) -> Any:
    return raw.get("spec")


@asynccontextmanager
async def mirrored(
    server: Server,
    project: Callable[[dict[str, Any]], Any] = spec_of,
    must_be_taken: Callable[[dict[str, Any]], bool] = lambda raw: False,
) -> AsyncIterator[tuple[Reflector, Store, list[float]]]:
    """Yield a running reflector, its store, and the list of the pauses that it makes, in seconds."""
    store, pauses = Store(), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    reflector = Reflector(
        cast(ApiServer, server), PODS.everywhere, project, store, must_be_taken=must_be_taken, clock=lambda: server.now, sleep=pause
    )
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(50):
            yield reflector, store, pauses
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def for_ever(server: Server) -> AsyncIterator[bytes]:
    await asyncio.Future()
    yield b""


async def without_events(server: Server) -> AsyncIterator[bytes]:
    """A watch of a collection without changes, which the server ends in time."""
    server.now += 3
    await asyncio.sleep(0)
    return
    yield b""


async def ended_at_once(server: Server) -> AsyncIterator[bytes]:
    await asyncio.sleep(0)
    return
    yield b""


def script(*lines: bytes, then: Script = for_ever) -> Script:
    async def run(server: Server) -> AsyncIterator[bytes]:
        for line in lines:
            yield line
        async for line in then(server):
            yield line

    return run


async def until(is_true: Callable[[], bool]) -> None:
    while not is_true():  # noqa: ASYNC110  # the reflector signals nothing
        await asyncio.sleep(0)


async def test_only_the_newest_of_several_queued_events_of_an_object_is_applied() -> None:
    fat = [event("MODIFIED", "fat", version, spec={"n": version}) for version in range(2, 50)]
    server = Server(script(*fat[:20], event("ADDED", "slim", 30, spec={"n": 30}), *fat[20:], event("DELETED", "gone", 60)))
    async with mirrored(server) as (reflector, store, _):
        await until(lambda: len(store.applied) >= 3)
        await asyncio.sleep(0)
        assert store.applied == [("team/fat", {"n": 49}), ("team/slim", {"n": 30}), ("team/gone", None)]
        assert reflector.lag_seconds == 0


@pytest.mark.parametrize(
    ("later", "states"),
    [
        ([("DELETED", 2)], [1, None]),
        ([("MODIFIED", 2), ("DELETED", 3)], [1, None]),
        ([("MODIFIED", 2), ("MODIFIED", 3)], [1, 3]),
        ([("MODIFIED", 100), ("DELETED", 100)], [100, None]),
        ([("MODIFIED", 100)], [100]),
    ],
)
async def test_state_that_must_not_be_skipped_is_applied_although_a_newer_event_is_queued(
    later: list[tuple[str, int]], states: list[int | None]
) -> None:
    """States below 2 and from 100 on must be taken; of several such states in a row only the newest is applied."""
    events = [event(kind, "a", version, spec={"n": number}) for version, (kind, number) in enumerate([("MODIFIED", 1), *later], 2)]
    async with mirrored(Server(script(*events)), must_be_taken=lambda raw: not 2 <= raw["spec"]["n"] < 100) as (_, store, _):
        await until(lambda: len(store.applied) >= len(states))
        await asyncio.sleep(0)
        assert [spec and spec["n"] for _, spec in store.applied] == states


async def test_state_that_must_not_be_skipped_is_applied_before_a_new_list() -> None:
    expired = json.dumps({"type": "ERROR", "object": {"code": 410}}).encode()
    server = Server(script(event("MODIFIED", "a", 2, spec={"n": 1}), event("MODIFIED", "b", 3, spec={"n": 2}), expired), for_ever)
    async with mirrored(server, must_be_taken=lambda raw: raw["spec"]["n"] == 1) as (_, store, _):
        await until(lambda: server.lists == 2)
        assert store.applied == [("team/a", {"n": 1})]


async def test_many_events_of_one_namespace_do_not_delay_events_of_another_namespace() -> None:
    """A tenant's thousands of new pods don't delay the pods of other tenants."""
    flood = [event("ADDED", f"a-{number:02}", number, spec={}) for number in range(2, 40)]
    few = [event("ADDED", f"b-{number}", 40 + number, "other", spec={}) for number in range(3)]
    async with mirrored(Server(script(*flood, *few))) as (_, store, _):
        await until(lambda: len(store.applied) == len(flood) + len(few))
        names = [key for key, _ in store.applied]
    assert [key for key in names if key.startswith("other")] == ["other/b-0", "other/b-1", "other/b-2"]
    assert names.index("other/b-2") <= 6
    assert [key for key in names if key.startswith("team")] == [f"team/a-{number:02}" for number in range(2, 40)]


async def test_lag_is_the_age_of_the_oldest_queued_event_of_any_namespace() -> None:
    server = Server(for_ever)
    ages: list[float] = []

    def read(raw: dict[str, Any]) -> Any:
        ages.append(reflector.lag_seconds)
        server.now += 1.0

    async def two_namespaces(server: Server) -> AsyncIterator[bytes]:
        yield event("ADDED", "a", 2)
        server.now += 2.0
        yield event("ADDED", "c", 3, "other")
        yield event("ADDED", "d", 4, "other")
        server.now += 3.0
        yield event("ADDED", "b", 5)
        await asyncio.Future()

    server.scripts = [two_namespaces]
    async with mirrored(server, read) as (reflector, store, _):
        await until(lambda: len(store.applied) == 4)
    assert [key for key, _ in store.applied] == ["team/a", "other/c", "team/b", "other/d"]
    assert ages == [3.0, 4.0, 5.0, 0.0]


async def test_lag_of_an_event_counts_from_the_oldest_event_that_it_has_replaced() -> None:
    server = Server(for_ever)
    lags: list[float] = []

    def read(raw: dict[str, Any]) -> Any:
        lags.append(reflector.lag_seconds)

    async def changed_twice(server: Server) -> AsyncIterator[bytes]:
        yield event("ADDED", "first", 2)
        yield event("MODIFIED", "a", 3)
        server.now += 2.0
        yield event("MODIFIED", "a", 4)
        server.now += 3.0
        await asyncio.Future()

    server.scripts = [changed_twice]
    async with mirrored(server, read) as (reflector, store, _):
        await until(lambda: len(store.applied) == 2)
    assert lags == [5.0, 0.0]


async def test_object_that_is_slow_to_read_does_not_delay_events_of_other_objects() -> None:
    """Reading the slow object takes longer than the pause between its changes, so some of its changes are never read."""
    server = Server(for_ever)
    projected: list[tuple[str, int]] = []

    def costly(raw: dict[str, Any]) -> Any:
        projected.append((raw["metadata"]["name"], raw["spec"]["n"]))
        server.now += 0.5 if raw["metadata"]["name"] == "fat" else 0

    async def patched_often(server: Server) -> AsyncIterator[bytes]:
        for number in range(2, 100):
            server.now += 0.01
            yield event("MODIFIED", "fat", number, spec={"n": number})
            if number % 10 == 0:
                yield event("ADDED", f"slim-{number}", number, spec={"n": number})
                await asyncio.sleep(0)
        await asyncio.Future()

    server.scripts = [patched_often]
    async with mirrored(server, costly) as (reflector, _, _):
        ages = []
        while ("fat", 99) not in projected:
            ages.append(reflector.lag_seconds)
            await asyncio.sleep(0)
    assert len([name for name, _ in projected if name == "fat"]) < 30
    assert max(ages) <= 1.2
    assert [name for name, _ in projected if name != "fat"] == [f"slim-{number}" for number in range(10, 100, 10)]


async def test_age_of_a_store_is_the_longer_of_time_since_the_last_event_and_delay_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async with mirrored(Server(for_ever)) as (reflector, _, _):
        for silence, lag in ((1.0, 9.0), (8.0, 2.0)):
            monkeypatch.setattr(Reflector, "silence_seconds", silence)
            monkeypatch.setattr(Reflector, "lag_seconds", lag)
            assert reflector.age_seconds == max(silence, lag)


async def test_store_counts_as_older_while_an_event_is_queued() -> None:
    server = Server(for_ever)

    def slow(raw: dict[str, Any]) -> Any:
        server.now += 7
        ages.append(reflector.age_seconds)

    ages: list[float] = []
    server.scripts = [script(event("ADDED", "a", 2), event("ADDED", "b", 3))]
    async with mirrored(server, slow) as (reflector, _, _):
        await until(lambda: len(ages) == 2)
    assert ages[0] == 7  # b has waited 7 s
    assert reflector.lag_seconds == 0


async def test_each_watch_of_an_idle_collection_is_a_sign_of_life_and_followed_by_the_next_at_once() -> None:
    server = Server(without_events)
    async with mirrored(server) as (reflector, _, pauses):
        await until(lambda: len(server.versions) > 200)
        assert not pauses
        assert reflector.age_seconds <= 3
    assert server.lists == 1


async def test_pause_between_refused_watches_grows_until_a_watch_succeeds() -> None:
    server = Server(ended_at_once, ended_at_once, ended_at_once, ended_at_once, without_events, ended_at_once, for_ever)
    async with mirrored(server) as (_, _, pauses):
        await until(lambda: len(server.versions) == 7)
    assert len(pauses) == 5
    assert pauses[3] >= 2
    assert pauses[4] <= 0.5


async def test_watch_on_a_dead_connection_is_replaced_and_continues_from_the_last_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector_module, "_WATCH_SECONDS", 0)
    monkeypatch.setattr(reflector_module, "_GRACE_SECONDS", 0.01)
    server = Server(script(event("ADDED", "a", 5, spec={})), for_ever, script(event("DELETED", "a", 6), then=without_events), for_ever)
    async with mirrored(server) as (_, store, _):
        server.now += 100
        await until(lambda: ("team/a", None) in store.applied)
    assert server.versions[:3] == ["1", "5", "5"]
    assert server.lists == 1


async def reset_when_idle(server: Server) -> AsyncIterator[bytes]:
    """A watch through a proxy that resets connections which are idle for two seconds."""
    server.now += 2.0
    raise ApiError(0, "Unreachable", "connection reset")
    yield b""


async def test_idle_collection_whose_watches_break_off_is_listed_instead_and_pauses_stay_short() -> None:
    server = Server(reset_when_idle)
    async with mirrored(server) as (reflector, _, pauses):
        for _ in range(100):
            before = len(server.versions)
            await until(lambda before=before: len(server.versions) > before)  # type: ignore[misc]
            assert reflector.age_seconds <= 8.0
    assert max(pauses) <= 2.0


async def test_watch_that_opens_and_reports_nothing_is_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy may accept every watch and pass on none of its events."""
    monkeypatch.setattr(reflector_module, "_WATCH_SECONDS", 0)
    monkeypatch.setattr(reflector_module, "_GRACE_SECONDS", 0.001)
    server = Server(for_ever)
    async with mirrored(server) as (reflector, _, pauses):
        await until(lambda: len(pauses) == 3)
        server.now += 60
        assert reflector.age_seconds == 60


async def test_age_of_a_store_after_a_list_counts_from_the_beginning_of_the_list() -> None:
    server = Server(for_ever)
    server.list_seconds = 40
    async with mirrored(server) as (reflector, _, _):
        await reflector.synced.wait()
        assert reflector.age_seconds == 40


async def test_objects_of_another_kind_in_a_watch_are_not_applied() -> None:
    node = json.dumps({"type": "ADDED", "object": {"kind": "Node", "metadata": {"name": "a", "resourceVersion": "9"}}}).encode()
    server = Server(script(node), for_ever)
    async with mirrored(server) as (_, store, _):
        await until(lambda: len(server.versions) == 2)
    assert not store.applied
    assert server.versions[1] == "1"


async def test_event_that_cannot_be_applied_makes_the_reflector_list_again() -> None:
    class Failing(Store):
        def upsert(self, key: str, record: Any) -> None:
            raise RuntimeError("a defect")

    server = Server(script(event("ADDED", "a", 2), then=without_events), for_ever)
    reflector = Reflector(cast(ApiServer, server), PODS.everywhere, spec_of, Failing(), clock=lambda: server.now)
    task = asyncio.create_task(reflector.run())
    await until(lambda: server.lists == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_reflector_lists_until_a_list_succeeds_after_an_event_that_cannot_be_applied() -> None:
    class FailingLists(Server):
        async def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
            answer = await super().get(path, query)
            if self.lists in (2, 3):
                raise ApiError(503, "ServiceUnavailable", "etcd has no leader")
            return answer

    def failing(raw: dict[str, Any]) -> Any:
        raise RuntimeError("a defect")

    server = FailingLists(script(event("ADDED", "a", 2), then=without_events), for_ever)
    async with mirrored(server, failing) as (reflector, _, pauses):
        await until(lambda: len(server.versions) == 2)
        assert server.lists == 4
        assert server.versions == ["1", "1"]  # from the list that succeeded, not from the event that was lost
        assert reflector.relists == 2
        assert len(pauses) == 2


HISTORY = st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=12)
"""Events: the name of an object, and whether it is deleted if it exists. An object that doesn't exist is created instead."""


@given(HISTORY, st.lists(st.tuples(st.booleans(), st.integers(0, 11)), max_size=40))
async def test_states_applied_early_never_make_the_store_older_and_the_store_ends_up_with_what_the_watch_reports(
    history: list[tuple[str, bool]], steps: list[tuple[bool, int]]
) -> None:
    """In each of ``steps`` the watch reports its next event, or the state of some event is applied early, however often and late."""
    truth: dict[str, int] = {}
    events: list[tuple[str, str, int]] = []
    for version, (name, is_deleted) in enumerate(history, 2):
        kind = "ADDED" if name not in truth else "DELETED" if is_deleted else "MODIFIED"
        events.append((kind, name, version))
        if kind == "DELETED":
            del truth[name]
        else:
            truth[name] = version
    reported = asyncio.Queue[bytes]()

    async def live(server: Server) -> AsyncIterator[bytes]:
        while True:
            yield await reported.get()

    server, waiting = Server(live), [event(kind, name, version, spec={"n": version}) for kind, name, version in events]
    async with mirrored(server) as (reflector, store, _):
        await until(server.opened.is_set)
        for is_watch, which in steps:
            if is_watch and waiting:
                reported.put_nowait(waiting.pop(0))
            elif not is_watch and events[which % len(events)][0] != "DELETED":
                reflector.apply_early(json.loads(event(*events[which % len(events)], spec={"n": events[which % len(events)][2]}))["object"])
            for _ in range(4):
                await asyncio.sleep(0)
        for line in waiting:
            reported.put_nowait(line)
        await until(lambda: reported.empty() and reflector.lag_seconds == 0)
        for _ in range(4):
            await asyncio.sleep(0)
    held = dict(store.applied)
    assert {key.removeprefix("team/"): record["n"] for key, record in held.items() if record} == truth
    for name in "ab":
        versions = [record["n"] for key, record in store.applied if key == f"team/{name}" and record]
        assert versions == sorted(versions)


async def test_state_is_applied_early_only_if_the_watch_cannot_have_reported_it() -> None:
    server = Server(script(event("ADDED", "a", 5, spec={})))
    async with mirrored(server) as (reflector, store, _):
        await until(lambda: bool(store.applied))
        older, newer = ({"metadata": {"name": "b", "namespace": "team", "resourceVersion": str(version)}, "spec": {}} for version in (5, 6))
        assert [reflector.apply_early(older), reflector.apply_early(newer), reflector.apply_early(newer)] == [False, True, False]
        assert not reflector.apply_early({"metadata": {"name": "c", "resourceVersion": "x7"}})
        await until(lambda: ("team/b", {}) in store.applied)
        assert reflector.relists == 1


async def test_queued_event_is_not_applied_after_a_newer_early_state() -> None:
    async def early_at_once(server: Server) -> AsyncIterator[bytes]:
        yield event("ADDED", "a", 5, spec={"n": 5})
        assert reflector.apply_early(json.loads(event("MODIFIED", "a", 6, spec={"n": 6}))["object"])
        yield event("ADDED", "b", 7)
        await asyncio.Future()

    async with mirrored(Server(early_at_once)) as (reflector, store, _):
        await until(lambda: ("team/b", None) in store.applied)
    assert store.applied == [("team/a", {"n": 6}), ("team/b", None)]


async def test_no_state_is_applied_early_before_the_first_list() -> None:
    server = Server(for_ever)
    reflector = Reflector(cast(ApiServer, server), PODS.everywhere, spec_of, Store())
    assert not reflector.apply_early({"metadata": {"name": "a", "namespace": "team", "resourceVersion": "9"}})


async def test_list_makes_the_reflector_forget_versions_that_were_applied_early() -> None:
    """Versions may go back when etcd is restored from a backup."""

    async def expired(server: Server) -> AsyncIterator[bytes]:
        yield json.dumps({"type": "ERROR", "object": {"code": 410}}).encode()

    async def early_then_expired(server: Server) -> AsyncIterator[bytes]:
        reflector.apply_early(json.loads(event("ADDED", "a", 90, spec={"n": 90}))["object"])
        await until(lambda: bool(store.applied))
        async for line in expired(server):
            yield line

    server = Server(early_then_expired, script(event("ADDED", "a", 5, spec={"n": 5})))
    async with mirrored(server) as (reflector, store, _):
        await until(lambda: ("team/a", {"n": 5}) in store.applied)
    assert server.lists == 2


async def test_early_pod_that_was_dropped_is_applied_again_when_the_watch_reports_it() -> None:
    reported = asyncio.Queue[bytes]()

    async def live(server: Server) -> AsyncIterator[bytes]:
        while True:
            yield await reported.get()

    server = Server(live)
    async with mirrored(server) as (reflector, store, _):
        await until(server.opened.is_set)
        newcomer = event("ADDED", "a", 9, spec={"n": 9})
        assert reflector.apply_early(json.loads(newcomer)["object"])
        assert list(reflector.ahead) == ["team/a"]
        await until(lambda: ("team/a", {"n": 9}) in store.applied)
        reflector.drop_early("team/a")
        reflector.drop_early("team/b")  # team/b was never applied early, so nothing happens
        assert store.applied[1:] == [("team/a", None)]
        reported.put_nowait(newcomer)
        await until(lambda: len(store.applied) == 3)
    assert store.applied[2] == ("team/a", {"n": 9})


@pytest.mark.parametrize(("status", "ends"), [(403, True), (404, True), (500, False)])
async def test_reflector_ends_on_the_chosen_answers_only(status: int, ends: bool) -> None:
    async def refused(server: Server) -> AsyncIterator[bytes]:
        raise ApiError(status, "Refused", "no")
        yield b""

    store = Store()
    server = Server(refused, script(event("ADDED", "a", 5)))
    reflector = Reflector(
        cast(ApiServer, server), PODS.everywhere, spec_of, store, ends_on=(403, 404), sleep=lambda seconds: asyncio.sleep(0)
    )
    task = asyncio.create_task(reflector.run())
    if ends:
        await task
        assert reflector.ended_by is not None
        assert reflector.ended_by.status == status
    else:
        await until(lambda: bool(store.applied))
        assert reflector.ended_by is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_watch_lasts_as_long_as_it_was_asked_for() -> None:
    asked: list[str] = []

    class Asked(Server):
        def stream(self, path: str, query: Mapping[str, str], silence_seconds: float) -> Any:
            asked.append(query["timeoutSeconds"])
            return super().stream(path, query, silence_seconds)

    for seconds in (0, 30):
        server = Asked(for_ever)
        task = asyncio.create_task(Reflector(cast(ApiServer, server), PODS.everywhere, spec_of, Store(), watch_seconds=seconds).run())
        await server.opened.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert asked == ["3", "30"]
