"""Writes reports beside the scheduling path: a slow or failing API server costs reports, never decisions.

Writes wait, for a limited time, while binds are in flight. Each tenant has its own queue, so that one tenant's writes don't delay those of
another tenant. A job has a key: a newer job replaces an older job of the same key that hasn't begun. So a status that changes ten times
while the API server is busy is written once. Jobs of low priority (equal reports on many pods) have separate queues, workers and a limited
rate, so that they hardly delay ordinary jobs.
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

_LIMIT = 20_000  # most jobs that wait, of all tenants
_LIMIT_OF_ONE = 10_000  # most jobs that wait, of one tenant
_WORKERS = 8
_WORKERS_FOR_ONE = 3  # most workers that do jobs of one tenant at once
_LOW_LIMIT = 10_000
_LOW_LIMIT_OF_ONE = 5_000
_LOW_WORKERS = 2
_LOW_PAUSE_SECONDS = 0.02  # pause of each worker after each job: a hundred jobs a second take a few percent of the event loop
_ATTEMPTS = 4
_PATIENCE_SECONDS = 3.0  # longest wait of a job for more urgent work


@dataclass(slots=True)
class _TenantQueue:
    """The keys of one tenant's queued jobs, and the number of workers that are busy with the tenant or called for it."""

    keys: deque[str] = field(default_factory=deque)
    workers: int = 0


class _Queues:
    """The queues of all tenants for jobs of one priority, and the calls for workers. A call names the tenant that has a job to do."""

    def __init__(self, *, limit: int, limit_of_one: int, workers_for_one: int) -> None:
        self.calls: asyncio.Queue[str] = asyncio.Queue()
        self.jobs: dict[str, Job] = {}
        self.by_tenant: dict[str, _TenantQueue] = {}
        self.running: set[str] = set()
        self._limit = limit
        self._limit_of_one = limit_of_one
        self._workers_for_one = workers_for_one

    def put(self, key: str, job: Job, tenant: str) -> bool:
        """Queue a job, or replace the job of the same key that hasn't begun. Return False if too many jobs wait."""
        if key not in self.jobs:
            queue = self.by_tenant.get(tenant)
            if len(self.jobs) >= self._limit or (queue is not None and len(queue.keys) >= self._limit_of_one):
                return False
            if key not in self.running:
                self.append(key, tenant)
        self.jobs[key] = job
        return True

    def append(self, key: str, tenant: str) -> None:
        """Add a key to the end of its tenant's queue, and call a worker unless the tenant has its most workers."""
        queue = self.by_tenant.setdefault(tenant, _TenantQueue())
        queue.keys.append(key)
        if queue.workers < self._workers_for_one:
            queue.workers += 1
            self.calls.put_nowait(tenant)

    def release(self, tenant: str) -> None:
        """Release a worker from its job: call it for the tenant's next job, behind the calls of other tenants, if there is one."""
        queue = self.by_tenant[tenant]
        if queue.keys:
            self.calls.put_nowait(tenant)
            return
        queue.workers -= 1
        if not queue.workers:
            del self.by_tenant[tenant]


class Writer:
    """Bounded queues of writes, one for each tenant, and the workers that do one job of each tenant in turn.

    One tenant's jobs occupy at most ``_WORKERS_FOR_ONE`` workers, even if the tenant's webhooks make each job slow.
    """

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._ordinary = _Queues(limit=_LIMIT, limit_of_one=_LIMIT_OF_ONE, workers_for_one=_WORKERS_FOR_ONE)
        self._low = _Queues(limit=_LOW_LIMIT, limit_of_one=_LOW_LIMIT_OF_ONE, workers_for_one=1)
        self.dropped = 0

    def put(self, key: str, job: Job, tenant: str = "", *, is_low: bool = False) -> bool:
        """Queue ``job``, with low priority if it ``is_low``. Return whether the job was queued.

        A job is dropped if too many jobs of all tenants, or of its ``tenant``, wait. Dropped jobs of ordinary priority are counted.
        """
        is_taken = self._queues_for(key, is_low=is_low).put(key, job, tenant)
        self.dropped += not (is_taken or is_low)
        return is_taken

    def _queues_for(self, key: str, *, is_low: bool) -> _Queues:
        """Return the queues for a job of this key.

        Two jobs of one key never run at once. A key that is put with both priorities before its job begins is done with ordinary priority.
        """
        if is_low:
            return self._ordinary if key in self._ordinary.jobs or key in self._ordinary.running else self._low
        if key in self._low.running:
            return self._low
        self._low.jobs.pop(key, None)
        return self._ordinary

    @property
    def waiting(self) -> int:
        """Number of jobs that have not begun."""
        return len(self._ordinary.jobs) + len(self._low.jobs)

    async def run(self, wait_until_idle: WaitUntilIdle) -> None:
        """Do jobs until cancelled. ``wait_until_idle(seconds)`` returns when nothing more urgent is in flight, or after ``seconds``."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(_WORKERS):
                workers.create_task(self._work(self._ordinary, wait_until_idle))
            for _ in range(_LOW_WORKERS):
                workers.create_task(self._work(self._low, wait_until_idle, _LOW_PAUSE_SECONDS))

    async def drain(self, *, with_low: bool = False) -> None:
        """Wait until all ordinary jobs are done or given up. If ``with_low`` is set, wait for the jobs of low priority, too."""
        await self._ordinary.calls.join()
        if with_low:
            await self._low.calls.join()

    async def _work(self, queues: _Queues, wait_until_idle: WaitUntilIdle, pause_seconds: float = 0.0) -> None:
        while True:
            tenant = await queues.calls.get()
            try:
                await wait_until_idle(_PATIENCE_SECONDS)
                if (queue := queues.by_tenant[tenant]).keys:
                    await self._do_next(queues, queue.keys.popleft(), tenant)
            finally:
                queues.release(tenant)
                queues.calls.task_done()
            if pause_seconds:
                await self._sleep(pause_seconds)

    async def _do_next(self, queues: _Queues, key: str, tenant: str) -> None:
        if (job := queues.jobs.pop(key, None)) is None:
            return  # an ordinary job has replaced this job of low priority
        queues.running.add(key)
        try:
            await self._do(key, job)
        finally:
            queues.running.discard(key)
            if key in queues.jobs:
                queues.append(key, tenant)

    async def _do(self, key: str, job: Job) -> None:
        try:
            await retried(job, _ATTEMPTS, self._sleep)
        except ApiError as error:
            # A deleted object needs no report.
            if error.status != 404:
                self.dropped += 1
                logger.warning("%s was not written: %s", key, error)
        except Exception:
            self.dropped += 1
            logger.exception("%s was not written", key)
