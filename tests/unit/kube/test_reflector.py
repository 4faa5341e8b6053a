"""How old what a store holds may be, and what is done about a watch that says nothing."""

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
    """Answers lists with nothing, and each watch with the next of its scripts; the last one is the answer to all that follow."""

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
    """Takes everything, and notes it."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Any]] = []

    def upsert(self, key: str, record: Any) -> None:
        self.taken.append((key, record))

    def remove(self, key: str) -> None:
        self.taken.append((key, None))

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
    """A reflector at work, its store, and the pauses that it makes."""
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


async def a_silent_life(server: Server) -> AsyncIterator[bytes]:
    """A watch of a collection to which nothing happens, ended by the server in time."""
    server.now += 3
    await asyncio.sleep(0)
    return
    yield b""


async def turned_away(server: Server) -> AsyncIterator[bytes]:
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


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  # the reflector signals nothing
        await asyncio.sleep(0)


async def test_of_several_events_of_one_object_that_wait_only_the_newest_is_taken() -> None:
    fat = [event("MODIFIED", "fat", version, spec={"n": version}) for version in range(2, 50)]
    server = Server(script(*fat[:20], event("ADDED", "slim", 30, spec={"n": 30}), *fat[20:], event("DELETED", "gone", 60)))
    async with mirrored(server) as (reflector, store, _):
        await until(lambda: len(store.taken) >= 3)
        await asyncio.sleep(0)
        assert store.taken == [("team/fat", {"n": 49}), ("team/slim", {"n": 30}), ("team/gone", None)]
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
async def test_a_state_that_must_be_taken_is_taken_also_when_a_newer_event_waits(
    later: list[tuple[str, int]], states: list[int | None]
) -> None:
    """States below 2 and from 100 on must be taken; of several in a row the newest is."""
    events = [event(kind, "a", version, spec={"n": number}) for version, (kind, number) in enumerate([("MODIFIED", 1), *later], 2)]
    async with mirrored(Server(script(*events)), must_be_taken=lambda raw: not 2 <= raw["spec"]["n"] < 100) as (_, store, _):
        await until(lambda: len(store.taken) >= len(states))
        await asyncio.sleep(0)
        assert [spec and spec["n"] for _, spec in store.taken] == states


async def test_a_state_that_must_be_taken_is_taken_before_a_new_list() -> None:
    expired = json.dumps({"type": "ERROR", "object": {"code": 410}}).encode()
    server = Server(script(event("MODIFIED", "a", 2, spec={"n": 1}), event("MODIFIED", "b", 3, spec={"n": 2}), expired), for_ever)
    async with mirrored(server, must_be_taken=lambda raw: raw["spec"]["n"] == 1) as (_, store, _):
        await until(lambda: server.lists == 2)
        assert store.taken == [("team/a", {"n": 1})]


async def test_events_of_each_namespace_are_taken_in_turn() -> None:
    """A tenant's thousands of new pods don't keep others' waiting."""
    flood = [event("ADDED", f"a-{number:02}", number, spec={}) for number in range(2, 40)]
    few = [event("ADDED", f"b-{number}", 40 + number, "other", spec={}) for number in range(3)]
    async with mirrored(Server(script(*flood, *few))) as (_, store, _):
        await until(lambda: len(store.taken) == len(flood) + len(few))
        names = [key for key, _ in store.taken]
    assert [key for key in names if key.startswith("other")] == ["other/b-0", "other/b-1", "other/b-2"]
    assert names.index("other/b-2") <= 6
    assert [key for key in names if key.startswith("team")] == [f"team/a-{number:02}" for number in range(2, 40)]


async def test_the_lag_is_that_of_the_oldest_event_of_any_namespace() -> None:
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
        await until(lambda: len(store.taken) == 4)
    assert [key for key, _ in store.taken] == ["team/a", "other/c", "team/b", "other/d"]
    assert ages == [3.0, 4.0, 5.0, 0.0]


async def test_an_event_that_a_newer_one_replaces_has_waited_since_the_first_of_them_came() -> None:
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
        await until(lambda: len(store.taken) == 2)
    assert lags == [5.0, 0.0]


async def test_an_object_that_costs_much_does_not_keep_newer_events_from_coming() -> None:
    """Each change of it takes longer than the next one takes to come: it is taken less often, and others in their turn."""
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


async def test_what_is_known_is_as_old_as_the_longest_silence_or_what_has_waited_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    async with mirrored(Server(for_ever)) as (reflector, _, _):
        for silence, lag in ((1.0, 9.0), (8.0, 2.0)):
            monkeypatch.setattr(Reflector, "silence_seconds", silence)
            monkeypatch.setattr(Reflector, "lag_seconds", lag)
            assert reflector.age_seconds == max(silence, lag)


async def test_what_waits_to_be_taken_makes_what_is_known_old() -> None:
    server = Server(for_ever)

    def held_up(raw: dict[str, Any]) -> Any:
        server.now += 7
        ages.append(reflector.age_seconds)

    ages: list[float] = []
    server.scripts = [script(event("ADDED", "a", 2), event("ADDED", "b", 3))]
    async with mirrored(server, held_up) as (reflector, _, _):
        await until(lambda: len(ages) == 2)
    assert ages[0] == 7  # b has waited that long
    assert reflector.lag_seconds == 0


