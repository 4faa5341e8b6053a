"""Reads an operator's API as open pages do: a stream of events each, and after a change the status, the gangs and the nodes.

A page reads at most once a second. The answers are read and dropped, since drawing them is the work of another machine.
"""

import asyncio
import sys

import aiohttp

_PAUSE_SECONDS = 1.0
_PATHS = ("status", "gangs", "nodes")


async def read_pages(url: str, pages: int) -> None:
    """Read as ``pages`` open pages do, until cancelled. ``url`` is the address of the operator."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"{url}/api/v1/", connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        await asyncio.gather(*(_read_page(session) for _ in range(pages)))


async def _read_page(session: aiohttp.ClientSession) -> None:
    has_changed = asyncio.Event()
    has_changed.set()

    async def listen() -> None:
        async with session.get("events") as events:
            async for line in events.content:
                if line.startswith(b"event: changed"):
                    has_changed.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listen())
        while True:
            await has_changed.wait()
            has_changed.clear()
            await asyncio.gather(*(_drop(session, path) for path in _PATHS))
            await asyncio.sleep(_PAUSE_SECONDS)


async def _drop(session: aiohttp.ClientSession, path: str) -> None:
    async with session.get(path) as response:
        response.raise_for_status()
        async for _ in response.content.iter_any():
            pass


if __name__ == "__main__":
    asyncio.run(read_pages(sys.argv[1], int(sys.argv[2])))
