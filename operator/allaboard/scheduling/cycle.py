"""The scheduling cycle: planning rounds that run one after another until no gang is due.

Read ``Cycle.run`` first, then the steps of an attempt in ``due``.

The cycle's searches are short and run one after another. Each search uses a snapshot that contains the capacity assumed before it.
Transactions run beside the searches: the API server binds one gang while the cycle searches for the next. If a short search finds neither
a placement nor a proof that there is none, a long search for the gang runs beside the cycle (``longer``).
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from allaboard.planning.advice import Advisor
from allaboard.planning.answers import Answer, Failed, Refused, warning_of
from allaboard.planning.round import Round
from allaboard.planning.search_processes import SearchError
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.ranks import Ranks
from allaboard.scheduling import decide
from allaboard.scheduling.attempt import Attempt
from allaboard.scheduling.due import DueGangs
from allaboard.scheduling.execute import Executor
from allaboard.scheduling.freshness import until_fresh
from allaboard.scheduling.longer import LongerSearches

_VICTIM_SECONDS = 0.5  # the most that the cycle spends on finding the victims for a gang: each victim costs a search


@dataclass(frozen=True, slots=True)
class Cycle:
    """The scheduling cycle, which brings each due gang to a decision. Only the event loop may use it."""

    queue: GangQueue
    ranks: Ranks
    due: DueGangs
    round: Round
    longer: LongerSearches
    executor: Executor
    advisor: Advisor
    is_fresh: Callable[[], bool]

    async def run(self) -> None:
        """Bring every due gang to a decision, in queue order. Gangs that contend are placed together."""
        self.due.begin_cycle()
        while self.queue.peek() is not None:
            await until_fresh(self.is_fresh)
            self.queue.promote(self.ranks.moved())
            await self.queue.drain()
            self.due.begin_round()
            async with aclosing(self.round.answers(self.due)) as answers:
                async for answer in answers:
                    await self._carry_out(self.due.attempts[answer.gang.key], answer)
                    self.due.attempts.pop(answer.gang.key, None)
                    await asyncio.sleep(0)
            self.due.begin_round()
            await asyncio.sleep(0)
        self.advisor.work()

    async def _carry_out(self, attempt: Attempt, answer: Answer) -> None:
        """Decide what to do about one gang from the planning round's answer, and carry the decision out."""
        key = attempt.gang.key
        with self.ranks.charged(attempt.gang, attempt.started, attempt.searched_seconds):
            try:
                await self._decide(attempt, answer)
            except Exception as error:
                self.executor.handle_defect(key, error)

    async def _decide(self, attempt: Attempt, answer: Answer) -> None:
        if isinstance(answer, Failed) and not isinstance(answer.error, SearchError):
            raise answer.error
        gang = attempt.gang
        if warning := warning_of(answer):
            self.executor.reporter.strategy_failed(gang, warning)
        victims_known = not isinstance(answer, Refused) or await self.longer.release_victims(answer.gang, _VICTIM_SECONDS)
        decision = self.longer.decision(gang, answer, victims_known=victims_known)
        if isinstance(decision, decide.SearchLonger):
            await self.longer.add(attempt, decision.plan)
        else:
            self.executor.carry_out(attempt, decision)
