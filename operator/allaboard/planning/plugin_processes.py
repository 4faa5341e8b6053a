"""Has the strategies that gangs choose place them. Those of other packages do so in a process each: what one does there, or leaves behind,
meets nobody else.

Its package is imported there beforehand, since that may take longer than anybody in the cycle would wait. A strategy that doesn't answer
in time is ended with its process; until its package is imported anew nobody is asked to wait for it.
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
from allaboard.placement.strategies.trial import StrategyError, tried
from allaboard.planning.search_processes import Inline, Searcher, SearchError, SearchOverrunError, Workers
from allaboard.plugins import SHIPPED_STRATEGIES

ANSWER_SECONDS = 5.0
"""How long a strategy is waited for; the cycle waits, too."""

_BUDGET_SHARE = 0.75  # of that: what it is told that it has
_SHIPPED_SECONDS = 2.0  # what those are told that are ended as short searches are
_IMPORT_SECONDS = 60.0
_WARM_UP_SECONDS = 10.0  # for which the first decision waits; who isn't there by then comes later

Arguments = Mapping[str, Mapping[str, object]]
"""What strategies are made with, by their names; most have none."""


class PluginProcesses:
    """A context manager that ends its processes. With ``has_processes`` False plug-ins place on the spot, however long it takes."""

    def __init__(self, arguments: Arguments | None = None, *, has_processes: bool = True) -> None:
        self._arguments = arguments or {}
        self._has_processes = has_processes
        self._rooms: dict[str, _Room] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for room in self._rooms.values():
            room.end()

    async def warm_up(self, names: Collection[str]) -> None:
        """Import the packages of strategies ahead; what is wrong with them is told to those who choose them."""
        if plugged_in := [name for name in names if name not in SHIPPED_STRATEGIES]:
            await asyncio.wait([self._room(name).load() for name in plugged_in], timeout=_WARM_UP_SECONDS)

    async def place(self, name: str, problem: Problem | Draft, searcher: Searcher) -> Plan | None:
        """What the strategy finds, as ``placement.strategies.trial.tried``; those that are shipped run where ``searcher`` does.

        Raises ``StrategyError``, and ``SearchError`` when it doesn't answer in time or its process dies.
        """
        if name in SHIPPED_STRATEGIES:
            return await searcher.run_briefly(_placed, name, self._arguments.get(name, {}), problem, _SHIPPED_SECONDS)
        return await self._room(name).place(problem)

    def _room(self, name: str) -> "_Room":
        if name not in self._rooms:
            self._rooms[name] = _Room(name, self._arguments.get(name, {}), has_process=self._has_processes)
        return self._rooms[name]


class _Room:
    """The process of one strategy."""

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
        """Begin to import its package."""
        self._loading = asyncio.create_task(self._load())
        return self._loading

    async def _load(self) -> None:
        with suppress(SearchError):  # whoever asks for a place has the same
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
        except Exception as error:  # such as that of a process of which it has taken the modules apart
            self.load()
            raise SearchError("its process is out of order") from error


def _made(name: str, arguments: Mapping[str, object]) -> None:
    with suppress(BaseException):  # of a process that is the strategy's alone
        make_strategy(name, arguments)


def _placed(name: str, arguments: Mapping[str, object], problem: Problem | Draft, seconds: float) -> Plan | None:
    """``seconds`` on the clock of the wall, which is what it is ended by."""
    budget = Budget(seconds=seconds, clock=time.monotonic)
    return tried(name, arguments, problem.built() if isinstance(problem, Draft) else problem, budget)


def _placed_apart(name: str, arguments: Mapping[str, object], problem: Problem | Draft, seconds: float) -> Plan | None:
    """The same where nobody sits before a terminal: an interrupt is the strategy's own, and would be raised again in the operator."""
    try:
        return _placed(name, arguments, problem, seconds)
    except KeyboardInterrupt:
        raise StrategyError("it raised KeyboardInterrupt") from None