async def test_an_idle_collection_is_heard_of_with_each_watch_and_nothing_pauses() -> None:
    server = Server(a_silent_life)
    async with mirrored(server) as (reflector, _, pauses):
        await until(lambda: len(server.versions) > 200)
        assert not pauses
        assert reflector.age_seconds <= 3
    assert server.lists == 1


async def test_a_watch_that_is_turned_away_is_opened_again_more_and_more_slowly_until_one_lives() -> None:
    server = Server(turned_away, turned_away, turned_away, turned_away, a_silent_life, turned_away, for_ever)
    async with mirrored(server) as (_, _, pauses):
        await until(lambda: len(server.versions) == 7)
    assert len(pauses) == 5
    assert pauses[3] >= 2
    assert pauses[4] <= 0.5


async def test_a_watch_on_a_dead_connection_is_given_up_and_goes_on_from_the_last_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector_module, "_WATCH_SECONDS", 0)
    monkeypatch.setattr(reflector_module, "_GRACE_SECONDS", 0.01)
    server = Server(script(event("ADDED", "a", 5, spec={})), for_ever, script(event("DELETED", "a", 6), then=a_silent_life), for_ever)
    async with mirrored(server) as (_, store, _):
        server.now += 100
        await until(lambda: ("team/a", None) in store.taken)
    assert server.versions[:3] == ["1", "5", "5"]
    assert server.lists == 1


async def broken_off(server: Server) -> AsyncIterator[bytes]:
    """A proxy resets what is idle for two seconds."""
    server.now += 2.0
    raise ApiError(0, "Unreachable", "connection reset")
    yield b""


async def test_an_idle_collection_whose_watches_break_off_is_listed_instead_and_never_paused_long_for() -> None:
    server = Server(broken_off)
    async with mirrored(server) as (reflector, _, pauses):
        for _ in range(100):
            before = len(server.versions)
            await until(lambda before=before: len(server.versions) > before)  # type: ignore[misc]
            assert reflector.age_seconds <= 8.0
    assert max(pauses) <= 2.0


async def test_being_opened_alone_is_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy may take every watch and swallow all that is said."""
    monkeypatch.setattr(reflector_module, "_WATCH_SECONDS", 0)
    monkeypatch.setattr(reflector_module, "_GRACE_SECONDS", 0.001)
    server = Server(for_ever)
    async with mirrored(server) as (reflector, _, pauses):
        await until(lambda: len(pauses) == 3)
        server.now += 60
        assert reflector.age_seconds == 60


async def test_what_is_listed_is_as_old_as_its_list() -> None:
    server = Server(for_ever)
    server.list_seconds = 40
    async with mirrored(server) as (reflector, _, _):
        await reflector.synced.wait()
        assert reflector.age_seconds == 40


async def test_a_watch_with_objects_of_another_kind_is_not_applied() -> None:
    node = json.dumps({"type": "ADDED", "object": {"kind": "Node", "metadata": {"name": "a", "resourceVersion": "9"}}}).encode()
    server = Server(script(node), for_ever)
    async with mirrored(server) as (_, store, _):
        await until(lambda: len(server.versions) == 2)
    assert not store.taken
    assert server.versions[1] == "1"


async def test_an_event_that_can_not_be_taken_has_everything_listed_anew() -> None:
    class Failing(Store):
        def upsert(self, key: str, record: Any) -> None:
            raise RuntimeError("a defect")

    server = Server(script(event("ADDED", "a", 2), then=a_silent_life), for_ever)
    reflector = Reflector(cast(ApiServer, server), PODS.everywhere, spec_of, Failing(), clock=lambda: server.now)
    task = asyncio.create_task(reflector.run())
    await until(lambda: server.lists == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_event_that_can_not_be_taken_has_everything_listed_until_a_list_succeeds() -> None:
    class Unwell(Server):
        async def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
            answer = await super().get(path, query)
            if self.lists in (2, 3):
                raise ApiError(503, "ServiceUnavailable", "etcd has no leader")
            return answer

    def failing(raw: dict[str, Any]) -> Any:
        raise RuntimeError("a defect")

    server = Unwell(script(event("ADDED", "a", 2), then=a_silent_life), for_ever)
    async with mirrored(server, failing) as (reflector, _, pauses):
        await until(lambda: len(server.versions) == 2)
        assert server.lists == 4
        assert server.versions == ["1", "1"]  # from the list that succeeded, not from the event that was lost
        assert reflector.relists == 2
        assert len(pauses) == 2


HISTORY = st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=12)
"""Names to which something happens, one after another: whether what is there is deleted; what isn't is made."""


