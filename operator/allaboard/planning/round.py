"""Runs one planning round: which of the due gangs are placed, where, and why other gangs aren't.

The scheduler's cycle, ``allaboard plan`` and ``allaboard simulate`` all call ``Round.answers``. They differ in the source of their gangs
(``Due``), and in how they carry out an answer. The cycle binds pods, a plan assigns pods in its copy of the cluster, and a simulation
starts a gang. The round alone decides which gangs are planned together, in which order they take capacity, and whether a plan is still
valid.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from allaboard.binding.outcomes import Refused as Unfit
from allaboard.binding.precheck import checked
from allaboard.model.gang import Gang, GangKey
from allaboard.placement import Plan
from allaboard.planning import min_resources
from allaboard.planning.answers import Answer, Failed, Outdated, Placed, Refused, SearchLonger
from allaboard.planning.planner import Planner
from allaboard.planning.preemption import Preemptions
from allaboard.planning.prepared import PreparedGang
from allaboard.planning.reservations import Reservations
from allaboard.planning.search_processes import SearchOverrunError
from allaboard.plugins import DEFAULT_STRATEGY
from allaboard.records.record import GangRecords
from allaboard.records.sort_key import Order

MOST_TOGETHER = 64
"""The most gangs that are planned together."""

MOST_PODS = 2000
"""The most pods that gangs planned together may have in all."""


Current = Callable[[PreparedGang], PreparedGang | None]
"""Returns the current state of a gang after its search; None if the gang no longer needs a plan."""


class Due(Protocol):
    """Gives a round the due gangs, in queue order, and facts about them. An implementation handles gangs that need no plan."""

    async def next(self) -> GangKey | None:
        """Return the first gang that is due, and remove it; None if none is due."""

    def gang(self, key: GangKey) -> Gang | None:
        """Return a gang, whether or not it can be planned; None if it is gone."""

    def resolved(self, key: GangKey) -> Gang | None:
        """Return a gang with the requirements of other objects in its pods' specs, whether or not it can be planned; None if it is gone."""

    def prepared(self, key: GangKey) -> PreparedGang | None:
        """Return the gang's current state for a search that is about to begin; None if the gang needs no plan."""

    def current(self, gang: PreparedGang) -> PreparedGang | None:
        """Return the gang's current state after its search; None if the gang no longer needs a plan."""

    def failed(self, key: GangKey, error: Exception) -> None:
        """Handle a defect that concerns one gang, so that other gangs go on; or raise ``error``."""

    def put_back(self, keys: Iterable[GangKey]) -> None:
        """Make gangs due again that were not planned."""

    def place(self, key: GangKey) -> Order:
        """Return the gang's position in the queue."""

    def usage(self, namespace: str) -> int:
        """Return how much search time a namespace has used, as a level (``queueing.search_time``)."""

    def wake(self, key: GangKey) -> None:
        """Make a gang due, since the capacity that is reserved for it is free now."""

    def is_preceded(self, key: GangKey) -> bool:
        """Return whether a gang has become due that ranks before ``key`` and needs a plan; then the round ends."""


def is_planned_alone(gang: Gang | None) -> bool:
    """Return whether a gang is planned by itself, whichever other gangs are due.

    That holds for a gang that is gone, has bound members, or lacks no member. It holds for a gang with a strategy of its own: a strategy
    places one gang at a time. It also holds for a gang whose minResources exceed its members' requests: whether the minResources are free
    depends on the gangs placed before.
    """
    if gang is None or gang.bound or not gang.missing:
        return True
    return gang.strategy != DEFAULT_STRATEGY or bool(min_resources.beyond_members(gang))


