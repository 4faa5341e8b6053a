"""A whole scheduler on a made-up cluster: it does what a test asks of it and nothing else, and what it asks of others is written down."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self, cast

from allaboard.binding.bind import Binder, Look
from allaboard.binding.job_suspension import JobRestarter
from allaboard.binding.outcomes import BindReply, Result
from allaboard.binding.reasons import NoCapacity, SearchFailed
from allaboard.cluster.view import ClusterView
from allaboard.gangs.membership import POD_GROUP_LABEL
from allaboard.gangs.podgroup import PodGroup
from allaboard.gangs.podgroup_reader import PodGroupReader
from allaboard.gangs.registry import GangRegistry
from allaboard.kube.client import ApiServer
from allaboard.leadership.fencing import Term
from allaboard.leadership.takeover import TakeoverReservation
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Owner, Pod
from allaboard.model.reasons import Cause
from allaboard.placement import Plan, Problem, SearchSettings
from allaboard.placement.contest.contest import Contest
from allaboard.placement.contest.joint import Joint
from allaboard.placement.problem.draft import Draft
from allaboard.planning.gang_problem import Packings
from allaboard.planning.known_gangs import KnownGangs
from allaboard.planning.planner import Planner
from allaboard.planning.prepared import prepared
from allaboard.planning.search_costs import SearchCosts
from allaboard.planning.search_processes import Searcher
from allaboard.queueing.batch_window import BatchWindow
from allaboard.queueing.capacity_waitlist import Capacity
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.ranks import OVERTAKING, Ranks
from allaboard.queueing.requeue import Freed
from allaboard.queueing.search_time import SearchTime
from allaboard.records.backoff import BACKOFF
from allaboard.records.losses import Losses
from allaboard.records.partial_bind import KeptOpen
from allaboard.records.record import GangRecords
from allaboard.records.waiting import WaitClock
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.metrics import Metrics
from allaboard.report.podgroup_writer import PodGroupWriter
from allaboard.report.pods import PodReporter
from allaboard.report.reporter import Reporter
from allaboard.report.writer import Writer
from allaboard.scheduling.attempt import Attempt
from allaboard.scheduling.build import Writers, cycle_of
from allaboard.scheduling.cluster_events import ClusterEvents
from allaboard.scheduling.decide import Decision, Done, Wait
from allaboard.scheduling.scheduler import Scheduler
from tests.unit.placement.clusters import node, pods

SET, JOB = Owner("apps/v1", "ReplicaSet", "r", "u"), Owner("batch/v1", "Job", "j", "v")
HALF: dict[str, Any] = {"size": 4, "bound": 2}
OF_A_JOB: dict[str, Any] = {**HALF, "owner": JOB, "options": {"undo": "suspend"}}
"""What ``World.add`` takes for a gang of which two of four members are bound, and for one that is a Job's, which may be suspended."""


class Searched(Searcher):
    """Searches on the spot; ``asked`` is for whom. Searches can be told what comes of them by what they are called there."""

    def __init__(self) -> None:
        super().__init__(SearchSettings(generations=6, min_generations=2, patience=3, population_size=8), workers=0)
        self.asked: list[str] = []
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.fails: dict[str, Exception] = {}
        self.finds_nothing: set[str] = set()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def search_briefly(self, problem: Problem | Draft, seed: int) -> Plan:
        return self._told(f"briefly {_gang_of(problem)}", await super().search_briefly(problem, seed))

    async def search(self, problem: Problem | Draft, seed: int) -> Plan:
        """Ends when it ``goes_on``."""
        plan = self._told(f"at length {_gang_of(problem)}", await super().search(problem, seed))
        await self.goes_on.wait()
        return plan

    async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
        self._note(f"{len(contest.gangs)} together")
        return await super().place_together(contest, is_easy=is_easy)

    def _note(self, search: str) -> None:
        self.asked.append(search)
        self.meanwhile.pop(search, lambda: None)()

    def _told(self, search: str, plan: Plan) -> Plan:
        self._note(search)
        if search in self.fails:
            raise self.fails[search]
        return replace(plan, feasible=None) if search in self.finds_nothing else plan


def _gang_of(problem: Problem | Draft) -> str:
    assert isinstance(problem, Problem)
    return problem.roles[0].pods[0].rpartition("-")[0]


