"""Watches send changes at once, and bookmarks every minute and before their end."""

import json

import pytest

from allaboard_sandbox import Sandbox
from allaboard_sandbox.lists import Selection
from allaboard_sandbox.server import JSON
from allaboard_sandbox.watch import LAST_BOOKMARK_SECONDS, WatchOptions, watch
from tests.unit.leadership.elections import now, virtually


def test_a_change_is_sent_at_once_if_it_happens_while_the_client_reads_a_bookmark() -> None:
    async def play() -> None:
        sandbox = Sandbox(controllers=False)
        sandbox.add_node("node-1")
        options = WatchOptions(str(sandbox.store.revision), bookmarks=True, timeout_seconds=LAST_BOOKMARK_SECONDS + 0.05)
        events = watch(sandbox.store, sandbox.api.resource("nodes"), Selection(), options, JSON)
        sandbox.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        assert json.loads(await anext(events))["type"] == "BOOKMARK"
        bookmarked_at = now()
        sandbox.add_node("node-2")
        assert json.loads((await anext(events)).splitlines()[0])["object"]["metadata"]["name"] == "node-2"
        assert now() == bookmarked_at

    virtually(play())


def followed(*, bookmarks: bool, seconds: float, is_idle: bool) -> tuple[list[tuple[float, str]], float]:
    """Watch nodes, which don't change. Return the events of the watch with their times, and the time at which the watch ended.

    Times are in seconds after the start. Unless ``is_idle``, an object of another kind changes at the start.
    """

    async def play() -> tuple[list[tuple[float, str]], float]:
        sandbox, began = Sandbox(controllers=False), now()
        options = WatchOptions(str(sandbox.store.revision), bookmarks=bookmarks, timeout_seconds=seconds)
        if not is_idle:
            sandbox.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        events = []
        async for lines in watch(sandbox.store, sandbox.api.resource("nodes"), Selection(), options, JSON):
            assert json.loads(lines)["object"]["metadata"]["resourceVersion"] == str(sandbox.store.revision)
            events.append((now() - began, json.loads(lines)["type"]))
        return events, now() - began

    return virtually(play())


@pytest.mark.parametrize(
    ("seconds", "bookmarked_after"),
    [(150, [60, 120, 148]), (61, [59]), (3, [1]), (1, [])],
    ids=["every-minute-and-before-the-end", "before-the-end-of-a-minute", "once-for-a-short-one", "too-short"],
)
def test_a_watch_gets_a_bookmark_every_minute_and_before_its_end(seconds: float, bookmarked_after: list[float]) -> None:
    events, ended_after = followed(bookmarks=True, seconds=seconds, is_idle=False)
    assert events == [(pytest.approx(after), "BOOKMARK") for after in bookmarked_after]
    assert ended_after == pytest.approx(seconds)


def test_a_watch_that_requests_no_bookmarks_gets_no_bookmarks() -> None:
    assert followed(bookmarks=False, seconds=150, is_idle=False) == ([], pytest.approx(150))


def test_a_watch_gets_no_bookmark_of_its_start_revision() -> None:
    """A bookmark of the start revision would say nothing new (apiserver pkg/storage/cacher/cache_watcher.go, process)."""
    assert followed(bookmarks=True, seconds=150, is_idle=True) == ([], pytest.approx(150))
