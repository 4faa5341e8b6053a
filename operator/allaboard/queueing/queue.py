"""Decides which gang is next, and when a refused gang is worth another attempt.

A gang is *active* (due), in *backoff* after a failure, or *unschedulable* until something that it lacks may have been freed. A slow flush
retries unschedulable gangs in case an event was missed. When no gang is due, the gang with the oldest out-of-date message is.

- **Backoff.** Each failed attempt doubles it, up to a bound. When capacity is freed, a gang in backoff still goes before gangs of a lower
  priority, and a partially bound one before unbound gangs of its priority. Not while the backoff is *hard*: the gang has failed several
  times although there was capacity, or the API server has asked for the backoff.
- **Search time.** Gangs of a namespace that has used much search time lately go behind the others of their priority. They count as passed.
- **Overtaking.** Gangs that are placed together may overtake an older one of their priority a few times, or for a while. Then the older
  gang goes before all others of its priority, in backoff or not, until it is placed. If it doesn't fit, the gangs behind it go on.
- **Passing.** When a gang is placed while older ones are in backoff, the oldest is passed. A gang that was passed as often as gangs may be
  overtaken goes first once.
- **Assumed capacity.** A gang that was refused while capacity was assumed for others may have come at a bad moment. If that capacity is
  returned, the refusal doesn't count as a failure. Otherwise a gang whose binds always fail would take the capacity at each attempt.
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
_BLIPS = 3  # failures in a row that the API server may have caused
_SLICE = 500  # gangs that are woken without a break: some milliseconds

_NO_STATE = QueueState()  # of a gang without a record; never written


class GangQueue:
    """The gangs that are active, in backoff, or unschedulable.

    ``order`` returns a gang's place, ``slots`` counts free capacity. ``exists`` returns whether a gang still exists; a gang that is gone is
    due once more, to be forgotten. The state of each gang is the ``queue`` of its record in ``records``.
    """

    def __init__(
        self,
        order: Callable[[GangKey], Order],
        exists: Callable[[GangKey], bool] = lambda key: True,
        records: GangRecords | None = None,
        *,
        backoff: Backoff = BACKOFF,
        overtaking: Overtaking = OVERTAKING,
        slots: Slots = no_seats_known,
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
        self._unschedulable = Unschedulable(self._place, slots)
        self._promoted: dict[GangKey, None] = {}  # gangs that may have moved to the front by themselves
        self._tentative: dict[GangKey, None] = {}  # gangs that were refused while capacity was assumed for others
        self._spared: dict[GangKey, None] = {}  # tentative refusals that turned out to be no failures
        self._changed = asyncio.Event()
        self._given_back = -1
        self._refresh = MessageRefresh(self._known, clock)
        self.changes = 0

    def _known(self, key: GangKey) -> QueueState:
        """Return a gang's state, to be read only."""
        record = self._records.find(key)
        return record.queue if record else _NO_STATE

    def _state(self, key: GangKey) -> QueueState:
        return self._records.of(key).queue

    def placed(self, key: GangKey | None, overtaken: Iterable[GangKey] = ()) -> None:
        """Record that ``key`` is placed, in its own queue position; None if it is placed together with a gang before it.

        ``overtaken`` are gangs of the same priority that would fit in queue order, and don't because of the gangs that are placed.
        """
        if key is not None:
            self._pass(key)
        for other in overtaken:
            state = self._state(other)
            times, since = state.overtaken
            state.overtaken = (times + 1, since if times else self._clock())

    def _pass(self, key: GangKey) -> None:
        """Count a pass for the oldest gang of the level of ``key`` that only backoff or search-time usage keeps behind it.

        A (older) is in backoff for 4 s, and B is placed: A was passed once, whether or not A would have fitted. A gang that was passed as
        often as gangs may be overtaken goes first once. Then its passes count from zero.
        """
        mine = self._order(key)
        waiting = [*self._in_backoff.fronts(), *(order for order in self._due.fronts() if order.usage > mine.usage)]
        before = [order for order in waiting if order.level_key == mine.level_key and order.key_without_usage < mine.key_without_usage]
        passable = [order for order in before if not self._overtaking.is_over(self._known(order.key), self._clock())]
        if older := min(passable, key=lambda order: order.key_without_usage, default=None):
            self._state(older.key).passed += 1
            # The gang may rank further to the front now.
            (self._in_backoff if older.key in self._in_backoff else self._due).push(older.key)

    def sizes(self) -> Mapping[str, int]:
        """Return how many gangs are active, in backoff and unschedulable, in kube-scheduler's words."""
        unschedulable = len(self._unschedulable)
        return {"active": len(self._due), "backoff": max(0, len(self._timers) - unschedulable), "unschedulable": unschedulable}

    def mark(self, key: GangKey) -> None:
        """Make a gang due that has changed itself: at once, or when its backoff ends."""
        if key in self._due:
            self._promoted[key] = None  # e.g. by an older member; a thousand members that come one by one make one entry
            return
        now, state = self._clock(), self._known(key)
        if state.need is None or state.not_before <= now or not self._exists(key):
            self._unpark(key)  # else the waitlist may make the gang due before its backoff ends
        if not self._exists(key):
            # A later gang of the same name begins with a new state.
            self._forget(key)
            state = self._known(key)
        if state.not_before > now:
            self._set_timer(key, state.not_before)
            if key not in self._in_backoff and not state.is_hard:
                self._in_backoff.push(key)
        else:
            self._make_due(key)

    def observe(self, change: CapacityChange) -> None:
        """Make gangs due that a change of the cluster's capacity may help.

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
        moved = len(self._promoted)  # gangs that move meanwhile are left for the next call
        while self._unschedulable.are_woken or moved > 0 or self._spared:
            self._drain_some()
            moved -= _SLICE
            await asyncio.sleep(0)
        while self._admit():  # noqa: ASYNC110  # there is no event: each call admits more
            await asyncio.sleep(0)

    def _admit(self) -> bool:
        """Make gangs of the capacity waitlist due that may fit; nothing is counted unless capacity was freed since the last count.

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

        ``seen`` is the value of ``changes`` when the attempt began; None if nothing can have changed since.
        """
        seen, wake_on, retry_by = self.changes if seen is None else seen, requeue.wake_on, requeue.retry_by
        match requeue.reason:
            case Reason.REFUSED:
                is_assumed, need = requeue.is_capacity_assumed, requeue.need
                self._refuse(key, wake_on, seen=seen, is_capacity_assumed=is_assumed, retry_by=retry_by, need=need)
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
        is_capacity_assumed: bool,
        retry_by: float | None = None,
        need: CapacityNeed | None = None,
    ) -> None:
        """Record that there was no capacity for the gang; otherwise as ``_fail``. ``is_capacity_assumed``: for others, now.

        A gang with a ``need`` is due as soon as counting finds that capacity, unless it was refused although counting does. A gang is due
        again at once, one time, if capacity was freed during its search, of which its plan knew nothing.
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
        if is_capacity_assumed or self._given_back > seen:
            self._state(key).tentative = (attempts, self._clock())
            self._tentative[key] = None
        if self._given_back > seen:
            self._spare()

    def _return(self) -> None:
        """Make gangs due that were refused while the capacity was assumed that is returned now: they haven't failed."""
        self._unschedulable.wake(None)
        self._have_woken()
        self._given_back = self.changes
        self._spare()

    def _spare(self) -> None:
        self._spared |= self._tentative
        self._tentative = {}
        self._drain_some()

    def _fail(self, key: GangKey, wake_on: WakeUpOn, *, seen: int, retry_by: float | None = None, at_least: float = 0.0) -> None:
        """Count a failure, and begin the backoff for so many failures, at least ``at_least`` seconds, at most the longest.

        ``seen`` is the value of ``changes`` when the attempt began; ``retry_by`` is when to retry at the latest, once the backoff is over.
        """
        self._count_failure(key)
        self._state(key).message_from = None
        self._pause(key, wake_on, seen=seen, retry_by=retry_by, at_least=at_least)
        state = self._state(key)  # read again: the gang may be gone meanwhile
        if at_least or state.attempts > _BLIPS:
            state.is_hard = True
            self._in_backoff.discard(key)
            self._mark_anew(key)

    def _count_failure(self, key: GangKey) -> int:
        """Count one more failure, and return how many there were before."""
        self._tentative.pop(key, None)
        self._spared.pop(key, None)
        state = self._state(key)
        state.tentative = None
        state.attempts += 1
        return state.attempts - 1

    def _mark_anew(self, key: GangKey) -> None:
        """Move a gang that is active already, since it has changed, to where its current backoff belongs."""
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
        """Begin the backoff of the last failure, or one until ``until``, without counting a failure."""
        state = self._state(key)
        if state.passed >= self._overtaking.times:
            state.passed = 0  # the gang has gone first, and didn't fit
        if until is None:
            until = self._clock() + min(self._backoff.longest, max(at_least, self._backoff.after(max(1, state.attempts))))
        state.not_before = max(until, state.not_before) if state.is_hard else until
        self._park(key, wake_on, seen=seen, retry_by=retry_by)

    def _park(self, key: GangKey, wake_on: WakeUpOn, *, seen: int, retry_by: float | None = None) -> None:
        """Make the gang wait for what it lacks, without counting a failure. Otherwise as ``_fail``."""
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
        """Retry the gang in ``seconds`` at most, without counting a failure; not before, whatever happens, if ``is_hard``."""
        state, when = self._state(key), self._clock() + seconds
        if is_hard:
            state.not_before, state.is_hard = when, True
            self._due.discard(key)
            self._in_backoff.discard(key)
        self._set_timer(key, when if is_hard or state.due_at is None else min(when, state.due_at))

    def _resume(self, key: GangKey, seconds: float) -> None:
        """Retry as ``_retry`` does, after work other than placement. An unexpired hard backoff is kept.

        Capacity that is freed meanwhile still wakes the gang.
        """
        state = self._known(key)
        if not state.is_hard and key not in self._due and key not in self._in_backoff:
            self._park(key, ANYTHING, seen=self.changes)
            self._set_timer(key, self._clock() + seconds)
        else:
            self._retry(key, max(seconds, state.not_before - self._clock()) if state.is_hard else seconds)

    def _settle(self, key: GangKey) -> None:
        """Forget the failures of a gang that has what it wants. A gang that has changed since it was popped is due."""
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
        """Delete the state of a gang that no longer exists."""
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
        """Take into account that gangs of these namespaces may have moved to the front.

        The gangs that are named have moved by themselves: each is handled when ``drain`` returns.
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
        """Make the waiting gang due that has the oldest out-of-date message. No failure is counted, and its backoff goes on afterwards."""
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
        for key in self._timers.expired():
            self._unpark(key)
            self._make_due(key)


def _taken(keys: dict[GangKey, None]) -> Iterable[GangKey]:
    """Yield and remove the first of ``keys``, as many as are handled without a break."""
    for key in list(itertools.islice(keys, _SLICE)):
        del keys[key]
        yield key