class Api:
    """Binds and releases whoever it is asked for, but those of a Job, and suspends Jobs; ``asked`` is whom, ``tried`` whom without effect.

    The ``replies`` for some pods, by name, are other ones; binds are answered while it ``answers``, pods are sealed while it ``seals``,
    and Jobs go on while it ``resumes``, or when it is to ``hurry``. What users are told is ``written``. No watch tells of anything.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tried: list[str] = []
        self.written: list[str] = []
        self.replies: dict[str, BindReply] = {}
        self.answers, self.seals, self.resumes = asyncio.Event(), asyncio.Event(), asyncio.Event()
        for event in (self.answers, self.seals, self.resumes):
            event.set()

    async def bind(self, pod: Pod, node_name: str, stamp: str, *, dry_run: bool = False, look: Look, **told: object) -> BindReply:
        if dry_run:
            self.tried.append(pod.name)
            return BindReply(Result.BOUND)
        self.asked.append(f"bind {pod.name}")
        await self.answers.wait()
        return self.replies.get(pod.name, BindReply(Result.BOUND))

    async def release(self, pod: Pod, *, even_running: bool = False) -> bool:
        if not pod.is_of_job:
            self.asked.append(f"{'evict' if even_running else 'delete'} {pod.name}")
        return not pod.is_of_job

    async def would_go(self, pod: Pod, *, is_suspended: bool = False) -> bool:
        return is_suspended or not pod.is_of_job

    async def restart(self, pods: Sequence[Pod], *, even_running: bool = False, is_wanted: Callable[[], bool]) -> None:
        self.asked += [f"suspend the Job of {pod.name}" for pod in pods]
        await self.resumes.wait()

    def hurry(self) -> None:
        self.resumes.set()

    async def patch(self, path: object, body: object) -> None:
        """Seals a pod."""
        await self.seals.wait()

    async def write(self, path: str, body: object, content_type: str = "") -> None:
        """Takes what users are told."""
        self.written.append(path)


class Recorder(EventRecorder):
    """Notes events instead of posting them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def _record(self, kind: str, about: ObjectReference, reason: str, action: str, note: str, *, is_low: bool = False) -> None:
        self.told.append((about.name, reason))


