"""A whole scheduler on a simulated cluster. It takes only the steps that a test asks for, and records its requests."""

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
from allaboard.planning.evictable import PREEMPTION
from allaboard.planning.gang_problem import Packings
from allaboard.planning.known_gangs import KnownGangs
from allaboard.planning.planner import Planner
from allaboard.planning.policy import Policy
from allaboard.planning.prepared import prepared
from allaboard.planning.search_costs import SearchCosts
from allaboard.planning.search_processes import Searcher
from allaboard.queueing.batch_window import BatchWindow
from allaboard.queueing.capacity_waitlist import Capacity
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.ranks import Ranks
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
from tests.unit.planning.ledgers import a_ledger

SET, JOB = Owner("apps/v1", "ReplicaSet", "r", "u"), Owner("batch/v1", "Job", "j", "v")
PARTIAL: dict[str, Any] = {"size": 4, "bound": 2}
OF_A_JOB: dict[str, Any] = {**PARTIAL, "owner": JOB, "options": {"undo": "suspend"}}
"""Arguments of ``World.add`` for a gang of four members, two of them bound. With ``OF_A_JOB`` a Job owns the pods, and may be suspended."""


class RecordedSearcher(Searcher):
    """A searcher that works in this process and lists its ``searches`` by name, such as "briefly g" or "2 together".

    By a search's name a test sets a call during the search (``meanwhile``), an error (``fails``), or that the search finds neither a
    placement nor a proof (``finds_nothing``). Long searches end only while ``may_answer`` is set.
    """

    def __init__(self) -> None:
        super().__init__(SearchSettings(generations=6, min_generations=2, patience=3, population_size=8), workers=0)
        self.searches: list[str] = []
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.fails: dict[str, Exception] = {}
        self.finds_nothing: set[str] = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def search_briefly(self, problem: Problem | Draft, seed: int) -> Plan:
        return self._result_of(f"briefly {_gang_of(problem)}", await super().search_briefly(problem, seed))

    async def search(self, problem: Problem | Draft, seed: int) -> Plan:
        """Return the plan of a long search once ``may_answer`` is set."""
        plan = self._result_of(f"at length {_gang_of(problem)}", await super().search(problem, seed))
        await self.may_answer.wait()
        return plan

    async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
        self._note(f"{len(contest.gangs)} together")
        return await super().place_together(contest, is_easy=is_easy)

    def _note(self, search: str) -> None:
        self.searches.append(search)
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
    """An API server that carries out every bind, suspends Jobs, and releases every pod except a Job's pods.

    ``requests`` lists the requests, ``dry_runs`` the pods of dry-run binds, and ``written`` the paths of reports to users. ``replies`` has
    other replies to binds, by pod name. Binds are answered while ``answers`` is set, and pods are fenced off while ``fences`` is set. Jobs
    are resumed while ``resumes`` is set, or after ``hurry``. No watch delivers any change.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.dry_runs: list[str] = []
        self.written: list[str] = []
        self.replies: dict[str, BindReply] = {}
        self.answers, self.fences, self.resumes = asyncio.Event(), asyncio.Event(), asyncio.Event()
        for event in (self.answers, self.fences, self.resumes):
            event.set()

    async def bind(
        self, pod: Pod, node_name: str, stamp: str, *, dry_run: bool = False, check: AssignmentCheck, **options: object
    ) -> BindReply:
        if dry_run:
            self.dry_runs.append(pod.name)
            return BindReply(Result.BOUND)
        self.requests.append(f"bind {pod.name}")
        await self.answers.wait()
        return self.replies.get(pod.name, BindReply(Result.BOUND))

    async def release(self, pod: Pod, *, even_running: bool = False) -> bool:
        if not pod.is_of_job:
            self.requests.append(f"{'evict' if even_running else 'delete'} {pod.name}")
        return not pod.is_of_job

    async def would_go(self, pod: Pod, *, is_suspended: bool = False) -> bool:
        return is_suspended or not pod.is_of_job

    async def restart(self, pods: Sequence[Pod], *, even_running: bool = False, is_wanted: Callable[[], bool]) -> None:
        self.requests += [f"suspend the Job of {pod.name}" for pod in pods]
        await self.resumes.wait()

    def hurry(self) -> None:
        self.resumes.set()

    async def patch(self, path: object, body: object) -> None:
        """Fence off a pod."""
        await self.fences.wait()

    async def write(self, path: str, body: object, content_type: str = "") -> None:
        """Record the path of a report to users."""
        self.written.append(path)


class Recorder(EventRecorder):
    """An event recorder that keeps (object name, reason) of each event instead of posting the event."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, str]] = []

    def _record(self, kind: str, about: ObjectReference, reason: str, action: str, note: str, *, is_low: bool = False) -> None:
        self.reported.append((about.name, reason))


