"""Runs minutes of schedules in milliseconds: time passes only when nothing is left to do, and a seed always gives the same run.

The scheduler uses ``time`` and ``asyncio.sleep`` as ever. The loop here jumps to the next timer instead of waiting, and ``virtual_clocks``
lets the scheduler's modules read its time. Random numbers and identifiers come from one seed.
"""

import asyncio
import functools
import heapq
import random
import sys
import time
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

BEGINNING = 1_800_000_000.0
"""The wall clock when a simulation begins; it is constant, so that runs are alike."""


class StandstillError(RuntimeError):
    """Raised when no timer is left while a task still waits."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while there is work, and jumps to the next timer when there is none."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__()

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        """Run due handles as ``BaseEventLoop`` does, but without polling for I/O, which took a tenth of all time."""
        loop: Any = self
        ready, timers = loop._ready, loop._scheduled
        if not ready and not loop._stopping:
            while timers and timers[0]._cancelled:
                self._popped(timers)
            if not timers:
                raise StandstillError
            self._now = max(self._now, timers[0]._when)
        while timers and timers[0]._when <= self._now:
            timer = self._popped(timers)
            if not timer._cancelled:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _popped(self, timers: list[Any]) -> Any:
        """Remove the next timer from ``timers``, and return it."""
        loop: Any = self
        timer = heapq.heappop(timers)
        timer._scheduled = False
        loop._timer_cancelled_count -= timer._cancelled
        return timer

    def wall_clock(self) -> float:
        """Return seconds since the epoch."""
        return BEGINNING + self._now

    def utc(self) -> datetime:
        """Return ``wall_clock`` as the datetime that the sandbox needs."""
        return datetime.fromtimestamp(self.wall_clock(), UTC)


@contextmanager
def virtual_clocks(loop: VirtualLoop, seed: int) -> Iterator[random.Random]:
    """Let the modules of the scheduler and of the sandbox use the time of ``loop``, and random numbers from ``seed``."""
    chance = random.Random(seed)
    clocks: dict[Any, Callable[[], float]] = {time.monotonic: loop.time, time.time: loop.wall_clock, time.perf_counter: loop.time}
    shim = SimpleNamespace(**{name: getattr(time, name) for name in dir(time) if not name.startswith("__")})
    shim.monotonic, shim.time, shim.perf_counter = loop.time, loop.wall_clock, loop.time
    shim.clock_gettime = lambda _: loop.time()

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=chance.getrandbits(128), version=4)

    state = random.getstate()
    random.seed(seed)
    with ExitStack() as stack:
        for module in _ours():
            _replace(stack, module, "time", time, shim)
            _replace(stack, module, "uuid4", uuid.uuid4, uuid4)
            _replace(stack, module, "uuid", uuid, SimpleNamespace(uuid4=uuid4))
        for function, clocked in _clocked_functions():
            # A clock that is a default argument was looked up when the function was defined.
            for field in clocked:
                before = getattr(function, field)
                if isinstance(before, tuple):
                    after: Any = tuple(clocks.get(each, each) if callable(each) else each for each in before)
                else:
                    after = {name: clocks.get(each, each) if callable(each) else each for name, each in before.items()}
                stack.callback(setattr, function, field, before)
                setattr(function, field, after)
        try:
            yield chance
        finally:
            random.setstate(state)


def _ours() -> list[types.ModuleType]:
    return [module for name, module in sys.modules.items() if name.partition(".")[0] in ("allaboard", "allaboard_sandbox")]


def _replace(stack: ExitStack, module: types.ModuleType, name: str, old: Any, new: Any) -> None:
    if vars(module).get(name) is old:
        stack.enter_context(mock.patch.object(module, name, new))


@functools.lru_cache(maxsize=1)
def _clocked_functions() -> tuple[tuple[Any, tuple[str, ...]], ...]:
    """Return the scheduler's functions that have a clock as a default, with the fields that hold it. Cached, since the search is slow."""
    clocks = (time.monotonic, time.time, time.perf_counter)
    found: dict[int, tuple[Any, tuple[str, ...]]] = {}
    for module in _ours():
        for holder in [module, *(each for each in vars(module).values() if isinstance(each, type))]:
            for function in vars(holder).values():
                if not isinstance(function, types.FunctionType):
                    continue
                fields = []
                if any(each in clocks for each in function.__defaults__ or () if callable(each)):
                    fields.append("__defaults__")
                if any(each in clocks for each in (function.__kwdefaults__ or {}).values() if callable(each)):
                    fields.append("__kwdefaults__")
                if fields:
                    found[id(function)] = function, tuple(fields)
    return tuple(found.values())
