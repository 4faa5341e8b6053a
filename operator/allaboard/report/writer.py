"""Writes reports beside the scheduling path: a slow or failing API server costs reports, never decisions.

Writes wait while there is anything else to do. Each tenant has a queue of its own, so that one tenant's writes don't delay another's. Jobs
are keyed: a newer job replaces an older one of the same key that hasn't begun. So a status that changes ten times while the API server is
busy is written once. Jobs of low priority (equal reports to many pods) have queues, workers and a rate of their own, so that they hardly
delay the others.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from allaboard.kube.client import ApiError
from allaboard.kube.retry import Sleep, retried

logger = logging.getLogger(__name__)

Job = Callable[[], Awaitable[object]]
WaitUntilIdle = Callable[[float], Awaitable[None]]

_LIMIT = 20_000
_LIMIT_OF_ONE = 10_000
_WORKERS = 8
_WORKERS_FOR_ONE = 3
_LOW_LIMIT = 10_000
_LOW_LIMIT_OF_ONE = 5_000
_LOW_WORKERS = 2
_LOW_PAUSE_SECONDS = 0.02  # of each worker after each job: a hundred jobs a second take some per cent of the event loop
_ATTEMPTS = 4
_PATIENCE_SECONDS = 3.0


@dataclass(slots=True)
class _Line:
    """The queued jobs of one tenant, and the number of workers that do them or are called to."""

    keys: deque[str] = field(default_factory=deque)
    workers: int = 0


class _Lines:
    """The queues of all tenants for jobs of one priority, and the calls for workers; each call is the name of a tenant."""

    def __init__(self, *, limit: int, limit_of_one: int, workers_for_one: int) -> None:
        self.calls: asyncio.Queue[str] = asyncio.Queue()
        self.jobs: dict[str, Job] = {}
        self.by_tenant: dict[str, _Line] = {}
        self.running: set[str] = set()
        self._limit = limit
        self._limit_of_one = limit_of_one
        self._workers_for_one = workers_for_one

    def put(self, key: str, job: Job, tenant: str) -> bool:
        """Take a job, in place of one of its key that hasn't begun. Return False if too many wait already."""
        if key not in self.jobs:
            line = self.by_tenant.get(tenant)
            if len(self.jobs) >= self._limit or (line is not None and len(line.keys) >= self._limit_of_one):
                return False
            if key not in self.running:
                self.queue(key, tenant)
        self.jobs[key] = job
        return True

    def queue(self, key: str, tenant: str) -> None:
        """Add a key to the end of its tenant's queue, and call a worker unless enough are there."""
        line = self.by_tenant.setdefault(tenant, _Line())
        line.keys.append(key)
        if line.workers < self._workers_for_one:
            line.workers += 1
            self.calls.put_nowait(tenant)

    def release(self, tenant: str) -> None:
        """Call a worker for the tenant's next job, after the calls of other tenants."""
        line = self.by_tenant[tenant]
        if line.keys:
            self.calls.put_nowait(tenant)
            return
        line.workers -= 1
        if not line.workers:
            del self.by_tenant[tenant]


class Writer:
    """Bounded queues of writes, one for each tenant, and the workers that do them, one job of each tenant in turn.

    One tenant's jobs occupy no more than ``_WORKERS_FOR_ONE`` workers, however many they are and however slow its webhooks make them.
    """

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._ordinary = _Lines(limit=_LIMIT, limit_of_one=_LIMIT_OF_ONE, workers_for_one=_WORKERS_FOR_ONE)
        self._low = _Lines(limit=_LOW_LIMIT, limit_of_one=_LOW_LIMIT_OF_ONE, workers_for_one=1)
        self.dropped = 0

    def put(self, key: str, job: Job, tenant: str = "", *, is_low: bool = False) -> bool:
        """Queue ``job``; if it ``is_low``, after all others, at a low rate. Return whether it was taken.

        A job is dropped if too much is waiting already, of all or of its ``tenant``. Dropped jobs are counted unless they are low.
        """
        is_taken = self._lines_for(key, is_low=is_low).put(key, job, tenant)
        self.dropped += not (is_taken or is_low)
        return is_taken

    def _lines_for(self, key: str, *, is_low: bool) -> _Lines:
        """Return the queues for a job: two of one key never run at once, and a job that hasn't begun takes the more urgent queue."""
        if is_low:
            return self._ordinary if key in self._ordinary.jobs or key in self._ordinary.running else self._low
        if key in self._low.running:
            return self._low
        self._low.jobs.pop(key, None)
        return self._ordinary

    @property
    def waiting(self) -> int:
        """The number of jobs that have not begun."""
        return len(self._ordinary.jobs) + len(self._low.jobs)

    async def run(self, wait_until_idle: WaitUntilIdle) -> None:
        """Do jobs until cancelled. ``wait_until_idle(seconds)`` returns when there is nothing more urgent, or after ``seconds``."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(_WORKERS):
                workers.create_task(self._work(self._ordinary, wait_until_idle))
            for _ in range(_LOW_WORKERS):
                workers.create_task(self._work(self._low, wait_until_idle, _LOW_PAUSE_SECONDS))

    async def drain(self, *, with_low: bool = False) -> None:
        """Wait until all queued jobs are done or given up; jobs of low priority only ``with_low``."""
        await self._ordinary.calls.join()
        if with_low:
            await self._low.calls.join()

    async def _work(self, lines: _Lines, wait_until_idle: WaitUntilIdle, pause_seconds: float = 0.0) -> None:
        while True:
            tenant = await lines.calls.get()
            try:
                await wait_until_idle(_PATIENCE_SECONDS)
                if (line := lines.by_tenant[tenant]).keys:
                    await self._do_next(lines, line.keys.popleft(), tenant)
            finally:
                lines.release(tenant)
                lines.calls.task_done()
            if pause_seconds:
                await self._sleep(pause_seconds)

    async def _do_next(self, lines: _Lines, key: str, tenant: str) -> None:
        if (job := lines.jobs.pop(key, None)) is None:
            return  # a job of ordinary priority has replaced this one
        lines.running.add(key)
        try:
            await self._do(key, job)
        finally:
            lines.running.discard(key)
            if key in lines.jobs:
                lines.queue(key, tenant)

    async def _do(self, key: str, job: Job) -> None:
        try:
            await retried(job, _ATTEMPTS, self._sleep)
        except ApiError as error:
            # An object that is gone needs no report.
            if error.status != 404:
                self.dropped += 1
                logger.warning("%s was not written: %s", key, error)
        except Exception:
            self.dropped += 1
            logger.exception("%s was not written", key)
