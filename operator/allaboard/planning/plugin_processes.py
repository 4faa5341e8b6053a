"""Runs the placement strategies that gangs choose, each plug-in in a process of its own, so that side effects stay there.

A plug-in is a strategy of another package. The package is imported ahead of the first use, since an import may take longer than the cycle
may wait. A strategy that doesn't answer in time is ended with its process. Until its package is imported again, no gang waits for that
strategy.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from allaboard.placement import Budget, Plan, Problem
from allaboard.placement.problem.draft import Draft
from allaboard.placement.strategies.named import make_strategy
from allaboard.placement.strategies.trial import StrategyError, checked_plan
from allaboard.planning.search_processes import Inline, Searcher, SearchError, SearchOverrunError, Workers
from allaboard.plugins import SHIPPED_STRATEGIES

ANSWER_SECONDS = 5.0
"""The most seconds that a strategy may take, since the cycle waits for it."""

_BUDGET_SHARE = 0.75  # the part of these seconds that is the strategy's budget
_SHIPPED_SECONDS = 2.0  # the budget of a shipped strategy, which is ended as a short search is
_IMPORT_SECONDS = 60.0
_WARM_UP_SECONDS = 10.0  # the longest that the first decision waits for imports; slower packages are ready later

Arguments = Mapping[str, Mapping[str, object]]
"""The keyword arguments of strategies, by the strategies' names; most have none."""


class PluginProcesses:
    """The processes of plug-ins; as a context manager it ends them.

    With ``has_processes`` False plug-ins run in this process, without a time limit.
    """

    def __init__(self, arguments: Arguments | None = None, *, has_processes: bool = True) -> None:
        self._arguments = arguments or {}
        self._has_processes = has_processes
        self._processes: dict[str, _PluginProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._processes.values():
            process.end()

    async def warm_up(self, names: Collection[str]) -> None:
        """Import the packages of strategies ahead of their use. A failed import is reported to the gangs that choose the strategy."""
        if plugged_in := [name for name in names if name not in SHIPPED_STRATEGIES]:
            await asyncio.wait([self._process(name).load() for name in plugged_in], timeout=_WARM_UP_SECONDS)

    async def place(self, name: str, problem: Problem | Draft, searcher: Searcher) -> Plan | None:
        """Return the plan of a strategy; None if it found none. Shipped strategies run in the processes of ``searcher``.

        Raises ``StrategyError``, and ``SearchError`` if the strategy doesn't answer in time or its process dies.
        """
        if name in SHIPPED_STRATEGIES:
            return await searcher.run_briefly(_placed, name, self._arguments.get(name, {}), problem, _SHIPPED_SECONDS)
        return await self._process(name).place(problem)

    def _process(self, name: str) -> "_PluginProcess":
        if name not in self._processes:
            self._processes[name] = _PluginProcess(name, self._arguments.get(name, {}), has_process=self._has_processes)
        return self._processes[name]


class _PluginProcess:
    """The process of one plug-in."""

    def __init__(self, name: str, arguments: Mapping[str, object], *, has_process: bool) -> None:
        self._name, self._arguments = name, arguments
        self._workers = Workers(1, _IMPORT_SECONDS) if has_process else Inline()
        self._placed = _placed_apart if has_process else _placed
        self._loading: asyncio.Task[None] | None = None

    def end(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        self._workers.end()

    def load(self) -> asyncio.Task[None]:
        """Start to import the strategy's package."""
        self._loading = asyncio.create_task(self._load())
        return self._loading

    async def _load(self) -> None:
        with suppress(SearchError):  # ``place`` raises the same error
            await self._workers.run(_made, self._name, self._arguments)

    async def place(self, problem: Problem | Draft) -> Plan | None:
        if self._loading is not None and not self._loading.done():
            raise SearchError("it is being loaded")
        seconds = _BUDGET_SHARE * ANSWER_SECONDS
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._workers.run(self._placed, self._name, self._arguments, problem, seconds)
        except TimeoutError as error:
            self.load()
            raise SearchOverrunError(f"it took longer than {ANSWER_SECONDS:g} s and was ended") from error
        except SearchError as error:
            self.load()
            raise SearchError("its process died") from error
        except StrategyError:
            raise
        except Exception as error:  # for example, the strategy has broken the modules of its process
            self.load()
            raise SearchError("its process is out of order") from error


def _made(name: str, arguments: Mapping[str, object]) -> None:
    with suppress(BaseException):  # only the strategy uses this process
        make_strategy(name, arguments)


def _placed(name: str, arguments: Mapping[str, object], problem: Problem | Draft, seconds: float) -> Plan | None:
    """Return the strategy's plan. The strategy's budget is ``seconds`` of wall-clock time, since its process is ended by that time."""
    budget = Budget(seconds=seconds, clock=time.monotonic)
    return checked_plan(name, arguments, problem.built() if isinstance(problem, Draft) else problem, budget)


def _placed_apart(name: str, arguments: Mapping[str, object], problem: Problem | Draft, seconds: float) -> Plan | None:
    """Return the strategy's plan as ``_placed`` does, in a process of its own.

    Ctrl-C in a terminal doesn't reach that process. So a KeyboardInterrupt is the strategy's own, and must not interrupt the operator.
    """
    try:
        return _placed(name, arguments, problem, seconds)
    except KeyboardInterrupt:
        raise StrategyError("it raised KeyboardInterrupt") from None