class World:
    """A cluster of one node of so many processors, and a scheduler that isn't run; its time passes when a test says so.

    As a context manager it ends what was begun.
    """

    def __init__(self, cpus: int = 8) -> None:
        self.now = 1000.0
        self.searched, self.api, self.events = Searched(), Api(), Recorder()
        self.view, self.registry, self.records = ClusterView(), GangRegistry(["allaboard"]), GangRecords()
        self.registry.knows_whole = self.records.knows_whole
        self.shares, self.metrics = SearchTime(self.clock), Metrics()
        ranks = Ranks(self.registry, self.records, self.shares, OVERTAKING, self.clock)
        self.queue = GangQueue(ranks.place, self.registry.knows, self.records, slots=Capacity(self.view), clock=self.clock)
        server, self.writer = cast("ApiServer", self.api), Writer()
        self.keeper = PodGroupWriter(PodGroupReader(server, self.registry), self.records, self.writer)
        waits = WaitClock(self.records, self.clock, self.clock)
        teller = PodReporter(server, self.events, self.writer)
        losses = Losses(self.records, self.registry.root_of, BACKOFF, self.clock)
        self.gangs = KnownGangs(self.registry, self.records, waits, losses, self.view, self.clock)
        costs = SearchCosts(self.metrics, self.shares, self.clock)
        self.planner = Planner(self.view, self.records, self.searched, costs, Packings(), OVERTAKING)
        self.reporter = Reporter(self.events, teller, self.keeper, self.records, waits, self.metrics, clock=self.clock, now=self.clock)
        writers = Writers(cast("Binder", self.api), cast("JobRestarter", self.api), Term(server, clock=self.clock))
        self.cycle_ = cycle_of(self.gangs, self.queue, ranks, self.planner, self.reporter, writers)
        self.executor, self.due, self.longer = self.cycle_.executor, self.cycle_.due, self.cycle_.longer
        self.partial_binds, self.tasks, self.long = self.executor.partial_binds, self.executor.tasks, self.longer.long
        takeover = TakeoverReservation(self.view, writers.term, 1, lambda: self.queue.observe(Freed()), self.clock)
        window = BatchWindow(lambda: self.registry.arrivals, 0.0, 0.0, self.clock, asyncio.sleep)
        self.scheduler = Scheduler(self.cycle_, window, takeover, writers.restarter)
        cluster_events = ClusterEvents(self.queue, self.reporter)
        self.view.listen(self.registry.observe_pod)
        self.view.listen(cluster_events.observe_pod, cluster_events.observe_node)
        self.registry.listen(self.queue.mark)
        self.resize(cpus)

    def clock(self) -> float:
        return self.now

    def resize(self, cpus: int) -> None:
        """Let the node have so many processors."""
        self.view.upsert_node(node("n", {"cpu": cpus * 1000}))

    def add(
        self,
        name: str,
        size: int = 2,
        *,
        minimum: int = 0,
        bound: int = 0,
        cpus: int = 1,
        namespace: str = "default",
        options: dict[str, str] | None = None,
        **fields: Any,
    ) -> GangKey:
        """A gang of ``size`` pods, all of which it needs unless there is a ``minimum``; ``fields`` are its pods'. It is due."""
        key, minimum = GangKey(namespace, name), minimum or size
        self.registry.observe_group(PodGroup(key, f"uid-{name}", 1, minimum, 60, fields.get("created", 0.0), options or {}))
        made = {"owner": SET, "namespace": namespace, "labels": ((POD_GROUP_LABEL, name),), **fields}
        for number, pod in enumerate(pods(name, size, {"cpu": cpus * 1000})):
            seat = {"node_name": "n", "stamped_min_member": minimum, "transaction": "run"} if number < bound else {}
            self.view.upsert_pod(replace(pod, **made, **seat))
        return key

    def add_half(self, name: str, size: int = 2, **fields: Any) -> GangKey:
        """A gang of which nobody could be released, and whose time is over; it isn't due, and is the first."""
        key = self.add(name, size, **fields)
        partial_bind = self.records.partial_bind(key)
        partial_bind.state, partial_bind.expires = KeptOpen(), self.now
        assert self.queue.pop() == key
        return key

    def remove(self, key: GangKey) -> None:
        """Let a gang be gone."""
        for pod in self.gang(key).members:
            self.view.remove_pod(pod.key)
        self.registry.forget_group(key, 1)

    def gang(self, key: GangKey) -> Gang:
        gang = self.registry.gang(key)
        assert gang is not None
        return gang

    def begin(self, key: GangKey) -> Attempt:
        """Take a gang out of the queue, if it is in: it is the first there."""
        assert self.queue.pop() in (key, None)
        return Attempt(self.gang(key), self.now, self.queue.changes)

    async def settle(self) -> None:
        """Wait until nothing is done beside the cycle."""
        async with asyncio.timeout(50):
            await self.tasks.settled()

    async def breathe(self) -> None:
        """Let those who can go on do so until they wait."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def write(self) -> None:
        """Have written what users are to be told."""
        writing = asyncio.create_task(self.writer.run(lambda seconds: asyncio.sleep(0)))
        async with asyncio.timeout(50):
            await self.writer.drain()
        writing.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for event in (self.searched.goes_on, self.api.answers, self.api.seals, self.api.resumes):
            event.set()
        self.long.stop()
        await self.settle()
        await self.executor.stop(0.0)
        await self.executor.advisor.stop()

    async def cycle(self) -> None:
        """One cycle, and what it has begun."""
        await self.cycle_.run()
        await self.settle()

    async def plan(self, attempt: Attempt) -> Plan:
        """A plan for what is free now."""
        return await self.planner.plan(prepared(attempt.gang))

    def decide(self, attempt: Attempt, decision: Decision) -> None:
        """Have a decision carried out."""
        self.executor.carry_out(attempt, decision)

    def refused(self, attempt: Attempt, plan: Plan, cause: Cause | None) -> None:
        """Let there be no capacity for a gang."""
        self.decide(attempt, Wait(NoCapacity(plan, cause)))

    def failed(self, gang: Gang, error: str) -> None:
        """Let an attempt at a gang fail."""
        self.decide(Attempt(gang, self.now, self.queue.changes), Wait(SearchFailed(error)))

    def rest(self, gang: Gang) -> None:
        """Let nothing be to do about a gang."""
        self.decide(Attempt(gang, self.now, self.queue.changes), Done())

    def back_off(self, attempt: Attempt) -> None:
        """Let a gang back off whose members were lost soon after they were bound."""
        lost = self.due._lost(attempt.gang)
        assert lost is not None
        self.decide(attempt, Wait(lost))

    def said(self, key: GangKey) -> str:
        """The last words on a gang; empty without any."""
        opinion = self.keeper.opinion(key)
        return opinion.message if opinion else ""

    def has_said(self, key: GangKey, beginning: str) -> bool:
        """Whether the last words on a gang begin so; or, if that is empty, whether there are none."""
        return self.said(key).startswith(beginning) if beginning else not self.said(key)

    def seconds_until_due(self, key: GangKey) -> float:
        """When a gang is looked at if nothing happens."""
        if self.queue.peek() == key:
            return 0.0
        record = self.records.find(key)
        return math.inf if record is None or record.queue.due_at is None else record.queue.due_at - self.now

    def counted(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"allaboard_{metric}_total", labels) or 0.0
