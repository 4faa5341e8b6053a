"""Has the strategies that gangs choose place them, in processes of their own: what one does there, or leaves behind, meets nobody else.

Those that are shipped share a process; each of another package has one. Its package is imported there beforehand, since that may take
longer than anybody in the cycle would wait. A strategy that doesn't answer in time is ended with its process; until its package is
imported anew nobody is asked to wait for it.
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
from allaboard.placement.strategies.trial import tried
from allaboard.plugins import SHIPPED_STRATEGIES
from allaboard.scheduling.workers import OnTheSpot, SearchError, SearchOverrunError, Workers

ANSWER_SECONDS = 5.0
"""How long a strategy is waited for; the cycle waits, too."""

_BUDGET_SHARE = 0.75  # of that: what it is told that it has
_IMPORT_SECONDS = 60.0

Arguments = Mapping[str, Mapping[str, object]]
"""What strategies are made with, by their names; most have none."""


class Strategists:
    """A context manager that ends its processes. With ``has_processes`` False strategies place on the spot, however long it takes."""

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
        await asyncio.gather(*(self._room(name).load(name, self._made_with(name)) for name in names if name not in SHIPPED_STRATEGIES))

    async def place(self, name: str, problem: Problem | Draft) -> Plan | None:
        """What the strategy finds, as ``placement.strategies.trial.tried``.

        Raises ``StrategyError``, and ``SearchError`` when it doesn't answer in time or its process dies.
        """
        return await self._room(name).place(name, self._made_with(name), problem)

    def _room(self, name: str) -> "_Room":
        key = "" if name in SHIPPED_STRATEGIES else name
        if key not in self._rooms:
            self._rooms[key] = _Room(has_process=self._has_processes)
        return self._rooms[key]

    def _made_with(self, name: str) -> Mapping[str, object]:
        return self._arguments.get(name, {})


class _Room:
    """A process, and the strategy that is in it."""

    def __init__(self, *, has_process: bool) -> None:
        self._workers = Workers(1, _IMPORT_SECONDS) if has_process else OnTheSpot()
        self._loading: asyncio.Task[None] | None = None

    def end(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        self._workers.end()

    async def load(self, name: str, arguments: Mapping[str, object]) -> None:
        with suppress(SearchError):  # whoever asks for a place has the same
            await self._workers.run(_load, name, arguments)

    async def place(self, name: str, arguments: Mapping[str, object], problem: Problem | Draft) -> Plan | None:
        if self._loading is not None and not self._loading.done():
            raise SearchError("it is being started anew")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._workers.run(_place, name, arguments, problem, _BUDGET_SHARE * ANSWER_SECONDS)
        except (TimeoutError, SearchError) as error:
            self._loading = asyncio.create_task(self.load(name, arguments))
            if isinstance(error, TimeoutError):
                raise SearchOverrunError(f"it took longer than {ANSWER_SECONDS:g} s and was ended") from error
            raise


def _load(name: str, arguments: Mapping[str, object]) -> None:
    with suppress(Exception):
        make_strategy(name, arguments)


def _place(name: str, arguments: Mapping[str, object], problem: Problem | Draft, seconds: float) -> Plan | None:
    """``seconds`` on the clock of the wall, which is what it is ended by."""
    budget = Budget(seconds=seconds, clock=time.monotonic)
    return tried(name, arguments, problem.built() if isinstance(problem, Draft) else problem, budget)
