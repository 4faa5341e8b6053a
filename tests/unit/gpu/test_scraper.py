"""Tests that GPU metrics are read periodically, and that failures only make the measurements older."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from allaboard.gpu import scraper as scraper_module
from allaboard.gpu.dialects import DCGM
from allaboard.gpu.errors import SourceError
from allaboard.gpu.gathering import Gathering, Reading
from allaboard.gpu.scraper import Scraper, in_own_thread, pause_after
from allaboard.gpu.sources import NoneFoundError
from allaboard.kube.errors import ApiError
from allaboard.model.gpus import Cards, Measure
from allaboard.settings.gpu_metrics import GpuMetricsOptions


def a_reading() -> Reading:
    gathering = Gathering(lambda _, value: value)
    gathering.take(DCGM, DCGM.metrics[0], [(b'"Hostname":"n1","gpu":"0"', b"0", b"40")])
    return gathering.reading()


class Script:
    """A source of GPU metrics that returns the given readings and raises the given errors in turn. It repeats the last one for ever."""

    description = "a script"

    def __init__(self, *results: Reading | Exception) -> None:
        self._results = list(results)

    async def find(self, *_: object) -> "Script":
        return self

    async def read(self) -> Reading:
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if isinstance(result, Exception):
            raise result
        return result


class Scraped:
    """Runs a scraper that reads from a script, and keeps the measurements that the scraper has pushed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: Script, **options: Any) -> None:
        monkeypatch.setattr(scraper_module, "find", script.find)
        self.pushed: asyncio.Queue[Cards] = asyncio.Queue()
        self.figures: dict[str, Callable[[], float]] = {}
        stated = GpuMetricsOptions(**{"interval_seconds": 0.1, "stale_seconds": 60.0, **options})
        self.scraper = Scraper(stated, lambda _: True, self.pushed.put_nowait)
        self.scraper.measure(lambda name, read: self.figures.update({name: read}))

    async def __aenter__(self) -> "Scraped":
        server: Any = None
        self._task = asyncio.create_task(self.scraper.run(server))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def value(self, name: str) -> float:
        return self.figures[f"gpu_metrics_{name}"]()


async def test_measurements_of_gpus_are_passed_on_to_the_scheduler_and_counted_in_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Scraped(monkeypatch, Script(a_reading())) as scraped, asyncio.timeout(50):
        assert math.isnan(scraped.value("age_seconds"))
        cards = await scraped.pushed.get()
        assert cards.values[Measure.TEMPERATURE].tolist() == [[40.0]]
        assert (scraped.value("cards"), scraped.value("stale_nodes"), scraped.value("errors")) == (1, 0, 0)
        assert 0 <= scraped.value("age_seconds") < 10


async def test_measurements_that_become_too_old_are_passed_on_to_the_scheduler_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(a_reading(), SourceError("gone"))
    async with Scraped(monkeypatch, script, stale_seconds=0.3) as scraped, asyncio.timeout(50):
        known, unknown = await scraped.pushed.get(), await scraped.pushed.get()
    assert (np.isnan(known.values[Measure.TEMPERATURE, 0, 0]), np.isnan(unknown.values[Measure.TEMPERATURE, 0, 0])) == (False, True)
    assert unknown.rows.keys() == {"n1"}
    assert scraped.value("stale_nodes") == 1


async def test_failure_to_read_gpu_metrics_is_logged_once_as_a_warning_and_its_end_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "allaboard.gpu")
    script = Script(a_reading(), SourceError("gone"), NoneFoundError("none"), SourceError("gone"), a_reading())
    async with Scraped(monkeypatch, script, interval_seconds=0.1) as scraped, asyncio.timeout(50):
        for _ in range(2):
            await scraped.pushed.get()
        assert scraped.value("errors") == 3
    assert [(record.levelno, "gone" in record.getMessage()) for record in caplog.records] == [
        (logging.INFO, False),
        (logging.WARNING, True),
        (logging.INFO, False),
    ]


@pytest.mark.parametrize("nothing", [NoneFoundError("none"), ApiError(403, "Forbidden", "no")])
async def test_missing_source_of_metrics_is_logged_without_a_warning(
    nothing: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "allaboard.gpu")
    script = Script(nothing, nothing, nothing, a_reading())
    async with Scraped(monkeypatch, script) as scraped, asyncio.timeout(50):
        await scraped.pushed.get()
        assert scraped.value("errors") == 0
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.INFO]


async def test_series_beyond_the_limits_are_counted_and_logged_once_as_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    too_much = replace(a_reading(), left_out=2)
    async with Scraped(monkeypatch, Script(too_much)) as scraped, asyncio.timeout(50):
        for _ in range(2):
            await scraped.pushed.get()
        assert scraped.value("left_out") >= 4
    assert ["left out" in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [True]


async def test_defect_while_metrics_are_read_is_logged_and_does_not_stop_the_scraper(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Scraped(monkeypatch, Script(ZeroDivisionError("a defect"), a_reading())) as scraped, asyncio.timeout(50):
        await scraped.pushed.get()
    assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.WARNING] == [True]


def test_configured_source_or_one_that_once_answered_is_retried_after_the_usual_pause() -> None:
    usual, rare = GpuMetricsOptions(), GpuMetricsOptions(interval_seconds=600, stale_seconds=900)
    named = GpuMetricsOptions(url="http://p:9090")
    assert [pause_after(failures, usual, has_read=True) for failures in (0, 1, 9)] == [30.0, 30.0, 30.0]
    assert [pause_after(failures, named, has_read=False) for failures in (0, 1, 9)] == [30.0, 30.0, 30.0]
    assert pause_after(9, rare, has_read=True) == 30.0


def test_pause_grows_while_no_source_of_gpu_metrics_was_ever_found() -> None:
    usual, rare = GpuMetricsOptions(), GpuMetricsOptions(interval_seconds=600, stale_seconds=900)
    assert [pause_after(failures, usual, has_read=False) for failures in (0, 1, 2, 3, 4, 10_000)] == [
        30.0,
        60.0,
        120.0,
        240.0,
        300.0,
        300.0,
    ]
    assert pause_after(3, rare, has_read=False) == 600.0


async def test_work_in_its_own_thread_ends_when_the_waiting_task_is_cancelled() -> None:
    began, ended = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    async def work() -> None:
        loop.call_soon_threadsafe(began.set)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    task = asyncio.create_task(in_own_thread(work))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
