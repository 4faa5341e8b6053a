"""Writes what users are told, beside the scheduling path: a slow or failing API server costs words, never decisions, and words wait
while there is something to do.

Jobs are keyed: a newer one replaces an older one of the same key that hasn't begun, so a status that changes ten times while the
API server is busy is written once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from allaboard.cluster.client import ApiError
from allaboard.cluster.retry import Sleep, retried

logger = logging.getLogger(__name__)

Job = Callable[[], Awaitable[object]]
Lull = Callable[[float], Awaitable[None]]

_LIMIT = 20_000
_WORKERS = 8
_ATTEMPTS = 4
_PATIENCE_SECONDS = 3.0


class Writer:
    """A bounded queue of writes and the workers that do them."""

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._jobs: dict[str, Job] = {}
        self._running: set[str] = set()
        self.dropped = 0

    def put(self, key: str, job: Job) -> None:
        """Have ``job`` done soon; when too much is waiting already it is dropped and counted."""
        if key not in self._jobs:
            if len(self._jobs) >= _LIMIT:
                self.dropped += 1
                return
            if key not in self._running:
                self._keys.put_nowait(key)
        self._jobs[key] = job

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return len(self._jobs)

    async def run(self, lull: Lull) -> None:
        """Do jobs until cancelled. ``lull(seconds)`` returns when there is nothing more urgent, after ``seconds`` of that at most."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(_WORKERS):
                workers.create_task(self._work(lull))

    async def drain(self) -> None:
        """Wait until everything put so far has been done or given up."""
        await self._keys.join()

    async def _work(self, lull: Lull) -> None:
        while True:
            key = await self._keys.get()
            await lull(_PATIENCE_SECONDS)
            job = self._jobs.pop(key)
            self._running.add(key)
            try:
                await self._do(key, job)
            finally:
                self._running.discard(key)
                if key in self._jobs:
                    self._keys.put_nowait(key)
                self._keys.task_done()

    async def _do(self, key: str, job: Job) -> None:
        try:
            await retried(job, _ATTEMPTS, self._sleep)
        except ApiError as error:
            # What is gone needs no words any more.
            if error.status != 404:
                self.dropped += 1
                logger.warning("%s was not written: %s", key, error)
        except Exception:
            self.dropped += 1
            logger.exception("%s was not written", key)
