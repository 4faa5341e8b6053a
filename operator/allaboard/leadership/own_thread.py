"""Run the election in a thread of its own, with its own event loop and connection.

An object that takes seconds to read blocks the scheduler's loop. If the lease were renewed on the same loop, the renewal would come too
late, and one tenant's object would depose the leader.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

from allaboard.kube.client import ApiServer
from allaboard.leadership.lease import Fence, Lease, Server
from allaboard.runtime.threads import own_loop, run_on


class Candidate(Fence, Protocol):
    """One replica's part in the election, as the scheduler's loop uses it; ``Lease`` documents each member."""

    @property
    def acquired(self) -> asyncio.Event:
        """An event that is set once this replica has held the lease."""

    @property
    def is_held(self) -> bool:
        """True while this replica leads."""

    @property
    def transitions(self) -> int:
        """The number of the present term."""

    async def run(self) -> None:
        """Wait for the lease, then renew it until cancelled."""

    async def release(self) -> None:
        """Let another replica take the lease at once."""


Elect = Callable[[Callable[[Server], Lease]], AbstractAsyncContextManager[Candidate]]
"""Opens a connection, calls its argument to make a lease on that connection, and yields the candidate with this lease."""


@asynccontextmanager
async def in_own_thread(make: Callable[[Server], Lease], kubeconfig: str = "") -> AsyncIterator[Candidate]:
    """Yield a candidate that the caller's event loop can't delay. Raises ``CredentialsError``.

    Its connection uses the credentials of ``kubeconfig``; if that is empty, those that ``load_credentials`` finds.
    """
    async with own_loop("election") as loop:
        connection = AsyncExitStack()
        server = await run_on(loop, connection.enter_async_context(ApiServer.connect(kubeconfig=kubeconfig)))
        try:
            yield _Remote(make(server), loop)
        finally:
            await run_on(loop, connection.aclose())


class _Remote:
    """A lease that runs on another thread's event loop. Other threads read only single attributes of the lease, which needs no lock."""

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
        await run_on(self._loop, self._compete(asyncio.get_running_loop()))

    async def release(self) -> None:
        if not self._loop.is_closed():  # a closed loop's lease was released before the loop was closed
            await run_on(self._loop, self._lease.release())

    async def _compete(self, home: asyncio.AbstractEventLoop) -> None:
        signalling = asyncio.create_task(self._signal_acquired(home))
        try:
            await self._lease.run()
        finally:
            signalling.cancel()

    async def _signal_acquired(self, home: asyncio.AbstractEventLoop) -> None:
        await self._lease.acquired.wait()
        home.call_soon_threadsafe(self.acquired.set)
