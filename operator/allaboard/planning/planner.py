"""Has placements searched for: of one gang, or of several that contend for the same seats.

Gangs that are due at once contend when some order of them may leave somebody out (``placement.contest``). Then they are placed together,
and the queue counts who is overtaken; otherwise each is searched for in its turn, which is as good. Many single pods are placed together
anyhow: that takes less time.

Others wait for these searches, so they are short, and their time is charged to the gangs' namespaces.
"""

import logging
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.fit import FitScoring
from allaboard.model.gang import Gang, GangKey
from allaboard.model.packing import Packing
from allaboard.model.pod import Pod
from allaboard.model.reasons import Cause, Code, Kind, Reason
from allaboard.model.rules import Rules, rules_of
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, Plan, Problem, build_problem, verify
from allaboard.placement.contest.contest import contest_of, may_contend
from allaboard.placement.contest.joint import Joint
from allaboard.placement.problem.draft import Draft, Packer
from allaboard.placement.problem.problem import Candidate
from allaboard.placement.relief.causes import Repaired, amounts_alone, cause_of
from allaboard.placement.strategies.trial import StrategyError
from allaboard.planning import min_resources
from allaboard.planning.advice import leavers, reach, sentence
from allaboard.planning.gang_problem import Packings, draft_of, problem_of, size_of, waiting_of
from allaboard.planning.plugin_processes import PluginProcesses
from allaboard.planning.search_processes import Searcher, SearchError, SearchOverrunError
from allaboard.plugins import DEFAULT_STRATEGY
from allaboard.queueing.search_time import SearchTime
from allaboard.report.messages import violation
from allaboard.report.metrics import Metrics

logger = logging.getLogger(__name__)

MOST_TOGETHER = 64
"""Gangs that are placed together at most."""

MOST_PODS = 2000
"""Pods of gangs that are placed together at most."""

_MOST_CELLS = 100_000  # kinds of pods and their rules times nodes: what takes longer to prepare would hold the event loop up
_REST_SECONDS = 60.0  # for a strategy that hasn't answered, from the gangs of a namespace
_MANY = 8  # single pods, which take less time together than one after another


class Past(Protocol):
    """What has become of gangs before: the queue knows."""

    def attempts(self, key: GangKey) -> int:
        """Failed attempts in a row."""

    def must_not_be_overtaken(self, key: GangKey) -> bool:
        """Whether it has been overtaken often enough, or long ago."""


def goes_alone(gang: Gang | None) -> bool:
    """Whether a gang is placed by itself whoever else is due: nobody is left of it, some of it sit, nobody is missing, or by choice.

    A strategy that it has chosen places one gang at a time. What its minResources asks for beyond its members is what others leave.
    """
    if gang is None or gang.bound or not gang.missing:
        return True
    return gang.strategy != DEFAULT_STRATEGY or bool(min_resources.beyond_members(gang))


