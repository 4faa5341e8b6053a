"""Measure for how long requests to the read-only API hold the event loop of the scheduler, with 5,000 nodes and 100,000 pods in gangs.

The API is served as in the operator, and another process reads it. Measured are the processor times of the iterations of the event loop:
the first time that a path is read, and again after some pods have changed. Then ten readers read the lists at once.
Limit: no iteration takes longer than 20 ms for one request, and 50 ms for ten readers. Exits with 1 if a limit is exceeded.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiohttp import web
from rich.console import Console
from rich.table import Table

from allaboard.gangs.membership import POD_GROUP_LABEL
from allaboard.gangs.podgroup import PodGroup
from allaboard.model.gang import GangKey
from allaboard.runtime.garbage import freeze_objects
from allaboard.sight.access import ByHost
from allaboard.sight.api import Api
from allaboard.sight.board import Board

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))
from tests.unit.placement.clusters import GPU, node, pods  # noqa: E402
from tests.unit.scheduling.schedulers import World  # noqa: E402

_ONE_SECONDS, _MANY_SECONDS = 0.02, 0.05
_MEMBERS, _WAITING = 20, 500
_PATHS = ("status", "queue", "gangs", "gangs/default/big", "nodes", "domains", "decisions", "timeline", "snapshot", "openapi.json")
_LISTS = ("gangs", "nodes", "queue")
_READERS = 10


@dataclass(slots=True)
class Iterations:
    """The processor seconds of the iterations of an event loop, without the iterations in which it only waits."""

    longest: float = 0.0
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Record the longest iteration while the context lasts."""
        self.longest = 0.0
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        try:
            yield
        finally:
            self._task.cancel()

    async def _watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = now


def fill(world: World, nodes: int, number: int) -> None:
    """Add nodes of 8 GPUs in racks of 16, ``number`` pods of a GPU each in bound gangs, and gangs that wait."""
    for each in range(nodes):
        labels = {f"label-{label}.example.com/name": f"value-{each % (7 + label)}" for label in range(30)}
        labels |= {"topology.kubernetes.io/rack": f"rack-{each // 16}", "kubernetes.io/hostname": f"node-{each:05}"}
        world.view.upsert_node(node(f"node-{each:05}", {"cpu": 64_000, "memory": 1 << 38, GPU: 8}, labels=labels))
    for gang in range(number // _MEMBERS):
        add(world, f"gang-{gang}", [f"node-{(gang * _MEMBERS + member) % nodes:05}" for member in range(_MEMBERS)])
    for gang in range(_WAITING):
        add(world, f"waiting-{gang}", [""] * _MEMBERS)
    add(world, "big", [""] * 512)


def add(world: World, name: str, places: list[str]) -> None:
    """Add a gang with a pod for each of ``places``: the name of the pod's node, or an empty name."""
    key = GangKey("default", name)
    world.registry.observe_group(PodGroup(key, f"uid-{name}", 1, len(places), 60, 0.0, {}))
    for pod, place in zip(pods(name, len(places), {"cpu": 1000, GPU: 1}), places, strict=True):
        phase = "Running" if place else "Pending"
        world.view.upsert_pod(replace(pod, labels=((POD_GROUP_LABEL, name),), node_name=place, phase=phase))


async def read(url: str, paths: tuple[str, ...]) -> None:
    """Read ``paths`` at once, each in a process of its own."""
    reading = [
        await asyncio.create_subprocess_exec("curl", "--silent", "--fail", "--output", "/dev/null", f"{url}/{path}") for path in paths
    ]
    statuses = [await process.wait() for process in reading]
    if any(statuses):
        raise RuntimeError(f"an answer to {', '.join(paths)} failed: curl ended with {statuses}")


async def measure(nodes: int, number: int) -> dict[str, tuple[float, float]]:
    """Return the longest iteration for each path, in seconds: when the path is first read, and after changes."""
    async with World() as world:
        fill(world, nodes, number)
        board = Board(world.registry, world.records, world.ledger, world.view, now=world.clock)
        runner = web.AppRunner(Api(board, ByHost()).application(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/v1"
        world.view.snapshot()  # The scheduler has read the cluster before.
        freeze_objects()  # as the operator runs
        found, iterations = dict[str, tuple[float, float]](), Iterations()
        changes = 0

        async def longest(*paths: str) -> float:
            async with iterations.watched():
                await read(url, paths)
            return iterations.longest

        for path in _PATHS:
            first = await longest(path)
            for _ in range(50):
                changes += 1
                add(world, f"later-{changes}", [f"node-{changes:05}"] * 4)
            found[path] = first, await longest(path)
        readers = tuple(_LISTS[each % len(_LISTS)] for each in range(_READERS))
        found[f"{_READERS} readers"] = await longest(*readers), await longest(*readers)
        await runner.cleanup()
        return found


def main() -> None:
    """Measure, print a table, and exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    arguments = parser.parse_args()
    found = asyncio.run(measure(arguments.nodes, arguments.pods))
    table = Table("path", "longest iteration ms, first", "after changes", "limit ms")
    is_exceeded = False
    for path, seconds in found.items():
        limit = _ONE_SECONDS if path in _PATHS else _MANY_SECONDS
        is_exceeded |= max(seconds) > limit
        table.add_row(path, *(f"{each * 1000:.0f}" for each in seconds), f"{limit * 1000:.0f}")
    Console().print(table)
    sys.exit(is_exceeded)


if __name__ == "__main__":
    main()
