"""Connects the parts of the operator, starts them in order, and stops them in reverse."""

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from allaboard.admission_reflectors import follow_bind_admission
from allaboard.binding.bind import Binder
from allaboard.binding.job_suspension import JobRestarter
from allaboard.binding.requester import Requester
from allaboard.binding.volume_binding import VolumeBinder
from allaboard.cluster.bind_admission import BindAdmission
from allaboard.cluster.budgets import Budgets, budget_from
from allaboard.cluster.reservations import Ledger
from allaboard.cluster.run_times import RunTimes
from allaboard.cluster.stores import NodeStore, PodStore
from allaboard.cluster.view import ClusterView
from allaboard.gangs.early_pods import EarlyPods
from allaboard.gangs.job_counts import JobStore, job_counts_from
from allaboard.gangs.owner_watches import OwnerWatches
from allaboard.gangs.podgroup_reader import PodGroupReader
from allaboard.gangs.registry import GangDefaults, GangRegistry
from allaboard.gpu.scraper import Scraper, keep_cards
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.paths import BUDGETS, JOBS, NODES, PODS
from allaboard.kube.rate_limit import RateLimit
from allaboard.kube.reachable import reach, until_readable
from allaboard.kube.reflector import Reflector
from allaboard.leadership.fencing import CARRIED_OUT_SECONDS, Term
from allaboard.leadership.label import keep_label
from allaboard.leadership.lease import Lease, LeaseLostError, LeaseTimes, Server, Unfenced, own_namespace
from allaboard.leadership.own_thread import Candidate, Elect, in_own_thread
from allaboard.leadership.takeover import TakeoverReservation
from allaboard.model.gang import GangKey
from allaboard.model.gpus import Cards
from allaboard.model.headroom import headroom_from
from allaboard.model.interner import Interner
from allaboard.model.node import node_from
from allaboard.model.pod import Pod, pod_from, reports_end
from allaboard.pipelines.objects import MLFLOWS
from allaboard.pipelines.reconciler import PipelineReconciler
from allaboard.pipelines.stages import Policy as PipelinePolicy
from allaboard.pipelines.stages import pipeline_from
from allaboard.pipelines.undeployed import UndeployedPipelines, undeployed_from
from allaboard.placement import SearchSettings
from allaboard.planning.gang_problem import Packings
from allaboard.planning.known_gangs import KnownGangs
from allaboard.planning.planner import Planner
from allaboard.planning.plugin_processes import PluginProcesses
from allaboard.planning.policy import Policy
from allaboard.planning.search_costs import SearchCosts
from allaboard.planning.search_processes import Searcher
from allaboard.queueing.batch_window import BatchWindow
from allaboard.queueing.capacity_waitlist import Capacity
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.ranks import ranks_by
from allaboard.queueing.requeue import Freed
from allaboard.records.backoff import Backoff
from allaboard.records.losses import Losses
from allaboard.records.record import GangRecords
from allaboard.records.waiting import WaitClock
from allaboard.reloading import Reloading
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.metrics import Metrics, serve
from allaboard.report.podgroup_writer import PodGroupWriter
from allaboard.report.pods import PodReporter
from allaboard.report.reporter import Reporter
from allaboard.report.writer import Writer
from allaboard.rule_reflectors import follow_resource_claims, rule_reflectors
from allaboard.runtime.garbage import freeze_objects
from allaboard.scheduling.build import Writers, cycle_of
from allaboard.scheduling.cluster_events import ClusterEvents
from allaboard.scheduling.scheduler import Scheduler
from allaboard.settings.options import CONFIG_VARIABLE, Settings, SettingsError
from allaboard.sight.board import Board, Replica
from allaboard.sight.collector import ClusterCollector
from allaboard.sight.gauges import add_gauges
from allaboard.sight.serving import open_api
from allaboard.sight.stranded import Stranded

if TYPE_CHECKING:
    from allaboard.admission.webhook_process import WebhookProcess

logger = logging.getLogger(__name__)

_DRAIN_SECONDS = 2.0
_RESUME_SECONDS = 2.0
_OWNERS_SECONDS = 2.0


