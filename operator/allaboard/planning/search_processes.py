"""Runs searches in processes of their own, so that the event loop never waits for arithmetic.

There are two groups of processes. The cycle waits for the first, so its searches are short: they are bounded by effort, which is estimated
from sizes, and ended by time only if the estimate was wrong. The second is for searches that no gang waits for. A worker that dies or
overruns costs its own attempt only, since pebble replaces it and leaves the others alone.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from pebble import ProcessExpired, ProcessPool

from allaboard.placement import Plan, Problem, SearchSettings, search
from allaboard.placement.contest.contest import Contest
from allaboard.placement.contest.joint import Joint, place_together
from allaboard.placement.problem.draft import Draft
from allaboard.placement.remedies.emptied_problem import EmptiedProblem
from allaboard.placement.remedies.remedies import Remedies, find_remedies
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.strategies.shipped import Genetic
from allaboard.runtime.processes import spawned

SHORT_EFFORT = 600_000
"""Microseconds that a short search may take, as ``SearchSettings.effort`` estimates."""

JOINT_EFFORT = 900_000
"""Microseconds that a search for gangs placed together may take: mostly it takes a half of that."""

_ANSWER_SHARE = 0.75  # of the time after which a process is ended: then a search answers with the best it has
_SHORT_SECONDS = 3.0  # of a processor: a short search that takes more is of an unforeseen shape
_INLINE_PODS = 1
_INLINE_PLACES = 150_000  # pods times nodes: some twenty milliseconds
_INLINE_CELLS = 20_000  # kinds of pods times nodes: as long
_NICE, _NICER = 5, 10

Answer = TypeVar("Answer")


class SearchError(Exception):
    """The search did not answer: its process died or took too long."""


class SearchOverrunError(SearchError):
    """The search took too long and was ended."""


def _be_quiet(niceness: int) -> None:
    """Send stdout to stderr and lower the priority: solvers may write to stdout, which belongs to the operator's caller."""
    sys.stdout = sys.stderr
    os.nice(niceness)


class Workers:
    """Processes that answer questions one after another, each within a time limit.

    ``cpu_seconds`` is a limit of the processor's time. On a busy machine a search takes longer without being worse, and ending it would
    only make more work.
    """

    def __init__(self, number: int, timeout_seconds: float, cpu_seconds: float = 0.0, niceness: int = _NICE) -> None:
        self._number, self._timeout, self._cpu_seconds, self._niceness = number, timeout_seconds, cpu_seconds, niceness
        self._pool = self._new_pool()

    def end(self) -> None:
        """End the processes."""
        _end(self._pool)

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return ``work(*arguments)``, done in a process. Cancelling the call ends that process. Raises ``SearchError``."""
        pool = self._pool
        try:
            asked = pool.schedule(_within, args=(self._cpu_seconds, work, *arguments), timeout=self._timeout)
            answer: Answer = await asyncio.wrap_future(asked)
        except TimeoutError as error:
            raise SearchOverrunError(f"the search took longer than {self._timeout:g} s and was ended") from error
        except ProcessExpired as error:
            if error.exitcode == -signal.SIGPROF:
                raise SearchOverrunError(f"the search took more than {self._cpu_seconds:g} s of a processor and was ended") from error
            raise SearchError(f"the search process died (exit code {error.exitcode})") from error
        except RuntimeError as error:
            if pool.active:
                raise
            # A process that dies while it has no work takes the whole pool with it.
            if pool is self._pool:
                self._pool = self._new_pool()
                asyncio.get_running_loop().run_in_executor(None, _end, pool)
            raise SearchError("the search processes died; others take their place") from error
        return answer

    def _new_pool(self) -> ProcessPool:
        """Return a pool that starts its processes when there is work."""
        return ProcessPool(max_workers=self._number, initializer=_be_quiet, initargs=(self._niceness,), context=spawned())


class Inline:
    """Answers in this process, for callers that have nothing else to do meanwhile."""

    def end(self) -> None:
        """Do nothing: there are no processes."""

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return ``work(*arguments)``, however long it takes."""
        return work(*arguments)


class Searcher:
    """Runs searches; a context manager that ends its processes. Without ``workers`` it searches in this process."""

    def __init__(self, settings: SearchSettings, *, workers: int = 1, timeout_seconds: float = 60.0) -> None:
        self._settings = settings = replace(settings, seconds=_ANSWER_SHARE * timeout_seconds, clock=time.monotonic)
        # On a busy machine a short search takes longer without being worse.
        short = replace(settings, seconds=_ANSWER_SHARE * _SHORT_SECONDS, clock=time.process_time, wall=time.monotonic)
        self._short, self._joint = replace(short, effort=SHORT_EFFORT), replace(short, effort=JOINT_EFFORT)
        self._first: Workers | Inline = Workers(workers, timeout_seconds, _SHORT_SECONDS) if workers else Inline()
        self._beside: Workers | Inline = Workers(1, timeout_seconds, niceness=_NICER) if workers else Inline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._first.end()
        self._beside.end()

    async def warm_up(self) -> None:
        """Start a worker and import what it needs, so that the first gang doesn't wait for it."""
        with suppress(SearchError):
            await self._first.run(_noop)

    async def search_briefly(self, problem: Problem | Draft, seed: int) -> Plan:
        """Return ``placement.search`` with little effort. A problem of one pod is solved here, which takes less time than sending it.

        Raises ``SearchError``.
        """
        if not isinstance(problem, Draft) and problem.total <= _INLINE_PODS:
            return search(problem, self._settings, seed)
        return await self._first.run(_search, problem, self._short, seed)

    async def run_briefly(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return ``work(*arguments)``, done by the processes of short searches, and within their limits. Raises ``SearchError``."""
        return await self._first.run(work, *arguments)

    async def search(self, problem: Problem | Draft, seed: int) -> Plan:
        """Return ``placement.search``, run for as long as it pays, beside the cycle. Raises ``SearchError``."""
        return await self._beside.run(_search, problem, self._settings, seed)

    async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
        """Return ``placement.contest.joint``, run by a process; here if it ``is_easy``: all are single pods and none contend.

        Raises ``SearchError``.
        """
        places = len(contest.gangs) * len(contest.problem.nodes)
        if is_easy and places <= _INLINE_PLACES and contest.problem.slots.size <= _INLINE_CELLS:
            return place_together(contest, self._joint)
        return await self._first.run(place_together, contest, self._joint)

    async def find_remedies(self, within: EmptiedProblem) -> Remedies:
        """Return ``placement.remedies``, run beside the cycle since no gang waits for it. Raises ``SearchError``."""
        return await self._beside.run(find_remedies, within)


def _within(cpu_seconds: float, work: Callable[..., Answer], *arguments: object) -> Answer:
    """Do the work; the process ends, whatever code it is in, once that takes more processor time. 0 is for no limit."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        return work(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _end(pool: ProcessPool) -> None:
    pool.stop()  # type: ignore[no-untyped-call]  # pebble is partly typed
    pool.join(timeout=10)


def _search(problem: Problem | Draft, settings: SearchSettings, seed: int) -> Plan:
    # Building a problem of hundreds of kinds takes seconds, too.
    budget = Budget(seconds=settings.seconds, clock=settings.clock, wall=settings.wall)
    return Genetic(settings, seed).place(problem.built() if isinstance(problem, Draft) else problem, budget)


def _noop() -> None:
    """Do nothing: importing this module in the worker is the work."""
