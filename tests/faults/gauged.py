"""Runs the operator with a gauge: for each line on standard input it prints its memory, tasks and file handles.

The answer is one line on stderr: the question, and JSON. The question ``tasks`` lists the tasks.
"""

import asyncio
import gc
import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path

import uvloop

from allaboard.cli.main import main

_loops: list[asyncio.AbstractEventLoop] = []
_new_event_loop = uvloop.new_event_loop


def _remembered() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = _new_event_loop()
    _loops.append(loop)
    return loop


def _report(question: str) -> None:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    gauge = {
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "tasks": len(asyncio.all_tasks(_loops[-1])),
        "handles": len(os.listdir("/proc/self/fd")),
    }
    if question == "tasks":
        names = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks(_loops[-1]))
        print(question, json.dumps(Counter(names)), file=sys.stderr, flush=True)  # noqa: T201  # the answer goes to stderr
        return
    print(question, json.dumps(gauge), file=sys.stderr, flush=True)  # noqa: T201  # the answer goes to stderr


def _listen() -> None:
    for line in sys.stdin:
        _loops[-1].call_soon_threadsafe(_report, line.strip())


if __name__ == "__main__":
    uvloop.new_event_loop = _remembered  # type: ignore[assignment]  # uvloop's annotation is less precise
    threading.Thread(target=_listen, daemon=True).start()
    main()