class App:
    """One running scheduler.

    ``start`` doesn't wait for the first decision. Scheduling begins when pods, nodes and PodGroups are listed (``synced``) and, with leader
    election, this replica holds the lease (``scheduling``). Until then it writes nothing.

    ``stop`` doesn't close a given ``searcher``. Without one, ``start`` creates a searcher from the settings. ``elect`` runs the leader
    election, by default in a thread of its own.
    """

    def __init__(self, settings: Settings, searcher: Searcher | None = None, elect: Elect | None = None) -> None:
        self.settings = settings
        self._searcher = searcher
        self._elect = elect or partial(in_own_thread, kubeconfig=settings.kubeconfig)
        self.metrics = Metrics(settings.strategies)
        self.view = ClusterView(
            {resource: headroom_from(resource, amount) for resource, amount in settings.headroom.items()}, settings.gpu.policy
        )
        self.budgets = Budgets()
        self.records = GangRecords()
        self.registry = GangRegistry(settings.scheduler_names, settings.namespaces, GangDefaults.by(settings), self.records.knows_whole)
        self._intern = Interner()
        self._pod_from = partial(pod_from, intern=self._intern, reading=settings.reading)
        if settings.estimate_walltimes:
            RunTimes(time.time).follow(self.view)
        self.ranks = ranks_by(settings, self.registry, self.records, self.view)
        self.ledger = Ledger(self.view.running, self.ranks.place, time.time, settings.backfill)
        self.queue = GangQueue(
            self.ranks.place,
            self.registry.knows,
            self.records,
            backoff=Backoff(settings.backoff_initial_seconds, settings.backoff_max_seconds),
            slots=Capacity(self.view, self.ledger),
        )
        self.view.listen(self._count_excess)
        self.view.anti_affinity.on_excess = self.view.preferences.terms.on_excess = self.registry.on_excess = self.metrics.exceeded
        self.synced = asyncio.Event()
        self.scheduling = asyncio.Event()
        self.has_failed = False
        self._podgroups_listed = asyncio.Event()
        self._reflectors: dict[str, Reflector] = {}
        self._podgroups: PodGroupReader | None = None
        self._early_pods: EarlyPods | None = None
        self._events: EventRecorder | None = None
        self._scheduler: Scheduler | None = None
        self._lease: Candidate | None = None
        self._writer = Writer()
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._deciding: asyncio.Task[None] | None = None

    async def start(self, on_failure: Callable[[], None] = lambda: None, *, reach_seconds: float | None = None) -> None:
        """Connect, and start all parts. ``on_failure()`` is called when a part ends by itself, which none should.

        With ``reach_seconds``, wait for the API server for up to that time. Raises ``CredentialsError``, ``UnreachableError``,
        ``SettingsError`` if a setting needs a package that isn't installed, or ``OSError`` if a port is in use.
        """
        try:
            await self._start(on_failure, reach_seconds)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, on_failure: Callable[[], None], reach_seconds: float | None) -> None:
        settings = self.settings
        for warning in settings.warnings:
            logger.warning("configuration: %s", warning)
        await self._stack.enter_async_context(serve(self.metrics, settings.metrics_port, lambda: self.is_ready))
        rate_limit = RateLimit(settings.client_qps, settings.client_burst)
        place = settings.in_force.kubeconfig_place
        connection = ApiServer.connect(settings.request_timeout_seconds, kubeconfig=settings.kubeconfig, place=place, rate_limit=rate_limit)
        server = await self._stack.enter_async_context(connection)
        if reach_seconds is not None:
            await reach(server, reach_seconds)
        webhook_process: WebhookProcess | None = None
        if settings.admission_port:
            namespace = settings.lease_namespace or own_namespace()
            webhook_process = await self._stack.enter_async_context(_admission()(settings, server, namespace, lambda: self.leads))
        searcher = self._searcher or self._stack.enter_context(_searcher(settings, self.metrics))
        plugin_processes = self._stack.enter_context(PluginProcesses(settings.strategy_options.by_name))
        writer = self._writer
        controller = settings.scheduler_names[0]
        self._events = events = EventRecorder(server, writer, controller, f"{controller}-{socket.gethostname()}")
        self._podgroups = podgroups = PodGroupReader(server, self.registry)
        podgroup_writer = PodGroupWriter(podgroups, self.records, writer)
        if settings.leader_elect:
            self._lease = await self._stack.enter_async_context(self._elect(partial(_lease, settings)))
        lease = self._lease
        term = Term(server, lease, concurrency=settings.bind_concurrency)
        binder = Binder(
            server,
            lease,
            concurrency=settings.bind_concurrency,
            attempts=settings.bind_attempts,
            read=partial(pod_from, reading=settings.reading),
        )
        restarter = JobRestarter(server, self.view, lease, namespaces=settings.namespaces, attempts=settings.bind_attempts)
        waits = WaitClock(self.records)
        reporter = Reporter(events, PodReporter(server, events, writer), podgroup_writer, self.records, waits, self.metrics)
        backoff = Backoff(settings.backoff_initial_seconds, settings.backoff_max_seconds)
        losses = Losses(self.records, self.registry.root_of, backoff, time.monotonic)
        gangs = KnownGangs(self.registry, self.records, waits, losses, self.view, time.monotonic, settings.levels)
        costs = SearchCosts(self.metrics, self.ranks.shares, time.monotonic)
        packings = Packings.by(settings)
        planner = Planner(self.view, self.records, searcher, costs, packings, self.ledger, plugin_processes)
        provisioning = settings.provisioning_class, settings.provisioning_parameters
        requester = Requester(server, *provisioning, lease or Unfenced(), settings.namespaces)
        request_backoff = Backoff(settings.provisioning_backoff_seconds, 30 * settings.provisioning_backoff_seconds)
        volume_binder = VolumeBinder(
            server, self.view, lease or Unfenced(), settings.volume_binding_timeout_seconds, settings.bind_attempts
        )
        admission = BindAdmission(self.view.namespaces)
        writers = Writers(
            binder, restarter, term, settings.dry_run, requester, request_backoff, volume_binder, may_refuse=admission.may_refuse
        )
        policy, is_fresh = Policy.by(settings), lambda: self.is_fresh
        cycle = cycle_of(gangs, self.queue, self.ranks, planner, reporter, writers, policy, self.budgets.of, is_fresh)
        window = BatchWindow(lambda: self.registry.arrivals, settings.batch_window_seconds, settings.batch_window_max_seconds)
        takeover = TakeoverReservation(self.view, term, settings.bind_concurrency, lambda: self.queue.observe(Freed()))
        self._scheduler = scheduler = Scheduler(cycle, window, takeover, restarter)
        events_of_cluster = ClusterEvents(self.queue, reporter)
        self.view.listen(self.registry.observe_pod, None)
        self.view.listen(events_of_cluster.observe_pod, events_of_cluster.observe_node, events_of_cluster.observe_cards)
        self.view.listen(self._warn_of_caution)
        for listen in (self.view.volumes.listen, self.view.namespaces.listen, self.view.resource_claims.listen):
            listen(events_of_cluster.observe_rules)
        self._reflectors = {
            "nodes": Reflector(
                server, NODES.everywhere, lambda raw: node_from(raw, self._intern), NodeStore(self.view, settings.node_selector)
            ),
            "pods": Reflector(server, PODS.everywhere, self._pod_from, PodStore(self.view), must_be_taken=reports_end),
            "jobs": Reflector(server, JOBS.everywhere, job_counts_from, JobStore(self.registry.observe_job)),
            "poddisruptionbudgets": Reflector(server, BUDGETS.everywhere, budget_from, self.budgets),
            **rule_reflectors(server, self.view),
        }
        self._early_pods = EarlyPods(self.view, self.registry, self._reflectors["pods"], self._pod_from)
        self.view.listen(self._early_pods.drop_if_started)  # after all others
        add_gauges(self.metrics, self.queue, self.records, self.view, self._reflectors, writer, lambda: self.leads)
        self.metrics.registry.register(ClusterCollector(self.registry, self.records, self.ledger, Stranded(self.view)))
        board = Board(self.registry, self.records, self.ledger, self.view, settings.levels, replica=self._replica)
        await self._stack.enter_async_context(open_api(settings, board))
        if settings.api_port or settings.api_service_port:
            self._spawn("timeline", board.keep_timeline(), on_failure)
        for name, reflector in self._reflectors.items():
            self._spawn(f"reflect {name}", reflector.run(), on_failure)
        following = cycle.executor.provisionings.run(lambda: self.leads, settings.resync_seconds)
        self._spawn("provisioning requests", following, on_failure)
        self._spawn("reflect resourceclaims", follow_resource_claims(server, self.view), on_failure)
        self._spawn("reflect admission", self._follow_admission(server, admission), on_failure)
        self._spawn("write", writer.run(binder.wait_until_idle), on_failure)
        self._spawn("resync", self._resync(podgroups, podgroup_writer), on_failure)
        owners = self._owner_watches(server)
        self._spawn("read walltimes of owners", owners.run(), on_failure)
        self._deciding = self._spawn("schedule", self._schedule(scheduler, searcher, term, owners), on_failure)
        if os.environ.get(CONFIG_VARIABLE):
            reloading = Reloading(settings, self.apply, lambda result: self.metrics.reloads.labels(result).inc())
            self._spawn("reload", reloading.run(), on_failure)
        self._spawn("resume jobs", self._resume_jobs(restarter), on_failure)
        if settings.pipelines:
            self._deploy_pipelines(server, events, on_failure)
        else:
            self._refuse_pipelines(server, events, on_failure)
        if settings.gpu_metrics.source != "off":
            self._spawn("read GPU metrics", self._watch_gpus(), on_failure)
        if settings.api_service_port:
            work = keep_label(server, own_namespace(), socket.gethostname(), self.scheduling, settings.resync_seconds)
            self._spawn("leader label", work, on_failure)
        if lease is not None:
            self._spawn("lead", self._lead(lease), on_failure)
        if webhook_process is not None:
            self._spawn("admission", webhook_process.run(), on_failure)

    def apply(self, settings: Settings) -> None:
        """Apply the settings that can change at run time (see ``reloading``)."""
        self.settings = settings
        self.registry.apply(GangDefaults.by(settings))
        self.view.apply(settings.gpu.policy)
        if self._scheduler is not None:
            self._scheduler.apply(Packings.by(settings))

    async def stop(self) -> None:
        """Stop scheduling, write the pending events and statuses, release the lease, close connections and end the worker processes."""
        if self._deciding is not None:
            self._deciding.cancel()
            await asyncio.gather(self._deciding, return_exceptions=True)
        if self.leads:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    await self._writer.drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._lease is not None:
            await self._lease.release()
        await self._stack.aclose()

    def observe_pod_group(self, event: str | None, raw: dict[str, Any]) -> None:
        """Take an event of a PodGroup from Kopf."""
        if self._podgroups is None:
            return
        if event == "DELETED":
            self._podgroups.forget(raw)
        else:
            self._podgroups.observe(raw)

    def observe_pending_pod(self, event: str | None, raw: dict[str, Any]) -> None:
        """Take a pending pod from Kopf. The end of its pending phase comes from the reflector."""
        if event != "DELETED" and self.synced.is_set() and self._early_pods is not None:
            self._early_pods.apply(raw)

    def health(self) -> dict[str, object]:
        """Return the report of the health endpoint: state, age of the cached objects, and numbers of objects and gangs."""
        reflectors = self._reflectors.items()
        return {
            "ready": self.is_ready,
            "leader": self.leads,
            "silenceSeconds": {name: round(reflector.silence_seconds, 1) for name, reflector in reflectors},
            "lagSeconds": {name: round(reflector.lag_seconds, 1) for name, reflector in reflectors},
            "cache": dict(self.view.counts),
            "gangs": dict(self.queue.sizes()),
        }

    def _replica(self) -> Replica:
        age = max((reflector.age_seconds for reflector in self._reflectors.values()), default=0.0)
        return Replica(self.leads, self.is_ready, age)

    @property
    def leads(self) -> bool:
        """True if this replica schedules: it holds the lease, or there is no leader election."""
        return self.scheduling.is_set() and (self._lease is None or self._lease.is_held)

    @property
    def is_ready(self) -> bool:
        """True if all resources are listed, the cache is fresh, and all parts run. A follower is ready, too."""
        is_alive = bool(self._tasks) and not any(task.done() for task in self._tasks)
        return is_alive and self.synced.is_set() and self.is_fresh

    @property
    def is_fresh(self) -> bool:
        """True if the cached state of each resource is out of date by less than ``stale_seconds`` (``Reflector.age_seconds``)."""
        return all(reflector.age_seconds < self.settings.stale_seconds for reflector in self._reflectors.values())

    async def _schedule(self, scheduler: Scheduler, searcher: Searcher, term: Term, owners: OwnerWatches) -> None:
        """Schedule as soon as all resources are listed and this replica leads."""
        await searcher.warm_up()
        await scheduler.cycle.round.planner.plugin_processes.warm_up({self.settings.strategy, *self.settings.strategies})
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        await self._podgroups_listed.wait()
        await scheduler.cycle.executor.provisionings.looked.wait()
        freeze_objects()
        logger.info("synced: %(nodes)d nodes, %(pods)d pods", self.view.counts)
        self.synced.set()
        if self._lease is not None:
            await self._lease.acquired.wait()
            await term.begin(self._lease.transitions)
            not_fenced_off = await term.fence_off_all(
                lambda: (pod for gang in self.registry.gangs() for pod in gang.all_pods if pod.is_candidate)
            )
            await scheduler.takeover.begin(not_fenced_off)
        await owners.wait_until_read(_OWNERS_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(_RESUME_SECONDS):
                await scheduler.restarter.resume_left()
        self.registry.listen(self.queue.mark)
        asyncio.get_running_loop().call_later(CARRIED_OUT_SECONDS, scheduler.cycle.executor.reporter.repeat)
        logger.info("scheduling begins")
        self.scheduling.set()
        for pod in self.view.pods():
            self._warn_of_caution(None, pod)
        await scheduler.run()

    async def _resume_jobs(self, restarter: JobRestarter) -> None:
        """Resume Jobs that were suspended to restart a gang, while this replica leads."""
        await self.scheduling.wait()
        await restarter.run(self.settings.resync_seconds)

    def _deploy_pipelines(self, server: ApiServer, events: EventRecorder, on_failure: Callable[[], None]) -> None:
        """Start deploying pipelines. No other part waits for it, so that the cluster needn't have the CRD of pipelines."""
        settings = self.settings
        policy = PipelinePolicy(settings.scheduler_names, settings.pipeline_namespaces, settings.namespaces)
        reconciler = PipelineReconciler(server, self._writer, events, policy, leads=lambda: self.leads, why=self._waiting_reason)
        self.view.listen(reconciler.observe_pod)

        async def deploy() -> None:
            await self.scheduling.wait()
            await reconciler.run(settings.resync_seconds)

        self._spawn("reflect pipelines", Reflector(server, MLFLOWS.everywhere, pipeline_from, reconciler).run(), on_failure)
        self._spawn("deploy pipelines", deploy(), on_failure)

    def _refuse_pipelines(self, server: ApiServer, events: EventRecorder, on_failure: Callable[[], None]) -> None:
        """Start reporting in the status of pipelines that they aren't deployed, if the cluster has the CRD of pipelines."""
        undeployed = UndeployedPipelines(server, self._writer, events, leads=lambda: self.leads, namespaces=self.settings.namespaces)

        async def reflect() -> None:
            await until_readable(server, MLFLOWS.everywhere)
            await Reflector(server, MLFLOWS.everywhere, undeployed_from, undeployed).run()

        self._spawn("reflect pipelines", reflect(), on_failure)
        self._spawn("refuse pipelines", undeployed.run(), on_failure)

    def _follow_admission(self, server: ApiServer, admission: BindAdmission) -> Coroutine[None, None, None]:
        return follow_bind_admission(server, admission)

    def _owner_watches(self, server: ApiServer) -> OwnerWatches:
        return OwnerWatches(server, self.registry.observe_owner)

    def _watch_gpus(self) -> Coroutine[None, None, None]:
        """Return the task that reads metrics of GPUs into the view. No other part waits for it."""
        loop = asyncio.get_running_loop()

        def push(cards: Cards) -> None:
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self.view.observe_cards, cards)

        scraper = Scraper(self.settings.gpu_metrics, lambda name: self.view.node(name) is not None, push)
        scraper.measure(self.metrics.gauge)
        return keep_cards(scraper, self.settings.kubeconfig, self.synced)

    def _waiting_reason(self, key: GangKey) -> str:
        """Return why a gang waits, in a few words that name no other gang; empty if it doesn't wait."""
        state = self.records.find_report_state(key)
        opinion = state.opinion if state else None
        return "" if opinion is None or not opinion.code.is_waiting else opinion.short or opinion.message

    async def _lead(self, lease: Candidate) -> None:
        """Compete for the lease as soon as all resources are listed. When the lease is lost, cancel all other tasks."""
        await self.synced.wait()
        try:
            await lease.run()
        finally:
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    async def _resync(self, reader: PodGroupReader, writer: PodGroupWriter) -> None:
        """List PodGroups regularly, since Kopf, from which their events come, may miss a deletion."""
        while True:
            try:
                if await reader.resync():
                    writer.write_missing()
                self._podgroups_listed.set()
                await asyncio.sleep(self.settings.resync_seconds)
            except Exception as error:
                logger.warning("PodGroups can't be listed: %s; trying again", error, exc_info=not isinstance(error, ApiError))
                await asyncio.sleep(min(5.0, self.settings.resync_seconds))

    def _count_excess(self, old: Pod | None, new: Pod | None) -> None:
        """Count and log a pod that exceeds a limit, so that a part of the pod is ignored. The message also appears on the pod's gang."""
        if new is not None and new.over and (old is None or (old.uid, old.over) != (new.uid, new.over)):
            for limit in new.over:
                self.metrics.over_limit.labels(limit).inc()
            logger.warning("pod %s: %s", new.key, new.malformed)

    def _warn_of_caution(self, old: Pod | None, new: Pod | None) -> None:
        """Record a warning event for a waiting pod whose requests look like a mistake, such as memory without a unit."""
        if new is None or not new.caution or not new.is_candidate or (old is not None and (old.uid, old.caution) == (new.uid, new.caution)):
            return
        if self.leads and self._events is not None:
            self._events.warning(ObjectReference.of_pod(new), "DoubtfulDemand", "Scheduling", new.caution)

    def _spawn(self, name: str, work: Coroutine[None, None, None], on_failure: Callable[[], None]) -> asyncio.Task[None]:
        def report_end(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                return
            is_first, self.has_failed = not self.has_failed, True
            error = task.exception()
            if isinstance(error, LeaseLostError):
                logger.critical("this replica no longer leads and ends: %s", error)
            else:
                logger.critical("%s has ended: the operator can't go on", name, exc_info=error)
            if is_first:
                on_failure()

        task = asyncio.create_task(work, name=name)
        task.add_done_callback(report_end)
        self._tasks.append(task)
        return task


def _searcher(settings: Settings, metrics: Metrics) -> Searcher:
    options, timeout = SearchSettings(**settings.search.model_dump()), settings.search_timeout_seconds
    return Searcher(options, workers=settings.workers, timeout_seconds=timeout, on_failure=metrics.search_failed)


def _admission() -> "Callable[[Settings, ApiServer, str, Callable[[], bool]], AbstractAsyncContextManager[WebhookProcess]]":
    """Return the context manager that serves the webhooks. Raises ``SettingsError`` if its extra package isn't installed."""
    try:
        from allaboard.admission.webhook_process import open_webhook_process
    except ModuleNotFoundError as error:
        words = f"it needs the package {error.name}: pip install 'allaboard[admission]'"
        raise SettingsError(f"admission_port: {words}, or set it to 0") from error
    return open_webhook_process


def _lease(settings: Settings, server: Server) -> Lease:
    times = LeaseTimes(settings.lease_duration_seconds, settings.lease_renew_deadline_seconds, settings.lease_retry_seconds)
    namespace = settings.lease_namespace or own_namespace()
    return Lease(server, namespace=namespace, name=settings.lease_name, identity=f"{socket.gethostname()}_{uuid.uuid4()}", times=times)
