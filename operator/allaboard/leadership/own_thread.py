"""Run the election in a thread of its own, with its own event loop and connection.

An object that takes seconds to read blocks the scheduler's loop. On that loop it would also delay the renewal of the lease, and one
tenant's object would depose the leader.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

from allaboard.kube.client import ApiServer
from allaboard.leadership.lease import Fence, Lease, Server
from allaboard.runtime.threads import own_loop, there


class Candidate(Fence, Protocol):
    """One replica's part in the election, as the scheduler's loop uses it; ``Lease`` documents each member."""

    @property
    def acquired(self) -> asyncio.Event: ...

    @property
    def is_held(self) -> bool: ...

    @property
    def transitions(self) -> int: ...

    async def run(self) -> None: ...

    async def release(self) -> None: ...


Elect = Callable[[Callable[[Server], Lease]], AbstractAsyncContextManager[Candidate]]
"""Opens a connection and returns a candidate with the lease that the argument makes for the connection."""


@asynccontextmanager
async def in_own_thread(make: Callable[[Server], Lease], kubeconfig: str = "") -> AsyncIterator[Candidate]:
    """Yield a candidate that this loop can't delay, with the credentials of ``kubeconfig`` if named. Raises ``CredentialsError``."""
    async with own_loop("election") as loop:
        connection = AsyncExitStack()
        server = await there(loop, connection.enter_async_context(ApiServer.connect(kubeconfig=kubeconfig)))
        try:
            yield _Remote(make(server), loop)
        finally:
            await there(loop, connection.aclose())


class _Remote:
    """A lease that runs on another thread's loop. Only single attributes of the lease are read here, which needs no lock."""

    def __init__(self, lease: Lease, loop: asyncio.AbstractEventLoop) -> None:
        self.acquired = asyncio.Event()
        self._lease = lease
        self._loop = loop

    @property
    def is_held(self) -> bool:
        return self._lease.is_held

    @property
    def transitions(self) -> int:
        return self._lease.transitions

    def seconds_left(self) -> float:
        return self._lease.seconds_left()

    async def run(self) -> None:
        await there(self._loop, self._compete(asyncio.get_running_loop()))

    async def release(self) -> None:
        if not self._loop.is_closed():  # else it was released before that
            await there(self._loop, self._lease.release())

    async def _compete(self, home: asyncio.AbstractEventLoop) -> None:
        telling = asyncio.create_task(self._tell(home))
        try:
            await self._lease.run()
        finally:
            telling.cancel()

    async def _tell(self, home: asyncio.AbstractEventLoop) -> None:
        await self._lease.acquired.wait()
        home.call_soon_threadsafe(self.acquired.set)
