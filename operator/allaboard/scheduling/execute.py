"""What is decided about a gang is carried out here: by the queue, by tasks beside the cycle, and by what is told.

``decide`` says what is to be done at a look, with a plan, and when there is no room; each answer has its place in a ``match`` below (but
``MAKE_WAY``, which ``cycle`` has carried out first, since another answer comes of it). How the answers to binds end an attempt is in
``outcomes``.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from allaboard.binding.bind import Binder
from allaboard.binding.outcomes import Committed, Refused
from allaboard.binding.transaction import DryRun, Transaction, begin
from allaboard.cluster.view import ClusterView
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.placement import Plan
from allaboard.planning.long_searches import LongSearches, SearchAbandonedError
from allaboard.planning.planner import Planner
from allaboard.planning.search_processes import SearchError, SearchOverrunError
from allaboard.queueing.order import wakes_up_on
from allaboard.queueing.queue import GangQueue
from allaboard.records.record import GangRecords
from allaboard.records.sort_key import Order
from allaboard.records.waiting import WaitClock
from allaboard.records.wake_up import ANYTHING
from allaboard.report import messages
from allaboard.report.reporter import Reporter
from allaboard.scheduling.decide import Found, Look, is_enough, when_nowhere
from allaboard.scheduling.freshness import until_fresh
from allaboard.scheduling.outcomes import Attempt, Outcomes
from allaboard.scheduling.partial_binds import PartialBinds
from allaboard.scheduling.run_history import run_was_whole
from allaboard.scheduling.tasks import GangTasks
from allaboard.scheduling.unresolved_binds import UnresolvedBinds
from allaboard.scheduling.victims import Victims

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 0.02  # after which the watch has told what had changed
_LET_PASS_SECONDS = 2.0


@dataclass(slots=True)
class Executor:
    """Carries out decisions. ``look`` gives a gang as it stands, ``prepared`` what is to be decided about one, as the cycle does."""

    view: ClusterView
    records: GangRecords
    queue: GangQueue
    binder: Binder
    reporter: Reporter
    waits: WaitClock
    planner: Planner
    partial_binds: PartialBinds
    victims: Victims
    outcomes: Outcomes
    tasks: GangTasks
    late: UnresolvedBinds
    long: LongSearches
    place: Callable[[GangKey], Order]
    look: Callable[[GangKey], Gang | None]
    prepared: Callable[[GangKey], Attempt | None]
    is_preceded: Callable[[GangKey], bool]
    dry_run: DryRun
    is_fresh: Callable[[], bool]
    clock: Callable[[], float]

    def on_look(self, attempt: Attempt, look: Look) -> bool:
        """Do what a look comes to; returns whether seats are to be found."""
        gang, key = attempt.gang, attempt.gang.key
        match look:
            case Look.UNDO:
                self.tasks.start(key, self.partial_binds.undo_overdue(gang))
            case Look.GIVE_UP:
                self.tasks.start(key, self.partial_binds.give_up(gang))
            case Look.RESTART_JOBS:
                self.tasks.start(key, self.partial_binds.restart_jobs(gang))
            case Look.HOLD if gang.hold:
                self.outcomes.held(attempt, gang.hold)
            case Look.REST:
                self.outcomes.rests(gang)
            case Look.AWAIT_MEMBERS:
                self.outcomes.awaits_members(gang)
            case Look.BACK_OFF:
                self.outcomes.backs_off(attempt)
            case Look.PLACE:
                if gang.missing:
                    self.waits.of(gang)
                return True
        return False

    async def on_error(self, attempt: Attempt, error: SearchError) -> None:
        """A short search has failed; one that took too long is begun anew beside the others, unless the gang has no time for that."""
        if isinstance(error, SearchOverrunError) and attempt.gang.key not in self.partial_binds:
            await self._search_longer(attempt, None)
        else:
            self.outcomes.failed(attempt, str(error))

    async def on_found(self, attempt: Attempt, plan: Plan, found: Found, *, is_alone: bool) -> None:
        """Do what a plan is good for; ``is_alone`` if it wasn't made together with others'."""
        gang, key = attempt.gang, attempt.gang.key
        match found:
            case Found.SEARCH_LONGER:
                await self._search_longer(attempt, plan)
            case Found.UNDO:
                self.tasks.start(key, self.partial_binds.undo(gang, gang.bound, messages.refusal(gang, plan)))
            case Found.GIVE_UP:
                self.tasks.start(key, self.partial_binds.give_up(gang))
            case Found.RESTART_JOBS:
                self.tasks.start(key, self.partial_binds.restart_jobs(gang))
            case Found.REFUSE:
                await self._refuse(attempt, plan)
            case Found.BIND if transaction := self._promised(attempt, plan):
                if is_alone:
                    self.queue.seated(key)
                self.tasks.start(key, self._commit(attempt, plan, transaction))

    async def make_way(self, gang: Gang, seconds: float) -> Found:
        """There is no room for ``gang``: half gangs may make way, if that can be found out in so long; what is to be done then."""
        return self._when_nowhere(gang, is_settled=await self._make_way(gang, seconds))

    def start_long_search(self) -> None:
        """Begin the long search whose turn it is, unless one is going on."""
        while (key := self.long.next()) is not None:
            if (attempt := self.prepared(key)) is not None:
                self.tasks.start(key, self._at_length(attempt))
                return
            self.long.done(key)

    def _when_nowhere(self, gang: Gang, *, is_settled: bool) -> Found:
        half, is_served = self.records.find_partial_bind(gang.key), self.victims.is_served(gang.key)
        return when_nowhere(gang, half, self.clock(), is_settled=is_settled, is_served=is_served)

    def _promised(self, attempt: Attempt, plan: Plan) -> Transaction | None:
        """The transaction that binds ``plan``, its seats promised; ``None`` when it doesn't hold any more: then it is looked at again."""
        key = attempt.gang.key
        fresh = self.look(key)
        if fresh is None or fresh.hold:
            self.queue.mark(key)
            return None
        attempt.gang = fresh
        # After an undo every member is tried beforehand: one pod that is refused would undo the gang for ever.
        dry_run: DryRun = "all" if self.partial_binds.was_undone(key) else self.dry_run
        look = partial(self.look, key)
        was_whole = run_was_whole(fresh, self.records.find(key))
        transaction = begin(fresh, dict(plan.assignments), self.view, self.binder, look, dry_run, was_whole=was_whole)
        if isinstance(transaction, Refused):
            logger.info("gang %s: %s; looking again", key, messages.not_bound(transaction))
            self.queue.retry(key, _LOOK_AGAIN_SECONDS)
            return None
        return transaction

    async def _refuse(self, attempt: Attempt, plan: Plan) -> None:
        why = None if attempt.gang.is_whole else await self.planner.cause(attempt.gang)
        self.outcomes.refused(attempt, plan, why)

    async def _search_longer(self, attempt: Attempt, plan: Plan | None) -> None:
        """Neither seats nor a proof were found in short: the gang has its turn beside, and is told what is known if that isn't now."""
        gang = attempt.gang
        lacks = wakes_up_on(plan.explanation, gang.candidates) if plan else ANYTHING
        if plan and gang.missing and not self.long.is_idle:
            refusal = messages.refused(gang, plan, await self.planner.cause(gang))
            self.reporter.refused(gang, refusal, plan.search, self.clock() - attempt.started)
        self.queue.pause(gang.key, lacks, seen=attempt.changes, retry_by=self.waits.retry_by(gang, self.partial_binds.next_look(gang)))
        self.long.join(gang.key, self.place(gang.key))
        self.start_long_search()

    async def _at_length(self, attempt: Attempt) -> None:
        """One gang, searched for beside the cycle on what is free now; its plan is checked on what is free then."""
        gang = attempt.gang
        try:
            plan = await self.long.search(gang.key, partial(self.planner.plan_at_length, gang), partial(self._make_way_if_refused, gang))
        except SearchAbandonedError:
            return
        except SearchError as error:
            self.outcomes.failed(attempt, str(error))
            return
        finally:
            self.start_long_search()
        await until_fresh(self.is_fresh)
        if is_enough(plan):
            await self._let_pass(gang.key)
            if transaction := self._promised(attempt, plan):
                self.queue.seated(gang.key)
                await self._commit(attempt, plan, transaction)
            return
        match self._when_nowhere(gang, is_settled=True):
            case Found.GIVE_UP:
                await self.partial_binds.give_up(gang)
            case Found.RESTART_JOBS:
                await self.partial_binds.restart_jobs(gang)
            case _:
                await self._refuse(attempt, plan)

    async def _let_pass(self, key: GangKey) -> None:
        """Let the cycle see to those who go before, who may want the same seats; not for longer than it takes to search for one."""
        ends = self.clock() + _LET_PASS_SECONDS
        while self.is_preceded(key) and self.clock() < ends:  # noqa: ASYNC110  # a decision, a departure or a change of rank ends it
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def _make_way_if_refused(self, gang: Gang, plan: Plan) -> None:
        """In the turn of a long search, since it takes many short ones: nobody else's do in between."""
        if not is_enough(plan):
            await until_fresh(self.is_fresh)
            await self._make_way(gang)

    async def _make_way(self, gang: Gang, seconds: float = math.inf) -> bool:
        """Release half gangs whose time is over, if their seats are what ``gang`` lacks of its minimum.

        False if whose these are can't be found out in ``seconds``: then that is to be done beside the cycle.
        """
        if not gang.missing:
            return True
        ends = self.clock() + seconds

        async def would_fit(without: Sequence[Pod]) -> bool:
            if self.clock() >= ends:
                raise TimeoutError
            with suppress(SearchError):
                return bool((await self.planner.plan(gang, without)).feasible)
            return False

        try:
            victims = await self.victims.who_yields(gang, would_fit)
        except TimeoutError:
            return False
        busy = [other.key for other in victims if other.key in self.tasks]
        self.victims.put_off(busy)  # the others would make way in vain
        for other in victims if not busy else ():
            self.tasks.start(other.key, self.partial_binds.yield_to(gang, other))
        await asyncio.sleep(0)  # they have begun then
        return True

    async def _commit(self, attempt: Attempt, plan: Plan, transaction: Transaction) -> None:
        began = self.clock()
        self.reporter.binds(attempt.gang)
        outcome = await transaction.commit()
        attempt.held_seconds = self.clock() - began
        if isinstance(outcome, Committed):
            self.late.expect(attempt.gang.key, outcome.in_doubt)
        await self.outcomes.committed(attempt, plan, outcome)
