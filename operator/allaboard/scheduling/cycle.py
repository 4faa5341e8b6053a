"""The main path: from a gang that is due to a gang that is bound, or told why not.

Read ``Scheduler.cycle`` first, then ``prepare`` and ``attempt``: what they decide (``decide``) is carried out in ``act``, and how
attempts end is in ``outcomes``. Searches run one after another,
each on a snapshot that contains the seats promised before it; transactions run beside them, so the API server works on one gang while
the next is searched. These searches are short. A gang for which a short one finds neither seats nor a proof that there are none is searched
for at length, beside the cycle (``planning.long_searches``).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from allaboard.binding.bind import Binder
from allaboard.binding.job_suspension import JobRestarter
from allaboard.binding.transaction import DryRun
from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import VolumeView
from allaboard.gangs.registry import GangRegistry
from allaboard.leadership.fencing import Term
from allaboard.leadership.takeover import TakeoverReservation
from allaboard.model.gang import Gang, GangKey
from allaboard.model.gpu_inventory import GpuInventory
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.topologies import LEVELS, Levels
from allaboard.placement import Plan
from allaboard.planning.advice import Advisor
from allaboard.planning.gang_problem import Packings
from allaboard.planning.long_searches import LongSearches
from allaboard.planning.planner import MOST_PODS, MOST_TOGETHER, Planner, goes_alone
from allaboard.planning.plugin_processes import PluginProcesses
from allaboard.planning.resolve import in_surroundings
from allaboard.planning.search_processes import Searcher, SearchError
from allaboard.queueing.batch_window import BatchWindow
from allaboard.queueing.gpu_changes import GpuChanges, has_lost
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.ranks import Ranks
from allaboard.queueing.search_time import SearchTime
from allaboard.records.record import GangRecords
from allaboard.records.waiting import WaitClock
from allaboard.report.metrics import Metrics
from allaboard.report.reporter import Reporter
from allaboard.runtime.slices import Slices
from allaboard.scheduling.decide import Found, Look, at_look, on_plan
from allaboard.scheduling.execute import Executor
from allaboard.scheduling.freshness import until_fresh
from allaboard.scheduling.losses import Losses
from allaboard.scheduling.outcomes import Attempt, Outcomes
from allaboard.scheduling.partial_binds import PartialBinds
from allaboard.scheduling.run_history import settled
from allaboard.scheduling.tasks import GangTasks
from allaboard.scheduling.unresolved_binds import Fencing, UnresolvedBinds
from allaboard.scheduling.victims import Victims

logger = logging.getLogger(__name__)

_MAKE_WAY_SECONDS = 0.5  # in which it is found out in turn whose seats a gang needs: that takes a search for each of them
_STOP_SECONDS = 10.0  # how long transactions may take to end when the scheduler stops


@dataclass(slots=True)
class Scheduler:
    """Takes due gangs from the queue and brings each to a decision. Belongs to the event loop."""

    view: ClusterView
    volumes: VolumeView
    registry: GangRegistry
    records: GangRecords
    ranks: Ranks
    queue: GangQueue
    searcher: Searcher
    binder: Binder
    restarter: JobRestarter
    term: Term
    reporter: Reporter
    waits: WaitClock
    metrics: Metrics
    takeover_reservation: TakeoverReservation
    window: BatchWindow
    dry_run: DryRun = "role"
    packings: Packings = field(default_factory=Packings)
    levels: Levels = field(default_factory=lambda: LEVELS)
    plugin_processes: PluginProcesses = field(default_factory=lambda: PluginProcesses(has_processes=False))
    is_fresh: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.monotonic
    _tasks: GangTasks = field(init=False)
    _losses: Losses = field(init=False)
    _open: PartialBinds = field(init=False)
    _outcomes: Outcomes = field(init=False)
    _planner: Planner = field(init=False)
    _sealing: Fencing = field(init=False)
    _late: UnresolvedBinds = field(init=False)
    _advisor: Advisor = field(init=False)
    _long: LongSearches = field(init=False)
    _act: Executor = field(init=False)
    _cards: GpuChanges = field(init=False, default_factory=GpuChanges)
    _in_hand: Collection[GangKey] = field(init=False, default=())
    """Who is being searched for in the cycle, or is about to be."""

    def __post_init__(self) -> None:
        self._long = LongSearches(self.records, self.clock, SearchTime(self.clock))
        self.metrics.gauge("long_searches_waiting", "Gangs that wait for a long search.", lambda: len(self._long))
        self._advisor = Advisor(self.records, self._advice, self._advise, self.clock)
        self._planner = Planner(
            self.view,
            self.queue,
            self.searcher,
            self.metrics,
            self.clock,
            self.packings,
            self.ranks.shares,
            self.plugin_processes,
            self.reporter.strategy_failed,
        )
        self._open = PartialBinds(
            self.registry, self.records, self.queue, self.binder, self.restarter, self.reporter, self.metrics, self.clock
        )
        self._losses = Losses(self.records, self.registry.root_of, self.queue.backoff, self.clock)
        self.registry.knows_whole = self.records.knows_whole
        self._outcomes = Outcomes(
            self.registry,
            self.records,
            self.queue,
            self._losses,
            self.reporter,
            self.waits,
            self.metrics,
            self._open,
            self._advisor,
            lambda: self.view.counts["assumed_pods"] > 0,
            self.clock,
        )
        self._tasks = GangTasks(self.records, self.queue, self._outcomes.defect)
        self._sealing = Fencing(self.view, self.queue, self.term, self._tasks, self._outcomes.failed_now)
        self._late = UnresolvedBinds(self.view, self.term, self._outcomes.settled, self.clock)
        self._act = Executor(
            self.view,
            self.records,
            self.queue,
            self.binder,
            self.reporter,
            self.waits,
            self._planner,
            self._open,
            Victims(self.registry, self.records, self.binder, self.clock, self._late.pods),
            self._outcomes,
            self._tasks,
            self._late,
            self._long,
            self.ranks.place,
            self._gang,
            self._prepared,
            self._is_preceded,
            self.dry_run,
            self.is_fresh,
            self.clock,
        )

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod has changed: seats it no longer takes may be what others wait for, and those it takes they may have been told of."""
        self.reporter.observe_pod(old, new)
        if old is not None and (freed := old.freed(new)):
            self.queue.wake(freed)
        elif new is not None and new.freed(old):
            self.queue.taken()

    def observe_node(self, old: Node | None, new: Node | None) -> None:
        """A node has come, gone or changed."""
        self.queue.wake()

    def observe_cards(self, old: GpuInventory | None, new: GpuInventory | None) -> None:
        """Exporters have spoken of GPUs: who lacked what there is now looks again."""
        if freed := self._cards.gained(old, new):
            self.queue.cards_changed(freed)
        elif has_lost(old, new):
            self.queue.taken()

    def observe_volumes(self) -> None:
        """A claim or a volume has changed."""
        self.queue.wake()

    def apply(self, packings: Packings) -> None:
        """Have nodes scored otherwise from now on."""
        self.packings = self._planner.packings = packings

    async def run(self) -> None:
        """Schedule until cancelled. An error in one gang's handling is that gang's alone."""
        await self._open.inherit()
        takeover_reservation = asyncio.create_task(self.takeover_reservation.run(), name="takeover reservation")
        try:
            while True:
                await self.queue.wait()
                await self.window.gather()
                await self.cycle()
        finally:
            self._long.stop()
            await self._advisor.stop()
            # Cut off in the middle, a transaction would leave its gang half bound.
            self.restarter.hurry()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._tasks.settled()
            takeover_reservation.cancel()
            self._late.stop()
            for task in self._tasks.tasks():
                task.cancel()

    async def cycle(self) -> None:
        """Bring every gang that is due to a decision, the first in queue order first; those that contend are placed together."""
        yielded: set[GangKey] = set()
        while self.queue.peek() is not None:
            await until_fresh(self.is_fresh)
            self.queue.eased({**dict.fromkeys(self.ranks.eased(), ()), **self.registry.namespace_priority.changed()})
            await self.queue.stirred()
            self._in_hand = attempts = await self._due_together()
            plans, overtaken = await self._planner.plan_together([attempt.gang for attempt in attempts.values()])
            is_old, is_counted = bool(plans), not plans
            # Those with plans take their seats, the others are searched for, unless somebody has come who goes before.
            for key in self._turns(plans, attempts):
                if self._must_yield(key, yielded):
                    break
                if not is_counted:
                    is_counted = True
                    self.queue.seated(key)
                    for other in overtaken:
                        self.queue.overtaken(other)
                known = attempts[key]
                attempt = self._prepared(key) if (is_old and key not in plans) or key in self._tasks else known
                is_old = True
                if attempt is not None:
                    with self._survived(key), self.ranks.charged(attempt.gang, attempt.started):
                        await self.attempt(attempt, plans.get(key))
                    await asyncio.sleep(0)
                del attempts[key]
                if key not in yielded:
                    yielded.clear()
            self.queue.put_back(attempts)
            self._in_hand = ()
            await asyncio.sleep(0)
        self._advisor.work()

    def _turns(self, plans: Collection[GangKey], attempts: Mapping[GangKey, Attempt]) -> Iterator[GangKey]:
        """The keys of ``plans``, then what is left of ``attempts``; namespaces that have run into debt meanwhile go behind the others."""
        yield from list(plans)
        standings = {key: self.ranks.place(key).standing for key in attempts}
        while attempts:
            yield min(attempts, key=lambda key: (standings[key], self.ranks.shares.level(key.namespace)))

    def _is_preceded(self, key: GangKey) -> bool:
        """Whether somebody is due, or being searched for, who goes before ``key``, and not by age alone."""
        mine = self.ranks.place(key).rank
        return any(self.ranks.place(other).rank < mine for other in self._in_hand) or self.queue.outranks(key)

    def _must_yield(self, key: GangKey, yielded: set[GangKey]) -> bool:
        """Whether somebody has come who goes before ``key`` and is to be searched for; those that need no search are seen to meanwhile.

        To each of ``yielded`` it was yielded already, and nobody else has had a turn since: plans aren't thrown away for it once more.
        """
        while self.queue.outranks(key) and (first := self.queue.pop(beside=key)):
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
        slices = Slices(self.clock)
        while len(attempts) < MOST_TOGETHER and (key := self.queue.pop()):
            if key in self._tasks:
                self._prepared(key)  # which passes it over
                await asyncio.sleep(0)
                continue
            gang = self.registry.gang(key)
            is_alone = goes_alone(gang)
            pods += len(gang.candidates) if gang else 0
            # It may be among them already, and something about it has changed.
            attempts.pop(key, None)
            if attempts and (is_alone or pods > MOST_PODS or not self._are_equal(key, next(iter(attempts)))):
                self.queue.put_back([key])
                break
            attempt = self._prepared(key)
            if attempt is not None:
                attempts[key] = attempt
                if is_alone:
                    break
            await slices.give_way()
        return {key: attempts[key] for key in sorted(attempts, key=self.ranks.place)}

    def _are_equal(self, one: GangKey, other: GangKey) -> bool:
        """Whether two gangs are of the same priority, and their namespaces have used about as much search time."""
        first, second = self.ranks.place(one), self.ranks.place(other)
        return (first.level, first.debt) == (second.level, second.debt)

    def _prepared(self, key: GangKey) -> Attempt | None:
        self._long.leave(key)
        if key in self._tasks:
            if self._long.is_searching(key) and not self._is_wanted(key):
                self._long.abandon(key)
            self._tasks.pass_over(key)
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
        attempt = Attempt(gang, self.clock(), self.queue.changes)
        if self._open.observe(gang) and gang.others:
            self.registry.choose_again(key)  # a run that was whole, and waits for pods, keeps no other waiting
            self.queue.mark(key)
            return None
        if gang.others:
            self.reporter.waits_behind(gang)
        # 2. What is to be done? Whatever was left half bound, and could not be finished, is undone before anything else.
        look = at_look(gang, self.records.find_partial_bind(key), self.clock(), self._losses.back_off(gang)[0])
        if look is not Look.AWAIT_MEMBERS and not gang.settles:
            self.records.of(key).short_since = None
        return attempt if self._act.on_look(attempt, look) else None

    async def attempt(self, attempt: Attempt, plan: Plan | None) -> None:
        """One gang, from what is known of it to a decision. The ``plan`` is there if it was placed together with others."""
        gang, key, is_alone = attempt.gang, attempt.gang.key, plan is None
        # 3. Where could everybody go?
        if plan is None:
            try:
                plan = await self._planner.plan(gang)
            except SearchError as error:
                await self._act.on_error(attempt, error)
                return
        # 4. Nowhere? Then half gangs whose time is over may make way, and it is told why. If that isn't known, it is searched for longer.
        found = on_plan(gang, plan, self.records.find_partial_bind(key))
        if found is Found.MAKE_WAY:
            found = await self._act.make_way(gang, _MAKE_WAY_SECONDS)
        # 5. Somewhere? The seats are promised, and all are bound or none, beside the next search.
        await self._act.on_found(attempt, plan, found, is_alone=is_alone)

    def _is_wanted(self, key: GangKey) -> bool:
        """Whether there is anybody still to search for, and nothing to be done before."""
        gang = self.registry.gang(key)
        if gang is None or not gang.candidates:
            return False
        return at_look(gang, self.records.find_partial_bind(key), self.clock()) in (Look.PLACE, Look.AWAIT_MEMBERS)

    def _gang(self, key: GangKey) -> Gang | None:
        """The gang as it stands, its members with what their volumes and the pods around them ask of nodes."""
        gang = self.registry.gang(key)
        if gang is None:
            return None
        return in_surroundings(settled(gang, self.records.find(key), self.clock()), self.volumes, self.view, self.levels)

    async def _advice(self, key: GangKey) -> str:
        """What would help a gang that can't be placed; empty when nothing is known to, or it isn't refused any more."""
        gang = self._gang(key)
        if gang is None or gang.hold or not gang.missing or gang.awaits_pods:
            return ""
        return await self._planner.advice(gang, self.registry.bound_gangs())

    def _advise(self, key: GangKey, told: str, message: str) -> None:
        gang = self.registry.gang(key)
        if gang is not None:
            self.reporter.advised(gang, told, message)

    @contextmanager
    def _survived(self, key: GangKey) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._outcomes.defect(key)
