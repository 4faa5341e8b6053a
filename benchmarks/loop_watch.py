"""Records when the event loop of an operator is late. Kopf loads this module beside the operator; ``LOOP_WATCH`` names the output file."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import kopf

_TICK_SECONDS = 0.005
_LATE_SECONDS = 0.01

_tasks: set[asyncio.Task[None]] = set()


@kopf.on.startup()
async def start(**_: Any) -> None:
    """Start to watch the loop."""
    _tasks.add(asyncio.create_task(_watch(Path(os.environ["LOOP_WATCH"]))))


async def _watch(path: Path) -> None:
    """Write a line each time the loop is late: by how many seconds, and for how many of them the loop's thread had a processor."""
    with path.open("w", buffering=1, encoding="utf-8") as lines:
        while True:
            now, used = time.monotonic(), time.thread_time()
            await asyncio.sleep(_TICK_SECONDS)
            late = time.monotonic() - now - _TICK_SECONDS
            if late > _LATE_SECONDS:
                lines.write(f"{late:.4f} {min(late, time.thread_time() - used):.4f}\n")
