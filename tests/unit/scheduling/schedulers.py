"""A whole scheduler on a made-up cluster. It does only what a test asks for, and records its requests."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self, cast

from allaboard.binding.bind import AssignmentCheck, Binder
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
PARTIAL: dict[str, Any] = {"size": 4, "bound": 2}
OF_A_JOB: dict[str, Any] = {**PARTIAL, "owner": JOB, "options": {"undo": "suspend"}}
"""Arguments of ``World.add`` for a partially bound gang, two of four members, and for one of a Job that may be suspended."""


class Searched(Searcher):
    """Searches in this process; ``asked`` lists the searches. A test can set the result of a search by its name in that list."""

    def __init__(self) -> None:
        super().__init__(SearchSettings(generations=6, min_generations=2, patience=3, population_size=8), workers=0)
        self.asked: list[str] = []
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.fails: dict[str, Exception] = {}
        self.finds_nothing: set[str] = set()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def search_briefly(self, problem: Problem | Draft, seed: int) -> Plan:
        return self._result_of(f"briefly {_gang_of(problem)}", await super().search_briefly(problem, seed))

    async def search(self, problem: Problem | Draft, seed: int) -> Plan:
        """Return once ``goes_on`` is set."""
        plan = self._result_of(f"at length {_gang_of(problem)}", await super().search(problem, seed))
        await self.goes_on.wait()
        return plan

    async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
        self._note(f"{len(contest.gangs)} together")
        return await super().place_together(contest, is_easy=is_easy)

    def _note(self, search: str) -> None:
        self.asked.append(search)
        self.meanwhile.pop(search, lambda: None)()

    def _result_of(self, search: str, plan: Plan) -> Plan:
        self._note(search)
        if search in self.fails:
            raise self.fails[search]
        return replace(plan, feasible=None) if search in self.finds_nothing else plan


def _gang_of(problem: Problem | Draft) -> str:
    assert isinstance(problem, Problem)
    return problem.roles[0].pods[0].rpartition("-")[0]


class Api:
    """Carries out all binds and releases but those of a Job's pods, and suspends Jobs. ``asked`` lists requests, ``tried`` the dry runs.

    ``replies`` has other answers, by pod name. Binds are answered while ``answers`` is set, pods are fenced off while ``seals`` is set, and
    Jobs are resumed while ``resumes`` is set, or after ``hurry``. Reports to users are in ``written``. No watch delivers anything.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tried: list[str] = []
        self.written: list[str] = []
        self.replies: dict[str, BindReply] = {}
        self.answers, self.seals, self.resumes = asyncio.Event(), asyncio.Event(), asyncio.Event()
        for event in (self.answers, self.seals, self.resumes):
            event.set()

    async def bind(
        self, pod: Pod, node_name: str, stamp: str, *, dry_run: bool = False, check: AssignmentCheck, **options: object
    ) -> BindReply:
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
        """Fence off a pod."""
        await self.seals.wait()

    async def write(self, path: str, body: object, content_type: str = "") -> None:
        """Record what is reported to users."""
        self.written.append(path)


class Recorder(EventRecorder):
    """Records events instead of posting them."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, str]] = []

    def _record(self, kind: str, about: ObjectReference, reason: str, action: str, note: str, *, is_low: bool = False) -> None:
        self.reported.append((about.name, reason))


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
        """Set the node's number of processors."""
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
        """Add a gang of ``size`` pods, all of which it needs unless there is a ``minimum``; ``fields`` are its pods'. The gang is due."""
        key, minimum = GangKey(namespace, name), minimum or size
        self.registry.observe_group(PodGroup(key, f"uid-{name}", 1, minimum, 60, fields.get("created", 0.0), options or {}))
        made = {"owner": SET, "namespace": namespace, "labels": ((POD_GROUP_LABEL, name),), **fields}
        for number, pod in enumerate(pods(name, size, {"cpu": cpus * 1000})):
            seat = {"node_name": "n", "stamped_min_member": minimum, "transaction": "run"} if number < bound else {}
            self.view.upsert_pod(replace(pod, **made, **seat))
        return key

    def add_partially_bound(self, name: str, size: int = 2, **fields: Any) -> GangKey:
        """Add a partially bound gang that could not be released and is past its time-out; it isn't due, and is the first in the queue."""
        key = self.add(name, size, **fields)
        partial_bind = self.records.partial_bind(key)
        partial_bind.state, partial_bind.expires = KeptOpen(), self.now
        assert self.queue.pop() == key
        return key

    def remove(self, key: GangKey) -> None:
        """Delete a gang."""
        for pod in self.gang(key).members:
            self.view.remove_pod(pod.key)
        self.registry.forget_group(key, 1)

    def gang(self, key: GangKey) -> Gang:
        gang = self.registry.gang(key)
        assert gang is not None
        return gang

    def begin(self, key: GangKey) -> Attempt:
        """Take a gang out of the queue, if it is in; it must be the first."""
        assert self.queue.pop() in (key, None)
        return Attempt(self.gang(key), self.now, self.queue.changes)

    async def settle(self) -> None:
        """Wait until no task runs beside the cycle."""
        async with asyncio.timeout(50):
            await self.tasks.wait_until_idle()

    async def breathe(self) -> None:
        """Run all other tasks until they wait."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def write(self) -> None:
        """Write the queued reports."""
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
        """Run one cycle, and the tasks that it starts."""
        await self.cycle_.run()
        await self.settle()

    async def plan(self, attempt: Attempt) -> Plan:
        """Return a plan for the capacity that is free now."""
        return await self.planner.plan(prepared(attempt.gang))

    def decide(self, attempt: Attempt, decision: Decision) -> None:
        """Have a decision carried out."""
        self.executor.carry_out(attempt, decision)

    def refused(self, attempt: Attempt, plan: Plan, cause: Cause | None) -> None:
        """Refuse a gang for lack of capacity."""
        self.decide(attempt, Wait(NoCapacity(plan, cause)))

    def failed(self, gang: Gang, error: str) -> None:
        """Let an attempt at a gang fail."""
        self.decide(Attempt(gang, self.now, self.queue.changes), Wait(SearchFailed(error)))

    def rest(self, gang: Gang) -> None:
        """Decide that nothing is to be done about a gang."""
        self.decide(Attempt(gang, self.now, self.queue.changes), Done())

    def back_off(self, attempt: Attempt) -> None:
        """Delay a gang whose members were lost soon after they were bound."""
        lost = self.due._lost_soon(attempt.gang)
        assert lost is not None
        self.decide(attempt, Wait(lost))

    def said(self, key: GangKey) -> str:
        """Return the last message of a gang; empty without any."""
        opinion = self.keeper.opinion(key)
        return opinion.message if opinion else ""

    def has_said(self, key: GangKey, beginning: str) -> bool:
        """Return whether the last message of a gang begins so; or, if that is empty, whether there is none."""
        return self.said(key).startswith(beginning) if beginning else not self.said(key)

    def seconds_until_due(self, key: GangKey) -> float:
        """Return in how many seconds a gang is due if nothing changes."""
        if self.queue.peek() == key:
            return 0.0
        record = self.records.find(key)
        return math.inf if record is None or record.queue.due_at is None else record.queue.due_at - self.now

    def counted(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"allaboard_{metric}_total", labels) or 0.0
