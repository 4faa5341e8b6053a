"""Finds the partially bound gangs to release for a gang that needs their capacity: as few as possible, and none in vain."""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from allaboard.binding.bind import Binder
from allaboard.binding.transaction import is_releasable
from allaboard.gangs.run_history import run_was_whole
from allaboard.kube.client import ApiError
from allaboard.leadership.lease import LeaseLostError
from allaboard.model.gang import Gang, GangKey, Undo
from allaboard.model.pod import Pod
from allaboard.planning.known_gangs import KnownGangs
from allaboard.planning.planner import Planner
from allaboard.planning.prepared import PreparedGang
from allaboard.planning.search_processes import SearchError
from allaboard.queueing.order import order_of
from allaboard.records.partial_bind import PartialBind, State
from allaboard.scheduling.unresolved_binds import UnresolvedBinds

UNASKED_SECONDS = 10.0
"""How long a partially bound gang that couldn't be released isn't considered again."""
_BUSY_SECONDS = 1.0
"""How long a partially bound gang isn't considered while a task acts on it."""
_MOST_ASKED = 32
"""The most partially bound gangs that are considered for one gang: each costs a search."""


@dataclass(frozen=True, slots=True)
class Victims:
    """Finds the partially bound gangs whose capacity another gang needs; the executor releases them."""

    gangs: KnownGangs
    binder: Binder
    planner: Planner
    unresolved: UnresolvedBinds

    async def find(self, gang: PreparedGang, seconds: float = math.inf) -> Sequence[Gang] | None:
        """Return the gangs to release for ``gang``, which was refused; None if they aren't known within ``seconds``.

        Each victim takes searches. A whole gang's surplus members have no victims.
        """
        if not gang.missing:
            return ()
        ends = self.gangs.clock() + seconds

        async def would_fit(without: Sequence[Pod]) -> bool:
            if self.gangs.clock() >= ends:
                raise TimeoutError
            with suppress(SearchError):
                return bool((await self.planner.plan(gang, without)).feasible)
            return False

        try:
            return await self.of(gang, would_fit)
        except TimeoutError:
            return None

    async def of(self, gang: Gang, would_fit: Callable[[Sequence[Pod]], Awaitable[bool]]) -> Sequence[Gang]:
        """Return the victims of ``gang``, as few as possible; none unless ``gang`` ``would_fit`` without their bound pods.

        A victim has never been whole, and its time-out has passed: a partially bound gang that blocks others is the deadlock that gang
        scheduling prevents. The rules:

        - A gang without bound members has victims of no higher priority; of two partially bound gangs the later in the queue is
          the victim.
        - No gang is released in vain: not if ``gang`` fits by then, or once leaving members have gone, or if unanswered binds
          come to nothing; nor together with a gang that its Job or disruption budget keeps.
        - A gang that was just released for another has no victims, nor has a gang for which another was just released.
        - A gang isn't released for a gang that was released for it.
        """

        async def fits_without(pods: Sequence[Pod]) -> bool:
            # Some of these pods may be leaving already.
            gone = {pod.uid: pod for pod in chain(self._leaving(), pods)}
            return await would_fit(list(gone.values()))

        if not self._blocking(gang):
            return ()
        for _ in range(_MOST_ASKED):
            going = self._going()
            needed = await self._needed_by(gang, fits_without)
            staying = [other.key for other in needed if not await self._is_releasable(other)]
            for key in staying:
                self.gangs.records.partial_bind(key).unasked_until = self.gangs.clock() + UNASKED_SECONDS
            if not staying and going == self._going():
                # The searches and requests took a while, in which bound or assumed capacity may have been freed.
                if needed and await fits_without(()):
                    return ()
                # A gang that became whole meanwhile is not partially bound any more.
                still = {other.key: other for other in self._blocking(gang)}
                return [still[other.key] for other in needed] if all(other.key in still for other in needed) else ()
        return ()

    async def _needed_by(self, gang: Gang, fits_without: Callable[[Sequence[Pod]], Awaitable[bool]]) -> Sequence[Gang]:
        """Return the partially bound gangs without which ``gang`` would fit, as few as possible of the last in the queue."""
        blocking = self._blocking(gang)
        if not blocking or self._is_released_for_another(gang) or await fits_without(()):
            return ()
        if not await fits_without(_bound_of(blocking)):
            return ()
        # No gang is released for capacity that may be free soon.
        if (doubtful := self.unresolved.pods()) and await fits_without(doubtful):
            return ()
        # 1. The last few of the queue that are enough: with more of them ``gang`` fits as well.
        too_few, enough = 0, len(blocking)
        while enough - too_few > 1:
            count = (too_few + enough) // 2
            too_few, enough = (too_few, count) if await fits_without(_bound_of(blocking[:count])) else (count, enough)
        # 2. Leave out those that aren't needed.
        needed = blocking[:enough]
        for other in blocking[: enough - 1]:
            rest = [each for each in needed if each is not other]
            if await fits_without(_bound_of(rest)):
                needed = rest
        # 3. A gang that is being released now may be gone soon, and then fewer are enough.
        asked = self._asked_now()
        for other in needed if asked else ():
            if await fits_without(_bound_of([*asked, *(each for each in needed if each is not other)])):
                return ()
        return needed

    async def _is_releasable(self, gang: Gang) -> bool:
        """Return whether the bound members of a partially bound gang can be released: a dry run of one release for each owner."""
        is_suspended = may_suspend(gang, self.gangs.records.find_partial_bind(gang.key), self.gangs.clock())
        asked = {pod.owner: pod for pod in gang.bound}.values()
        try:
            return all([await self.binder.would_go(pod, is_suspended=is_suspended) for pod in asked])
        except (ApiError, LeaseLostError):
            return False

    def _blocking(self, gang: Gang) -> Sequence[Gang]:
        """Return the partially bound gangs that may be released for ``gang``, the last in the queue first; 32 at most."""
        now, mine = self.gangs.clock(), self.gangs.records.find_partial_bind(gang.key)
        served = {partial.released_for for _, partial in self.gangs.records.partial_binds() if partial.is_going(now)}
        keys = [
            key
            for key, partial in self.gangs.records.partial_binds()
            if partial.is_kept_open
            and partial.has_timed_out(now)
            and now >= partial.unasked_until
            and not partial.is_releasing(now)
            and key not in served
        ]
        asked = sorted(
            (
                other
                for other in filter(None, map(self.gangs.registry.gang, keys))
                if other.key != gang.key
                and not run_was_whole(other, self.gangs.records.find(other.key))
                and not (mine and mine.released_for == other.key)
                and all(is_releasable(pod) for pod in other.bound)
                and (order_of(gang) < order_of(other) if gang.bound else other.priority <= gang.priority)
            ),
            key=order_of,
            reverse=True,
        )
        return asked[:_MOST_ASKED]

    def put_off(self, keys: Iterable[GangKey]) -> None:
        """Don't consider gangs for a moment, since a task acts on them, nor gangs that would be released together with them."""
        for key in keys:
            self.gangs.records.partial_bind(key).unasked_until = self.gangs.clock() + _BUSY_SECONDS

    def is_served(self, key: GangKey) -> bool:
        """Return whether partially bound gangs are being released for a gang now."""
        now = self.gangs.clock()
        return any(partial.released_for == key and partial.is_going(now) for _, partial in self.gangs.records.partial_binds())

    def _is_released_for_another(self, gang: Gang) -> bool:
        """Return whether the gang was just released for another, which is still to take the capacity: no third gang is to add to it."""
        partial = self.gangs.records.find_partial_bind(gang.key)
        return partial is not None and partial.released_for is not None and partial.is_going(self.gangs.clock())

    def _going(self) -> dict[GangKey, tuple[State, float]]:
        """Return the gangs that are being or were just released, each with its state and until when that counts."""
        now = self.gangs.clock()
        return {key: (partial.state, partial.leaving.until) for key, partial in self.gangs.records.partial_binds() if partial.is_going(now)}

    def _asked_now(self) -> list[Gang]:
        asked = [key for key, partial in self.gangs.records.partial_binds() if partial.is_releasing(self.gangs.clock())]
        return list(filter(None, map(self.gangs.registry.gang, asked)))

    def _leaving(self) -> Sequence[Pod]:
        """Return the released members that still exist, for no longer than they may be waited for."""
        now, released = (
            self.gangs.clock(),
            [(key, partial) for key, partial in self.gangs.records.partial_binds() if partial.leaving.members],
        )
        return [pod for key, partial in released if (gang := self.gangs.registry.gang(key)) for pod in leaving_of(gang, partial, now)]


def _bound_of(gangs: Iterable[Gang]) -> list[Pod]:
    """Return all bound pods of ``gangs``."""
    return [pod for gang in gangs for pod in gang.bound]


def may_suspend(gang: Gang, partial: PartialBind | None, now: float) -> bool:
    """Return whether the Jobs of a partially bound gang may be suspended now."""
    return gang.undo is Undo.SUSPEND and partial is not None and partial.has_timed_out(now)


def leaving_of(gang: Gang, partial: PartialBind, now: float) -> Sequence[Pod]:
    """Return the gang's released members that still exist; none once they are overdue."""
    leaving = partial.leaving
    here = {pod.uid for pod in gang.all_pods} if leaving.members and leaving.until > now else set()
    return [pod for pod in leaving.members if pod.uid in here]
