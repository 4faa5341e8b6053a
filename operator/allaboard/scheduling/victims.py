"""Finds the partially bound gangs (victims) to release for a gang that needs their capacity: as few as possible, and none in vain."""

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

NO_VICTIM_SECONDS = 10.0
"""Seconds for which a partially bound gang that couldn't be released isn't considered as a victim again."""
_BUSY_SECONDS = 1.0
"""Seconds for which a partially bound gang isn't considered as a victim, since a task acts on it."""
_MOST_CONSIDERED = 32
"""The most partially bound gangs that are considered as victims for one gang: each costs a search."""


@dataclass(frozen=True, slots=True)
class Victims:
    """Finds victims: partially bound gangs whose capacity another gang needs. The executor releases the victims."""

    gangs: KnownGangs
    binder: Binder
    planner: Planner
    unresolved: UnresolvedBinds

    async def find(self, gang: PreparedGang, seconds: float = math.inf) -> Sequence[Gang] | None:
        """Return the gangs to release for ``gang``, which was refused; None if they aren't found within ``seconds``.

        Each victim takes searches. No gang is released for the surplus members of a whole gang.
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
        """Return the gangs to release for ``gang``, as few as possible; empty unless ``gang`` ``would_fit`` without their bound pods.

        A victim has never been whole, and its time-out has passed: a partially bound gang that blocks others is the deadlock that gang
        scheduling prevents. The rules:

        - For a gang without bound members a victim has no higher priority. Of two partially bound gangs the later in the queue is the
          victim.
        - No gang is released in vain. So there is no victim if ``gang`` fits now, fits once leaving members have gone, or fits if no
          unanswered bind takes effect. Nor is a gang released together with a gang that its Job or disruption budget keeps.
        - No gang is released for a gang that was itself just released for another gang. A gang for which another gang was just released is
          no victim.
        - A gang isn't released for a gang that was released for it.
        """

        async def fits_without(pods: Sequence[Pod]) -> bool:
            # Some of ``pods`` may be leaving, too: each pod counts once.
            gone = {pod.uid: pod for pod in chain(self._leaving(), pods)}
            return await would_fit(list(gone.values()))

        if not self._blocking(gang):
            return ()
        for _ in range(_MOST_CONSIDERED):
            releases = self._current_releases()
            needed = await self._needed_by(gang, fits_without)
            unreleasable = [other.key for other in needed if not await self._is_releasable(other)]
            for key in unreleasable:
                self.gangs.records.partial_bind(key).no_victim_until = self.gangs.clock() + NO_VICTIM_SECONDS
            if not unreleasable and releases == self._current_releases():
                # The searches and requests took a while, in which bound or assumed capacity may have been freed.
                if needed and await fits_without(()):
                    return ()
                # A gang that has become whole during the searches is no longer partially bound.
                still = {other.key: other for other in self._blocking(gang)}
                return [still[other.key] for other in needed] if all(other.key in still for other in needed) else ()
        return ()

    async def _needed_by(self, gang: Gang, fits_without: Callable[[Sequence[Pod]], Awaitable[bool]]) -> Sequence[Gang]:
        """Return the partially bound gangs without which ``gang`` would fit: as few as possible, the last in the queue first."""
        blocking = self._blocking(gang)
        if not blocking or self._is_released_for_another(gang) or await fits_without(()):
            return ()
        if not await fits_without(_bound_of(blocking)):
            return ()
        # No gang is released for capacity that may be free soon.
        if (doubtful := self.unresolved.pods()) and await fits_without(doubtful):
            return ()
        # 1. Find how many of the last in the queue are enough, by bisection: with more of them ``gang`` fits as well.
        too_few, enough = 0, len(blocking)
        while enough - too_few > 1:
            count = (too_few + enough) // 2
            too_few, enough = (too_few, count) if await fits_without(_bound_of(blocking[:count])) else (count, enough)
        # 2. Leave out each gang that isn't needed.
        needed = blocking[:enough]
        for other in blocking[: enough - 1]:
            rest = [each for each in needed if each is not other]
            if await fits_without(_bound_of(rest)):
                needed = rest
        # 3. If fewer are enough once a release that is in progress has ended, wait for that release.
        in_release = self._in_release()
        for other in needed if in_release else ():
            if await fits_without(_bound_of([*in_release, *(each for each in needed if each is not other)])):
                return ()
        return needed

    async def _is_releasable(self, gang: Gang) -> bool:
        """Return whether the bound members of a partially bound gang can be released, by a dry run of one release for each owner."""
        is_suspended = may_suspend(gang, self.gangs.records.find_partial_bind(gang.key), self.gangs.clock())
        samples = {pod.owner: pod for pod in gang.bound}.values()
        try:
            return all([await self.binder.would_go(pod, is_suspended=is_suspended) for pod in samples])
        except (ApiError, LeaseLostError):
            return False

    def _blocking(self, gang: Gang) -> Sequence[Gang]:
        """Return the partially bound gangs that may be released for ``gang``: 32 at most, the last in the queue first."""
        now, mine = self.gangs.clock(), self.gangs.records.find_partial_bind(gang.key)
        served = {partial.released_for for _, partial in self.gangs.records.partial_binds() if partial.is_going(now)}
        keys = [
            key
            for key, partial in self.gangs.records.partial_binds()
            if partial.is_kept_open
            and partial.has_timed_out(now)
            and now >= partial.no_victim_until
            and not partial.is_releasing(now)
            and key not in served
        ]
        blocking = sorted(
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
        return blocking[:_MOST_CONSIDERED]

    def skip_for_a_moment(self, keys: Iterable[GangKey]) -> None:
        """Don't consider gangs as victims for a second, since a task acts on each of them."""
        for key in keys:
            self.gangs.records.partial_bind(key).no_victim_until = self.gangs.clock() + _BUSY_SECONDS

    def are_being_released_for(self, key: GangKey) -> bool:
        """Return whether partially bound gangs are being released, or were just released, for a gang."""
        now = self.gangs.clock()
        return any(partial.released_for == key and partial.is_going(now) for _, partial in self.gangs.records.partial_binds())

    def _is_released_for_another(self, gang: Gang) -> bool:
        """Return whether the gang was just released for another gang, which has yet to take the capacity."""
        partial = self.gangs.records.find_partial_bind(gang.key)
        return partial is not None and partial.released_for is not None and partial.is_going(self.gangs.clock())

    def _current_releases(self) -> dict[GangKey, tuple[State, float]]:
        """Return the gangs in release or just released, each with its state and the time until which released members count as leaving."""
        now = self.gangs.clock()
        return {key: (partial.state, partial.leaving.until) for key, partial in self.gangs.records.partial_binds() if partial.is_going(now)}

    def _in_release(self) -> list[Gang]:
        """Return the gangs whose release is in progress."""
        keys = [key for key, partial in self.gangs.records.partial_binds() if partial.is_releasing(self.gangs.clock())]
        return list(filter(None, map(self.gangs.registry.gang, keys)))

    def _leaving(self) -> Sequence[Pod]:
        """Return the released members that still exist; members whose departure is overdue don't count."""
        now, released = (
            self.gangs.clock(),
            [(key, partial) for key, partial in self.gangs.records.partial_binds() if partial.leaving.members],
        )
        return [pod for key, partial in released if (gang := self.gangs.registry.gang(key)) for pod in leaving_of(gang, partial, now)]


def _bound_of(gangs: Iterable[Gang]) -> list[Pod]:
    """Return all bound pods of ``gangs``."""
    return [pod for gang in gangs for pod in gang.bound]


def may_suspend(gang: Gang, partial: PartialBind | None, now: float) -> bool:
    """Return whether the Jobs of a partially bound gang may be suspended now: the gang asks for that, and its time-out is over."""
    return gang.undo is Undo.SUSPEND and partial is not None and partial.has_timed_out(now)


def leaving_of(gang: Gang, partial: PartialBind, now: float) -> Sequence[Pod]:
    """Return the gang's released members that still exist; empty once their departure is overdue."""
    leaving = partial.leaving
    here = {pod.uid for pod in gang.all_pods} if leaving.members and leaving.until > now else set()
    return [pod for pod in leaving.members if pod.uid in here]
