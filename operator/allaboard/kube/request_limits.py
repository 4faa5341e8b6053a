"""Limit the requests that are in flight at once, and the requests that begin in one pass of the event loop.

A *turn* is the right to have one request in flight. It is held for one request, and not during the pause before a retry. Thousands of
requests that begin together would block the event loop before the first request is sent.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import IntEnum
from itertools import chain, count
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_AT_ONCE = 100  # requests whose begin takes a few milliseconds
_SLOW_SECONDS = 0.5  # an API server answers sooner, unless it calls slow webhooks
_REMEMBERED_SECONDS = 600.0
_UNKNOWN_EACH = 4
_MOST_KNOWN = 1000  # namespaces; above that, outdated speeds are dropped


async def in_slices(call: Callable[[Item], Awaitable[Answer]], items: Sequence[Item]) -> list[Answer | BaseException]:
    """Call ``call`` for all ``items`` concurrently; return the answers or exceptions in the order of ``items``.

    The first hundred calls begin at once. Each further hundred begins one pass of the event loop later.
    """

    async def begun(first: int) -> list[Answer | BaseException]:
        for _ in range(0, first, _AT_ONCE):
            await asyncio.sleep(0)
        return await asyncio.gather(*map(call, items[first : first + _AT_ONCE]), return_exceptions=True)

    if len(items) <= _AT_ONCE:
        return await begun(0)
    return list(chain.from_iterable(await asyncio.gather(*map(begun, range(0, len(items), _AT_ONCE)))))


class Speed(IntEnum):
    """The speed at which requests about a namespace are answered, from quick to slow. The namespace's webhooks make the difference."""

    QUICK, DRY_RUN, UNKNOWN, SLOW = range(4)


class RequestLimits:
    """Limits concurrent requests: ``total`` in all, and ``each`` about one namespace.

    Namespaces that aren't known to be quick get at most three quarters of ``total`` together, and slow namespaces at most half of
    ``total``. So neither one namespace nor several with slow webhooks can take all turns.

    A turn is the right to have one request in flight. A free turn goes to quick namespaces first, then to namespaces whose dry runs were
    quick, then to unknown namespaces, then to slow namespaces. ``dry_runs`` has the limits of dry runs; these count less than binds, since
    a webhook can distinguish them. An unknown namespace has at most four turns. Requests of equal speed get turns in the order of their
    arrival. A namespace counts as slow for ten minutes after an answer that took half a second, and otherwise as quick for ten minutes
    after a quicker answer.
    """

    def __init__(self, total: int, each: int, dry_runs: "RequestLimits | None" = None) -> None:
        self._dry_runs = dry_runs
        most = max(1, total * 3 // 4)
        self._each = dict.fromkeys(Speed, each) | {Speed.UNKNOWN: min(each, _UNKNOWN_EACH)}
        self._most = {Speed.QUICK: total, Speed.DRY_RUN: most, Speed.UNKNOWN: most, Speed.SLOW: max(1, total // 2)}
        self._tasks: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}
        self._known: dict[str, tuple[Speed, float]] = {}  # speed, and the time until which it is remembered
        self._arrivals = count()

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Hold a turn, the right to have one request in flight, for a request about ``namespace`` within the block."""
        loop = asyncio.get_running_loop()
        if namespace not in self._waiting and self._may_begin(namespace, self._free_for()):
            self._tasks[namespace] += 1
        else:
            await self._wait_for_turn(namespace, loop)
        began = loop.time()
        slowness = loop.call_later(_SLOW_SECONDS, self._note_slow, namespace)
        try:
            yield
        finally:
            slowness.cancel()
            if loop.time() - began < _SLOW_SECONDS and self._speed(namespace) is not Speed.SLOW:
                self._learn(namespace, Speed.QUICK)
            self._end(namespace)

    async def _wait_for_turn(self, namespace: str, loop: asyncio.AbstractEventLoop) -> None:
        begins = loop.create_future()
        self._waiting.setdefault(namespace, deque()).append((next(self._arrivals), begins))
        try:
            await begins
        except asyncio.CancelledError:
            if begins.done() and not begins.cancelled():
                self._end(namespace)
            raise

    def _speed(self, namespace: str) -> Speed:
        speed, until = self._known.get(namespace, (Speed.UNKNOWN, 0.0))
        if asyncio.get_running_loop().time() < until:
            return speed
        dry_run = self._dry_runs._speed(namespace) if self._dry_runs else Speed.UNKNOWN
        return Speed.DRY_RUN if dry_run is Speed.QUICK else dry_run

    def _learn(self, namespace: str, speed: Speed) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._known) > _MOST_KNOWN:
            self._known = {each: known for each, known in self._known.items() if known[1] > now}
        self._known[namespace] = speed, now + _REMEMBERED_SECONDS

    def _note_slow(self, namespace: str) -> None:
        self._learn(namespace, Speed.SLOW)
        self._begin_waiting()  # a slow namespace may have more turns than an unknown one

    def _free_for(self) -> Speed | None:
        """Return the slowest speed whose namespaces may have another turn; ``None`` if no turn is free.

        All quicker namespaces may have another turn, too.
        """
        taken, free_for = 0, None
        speeds = [(self._speed(namespace), number) for namespace, number in self._tasks.items()]
        for speed in reversed(Speed):
            taken += sum(number for each, number in speeds if each is speed)
            if taken >= self._most[speed]:
                free_for = None
            elif free_for is None:
                free_for = speed
        return free_for

    def _may_begin(self, namespace: str, free_for: Speed | None) -> bool:
        speed = self._speed(namespace)
        return free_for is not None and speed <= free_for and self._tasks[namespace] < self._each[speed]

    def _end(self, namespace: str) -> None:
        self._tasks[namespace] -= 1
        if not self._tasks[namespace]:
            del self._tasks[namespace]
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        while self._waiting:
            free_for = self._free_for()
            namespace = min((each for each in self._waiting if self._may_begin(each, free_for)), key=self._rank, default=None)
            if namespace is None:
                return
            _, begins = self._waiting[namespace].popleft()
            if not self._waiting[namespace]:
                del self._waiting[namespace]
            if not begins.done():
                self._tasks[namespace] += 1
                begins.set_result(None)

    def _rank(self, namespace: str) -> tuple[Speed, int]:
        return self._speed(namespace), self._waiting[namespace][0][0]
