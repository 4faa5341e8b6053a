"""Takes due gangs from the queue for the planning round, and handles the gangs that need no search.

The steps of an attempt, from the queue to the report:

1. The gang is taken from the queue, and its current state is read (``DueGangs.prepared``).
2. ``decide.before_search``: the gang waits, is released, or needs a search.
3. The planning round searches for a placement (``planning.round``), together with the gangs that contend for the same capacity.
4. ``decide.after_search``: the members are bound, a longer search follows, or the gang is released or waits.
5. The transaction binds all members or none (``binding.transaction``), beside the next search.
6. ``decide.after_bind``: the gang is whole, is finished, stays partially bound, or its members are released.
7. The result is reported, and the gang goes back to the queue (``execute.Executor``).
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from allaboard.binding.reasons import LostSoon, MembersMissing
from allaboard.model.gang import Gang, GangKey
from allaboard.planning.known_gangs import KnownGangs
from allaboard.planning.long_searches import LongSearches
from allaboard.planning.prepared import PreparedGang, prepared
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.ranks import Ranks
from allaboard.queueing.requeue import Requeue
from allaboard.records.sort_key import Order
from allaboard.runtime.slices import Slices
from allaboard.scheduling.attempt import Attempt
from allaboard.scheduling.decide import FenceOff, Search, Wait, before_search
from allaboard.scheduling.execute import Executor
from allaboard.scheduling.tasks import GangTasks
from allaboard.scheduling.unresolved_binds import UnresolvedBinds

_BEHIND_SECONDS = 30.0  # the longest wait for the watch to deliver the members that were just bound


@dataclass(slots=True)
class DueGangs:
    """The gangs of the queue that are due, for the planning round.

    ``attempts`` holds the attempts at the gangs of the current round.
    """

    gangs: KnownGangs
    queue: GangQueue
    ranks: Ranks
    tasks: GangTasks
    long: LongSearches
    unresolved: UnresolvedBinds
    executor: Executor
    attempts: dict[GangKey, Attempt] = field(default_factory=dict)
    _ended_for: set[GangKey] = field(default_factory=set)
    """The gangs for which a round has ended early; empty again once another gang goes on to its search."""
    _slices: Slices = field(init=False)

    def __post_init__(self) -> None:
        self._slices = Slices(self.gangs.clock)

    def begin_round(self) -> None:
        """Forget the attempts of the last round."""
        self.attempts.clear()
        self._slices = Slices(self.gangs.clock)

    def begin_cycle(self) -> None:
        """Forget for which gangs a round has ended early."""
        self._ended_for.clear()

    async def next(self) -> GangKey | None:
        """Return the first gang that is due, and remove it; None if none is due.

        A gang with a running task is left out. It is due again when the task ends.
        """
        while (key := self.queue.pop()) is not None:
            if key not in self.tasks:
                await self._slices.give_way()
                return key
            self.attempt(key)  # defers the gang
            await asyncio.sleep(0)
        return None

    def gang(self, key: GangKey) -> Gang | None:
        """Return a gang, whether or not it can be planned; None if it is gone."""
        return self.gangs.registry.gang(key)

    def resolved(self, key: GangKey) -> Gang | None:
        """Return a gang with the requirements of other objects in its pods' specs; None if it is gone."""
        return self.gangs.current(key)

    def prepared(self, key: GangKey) -> PreparedGang | None:
        """Begin an attempt at a gang, and return the gang's current state for a search; None if no search is needed.

        A gang that needs no search is handled here.
        """
        attempt = self.attempt(key)
        if attempt is None:
            self.attempts.pop(key, None)
            return None
        self.attempts[key] = attempt
        return prepared(attempt.gang)

    def current(self, gang: PreparedGang) -> PreparedGang | None:
        """Return the gang's current state after its search.

        If the plan can't be used, since a task acts on the gang or the gang has changed, make the gang due again and return None.
        """
        if gang.key in self.tasks:
            self.tasks.defer(gang.key)
            return None
        return self.current_for_task(gang)

    def current_for_task(self, gang: PreparedGang) -> PreparedGang | None:
        """Return the gang's current state as ``current`` does, for the task that acts on the gang: that task can use the plan itself."""
        now = self.gangs.current(gang.key)
        if now is None or not now.can_act:
            self.queue.mark(gang.key)
            return None
        return prepared(now)

    def failed(self, key: GangKey, error: Exception) -> None:
        """Report a defect that concerns one gang, and retry the gang later."""
        self.attempts.pop(key, None)
        self.executor.handle_defect(key, error)

    def put_back(self, keys: Iterable[GangKey]) -> None:
        """Make gangs due again that were not planned."""
        self.queue.put_back(keys)

    def place(self, key: GangKey) -> Order:
        """Return the gang's position in the queue."""
        return self.ranks.place(key)

    def usage(self, namespace: str) -> int:
        """Return how much search time a namespace has used, as a level (``queueing.search_time``)."""
        return self.ranks.shares.level(namespace)

    def wake(self, key: GangKey) -> None:
        """Make a gang due, since the capacity that is reserved for it is free now."""
        if key not in self.tasks:
            self.queue.wake(key)

    def is_preceded(self, key: GangKey) -> bool:
        """Return whether a gang has become due that ranks before ``key`` and needs a search: then the round ends.

        Gangs that rank before ``key`` and need no search are handled here. A gang ends no second round before another gang was attempted.
        Otherwise the plans of each round could be discarded for the same gang.
        """
        while self.queue.outranks(key) and (first := self.queue.pop(beside=key)):
            if self.attempt(first) is not None:
                self.queue.put_back([first])
                if first not in self._ended_for:
                    self._ended_for.add(first)
                    return True
                break
        if key not in self._ended_for:
            self._ended_for.clear()
        return False

    def is_outranked(self, key: GangKey) -> bool:
        """Return whether a gang that is due or in the current round ranks before ``key`` by more than age."""
        mine = self.ranks.place(key).rank_key
        return any(self.ranks.place(other).rank_key < mine for other in self.attempts) or self.queue.outranks(key)

    def attempt(self, key: GangKey) -> Attempt | None:
        """Begin an attempt at a gang. Return None if the gang needs no search; then the gang has been handled."""
        self.long.leave(key)
        if key in self.tasks:
            if self.long.is_searching(key) and not self._needs_search(key):
                self.long.abandon(key)
            self.tasks.defer(key)
            return None
        try:
            return self._attempt(key)
        except Exception as error:
            self.executor.handle_defect(key, error)
            return None

    def _attempt(self, key: GangKey) -> Attempt | None:
        # 1. Read the current state of the gang.
        gang = self.gangs.current(key)
        if gang is None:
            self.executor.forget(key)
            return None
        if self.unresolved.is_behind(gang):
            self.queue.requeue(key, Requeue.again(_BEHIND_SECONDS))  # mostly the watch makes the gang due long before
            return None
        attempt = Attempt(gang, self.gangs.clock(), self.queue.changes, self.ranks.shares.used(key.namespace))
        if older := self.unresolved.older(gang):
            self.executor.carry_out(attempt, FenceOff(older))
            return None
        if self.executor.observe(gang):
            return None
        # 2. Decide what to do before a search.
        decision = before_search(gang, self.gangs.records.find_partial_bind(key), self.gangs.clock(), self._lost_soon(gang))
        self.executor.carry_out(attempt, decision)
        return attempt if decision == Search() else None

    def _lost_soon(self, gang: Gang) -> LostSoon | None:
        """Return how often members were lost soon after their bind, and until when the gang backs off for that; None without a backoff."""
        until, losses = self.gangs.losses.back_off(gang)
        return LostSoon(losses, self.gangs.losses.backoff.after(losses), until) if self.gangs.clock() < until else None

    def _needs_search(self, key: GangKey) -> bool:
        """Return whether a gang still needs its search, and nothing else first."""
        gang = self.gangs.registry.gang(key)
        if gang is None or not gang.candidates:
            return False
        decision = before_search(gang, self.gangs.records.find_partial_bind(key), self.gangs.clock())
        return decision == Search() or decision == Wait(MembersMissing())
