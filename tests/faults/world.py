"""A cluster, a scheduler and everything that happens to them, in virtual time: what a schedule of faults is played on.

Every method that changes something is one thing that happens; time passes in ``advance`` only. Whatever the scheduler writes is judged
at once by the ``Judge``, whatever it leaves behind by ``verdict``.
"""

import asyncio
import copy
import functools
import gc
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, TypeVar
from unittest import mock

from allaboard import app as app_module
from allaboard.app import App
from allaboard.cli import bundled
from allaboard.placement import Plan, Problem, SearchSettings, search
from allaboard.sandbox import ApiError, Fault, Sandbox
from allaboard.sandbox import binding as sandbox_binding
from allaboard.sandbox.api import WriteOptions
from allaboard.sandbox.store import DELETED, Change
from allaboard.settings import load_settings

from .direct import DirectServer
from .gangs import LIVING, Body, GangSpec, manifests, pod_of
from .judge import OPERATOR, Judge, actor
from .virtual import VirtualLoop, virtual_clocks

Answer = TypeVar("Answer")
Given = ParamSpec("Given")

NODES, NODE_CPU = 4, 8
SEARCH = SearchSettings(generations=1, min_generations=0, population_size=4)
SETTLING_SECONDS = 150
"""Two time-outs of a gang and the longest pauses."""
_SETTINGS: dict[str, object] = {
    "metrics_port": 0,
    "backoff_max_seconds": 10.0,
    "schedule_timeout_seconds": 30,
    "search_timeout_seconds": 60.0,
}


def happens(method: Callable[Concatenate["World", Given], Answer]) -> Callable[Concatenate["World", Given], Answer]:
    """Have a method run inside the world's loop, where fake kubelets set their timers."""

    @functools.wraps(method)
    def inside(self: "World", *args: Given.args, **options: Given.kwargs) -> Answer:
        async def do() -> Answer:
            return method(self, *args, **options)

        return self.run(do()) if not self.loop.is_running() else method(self, *args, **options)

    return inside