@dataclass(slots=True)
class Planner:
    """What a search needs to know is gathered here, on the event loop; the search itself is the workers'."""

    view: ClusterView
    past: Past
    searcher: Searcher
    metrics: Metrics
    clock: Callable[[], float]
    packings: Packings
    shares: SearchTime
    plugin_processes: PluginProcesses = field(default_factory=lambda: PluginProcesses(has_processes=False))
    tell: Callable[[Gang, str], None] = lambda gang, message: None
    """Called when a gang's strategy has failed."""
    _rests: dict[tuple[str, str], float] = field(default_factory=dict)
    """Until when a strategy isn't asked for the gangs of a namespace."""
    _filters: NodeFilters = field(default_factory=NodeFilters)
    _packer: Packer = field(default_factory=Packer)
    _repaired: Repaired = field(default_factory=Repaired)

    async def plan(self, gang: Gang, without: Sequence[Pod] = ()) -> Plan:
        """A placement of the missing members, and as many more as fit; of a whole gang's surplus, at least one. By a short search.

        ``without`` are bound pods that are taken to be gone. Raises ``SearchError``.
        """
        snapshot = self.view.snapshot(gang.priority)
        snapshot = snapshot.without(without) if without else snapshot
        if short := min_resources.shortage_of(gang, snapshot):
            return min_resources.refusal(gang, snapshot, short)
        problem = self._problem(gang, snapshot)
        with self._timed([gang]) as seconds:
            plan = None if without else await self._by_its_strategy(gang, problem, snapshot)
            if plan is None:
                plan = await self.searcher.search_briefly(problem, self._seed(gang))
        self.metrics.searched(plan.search, seconds())
        return plan

    async def cause(self, gang: Gang) -> Cause:
        """Why a gang has no room that was refused just now."""
        snapshot, rules = self.view.snapshot(gang.priority), rules_of(gang)
        if short := min_resources.shortage_of(gang, snapshot):
            return min_resources.cause(snapshot, short)
        if size_of(gang, len(snapshot.nodes)) > _MOST_CELLS // 2:
            return Cause(Code.INSUFFICIENT)  # it takes as long again as to build the problem
        cause = cause_of(gang.candidates, gang.least, snapshot, rules=rules, filters=self._filters, repaired=self._repaired)
        if cause.code is not Code.FRAGMENTED:
            return cause
        # Without what keeps members from each other, is there room? First without one of the two at a time.
        has_ports = any(pod.spec.host_ports for pod in gang.candidates)
        attaches = any(pod.spec.attaches for pod in gang.candidates)
        without: list[tuple[Sequence[Candidate], Rules, Reason | None]] = []
        if rules.ties:
            without.append((gang.candidates, rules.untied, rules.ties[0]))
        if has_ports or attaches:
            rule = Reason(Kind.PORTS if has_ports else Kind.ATTACHMENTS) if has_ports != attaches else None
            without.append((amounts_alone(gang.candidates), rules, rule))
        if rules.ties and (has_ports or attaches):
            without.append((amounts_alone(gang.candidates), rules.untied, None))
        with suppress(SearchError), self._timed([gang]):
            for pods, left, rule in without:
                problem = build_problem(
                    pods, gang.least, snapshot, objective=gang.objective, packing=self.packings.of(gang), rules=left, filters=self._filters
                )
                if (await self.searcher.search_briefly(problem, self._seed(gang))).feasible:
                    return Cause(Code.CONSTRAINTS, rule=rule)
        return cause

    async def plan_at_length(self, gang: Gang) -> Plan:
        """The same by a long search, for which nobody waits. Raises ``SearchError``."""
        problem = self._problem(gang, self.view.snapshot(gang.priority))
        started = self.clock()
        try:
            plan = await self.searcher.search(problem, self._seed(gang))
        finally:
            self.metrics.search_seconds.labels("long").inc(self.clock() - started)
        self.metrics.searched(plan.search, self.clock() - started)
        # Others have taken seats since.
        snapshot = self.view.snapshot(gang.priority)
        short = min_resources.shortage_of(gang, snapshot)
        return min_resources.refusal(gang, snapshot, short) if short else plan

    async def _by_its_strategy(self, gang: Gang, problem: Problem | Draft, snapshot: Snapshot) -> Plan | None:
        """The plan of the strategy that the gang has chosen; ``None`` when the search is to decide, since it has found none or has failed.

        Whether there is room for the gang is never for it to say.
        """
        name, chosen = gang.strategy, (gang.key.namespace, gang.strategy)
        if name == DEFAULT_STRATEGY:
            return None
        try:
            if self._rests.get(chosen, -math.inf) > self.clock():
                raise SearchError("it rests, since it has not answered before")
            plan = await self.plugin_processes.place(name, problem, self.searcher)
            if plan is not None and (wrong := verify(dict(plan.assignments), gang.candidates, snapshot, rules_of(gang))):
                raise StrategyError(f"its plan is wrong: {violation(wrong[0])}")
        except (StrategyError, SearchError) as error:
            if isinstance(error, SearchOverrunError):  # the others have waited for it in vain
                self._rests = {key: ends for key, ends in self._rests.items() if ends > self.clock()}
                self._rests[chosen] = self.clock() + _REST_SECONDS
            self.metrics.strategy_failures.labels(name).inc()
            self.tell(gang, f"strategy {name}: {error}; {DEFAULT_STRATEGY} decides instead")
            return None
        return plan

    def _problem(self, gang: Gang, snapshot: Snapshot) -> Problem | Draft:
        if size_of(gang, len(snapshot.nodes)) > _MOST_CELLS:
            return draft_of(gang, gang.least, snapshot, self._packer, self.packings.of(gang))
        return problem_of(gang, gang.least, snapshot, self._filters, self.packings.of(gang))

    @contextmanager
    def _timed(self, gangs: Sequence[Gang]) -> Iterator[Callable[[], float]]:
        """Charge the time that this takes to the namespaces of ``gangs``, by how many kinds of pods each has; gives the seconds so far."""
        started = self.clock()
        try:
            yield lambda: self.clock() - started
        finally:
            seconds = self.clock() - started
            self.metrics.search_seconds.labels("short").inc(seconds)
            kinds = [len({id(pod.spec) for pod in gang.candidates}) for gang in gangs]
            for gang, number in zip(gangs, kinds, strict=True):
                self.shares.charge(gang.key.namespace, seconds * number / max(1, sum(kinds)))

    async def plan_together(self, gangs: Sequence[Gang]) -> tuple[dict[GangKey, Plan], list[GangKey]]:
        """Plans for those of ``gangs``, in queue order, that are to be placed now, in the order in which they take their seats.

        And who is overtaken by them. Nobody has a plan when the gangs don't contend: then each is to be planned by itself. So are those for
        which nodes are scored in another way than for the first.
        """
        if len(gangs) < 2:
            return {}, []
        started = self.clock()
        packing = self.packings.of(gangs[0])
        gangs = self._preparable([gang for gang in gangs if self.packings.of(gang) == packing])
        try:
            joint = await self._together(gangs, packing)
        except SearchError as error:
            logger.warning("%d gangs can't be placed together: %s; each is placed by itself", len(gangs), error)
            return {}, []
        except Exception:
            logger.exception("%d gangs can't be placed together by a defect; each is placed by itself", len(gangs))
            return {}, []
        if joint is None:
            return {}, []
        plans = {gangs[position].key: plan for position in joint.taken if (plan := joint.plans[position])}
        for plan in plans.values():
            self.metrics.searched(plan.search, (self.clock() - started) / len(plans))
        return plans, [gangs[position].key for position in joint.overtaken]

    async def _together(self, gangs: Sequence[Gang], packing: Packing | FitScoring) -> Joint | None:
        if len(gangs) < 2:
            return None
        is_protected = self.past.must_not_be_overtaken
        waiting = [waiting_of(gang, self._seed(gang), is_protected=is_protected(gang.key)) for gang in gangs]
        contest = contest_of(waiting, self.view.snapshot(gangs[0].priority), self._filters, packing)
        is_easy = not may_contend(contest)
        if is_easy and (len(gangs) < _MANY or not all(gang.is_single for gang in contest.gangs)):
            return None
        with self._timed(gangs):
            return await self.searcher.place_together(contest, is_easy=is_easy)

    def _preparable(self, gangs: Sequence[Gang]) -> Sequence[Gang]:
        """The first of ``gangs``, as many as can be prepared at once."""
        nodes = self.view.counts["nodes"]
        seen: set[int] = set()  # equal specs are mostly one object, which is quicker to tell than that they are equal
        specs: set[SchedulingSpec] = set()
        objectives = set()
        for number, gang in enumerate(gangs):
            new = [pod.spec for pod in gang.candidates if id(pod.spec) not in seen]
            seen.update(map(id, new))
            specs.update(new)
            objectives.add(gang.objective)
            if sum(1 + spec.rules for spec in specs) * len(objectives) * nodes > _MOST_CELLS:
                return gangs[:number]
        return gangs

    async def advice(self, gang: Gang, gangs: Sequence[Gang]) -> str:
        """What would help a gang that can't be placed, ``gangs`` being all there are; empty when nothing is known to."""
        snapshot = self.view.snapshot(gang.priority)
        if min_resources.shortage_of(gang, snapshot):
            return ""  # the refusal has the numbers
        if size_of(gang, len(snapshot.nodes)) > _MOST_CELLS // 2:
            return ""  # it takes twice as long as to build the problem
        problem = problem_of(gang, gang.missing, snapshot, self._filters, self.packings.of(gang))
        others = leavers(gang, gangs)
        within = reach(gang, problem, snapshot, others, self._filters)
        return sentence(gang, await self.searcher.relieve(within), others)

    def _seed(self, gang: Gang) -> int:
        """Of the gang and the attempt, so that a search can be repeated and isn't by itself."""
        return zlib.crc32(f"{gang.key}/{self.past.attempts(gang.key)}".encode())
