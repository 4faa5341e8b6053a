"""Measure what it costs to read the GPU metrics of a large cluster from Prometheus, as the operator does: 5,000 nodes of 8 GPUs.

A process of its own stands in for Prometheus, and answers each query with as many series as the real one would. A scraper reads in its own
thread, beside an event loop that only measures its own delays. Measured are the processor time of a reading with its evaluation, memory,
and the longest stall of the loop. The longest stall is also measured for three seconds before the scraper starts.
Limits: 2 s of processor time, 50 MiB, stalls of 50 ms. Exits with 1 if a limit is exceeded.
"""

import argparse
import asyncio
import multiprocessing
import os
import re
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from aiohttp import web
from rich.console import Console
from rich.table import Table

from allaboard.gpu.scraper import Scraper, in_own_thread
from allaboard.model.gpus import NO_CARDS, Cards, Measure
from allaboard.runtime.garbage import freeze_objects
from allaboard.settings.gpu_metrics import GpuMetricsOptions
from operator_process import memory_mib

_CPU_SECONDS, _MEMORY_MIB, _STALL_SECONDS = 2.0, 50.0, 0.05
_TICK_SECONDS = 0.002
_VALUES = {
    "DCGM_FI_DEV_GPU_TEMP": "41",
    "DCGM_FI_DEV_POWER_USAGE": "287.451",
    "DCGM_FI_DEV_FB_FREE": "64311",
    "DCGM_FI_DEV_FB_USED": "16177",
    "DCGM_FI_DEV_FB_RESERVED": "665",
    "DCGM_FI_DEV_GPU_UTIL": "97",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.981244",
    "DCGM_FI_DEV_ENC_UTIL": "0",
    "DCGM_FI_DEV_DEC_UTIL": "0",
    "DCGM_FI_DEV_XID_ERRORS": "0",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "0",
}
_CONSTANT_LABELS = {"modelName": "NVIDIA H100 80GB HBM3", "instance": "10.100.200.30:9400"}


def answer(query: str, nodes: int, cards: int) -> bytes:
    """Return what Prometheus would answer to ``query``: a series for each metric, node or GPU, with the labels that the query names."""
    by, metric = re.search(r"by \(([^)]*)\)", query), re.search(r"DCGM_\w+", query)
    if by is None or metric is None:
        raise ValueError(query)
    labels = by[1].split(", ")
    if "__name__" in labels:
        series = [(f'"__name__":"{name}"', str(nodes * cards)) for name in _VALUES]
    elif "timestamp" in query:
        series = [(f'"Hostname":"gpu-node-{node:04d}"', f"{time.time() - 5:.3f}") for node in range(nodes)]
    else:
        constant = "".join(f',"{key}":"{word}"' for key, word in _CONSTANT_LABELS.items() if key in labels)
        gpus = [(node, card) for node in range(nodes) for card in range(cards)]
        series = [(f'"Hostname":"gpu-node-{node:04d}"{constant},"gpu":"{card}"', _VALUES[metric[0]]) for node, card in gpus]
    now = f"{time.time():.3f}"
    text = ",".join(f'{{"metric":{{{names}}},"value":[{now},"{value}"]}}' for names, value in series)
    return f'{{"status":"success","data":{{"resultType":"vector","result":[{text}]}}}}'.encode()


def serve(ready: Connection, nodes: int, cards: int) -> None:
    """Answer queries until the process is ended; send the port through ``ready``."""
    answers: dict[str, bytes] = {}

    async def query(request: web.Request) -> web.Response:
        asked = request.query["query"]
        answers[asked] = answers.get(asked) or answer(asked, nodes, cards)
        return web.Response(body=answers[asked], content_type="application/json")

    async def answering() -> None:
        app = web.Application()
        app.add_routes([web.get("/api/v1/query", query)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(answering())


@dataclass(slots=True)
class Figures:
    """Results of a measurement.

    ``cpu``, ``wall``: processor and wall-clock seconds of each reading. ``memory``: MiB between the start and the peak. ``stall``,
    ``alone``: longest stall of the loop in seconds, with the scraper and before it starts. ``cards``: metrics of the last reading.
    """

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    memory: float = 0.0
    stall: float = 0.0
    alone: float = 0.0
    cards: Cards = NO_CARDS


async def measure(url: str, readings: int) -> Figures:
    """Return the figures of a scraper that reads ``readings`` times from ``url``, beside an event loop that measures its own delays."""
    found, pushed, loop = Figures(), asyncio.Queue[Cards](), asyncio.get_running_loop()
    stalls: list[float] = []

    def push(cards: Cards) -> None:
        loop.call_soon_threadsafe(pushed.put_nowait, cards)

    async def tick() -> None:
        while True:
            due = time.monotonic() + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)
            stalls.append(time.monotonic() - due)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(3.0)
    found.alone = max(stalls)
    stalls.clear()
    before = memory_mib(os.getpid())[0]
    scraper = Scraper(GpuMetricsOptions(url=url, interval_seconds=1.0, stale_seconds=60.0), lambda _: True, push)
    server: Any = None  # used only to find Prometheus when no URL is given
    used, began = _processor_seconds(), time.monotonic()
    reading = asyncio.create_task(in_own_thread(lambda: scraper.run(server)))
    for _ in range(readings):
        found.cards = await pushed.get()
        found.cpu.append(_processor_seconds() - used)
        found.wall.append(time.monotonic() - began)
        await asyncio.sleep(0.9)
        used, began = _processor_seconds(), time.monotonic()
    found.stall = max(stalls)
    found.memory = memory_mib(os.getpid())[1] - before
    for task in (reading, ticking):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return found


def _processor_seconds() -> float:
    """Return the processor seconds of all threads except the thread of the event loop."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime - time.thread_time()


def main() -> None:
    """Measure, print a table, and exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--cards", type=int, default=8, help="GPUs of each node")
    parser.add_argument("--readings", type=int, default=4)
    arguments = parser.parse_args()
    freeze_objects()  # as the operator runs
    mine, other = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(other, arguments.nodes, arguments.cards), daemon=True)
    server.start()
    try:
        found = asyncio.run(measure(f"http://127.0.0.1:{mine.recv()}", arguments.readings))
    finally:
        server.terminate()
        server.join()
    known = int((~np.isnan(found.cards.values[Measure.FREE])).sum())
    if known != arguments.nodes * arguments.cards:
        sys.exit(f"only {known} of {arguments.nodes * arguments.cards} GPUs have metrics")
    table = Table("nodes", "cards", "CPU s of a reading", "wall s of a reading", "MiB to the peak", "longest stall ms", "without scraper")
    cpu, wall, stalls = f"{max(found.cpu):.2f}", f"{min(found.wall):.2f}", (f"{each * 1000:.0f}" for each in (found.stall, found.alone))
    table.add_row(str(arguments.nodes), str(known), cpu, wall, f"{found.memory:.0f}", *stalls)
    Console().print(table)
    sys.exit(max(found.cpu) > _CPU_SECONDS or found.memory > _MEMORY_MIB or found.stall > _STALL_SECONDS)


if __name__ == "__main__":
    main()
