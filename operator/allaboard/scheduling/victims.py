"""Which half gangs make way for a gang that needs their seats: no more than it takes, and none in vain."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from allaboard.binding.bind import Binder
from allaboard.binding.transaction import is_releasable
from allaboard.gangs.registry import GangRegistry
from allaboard.kube.client import ApiError
from allaboard.leadership.lease import LeaseLostError
from allaboard.model.gang import Gang, GangKey, Undo
from allaboard.model.pod import Pod
from allaboard.queueing.order import order_of
from allaboard.records.record import GangRecords, PartialBind
from allaboard.scheduling.run_history import run_was_whole

UNASKED_SECONDS = 10.0
"""How long a half gang that can't be released isn't asked again: others are."""
_BUSY_SECONDS = 1.0
"""How long a half gang isn't asked while something is being done about it."""
_MOST_ASKED = 32
"""Of so many half gangs at most it is found out whether their seats would help: each costs a search."""


@dataclass(frozen=True, slots=True)
class Victims:
    """Finds the partially bound gangs that give their capacity to another; ``PartialBinds`` releases them."""

    registry: GangRegistry
    records: GangRecords
    binder: Binder
    clock: Callable[[], float]
    in_doubt: Callable[[], Sequence[Pod]] = tuple
    """Whoever may not take the seats that they were promised, which is about to be known."""

    async def who_yields(self, gang: Gang, would_fit: Callable[[Sequence[Pod]], Awaitable[bool]]) -> Sequence[Gang]:
        """The half gangs that must yield to ``gang``, as few as it takes; none unless it ``would_fit`` without their bound pods.

        They have never been whole and their time-out has passed: half a gang that blocks others is the deadlock that gang scheduling is
        there to prevent. The rules:

        - To a gang of which nobody is bound those of no higher priority yield; of two half gangs the later in the queue does.
        - Nobody yields in vain: not if ``gang`` would fit by now, or once those have gone who are leaving, or if unanswered binds come to
          nothing; nor beside one whose Job or disruption budget doesn't let it go.
        - Nobody yields to one that has just made way itself, nor is anybody asked for whom another has just made way.
        - Who has made way for a gang never has that gang make way for it.
        """

        async def fits_without(pods: Sequence[Pod]) -> bool:
            # Some of them may be leaving already.
            gone = {pod.uid: pod for pod in chain(self._leaving(), pods)}
            return await would_fit(list(gone.values()))

        if not self._in_the_way(gang):
            return ()
        for _ in range(_MOST_ASKED):
            going = self._going()
            needed = await self._needed_by(gang, fits_without)
            staying = [other.key for other in needed if not await self._may_go(other)]
            for key in staying:
                self.records.partial_bind(key).unasked_until = self.clock() + UNASKED_SECONDS
            if not staying and going == self._going():
                # The looks and the answers took a while, in which seats may have come free that others hold or were promised.
                if needed and await fits_without(()):
                    return ()
                # One that has become whole meanwhile is no half gang any more.
                still = {other.key: other for other in self._in_the_way(gang)}
                return [still[other.key] for other in needed] if all(other.key in still for other in needed) else ()
        return ()

    async def _needed_by(self, gang: Gang, fits_without: Callable[[Sequence[Pod]], Awaitable[bool]]) -> Sequence[Gang]:
        """The half gangs without which ``gang`` would fit, as few of the last in the queue as it takes."""
        blocking = self._in_the_way(gang)
        if not blocking or self._makes_way(gang) or await fits_without(()):
            return ()
        if not await fits_without(_bound_of(blocking)):
            return ()
        # Nobody goes for what may be free soon.
        if (doubtful := self.in_doubt()) and await fits_without(doubtful):
            return ()
        # 1. The last few of the queue that are enough: with more of them it fits as well.
        too_few, enough = 0, len(blocking)
        while enough - too_few > 1:
            count = (too_few + enough) // 2
            too_few, enough = (too_few, count) if await fits_without(_bound_of(blocking[:count])) else (count, enough)
        # 2. Without those of them that aren't needed.
        needed = blocking[:enough]
        for other in blocking[: enough - 1]:
            rest = [each for each in needed if each is not other]
            if await fits_without(_bound_of(rest)):
                needed = rest
        # 3. Who is being asked just now may go, and then fewer are enough.
        asked = self._asked_now()
        for other in needed if asked else ():
            if await fits_without(_bound_of([*asked, *(each for each in needed if each is not other)])):
                return ()
        return needed

    async def _may_go(self, gang: Gang) -> bool:
        """Whether the bound members of a half gang can be released: one of each owner is asked for, without effect."""
        is_suspended = may_suspend(gang, self.records.find_partial_bind(gang.key), self.clock())
        asked = {pod.owner: pod for pod in gang.bound}.values()
        try:
            return all([await self.binder.would_go(pod, is_suspended=is_suspended) for pod in asked])
        except (ApiError, LeaseLostError):
            return False

    def _in_the_way(self, gang: Gang) -> Sequence[Gang]:
        """The half gangs that may have to yield to ``gang``, the last in the queue first; no more than may be asked."""
        now, mine = self.clock(), self.records.find_partial_bind(gang.key)
        served = {half.made_way_for for _, half in self.records.partial_binds() if half.is_going(now)}
        halves = [
            key
            for key, half in self.records.partial_binds()
            if half.is_kept_open and half.has_timed_out(now) and now >= max(half.asked_until, half.unasked_until) and key not in served
        ]
        asked = sorted(
            (
                other
                for other in filter(None, map(self.registry.gang, halves))
                if other.key != gang.key
                and not run_was_whole(other, self.records.find(other.key))
                and not (mine and mine.made_way_for == other.key)
                and all(is_releasable(pod) for pod in other.bound)
                and (order_of(gang) < order_of(other) if gang.bound else other.priority <= gang.priority)
            ),
            key=order_of,
            reverse=True,
        )
        return asked[:_MOST_ASKED]

    def put_off(self, keys: Iterable[GangKey]) -> None:
        """Something is being done about gangs: they aren't asked for a moment, nor is anybody beside them."""
        for key in keys:
            self.records.partial_bind(key).unasked_until = self.clock() + _BUSY_SECONDS

    def is_served(self, key: GangKey) -> bool:
        """Whether half gangs make way for a gang just now."""
        now = self.clock()
        return any(half.made_way_for == key and half.is_going(now) for _, half in self.records.partial_binds())

    def _makes_way(self, gang: Gang) -> bool:
        """Whether the seats that the gang has given up are still to be taken by the other, and not to be added to by a third one's."""
        half = self.records.find_partial_bind(gang.key)
        return half is not None and half.made_way_for is not None and half.is_going(self.clock())

    def _going(self) -> dict[GangKey, tuple[float, float]]:
        """Who is being released or was, and until when that counts."""
        return {key: (half.asked_until, half.released_until) for key, half in self.records.partial_binds() if half.is_going(self.clock())}

    def _asked_now(self) -> list[Gang]:
        asked = [key for key, half in self.records.partial_binds() if half.asked_until > self.clock()]
        return list(filter(None, map(self.registry.gang, asked)))

    def _leaving(self) -> Sequence[Pod]:
        """Who was released and is there still, for no longer than may be waited for."""
        now, released = self.clock(), [(key, half) for key, half in self.records.partial_binds() if half.released]
        return [pod for key, half in released if (gang := self.registry.gang(key)) for pod in leaving_of(gang, half, now)]


def _bound_of(gangs: Iterable[Gang]) -> list[Pod]:
    """All their bound pods."""
    return [pod for gang in gangs for pod in gang.bound]


def may_suspend(gang: Gang, half: PartialBind | None, now: float) -> bool:
    """Whether the Jobs of a half gang may be suspended by now."""
    return gang.undo is Undo.SUSPEND and half is not None and half.has_timed_out(now)


def leaving_of(gang: Gang, half: PartialBind, now: float) -> Sequence[Pod]:
    """Who of a gang was released and is there still, for no longer than may be waited for."""
    here = {pod.uid for pod in gang.everybody} if half.released and half.released_until > now else set()
    return [pod for pod in half.released if pod.uid in here]
