"""Searches that take long, beside the cycle: one at a time, in a process of their own, and the namespaces in turn.

A gang comes here when a short search has found neither seats for it nor a proof that there are none. Nothing but its key and its place in
the queue waits, and its problem is made when its turn comes. Whoever has many such gangs waits for himself: next is a gang of the namespace
that has used the least of this process lately, and of that namespace's the first in queue order.
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
    """Nobody wants to know any more."""


@dataclass(slots=True)
class LongSearches:
    """The line of gangs that wait for a long search, and the one that is going on. ``len`` is how many wait."""

    records: GangRecords
    clock: Callable[[], float]
    shares: SearchTime
    _lines: dict[str, LazyHeap] = field(default_factory=dict)  # the gangs that wait, by namespace
    _running: GangKey | None = None
    _search: asyncio.Future[Plan] | None = None
    _is_stopped: bool = False

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    @property
    def is_idle(self) -> bool:
        """Whether who comes now is next."""
        return self._running is None and not self._lines

    def join(self, key: GangKey, place: Order) -> None:
        """Have ``key``, whose ``place`` is that in the queue, searched for when its turn comes."""
        self.records.of(key).long_search = place
        if key.namespace not in self._lines:
            self._lines[key.namespace] = LazyHeap(self._place)
        self._lines[key.namespace].push(key)

    def leave(self, key: GangKey) -> None:
        """It is looked at anew, or gone: it waits no more."""
        if (record := self.records.find(key)) is not None and record.long_search is not None:
            record.long_search = None
            if line := self._lines.get(key.namespace):
                line.discard(key)
                if not line:
                    del self._lines[key.namespace]

    def next(self) -> GangKey | None:
        """Take out the gang whose turn it is, ``None`` while another has its turn or nobody waits. It ends with ``search``, or ``done``."""
        if self._is_stopped or self._running is not None or not self._lines:
            return None
        _, first = min((self.shares.used(namespace), line.first()) for namespace, line in self._lines.items())
        key = first.key
        self.leave(key)
        self._running = key
        return key

    def _place(self, key: GangKey) -> Order:
        return self.records.of(key).long_search or order_of_gone(key)

    def done(self, key: GangKey) -> None:
        """The turn of ``key`` is over."""
        if key == self._running:
            self._running = None

    async def search(
        self, key: GangKey, work: Callable[[], Awaitable[Plan]], afterwards: Callable[[Plan], Awaitable[None]] | None = None
    ) -> Plan:
        """What ``work`` finds for ``key``; its time is counted whatever comes of it. What is done ``afterwards`` is of the same turn.

        Raises ``SearchAbandonedError``, and what they raise.
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
        """Whether the search that is going on is for ``key``."""
        return self._search is not None and key == self._running

    def abandon(self, key: GangKey) -> None:
        """End the search for ``key``, and the process with it, if it is going on."""
        if self._search is not None and key == self._running:
            self._search.cancel()

    def stop(self) -> None:
        """Search no more, not even to the end of what is going on."""
        self._is_stopped = True
        self._lines.clear()
        if self._search is not None:
            self._search.cancel()
