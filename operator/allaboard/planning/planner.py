"""Searches for the placement of one gang, or of several that contend for the same capacity.

Gangs that are due at once contend if some order of placing them may leave one out (``placement.contest``). Gangs that contend are placed
together, and the queue counts which gangs are overtaken. Other gangs are searched for one by one in queue order, with as good a result.
Many single pods are placed together in any case: that takes less time.

Other gangs wait for these searches. So the searches are short, and their time is charged to the gangs' namespaces.
"""

import logging
import math
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from allaboard.cluster.reservations import Ledger
from allaboard.model.backfill import Backfill
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.fit import FitScoring
from allaboard.model.gang import Gang, GangKey
from allaboard.model.packing import Packing
from allaboard.model.pod import Pod
from allaboard.model.reasons import Cause, Code, Kind, Reason
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, Plan, Problem, build_problem, verify
from allaboard.placement.contest.contest import contest_of, may_contend
from allaboard.placement.contest.joint import Joint
from allaboard.placement.problem.draft import Draft, Packer
from allaboard.placement.problem.problem import Candidate
from allaboard.placement.remedies.causes import Repaired, amounts_alone, can_not_fit, can_quickly_not_fit, cause_of, on_empty_nodes
from allaboard.placement.rules.members import Rules, rules_of
from allaboard.placement.strategies.trial import StrategyError
from allaboard.planning import min_resources
from allaboard.planning.advice import advised, blockers, emptied_problem
from allaboard.planning.gang_problem import Packings, draft_of, problem_of, size_of, waiting_of
from allaboard.planning.plugin_processes import PluginProcesses
from allaboard.planning.prepared import PreparedGang
from allaboard.planning.relaxations import relaxations
from allaboard.planning.search_costs import SearchCosts
from allaboard.planning.search_processes import Searcher, SearchError, SearchOverrunError
from allaboard.plugins import DEFAULT_STRATEGY
from allaboard.records.advice import Advised
from allaboard.records.record import GangRecords
from allaboard.report.messages import named_for, violation

logger = logging.getLogger(__name__)

SEED = 42
"""The seed of the scheduler's searches, to which each gang and attempt adds its own; ``allaboard simulate --seed`` sets others."""

MOST_CELLS = 100_000  # nodes times kinds of pods and their rules: building more cells would block the event loop.
_PAUSE_SECONDS = 60.0  # the pause of a strategy that didn't answer, for the gangs of one namespace.
_AMONG_MEMBERS = (Kind.TOPOLOGY, Kind.SEGMENTS, Kind.ANTI_AFFINITY, Kind.PORTS)  # Rules that hold on empty nodes, too.
_MOST_LEFT_OUT = 4  # rules between members that are left out one at a time, to name the one that refuses a gang.
_MANY = 8  # single pods: from this number on a joint search takes less time than a search for each.


class Cluster(Protocol):
    """A cluster in which gangs are placed, and against which plans are checked: the live cluster view, or a simulated cluster."""

    def snapshot(self, priority: int | None = None) -> Snapshot:
        """Return the present cluster, as a gang of ``priority`` sees it."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of objects of each kind in the cluster, by the kind's name, such as ``nodes``."""


