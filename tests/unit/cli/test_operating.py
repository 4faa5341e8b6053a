"""Tests of ending Kopf's operator."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import kopf
import pytest
from kopf._cogs.aiokits import aiotoggles
from kopf._cogs.clients import watching
from kopf._cogs.structs.references import Resource

from allaboard.cli.operating import Operating
from allaboard.handlers import TAKE_SIGNALS


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that starts a fake of Kopf's operator. The fake needs a moment for its cleanup when it is cancelled."""
    event = asyncio.Event()

    async def work(*, memo: kopf.Memo, stop_flag: asyncio.Event, **_: object) -> None:
        await event.wait()
        memo[TAKE_SIGNALS]()
        try:
            await asyncio.Event().wait()
        finally:
            assert stop_flag.is_set()
            await asyncio.sleep(0)
            memo["is_clean"] = True

    monkeypatch.setattr(kopf, "operator", work)
    return event


@pytest.mark.parametrize("is_early", [True, False])
async def test_operator_is_cancelled_once_and_not_before_kopf_has_started(is_early: bool, begins: asyncio.Event) -> None:
    taken: list[bool] = []
    has_begun = asyncio.Event()
    memo = kopf.Memo()

    def take_signals() -> None:
        taken.append(begins.is_set())
        if begins.is_set():
            has_begun.set()

    operating = Operating(memo, take_signals)
    if is_early:
        operating.end()
        await asyncio.sleep(0)
        assert not operating.task.done()
    begins.set()
    await has_begun.wait()
    for _ in range(3):
        operating.end()
        await asyncio.sleep(0)
    await asyncio.wait({operating.task})
    assert operating.task.cancelled()
    assert (memo.is_clean, taken) == (True, [False, True])


def test_errors_while_the_event_loop_closes_are_ignored_if_they_come_from_watches_and_logged_otherwise(
    begins: asyncio.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def endless(**_: object) -> AsyncIterator[object]:
        yield "an event"
        await asyncio.Event().wait()

    async def careless() -> AsyncIterator[object]:
        try:
            yield "something"
        finally:
            raise RuntimeError("it can't be closed")

    monkeypatch.setattr(watching, "continuous_watch", endless)
    left: list[AsyncGenerator[object]] = []

    async def run() -> None:
        pods = Resource(group="", version="v1", plural="pods")
        watch = watching.infinite_watch(
            settings=kopf.OperatorSettings(), resource=pods, namespace=None, operator_paused=aiotoggles.ToggleSet(any)
        )
        left.extend((watch, careless()))
        for generator in left:
            await anext(generator)
        operating = Operating(kopf.Memo(), lambda: None)
        begins.set()
        await asyncio.sleep(0)
        operating.end()
        await asyncio.wait({operating.task})

    asyncio.run(run())
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["it can't be closed"]
