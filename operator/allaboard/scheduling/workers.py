"""Searches in processes of their own, so that the event loop never waits for arithmetic.

A worker that dies or overruns costs its own attempt only, since pebble replaces it and leaves the others alone.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from pebble import ProcessExpired, ProcessPool

from allaboard.placement import Plan, Problem, SearchSettings, search
from allaboard.placement.contest import Contest
from allaboard.placement.draft import Draft
from allaboard.placement.joint import Joint, place_together
from allaboard.placement.relax import Relief, relieve
from allaboard.placement.surroundings import Surroundings
from allaboard.processes import SPAWNED

_INLINE_PODS = 1
_INLINE_SEATS = 150_000  # pods times nodes: some twenty milliseconds
_INLINE_CELLS = 20_000  # kinds of pods times nodes: as long

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
        self._workers = workers
        self._pool = self._new_pool()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _end(self._pool)

    async def warm_up(self) -> None:
        """Start a worker and import what it needs, so that the first gang doesn't wait for it."""
        with suppress(SearchError):
            await self._elsewhere(_noop)

    async def search(self, problem: Problem | Draft, seed: int) -> Plan:
        """``placement.search`` elsewhere; a problem of one pod is solved on the spot, which takes less time than sending it.

        Raises ``SearchError``.
        """
        if isinstance(problem, Draft):
            return await self._elsewhere(_search_draft, problem, self._settings, seed)
        if problem.total <= _INLINE_PODS:
            return search(problem, self._settings, seed)
        return await self._elsewhere(search, problem, self._settings, seed)

    async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
        """``placement.joint.place_together`` elsewhere; on the spot if it ``is_easy``, since all are single pods and none contend.

        Raises ``SearchError``.
        """
        seats = len(contest.gangs) * len(contest.problem.nodes)
        if is_easy and seats <= _INLINE_SEATS and contest.problem.seats.size <= _INLINE_CELLS:
            return place_together(contest, self._settings)
        return await self._elsewhere(place_together, contest, self._settings)

    async def _elsewhere(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        pool = self._pool
        try:
            answer: Answer = await asyncio.wrap_future(pool.schedule(work, args=arguments, timeout=self._timeout))
        except TimeoutError as error:
            raise SearchError(f"the search took longer than {self._timeout:g} s and was ended") from error
        except ProcessExpired as error:
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

    async def relieve(self, around: Surroundings) -> Relief:
        """``placement.relax.relieve`` elsewhere. Raises ``SearchError``."""
        return await self._elsewhere(relieve, around)

    def _new_pool(self) -> ProcessPool:
        return ProcessPool(max_workers=self._workers, initializer=_be_quiet, context=SPAWNED)


def _end(pool: ProcessPool) -> None:
    pool.stop()  # type: ignore[no-untyped-call]  # pebble is partly typed
    pool.join(timeout=10)


def _search_draft(draft: Draft, settings: SearchSettings, seed: int) -> Plan:
    return search(draft.built(), settings, seed)


def _noop() -> None:
    """Importing this module in the worker is the work."""
