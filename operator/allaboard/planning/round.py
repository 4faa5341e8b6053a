"""One planning round: which of the due gangs are placed, where, and why the others aren't.

The scheduler's cycle, ``allaboard plan`` and ``allaboard simulate`` all call ``Round.answers``. They differ in where gangs come from
(``Due``), and in what they do with an answer: the cycle binds pods, a plan assigns them in its copy of the cluster, and a simulation starts
a gang. Only the round decides which gangs are planned together, in which order they take capacity, and what a plan is worth.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from allaboard.binding.outcomes import Refused as Unfit
from allaboard.binding.precheck import checked
from allaboard.model.gang import Gang, GangKey
from allaboard.placement import Plan
from allaboard.planning import min_resources
from allaboard.planning.answers import Answer, Failed, Outdated, Placed, Refused, SearchLonger
from allaboard.planning.planner import Planner
from allaboard.planning.prepared import PreparedGang
from allaboard.planning.search_processes import SearchOverrunError
from allaboard.plugins import DEFAULT_STRATEGY
from allaboard.records.record import GangRecords
from allaboard.records.sort_key import Order

MOST_TOGETHER = 64
"""The most gangs that are planned together."""

MOST_PODS = 2000
"""The most pods of gangs that are planned together."""


Current = Callable[[PreparedGang], PreparedGang | None]
"""Returns the current state of a gang, after its search; None if it needs no plan any more."""


class Due(Protocol):
    """The gangs that are due, in queue order, and what is known of each. An implementation does what needs no plan."""

    async def next(self) -> GangKey | None:
        """Return the first gang that is due, and remove it; None if none is due."""

    def gang(self, key: GangKey) -> Gang | None:
        """Return a gang without preparation; None if it is gone."""

    def prepared(self, key: GangKey) -> PreparedGang | None:
        """Return the gang's current state for a search that is about to begin; None if it needs no plan."""

    def current(self, gang: PreparedGang) -> PreparedGang | None:
        """Return the gang's current state after its search; None if it needs no plan any more."""

    def failed(self, key: GangKey, error: Exception) -> None:
        """Handle an error of ours about one gang, so that the others go on; or raise it."""

    def put_back(self, keys: Iterable[GangKey]) -> None:
        """Make gangs due again that were not planned."""

    def place(self, key: GangKey) -> Order:
        """Return the gang's place in the queue."""

    def usage(self, namespace: str) -> int:
        """Return how much search time a namespace has used, as a level (``queueing.search_time``)."""

    def is_preceded(self, key: GangKey) -> bool:
        """Return whether a gang has become due that ranks before ``key`` and needs a plan: then the round ends."""


def goes_alone(gang: Gang | None) -> bool:
    """Return whether a gang is planned by itself, whichever others are due.

    A gang is if it is gone, has bound members, or lacks none. So is a gang with a strategy of its own, which places one gang at a time. So
    is a gang whose minResources ask for more than its members do, which depends on what other gangs leave.
    """
    if gang is None or gang.bound or not gang.missing:
        return True
    return gang.strategy != DEFAULT_STRATEGY or bool(min_resources.beyond_members(gang))


@dataclass(frozen=True, slots=True)
class Round:
    """Plans the gangs that are due. ``records`` give the gangs that are being finished, and have no time for a long search."""

    planner: Planner
    records: GangRecords

    async def answers(self, due: Due) -> AsyncGenerator[Answer, None]:
        """Yield an answer for the first gang that is due, and for those that compete with it on equal terms.

        Carry out each answer before asking for the next: the next gang is planned around the gangs that were placed.
        """
        # 1. Which gangs are planned together?
        batch, places = await self._batch(due)
        # 2. Those that contend for capacity are; the plans are in the order in which they take it.
        plans, overtaken = await self.planner.plan_together(list(batch.values()))
        # 3. The others are planned one by one, unless a gang becomes due that ranks before them.
        order, is_known, is_turn = list(plans), not plans, True
        try:
            while batch:
                key = order.pop(0) if order else min(batch, key=lambda key: (places[key].standing, due.usage(key.namespace)))
                gang: PreparedGang | None = batch[key]
                try:
                    if due.is_preceded(key):
                        break
                    if key not in plans and not is_known:
                        gang = due.prepared(key)
                except Exception as error:
                    due.failed(key, error)
                    gang = None
                del batch[key]
                is_known = False
                answer = await self._answer(due, gang, plans.get(key)) if gang is not None else None
                if isinstance(answer, Placed):
                    answer = replace(answer, is_turn=is_turn or key not in plans, overtaken=overtaken)
                    is_turn, overtaken = False, []
                if answer is not None:
                    yield answer
        finally:
            due.put_back(batch)

    async def conclude(self, current: Current, gang: PreparedGang, plan: Plan, *, may_search_longer: bool = False) -> Answer | None:
        """Return the answer that a plan leads to now; None if the gang needs no plan any more."""
        if plan.is_bindable:
            now = current(gang)
            if now is None:
                return None
            assignments = checked(now, dict(plan.assignments), self.planner.cluster)
            return Outdated(now, assignments) if isinstance(assignments, Unfit) else Placed(now, plan, assignments)
        if plan.feasible is None and may_search_longer:
            return SearchLonger(gang, plan)
        return Refused(gang, plan, None if gang.is_whole else await self.planner.cause(gang))

    async def _batch(self, due: Due) -> tuple[dict[GangKey, PreparedGang], dict[GangKey, Order]]:
        """Return the first gang that is due and needs a plan, with the gangs behind it that compete on equal terms; remove them.

        These have the same priority, and their namespaces have used about as much search time. Return their places, too.
        """
        batch: dict[GangKey, PreparedGang] = {}
        places: dict[GangKey, Order] = {}
        pods = 0
        while len(batch) < MOST_TOGETHER and (key := await due.next()) is not None:
            batch.pop(key, None)  # a gang that has changed since it was removed is due again
            try:
                gang, places[key] = due.gang(key), due.place(key)
                is_alone = goes_alone(gang)
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
        """Plan one gang; ``joint`` is its plan if it was planned with others."""
        may_search_longer = not self.records.is_finishing(gang.key)
        try:
            if joint is not None:
                answer = await self.conclude(due.current, gang, joint)
                # A joint search ignores affinities between gangs: the first may have taken what was planned for the others.
                if not isinstance(answer, Outdated):
                    return answer
                gang = answer.gang
            return await self.conclude(due.current, gang, await self.planner.plan(gang), may_search_longer=may_search_longer)
        except SearchOverrunError as error:
            return SearchLonger(gang, None) if may_search_longer else Failed(gang, error)
        except Exception as error:
            return Failed(gang, error)


def _are_equal(one: Order, other: Order) -> bool:
    return (one.level_key, one.usage) == (other.level_key, other.usage)