class InlineSearcher:
    """Searches on the spot; what other processes would take in time is taken from the virtual clock."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def warm_up(self) -> None:
        """There is nothing to start."""

    async def search(self, problem: Problem, seed: int) -> Plan:
        await asyncio.sleep(self._chance.uniform(0.001, 0.05))
        return search(problem, SEARCH, seed)


class World:
    """One schedule's cluster. Use as a context manager: the loop and its time end with it."""

    def __init__(self, seed: int = 0, *, startup_delay: float = 0.05, nodes: int = NODES, cpu: int = NODE_CPU) -> None:
        self._stack = ExitStack()
        self.loop = VirtualLoop()
        self.chance = self._stack.enter_context(virtual_clocks(self.loop, seed))
        self._stack.enter_context(mock.patch.object(app_module, "ApiServer", SimpleNamespace(connect=self._connect)))
        # Every garbage collection would walk the test runner's whole heap, and freezing would keep the schedules' garbage for ever.
        self._stack.enter_context(mock.patch.object(app_module, "_spare_the_collector", lambda: None))
        self.sandbox = Sandbox(startup_delay=startup_delay, clock=self.loop.utc)
        self.sandbox.api._random = self.chance
        self.gangs: list[GangSpec] = []
        self.judge = Judge(self.sandbox, self.gangs, self.loop.time)
        self.app: App | None = None
        self.restarts = 0
        self.server = self._new_server()
        self._foreign = 0
        self._background: set[asyncio.Task[Any]] = set()
        for crd in _crds():
            self.sandbox.apply(copy.deepcopy(crd))
        self.run(self._begin(nodes, cpu))

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Let ``work`` be done, in virtual time."""
        return self.loop.run_until_complete(work)

    @staticmethod
    async def as_operator(work: Coroutine[Any, Any, Answer]) -> Answer:
        """Do something in the scheduler's name."""
        token = actor.set(OPERATOR)
        try:
            return await work
        finally:
            actor.reset(token)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.run(asyncio.sleep(seconds))
        self.judge.check()

    def close(self) -> None:
        """End everything."""

        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for _ in range(3):
                for task in tasks:
                    task.cancel()
                await asyncio.sleep(30)
            await asyncio.gather(*tasks, return_exceptions=True)

        try:
            self.server.sever()
            self.run(end())
            self.sandbox._kubelet.stop()
        finally:
            self._stack.close()
            self.loop.close()

    # What happens.

    @happens
    def add(self, spec: GangSpec) -> None:
        """A gang arrives."""
        self.gangs.append(spec)
        for manifest in manifests(spec):
            self.sandbox.create(manifest)

    @happens
    def fault(self, fault: Fault) -> None:
        self.sandbox.faults.add(fault)

    @happens
    def drop_watches(self, resource: str | None = None) -> None:
        self.sandbox.drop_watches(resource)

    @happens
    def compact(self) -> None:
        """The history is forgotten: watches that break now are answered 410."""
        self.sandbox.compact()
        self.sandbox.drop_watches()

    @happens
    def delete_member(self, spec: GangSpec, number: int, *, grace: int | None = None) -> None:
        """Somebody deletes a member."""
        if members := self.judge.members(spec):
            name = members[number % len(members)]["metadata"]["name"]
            with suppress(ApiError):
                self.sandbox.delete("pods", name, spec.namespace, grace=grace)

    @happens
    def replace_member(self, spec: GangSpec, number: int) -> None:
        """Somebody deletes a bare member at once and makes another of its name."""
        members = self.judge.members(spec)
        if members and spec.is_bare:
            name = members[number % len(members)]["metadata"]["name"]
            self.sandbox.delete("pods", name, spec.namespace, grace=0)
            with suppress(ApiError):
                self.sandbox.create(pod_of(spec, name))

    @happens
    def reject(self, spec: GangSpec, number: int) -> None:
        """A kubelet refuses a bound member that has not started."""
        waiting = [pod for pod in self.judge.bound(spec) if pod["status"].get("phase") == "Pending"]
        if waiting:
            metadata = waiting[number % len(waiting)]["metadata"]
            key, kubelet = (metadata["namespace"], metadata["name"]), self.sandbox._kubelet
            kubelet._cancel(key)
            kubelet._reject(key, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu")

    @happens
    def bind_foreign(self, node: int, cpu: int) -> None:
        """Another scheduler fills a node."""
        self._foreign += 1
        name = f"foreign-{self._foreign}"
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": str(cpu)}}}
        spec = {"schedulerName": "default-scheduler", "containers": [container]}
        self.sandbox.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "elsewhere"}, "spec": spec})
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": f"node-{node % NODES}"}}
        sandbox_binding.bind(self.sandbox.api, "elsewhere", name, target, WriteOptions())

    @happens
    def fill(self) -> None:
        """Another scheduler fills all nodes."""
        used = self.judge.usage()
        for number in range(NODES):
            if free := NODE_CPU - used.get((f"node-{number}", "cpu"), 0) // 1000:
                self.bind_foreign(number, free)

    @happens
    def remove_foreign(self) -> None:
        """What the other scheduler has bound ends."""
        for pod in self.sandbox.list("pods", "elsewhere"):
            if pod["metadata"]["name"].startswith("foreign-"):
                self.sandbox.delete("pods", pod["metadata"]["name"], "elsewhere", grace=0)

    @happens
    def set_minimum(self, spec: GangSpec, minimum: int) -> None:
        """Somebody edits the minMember of a gang that has a PodGroup of its own."""
        if spec.has_group and self.sandbox.get("podgroups", spec.name, spec.namespace):
            self.judge.note_edit(spec)
            self.sandbox.patch("podgroups", spec.name, {"spec": {"minMember": minimum}}, spec.namespace)

    @happens
    def delete_group(self, spec: GangSpec) -> None:
        """Somebody deletes a gang's PodGroup."""
        if self.sandbox.get("podgroups", spec.name, spec.namespace):
            self.judge.note_edit(spec)
            self.sandbox.delete("podgroups", spec.name, spec.namespace)

    @happens
    def cordon(self, node: int, *, is_cordoned: bool) -> None:
        self.sandbox.patch("nodes", f"node-{node % NODES}", {"spec": {"unschedulable": is_cordoned}})

    @happens
    def annotate(self, spec: GangSpec, annotations: dict[str, str]) -> None:
        """A tenant writes annotations on all pods of its gang."""
        for pod in self.judge.members(spec):
            self.sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"annotations": annotations}}, spec.namespace)

    @happens
    def bind_by_hand(self, pod: Body, node_name: str, annotations: dict[str, str]) -> None:
        """Somebody binds a pod and writes annotations with it, as the scheduler does."""
        metadata = pod["metadata"]
        target = {"metadata": {"name": metadata["name"], "annotations": annotations}, "target": {"kind": "Node", "name": node_name}}
        sandbox_binding.bind(self.sandbox.api, metadata["namespace"], metadata["name"], target, WriteOptions())

    @happens
    def place(self, pod: Body, node_name: str) -> None:
        """Somebody creates a pod that has a node from the start."""
        self.sandbox.create({**pod, "spec": {**pod["spec"], "nodeName": node_name}})

    def fell(self) -> None:
        """The scheduler is killed, and for now not started again."""

        async def die() -> None:
            victim, self.app = self.app, None
            self.server.sever()
            if victim is not None:
                self._keep(asyncio.ensure_future(victim.stop()))

        self.run(die())

    def rise(self) -> None:
        """It is started again."""
        self.run(self._start())

    def restart(self, down_seconds: float = 0.0) -> None:
        """The scheduler is stopped as Kubernetes does it, and started anew."""

        async def again() -> None:
            if self.app is None:
                return  # it is down, and about to be started
            await self.app.stop()
            await asyncio.sleep(down_seconds)
            await self._start()

        self.run(again())

    def crash(self, down_seconds: float = 0.0) -> None:
        """The scheduler is killed, and started anew."""
        self.run(self._crash(down_seconds))

    def crash_at(self, verb: str, resource: str, nth: int, *, after: bool, down_seconds: float = 0.0) -> None:
        """The scheduler is killed at the ``nth`` request of a kind from now, before it is carried out or ``after``."""
        hold = self.sandbox.faults.pause(verb, resource, nth=nth, after=after)

        async def wait() -> None:
            await hold.arrived()
            await self._crash(down_seconds)

        async def begin() -> None:
            self._keep(asyncio.ensure_future(wait()))

        self.run(begin())

    # What is left behind.

    def settle(self) -> None:
        """Let faults cease, and give the scheduler the time its own time-outs take."""
        self.sandbox.faults.clear()
        for number in range(len([node for node in self.sandbox.list("nodes") if node["metadata"]["name"].startswith("node-")])):
            self.cordon(number, is_cordoned=False)
        for _ in range(SETTLING_SECONDS // 10):
            self.advance(10)

    def make_room(self) -> None:
        """Give everybody what they wait for: seats, lost members, and PodGroups."""
        self._repair()
        self.advance(1)
        self._complete()

    @happens
    def _repair(self) -> None:
        self.sandbox.add_node("annex", cpu="512")
        for spec in self.gangs:
            if spec.has_group and not self.sandbox.get("podgroups", spec.name, spec.namespace):
                self.sandbox.create(next(each for each in manifests(spec) if each["kind"] == "PodGroup"))
            if spec.is_bare:
                for pod in self.judge.ended(spec):
                    self.sandbox.delete("pods", pod["metadata"]["name"], spec.namespace, grace=0)

    @happens
    def _complete(self) -> None:
        for spec in self.gangs:
            if spec.is_bare:
                here = {pod["metadata"]["name"] for pod in self.judge.members(spec)}
                wanted = max(self.judge.minimum(spec) or 0, spec.size)
                for name in (f"{spec.name}-{number}" for number in range(wanted)):
                    if name not in here:
                        self._remake(spec, name)
            elif (minimum := self.judge.minimum(spec) or 0) > spec.size and spec.kind == "job":
                self.set_minimum(spec, spec.size)  # the completions of a Job can't be raised
            elif minimum > spec.size:
                self.sandbox.patch("replicasets", spec.name, {"spec": {"replicas": minimum}}, spec.namespace)

    def leaked(self) -> list[str]:
        """Seats that the scheduler counts as taken and that nobody sits on, or the other way round."""
        assert self.app is not None
        found = [f"{count} seats are promised still"] if (count := self.app.view.counts["assumed_pods"]) else []
        snapshot = self.app.view.snapshot()
        real = self.judge.usage()
        for node, row in zip(snapshot.nodes, snapshot.used.tolist(), strict=True):
            for resource, used in zip(snapshot.resources, row, strict=True):
                if resource in ("cpu", "pods") and used != real.get((node.name, resource), 0):
                    found.append(f"{used} {resource} are counted on node {node.name}, {real.get((node.name, resource), 0)} are used")
        return found

    # How it works.

    async def _begin(self, nodes: int, cpu: int) -> None:
        assert self.sandbox._controllers is not None
        self.sandbox._controllers.start()
        for namespace in ("elsewhere", "team"):
            self.sandbox.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for number in range(nodes):
            self.sandbox.add_node(f"node-{number}", cpu=str(cpu))
        self.sandbox.store.subscribe(self._on_change)
        await self._start()

    def _new_server(self) -> DirectServer:
        return DirectServer(self.sandbox, self.chance)

    @asynccontextmanager
    async def _connect(self, *_: object) -> AsyncIterator[DirectServer]:
        yield self.server

    async def _start(self) -> None:
        self.server = self._new_server()
        app = App(load_settings(_SETTINGS), InlineSearcher(self.chance))  # type: ignore[arg-type]  # as much of a Searcher as is used
        token = actor.set(OPERATOR)
        try:
            await app.start()
        finally:
            actor.reset(token)
        self.app = app

    async def _crash(self, down_seconds: float) -> None:
        if self.app is None:
            return  # it is down, and about to be started
        victim, self.app = self.app, None
        self.server.sever()
        self.restarts += 1
        # Nothing it does now reaches the cluster; it is only cleared away.
        self._keep(asyncio.ensure_future(victim.stop()))
        await asyncio.sleep(down_seconds)
        await self._start()

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _on_change(self, change: Change) -> None:
        """Judge what the scheduler did; and stand in for Kopf, and for those who make anew what they let be deleted."""
        self.judge.on_change(change)
        if change.table.startswith("podgroups"):
            if change.type == DELETED and self.chance.random() < 0.25:
                return  # Kopf loses a deletion now and then
            raw = self.sandbox.api.resource("podgroups").present(change.record.body)
            self.loop.call_later(self.chance.uniform(0.001, 0.02), self._ring, change.type, raw)
        elif change.table == "pods" and change.type == DELETED and LIVING not in change.record.body["metadata"]:
            spec = self.judge.gang_of(change.record.body)
            if spec is not None and spec.kind == "recreated":
                self.loop.call_later(0.2, self._remake, spec, change.record.key[1])

    def _ring(self, event: str, raw: Body) -> None:
        if self.app is not None:
            token = actor.set(OPERATOR)
            try:
                self.app.observe_pod_group(event, raw)
            finally:
                actor.reset(token)

    @happens
    def _remake(self, spec: GangSpec, name: str) -> None:
        with suppress(ApiError):
            self.sandbox.create(pod_of(spec, name))


@functools.cache
def _crds() -> list[Body]:
    """Read once: a thousand schedules would spend a quarter of their time on it."""
    return list(bundled.crds())


def quiet() -> None:
    """Keep the logs of thousands of schedules out of the way."""
    for name in ("allaboard", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    gc.freeze()
