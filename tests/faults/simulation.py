"""Runs a cluster and a scheduler in one process and in virtual time: starts, stops and kills them.

The scheduler is the real ``App``; only its connection, its search processes, its clocks and Kopf are replaced.
"""

import asyncio
import copy
import functools
import gc
import itertools
import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from unittest import mock

from allaboard import app as app_module
from allaboard.app import App
from allaboard.cli import bundled
from allaboard.cluster.bind_admission import BindAdmission
from allaboard.gangs.owner_watches import OwnerWatches
from allaboard.kube.client import ApiServer
from allaboard.placement import Plan, Problem, SearchSettings, search
from allaboard.placement.contest.contest import Contest
from allaboard.placement.contest.joint import Joint, place_together
from allaboard.placement.remedies.emptied_problem import EmptiedProblem
from allaboard.placement.remedies.preemption import Choice, Evictable, choose_victims
from allaboard.placement.remedies.remedies import Remedies
from allaboard.planning.search_processes import SearchOverrunError
from allaboard.settings.options import load_settings
from allaboard_sandbox import ApiError, Fault, Sandbox
from allaboard_sandbox.store import DELETED, Change
from tests.stories import MINIMUM

from .direct import DirectServer, Network
from .gangs import DEVICES_OF_NODE, HIGH, HIGH_PRIORITY, LIVING, RACK, Body, GangSpec, pod_of
from .judge import Deed, Judge
from .judge.entries import current
from .judge.wire import note_strikes
from .virtual import BEGINNING, VirtualLoop, virtual_clocks

Answer = TypeVar("Answer")
Given = ParamSpec("Given")
Simulated = TypeVar("Simulated", bound="Simulation")

NODES, NODE_CPU, NODE_GPUS = 4, 8, 2
POOLS = ("left", "right")
RACKS = ("rack-0", "rack-1")
_SPLIT, _DEVICE_MIB = 10, 40960
CRDS = ("ours", "upstream", "none")
"""The PodGroup CRD that is installed: ours, that of scheduler-plugins, whose status has fewer fields, or none."""
LOGGERS = ("allaboard", "allaboard_sandbox", "asyncio")
SEARCH = SearchSettings(generations=1, min_generations=0, population_size=4)
_SETTINGS: dict[str, object] = {
    "metrics_port": 0,
    "api_port": 0,
    "backoff_max_seconds": 10.0,
    "schedule_timeout_seconds": 30,
    "search_timeout_seconds": 60.0,
    "gpu_metrics": {"source": "off"},  # metrics are read in a thread, whose time is real
}
_NO_POLICIES: dict[str, object] = {"reservations": 0, "preemption": False}
_ELECTION: dict[str, object] = {"leader_elect": True, "lease_namespace": "elsewhere"}
BRIEF_SECONDS = 3.0
_RESTART_SECONDS = 1.0
_REJECTION_SECONDS = 0.01
_KOPF_DELAYS = (0.0, 0.001, 0.02, 0.5, 5.0)
_KOPF_MISSES = 0.2  # share of the changes
_DELETIONS_MISSED = 0.25  # share of the deletions of PodGroups


def happens(method: Callable[Concatenate[Simulated, Given], Answer]) -> Callable[Concatenate[Simulated, Given], Answer]:
    """Run a method inside the world's event loop, where fake kubelets set their timers."""

    @functools.wraps(method)
    def inside(self: Simulated, /, *args: Given.args, **options: Given.kwargs) -> Answer:
        async def do() -> Answer:
            return method(self, *args, **options)

        return self.run(do()) if not self.loop.is_running() else method(self, *args, **options)

    return inside


