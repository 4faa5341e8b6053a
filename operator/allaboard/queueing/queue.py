"""Which gang is next, and when a refused gang is worth another attempt.

A gang is *active* (due), in *backoff* after a failure, or *unschedulable* until something that it lacks may have been freed. A slow flush
retries unschedulable gangs in case an event was missed. When no gang is due, the gang with the oldest out-of-date message is (``refresh``).

- **Backoff.** Each failed attempt doubles it, up to a bound. When capacity is freed, a gang in backoff still goes before gangs of a lower
  priority, and a partially bound one before absent ones of its priority. Not while the backoff is *firm*: the gang has failed several
  times although there was capacity, or the API server has asked for the pause.
- **Search time.** Gangs of a namespace that has used much search time lately go behind the others of their priority. They count as passed.
- **Overtaking.** Gangs that are placed together may overtake an older one of their priority a few times, or for a while. Then that one goes
  before all others of its priority, in backoff or not, until it is placed. When it doesn't fit even then, the gangs behind it go on.
- **Passing.** When a gang is placed while older ones are in backoff, the oldest is passed. Passed as often as gangs may be overtaken, it
  goes first once.
- **Assumed capacity.** A gang that was refused while capacity was assumed for others may have come at a bad moment. If that capacity is
  returned, the refusal doesn't count as a failure. Else a gang whose binds always fail would take the capacity at each attempt.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Mapping

from allaboard.model.gang import GangKey
from allaboard.queueing.capacity_waitlist import Slots, no_seats_known
from allaboard.queueing.heap import LazyHeap
from allaboard.queueing.order import order_of_gone
from allaboard.queueing.ranks import OVERTAKING, Overtaking
from allaboard.queueing.refresh import MessageRefresh
from allaboard.queueing.requeue import CapacityChange, Freed, Reason, Requeue, Returned, Taken
from allaboard.queueing.timers import Timers
from allaboard.queueing.unschedulable import Unschedulable
from allaboard.records.backoff import BACKOFF, Backoff
from allaboard.records.record import GangRecords, QueueState
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import ANYTHING, CapacityNeed, WakeUpOn

_FLUSH_SECONDS = 300.0  # kube-scheduler's podMaxInUnschedulablePodsDuration
_BLIPS = 3  # failures in a row that may be the API server's bad moments
_SLICE = 500  # gangs that are woken at a stretch: some milliseconds

_NO_STATE = QueueState()  # of a gang without a record; never written


class GangQueue:
    """The gangs that are active, in backoff, or unschedulable.

    ``order`` gives a gang's place. ``exists`` returns whether a gang still exists; a gang that is gone is due once more, to be forgotten.
    The state of each gang is the ``queue`` of its record in ``records``.
    """

    def __init__(
        self,
        order: Callable[[GangKey], Order],
        exists: Callable[[GangKey], bool] = lambda key: True,
        records: GangRecords | None = None,
        *,
        backoff: Backoff = BACKOFF,
        overtaking: Overtaking = OVERTAKING,
        seats: Slots = no_seats_known,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._order = order
        self._exists = exists
        self._records = GangRecords() if records is None else records
        self._backoff = backoff
        self._overtaking = overtaking
        self._clock = clock
        self._due = LazyHeap(self._place)
        self._in_backoff = LazyHeap(self._place)
        self._timers = Timers(self._known, clock)
        self._unschedulable = Unschedulable(self._place, seats)
        self._promoted: dict[GangKey, None] = {}  # those that may go further to the front than others of their namespace
        self._tentative: dict[GangKey, None] = {}  # those refused while seats were promised to others
        self._spared: dict[GangKey, None] = {}  # those of them for whom it is known that they haven't failed
        self._changed = asyncio.Event()
        self._given_back = -1
        self._refresh = MessageRefresh(self._known, clock)
        self.changes = 0

    def _known(self, key: GangKey) -> QueueState:
        """What is remembered, to be read only."""
        record = self._records.find(key)
        return record.queue if record else _NO_STATE

    def _state(self, key: GangKey) -> QueueState:
        return self._records.of(key).queue

    def placed(self, key: GangKey | None, overtaken: Iterable[GangKey] = ()) -> None:
        """Record that ``key`` is placed, in its own turn; None if the gang is placed in the turn of a gang that it was planned with.

        ``overtaken`` are gangs of the same priority that would have fitted in their turn, and don't because of the gangs that are placed.
        """
        if key is not None:
            self._pass(key)
        for other in overtaken:
            state = self._state(other)
            times, since = state.overtaken
            state.overtaken = (times + 1, since if times else self._clock())

    def _pass(self, key: GangKey) -> None:
        """Count a pass for the oldest gang of the level of ``key`` that only backoff or debt keeps behind it.

        A (older) was refused and is in backoff for 4 s; B is placed meanwhile: A was passed once, whether or not it would have fitted.
        Passed as often as gangs may be overtaken it goes first once, and then it is one of many again.
        """
        mine = self._order(key)
        waiting = [*self._in_backoff.fronts(), *(order for order in self._due.fronts() if order.usage > mine.usage)]
        before = [order for order in waiting if order.level_key == mine.level_key and order.key_without_usage < mine.key_without_usage]
        passable = [order for order in before if not self._overtaking.is_over(self._known(order.key), self._clock())]
        if older := min(passable, key=lambda order: order.key_without_usage, default=None):
            self._state(older.key).passed += 1
            # It may go further to the front now.
            (self._in_backoff if older.key in self._in_backoff else self._due).push(older.key)

    def sizes(self) -> Mapping[str, int]:
        """Return how many gangs are active, in backoff and unschedulable, as kube-scheduler calls that."""
        unschedulable = len(self._unschedulable)
        return {"active": len(self._due), "backoff": max(0, len(self._timers) - unschedulable), "unschedulable": unschedulable}

    def mark(self, key: GangKey) -> None:
        """Make a gang due that has changed itself: at once, or when its backoff ends."""
        if key in self._due:
            self._promoted[key] = None  # by a member that is older, for instance; a thousand that come one by one make one entry
            return
        now, state = self._clock(), self._known(key)
        if state.need is None or state.not_before <= now or not self._exists(key):
            self._unpark(key)  # and whose room can be counted is due before its pause ends if there is room
        if not self._exists(key):
            # One that comes by its name begins anew.
            self._forget(key)
            state = self._known(key)
        if state.not_before > now:
            self._set_timer(key, state.not_before)
            if key not in self._in_backoff and not state.is_hard:
                self._in_backoff.push(key)
        else:
            self._make_due(key)

    def observe(self, change: CapacityChange) -> None:
        """Take a change of the cluster's capacity: gangs that it may help are due.

        Of thousands the first are due at once, the others when ``drain`` returns.
        """
        match change:
            case Freed(resources=resources):
                self._unschedulable.wake(resources, is_only=change.is_only)
                self._have_woken()
            case Taken():
                self._make_stale()
            case Returned():
                self._return()

    def _have_woken(self) -> None:
        self.changes += 1
        self._make_stale()
        self._drain_some()

    def _make_stale(self) -> None:
        """Record that messages of waiting gangs may be out of date."""
        self._refresh.changed()
        self._changed.set()

    async def drain(self) -> None:
        """Move all woken gangs to the active or backoff heap, then admit gangs from the capacity waitlist."""
        moved = len(self._promoted)  # while those are seen to others may move, again and again
        while self._unschedulable.are_woken or moved > 0 or self._spared:
            self._drain_some()
            moved -= _SLICE
            await asyncio.sleep(0)
        while self._admit():  # noqa: ASYNC110  # there is no event: each call admits more
            await asyncio.sleep(0)

    def _admit(self) -> bool:
        """Make the first gangs due for which there is room by count; nothing is counted unless something has come free since.

        Return whether there may be more of them.
        """
        admitted = list(self._unschedulable.admitted(_SLICE))
        for key in admitted:
            self._unpark(key)
            if self._known(key).is_hard:
                self.mark(key)
            else:
                self._make_due(key)
        return len(admitted) == _SLICE

    def _drain_some(self) -> None:
        for key in self._unschedulable.woken(_SLICE):
            self.mark(key)
        for key in _taken(self._promoted):
            for heap in (self._due, self._in_backoff):
                if key in heap:
                    heap.push(key)
        for key in _taken(self._spared):
            state = self._known(key)
            if state.tentative is not None:
                state.attempts, since = state.tentative
                state.tentative = None
                state.not_before = min(state.not_before, since + self._backoff.initial)
                self.mark(key)
        if self._unschedulable.are_woken:
            self._changed.set()

    def requeue(self, key: GangKey, requeue: Requeue, *, seen: int | None = None) -> None:
        """Put a gang back whose attempt has ended.

        ``seen`` is what ``changes`` was when the attempt began; None if nothing can have changed since.
        """
        seen, wake_on, retry_by = self.changes if seen is None else seen, requeue.wake_on, requeue.retry_by
        match requeue.reason:
            case Reason.REFUSED:
                is_promised, need = requeue.is_capacity_assumed, requeue.need
                self._refuse(key, wake_on, seen=seen, is_promised=is_promised, retry_by=retry_by, need=need)
            case Reason.FAILED:
                self._fail(key, wake_on, seen=seen, retry_by=retry_by, at_least=requeue.seconds)
            case Reason.SEARCHING:
                self._pause(key, wake_on, seen=seen, retry_by=retry_by)
            case Reason.WAITING:
                self._park(key, wake_on, seen=seen, retry_by=retry_by)
            case Reason.AGAIN:
                self._retry(key, requeue.seconds, is_hard=requeue.is_hard)
            case Reason.RESUMED:
                self._resume(key, requeue.seconds)
            case Reason.NOW:
                self.mark(key)
            case Reason.SETTLED:
                self._settle(key)
            case Reason.GONE:
                self._forget(key)

    def _refuse(
        self,
        key: GangKey,
        wake_on: WakeUpOn,
        *,
        seen: int,
        is_promised: bool,
        retry_by: float | None = None,
        need: CapacityNeed | None = None,
    ) -> None:
        """The gang was refused for want of room, otherwise as ``fail``. ``is_promised`` when seats are promised to others just now.

        With a ``need`` it is due as soon as there is room for that by count, unless it was refused though there is. Once it is due again at
        once if something came free while it was searched for: its plan knew nothing of that, so it hasn't failed on what is there now.
        """
        attempts = self._count_failure(key)
        state = self._state(key)
        state.is_hard = False
        self._unpark(key)
        state.need = self._unschedulable.countable(need)
        if state.need is None and self.changes != seen >= self._given_back and not state.has_looked_again:
            state.has_looked_again, state.attempts, state.not_before = True, attempts, self._clock()
            self.mark(key)
            return
        self._pause(key, wake_on, seen=seen, retry_by=retry_by, until=self._refresh.refused(key, state))
        if is_promised or self._given_back > seen:
            self._state(key).tentative = (attempts, self._clock())
            self._tentative[key] = None
        if self._given_back > seen:
            self._spare()

    def _return(self) -> None:
        """Make gangs due that were refused while capacity was assumed that is returned now: they haven't failed."""
        self._unschedulable.wake(None)
        self._have_woken()
        self._given_back = self.changes
        self._spare()

    def _spare(self) -> None:
        self._spared |= self._tentative
        self._tentative = {}
        self._drain_some()

    def _fail(self, key: GangKey, wake_on: WakeUpOn, *, seen: int, retry_by: float | None = None, at_least: float = 0.0) -> None:
        """Count a failure, and pause: as long as so many failures take, or ``at_least`` so many seconds, never longer than the longest.

        ``seen`` is what ``changes`` was when the attempt began; ``retry_by`` when to look again at the latest, once the pause is over.
        """
        self._count_failure(key)
        self._state(key).message_from = None
        self._pause(key, wake_on, seen=seen, retry_by=retry_by, at_least=at_least)
        state = self._state(key)  # anew, if the gang has gone meanwhile
        if at_least or state.attempts > _BLIPS:
            state.is_hard = True
            self._in_backoff.discard(key)
            self._mark_anew(key)

    def _count_failure(self, key: GangKey) -> int:
        """Count one more, and return how many there were before."""
        self._tentative.pop(key, None)
        self._spared.pop(key, None)
        state = self._state(key)
        state.tentative = None
        state.attempts += 1
        return state.attempts - 1

    def _mark_anew(self, key: GangKey) -> None:
        """If the gang is due, since something about it has changed already, it is so by what is known of its pauses now."""
        if key in self._due:
            self._due.discard(key)
            self.mark(key)

    def _pause(
        self,
        key: GangKey,
        wake_on: WakeUpOn,
        *,
        seen: int,
        retry_by: float | None = None,
        at_least: float = 0.0,
        until: float | None = None,
    ) -> None:
        """Pause as after the last failure, or ``until`` then, without counting one: a longer search is still to come."""
        state = self._state(key)
        if state.passed >= self._overtaking.times:
            state.passed = 0  # it has gone first, and didn't fit
        if until is None:
            until = self._clock() + min(self._backoff.longest, max(at_least, self._backoff.after(max(1, state.attempts))))
        state.not_before = max(until, state.not_before) if state.is_hard else until
        self._park(key, wake_on, seen=seen, retry_by=retry_by)

    def _park(self, key: GangKey, wake_on: WakeUpOn, *, seen: int, retry_by: float | None = None) -> None:
        """Let the gang wait for what it lacks, without counting a failure. Otherwise as ``fail``."""
        state = self._state(key)
        if state.need is None and self.changes != seen and not state.has_looked_again:
            # Capacity was freed during the attempt, and may be enough. The second time in a row other gangs go first, or a gang that
            # doesn't fit would keep them waiting for ever on a busy cluster.
            state.has_looked_again = True
            self.mark(key)
            return
        state.has_looked_again = False
        # A gang that is in the backoff heap has changed itself meanwhile.
        if (state.need is None and self.changes != seen) or key in self._in_backoff:
            retry_by = self._clock()
        if state.wake_on is not None:
            self._unpark(key)
        self._unschedulable.add(key, state, wake_on)
        flush = self._clock() + _FLUSH_SECONDS
        self._set_timer(key, max(state.not_before, flush if retry_by is None else min(flush, retry_by)))

    def _retry(self, key: GangKey, seconds: float, *, is_hard: bool = False) -> None:
        """Look at the gang again in ``seconds`` at most, without counting a failure; ``is_hard`` if not before, whatever happens."""
        state, when = self._state(key), self._clock() + seconds
        if is_hard:
            state.not_before, state.is_hard = when, True
            self._due.discard(key)
            self._in_backoff.discard(key)
        self._set_timer(key, when if is_hard or state.due_at is None else min(when, state.due_at))

    def _resume(self, key: GangKey, seconds: float) -> None:
        """Retry as ``retry`` does, after work other than placement. An unexpired firm backoff is kept.

        Capacity that is freed meanwhile still wakes the gang.
        """
        state = self._known(key)
        if not state.is_hard and key not in self._due and key not in self._in_backoff:
            self._park(key, ANYTHING, seen=self.changes)
            self._set_timer(key, self._clock() + seconds)
        else:
            self._retry(key, max(seconds, state.not_before - self._clock()) if state.is_hard else seconds)

    def _settle(self, key: GangKey) -> None:
        """The gang has what it wants: its failures are forgotten. If something about it has changed since it was taken out, it is due."""
        state = self._known(key)
        is_marked = key in self._in_backoff or (state.due_at is not None and state.wake_on is None)
        self._unpark(key)
        self._stop_timer(key)
        self._in_backoff.discard(key)
        self._tentative.pop(key, None)
        self._spared.pop(key, None)
        if (record := self._records.find(key)) is not None:
            record.queue = QueueState()
        if is_marked:
            self.mark(key)

    def _forget(self, key: GangKey) -> None:
        """Delete what is remembered of a gang that no longer exists."""
        self._settle(key)
        if (record := self._records.find(key)) is not None:
            record.last_binds.clear()

    def peek(self) -> GangKey | None:
        """Return the first gang that is due, or a gang in backoff that outranks it; None if no gang is due."""
        heap = self._next()
        return heap.first().key if heap else None

    def pop(self, *, beside: GangKey | None = None) -> GangKey | None:
        """Remove and return what ``peek`` returns; if ``beside`` was popped already, also a gang in backoff that ranks before it."""
        heap = self._next(beside)
        if heap is None:
            return None
        key = heap.pop()
        self._unpark(key)
        self._stop_timer(key)
        if self._exists(key):
            self._refresh.looks(self._state(key))
        return key

    def outranks(self, key: GangKey) -> bool:
        """Return whether a gang that is due or in backoff ranks before ``key``, which was popped, by more than age.

        Gangs of the capacity waitlist are admitted first: a plan for ``key`` may use capacity that was freed for them since.
        """
        self._admit()
        heap = self._next(key)
        return heap is not None and heap.first().rank_key < self._order(key).rank_key

    def promote(self, changed: Mapping[str, Iterable[GangKey]]) -> None:
        """Take into account that the gangs of these namespaces may go further to the front now.

        The gangs that are named have moved by themselves: each is seen to when ``drain`` returns.
        """
        for namespace, keys in changed.items():
            self._promoted.update(dict.fromkeys(keys))
            for heap in (self._due, self._in_backoff, self._unschedulable):
                heap.promote(namespace)

    def put_back(self, keys: Iterable[GangKey]) -> None:
        """Put popped gangs back that were not attempted."""
        for key in keys:
            if key not in self._due:
                self._make_due(key)

    def _next(self, beside: GangKey | None = None) -> LazyHeap | None:
        """Return the backoff heap if its head outranks ``beside`` or the active heap's head; else the active heap, None if empty."""
        self._ring_timers()
        served = [self._due.first()] if self._due else []
        if self._in_backoff:
            served += [self._place(beside)] if beside is not None else []
            if served and self._in_backoff.first().claim_key < min(served).claim_key:
                return self._in_backoff
        return self._due if self._due else None

    async def wait(self) -> None:
        """Wait until a gang is due."""
        while True:
            await self.drain()
            self._ring_timers()
            if self._due:
                return
            if self._unschedulable.recount():
                continue
            if self._refresh_oldest():
                return
            self._changed.clear()
            try:
                async with asyncio.timeout(self._seconds_to_sleep):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _refresh_oldest(self) -> bool:
        """Make the waiting gang due whose out-of-date message is the oldest. It counts no failure, and its backoff goes on afterwards."""
        key = self._refresh.take()
        if key is None or self._known(key).is_hard or not self._exists(key):
            return False
        state = self._state(key)
        state.attempts = max(0, state.attempts - 1)
        self._unpark(key)
        self._make_due(key)
        return True

    @property
    def _seconds_to_sleep(self) -> float | None:
        """Seconds until the next timer, None without one."""
        return min((seconds for seconds in (self._timers.seconds, self._refresh.seconds) if seconds is not None), default=None)

    def _place(self, key: GangKey) -> Order:
        return self._order(key) if self._exists(key) else order_of_gone(key)

    def _unpark(self, key: GangKey) -> None:
        self._unschedulable.discard(key, self._known(key))

    def _make_due(self, key: GangKey) -> None:
        self._stop_timer(key)
        self._in_backoff.discard(key)
        self._due.push(key)
        self._changed.set()

    def _set_timer(self, key: GangKey, when: float) -> None:
        state = self._state(key)
        if key in self._due or state.due_at == when:
            return
        self._timers.set(key, state, when)
        self._changed.set()

    def _stop_timer(self, key: GangKey) -> None:
        self._timers.stop(self._known(key))

    def _ring_timers(self) -> None:
        for key in self._timers.rung():
            self._unpark(key)
            self._make_due(key)


def _taken(keys: dict[GangKey, None]) -> Iterable[GangKey]:
    """Take out the first of ``keys``, as many as are seen to at a stretch."""
    for key in list(itertools.islice(keys, _SLICE)):
        del keys[key]
        yield key
