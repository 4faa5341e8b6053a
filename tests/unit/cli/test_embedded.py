"""Tests of an operator in this process that ends before it schedules."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import kopf
import pytest

from allaboard.cli.embedded import OperatorEndedError, OperatorStoppedError, _ready, operator
from allaboard.handlers import TAKE_SIGNALS, start


@pytest.fixture(autouse=True)
def formatters_stay() -> Iterator[None]:
    """Restore the formatters of the root logger's handlers. The operator replaces them, and pytest keeps its handlers."""
    formatters = [(handler, handler.formatter) for handler in logging.getLogger().handlers]
    yield
    for handler, formatter in formatters:
        handler.setFormatter(formatter)


async def ends(error: Exception | None = None) -> None:
    if error:
        raise error


def started(*, has_failed: bool = False) -> kopf.Memo:
    """Return Kopf's memo of an operator that doesn't schedule yet. With ``has_failed`` a part of the operator has failed."""
    return kopf.Memo(app=SimpleNamespace(scheduling=asyncio.Event(), has_failed=has_failed))


@pytest.mark.parametrize("memo", [kopf.Memo, started])
async def test_operator_that_is_stopped_while_it_starts_raises_an_error_at_once(memo: type[kopf.Memo]) -> None:
    with pytest.raises(OperatorStoppedError, match="stopped"):
        await _ready(asyncio.create_task(ends()), memo(), seconds=60)


async def test_operator_that_can_not_start_raises_an_error_with_the_reason() -> None:
    with pytest.raises(OperatorEndedError, match="could not start: address in use") as caught:
        await _ready(asyncio.create_task(ends(OSError("address in use"))), started(), seconds=60)
    assert not isinstance(caught.value, OperatorStoppedError)


async def test_operator_that_can_not_start_does_not_end_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def only_starts(*, memo: kopf.Memo, **_: object) -> None:
        await start(settings=kopf.OperatorSettings(), memo=memo)

    monkeypatch.setattr(kopf, "operator", only_starts)
    with pytest.raises(OperatorEndedError, match="could not start: no cluster to connect to"):
        async with operator(tmp_path / "no-kubeconfig"):
            raise AssertionError("it has started")


async def test_operator_that_is_interrupted_while_it_starts_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_of_kopf: list[str] = []

    async def never_starts(*, memo: kopf.Memo, stop_flag: asyncio.Event, **_: object) -> None:
        memo[TAKE_SIGNALS]()
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await stop_flag.wait()
            ends_of_kopf.append("stopped")
        except asyncio.CancelledError:
            ends_of_kopf.append("cancelled")
            raise

    monkeypatch.setattr(kopf, "operator", never_starts)
    with pytest.raises(OperatorStoppedError, match="stopped"):
        async with operator(tmp_path / "kubeconfig"):
            raise AssertionError("it has started")
    assert ends_of_kopf == ["cancelled"]


async def test_operator_that_ends_because_a_part_of_it_failed_is_not_reported_as_stopped() -> None:
    with pytest.raises(OperatorEndedError, match="the lines above say why") as caught:
        await _ready(asyncio.create_task(ends()), started(has_failed=True), seconds=60)
    assert not isinstance(caught.value, OperatorStoppedError)


async def test_operator_that_does_not_schedule_in_time_raises_an_error() -> None:
    for_ever = asyncio.create_task(asyncio.Event().wait())
    with pytest.raises(OperatorEndedError, match="no decision within"):
        await _ready(for_ever, started(), seconds=0)  # type: ignore[arg-type]
    for_ever.cancel()
