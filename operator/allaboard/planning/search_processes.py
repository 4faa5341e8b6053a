"""Runs searches in processes of their own, so that the event loop never waits for arithmetic.

There are two groups of processes. The cycle waits for the searches of the first group, so these are short. They are limited by effort,
which is estimated from sizes, and are ended by time only if the estimate was wrong. The second group runs searches that no other gang waits
for. A worker that dies or overruns costs its own search only: pebble replaces that worker and leaves the other workers alone.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from pebble import ProcessExpired, ProcessPool

from allaboard.placement import Plan, Problem, SearchSettings, search_quickly
from allaboard.placement.contest.contest import Contest
from allaboard.placement.contest.joint import Joint, place_together
from allaboard.placement.problem.draft import Draft
from allaboard.placement.remedies.emptied_problem import EmptiedProblem
from allaboard.placement.remedies.preemption import Choice, Evictable, choose_victims
from allaboard.placement.remedies.remedies import Remedies, find_remedies
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.strategies.shipped import Genetic
from allaboard.runtime.processes import spawned

SHORT_EFFORT = 600_000
"""Microseconds that a short search may take, as ``SearchSettings.effort`` estimates."""

JOINT_EFFORT = 900_000
"""Microseconds that a joint search for several gangs may take; mostly it takes half of that."""

_ANSWER_SHARE = 0.75  # the part of the time limit of a process after which its search answers with its best result.
_SHORT_SECONDS = 3.0  # processor time after which a short search is ended: its problem has an unforeseen shape.
_INLINE_PLACES = 150_000  # pods times nodes: some twenty milliseconds.
_INLINE_CELLS = 20_000  # kinds of pods times nodes: as long.
_NICE, _NICER = 5, 10
_LOOK_SECONDS = 1.0  # how often a search that waits for its answer looks whether its pool still runs.

Answer = TypeVar("Answer")


class SearchError(Exception):
    """The search gave no answer: its process died or took too long."""


class SearchOverrunError(SearchError):
    """The search took too long and was ended."""


def _be_quiet(niceness: int) -> None:
    """Prepare a search process: stdout becomes stderr, the priority is lowered, and SIGTERM ends the process at once.

    Solvers may write to stdout, which belongs to the operator's caller. Pebble closes the pipe of a process, which thereupon ends, and then
    sends SIGTERM. Pebble's own handler in Python would be called too late then, and Python would write a traceback.
    """
    sys.stdout = sys.stderr
    os.nice(niceness)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Workers:
    """Processes that do one piece of work after another, each within ``timeout_seconds``.

    ``cpu_seconds`` limits the processor time, 0 for no limit. On a busy machine a search takes longer without being worse, and ending it
    would only make more work. ``on_failure`` is called with ``died`` or ``overrun`` for work without an answer.
    """

    def __init__(
        self,
        number: int,
        timeout_seconds: float,
        cpu_seconds: float = 0.0,
        niceness: int = _NICE,
        on_failure: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._number, self._timeout, self._cpu_seconds, self._niceness = number, timeout_seconds, cpu_seconds, niceness
        self._on_failure = on_failure
        self._pool = self._new_pool()

    def end(self) -> None:
        """End the processes."""
        _end(self._pool)

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return ``work(*arguments)``, computed in a process. Cancelling the call ends that process. Raises ``SearchError``."""
        try:
            return await self._run(work, *arguments)
        except SearchError as error:
            self._on_failure("overrun" if isinstance(error, SearchOverrunError) else "died")
            raise

    async def _run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        pool = self._pool
        try:
            future = pool.schedule(_within, args=(self._cpu_seconds, work, *arguments), timeout=self._timeout)
            answer: Answer = await _answer_of(pool, future)
        except TimeoutError as error:
            raise SearchOverrunError(f"the search took longer than {self._timeout:g} s and was ended") from error
        except ProcessExpired as error:
            if error.exitcode == -signal.SIGPROF:
                raise SearchOverrunError(f"the search took more than {self._cpu_seconds:g} s of a processor and was ended") from error
            raise SearchError(f"the search process died (exit code {error.exitcode})") from error
        except RuntimeError as error:
            if pool.active:
                raise
            # If a process dies while it has no work, pebble closes the whole pool.
            if pool is self._pool:
                self._pool = self._new_pool()
                asyncio.get_running_loop().run_in_executor(None, _end, pool)
            raise SearchError("the search processes died and are replaced") from error
        return answer

    def _new_pool(self) -> ProcessPool:
        """Return a pool that starts its processes when there is work."""
        return ProcessPool(max_workers=self._number, initializer=_be_quiet, initargs=(self._niceness,), context=spawned())