@given(HISTORY, st.lists(st.tuples(st.booleans(), st.integers(0, 11)), max_size=40))
async def test_whatever_is_applied_early_the_store_ends_as_the_watch_says_and_never_goes_back(
    history: list[tuple[str, bool]], hearings: list[tuple[bool, int]]
) -> None:
    """``hearings``: either the watch reports the next event, or an earlier state is applied early, however often and late."""
    truth: dict[str, int] = {}
    events: list[tuple[str, str, int]] = []
    for version, (name, is_deleted) in enumerate(history, 2):
        kind = "ADDED" if name not in truth else "DELETED" if is_deleted else "MODIFIED"
        events.append((kind, name, version))
        if kind == "DELETED":
            del truth[name]
        else:
            truth[name] = version
    told = asyncio.Queue[bytes]()

    async def live(server: Server) -> AsyncIterator[bytes]:
        while True:
            yield await told.get()

    server, waiting = Server(live), [event(kind, name, version, spec={"n": version}) for kind, name, version in events]
    async with mirrored(server) as (reflector, store, _):
        await until(server.opened.is_set)
        for is_watch, which in hearings:
            if is_watch and waiting:
                told.put_nowait(waiting.pop(0))
            elif not is_watch and events[which % len(events)][0] != "DELETED":
                reflector.apply_early(json.loads(event(*events[which % len(events)], spec={"n": events[which % len(events)][2]}))["object"])
            for _ in range(4):
                await asyncio.sleep(0)
        for line in waiting:
            told.put_nowait(line)
        await until(lambda: told.empty() and reflector.lag_seconds == 0)
        for _ in range(4):
            await asyncio.sleep(0)
    held = dict(store.taken)
    assert {key.removeprefix("team/"): record["n"] for key, record in held.items() if record} == truth
    for name in "ab":
        versions = [record["n"] for key, record in store.taken if key == f"team/{name}" and record]
        assert versions == sorted(versions)


async def test_an_object_is_applied_early_only_if_the_watch_cannot_have_reported_it_yet() -> None:
    server = Server(script(event("ADDED", "a", 5, spec={})))
    async with mirrored(server) as (reflector, store, _):
        await until(lambda: bool(store.taken))
        older, newer = ({"metadata": {"name": "b", "namespace": "team", "resourceVersion": str(version)}, "spec": {}} for version in (5, 6))
        assert [reflector.apply_early(older), reflector.apply_early(newer), reflector.apply_early(newer)] == [False, True, False]
        assert not reflector.apply_early({"metadata": {"name": "c", "resourceVersion": "x7"}})
        await until(lambda: ("team/b", {}) in store.taken)
        assert reflector.relists == 1


async def test_a_queued_event_is_not_taken_after_a_newer_state_was_applied_early() -> None:
    async def early_at_once(server: Server) -> AsyncIterator[bytes]:
        yield event("ADDED", "a", 5, spec={"n": 5})
        assert reflector.apply_early(json.loads(event("MODIFIED", "a", 6, spec={"n": 6}))["object"])
        yield event("ADDED", "b", 7)
        await asyncio.Future()

    async with mirrored(Server(early_at_once)) as (reflector, store, _):
        await until(lambda: ("team/b", None) in store.taken)
    assert store.taken == [("team/a", {"n": 6}), ("team/b", None)]


async def test_nothing_is_applied_early_before_there_is_a_list() -> None:
    server = Server(for_ever)
    reflector = Reflector(cast(ApiServer, server), PODS.everywhere, spec_of, Store())
    assert not reflector.apply_early({"metadata": {"name": "a", "namespace": "team", "resourceVersion": "9"}})


async def test_after_a_list_versions_that_were_applied_early_count_no_more() -> None:
    """They may go back, as when etcd is restored from a backup."""

    async def expired(server: Server) -> AsyncIterator[bytes]:
        yield json.dumps({"type": "ERROR", "object": {"code": 410}}).encode()

    async def heard_and_expired(server: Server) -> AsyncIterator[bytes]:
        reflector.apply_early(json.loads(event("ADDED", "a", 90, spec={"n": 90}))["object"])
        await until(lambda: bool(store.taken))
        async for line in expired(server):
            yield line

    server = Server(heard_and_expired, script(event("ADDED", "a", 5, spec={"n": 5})))
    async with mirrored(server) as (reflector, store, _):
        await until(lambda: ("team/a", {"n": 5}) in store.taken)
    assert server.lists == 2


async def test_an_early_pod_that_was_dropped_comes_back_by_the_watch() -> None:
    told = asyncio.Queue[bytes]()

    async def live(server: Server) -> AsyncIterator[bytes]:
        while True:
            yield await told.get()

    server = Server(live)
    async with mirrored(server) as (reflector, store, _):
        await until(server.opened.is_set)
        newcomer = event("ADDED", "a", 9, spec={"n": 9})
        assert reflector.apply_early(json.loads(newcomer)["object"])
        assert list(reflector.ahead) == ["team/a"]
        await until(lambda: ("team/a", {"n": 9}) in store.taken)
        reflector.drop_early("team/a")
        reflector.drop_early("team/b")  # which was never applied early
        assert store.taken[1:] == [("team/a", None)]
        told.put_nowait(newcomer)
        await until(lambda: len(store.taken) == 3)
    assert store.taken[2] == ("team/a", {"n": 9})
