"""The main path: from a gang that is due to a gang that is bound, or told why not.

Read ``Scheduler.cycle`` first, then ``prepare`` and ``attempt``; how attempts end is in ``outcomes``. Searches run one after another,
each on a snapshot that contains the seats promised before it; transactions run beside them, so the API server works on one gang while
the next is searched.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from allaboard.cluster.bind import Binder
from allaboard.cluster.epoch import Epoch
from allaboard.cluster.restart import JobRestarter
from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import VolumeView
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import Gang, GangKey
from allaboard.model.node import Node
from allaboard.model.packing import PACKING, Packing
from allaboard.model.pod import Pod
from allaboard.placement import Plan
from allaboard.report import words
from allaboard.report.metrics import Metrics
from allaboard.scheduling.advice import Advisor
from allaboard.scheduling.announcer import Announcer
from allaboard.scheduling.freshness import until_fresh
from allaboard.scheduling.opengangs import OpenGangs
from allaboard.scheduling.outcomes import Attempt, Outcomes
from allaboard.scheduling.planner import MOST_PODS, MOST_TOGETHER, Planner
from allaboard.scheduling.queue import GangQueue, Order, order_of, order_of_gone
from allaboard.scheduling.sealing import Sealing
from allaboard.scheduling.surroundings import in_surroundings
from allaboard.scheduling.transaction import DryRun, Refused, Transaction, begin
from allaboard.scheduling.underway import UnderWay
from allaboard.scheduling.workers import Searcher, SearchError

logger = logging.getLogger(__name__)

_STOP_SECONDS = 10.0  # how long transactions may take to end when the scheduler stops


@dataclass(slots=True)
class Scheduler:
    """Takes due gangs from the queue and brings each to a decision. Belongs to the event loop."""

    view: ClusterView
    volumes: VolumeView
    registry: GangRegistry
    queue: GangQueue
    searcher: Searcher
    binder: Binder
    restarter: JobRestarter
    epoch: Epoch
    announcer: Announcer
    metrics: Metrics
    dry_run: DryRun = "role"
    packing: Packing = PACKING
    batch_window: float = 0.02
    is_fresh: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.monotonic
    _under_way: UnderWay = field(init=False)
    _open: OpenGangs = field(init=False)
    _outcomes: Outcomes = field(init=False)
    _planner: Planner = field(init=False)
    _sealing: Sealing = field(init=False)
    _advisor: Advisor = field(init=False)

    def __post_init__(self) -> None:
        self._advisor = Advisor(self._advice, self._advise)
        self._planner = Planner(self.view, self.queue, self.searcher, self.metrics, self.clock, self.packing)
        self._open = OpenGangs(self.registry, self.queue, self.binder, self.restarter, self.announcer, self.metrics, self.clock)
        self._outcomes = Outcomes(self.registry, self.queue, self.announcer, self.metrics, self._open, self._advisor, self.clock)
        self._under_way = UnderWay(self.queue, self._outcomes.defect)
        self._sealing = Sealing(self.view, self.queue, self.epoch, self._under_way, self._outcomes.failed_now)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod has changed: seats it no longer takes may be what others wait for."""
        if old is None:
            return
        if new is None:
            self.announcer.forget_pod(old)
        if freed := old.freed(new):
            self.queue.wake(freed)

    def observe_node(self, old: Node | None, new: Node | None) -> None:
        """A node has come, gone or changed."""
        if new is not None:
            self.queue.wake()

    def observe_volumes(self) -> None:
        """A claim or a volume has changed."""
        self.queue.wake()

    def order(self, key: GangKey) -> Order:
        """The place of a gang in the queue: those we left half bound come first, after those of which nobody is there."""
        gang = self.registry.gang(key)
        if gang is None or not gang.alive:  # one without members tells its priority when they come
            return order_of_gone(key)
        return order_of(gang, is_first=key in self._open and gang.is_open, is_protected=self.queue.must_not_be_overtaken(key))

    async def run(self) -> None:
        """Schedule until cancelled. An error in one gang's handling is that gang's alone."""
        self._open.inherit()
        try:
            while True:
                await self.queue.wait()
                # Pods of one job arrive one by one; a short wait sees them together.
                await asyncio.sleep(self.batch_window)
                await self.cycle()
        finally:
            await self._advisor.stop()
            # Cut off in the middle, a transaction would leave its gang half bound.
            self.restarter.hurry()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._under_way.settled()
            for task in self._under_way.values():
                task.cancel()

    async def cycle(self) -> None:
        """Bring every gang that is due to a decision, the first in queue order first; those that contend are placed together."""
        yielded: set[GangKey] = set()
        while self.queue.peek() is not None:
            await until_fresh(self.is_fresh)
            await self.queue.stirred()
            attempts = await self._due_together()
            plans, overtaken = await self._planner.plan_together([attempt.gang for attempt in attempts.values()])
            is_old, is_counted = bool(plans), not plans
            # Those with plans take their seats, the others are searched for, unless somebody has come who goes before.
            for key in (*plans, *(key for key in list(attempts) if key not in plans)):
                if self._must_yield(key, yielded):
                    break
                if not is_counted:
                    is_counted = True
                    self.queue.seated(key)
                    for other in overtaken:
                        self.queue.overtaken(other)
                known = attempts.pop(key)
                attempt = self._prepared(key) if (is_old and key not in plans) or key in self._under_way else known
                is_old = True
                if attempt is not None:
                    with self._survived(key):
                        await self.attempt(attempt, plans.get(key))
                    await asyncio.sleep(0)
                if key not in yielded:
                    yielded.clear()
            self.queue.put_back(attempts)
            await asyncio.sleep(0)
        self._advisor.work()

    def _must_yield(self, key: GangKey, yielded: set[GangKey]) -> bool:
        """Whether somebody has come who goes before ``key`` and is to be searched for; those that need no search are seen to meanwhile.

        To each of ``yielded`` it was yielded already, and nobody else has had a turn since: plans aren't thrown away for it once more.
        """
        while self.queue.outranks(key) and (first := self.queue.pop()):
            if self._prepared(first) is not None:
                self.queue.put_back([first])
                is_again = first in yielded
                yielded.add(first)
                return not is_again
        return False

    async def _due_together(self) -> dict[GangKey, Attempt]:
        """The first gang that is due, and those next to it that compete with it on equal terms; without those that need no search."""
        attempts: dict[GangKey, Attempt] = {}
        pods = 0
        while len(attempts) < MOST_TOGETHER and (key := self.queue.pop()):
            gang = self.registry.gang(key)
            is_alone = gang is None or bool(gang.bound) or not gang.missing
            pods += len(gang.candidates) if gang else 0
            # It may be among them already, and something about it has changed.
            attempts.pop(key, None)
            if attempts and (is_alone or pods > MOST_PODS or self.order(key)[:2] != self.order(next(iter(attempts)))[:2]):
                self.queue.put_back([key])
                break
            attempt = self._prepared(key)
            if attempt is not None:
                attempts[key] = attempt
                if is_alone:
                    break
            await asyncio.sleep(0)
        return {key: attempts[key] for key in sorted(attempts, key=self.order)}

    def _prepared(self, key: GangKey) -> Attempt | None:
        if key in self._under_way:
            self._under_way.pass_over(key)
            return None
        with self._survived(key):
            return self.prepare(key)
        return None

    def prepare(self, key: GangKey) -> Attempt | None:
        """What is to be decided about one gang; ``None`` when there is nothing to search for."""
        # 1. Who is it?
        gang = self._gang(key)
        if gang is None:
            self._outcomes.forgotten(key)
            return None
        if self._sealing.awaits_news(gang):
            return None  # which ring again
        self._open.take_over(gang)
        attempt = Attempt(gang, self.clock(), self.queue.changes)
        # 2. What we have left half bound, and could not finish, is undone before anything else.
        self._open.observe(gang)
        if undoing := self._open.undoing(gang):
            self._under_way.start(key, undoing)
        # 3. May it be scheduled, and is there anything to do?
        elif gang.hold and (gang.candidates or gang.is_open):
            self._outcomes.held(attempt, gang.hold)
        elif not gang.candidates and (gang.is_whole or not gang.alive):
            self._outcomes.rests(gang)
        elif gang.awaits_pods:
            self._outcomes.awaits_members(gang)
        else:
            if gang.missing:
                self.announcer.waiting_since(gang)
            return attempt
        return None

    async def attempt(self, attempt: Attempt, plan: Plan | None) -> None:
        """One gang, from what is known of it to a decision. The ``plan`` is there if it was placed together with others."""
        gang, key, is_alone = attempt.gang, attempt.gang.key, plan is None
        # 4. Where could everybody go?
        if plan is None:
            try:
                plan = await self._planner.plan(gang)
            except SearchError as error:
                self._outcomes.failed(attempt, str(error))
                return
        # 5. Nowhere: say why, and wait for what was lacking; half gangs whose time is over make way.
        if not plan.feasible:
            if gang.missing:
                await self._make_way(gang)
            if gang.missing and key in self._open:
                self._under_way.start(key, self._open.undo(gang, gang.bound, words.refusal(gang, plan)))
            else:
                self._outcomes.refused(attempt, plan)
            return
        # 6. Promise the seats, unless the world has moved on meanwhile.
        fresh = self._gang(key)
        if fresh is None or fresh.hold:
            self.queue.mark(key)
            return
        attempt.gang = fresh
        # After an undo every member is tried beforehand: one pod that is refused would undo the gang for ever.
        dry_run: DryRun = "all" if self._open.was_undone(key) else self.dry_run
        transaction = begin(fresh, dict(plan.assignments), self.view, self.binder, dry_run)
        if isinstance(transaction, Refused):
            logger.info("gang %s: %s; looking again", key, transaction.message)
            self.queue.retry(key, self.batch_window)
            return
        # 7. Bind all or none, beside the next search.
        if is_alone:
            self.queue.seated(key)
        self._under_way.start(key, self._commit(attempt, plan, transaction))

    async def _commit(self, attempt: Attempt, plan: Plan, transaction: Transaction) -> None:
        await self._outcomes.committed(attempt, plan, await transaction.commit())

    def _gang(self, key: GangKey) -> Gang | None:
        """The gang as it stands, its members with what their volumes and the pods around them ask of nodes."""
        gang = self.registry.gang(key)
        return in_surroundings(gang, self.volumes, self.view) if gang else None

    async def _make_way(self, gang: Gang) -> None:
        """Release half gangs whose time is over, if their seats are what ``gang`` needs."""

        async def would_fit(without: Sequence[Gang]) -> bool:
            return bool((await self._planner.plan(gang, without)).feasible)

        for other in await self._open.who_yields(gang, would_fit):
            if other.key not in self._under_way:
                self._under_way.start(other.key, self._open.yield_to(gang, other))

    async def _advice(self, key: GangKey) -> str:
        """What would help a gang that can't be placed; empty when nothing is known to, or it isn't refused any more."""
        gang = self._gang(key)
        if gang is None or gang.hold or not gang.missing or gang.awaits_pods:
            return ""
        return await self._planner.advice(gang, list(filter(None, map(self.registry.gang, self.registry.groups()))))

    def _advise(self, key: GangKey, message: str, advice: str) -> None:
        gang = self.registry.gang(key)
        if gang is not None:
            self.announcer.advised(gang, message, words.with_advice(message, advice))

    @contextmanager
    def _survived(self, key: GangKey) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._outcomes.defect(key)
