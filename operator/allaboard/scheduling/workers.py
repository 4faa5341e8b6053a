"""Searches in processes of their own, so that the event loop never waits for arithmetic.

Spawned, never forked: a forked worker would share the loop's signal wake-up and stop the operator when it is ended. A worker that
dies or overruns costs its own attempt only, since pebble replaces it and leaves the others alone.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from types import TracebackType
from typing import Self, TypeVar

from pebble import ProcessExpired, ProcessPool

from allaboard.placement import Plan, Problem, SearchSettings, search
from allaboard.placement.contest import Contest
from allaboard.placement.joint import Joint, place_together
from allaboard.placement.relax import Relief, relieve
from allaboard.placement.surroundings import Surroundings

_INLINE_PODS = 1
_INLINE_SEATS = 150_000  # pods times nodes: some twenty milliseconds

Answer = TypeVar("Answer")


class SearchError(Exception):
    """The search did not answer: its process died or took too long."""


def _be_quiet() -> None:
    """Solvers may write to stdout, which belongs to whoever started the operator."""
    sys.stdout = sys.stderr
    os.nice(5)


class Searcher:
    """Runs searches; a context manager that ends its processes."""

    def __init__(self, settings: SearchSettings, *, workers: int = 1, timeout_seconds: float = 60.0) -> None:
        self._settings = settings
        self._timeout = timeout_seconds
        self._pool = ProcessPool(max_workers=workers, initializer=_be_quiet, context=get_context("spawn"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]  # pebble is partly typed
        self._pool.join(timeout=10)

    async def warm_up(self) -> None:
        """Start a worker and import what it needs, so that the first gang doesn't wait for it."""
        await asyncio.wrap_future(self._pool.schedule(_noop))

    async def search(self, problem: Problem, seed: int) -> Plan:
        """``placement.search`` elsewhere; a problem of one pod is solved on the spot, which takes less time than sending it.

        Raises ``SearchError``.
        """
        if problem.total <= _INLINE_PODS:
            return search(problem, self._settings, seed)
        return await self._elsewhere(search, problem, self._settings, seed)

    async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
        """``placement.joint.place_together`` elsewhere; on the spot if it ``is_easy``, since all are single pods and none contend.

        Raises ``SearchError``.
        """
        if is_easy and len(contest.gangs) * len(contest.problem.nodes) <= _INLINE_SEATS:
            return place_together(contest, self._settings)
        return await self._elsewhere(place_together, contest, self._settings)

    async def _elsewhere(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        future = self._pool.schedule(work, args=arguments, timeout=self._timeout)
        try:
            answer: Answer = await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise SearchError(f"the search took longer than {self._timeout:g} s and was ended") from error
        except ProcessExpired as error:
            raise SearchError(f"the search process died (exit code {error.exitcode})") from error
        return answer

    async def relieve(self, around: Surroundings) -> Relief:
        """``placement.relax.relieve`` elsewhere. Raises ``SearchError``."""
        try:
            relief: Relief = await asyncio.wrap_future(self._pool.schedule(relieve, args=(around,), timeout=self._timeout))
        except (TimeoutError, ProcessExpired) as error:
            raise SearchError("what would help was not found in time") from error
        return relief


def _noop() -> None:
    """Importing this module in the worker is the work."""