class Inline:
    """A stand-in for ``Workers`` that does the work in this process, for callers that may block."""

    def end(self) -> None:
        """Do nothing: there are no processes."""

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return ``work(*arguments)``, however long it takes."""
        return work(*arguments)


class Searcher:
    """Runs searches in its processes; as a context manager it ends them. With no ``workers`` it searches in this process.

    ``on_failure`` is called with ``died`` or ``overrun`` for each search without an answer.
    """

    def __init__(
        self,
        settings: SearchSettings,
        *,
        workers: int = 1,
        timeout_seconds: float = 60.0,
        on_failure: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._settings = settings = replace(settings, seconds=_ANSWER_SHARE * timeout_seconds, clock=time.monotonic)
        # On a busy machine a short search takes longer without being worse.
        short = replace(settings, seconds=_ANSWER_SHARE * _SHORT_SECONDS, clock=time.process_time, wall=time.monotonic)
        self._short, self._joint = replace(short, effort=SHORT_EFFORT), replace(short, effort=JOINT_EFFORT)
        self._short_workers: Workers | Inline = (
            Workers(workers, timeout_seconds, _SHORT_SECONDS, on_failure=on_failure) if workers else Inline()
        )
        self._long_workers: Workers | Inline = Workers(1, timeout_seconds, niceness=_NICER, on_failure=on_failure) if workers else Inline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._short_workers.end()
        self._long_workers.end()

    async def warm_up(self) -> None:
        """Start a worker and have it import its modules, so that the first search that isn't quick delays no gang for that."""
        with suppress(SearchError):
            await self._short_workers.run(os.getpid)

    async def search_briefly(self, problem: Problem | Draft, seed: int) -> Plan:
        """Return the plan of a short search. A quick search runs in this process, which takes less time than sending the problem.

        Raises ``SearchError``.
        """
        if not isinstance(problem, Draft) and (plan := search_quickly(problem, self._short, seed)) is not None:
            return plan
        return await self._short_workers.run(_search, problem, self._short, seed)

    async def run_briefly(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return ``work(*arguments)``, computed by a process of short searches, within its limits. Raises ``SearchError``."""
        return await self._short_workers.run(work, *arguments)

    async def search(self, problem: Problem | Draft, seed: int) -> Plan:
        """Return the plan of a long search, which runs beside the cycle for as long as it pays. Raises ``SearchError``."""
        return await self._long_workers.run(_search, problem, self._settings, seed)

    async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
        """Return the result of a joint search for the gangs of a contest.

        If it ``is_easy`` (all gangs are single pods, and none contend), a small search runs in this process.

        Raises ``SearchError``.
        """
        places = len(contest.gangs) * len(contest.problem.nodes)
        if is_easy and places <= _INLINE_PLACES and contest.problem.slots.size <= _INLINE_CELLS:
            return place_together(contest, self._joint)
        return await self._short_workers.run(place_together, contest, self._joint)

    async def choose_victims(self, emptied: EmptiedProblem, evictable: Evictable) -> Choice | None:
        """Return the pods to evict for a gang, as ``placement.remedies.preemption`` does. Raises ``SearchError``."""
        return await self._short_workers.run(_choose_victims, emptied, evictable, self._short)

    async def find_remedies(self, emptied: EmptiedProblem) -> Remedies:
        """Return the remedies for a refused gang, found beside the cycle, since no gang waits for them. Raises ``SearchError``."""
        return await self._long_workers.run(find_remedies, emptied)


def _within(cpu_seconds: float, work: Callable[..., Answer], *arguments: object) -> Answer:
    """Return ``work(*arguments)``. If that takes more than ``cpu_seconds`` of processor time, the process is ended; 0 for no limit."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        return work(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


async def _answer_of(pool: ProcessPool, future: Future[Answer]) -> Answer:
    """Return the answer of work that ``pool`` was given. Raises ``RuntimeError`` if the pool has closed without an answer.

    Pebble aborts the work that it knows of when it closes a pool. Work that arrives in that moment is neither aborted nor done.
    """
    waiting = asyncio.wrap_future(future)
    try:
        while not waiting.done():
            is_closed = not pool.active  # read before waiting, so that answers and aborts of a pool that closes have time to arrive
            await asyncio.wait({waiting}, timeout=_LOOK_SECONDS)
            if is_closed and not waiting.done():
                raise RuntimeError("the pool has closed and forgotten the work")
    finally:
        waiting.cancel()  # does nothing if it is done
    return waiting.result()


def _end(pool: ProcessPool) -> None:
    pool.stop()  # type: ignore[no-untyped-call]  # pebble is partly typed
    pool.join(timeout=10)


def _search(problem: Problem | Draft, settings: SearchSettings, seed: int) -> Plan:
    # The budget begins before the problem is built: for hundreds of kinds of pods that takes seconds.
    budget = Budget(seconds=settings.seconds, clock=settings.clock, wall=settings.wall)
    return Genetic(settings, seed).place(problem.built() if isinstance(problem, Draft) else problem, budget)


def _choose_victims(emptied: EmptiedProblem, evictable: Evictable, settings: SearchSettings) -> Choice | None:
    return choose_victims(emptied, evictable, Budget(seconds=settings.seconds, clock=settings.clock, wall=settings.wall))
