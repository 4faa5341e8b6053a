"""Finds what would let a refused gang fit, when no gang is due, and appends that advice to the message of the gang's PodGroup.

Advice takes longer than a refusal (tens of milliseconds for hundreds of nodes), so no gang waits for it. A refusal is reported at once.
Once no gang is due, the search process finds advice, for one gang after another. While a gang is refused with the same message,
its advice is kept. The advice is renewed once in a while, since a gang that it names may have left.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from allaboard.model.gang import Gang, GangKey
from allaboard.model.reasons import Reason
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, Problem
from allaboard.placement.remedies.emptied_problem import EmptiedProblem, emptied_problem_of
from allaboard.placement.remedies.remedies import Remedies
from allaboard.placement.rules.members import rules_of
from allaboard.planning.search_processes import SearchError
from allaboard.records.advice import Advice, Advised, Nearest
from allaboard.records.record import GangRecords
from allaboard.report import messages

logger = logging.getLogger(__name__)

_MOST_BLOCKERS = 200
_FRESH_SECONDS = 2.0  # the age up to which advice is taken to be true
_PAUSE_SHARE = 3.0  # the pause after a renewal of advice, in multiples of the time that its search took


def blockers(gang: Gang, gangs: Iterable[Gang]) -> dict[str, Gang]:
    """Return the other gangs with bound members, by key: the lowest priority first, then the fewest bound members; 200 at most."""
    others = [other for other in gangs if other.key != gang.key and not other.is_single and other.bound_in_all_runs]
    others.sort(key=lambda other: (other.priority, len(other.bound_in_all_runs), other.key))
    return {str(other.key): other for other in others[:_MOST_BLOCKERS]}


def emptied_problem(gang: Gang, problem: Problem, snapshot: Snapshot, others: Mapping[str, Gang], filters: NodeFilters) -> EmptiedProblem:
    """Return the problem of placing ``gang`` if any of the gangs ``others`` may leave. Advice is computed from it.

    ``problem`` is the problem of placing ``gang`` in the cluster as it is.
    """
    bound = [(key, other.bound_in_all_runs) for key, other in others.items()]
    return emptied_problem_of(problem, gang.candidates, snapshot, bound, rules_of(gang), filters)


def advised(gang: Gang, remedies: Remedies, others: Mapping[str, Gang], relaxed: Sequence[Reason] = ()) -> Advised:
    """Return the advice that follows from ``remedies``. Without one of the rules ``relaxed`` the gang would fit, too."""
    more = remedies.more
    nearest = Nearest(more.placement, more.resource, more.where) if more else None
    return Advised(messages.advice(gang, remedies, others.get(remedies.blocker) if remedies.blocker else None, relaxed), nearest)


class Advisor:
    """Keeps refused gangs' requests for advice, and answers them when no gang is due.

    ``find`` returns the advice for a gang. ``report(key, message, advised)`` replaces the gang's reported ``message`` by ``advised``,
    unless another message was reported since.
    """

    def __init__(
        self,
        records: GangRecords,
        find: Callable[[GangKey], Awaitable[Advised]],
        report: Callable[[GangKey, str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self._find = find
        self._report = report
        self._clock = clock
        self._paused_until = -math.inf
        self._wanted: list[GangKey] = []  # may include gangs whose advice is no longer wanted
        self._task: asyncio.Task[None] | None = None

    def want(self, key: GangKey, message: str) -> None:
        """Request advice for a gang that was refused with ``message``, unless its known advice is fresh."""
        advice = self._records.of(key).advice
        if advice.known_for != message or self._clock() >= max(advice.found_at + _FRESH_SECONDS, self._paused_until):
            if not advice.wanted_for:
                self._wanted.append(key)
            advice.wanted_for = message

    def forget(self, key: GangKey) -> None:
        """Forget the advice of a gang that is no longer refused."""
        if (record := self._records.find(key)) is not None:
            record.advice = Advice()

    def work(self) -> None:
        """Start to find advice for refused gangs, which `want` has requested. Call this when no gang is due."""
        if self._wanted and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._find_all(), name="advice")

    async def stop(self) -> None:
        """Stop finding advice."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _find_all(self) -> None:
        while self._wanted:
            key = self._wanted.pop()
            record = self._records.find(key)
            if record is None or not record.advice.wanted_for:
                continue
            message, started = record.advice.wanted_for, self._clock()
            is_known = record.advice.known_for == message
            before, nearest = (record.advice.text, record.advice.nearest) if is_known else Advised()
            record.advice = advice = Advice(known_for=message, text=before, nearest=nearest)
            try:
                advice.text, advice.nearest = await self._find(key)
                advice.found_at = self._clock()
                if is_known:
                    self._paused_until = advice.found_at + _PAUSE_SHARE * (advice.found_at - started)
                # The gang may have been forgotten during the search.
                if advice.text != before and record.advice is advice and self._records.find(key) is record:
                    self._report(key, messages.with_advice(message, before), messages.with_advice(message, advice.text))
            except SearchError as error:
                logger.warning("gang %s: advice can't be found: %s", key, error)
            except Exception:
                logger.exception("gang %s: advice can't be found or reported", key)