class World:
    """A cluster of one node with ``cpus`` processors, and a scheduler that takes single steps. Time passes only when a test sets ``now``.

    On leaving its context it ends all searches and tasks.
    """

    def __init__(self, cpus: int = 8) -> None:
        self.now = 1000.0
        self.searcher, self.api, self.events = RecordedSearcher(), Api(), Recorder()
        self.view, self.registry, self.records = ClusterView(), GangRegistry(["allaboard"]), GangRecords()
        self.registry.knows_whole = self.records.knows_whole
        self.shares, self.metrics = SearchTime(self.clock), Metrics()
        ranks = Ranks(self.registry, self.records, self.shares, self.clock)
        self.ledger = a_ledger(self.view, ranks.place, self.clock)
        self.queue = GangQueue(ranks.place, self.registry.knows, self.records, slots=Capacity(self.view, self.ledger), clock=self.clock)
        server, self.writer = cast("ApiServer", self.api), Writer()
        self.podgroup_writer = PodGroupWriter(PodGroupReader(server, self.registry), self.records, self.writer)
        waits = WaitClock(self.records, self.clock, self.clock)
        pod_reporter = PodReporter(server, self.events, self.writer)
        losses = Losses(self.records, self.registry.root_of, BACKOFF, self.clock)
        self.gangs = KnownGangs(self.registry, self.records, waits, losses, self.view, self.clock)
        costs = SearchCosts(self.metrics, self.shares, self.clock)
        self.planner = Planner(self.view, self.records, self.searcher, costs, Packings(), self.ledger)
        self.reporter = Reporter(
            self.events, pod_reporter, self.podgroup_writer, self.records, waits, self.metrics, clock=self.clock, now=self.clock
        )
        writers = Writers(cast("Binder", self.api), cast("JobRestarter", self.api), Term(server, clock=self.clock))
        self.cycle = cycle_of(self.gangs, self.queue, ranks, self.planner, self.reporter, writers, Policy(preemption=PREEMPTION))
        self.executor, self.due, self.longer = self.cycle.executor, self.cycle.due, self.cycle.longer
        self.partial_binds, self.tasks, self.long = self.executor.partial_binds, self.executor.tasks, self.longer.long
        takeover = TakeoverReservation(self.view, writers.term, 1, lambda: self.queue.observe(Freed()), self.clock)
        window = BatchWindow(lambda: self.registry.arrivals, 0.0, 0.0, self.clock, asyncio.sleep)
        self.scheduler = Scheduler(self.cycle, window, takeover, writers.restarter)
        cluster_events = ClusterEvents(self.queue, self.reporter)
        self.view.listen(self.registry.observe_pod)
        self.view.listen(cluster_events.observe_pod, cluster_events.observe_node)
        self.registry.listen(self.queue.mark)
        self.resize(cpus)

    def clock(self) -> float:
        return self.now

    def resize(self, cpus: int) -> None:
        """Set the number of the node's processors."""
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
        """Add a gang that is due: ``size`` pods with ``fields``, the first ``bound`` of them bound.

        The gang's minMember is ``minimum``, or its size if that is 0.
        """
        key, minimum = GangKey(namespace, name), minimum or size
        self.registry.observe_group(PodGroup(key, f"uid-{name}", 1, minimum, 60, fields.get("created", 0.0), options or {}))
        fields = {"owner": SET, "namespace": namespace, "labels": ((POD_GROUP_LABEL, name),), **fields}
        for number, pod in enumerate(pods(name, size, {"cpu": cpus * 1000})):
            binding: dict[str, Any] = {"node_name": "n", "stamped_min_member": minimum, "transaction": "run"} if number < bound else {}
            self.view.upsert_pod(replace(pod, **fields, **binding))
        return key

    def add_partially_bound(self, name: str, size: int = 2, **fields: Any) -> GangKey:
        """Add a partially bound gang that is kept open and past its time-out, and take it from the queue, where it must be the first."""
        key = self.add(name, size, **fields)
        partial_bind = self.records.partial_bind(key)
        partial_bind.state, partial_bind.expires = KeptOpen(), self.now
        assert self.queue.pop() == key
        return key

    def remove(self, key: GangKey) -> None:
        """Delete a gang with its pods and its PodGroup."""
        for pod in self.gang(key).members:
            self.view.remove_pod(pod.key)
        self.registry.forget_group(key, 1)

    def gang(self, key: GangKey) -> Gang:
        gang = self.registry.gang(key)
        assert gang is not None
        return gang

    def begin(self, key: GangKey) -> Attempt:
        """Begin an attempt at a gang. The gang must be the first in the queue, or the queue must be empty."""
        assert self.queue.pop() in (key, None)
        return Attempt(self.gang(key), self.now, self.queue.changes)

    async def wait_until_idle(self) -> None:
        """Wait until no task runs beside the cycle."""
        async with asyncio.timeout(50):
            await self.tasks.wait_until_idle()

    async def run_other_tasks(self) -> None:
        """Let all other tasks run until they wait."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def write_reports(self) -> None:
        """Write the queued reports to the API server."""
        writing = asyncio.create_task(self.writer.run(lambda seconds: asyncio.sleep(0)))
        async with asyncio.timeout(50):
            await self.writer.drain()
        writing.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for event in (self.searcher.may_answer, self.api.answers, self.api.fences, self.api.resumes):
            event.set()
        self.long.stop()
        await self.wait_until_idle()
        await self.executor.stop(0.0)
        await self.executor.advisor.stop()

    async def run_cycle(self) -> None:
        """Run one cycle and all tasks that it starts."""
        await self.cycle.run()
        await self.wait_until_idle()

    async def plan(self, attempt: Attempt) -> Plan:
        """Return a plan for the gang in the capacity that is free now."""
        return await self.planner.plan(prepared(attempt.gang))

    def carry_out(self, attempt: Attempt, decision: Decision) -> None:
        """Have the executor carry out a decision."""
        self.executor.carry_out(attempt, decision)

    def refuse(self, attempt: Attempt, plan: Plan, cause: Cause | None) -> None:
        """Carry out that a gang waits, since there is no capacity for it."""
        self.carry_out(attempt, Wait(NoCapacity(plan, cause)))

    def fail(self, gang: Gang, error: str) -> None:
        """Carry out that a gang waits, since its search failed with ``error``."""
        self.carry_out(Attempt(gang, self.now, self.queue.changes), Wait(SearchFailed(error)))

    def do_nothing(self, gang: Gang) -> None:
        """Carry out that a gang needs nothing: it is whole, or its members have ended."""
        self.carry_out(Attempt(gang, self.now, self.queue.changes), Done())

    def back_off(self, attempt: Attempt) -> None:
        """Carry out that a gang waits, since its members were lost soon after their bind."""
        lost = self.due._lost_soon(attempt.gang)
        assert lost is not None
        self.carry_out(attempt, Wait(lost))

    def message_of(self, key: GangKey) -> str:
        """Return the last reported message of a gang; empty if there is none."""
        opinion = self.podgroup_writer.opinion(key)
        return opinion.message if opinion else ""

    def has_message(self, key: GangKey, beginning: str) -> bool:
        """Return whether the last message of a gang starts with ``beginning``; if that is empty, whether there is no message."""
        return self.message_of(key).startswith(beginning) if beginning else not self.message_of(key)

    def seconds_until_due(self, key: GangKey) -> float:
        """Return the seconds until a gang is due if nothing changes; infinite if it is never due."""
        if self.queue.peek() == key:
            return 0.0
        record = self.records.find(key)
        return math.inf if record is None or record.queue.due_at is None else record.queue.due_at - self.now

    def counted(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"allaboard_{metric}_total", labels) or 0.0
