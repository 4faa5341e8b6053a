"""Finds the pods to evict for a gang that fits in no other way: of gangs with lower priority, and as few as possible.

Nothing is evicted in vain. So a gang preempts only if a search has placed all its missing members in the cluster as it will be without the
victims. The gang doesn't preempt while it would fit once pods have gone that are leaving already. What a preemption has begun is finished
or left: while marked victims of an earlier leader still run, no other pods are evicted for the gang.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from allaboard.cluster.budgets import Budget
from allaboard.cluster.reservations import MOST_NAMED, Awaited, Reservation, after, amounts_of
from allaboard.cluster.running import LEAVING_SECONDS, Basis
from allaboard.model.disruption import mark_of
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.model.walltime import end_of
from allaboard.placement import NodeFilters, Plan
from allaboard.placement.remedies.emptied_problem import EmptiedProblem, emptied_problem_of
from allaboard.placement.rules.members import rules_of
from allaboard.planning.evictable import PREEMPTION, EvictablePods, PreemptionSettings, Victim, evictable_pods, foreign_gang_of, may_preempt
from allaboard.planning.gang_problem import problem_of, size_of
from allaboard.planning.planner import MOST_CELLS, Planner
from allaboard.planning.prepared import PreparedGang
from allaboard.planning.search_processes import SearchError
from allaboard.runtime.slices import Slices

_PAUSE_RATIO = 5.0  # The pause after a search that found no victims, in multiples of the time that the search took.
_KEPT_SECONDS = 60.0  # The time for which a gang isn't considered as a victim, since its pods could not be evicted.


@dataclass(frozen=True, slots=True)
class Preemption:
    """The pods to evict for a gang, and the gang's placement once they are gone.

    ``reservation`` keeps the capacity of this placement for the gang until it is bound.
    """

    victims: Sequence[Victim]
    plan: Plan
    reservation: Reservation

    @property
    def pods(self) -> list[Pod]:
        """The pods of all victims."""
        return list(chain.from_iterable(victim.pods for victim in self.victims))


@dataclass(slots=True)
class Preemptions:
    """Finds victims for refused gangs.

    ``running`` returns the gangs with bound pods. ``waited`` returns for how many seconds a gang has waited for capacity. ``budgets_of``
    returns the disruption budgets that protect a pod. ``foreign`` returns the pods of other schedulers. ``tolerates`` returns
    whether the owner of a pod tolerates its eviction.
    """

    planner: Planner
    running: Callable[[], Iterable[Gang]]
    waited: Callable[[GangKey], float]
    settings: PreemptionSettings = PREEMPTION
    budgets_of: Callable[[Pod], Sequence[Budget]] = lambda pod: ()
    foreign: Callable[[], Iterable[Pod]] = lambda: ()
    tolerates: Callable[[Pod], bool] = lambda pod: True
    _filters: NodeFilters = field(default_factory=NodeFilters)
    _plans: dict[GangKey, Plan] = field(default_factory=dict)
    """The placements of gangs for which pods are being evicted."""
    _paused_until: dict[GangKey, float] = field(default_factory=dict)
    """The time, on the clock, until which no victims are sought for a gang."""
    _kept_until: dict[GangKey, float] = field(default_factory=dict)
    """The time, on the clock, until which a gang isn't considered as a victim."""

    async def find(self, gang: PreparedGang) -> Preemption | None:
        """Return the pods to evict for a gang that was just refused; None if there are none, or if none may be evicted now."""
        clock = self.planner.costs.clock
        if not may_preempt(gang, self.settings) or clock() < self._paused_until.get(gang.key, -math.inf):
            return None
        if self.waited(gang.key) < self.settings.delay_seconds or self._is_waiting_for_victims(gang):
            return None
        began, found = clock(), None
        with suppress(SearchError):
            found = await self._found(gang)
        if found is None:
            self.forget(gang.key)
            self._paused_until[gang.key] = clock() + _PAUSE_RATIO * (clock() - began)
        return found

    def begin(self, preemption: Preemption) -> None:
        """Reserve the capacity of the gang's placement, since its victims are evicted now."""
        ledger, reservation = self.planner.ledger, preemption.reservation
        self._plans[reservation.owner] = preemption.plan
        ledger.replace_all([*(each for each in ledger.reservations if each.owner != reservation.owner), reservation])

    def give_up(self, key: GangKey, keeping: Iterable[Gang] = ()) -> None:
        """Give up the capacity that is reserved for a gang. The gangs ``keeping`` their pods aren't considered as victims for a while."""
        self.forget(key)
        self.planner.ledger.drop(key)
        now = self.planner.costs.clock()
        self._kept_until = {other: until for other, until in self._kept_until.items() if until > now}
        self._kept_until.update((gang.key, now + _KEPT_SECONDS) for gang in keeping)

    def forget(self, key: GangKey) -> None:
        """Forget the placement of a gang that is bound, gone, or placed otherwise."""
        self._plans.pop(key, None)
        self._paused_until.pop(key, None)

    def plan_for(self, gang: Gang) -> Plan | None:
        """Return the placement for which pods were evicted, if these are all gone and the gang's pods are the same; None otherwise."""
        plan, held = self._plans.get(gang.key), self.planner.ledger.find(gang.key)
        if plan is None or held is None or self._is_waiting_for_victims(gang):
            return None
        return plan if {uid for uid, _ in plan.assignments} <= {pod.uid for pod in gang.candidates} else None

    def _is_waiting_for_victims(self, gang: Gang) -> bool:
        """Return whether pods that are evicted for the gang are still there."""
        ledger = self.planner.ledger
        return ledger.awaits_victims(ledger.find(gang.key))

    async def _found(self, gang: PreparedGang) -> Preemption | None:
        # 1. Is there a gang that may lose pods at all?
        others, leaving = await self._below(gang)
        if not others:
            return None
        await asyncio.sleep(0)  # the next steps compute for some milliseconds, too
        # 2. Does the gang fit once the pods are gone that are leaving already?
        cluster = self._soon(gang).without(leaving)
        if size_of(gang, len(cluster.nodes)) > MOST_CELLS // 2:
            return None  # building the problem would block the event loop
        if (await self.planner.plan_on(gang, cluster)).feasible:
            return None
        # 3. Which pods cost least, and does a search place the whole gang once they are gone?
        problem = problem_of(gang, gang.least, cluster, self._filters, self.planner.packings.of(gang))
        emptied = emptied_problem_of(problem, gang.candidates, cluster, (), rules_of(gang), self._filters)
        for candidates in others:
            evictable = await evictable_pods(gang, emptied.problem, candidates, self.budgets_of, self.planner.ledger.now(), self.settings)
            if evictable.gangs and (found := await self._chosen(gang, emptied, evictable, cluster)) is not None:
                return found
        return None

    async def _chosen(self, gang: PreparedGang, emptied: EmptiedProblem, evictable: EvictablePods, cluster: Snapshot) -> Preemption | None:
        """Return the pods of ``evictable`` that cost least, if the whole gang is placed in ``cluster`` without them; None otherwise."""
        choice = await self.planner.searcher.choose_victims(emptied, evictable.arrays)
        if choice is None or not choice.taken.any():
            return None
        victims = evictable.victims(choice.taken.tolist())
        gone = list(chain.from_iterable(victim.pods for victim in victims))
        plan = await self.planner.plan_on(gang, cluster.without(gone))
        if not (plan.feasible and plan.is_bindable):
            return None
        return Preemption(victims, plan, self._reservation(gang, plan, gone))

    async def _below(self, gang: Gang) -> tuple[Sequence[Sequence[Gang]], Sequence[Pod]]:
        """Return the gangs of lower priority that may lose pods for ``gang``, and the pods that are evicted already.

        Pods that are evicted count as gone, although they may not be terminating yet. If an earlier leader has marked pods for ``gang``,
        their gangs are returned first, alone: what that leader has begun is finished if that is enough.
        """
        going = frozenset(chain.from_iterable(each.victims for each in self.planner.ledger.reservations))
        others, leaving = list[Gang](), list[Pod]()
        async for other in self._candidates():
            if going and (evicted := [pod for pod in other.bound_in_all_runs if pod.uid in going]):
                leaving += evicted
                other = _without(other, going)
            if other.priority >= gang.priority or not other.bound_in_all_runs or self._is_kept(other):
                continue
            if all(map(self.tolerates, other.bound_in_all_runs)):
                others.append(other)
        mark = mark_of(gang.key.namespace, gang.key.name)
        marked = [other for other in others if any(pod.evicted_for == mark for pod in other.bound_in_all_runs)]
        return [each for each in (marked, others) if each], leaving

    async def _candidates(self) -> AsyncIterator[Gang]:
        """Yield the gangs with bound pods, and each pod of another scheduler that may be evicted, as a gang of one."""
        slices = Slices()
        for gang in list(self.running()):
            await slices.give_way()
            yield gang
        for pod in list(self.foreign()) if self.settings.others else ():
            await slices.give_way()
            if (single := foreign_gang_of(pod)) is not None:
                yield single

    def _is_kept(self, gang: Gang) -> bool:
        """Return whether a gang isn't considered as a victim: its pods couldn't be evicted, or a task binds or releases them now."""
        record = self.planner.records.find(gang.key)
        is_busy = record is not None and record.task is not None
        return is_busy or self.planner.costs.clock() < self._kept_until.get(gang.key, -math.inf)

    def _soon(self, gang: Gang) -> Snapshot:
        """Return the cluster as ``gang`` may use it once the pods have ended that end within half a minute."""
        ledger, snapshot = self.planner.ledger, self.planner.cluster.snapshot(gang.priority)
        departures, applicant, begins = ledger.departures(snapshot), ledger.applicant(gang), ledger.now() + LEAVING_SECONDS
        return after(departures.number_by(begins), departures, snapshot, applicant, ledger.binding(applicant), begins)

    def _reservation(self, gang: PreparedGang, plan: Plan, gone: Iterable[Pod]) -> Reservation:
        specs, ledger = {pod.uid: pod.spec for pod in gang.candidates}, self.planner.ledger
        amounts, parts = amounts_of([(specs[uid], node) for uid, node in plan.assignments])
        begins, gone = ledger.now() + LEAVING_SECONDS, tuple(gone)
        victims = frozenset(pod.uid for pod in gone)
        return Reservation(
            owner=gang.key,
            order=ledger.place(gang.key),
            priority=gang.priority,
            amounts=amounts,
            parts=parts,
            begins=begins,
            ends=end_of(begins, gang.walltime),
            basis=Basis.STATED,
            awaited=len(victims),
            takes_effect=-math.inf,
            victims=victims,
            last_awaited=tuple(Awaited(pod.uid, pod.node_name, begins, Basis.STATED) for pod in gone[:MOST_NAMED]),
        )


def _without(gang: Gang, going: frozenset[str]) -> Gang:
    """Return ``gang`` without the pods ``going``, which are evicted already."""
    members = tuple(pod for pod in gang.members if pod.uid not in going)
    return replace(gang, members=members, others=tuple(pod for pod in gang.others if pod.uid not in going))
