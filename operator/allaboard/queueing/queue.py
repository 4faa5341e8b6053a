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

_NO_TURN = QueueState()  # of a gang without a record; never written


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
        self._pausing = LazyHeap(self._place)
        self._timers = Timers(self._known, clock)
        self._parked = Unschedulable(self._place, seats)
        self._moved: dict[GangKey, None] = {}  # those that may go further to the front than others of their namespace
        self._tentative: dict[GangKey, None] = {}  # those refused while seats were promised to others
        self._spared: dict[GangKey, None] = {}  # those of them for whom it is known that they haven't failed
        self._changed = asyncio.Event()
        self._given_back = -1
        self._refresh = MessageRefresh(self._known, clock)
        self.changes = 0

    def _known(self, key: GangKey) -> QueueState:
        """What is remembered, to be read only."""
        record = self._records.find(key)
        return record.queue if record else _NO_TURN

    def _turn(self, key: GangKey) -> QueueState:
        return self._records.of(key).queue

    def placed(self, key: GangKey | None, overtaken: Iterable[GangKey] = ()) -> None:
        """Record that ``key`` is placed, in its own turn; None if the gang is placed in the turn of a gang that it was planned with.

        ``overtaken`` are gangs of the same priority that would have fitted in their turn, and don't because of the gangs that are placed.
        """
        if key is not None:
            self._pass(key)
        for other in overtaken:
            turn = self._turn(other)
            times, since = turn.overtaken
            turn.overtaken = (times + 1, since if times else self._clock())

    def _pass(self, key: GangKey) -> None:
        """Count a pass for the oldest gang of the level of ``key`` that only backoff or debt keeps behind it.

        A (older) was refused and is in backoff for 4 s; B is placed meanwhile: A was passed once, whether or not it would have fitted.
        Passed as often as gangs may be overtaken it goes first once, and then it is one of many again.
        """
        mine = self._order(key)
        waiting = [*self._pausing.fronts(), *(order for order in self._due.fronts() if order.debt > mine.debt)]
        before = [order for order in waiting if order.level == mine.level and order.but_for_debt < mine.but_for_debt]
        passable = [order for order in before if not self._overtaking.is_over(self._known(order.key), self._clock())]
        if older := min(passable, key=lambda order: order.but_for_debt, default=None):
            self._turn(older.key).passed += 1
            # It may go further to the front now.
            (self._pausing if older.key in self._pausing else self._due).push(older.key)

    def sizes(self) -> Mapping[str, int]:
        """How many gangs are active, backing off and unschedulable: kube-scheduler's words."""
        return {"active": len(self._due), "backoff": max(0, len(self._timers) - len(self._parked)), "unschedulable": len(self._parked)}

    def mark(self, key: GangKey) -> None:
        """Make a gang due that has changed itself: at once, or when its backoff ends."""
        if key in self._due:
            self._moved[key] = None  # by a member that is older, for instance; a thousand that come one by one make one entry
            return
        now, turn = self._clock(), self._known(key)
        if turn.need is None or turn.not_before <= now or not self._exists(key):
            self._unpark(key)  # and whose room can be counted is due before its pause ends if there is room
        if not self._exists(key):
            # One that comes by its name begins anew.
            self._forget(key)
            turn = self._known(key)
        if turn.not_before > now:
            self._set_timer(key, turn.not_before)
            if key not in self._pausing and not turn.is_firm:
                self._pausing.push(key)
        else:
            self._make_due(key)

    def observe(self, change: CapacityChange) -> None:
        """Take a change of the cluster's capacity: gangs that it may help are due.

        Of thousands the first are due at once, the others when ``drain`` returns.
        """
        match change:
            case Freed(resources=resources):
                self._parked.wake(resources, is_only=change.is_only)
                self._have_woken()
            case Taken():
                self._make_stale()
            case Returned():
                self._return()

    def _have_woken(self) -> None:
        self.changes += 1
        self._make_stale()
        self._stir()

    def _make_stale(self) -> None:
        """Record that messages of waiting gangs may be out of date."""
        self._refresh.changed()
        self._changed.set()

    async def drain(self) -> None:
        """Move all woken gangs to the active or backoff heap, then admit gangs from the capacity waitlist."""
        moved = len(self._moved)  # while those are seen to others may move, again and again
        while self._parked.are_woken or moved > 0 or self._spared:
            self._stir()
            moved -= _SLICE
            await asyncio.sleep(0)
        while self._admit():  # noqa: ASYNC110  # there is no event: each call admits more
            await asyncio.sleep(0)

    def _admit(self) -> bool:
        """Make the first gangs due for which there is room by count; nothing is counted unless something has come free since.

        Return whether there may be more of them.
        """
        admitted = list(self._parked.admitted(_SLICE))
        for key in admitted:
            self._unpark(key)
            if self._known(key).is_firm:
                self.mark(key)
            else:
                self._make_due(key)
        return len(admitted) == _SLICE

    def _stir(self) -> None:
        for key in self._parked.woken(_SLICE):
            self.mark(key)
        for key in _taken(self._moved):
            for line in (self._due, self._pausing):
                if key in line:
                    line.push(key)
        for key in _taken(self._spared):
            turn = self._known(key)
            if turn.tentative is not None:
                turn.attempts, since = turn.tentative
                turn.tentative = None
                turn.not_before = min(turn.not_before, since + self._backoff.initial)
                self.mark(key)
        if self._parked.are_woken:
            self._changed.set()

    def requeue(self, key: GangKey, requeue: Requeue, *, seen: int | None = None) -> None:
        """Put a gang back whose attempt has ended.

        ``seen`` is what ``changes`` was when the attempt began; None if nothing can have changed since.
        """
        seen, lacks, retry_by = self.changes if seen is None else seen, requeue.wake_on, requeue.retry_by
        match requeue.reason:
            case Reason.REFUSED:
                is_promised, need = requeue.is_capacity_assumed, requeue.need
                self._refuse(key, lacks, seen=seen, is_promised=is_promised, retry_by=retry_by, need=need)
            case Reason.FAILED:
                self._fail(key, lacks, seen=seen, retry_by=retry_by, at_least=requeue.seconds)
            case Reason.SEARCHING:
                self._pause(key, lacks, seen=seen, retry_by=retry_by)
            case Reason.WAITING:
                self._park(key, lacks, seen=seen, retry_by=retry_by)
            case Reason.AGAIN:
                self._retry(key, requeue.seconds, is_firm=requeue.is_hard)
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
        lacks: WakeUpOn,
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
        turn = self._turn(key)
        turn.is_firm = False
        self._unpark(key)
        turn.need = self._parked.countable(need)
        if turn.need is None and self.changes != seen >= self._given_back and not turn.has_looked_again:
            turn.has_looked_again, turn.attempts, turn.not_before = True, attempts, self._clock()
            self.mark(key)
            return
        self._pause(key, lacks, seen=seen, retry_by=retry_by, until=self._refresh.refused(key, turn))
        if is_promised or self._given_back > seen:
            self._turn(key).tentative = (attempts, self._clock())
            self._tentative[key] = None
        if self._given_back > seen:
            self._spare()

    def _return(self) -> None:
        """Make gangs due that were refused while capacity was assumed that is returned now: they haven't failed."""
        self._parked.wake(None)
        self._have_woken()
        self._given_back = self.changes
        self._spare()

    def _spare(self) -> None:
        self._spared |= self._tentative
        self._tentative = {}
        self._stir()

    def _fail(self, key: GangKey, lacks: WakeUpOn, *, seen: int, retry_by: float | None = None, at_least: float = 0.0) -> None:
        """Count a failure, and pause: as long as so many failures take, or ``at_least`` so many seconds, never longer than the longest.

        ``seen`` is what ``changes`` was when the attempt began; ``retry_by`` when to look again at the latest, once the pause is over.
        """
        self._count_failure(key)
        self._turn(key).told_of = None
        self._pause(key, lacks, seen=seen, retry_by=retry_by, at_least=at_least)
        turn = self._turn(key)  # anew, if the gang has gone meanwhile
        if at_least or turn.attempts > _BLIPS:
            turn.is_firm = True
            self._pausing.discard(key)
            self._mark_anew(key)

    def _count_failure(self, key: GangKey) -> int:
        """Count one more, and return how many there were before."""
        self._tentative.pop(key, None)
        self._spared.pop(key, None)
        turn = self._turn(key)
        turn.tentative = None
        turn.attempts += 1
        return turn.attempts - 1

    def _mark_anew(self, key: GangKey) -> None:
        """If the gang is due, since something about it has changed already, it is so by what is known of its pauses now."""
        if key in self._due:
            self._due.discard(key)
            self.mark(key)

    def _pause(
        self,
        key: GangKey,
        lacks: WakeUpOn,
        *,
        seen: int,
        retry_by: float | None = None,
        at_least: float = 0.0,
        until: float | None = None,
    ) -> None:
        """Pause as after the last failure, or ``until`` then, without counting one: a longer search is still to come."""
        turn = self._turn(key)
        if turn.passed >= self._overtaking.times:
            turn.passed = 0  # it has gone first, and didn't fit
        if until is None:
            until = self._clock() + min(self._backoff.longest, max(at_least, self._backoff.after(max(1, turn.attempts))))
        turn.not_before = max(until, turn.not_before) if turn.is_firm else until
        self._park(key, lacks, seen=seen, retry_by=retry_by)

    def _park(self, key: GangKey, lacks: WakeUpOn, *, seen: int, retry_by: float | None = None) -> None:
        """Let the gang wait for what it lacks, without counting a failure. Otherwise as ``fail``."""
        turn = self._turn(key)
        if turn.need is None and self.changes != seen and not turn.has_looked_again:
            # Something came free while the attempt was going on; it must not be slept over. The second time in a row the others go first,
            # or a gang that doesn't fit would keep them waiting for ever on a busy cluster.
            turn.has_looked_again = True
            self.mark(key)
            return
        turn.has_looked_again = False
        if (turn.need is None and self.changes != seen) or key in self._pausing:  # or something about the gang itself has changed meanwhile
            retry_by = self._clock()
        if turn.lacks is not None:
            self._unpark(key)
        self._parked.add(key, turn, lacks)
        flush = self._clock() + _FLUSH_SECONDS
        self._set_timer(key, max(turn.not_before, flush if retry_by is None else min(flush, retry_by)))

    def _retry(self, key: GangKey, seconds: float, *, is_firm: bool = False) -> None:
        """Look at the gang again in ``seconds`` at most, without counting a failure; ``is_firm`` if not before, whatever happens."""
        turn, when = self._turn(key), self._clock() + seconds
        if is_firm:
            turn.not_before, turn.is_firm = when, True
            self._due.discard(key)
            self._pausing.discard(key)
        self._set_timer(key, when if is_firm or turn.rings_at is None else min(when, turn.rings_at))

    def _resume(self, key: GangKey, seconds: float) -> None:
        """Retry as ``retry`` does, after work other than placement. An unexpired firm backoff is kept.

        Capacity that is freed meanwhile still wakes the gang.
        """
        turn = self._known(key)
        if not turn.is_firm and key not in self._due and key not in self._pausing:
            self._park(key, ANYTHING, seen=self.changes)
            self._set_timer(key, self._clock() + seconds)
        else:
            self._retry(key, max(seconds, turn.not_before - self._clock()) if turn.is_firm else seconds)

    def _settle(self, key: GangKey) -> None:
        """The gang has what it wants: its failures are forgotten. If something about it has changed since it was taken out, it is due."""
        turn = self._known(key)
        is_marked = key in self._pausing or (turn.rings_at is not None and turn.lacks is None)
        self._unpark(key)
        self._stop_timer(key)
        self._pausing.discard(key)
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
        line = self._next()
        return line.first().key if line else None

    def pop(self, *, beside: GangKey | None = None) -> GangKey | None:
        """Remove and return what ``peek`` returns; if ``beside`` was popped already, also a gang in backoff that ranks before it."""
        line = self._next(beside)
        if line is None:
            return None
        key = line.pop()
        self._unpark(key)
        self._stop_timer(key)
        if self._exists(key):
            self._refresh.looks(self._turn(key))
        return key

    def outranks(self, key: GangKey) -> bool:
        """Return whether a gang that is due or in backoff ranks before ``key``, which was popped, by more than age.

        Gangs of the capacity waitlist are admitted first: a plan for ``key`` may use capacity that was freed for them since.
        """
        self._admit()
        line = self._next(key)
        return line is not None and line.first().rank < self._order(key).rank

    def eased(self, changed: Mapping[str, Iterable[GangKey]]) -> None:
        """Take into account that the gangs of these namespaces may go further to the front now.

        The gangs that are named have moved by themselves: each is seen to when ``drain`` returns.
        """
        for namespace, keys in changed.items():
            self._moved.update(dict.fromkeys(keys))
            for line in (self._due, self._pausing, self._parked):
                line.ease(namespace)

    def put_back(self, keys: Iterable[GangKey]) -> None:
        """Put popped gangs back that were not attempted."""
        for key in keys:
            if key not in self._due:
                self._make_due(key)

    def _next(self, beside: GangKey | None = None) -> LazyHeap | None:
        """Return the backoff heap if its head outranks ``beside`` or the active heap's head; else the active heap, None if empty."""
        self._ring_timers()
        served = [self._due.first()] if self._due else []
        if self._pausing:
            served += [self._place(beside)] if beside is not None else []
            if served and self._pausing.first().claim < min(served).claim:
                return self._pausing
        return self._due if self._due else None

    async def wait(self) -> None:
        """Wait until a gang is due."""
        while True:
            await self.drain()
            self._ring_timers()
            if self._due:
                return
            if self._parked.ask_again():
                continue
            if self._retell():
                return
            self._changed.clear()
            try:
                async with asyncio.timeout(self._seconds_to_sleep):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _retell(self) -> bool:
        """Make the waiting gang due whose out-of-date message is the oldest. It counts no failure, and its backoff goes on afterwards."""
        key = self._refresh.take()
        if key is None or self._known(key).is_firm or not self._exists(key):
            return False
        turn = self._turn(key)
        turn.attempts = max(0, turn.attempts - 1)
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
        self._parked.discard(key, self._known(key))

    def _make_due(self, key: GangKey) -> None:
        self._stop_timer(key)
        self._pausing.discard(key)
        self._due.push(key)
        self._changed.set()

    def _set_timer(self, key: GangKey, when: float) -> None:
        turn = self._turn(key)
        if key in self._due or turn.rings_at == when:
            return
        self._timers.set(key, turn, when)
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
