"""Which gang is next, and when a refused one is worth another look.

A gang is due when something about it has changed, or when something it lacked may have come free; never on a timer alone, save a
slow flush in case an event was missed. Each failed attempt doubles the pause before the next, up to a bound; but a pause is no
reason to be overtaken by a lower priority, nor by one that isn't half bound, when something has come free for both. It is one for a gang
that fails again and again though there is room, or that the API server wants to wait.

Those whose namespace has used much search time lately go behind the others of their priority (``shares``); they count as passed then, too.

Gangs that are placed together may overtake an older one of their priority a few times, or for a while. After that it goes before all
others of its priority, pause or not, until it has been placed. When it doesn't fit even then, those behind it go on. Of those that
sit out a pause while younger ones are placed, the oldest is passed: as often as gangs may be overtaken, and then it goes first once.

A gang that was placed, and loses members soon, again and again, *rests*: that is a pause which nothing cuts short. So does one whose
surplus fails as soon as it is bound.

Who was refused while seats were promised to others may only have come at a bad moment. If those seats are given back, that was no failure:
else a gang whose binds are refused for good would take the seats each time that they both look, and nobody else ever would.
"""

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from allaboard.model.gang import GangKey
from allaboard.scheduling.order import Lacks, Order, order_of_gone

_FLUSH_SECONDS = 300.0  # kube-scheduler's podMaxInUnschedulablePodsDuration
_STAYED_SECONDS = 60.0  # whoever was whole for so long has not lost its members soon
_MOST_LEFT = 64  # entries of a heap that are none any more
_BLIPS = 3  # failures in a row that may be the API server's bad moments
_SLICE = 1000  # gangs that are woken at a stretch: some milliseconds


@dataclass(frozen=True, slots=True)
class _Placed:
    """When a gang was last placed, how often in a row before that it had lost members soon, and how many had failed by then."""

    at: float = -math.inf
    losses: int = 0
    failed: int = 0


