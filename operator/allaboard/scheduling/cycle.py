"""The main path: from a gang that is due to a gang that is bound, or told why not.

Read ``Scheduler.attempt`` first. Searches run one after another, each on a snapshot that contains the seats promised before it;
transactions run beside them, so the API server works on one gang while the next is searched.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from allaboard.cluster.bind import Binder
from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import UnboundClaimError, VolumeView
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import Gang, GangKey, Hold
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.placement import NodeFilters, Plan, build_problem
from allaboard.report import words
from allaboard.report.metrics import Metrics
from allaboard.scheduling.announcer import Announcer
from allaboard.scheduling.queue import ANYTHING, GangQueue, Lacks
from allaboard.scheduling.transaction import DryRun, Refused, Transaction, begin, undo
from allaboard.scheduling.workers import Searcher, SearchError

logger = logging.getLogger(__name__)

_FORWARD_SECONDS = 5.0  # how long an open gang may wait for its missing members before it is undone
_RETRY_SECONDS = 0.5
_NOT_FOUND_GRACE_ATTEMPTS = 1  # a PodGroup is often made just after its pods


@dataclass(slots=True)
class _Attempt:
    """One attempt at one gang: what it started from."""

    gang: Gang
    started: float
    changes: int


@dataclass(slots=True)
class Scheduler:
    """Takes due gangs from the queue and brings each to a decision. Belongs to the event loop."""

    view: ClusterView
    volumes: VolumeView
    registry: GangRegistry
    queue: GangQueue
    searcher: Searcher
    binder: Binder
    announcer: Announcer
    metrics: Metrics
    dry_run: DryRun = "role"
    batch_window: float = 0.02
    clock: Callable[[], float] = time.monotonic
    _filters: NodeFilters = field(default_factory=NodeFilters)
    _committing: dict[GangKey, asyncio.Task[None]] = field(default_factory=dict)
    _missed: set[GangKey] = field(default_factory=set)
    _opened: dict[GangKey, float] = field(default_factory=dict)
    _undone: set[GangKey] = field(default_factory=set)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod has changed: seats it no longer takes may be what others wait for."""
        if old is not None and new is None:
            self.announcer.forget_pod(old)
        if old is not None and old.is_bound and (new is None or not new.is_bound or new.uid != old.uid):
            self.queue.wake(resource for resource, _ in old.spec.requests)

    def observe_node(self, old: Node | None, new: Node | None) -> None:
        """A node has come, gone or changed."""
        if new is not None:
            self.queue.wake()

    def observe_volumes(self) -> None:
        """A claim or a volume has changed."""
        self.queue.wake()

    async def run(self) -> None:
        """Schedule until cancelled. An error in one gang's handling is that gang's alone."""
        try:
            while True:
                await self.queue.wait()
                # Pods of one job arrive one by one; a short wait sees them together.
                await asyncio.sleep(self.batch_window)
                await self.cycle()
        finally:
            for task in self._committing.values():
                task.cancel()
            await asyncio.gather(*self._committing.values(), return_exceptions=True)

    async def cycle(self) -> None:
        """Bring every gang that is due to a decision, the first in queue order first."""
        while (key := self.queue.pop()) is not None:
            if key in self._committing:
                self._missed.add(key)  # looked at again when its transaction ends
                continue
            try:
                await self.attempt(key)
            except Exception:
                logger.exception("gang %s: the attempt failed by a defect; other gangs go on", key)
                self.queue.fail(key, ANYTHING, seen=self.queue.changes)
            await asyncio.sleep(0)

    async def settled(self) -> None:
        """Wait until no transaction is under way."""
        while self._committing:
            await asyncio.gather(*self._committing.values(), return_exceptions=True)

    async def attempt(self, key: GangKey) -> None:
        """One gang, from what is known of it to a decision."""
        # 1. Who is it, and may it be scheduled at all?
        gang = self._gang(key)
        if gang is None:
            self._forget(key)
            return
        attempt = _Attempt(gang, self.clock(), self.queue.changes)
        if gang.hold:
            self._hold(attempt, gang.hold)
            return
        # 2. Is there anything to do?
        if any(self.view.is_assumed(pod) for pod in gang.candidates):
            return  # just bound; the watch is about to say so, and rings again
        if not gang.candidates and gang.is_whole:
            self._rest(gang)
            return
        if await self._undo_if_due(gang):
            return
        if len(gang.candidates) < gang.missing:
            self._await_members(attempt)
            return
        # 3. Where could everybody go?
        self.announcer.waiting_since(gang)
        try:
            plan = await self._search(gang)
        except SearchError as error:
            self._fail(attempt, str(error))
            return
        # 4. Nowhere: say why, and wait for what was lacking.
        if not plan.feasible:
            await self._refuse(attempt, plan)
            return
        # 5. Promise the seats, unless the world has moved on meanwhile.
        fresh = self._gang(key)
        if fresh is None or fresh.hold:
            self.queue.mark(key)
            return
        attempt.gang = fresh
        # After an undo every member is tried beforehand: one pod that is refused would undo the gang for ever.
        dry_run: DryRun = "all" if key in self._undone else self.dry_run
        transaction = begin(fresh, dict(plan.assignments), self.view, self.binder, dry_run)
        if isinstance(transaction, Refused):
            logger.info("gang %s: %s; looking again", key, transaction.message)
            self.queue.mark(key)
            return
        # 6. Bind all or none, beside the next search.
        self._committing[key] = asyncio.create_task(self._commit(attempt, plan, transaction), name=f"commit {key}")

    def _gang(self, key: GangKey) -> Gang | None:
        """The gang as it stands, its members with what their volumes and the pods around them ask of nodes."""
        gang = self.registry.gang(key)
        if gang is None:
            return None
        members = []
        for pod in gang.members:
            try:
                members.append(self._in_surroundings(pod) if pod.is_candidate else pod)
            except UnboundClaimError as error:
                return replace(gang, hold=gang.hold or Hold("UnboundVolumes", f"pod {pod.name}: {error}", pod, "spec.volumes"))
        return replace(gang, members=tuple(members))

    def _in_surroundings(self, pod: Pod) -> Pod:
        resolved = self.volumes.resolve(pod)
        avoided = self.view.avoided(pod)
        return replace(resolved, spec=replace(resolved.spec, avoided=avoided)) if avoided else resolved

    async def _search(self, gang: Gang) -> Plan:
        """A placement of the missing members, and as many more as fit; of a whole gang's surplus, at least one."""
        problem = build_problem(
            gang.candidates, max(1, gang.missing), self.view.snapshot(), objective=gang.objective, filters=self._filters
        )
        started = self.clock()
        seed = zlib.crc32(f"{gang.uid or gang.key}/{self.queue.attempts(gang.key)}".encode())
        plan = await self.searcher.search(problem, seed)
        self.metrics.algorithm_seconds.observe(self.clock() - started)
        self.metrics.generations.observe(plan.search.generations)
        self.metrics.gain.observe(max(0.0, plan.search.score - plan.search.seed_score))
        self.metrics.searches.labels(plan.search.stopped_by).inc()
        return plan

    async def _commit(self, attempt: _Attempt, plan: Plan, transaction: Transaction) -> None:
        gang = attempt.gang
        try:
            outcome = await transaction.commit()
            seconds = self.clock() - attempt.started
            if isinstance(outcome, Refused):
                self.metrics.transactions.labels("refused").inc()
                self.queue.wake()  # the seats that were promised are free again
                self._fail(attempt, outcome.message)
                return
            for _, reply in outcome.failed:
                self.metrics.binds.labels(reply.result).inc()
            self.metrics.binds.labels("bound").inc(len(outcome.bound))
            if outcome.failed:
                self.queue.wake()
            if outcome.missing and not outcome.bound and not gang.bound:
                self.metrics.transactions.labels("refused").inc()
                self._fail(attempt, outcome.message)
                return
            self.announcer.bound(gang, outcome.bound, outcome.missing, plan.search, seconds, outcome.message)
            if outcome.missing:
                self.metrics.transactions.labels("open").inc()
                if outcome.is_final and await self._undo(gang, [*gang.bound, *(seat.pod for seat in outcome.bound)], outcome.message):
                    return
                # Finish forward: the missing members are placed around the bound ones, before anybody else.
                self._opened.setdefault(gang.key, self.clock() + _FORWARD_SECONDS)
                self.queue.retry(gang.key, _RETRY_SECONDS)
                return
            self.metrics.transactions.labels("whole").inc()
            self._opened.pop(gang.key, None)
            self._undone.discard(gang.key)
            self.queue.settle(gang.key)
            unplaced = words.surplus_refusals(plan)
            if unplaced:
                self.announcer.surplus_refused(gang, unplaced)
                self.queue.fail(gang.key, Lacks.of(plan.explanation), seen=attempt.changes)
        except Exception:
            logger.exception("gang %s: the transaction failed by a defect; other gangs go on", gang.key)
            self.queue.fail(gang.key, ANYTHING, seen=attempt.changes)
        finally:
            del self._committing[gang.key]
            if gang.key in self._missed:
                self._missed.discard(gang.key)
                self.queue.mark(gang.key)

    async def _refuse(self, attempt: _Attempt, plan: Plan) -> None:
        gang = attempt.gang
        seconds = self.clock() - attempt.started
        if gang.is_whole:
            self.announcer.surplus_refused(gang, words.surplus_refusals(plan))
            self.announcer.unchanged(gang)
        else:
            message = words.refusal(gang, plan)
            if gang.key in self._opened and await self._undo(gang, gang.bound, message):
                return
            self.announcer.refused(gang, words.pod_refusals(gang, plan), message, plan.search, seconds)
        self.queue.fail(gang.key, Lacks.of(plan.explanation), seen=attempt.changes, retry_by=self._deadline(gang))

    def _await_members(self, attempt: _Attempt) -> None:
        """Too few pods exist. An absent gang holds nothing meanwhile; one that we left open may wait a little for its controller."""
        gang = attempt.gang
        message = words.members_missing(gang)
        if gang.is_open and gang.key in self._opened:
            self.queue.retry(gang.key, max(0.1, self._opened[gang.key] - self.clock()))
        self.announcer.members_missing(gang, message)

    async def _undo_if_due(self, gang: Gang) -> bool:
        """Undo a gang that a transaction of ours left open, once finishing it has had its time."""
        deadline = self._opened.get(gang.key)
        if deadline is None or self.clock() < deadline or not gang.is_open:
            return False
        return await self._undo(gang, gang.bound, f"{gang.missing} missing members could not be bound within {_FORWARD_SECONDS:g} s")

    async def _undo(self, gang: Gang, pods: Sequence[Pod], message: str) -> bool:
        """Release the bound ``pods`` that may be released; returns whether any was."""
        self._opened.pop(gang.key, None)
        self._undone.add(gang.key)
        released = await undo(pods, self.binder)
        if released:
            self.metrics.transactions.labels("undone").inc()
            self.announcer.undone(gang, released, message)
            self.queue.fail(gang.key, ANYTHING, seen=self.queue.changes)
        return bool(released)

    def _hold(self, attempt: _Attempt, hold: Hold) -> None:
        gang = attempt.gang
        if hold.reason == "PodGroupNotFound" and self.queue.attempts(gang.key) < _NOT_FOUND_GRACE_ATTEMPTS:
            self.queue.fail(gang.key, Lacks(), seen=attempt.changes, retry_by=self.clock())
            return
        self.announcer.held(gang, hold.reason, hold.message, hold.pod)
        self.queue.fail(gang.key, Lacks(), seen=attempt.changes)

    def _rest(self, gang: Gang) -> None:
        self._opened.pop(gang.key, None)
        self.queue.settle(gang.key)
        self.announcer.unchanged(gang)

    def _fail(self, attempt: _Attempt, message: str) -> None:
        """The attempt failed for a reason that isn't the cluster's room; it is tried again after a pause."""
        self.announcer.failed(attempt.gang, message, self.clock() - attempt.started)
        self.queue.fail(attempt.gang.key, ANYTHING, seen=attempt.changes, retry_by=self.clock())

    def _deadline(self, gang: Gang) -> float | None:
        """When the gang's time-out is to be told, on our clock; ``None`` once it has been."""
        if self.announcer.has_timed_out(gang):
            return None
        return self.clock() + self.announcer.seconds_left(gang)

    def _forget(self, key: GangKey) -> None:
        self._opened.pop(key, None)
        self._undone.discard(key)
        self.queue.settle(key)
        self.announcer.forget_gang(key)