class InlineSearcher:
    """Searches in this process. The virtual clock passes the time that another process would take."""

    slowness = 0.0
    """Seconds that each search takes longer. A short search is ended after ``BRIEF_SECONDS``."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def warm_up(self) -> None:
        """Do nothing: there are no processes to start."""

    async def search_briefly(self, problem: Problem, seed: int) -> Plan:
        if self.slowness >= BRIEF_SECONDS:
            await asyncio.sleep(BRIEF_SECONDS)
            raise SearchOverrunError("the search has taken too long")
        return await self.search(problem, seed)

    async def run_briefly(self, work: Callable[..., Any], *arguments: object) -> Any:
        await asyncio.sleep(self._chance.uniform(0.001, 0.05))
        return work(*arguments)

    async def search(self, problem: Problem, seed: int) -> Plan:
        await asyncio.sleep(self.slowness + self._chance.uniform(0.001, 0.05))
        return search(problem, SEARCH, seed)

    async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
        if not is_easy:
            await asyncio.sleep(self._chance.uniform(0.001, 0.05))
        return place_together(contest, SEARCH)

    async def choose_victims(self, within: EmptiedProblem, evictable: Evictable) -> Choice | None:
        await asyncio.sleep(self._chance.uniform(0.001, 0.05))
        return choose_victims(within, evictable)

    async def find_remedies(self, within: EmptiedProblem) -> Remedies:
        """Return no remedies: no test here reads them."""
        return Remedies()


@dataclass(eq=False, slots=True)
class Replica:
    """One process of the scheduler. ``app`` is None while the process is down."""

    server: DirectServer
    app: App | None = None
    searcher: InlineSearcher | None = None


class _Operator(App):
    """The operator without its watches of pipelines and of owners, which would change the random draws of every schedule.

    It watches the webhooks that see binds only if the simulation ``watches_admission``. Otherwise all gangs are dry-run.
    """

    watches_admission = False

    def _refuse_pipelines(self, *_: object) -> None:
        pass

    async def _follow_admission(self, server: ApiServer, admission: BindAdmission) -> None:
        if not self.watches_admission:
            await asyncio.Event().wait()
        await super()._follow_admission(server, admission)

    def _owner_watches(self, server: ApiServer) -> OwnerWatches:
        return OwnerWatches(server, self.registry.observe_owner, kinds=())


_connecting: ContextVar[DirectServer] = ContextVar("connecting")
"""The server to which the replica that is starting connects."""


_VARIATION: ContextVar[random.Random | None] = ContextVar("_VARIATION", default=None)
_PACES = (0.97, 1.03)


@contextmanager
def varied(seed: int) -> Iterator[None]:
    """Open a context: each simulation that begins in it has other latencies, and slightly shorter or longer pauses."""
    token = _VARIATION.set(random.Random(seed))
    try:
        yield
    finally:
        _VARIATION.reset(token)


class Simulation:
    """One schedule's cluster and its scheduler. Use as a context manager: the loop and its time end with it.

    One of the ``replicas`` leads. If the cluster ``shares_gpus``, HAMi assigns parts of GPUs. If it ``has_policies``, the scheduler
    reserves capacity for waiting gangs, and evicts pods for gangs of higher priority. If it ``watches_admission``, binds are dry-run only
    while a webhook matches them, or if that isn't known; at first there is no webhook.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        startup_delay: float = 0.05,
        nodes: int = NODES,
        cpu: int = NODE_CPU,
        replicas: int = 1,
        crd: str = "ours",
        page: int = 0,
        shares_gpus: bool = False,
        has_policies: bool = False,
        watches_admission: bool = False,
    ) -> None:
        self.shares_gpus, self.has_policies, self.watches_admission = shares_gpus, has_policies, watches_admission
        self._stack = ExitStack()
        self.loop = VirtualLoop()
        self._variation = _VARIATION.get()
        seed = seed if self._variation is None else self._variation.getrandbits(32)
        self.chance = self._stack.enter_context(virtual_clocks(self.loop, seed))
        self._stack.enter_context(mock.patch.object(app_module, "ApiServer", SimpleNamespace(connect=self._connect)))
        # A garbage collection would walk the test runner's whole heap, and freezing would keep the schedules' garbage.
        self._stack.enter_context(mock.patch.object(app_module, "freeze_objects", lambda: None))
        self.sandbox = Sandbox(startup_delay=startup_delay, clock=self.loop.utc)
        self.sandbox.api._random = self.chance
        self.deletions_missed = _DELETIONS_MISSED
        self._kopf_chance = random.Random(seed)  # drawn apart, so that Kopf's events don't change the other draws
        self.gangs: list[GangSpec] = []
        self.ended: set[GangSpec] = set()
        """The gangs whose creator has deleted them."""
        self.superseded: set[GangSpec] = set()
        """Gangs of bare pods that were submitted again: their pods aren't recreated."""
        self.judge = Judge(self.gangs, self.loop.time)
        self.judge.standing.shows_conditions = crd == "ours"
        self.judge.reserving.is_on = has_policies
        self.judge.reserving.epoch = BEGINNING
        self.judge.commits.dry_runs_from = math.inf if watches_admission else 0.0
        note_strikes(self.sandbox.faults, self.judge.books)
        self.network = Network(page=page)
        self._lives = itertools.count(1)
        self.replicas = [Replica(self._new_server()) for _ in range(replicas)]
        self.crd = crd
        self.restarts = 0
        self.lasting: list[Fault] = []
        self._late: list[Deed] = []
        self._rejecting_nodes: set[str] = set()
        self._foreign = self._hostile = self._runs = 0
        self._background: set[asyncio.Task[Any]] = set()
        self.sandbox.store.subscribe(self._on_change)
        for definition in _crds(crd):
            self.sandbox.apply(copy.deepcopy(definition))
        self.sandbox.create(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": HIGH}, "value": HIGH_PRIORITY}
        )
        self.run(self._begin(nodes, cpu))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def leader(self) -> Replica | None:
        """The replica that decides, or the only one; None while there is none."""
        alive = [replica for replica in self.replicas if replica.app is not None]
        return next((replica for replica in alive if len(self.replicas) == 1 or (replica.app and replica.app.leads)), None)

    @property
    def app(self) -> App | None:
        """The scheduler that decides; None while none does."""
        return self.leader.app if self.leader else None

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run ``work`` in virtual time, and return its result."""
        return self.loop.run_until_complete(work)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if self._variation is not None:
            seconds *= self._variation.uniform(*_PACES)
        self.run(asyncio.sleep(seconds))
        self.judge.check()

    def close(self) -> None:
        """End all tasks and the event loop."""

        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for _ in range(3):
                for task in tasks:
                    task.cancel()
                await asyncio.sleep(30)
            await asyncio.gather(*tasks, return_exceptions=True)

        try:
            for replica in self.replicas:
                replica.server.sever()
            self.run(end())
            self.sandbox._kubelet.stop()
        finally:
            self._stack.close()
            self.loop.close()

    async def _begin(self, nodes: int, cpu: int) -> None:
        assert self.sandbox._controllers is not None
        self.sandbox._controllers.start()
        for namespace in ("elsewhere", "team", "evil"):
            self.sandbox.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for number in range(nodes):
            self.add_node(number, cpu)
        for replica in self.replicas:
            await self._start(replica)

    def add_node(self, number: int, cpu: int = NODE_CPU) -> None:
        """Add a node: half of the nodes are in each pool, and half of each pool in each rack."""
        gpus = NODE_GPUS if cpu >= NODE_CPU else 0
        self.join(f"node-{number}", cpu, gpus, {"pool": POOLS[number % 2], RACK: RACKS[number // 2 % 2]})

    def join(self, name: str, cpu: int, gpus: int, labels: dict[str, str]) -> None:
        """Add a node with these labels."""
        self.sandbox.add_node(name, cpu=str(cpu), gpus=0 if self.shares_gpus else gpus, labels=labels)
        if self.shares_gpus and gpus:
            # The driver lists the devices before the kubelet offers them.
            listed = "".join(f"{name}-gpu-{number},{_SPLIT},{_DEVICE_MIB},100,NVIDIA-A100,0,true:" for number in range(gpus))
            self.sandbox.patch("nodes", name, {"metadata": {"annotations": {DEVICES_OF_NODE: listed}}}, "")
            offered = {"nvidia.com/gpu": str(gpus * _SPLIT)}
            self.sandbox.patch("nodes", name, {"status": {"capacity": offered, "allocatable": offered}}, "", "status")

    def _new_server(self) -> DirectServer:
        return DirectServer(self.sandbox, self.chance, self.judge, f"life {next(self._lives)}", self.network)

    @asynccontextmanager
    async def _connect(self, *_: object, **__: object) -> AsyncIterator[DirectServer]:
        yield _connecting.get()

    async def _start(self, replica: Replica) -> None:
        if replica.app is not None:
            return  # it was started meanwhile
        replica.server = self._new_server()
        settings = load_settings(_SETTINGS | ({} if self.has_policies else _NO_POLICIES) | (_ELECTION if len(self.replicas) > 1 else {}))
        server = replica.server
        replica.searcher = InlineSearcher(self.chance)
        searcher: Any = replica.searcher  # has only the methods of a Searcher that are used
        app = _Operator(settings, searcher, lambda make: nullcontext(make(server)))
        app.watches_admission = self.watches_admission

        def on_death() -> None:
            self._keep(asyncio.ensure_future(self._restart_ended(replica, app)))

        token = _connecting.set(replica.server)
        try:
            await app.start(on_death)
        finally:
            _connecting.reset(token)
        replica.app = app
        self.judge.terms.alive[server.process] = self.loop.time()
        self._keep(asyncio.ensure_future(self._note_leading(app)))

    async def _note_leading(self, app: App) -> None:
        """Report to the judge when a scheduler begins to lead."""
        await app.scheduling.wait()
        self.judge.leading = self.loop.time()

    def _note_end(self, what: str, replica: Replica, seconds: float = 0.0) -> None:
        """Report to the judge that a process has ended or stands still."""
        self.judge.note(what, process=replica.server.process, seconds=seconds)
        self.judge.terms.alive.pop(replica.server.process, None)
        if len(self.replicas) == 1:
            self.judge.leading = None

    async def _restart_ended(self, replica: Replica, dead: App) -> None:
        """Restart a replica that has ended by itself."""
        self._note_end("a replica ends by itself", replica)
        await dead.stop()
        if replica.app is dead:
            replica.app = None
            await asyncio.sleep(_RESTART_SECONDS)
            await self._start(replica)

    async def _crash(self, down_seconds: float) -> None:
        replica = self.leader
        if replica is None:
            return  # it is down, and about to be started
        victim, replica.app = replica.app, None
        replica.server.sever()
        self._note_end("the scheduler is killed", replica, down_seconds)
        self.restarts += 1
        if victim is not None:
            # Nothing that the killed process does reaches the cluster; this only ends its tasks.
            self._keep(asyncio.ensure_future(victim.stop()))
        await asyncio.sleep(down_seconds)
        await self._start(replica)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _on_change(self, change: Change) -> None:
        """Report a change to the judge, and act as Kopf and as the controllers that recreate pods."""
        self.judge.on_change(change)
        self.network.written[str(change.revision)] = self.loop.time()
        if change.table == "pods" and change.type != DELETED:
            self._notify_kopf(change)
            self._note_rollout(change)
        if change.table.startswith("podgroups"):
            if change.type == DELETED and self.chance.random() < self.deletions_missed:
                return  # Kopf misses a deletion now and then
            raw = self.sandbox.api.resource("podgroups").present(change.record.body)
            self.loop.call_later(self.chance.uniform(0.001, 0.02), self._observe_pod_group, change.type, raw)
        elif change.table == "pods" and change.type != DELETED and change.record.body["spec"].get("nodeName") in self._rejecting_nodes:
            spec = self.judge.books.gang_of(change.record.body)
            if spec is not None and change.previous is not None and not change.previous.body["spec"].get("nodeName"):
                self.loop.call_later(_REJECTION_SECONDS, self._reject_newcomer, spec, change.record.body["metadata"]["uid"])
        elif change.table == "pods" and change.type == DELETED:
            spec = self.judge.books.gang_of(change.record.body)
            if spec is not None and spec.kind in ("recreated", "operated") and change.record.key[1] in spec.bare_names:
                self.loop.call_later(0.2, self._recreate, spec, change.record.key[1])

    def _note_rollout(self, change: Change) -> None:
        """Note that a Deployment's controller deletes a pod."""
        spec = self.judge.books.gang_of(change.record.body)
        was_here = change.previous is not None and LIVING not in change.previous.body["metadata"]
        if spec is not None and spec.kind == "deployed" and was_here and LIVING in change.record.body["metadata"] and current.get() is None:
            self.judge.lives.lose(spec)

    def _notify_kopf(self, change: Change) -> None:
        """Report a pending pod with the min-available label as Kopf's watch does: sometimes late or out of date, sometimes never."""
        body = change.record.body
        if MINIMUM not in body["metadata"].get("labels", {}) or body["spec"].get("nodeName") or self._kopf_chance.random() < _KOPF_MISSES:
            return
        raw = self.sandbox.api.resource("pods").present(body)
        self.loop.call_later(self._kopf_chance.choice(_KOPF_DELAYS), self._observe_pending_pod, raw)

    def _observe_pending_pod(self, raw: Body) -> None:
        for replica in self.replicas:
            if replica.app is not None:
                replica.app.observe_pending_pod("MODIFIED", raw)

    @happens
    def _reject_newcomer(self, spec: GangSpec, uid: str) -> None:
        """Reject a pod that has just been bound to a node whose kubelet rejects every pod."""
        for pod in self.judge.bound(spec):
            if pod["metadata"]["uid"] == uid and pod["status"].get("phase") == "Pending":
                self._reject(spec, pod)

    def _reject(self, spec: GangSpec, pod: Body) -> None:
        self.judge.note_loss("a kubelet rejects a member", spec)
        key, kubelet = (pod["metadata"]["namespace"], pod["metadata"]["name"]), self.sandbox._kubelet
        kubelet._cancel(key)
        kubelet._reject(key, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu")

    def _observe_pod_group(self, event: str, raw: Body) -> None:
        for replica in self.replicas:
            if replica.app is not None:
                replica.app.observe_pod_group(event, raw)

    @happens
    def _recreate(self, spec: GangSpec, name: str) -> None:
        if spec not in self.ended and self.judge.books.get("pods", spec.namespace, name) is None:
            with suppress(ApiError):
                self.sandbox.create(pod_of(spec, name))


@functools.cache
def _crds(which: str) -> list[Body]:
    """Return the CRDs of a kind of cluster. Cached: reading them takes a quarter of the time of a schedule."""
    found = list(bundled.crds()) if which != "none" else []
    if which == "upstream":
        found = copy.deepcopy(found)
        for version in (version for crd in found if crd["spec"]["names"]["kind"] == "PodGroup" for version in crd["spec"]["versions"]):
            fields = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
            for name in ("conditions", "members", "reason", "summary", "message"):
                del fields[name]  # the status of scheduler-plugins has none of these fields
    return found


def quiet() -> None:
    """Silence the logs of schedules, and exempt existing objects from garbage collection."""
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    gc.freeze()
