"""Which gang is next, and when a refused one is worth another look.

A gang is due when something about it has changed, or when something it lacked may have come free; never on a timer alone, save a
slow flush in case an event was missed. Each failed attempt doubles the pause before the next, up to a bound; but a pause is no
reason to be overtaken by a lower priority, nor by one that isn't half bound, when something has come free for both.

Gangs that are placed together may overtake an older one of their priority a few times, or for a while. After that it goes before all
others of its priority, pause or not, until it has been placed. When it doesn't fit even then, those behind it go on. Of those that
sit out a pause while younger ones are placed, the oldest is passed: as often as gangs may be overtaken, and then it goes first once.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from allaboard.model.gang import Gang, GangKey, OnMemberLost
from allaboard.model.pod import Pod
from allaboard.placement import Explanation
from allaboard.placement.filters import TOPOLOGY

_FLUSH_SECONDS = 300.0  # kube-scheduler's podMaxInUnschedulablePodsDuration
_MOST_LEFT = 64  # entries of a heap that are none any more
_SLICE = 1000  # gangs that are woken at a stretch: some milliseconds

_HEALS, _OVERTAKEN, _PLAIN = range(3)

Order = tuple[bool, int, int, float, GangKey]


@dataclass(frozen=True, slots=True)
class Lacks:
    """What a refusal was for: resources that were short. ``anything`` when a change of any kind could help."""

    resources: frozenset[str] = frozenset()
    anything: bool = False

    @classmethod
    def of(cls, explanation: Explanation, candidates: Iterable[Pod]) -> "Lacks":
        """What the unplaced roles lacked.

        With several roles, room for one may let another move: then any resource that a candidate asks for may help.
        """
        resources: set[str] = set()
        # One who must share a domain may lack something else in each of them.
        anything = any(reason == TOPOLOGY for role in explanation.roles for reason, _ in role.reasons)
        if len(explanation.roles) > 1:
            specs = {pod.spec for pod in candidates}
            resources.update(resource for spec in specs for resource, _ in spec.requests if resource != "pods")
        if explanation.shortage:
            resources.add(explanation.shortage.resource)
        for role in explanation.roles:
            for reason, _ in role.reasons:
                if reason.startswith("Insufficient "):
                    resources.add(reason.removeprefix("Insufficient "))
                elif reason == "Too many pods":
                    resources.add("pods")
                elif "free ports" in reason or "anti-affinity" in reason:
                    anything = True
        return cls(frozenset(resources), anything or not resources)


ANYTHING = Lacks(anything=True)


def order_of(gang: Gang, *, is_first: bool = False, is_protected: bool = False) -> Order:
    """Queue order: priority, then those that have lost a member, then those that must not be overtaken, then age and name.

    ``is_first`` is for gangs that we left half bound.

    Being half bound alone is no ticket past a higher priority: a tenant could raise the minimum of a bound gang, or forge a stamp.
    """
    heals = gang.is_open and gang.owed > 0 and gang.on_member_lost is not OnMemberLost.IGNORE
    return (not is_first, -gang.priority, _HEALS if heals else _OVERTAKEN if is_protected else _PLAIN, gang.created, gang.key)


def order_of_gone(key: GangKey) -> Order:
    """The place of a gang that is no more: due at once, only to be forgotten."""
    return (False, 0, _HEALS, 0.0, key)


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
        self._parked: dict[GangKey, Lacks] = {}
        self._lacking: dict[str | None, dict[GangKey, None]] = {}  # those parked, by what they lack; by None where anything helps
        self._woken: dict[GangKey, None] = {}  # those parked for whom something has come free
        self._looked_again: set[GangKey] = set()
        self._attempts: dict[GangKey, int] = {}
        self._not_before: dict[GangKey, float] = {}
        self._overtaken: dict[GangKey, tuple[int, float]] = {}
        self._passed: dict[GangKey, int] = {}
        self._changed = asyncio.Event()
        self.changes = 0

    def attempts(self, key: GangKey) -> int:
        """Failed attempts in a row."""
        return self._attempts.get(key, 0)

    def overtaken(self, key: GangKey) -> None:
        """Younger gangs of the same priority were placed where this one would have fitted."""
        times, since = self._overtaken.get(key, (0, self._clock()))
        self._overtaken[key] = (times + 1, since)

    def seated(self, key: GangKey) -> None:
        """``key`` takes its seats, perhaps with others: the oldest that is before it but for its pause is passed, if it may be.

        Whether that one would have fitted isn't known. It goes first once it has been passed often enough, and then anew.
        """
        mine = self._order(key)
        pausing = [order for order, other in self._pausing if other in self._is_pausing and mine[:2] == order[:2] and order < mine]
        if older := min((order for order in pausing if not self.must_not_be_overtaken(order[-1])), default=None):
            self._passed[older[-1]] = self._passed.get(older[-1], 0) + 1
            self._push_pausing(older[-1])  # it may go further to the front now

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
            self.settle(key)
        not_before = self._not_before.get(key, 0.0)
        if not_before > self._clock():
            self._set_timer(key, not_before)
            if key not in self._is_pausing:
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

    def fail(self, key: GangKey, lacks: Lacks, *, seen: int, retry_by: float | None = None) -> None:
        """The gang was refused, by what was so when ``changes`` was ``seen``. ``retry_by`` is when to look again at the latest."""
        if self._passed.get(key, 0) >= self._overtaking[0]:
            del self._passed[key]  # it has gone first, and didn't fit
        attempts = self._attempts[key] = self.attempts(key) + 1
        first, longest = self._backoff
        self._not_before[key] = self._clock() + min(longest, first * 2 ** min(attempts - 1, 30))
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
        for resource in (None,) if lacks.anything else lacks.resources:
            self._lacking.setdefault(resource, {})[key] = None
        flush = self._clock() + _FLUSH_SECONDS
        self._set_timer(key, max(self._not_before.get(key, 0.0), flush if retry_by is None else min(flush, retry_by)))

    def retry(self, key: GangKey, seconds: float) -> None:
        """Look at the gang again in ``seconds``, without counting a failure."""
        self._set_timer(key, self._clock() + seconds)

    def settle(self, key: GangKey) -> None:
        """The gang has what it wants: its failures are forgotten."""
        self._unpark(key)
        for known in (self._attempts, self._not_before, self._timer_of, self._overtaken, self._passed):
            known.pop(key, None)
        self._is_pausing.discard(key)
        self._looked_again.discard(key)

    def peek(self) -> GangKey | None:
        """The first gang that is due, ``None`` without one; before it those in a pause that none behind them may overtake."""
        first = self._next()
        return first[0][0][1] if first else None

    def pop(self) -> GangKey | None:
        """Take out what ``peek`` gives."""
        first = self._next()
        if first is None:
            return None
        heap, members = first
        key = heapq.heappop(heap)[1]
        members.discard(key)
        self._timer_of.pop(key, None)
        return key

    def outranks(self, key: GangKey) -> bool:
        """Whether somebody is due, or pauses beside somebody who is, who goes before ``key``, and not by age alone.

        By the order as it is kept: ``key`` isn't found first when it is put back.
        """
        first = self._next()
        return first is not None and first[0][0][0][:3] < self._order(key)[:3]

    def put_back(self, keys: Iterable[GangKey]) -> None:
        """These were taken out, and nothing was done about them."""
        for key in keys:
            if key not in self._is_due:
                self._make_due(key)

    def _next(self) -> tuple[list[tuple[Order, GangKey]], set[GangKey]] | None:
        """The heap at whose top the first gang is, and its members."""
        self._ring_timers()
        if not self._is_due:
            return None
        due = self._first(self._due, self._is_due)
        if self._is_pausing and self._first(self._pausing, self._is_pausing)[:3] < due[:3]:
            return self._pausing, self._is_pausing
        return self._due, self._is_due

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
        for resource in (None,) if lacks.anything else lacks.resources:
            waiting = self._lacking[resource]
            del waiting[key]
            if not waiting:
                del self._lacking[resource]

    def _make_due(self, key: GangKey) -> None:
        self._timer_of.pop(key, None)
        self._is_pausing.discard(key)
        heapq.heappush(self._due, (self._place(key), key))
        self._is_due.add(key)
        self._changed.set()

    def _push_pausing(self, key: GangKey) -> None:
        if len(self._pausing) > 2 * len(self._is_pausing) + _MOST_LEFT:
            # Entries of those whose pause has ended are dropped when they come to the top, which they may not.
            self._pausing = [(order, other) for order, other in self._pausing if other in self._is_pausing]
            heapq.heapify(self._pausing)
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
