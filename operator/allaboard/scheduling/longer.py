"""Runs long searches beside the cycle, one after another. Each plan is checked against the cluster as it is at the end of its search."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from allaboard.binding.reasons import NoCapacity
from allaboard.model.gang import Gang, GangKey
from allaboard.placement import Plan
from allaboard.planning.answers import Answer, Failed, Refused
from allaboard.planning.known_gangs import KnownGangs
from allaboard.planning.long_searches import LongSearches, SearchAbandonedError
from allaboard.planning.prepared import PreparedGang, prepared
from allaboard.planning.round import Round
from allaboard.planning.search_processes import SearchError
from allaboard.scheduling.attempt import Attempt
from allaboard.scheduling.decide import Decision, after_search
from allaboard.scheduling.due import DueGangs
from allaboard.scheduling.execute import Executor
from allaboard.scheduling.freshness import until_fresh
from allaboard.scheduling.victims import Victims

_POLL_SECONDS = 0.02
_EARLIER_GANGS_SECONDS = 2.0  # the longest that a plan waits for gangs that rank before its own


@dataclass(frozen=True, slots=True)
class LongerSearches:
    """Runs long searches; ``LongSearches`` decides which gang is next."""

    gangs: KnownGangs
    round: Round
    long: LongSearches
    due: DueGangs
    victims: Victims
    executor: Executor
    is_fresh: Callable[[], bool]

    async def add(self, attempt: Attempt, plan: Plan | None) -> None:
        """Queue a gang for a long search. If the gang has to wait for that search, report what the short search found."""
        gang, because = attempt.gang, None
        if plan and gang.missing and not self.long.is_idle:
            progress = self.executor.provisionings.progress(gang.key)
            cause = await self.round.planner.cause(prepared(gang))
            because = NoCapacity(plan, cause, provisioning=progress.shown if progress else None)
        self.executor.requeue_for_search(attempt, plan, because)
        self.long.join(gang.key, self.due.place(gang.key))
        self.start()

    def start(self) -> None:
        """Begin the next long search, unless one is running."""
        while (key := self.long.next()) is not None:
            if (attempt := self.due.attempt(key)) is not None:
                self.executor.tasks.start(key, self.executor.guarded(key, self._run(attempt)))
                return
            self.long.done(key)

    async def release_victims(self, gang: PreparedGang, seconds: float = math.inf) -> bool:
        """Release partially bound gangs for a refused gang. Return whether the victims were found within ``seconds``."""
        victims = await self.victims.find(gang, seconds)
        if victims is None:
            return False
        busy = [victim.key for victim in victims if victim.key in self.executor.tasks]
        self.victims.skip_for_a_moment(busy)  # without these, the other victims would be released in vain
        self.executor.release_for(gang, victims if not busy else ())
        await asyncio.sleep(0)  # lets the releases begin
        return True

    def decision(self, gang: Gang, answer: Answer, *, victims_known: bool = True) -> Decision:
        """Return what to do with an answer of the planning round (``decide.after_search``)."""
        partial_bind, is_releasing = self.gangs.records.find_partial_bind(gang.key), self.victims.are_being_released_for(gang.key)
        progress = self.executor.provisionings.progress(gang.key) if isinstance(answer, Refused) else None
        return after_search(
            gang,
            answer,
            partial_bind,
            self.gangs.clock(),
            victims_known=victims_known,
            is_releasing_victims=is_releasing,
            progress=progress,
        )

    async def _run(self, attempt: Attempt) -> None:
        """Search for one gang in the capacity that is free now, and check the plan against the capacity that is free afterwards."""
        gang = prepared(attempt.gang)
        try:
            plan = await self.long.search(gang.key, partial(self.round.planner.plan_at_length, gang), partial(self._release_victims, gang))
        except SearchAbandonedError:
            return
        except SearchError as error:
            self.executor.begin(attempt, self.decision(gang, Failed(gang, error)))
            return
        finally:
            self.start()
        await until_fresh(self.is_fresh)
        if plan.is_bindable:
            await self._wait_for_earlier_gangs(gang.key)
        answer = await self.round.conclude(self.due.current_for_task, gang, plan)
        if answer is None:
            return
        if (work := self.executor.begin(attempt, self.decision(gang, answer))) is not None:
            await work

    async def _wait_for_earlier_gangs(self, key: GangKey) -> None:
        """Wait while the cycle handles gangs that rank before ``key`` and may need the same capacity; two seconds at most."""
        ends = self.gangs.clock() + _EARLIER_GANGS_SECONDS
        while self.due.is_outranked(key) and self.gangs.clock() < ends:  # noqa: ASYNC110  # many kinds of events end this wait
            await asyncio.sleep(_POLL_SECONDS)

    async def _release_victims(self, gang: PreparedGang, plan: Plan) -> None:
        """Release victims for a gang that the long search didn't place: finding the victims takes many short searches."""
        if not plan.is_bindable:
            await until_fresh(self.is_fresh)
            await self.release_victims(gang)