@dataclass(slots=True)
class Planner:
    """Gathers the input of each search on the event loop, and runs the search in a worker process.

    ``records`` state a gang's number of failed attempts, which changes the seed. ``ledger`` has the reservations of waiting gangs, whose
    capacity is left out of the searches for gangs behind them.
    """

    cluster: Cluster
    records: GangRecords
    searcher: Searcher
    costs: SearchCosts
    packings: Packings
    ledger: Ledger
    plugin_processes: PluginProcesses = field(default_factory=lambda: PluginProcesses(has_processes=False))
    seed: int = SEED
    _paused_until: dict[tuple[str, str], float] = field(default_factory=dict)
    """The time at which a strategy may be used again for the gangs of a namespace, by (namespace, strategy)."""
    _filters: NodeFilters = field(default_factory=NodeFilters)
    _packer: Packer = field(default_factory=Packer)
    _repaired: Repaired = field(default_factory=Repaired)

    async def plan(self, gang: PreparedGang, without: Sequence[Pod] = ()) -> Plan:
        """Return a plan that places all missing members, and as many surplus members as fit, or says why there is none.

        For a whole gang the plan places at least one surplus member. The search is short. Bound pods in ``without`` count as gone. The
        plan's ``warning`` says how the gang's own strategy failed; empty if it didn't. Raises ``SearchError``.
        """
        snapshot = self.seen_by(gang)
        if not without:
            return await self.plan_on(gang, snapshot, may_use_strategy=True)
        return await self.plan_on(gang, snapshot.without(without))

    def seen_by(self, gang: Gang) -> Snapshot:
        """Return the present cluster as ``gang`` may use it: without the capacity that reservations keep from the gang."""
        return self.ledger.left_to(self.ledger.applicant(gang), self.cluster.snapshot(gang.priority))

    async def plan_on(self, gang: PreparedGang, snapshot: Snapshot, *, may_use_strategy: bool = False) -> Plan:
        """Return a plan as ``plan`` does, on the cluster ``snapshot``. The gang's own strategy is asked if it ``may_use_strategy``."""
        if short := min_resources.shortage_of(gang, snapshot):
            return min_resources.refusal(gang, snapshot, short)
        problem = self._problem(gang, snapshot)
        with self.costs.brief([gang]) as seconds:
            plan, warning = await self._by_own_strategy(gang, problem, snapshot) if may_use_strategy else (None, "")
            if plan is None:
                plan = await self.searcher.search_briefly(problem, self._seed(gang))
        self.costs.metrics.searched(plan.search, seconds())
        return replace(plan, warning=warning) if warning else plan

    async def cause(self, gang: PreparedGang) -> Cause:
        """Return the cause for which a gang was refused just now."""
        if (owner := await self._kept_for(gang)) is not None:
            return Cause(Code.RESERVED, rule=Reason(Kind.RESERVED, named_for(gang, owner)))
        snapshot, rules = self.seen_by(gang), rules_of(gang)
        if short := min_resources.shortage_of(gang, snapshot):
            return min_resources.cause(snapshot, short)
        if size_of(gang, len(snapshot.nodes)) > MOST_CELLS // 2:
            return Cause(Code.INSUFFICIENT)  # finding the cause takes as long as building the problem
        cause = cause_of(gang.candidates, gang.least, snapshot, rules=rules, filters=self._filters, repaired=self._repaired)
        if cause.code not in (Code.INSUFFICIENT, Code.FRAGMENTED):
            return cause
        if await self._is_too_large(gang, snapshot, amounts_alone(gang.candidates), rules.without_couplings):
            return Cause(Code.NEVER_FITS)
        specs = list({id(pod.spec): pod.spec for pod in gang.candidates}.values())
        asked = {
            Kind.PORTS: any(spec.host_ports for spec in specs),
            Kind.ATTACHMENTS: any(spec.attaches for spec in specs),
            Kind.NO_VOLUME: any(spec.unbound for spec in specs),
        }
        of_amounts = tuple(Reason(kind) for kind, is_asked in asked.items() if is_asked)
        of_members = tuple(dict.fromkeys(each.reason for each in rules.couplings))
        if cause.code is Code.INSUFFICIENT:
            kept = tuple(each for each in (*of_members, *of_amounts) if each.kind in _AMONG_MEMBERS)
            lasting = replace(rules, couplings=[each for each in rules.couplings if each.reason in kept])
            if kept and await self._is_too_large(gang, snapshot, gang.candidates, lasting):
                return Cause(Code.NEVER_FITS, rule=kept[0], other_rules=kept[1:])
            return cause
        # Would the gang fit without the rules between its members? Leave out one rule at a time, then all of them.
        without: list[tuple[Sequence[Candidate], Rules, Sequence[Reason]]] = [
            (gang.candidates, rules.without(reason), (reason,)) for reason in of_members[:_MOST_LEFT_OUT]
        ]
        if len(of_members) > 1:
            without.append((gang.candidates, rules.without_couplings, of_members))
        if of_amounts:
            without.append((amounts_alone(gang.candidates), rules, of_amounts))
        if of_members and of_amounts:
            without.append((amounts_alone(gang.candidates), rules.without_couplings, (*of_members, *of_amounts)))
        with suppress(SearchError), self.costs.brief([gang]):
            for pods, left, left_out in without:
                problem = build_problem(
                    pods, gang.least, snapshot, objective=gang.objective, packing=self.packings.of(gang), rules=left, filters=self._filters
                )
                if (await self.searcher.search_briefly(problem, self._seed(gang))).feasible:
                    return Cause(Code.CONSTRAINTS, rule=left_out[0], other_rules=tuple(left_out[1:]))
        return cause

    async def _is_too_large(self, gang: PreparedGang, snapshot: Snapshot, pods: Sequence[Candidate], rules: Rules) -> bool:
        """Return whether a proof shows that ``pods`` of a refused gang wouldn't fit if all nodes were empty, ready and schedulable."""
        problem = on_empty_nodes(pods, gang.least, snapshot, rules, self._repaired)
        if problem is None:
            return False
        if (known := can_quickly_not_fit(problem)) is not None:
            return known
        with suppress(SearchError), self.costs.brief([gang]):
            return await self.searcher.run_briefly(can_not_fit, problem)
        return False

    async def _kept_for(self, gang: PreparedGang) -> GangKey | None:
        """Return the first gang in the queue whose reservation keeps a refused gang from fitting; None if there is no such gang."""
        binding = self.ledger.binding(self.ledger.applicant(gang))
        if not binding:
            return None
        with suppress(SearchError):
            if (await self.plan_on(gang, self.cluster.snapshot(gang.priority))).feasible:
                return binding[0].owner
        return None

    async def plan_at_length(self, gang: PreparedGang) -> Plan:
        """Return a plan as ``plan`` does, by a long search, for which no other gang waits. Raises ``SearchError``."""
        problem = self._problem(gang, self.seen_by(gang))
        with self.costs.long() as seconds:
            plan = await self.searcher.search(problem, self._seed(gang))
        self.costs.metrics.searched(plan.search, seconds())
        # Other gangs were placed during the search.
        snapshot = self.cluster.snapshot(gang.priority)
        short = min_resources.shortage_of(gang, snapshot)
        return min_resources.refusal(gang, snapshot, short) if short else plan

    async def _by_own_strategy(self, gang: Gang, problem: Problem | Draft, snapshot: Snapshot) -> tuple[Plan | None, str]:
        """Return the plan of the strategy that the gang has chosen, and a warning if the strategy has failed.

        If there is no plan, the default search decides: another strategy never decides that there is no capacity for a gang.
        """
        name, chosen = gang.strategy, (gang.key.namespace, gang.strategy)
        if name == DEFAULT_STRATEGY:
            return None, ""
        try:
            if self._paused_until.get(chosen, -math.inf) > self.costs.clock():
                raise SearchError("it is paused, since it has not answered before")
            plan = await self.plugin_processes.place(name, problem, self.searcher)
            if plan is not None and (wrong := verify(dict(plan.assignments), gang.candidates, snapshot, rules_of(gang))):
                raise StrategyError(f"its plan is wrong: {violation(wrong[0])}")
        except (StrategyError, SearchError) as error:
            if isinstance(error, SearchOverrunError):  # other gangs have waited for the strategy in vain
                self._paused_until = {key: ends for key, ends in self._paused_until.items() if ends > self.costs.clock()}
                self._paused_until[chosen] = self.costs.clock() + _PAUSE_SECONDS
            self.costs.metrics.strategy_failures.labels(name).inc()
            return None, f"strategy {name}: {error}; {DEFAULT_STRATEGY} decides instead"
        return plan, ""

    def _problem(self, gang: Gang, snapshot: Snapshot) -> Problem | Draft:
        if size_of(gang, len(snapshot.nodes)) > MOST_CELLS:
            return draft_of(gang, gang.least, snapshot, self._packer, self.packings.of(gang))
        return problem_of(gang, gang.least, snapshot, self._filters, self.packings.of(gang))

    async def plan_together(self, gangs: Sequence[PreparedGang]) -> dict[GangKey, Plan]:
        """Return plans for gangs that contend. Without backfill there are none: the gangs that use the most GPUs would pass other gangs.

        ``gangs`` are in queue order; the plans are in the order in which they take capacity. There are no plans if the gangs don't contend.
        A gang without a plan is to be planned by itself, such as a gang whose nodes are scored in another way than the first gang's.
        """
        if len(gangs) < 2 or self.ledger.backfill is Backfill.OFF:
            return {}
        started = self.costs.clock()
        try:
            packing = self.packings.of(gangs[0])
            gangs = self._preparable([gang for gang in gangs if self.packings.of(gang) == packing])
            joint = await self._together(gangs, packing)
        except SearchError as error:
            logger.warning("%d gangs can't be placed together: %s; each is placed by itself", len(gangs), error)
            return {}
        except Exception:
            logger.exception("%d gangs can't be placed together by a defect; each is placed by itself", len(gangs))
            return {}
        if joint is None:
            return {}
        plans = {gangs[position].key: plan for position in joint.taken if (plan := joint.plans[position])}
        for plan in plans.values():
            self.costs.metrics.searched(plan.search, (self.costs.clock() - started) / len(plans))
        return plans

    async def _together(self, gangs: Sequence[Gang], packing: Packing | FitScoring) -> Joint | None:
        if len(gangs) < 2:
            return None
        waiting = [waiting_of(gang, self._seed(gang)) for gang in gangs]
        contest = contest_of(waiting, self._seen_by_all(gangs), self._filters, packing)
        is_easy = not may_contend(contest)
        if is_easy and (len(gangs) < _MANY or not all(gang.is_single for gang in contest.gangs)):
            return None
        with self.costs.brief(gangs):
            return await self.searcher.place_together(contest, is_easy=is_easy)

    def _seen_by_all(self, gangs: Sequence[Gang]) -> Snapshot:
        """Return the present cluster as each of ``gangs``, which are in queue order and have no reservation, may use it."""
        applicants = [self.ledger.applicant(gang) for gang in gangs]
        strictest = applicants[-1]._replace(ends=max(each.ends for each in applicants))
        return self.ledger.left_to(strictest, self.cluster.snapshot(gangs[0].priority))

    def _preparable(self, gangs: Sequence[PreparedGang]) -> Sequence[PreparedGang]:
        """Return the first of ``gangs``: as many as can be prepared without blocking the event loop for long."""
        nodes = self.cluster.counts["nodes"]
        seen: set[int] = set()  # equal specs are mostly one object, and identities are quicker to compare
        specs: set[SchedulingSpec] = set()
        objectives = set()
        for number, gang in enumerate(gangs):
            new = [pod.spec for pod in gang.candidates if id(pod.spec) not in seen]
            seen.update(map(id, new))
            specs.update(new)
            objectives.add(gang.objective)
            if sum(1 + spec.rules for spec in specs) * len(objectives) * nodes > MOST_CELLS:
                return gangs[:number]
        return gangs

    async def advice(self, gang: PreparedGang, gangs: Sequence[Gang]) -> Advised:
        """Return what would let a refused gang fit; empty if nothing is known. ``gangs`` are all gangs with bound members."""
        snapshot = self.seen_by(gang)
        if min_resources.shortage_of(gang, snapshot):
            return Advised()  # the refusal has the numbers
        if size_of(gang, len(snapshot.nodes)) > MOST_CELLS // 2:
            return Advised()  # finding advice takes twice as long as building the problem
        problem = problem_of(gang, gang.missing, snapshot, self._filters, self.packings.of(gang))
        others = blockers(gang, gangs)
        emptied = emptied_problem(gang, problem, snapshot, others, self._filters)
        remedies = await self.searcher.find_remedies(emptied)
        return advised(gang, remedies, others, [reason async for reason in self._needless(gang, snapshot)])

    async def _needless(self, gang: PreparedGang, snapshot: Snapshot) -> AsyncIterator[Reason]:
        """Yield each rule about nodes without which a refused gang would fit."""
        rules = rules_of(gang)
        for reason, pods, changed, filters in relaxations(gang, snapshot, self._filters, self._repaired):
            problem = build_problem(
                pods, gang.missing, changed, objective=gang.objective, packing=self.packings.of(gang), rules=rules, filters=filters
            )
            if (await self.searcher.search(problem, self._seed(gang))).feasible:
                yield reason

    def _seed(self, gang: Gang) -> int:
        """Return a seed made of the planner's seed, the gang and its attempt: a search can be repeated, and attempts differ."""
        record = self.records.find(gang.key)
        return zlib.crc32(f"{self.seed}/{gang.key}/{record.queue.attempts if record else 0}".encode())