@dataclass(frozen=True, slots=True)
class Round:
    """Plans due gangs, one round at a time. ``records`` say which gangs are being finished: such gangs have no time for a long search."""

    planner: Planner
    records: GangRecords
    reservations: Reservations
    preemptions: Preemptions

    async def answers(self, due: Due) -> AsyncGenerator[Answer, None]:
        """Yield an answer for the first gang that is due, and for each gang that competes with it on equal terms.

        Carry out each answer before taking the next one: the next gang is planned around the gangs that were placed.
        """
        # 1. Recompute the reservations of gangs that were refused before, by the present facts.
        for key in await self.reservations.refresh(due.resolved):
            due.wake(key)
        # 2. Take the gangs that compete on equal terms.
        batch, places = await self._batch(due)
        # 3. Take first the gangs that surely don't fit: each may get a reservation, which binds the gangs behind it.
        first = self.reservations.surely_refused(batch.values()) if len(batch) > 1 else set()
        order = [key for key in batch if key in first]
        plans: dict[GangKey, Plan] | None = None
        is_current = True
        try:
            while batch:
                if not order and plans is None:
                    # 4. Plan together those that contend for capacity. The plans are in the order in which they take it.
                    plans = await self.planner.plan_together(list(batch.values()))
                    order, is_current = list(plans), is_current and not plans
                # 5. Plan the other gangs one by one, until a gang becomes due that ranks before them.
                key = order.pop(0) if order else min(batch, key=lambda key: (places[key].standing, due.usage(key.namespace)))
                joint = plans.get(key) if plans else None
                gang: PreparedGang | None = batch[key]
                try:
                    if due.is_preceded(key):
                        break
                    if joint is None and not is_current:
                        gang = due.prepared(key)
                except Exception as error:
                    due.failed(key, error)
                    gang = None
                del batch[key]
                is_current = False
                answer = await self._answer(due, gang, joint) if gang is not None else None
                if isinstance(answer, SearchLonger | Failed):
                    self.reservations.pause(key)
                if answer is not None:
                    yield answer
        finally:
            due.put_back(batch)

    async def conclude(self, current: Current, gang: PreparedGang, plan: Plan, *, may_search_longer: bool = False) -> Answer | None:
        """Check a plan against the present cluster, and return the answer that follows; None if the gang no longer needs a plan."""
        if plan.is_bindable:
            await self.reservations.renew(gang)
            now = current(gang)
            if now is None:
                return None
            assignments = checked(now, dict(plan.assignments), self.planner.seen_by(now))
            if isinstance(assignments, Unfit):
                return Outdated(now, assignments)
            self.planner.ledger.drop(gang.key)
            self.preemptions.forget(gang.key)
            return Placed(now, plan, assignments)
        if plan.feasible is None and may_search_longer:
            return SearchLonger(gang, plan)
        if gang.is_whole:
            return Refused(gang, plan, None)
        cause = await self.planner.cause(gang)
        reservation = await self.reservations.reserve(gang)
        return Refused(gang, plan, cause, reservation, await self.preemptions.find(gang))

    async def _batch(self, due: Due) -> tuple[dict[GangKey, PreparedGang], dict[GangKey, Order]]:
        """Return the first due gang that needs a plan, and the gangs behind it that compete on equal terms; remove all of them.

        Gangs compete on equal terms if they have the same priority, their namespaces have used about as much search time, and their tenants
        have equal shares, if these count. The second value is each gang's position in the queue.
        """
        batch: dict[GangKey, PreparedGang] = {}
        places: dict[GangKey, Order] = {}
        pods = 0
        while len(batch) < MOST_TOGETHER and (key := await due.next()) is not None:
            batch.pop(key, None)  # a gang that has changed since its removal is due again
            try:
                gang, places[key] = due.gang(key), due.place(key)
                is_alone = is_planned_alone(gang) or self.planner.ledger.find(key) is not None
                pods += len(gang.candidates) if gang else 0
                if batch and (is_alone or pods > MOST_PODS or not _are_equal(places[key], places[next(iter(batch))])):
                    due.put_back([key])
                    break
                prepared = due.prepared(key)
            except Exception as error:
                due.failed(key, error)
                continue
            if prepared is not None:
                batch[key] = prepared
                if is_alone:
                    break
        return {key: batch[key] for key in sorted(batch, key=places.__getitem__)}, places

    async def _answer(self, due: Due, gang: PreparedGang, joint: Plan | None) -> Answer | None:
        """Return the answer about one gang; ``joint`` is its plan from a joint search, None if it wasn't planned with other gangs.

        A gang for which pods were evicted is placed as planned then, if that is still possible.
        """
        may_search_longer = not self.records.is_finishing(gang.key)
        joint = joint or self.preemptions.plan_for(gang)
        try:
            if joint is not None:
                answer = await self.conclude(due.current, gang, joint)
                # A joint search ignores affinities between gangs, and evictions take a while: this plan may no longer be valid.
                if not isinstance(answer, Outdated):
                    return answer
                gang = answer.gang
            return await self.conclude(due.current, gang, await self.planner.plan(gang), may_search_longer=may_search_longer)
        except SearchOverrunError as error:
            return SearchLonger(gang, None) if may_search_longer else Failed(gang, error)
        except Exception as error:
            return Failed(gang, error)


def _are_equal(one: Order, other: Order) -> bool:
    return (one.level_key, one.usage, one.share) == (other.level_key, other.usage, other.share)
