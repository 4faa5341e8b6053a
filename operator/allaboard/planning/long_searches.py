"""Orders long searches, which run beside the cycle: one at a time, in a process of their own, and the namespaces in turn.

A gang gets a long search when a short search has found neither a placement nor a proof that there is none. While the gang waits, only its
key and its queue position are kept; its problem is built when its search begins. The next gang is of the namespace that has recently used
the least time of this process, and is the first of that namespace in queue order. So a namespace with many such gangs delays only itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from allaboard.model.gang import GangKey
from allaboard.placement import Plan
from allaboard.queueing.heap import LazyHeap
from allaboard.queueing.order import order_of_gone
from allaboard.queueing.search_time import SearchTime
from allaboard.records.record import GangRecords
from allaboard.records.sort_key import Order


class SearchAbandonedError(Exception):
    """The search was ended because its result is no longer wanted."""


@dataclass(slots=True)
class LongSearches:
    """Keeps the gangs that wait for a long search, and gives one gang at a time the *turn* to search.

    ``len`` is the number of gangs that wait.
    """

    records: GangRecords
    clock: Callable[[], float]
    shares: SearchTime
    _waiting: dict[str, LazyHeap] = field(default_factory=dict)  # the gangs that wait, by namespace
    _running: GangKey | None = None
    _search: asyncio.Future[Plan] | None = None
    _is_stopped: bool = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def is_idle(self) -> bool:
        """True if no gang waits or searches, so that a gang that joins now is next."""
        return self._running is None and not self._waiting

    def join(self, key: GangKey, place: Order) -> None:
        """Queue ``key`` for a long search; ``place`` is its position in the queue."""
        self.records.of(key).long_search = place
        if key.namespace not in self._waiting:
            self._waiting[key.namespace] = LazyHeap(self._place)
        self._waiting[key.namespace].push(key)

    def leave(self, key: GangKey) -> None:
        """Remove ``key`` from the gangs that wait: the gang is attempted again, or gone."""
        if (record := self.records.find(key)) is not None and record.long_search is not None:
            record.long_search = None
            if waiting := self._waiting.get(key.namespace):
                waiting.discard(key)
                if not waiting:
                    del self._waiting[key.namespace]

    def next(self) -> GangKey | None:
        """Begin the turn of the next gang, and return that gang; None during another gang's turn, or if no gang waits.

        A turn ends with the end of ``search``, or with ``done``.
        """
        if self._is_stopped or self._running is not None or not self._waiting:
            return None
        _, first = min((self.shares.used(namespace), waiting.first()) for namespace, waiting in self._waiting.items())
        key = first.key
        self.leave(key)
        self._running = key
        return key

    def _place(self, key: GangKey) -> Order:
        return self.records.of(key).long_search or order_of_gone(key)

    def done(self, key: GangKey) -> None:
        """End the turn of ``key``, if it has the turn."""
        if key == self._running:
            self._running = None

    async def search(
        self, key: GangKey, work: Callable[[], Awaitable[Plan]], afterwards: Callable[[Plan], Awaitable[None]] | None = None
    ) -> Plan:
        """Return the plan that ``work`` finds for ``key``. Call ``afterwards`` with the plan within the same turn.

        The time of ``work`` is charged to the namespace whatever the result. Raises ``SearchAbandonedError``, and what ``work`` and
        ``afterwards`` raise.
        """
        try:
            plan = await self._found(key, work)
            if afterwards is not None:
                await afterwards(plan)
            return plan
        finally:
            self.done(key)

    async def _found(self, key: GangKey, work: Callable[[], Awaitable[Plan]]) -> Plan:
        started = self.clock()
        self._running, self._search = key, asyncio.ensure_future(work())
        try:
            await asyncio.wait([self._search])
            if self._search.cancelled():
                raise SearchAbandonedError
            return self._search.result()
        finally:
            self._search.cancel()
            self._search = None
            self.shares.charge(key.namespace, self.clock() - started)

    def is_searching(self, key: GangKey) -> bool:
        """Return whether the long search for ``key`` is running."""
        return self._search is not None and key == self._running

    def abandon(self, key: GangKey) -> None:
        """End the long search for ``key``, and its process, if that search is running."""
        if self._search is not None and key == self._running:
            self._search.cancel()

    def stop(self) -> None:
        """Begin no more searches, and end the running search."""
        self._is_stopped = True
        self._waiting.clear()
        if self._search is not None:
            self._search.cancel()
