"""Writes what users are told, beside the scheduling path: a slow or failing API server costs words, never decisions, and words wait
while there is something to do.

Each tenant has a line of its own, so that one's words keep nobody else's waiting. Jobs are keyed: a newer one replaces an older one of
the same key that hasn't begun, so a status that changes ten times while the API server is busy is written once.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from allaboard.cluster.client import ApiError
from allaboard.cluster.retry import Sleep, retried

logger = logging.getLogger(__name__)

Job = Callable[[], Awaitable[object]]
Lull = Callable[[float], Awaitable[None]]

_LIMIT = 20_000
_LIMIT_OF_ONE = 10_000
_WORKERS = 8
_WORKERS_FOR_ONE = 3
_ATTEMPTS = 4
_PATIENCE_SECONDS = 3.0


@dataclass(slots=True)
class _Line:
    """The jobs of one tenant: what waits, and how many workers are at them or called to."""

    keys: deque[str] = field(default_factory=deque)
    workers: int = 0


class Writer:
    """Bounded queues of writes, one for each tenant, and the workers that do them, a job of each tenant in turn.

    One tenant's jobs, however many and however slow its webhooks make them, occupy no more than ``_WORKERS_FOR_ONE`` workers.
    """

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._calls: asyncio.Queue[str] = asyncio.Queue()  # the tenants whose turn it is; each as often as workers are to be at its jobs
        self._lines: dict[str, _Line] = {}
        self._jobs: dict[str, Job] = {}
        self._running: set[str] = set()
        self.dropped = 0

    def put(self, key: str, job: Job, tenant: str = "") -> None:
        """Have ``job`` done soon; when too much is waiting already, of all or of its ``tenant``, it is dropped and counted."""
        if key not in self._jobs:
            line = self._lines.get(tenant)
            if len(self._jobs) >= _LIMIT or (line is not None and len(line.keys) >= _LIMIT_OF_ONE):
                self.dropped += 1
                return
            if key not in self._running:
                self._queue(key, tenant)
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
        await self._calls.join()

    def _queue(self, key: str, tenant: str) -> None:
        line = self._lines.setdefault(tenant, _Line())
        line.keys.append(key)
        if line.workers < _WORKERS_FOR_ONE:
            line.workers += 1
            self._calls.put_nowait(tenant)

    async def _work(self, lull: Lull) -> None:
        while True:
            tenant = await self._calls.get()
            try:
                await lull(_PATIENCE_SECONDS)
                if (line := self._lines[tenant]).keys:
                    await self._do_next(line.keys.popleft(), tenant)
            finally:
                self._call_again(tenant)
                self._calls.task_done()

    def _call_again(self, tenant: str) -> None:
        """Have the tenant's next job done when the others have had their turns."""
        line = self._lines[tenant]
        if line.keys:
            self._calls.put_nowait(tenant)
            return
        line.workers -= 1
        if not line.workers:
            del self._lines[tenant]

    async def _do_next(self, key: str, tenant: str) -> None:
        job = self._jobs.pop(key)
        self._running.add(key)
        try:
            await self._do(key, job)
        finally:
            self._running.discard(key)
            if key in self._jobs:
                self._queue(key, tenant)

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
