"""Watches, told event by event to whoever reads them at leisure."""

import json

import pytest

from allaboard_sandbox import Sandbox
from allaboard_sandbox.lists import Selection
from allaboard_sandbox.server import JSON
from allaboard_sandbox.watch import LAST_BOOKMARK_SECONDS, WatchOptions, watch
from tests.unit.leadership.elections import now, virtually


def test_what_happens_while_a_bookmark_is_read_is_told_at_once() -> None:
    async def play() -> None:
        sandbox = Sandbox(controllers=False)
        sandbox.add_node("node-1")
        options = WatchOptions(str(sandbox.store.revision), bookmarks=True, timeout_seconds=LAST_BOOKMARK_SECONDS + 0.05)
        events = watch(sandbox.store, sandbox.api.resource("nodes"), Selection(), options, JSON)
        sandbox.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        assert json.loads(await anext(events))["type"] == "BOOKMARK"
        told_at = now()
        sandbox.add_node("node-2")
        assert json.loads((await anext(events)).splitlines()[0])["object"]["metadata"]["name"] == "node-2"
        assert now() == told_at

    virtually(play())


def followed(*, bookmarks: bool, seconds: float, is_idle: bool) -> tuple[list[tuple[float, str]], float]:
    """Watch nodes, while pods at most change: what was told after how many seconds, and when the watch ended."""

    async def play() -> tuple[list[tuple[float, str]], float]:
        sandbox, began = Sandbox(controllers=False), now()
        options = WatchOptions(str(sandbox.store.revision), bookmarks=bookmarks, timeout_seconds=seconds)
        if not is_idle:
            sandbox.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        told = []
        async for lines in watch(sandbox.store, sandbox.api.resource("nodes"), Selection(), options, JSON):
            assert json.loads(lines)["object"]["metadata"]["resourceVersion"] == str(sandbox.store.revision)
            told.append((now() - began, json.loads(lines)["type"]))
        return told, now() - began

    return virtually(play())


@pytest.mark.parametrize(
    ("seconds", "told_after"),
    [(150, [60, 120, 148]), (61, [59]), (3, [1]), (1, [])],
    ids=["every-minute-and-before-the-end", "before-the-end-of-a-minute", "once-for-a-short-one", "too-short"],
)
def test_whoever_asks_for_bookmarks_is_told_each_minute_how_far_things_are_and_once_more_before_the_end(
    seconds: float, told_after: list[float]
) -> None:
    told, ended_after = followed(bookmarks=True, seconds=seconds, is_idle=False)
    assert told == [(pytest.approx(after), "BOOKMARK") for after in told_after]
    assert ended_after == pytest.approx(seconds)


def test_whoever_does_not_ask_for_bookmarks_gets_none() -> None:
    assert followed(bookmarks=False, seconds=150, is_idle=False) == ([], pytest.approx(150))


def test_there_is_no_bookmark_of_where_a_watch_began() -> None:
    """It would say nothing new (apiserver pkg/storage/cacher/cache_watcher.go, process)."""
    assert followed(bookmarks=True, seconds=150, is_idle=True) == ([], pytest.approx(150))