class GangQueue:
    """Gangs that are due, that pause after a failure, and that wait for something to change.

    ``order`` tells a gang's place, ``exists`` whether there is such a gang still; one that is gone is due once more, to be forgotten.
    """

    def __init__(
        self,
        order: Callable[[GangKey], Order],
        exists: Callable[[GangKey], bool] = lambda key: True,
        *,
        backoff_initial: float = 1.0,
        backoff_max: float = 60.0,
        overtaking_times: int = 3,
        overtaking_seconds: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._order = order
        self._exists = exists
        self._backoff = (backoff_initial, backoff_max)
        self._overtaking = (overtaking_times, overtaking_seconds)
        self._clock = clock
        self._due: list[tuple[Order, GangKey]] = []
        self._is_due: set[GangKey] = set()
        self._timers: list[tuple[float, GangKey]] = []
        self._timer_of: dict[GangKey, float] = {}
        self._pausing: list[tuple[Order, GangKey]] = []
        self._is_pausing: set[GangKey] = set()
        self._is_firm: set[GangKey] = set()  # whose pauses aren't cut short
        self._parked: dict[GangKey, Lacks] = {}
        self._lacking: dict[str | None, dict[GangKey, None]] = {}  # those parked, by what they lack; by None where anything helps
        self._woken: dict[GangKey, None] = {}  # those parked for whom something has come free
        self._looked_again: set[GangKey] = set()
        self._attempts: dict[GangKey, int] = {}
        self._not_before: dict[GangKey, float] = {}
        self._tentative: dict[GangKey, tuple[int, float]] = {}  # who was refused by promises: failures before that, and when it was
        self._overtaken: dict[GangKey, tuple[int, float]] = {}
        self._passed: dict[GangKey, int] = {}
        self._placed: dict[GangKey, _Placed] = {}
        self._changed = asyncio.Event()
        self._given_back = -1
        self.changes = 0

    def attempts(self, key: GangKey) -> int:
        """Failed attempts in a row."""
        return self._attempts.get(key, 0)

    def overtaken(self, key: GangKey) -> None:
        """Younger gangs of the same priority were placed where this one would have fitted."""
        times, since = self._overtaken.get(key, (0, self._clock()))
        self._overtaken[key] = (times + 1, since)

    def seated(self, key: GangKey) -> None:
        """``key`` takes its seats, perhaps with others: the oldest that is before it but for its pause or debt is passed, if it may be.

        Whether that one would have fitted isn't known. It goes first once it has been passed often enough, and then anew.
        """
        mine = self._order(key)
        waiting = [order for order, other in self._pausing if other in self._is_pausing]
        waiting += [order for order, other in self._due if other in self._is_due and order.debt > mine.debt]
        before = [order for order in waiting if order.level == mine.level and order.but_for_debt < mine.but_for_debt]
        passable = [order for order in before if not self.must_not_be_overtaken(order.key)]
        if older := min(passable, key=lambda order: order.but_for_debt, default=None):
            passed = older.key
            self._passed[passed] = self._passed.get(passed, 0) + 1
            # It may go further to the front now.
            if passed in self._is_pausing:
                self._push_pausing(passed)
            else:
                self._push_due(passed)

    def must_not_be_overtaken(self, key: GangKey) -> bool:
        """Whether it has been overtaken often enough, or long ago."""
        times, since = self._overtaken.get(key, (0, 0.0))
        most, seconds = self._overtaking
        return (times > 0 and (times >= most or self._clock() - since >= seconds)) or self._passed.get(key, 0) >= most

    def sizes(self) -> Mapping[str, int]:
        """How many gangs are active, backing off and unschedulable: kube-scheduler's words."""
        parked = len(self._parked)
        return {"active": len(self._is_due), "backoff": max(0, len(self._timer_of) - parked), "unschedulable": parked}

    def mark(self, key: GangKey) -> None:
        """Something about the gang itself has changed: it is due, at once or when its pause ends."""
        if key in self._is_due:
            return  # a thousand members that come one by one make one entry
        self._unpark(key)
        if not self._exists(key):
            # One that comes by its name begins anew.
            self.forget(key)
        if (rested := self._rests_until(key)) > self._clock():
            self._set_timer(key, rested)
            return
        not_before = self._not_before.get(key, 0.0)
        if not_before > self._clock():
            self._set_timer(key, not_before)
            if key not in self._is_pausing and key not in self._is_firm:
                self._is_pausing.add(key)
                self._push_pausing(key)
        else:
            self._make_due(key)

    def wake(self, freed: Iterable[str] | None = None) -> None:
        """Capacity has changed: gangs that lacked any of ``freed`` are due; ``None`` means all, as after a change of a node.

        Of thousands the first are due at once, the others when ``stirred`` returns.
        """
        self.changes += 1
        if freed is None:
            self._woken.update(dict.fromkeys(self._parked))
        else:
            for resource in (None, *freed):
                self._woken.update(self._lacking.get(resource, {}))
        self._stir()

    async def stirred(self) -> None:
        """Return when all who were woken are due, or in their pauses."""
        while self._woken:
            self._stir()
            await asyncio.sleep(0)

    def _stir(self) -> None:
        for key in list(itertools.islice(self._woken, _SLICE)):
            del self._woken[key]
            self.mark(key)
        if self._woken:
            self._changed.set()

    def refuse(self, key: GangKey, lacks: Lacks, *, seen: int, is_promised: bool, retry_by: float | None = None) -> None:
        """The gang was refused for want of room, otherwise as ``fail``. ``is_promised`` when seats are promised to others just now."""
        attempts = self._count_failure(key)
        self._is_firm.discard(key)
        self.pause(key, lacks, seen=seen, retry_by=retry_by)
        if is_promised or self._given_back > seen:
            self._tentative[key] = (attempts, self._clock())
        if self._given_back > seen:
            self._spare()

    def given_back(self) -> None:
        """Seats that were promised weren't taken: those who were refused meanwhile haven't failed, and pause for a moment only."""
        self.wake()
        self._given_back = self.changes
        self._spare()

    def _spare(self) -> None:
        tentative, self._tentative = self._tentative, {}
        for key, (attempts, since) in tentative.items():
            self._attempts[key] = attempts
            self._not_before[key] = min(self._not_before.get(key, 0.0), since + self._backoff[0])
            self.mark(key)

    def fail(self, key: GangKey, lacks: Lacks, *, seen: int, retry_by: float | None = None, at_least: float = 0.0) -> None:
        """The attempt has failed, by what was so when ``changes`` was ``seen``. ``retry_by`` is when to look again at the latest.

        It pauses for ``at_least`` so many seconds, up to the longest pause.
        """
        self._count_failure(key)
        self.pause(key, lacks, seen=seen, retry_by=retry_by, at_least=at_least)
        if at_least or self.attempts(key) > _BLIPS:  # none are known any more of a gang that has gone meanwhile
            self._is_firm.add(key)
            self._is_pausing.discard(key)
            self._mark_anew(key)

    def _count_failure(self, key: GangKey) -> int:
        """Count one more, and return how many there were before."""
        self._tentative.pop(key, None)
        attempts = self.attempts(key)
        self._attempts[key] = attempts + 1
        return attempts

    def _mark_anew(self, key: GangKey) -> None:
        """If the gang is due, since something about it has changed already, it is so by what is known of its pauses now."""
        if key in self._is_due:
            self._is_due.discard(key)
            self.mark(key)

    def pause(self, key: GangKey, lacks: Lacks, *, seen: int, retry_by: float | None = None, at_least: float = 0.0) -> None:
        """As ``fail``, without counting a failure: no seats were found, and they are still looked for."""
        if self._passed.get(key, 0) >= self._overtaking[0]:
            del self._passed[key]  # it has gone first, and didn't fit
        self._not_before[key] = self._clock() + min(self._backoff[1], max(at_least, self._pause(max(1, self.attempts(key)))))
        self.park(key, lacks, seen=seen, retry_by=retry_by)

    def park(self, key: GangKey, lacks: Lacks, *, seen: int, retry_by: float | None = None) -> None:
        """Let the gang wait for what it lacks, without counting a failure. Otherwise as ``fail``."""
        if self.changes != seen and key not in self._looked_again:
            # Something came free while the attempt was going on; it must not be slept over. The second time in a row the others go first,
            # or a gang that doesn't fit would keep them waiting for ever on a busy cluster.
            self._looked_again.add(key)
            self.mark(key)
            return
        self._looked_again.discard(key)
        if self.changes != seen or key in self._is_pausing:  # or something about the gang itself has changed meanwhile
            retry_by = self._clock()
        self._unpark(key)
        self._parked[key] = lacks
        for resource in lacks.awaited:
            self._lacking.setdefault(resource, {})[key] = None
        flush = self._clock() + _FLUSH_SECONDS
        self._set_timer(key, max(self._not_before.get(key, 0.0), flush if retry_by is None else min(flush, retry_by)))

    def retry(self, key: GangKey, seconds: float, *, is_firm: bool = False) -> None:
        """Look at the gang again in ``seconds`` at most, without counting a failure; ``is_firm`` if not before, whatever happens."""
        when = self._clock() + seconds
        if is_firm:
            self._not_before[key] = when
            self._is_firm.add(key)
            self._is_due.discard(key)
            self._is_pausing.discard(key)
        self._set_timer(key, when if is_firm else min(when, self._timer_of.get(key, when)))

    def settle(self, key: GangKey) -> None:
        """The gang has what it wants: its failures are forgotten. If something about it has changed since it was taken out, it is due."""
        is_marked = key in self._is_pausing or (key in self._timer_of and key not in self._parked)
        self._unpark(key)
        for known in (self._attempts, self._not_before, self._timer_of, self._tentative, self._overtaken, self._passed):
            known.pop(key, None)
        for marked in (self._is_pausing, self._is_firm, self._looked_again):
            marked.discard(key)
        if is_marked:
            self.mark(key)

    def placed(self, key: GangKey, waiting_since: float | None, failed: int) -> None:
        """The gang has its seats, for which it had waited since it lost members, or since it came; None if it was whole without them.

        Lost soon after it was placed, it is placed anew at once; the second time in a row it rests for a second, then for two, four, ….
        All that is forgotten when it has stayed whole for a minute, or for twice as long as it rested.
        Surplus counts as lost if more members have ``failed`` than had when the gang was last placed: others may just have been added.
        """
        self.settle(key)
        now, last = self._clock(), self._placed.get(key, _Placed())
        if waiting_since is None and failed <= last.failed:
            self._placed[key] = replace(last, failed=failed)
            return
        has_stayed = (now if waiting_since is None else waiting_since) - last.at >= max(_STAYED_SECONDS, 2 * self._pause(last.losses))
        self._placed[key] = _Placed(now, 0 if has_stayed else last.losses + 1, failed)
        self._mark_anew(key)  # it may have lost some already

    def _rests_until(self, key: GangKey) -> float:
        last = self._placed.get(key, _Placed())
        return last.at + self._pause(last.losses)

    def _pause(self, times: int) -> float:
        """After so many failures in a row."""
        first, longest = self._backoff
        return min(longest, first * 2 ** min(times - 1, 30)) if times else 0.0

    def forget(self, key: GangKey) -> None:
        """The gang is gone."""
        self.settle(key)
        self._placed.pop(key, None)

    def peek(self) -> GangKey | None:
        """The first gang that is due, ``None`` without one; before it those in a pause that none behind them may overtake."""
        first = self._next()
        return first[0][0][1] if first else None

    def pop(self, *, beside: GangKey | None = None) -> GangKey | None:
        """Take out what ``peek`` gives; ``beside`` one that was taken out, also who sits out a pause that must not be passed by that."""
        first = self._next(beside)
        if first is None:
            return None
        heap, members = first
        key = heapq.heappop(heap)[1]
        members.discard(key)
        self._timer_of.pop(key, None)
        return key

    def outranks(self, key: GangKey) -> bool:
        """Whether somebody is due, or sits out a pause, who goes before ``key``, which was taken out, and not by age alone.

        By the order as it is kept: ``key`` isn't found first when it is put back.
        """
        first = self._next(key)
        return first is not None and first[0][0][0].rank < self._order(key).rank

    def eased(self, namespaces: Collection[str]) -> None:
        """The debt of these is less than it was: their gangs may go further to the front now."""
        for key in [key for key in self._is_due if key.namespace in namespaces]:
            self._push_due(key)

    def put_back(self, keys: Iterable[GangKey]) -> None:
        """These were taken out, and nothing was done about them."""
        for key in keys:
            if key not in self._is_due:
                self._make_due(key)

    def _next(self, beside: GangKey | None = None) -> tuple[list[tuple[Order, GangKey]], set[GangKey]] | None:
        """The heap at whose top the first gang is, and its members; those in a pause count beside one that is due, or was until now."""
        self._ring_timers()
        served = [self._first(self._due, self._is_due)] if self._is_due else []
        if self._is_pausing:
            served += [self._place(beside)] if beside is not None else []
            if served and self._first(self._pausing, self._is_pausing).claim < min(served).claim:
                return self._pausing, self._is_pausing
        return (self._due, self._is_due) if self._is_due else None

    async def wait(self) -> None:
        """Return when a gang is due."""
        while True:
            await self.stirred()
            self._ring_timers()
            if self._is_due:
                return
            self._changed.clear()
            pause = self._timers[0][0] - self._clock() if self._timers else None
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _first(self, heap: list[tuple[Order, GangKey]], members: set[GangKey]) -> Order:
        """The place of the first entry, once those that are no longer members are gone; one is left at least.

        One whose place is further behind now than when it was put there goes there.
        """
        while True:
            kept, key = heap[0]
            if key not in members:
                heapq.heappop(heap)
            elif (place := self._place(key)) > kept:
                heapq.heapreplace(heap, (place, key))
            else:
                return kept

    def _place(self, key: GangKey) -> Order:
        return self._order(key) if self._exists(key) else order_of_gone(key)

    def _unpark(self, key: GangKey) -> None:
        self._woken.pop(key, None)
        lacks = self._parked.pop(key, None)
        if lacks is None:
            return
        for resource in lacks.awaited:
            waiting = self._lacking[resource]
            del waiting[key]
            if not waiting:
                del self._lacking[resource]

    def _make_due(self, key: GangKey) -> None:
        self._timer_of.pop(key, None)
        self._is_pausing.discard(key)
        self._is_due.add(key)
        self._push_due(key)
        self._changed.set()

    def _push_due(self, key: GangKey) -> None:
        self._due = _compact(self._due, self._is_due)
        heapq.heappush(self._due, (self._place(key), key))

    def _push_pausing(self, key: GangKey) -> None:
        self._pausing = _compact(self._pausing, self._is_pausing)
        heapq.heappush(self._pausing, (self._order(key), key))

    def _set_timer(self, key: GangKey, when: float) -> None:
        if key in self._is_due or self._timer_of.get(key) == when:
            return
        self._timer_of[key] = when
        heapq.heappush(self._timers, (when, key))
        self._changed.set()

    def _ring_timers(self) -> None:
        now = self._clock()
        while self._timers and (self._timers[0][0] <= now or self._timer_of.get(self._timers[0][1]) != self._timers[0][0]):
            when, key = heapq.heappop(self._timers)
            if self._timer_of.get(key) == when:
                self._unpark(key)
                self._make_due(key)


def _compact(heap: list[tuple[Order, GangKey]], members: set[GangKey]) -> list[tuple[Order, GangKey]]:
    """The heap without entries that are none any more, if there are many: they are dropped at the top, where they may never come.

    Of several entries of one gang the first one counts.
    """
    if len(heap) <= 2 * len(members) + _MOST_LEFT:
        return heap
    first: dict[GangKey, Order] = {}
    for order, key in heap:
        if key in members and (key not in first or order < first[key]):
            first[key] = order
    kept = [(order, key) for key, order in first.items()]
    heapq.heapify(kept)
    return kept
