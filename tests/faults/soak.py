"""Lets gangs come and go for a given time while requests fail and watches break: nothing is violated, and nothing grows."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from aiohttp import web

from allaboard_sandbox import ApiError, Fault, Sandbox
from allaboard_sandbox.server import Server

from .gangs import GangSpec, manifests
from .judge import Judge
from .judge.facts import phase_of
from .judge.wire import note_strikes, observed
from .kills import install_crds
from .operators import started

ROOT = Path(__file__).parents[2]
NODES, NODE_CPU = 8, 16
AT_ONCE = 12
HORIZON_SECONDS = 150.0
"""Seconds after which the judge forgets requests and pods: of thousands of pods, old ones would take most of the judge's time."""
WHOLE_SECONDS = 60.0
GROWTH_BYTES = 16 * 1024 * 1024
GROWTH_SHARE = 0.05
SETTLED_SECONDS = 1.5  # Kopf's workers for deleted objects end after a second
GROWTH_TASKS = 12
"""By how much the number of tasks may grow: tasks that wait for the next event come and go."""
GROWTH_HANDLES = 64
"""By how much the number of file handles may grow: connections are kept, as many as there were binds in flight at once.

If each gang leaked one handle, the growth would soon be larger.
"""


@dataclass(frozen=True, slots=True)
class Gauge:
    """The resources that the process held at a moment without work."""

    rss: int
    tasks: int
    handles: int


@dataclass(slots=True)
class Soaked:
    """The result of a soak."""

    gangs: int = 0
    faults: int = 0
    violations: list[str] = field(default_factory=list)
    gauges: list[Gauge] = field(default_factory=list)
    tasks: dict[str, int] = field(default_factory=dict)
    """The tasks at the end, by name."""

    def growth(self) -> list[str]:
        """Return what has grown since the first gauge, which is taken after the warm-up."""
        first, last = self.gauges[0], self.gauges[-1]
        found = []
        if last.rss > first.rss * (1 + GROWTH_SHARE) + GROWTH_BYTES:
            found.append(f"memory grew from {first.rss >> 20} to {last.rss >> 20} MiB")
        if last.tasks > first.tasks + GROWTH_TASKS:
            found.append(f"tasks grew from {first.tasks} to {last.tasks}: {self.tasks}")
        if last.handles > first.handles + GROWTH_HANDLES:
            found.append(f"file handles grew from {first.handles} to {last.handles}")
        return found

    def __str__(self) -> str:
        text = f"{self.gangs} gangs, {self.faults} faults: {len(self.violations)} violations"
        if not self.gauges:
            return text
        first, last = self.gauges[0], self.gauges[-1]
        memory = f"{first.rss >> 20} → {last.rss >> 20} MiB"
        return f"{text}; {memory}, {first.tasks} → {last.tasks} tasks, {first.handles} → {last.handles} handles"


class Soak:
    """One soak; ``on_gauge`` is called after each round."""

    def __init__(self, folder: Path, seed: int, on_gauge: Callable[[Soaked], None] = lambda soaked: None) -> None:
        self.result = Soaked()
        self._folder, self._chance, self._on_gauge = folder, random.Random(seed), on_gauge
        self._specs: list[GangSpec] = []
        self._count = 0

    async def run(self, seconds: float, rounds: int) -> Soaked:
        """Soak for ``seconds``, in rounds that each end when all their gangs have; the first is a warm-up."""
        answer, judge = Server._answer, Judge(self._specs, time.monotonic)
        judge.books.horizon = HORIZON_SECONDS
        judge.commits.wait_until_idle, judge.commits.fresh = (
            1.0,
            10.0,
        )  # the judge shares the processors with the scheduler: some binds come late

        async def as_operator(server: Server, request: web.Request) -> web.StreamResponse:
            # Only the operator uses HTTP.
            return await observed(judge, "operator", request, time.monotonic, partial(answer, server, request))

        with mock.patch.object(Server, "_answer", as_operator):
            async with Sandbox() as cluster:
                cluster.store.subscribe(judge.on_change)
                note_strikes(cluster.faults, judge.books)
                await self._soak(cluster, judge, seconds, rounds)
        return self.result

    async def _soak(self, cluster: Sandbox, judge: Judge, seconds: float, rounds: int) -> None:
        install_crds(cluster)
        for number in range(NODES):
            cluster.add_node(f"node-{number}", cpu=str(NODE_CPU))
        kubeconfig = self._folder / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        environment = {"PYTHONPATH": str(ROOT), "ALLABOARD_SCHEDULE_TIMEOUT_SECONDS": "30"}
        options: dict[str, Any] = {"command": ("-m", "tests.faults.gauged", "run"), "environment": environment}
        async with started(cluster.url, kubeconfig, self._folder / "operator", **options) as operator:
            for number in range(rounds + 1):
                await self._round(cluster, judge, seconds / (rounds + 1))
                await asyncio.sleep(SETTLED_SECONDS)
                gauge = Gauge(**json.loads(await operator.ask(f"gauge-{number}")))
                if number:
                    self.result.gauges.append(gauge)
                self.result.violations += judge.over_committed()
                self._on_gauge(self.result)
            self.result.tasks = json.loads(await operator.ask("tasks"))
            self.result.violations += judge.violations
            self.result.violations += [line for line in operator.lines if "Traceback" in line or "CRITICAL" in line]

    async def _round(self, cluster: Sandbox, judge: Judge, seconds: float) -> None:
        ends = time.monotonic() + seconds
        turns = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < ends:
                await turns.acquire()
                self._disturb(cluster, judge)
                group.create_task(self._released(turns, self._live(cluster, judge)))
                # The pace at which users come; nothing is awaited here.
                await asyncio.sleep(self._chance.uniform(0.0, 0.15))
        cluster.faults.clear()

    async def _released(self, turns: asyncio.Semaphore, work: Awaitable[None]) -> None:
        try:
            await work
        finally:
            turns.release()

    def _disturb(self, cluster: Sandbox, judge: Judge) -> None:
        """Inject a fault now and then."""
        chance = self._chance
        if chance.random() < 0.5 and len(cluster.faults.pending) < 10:
            self.result.faults += 1
            status = chance.choice([403, 409, 429, 500, 503, 504])
            verb, resource = chance.choice(
                [("bind", "pods"), ("bind", "pods"), ("get", "pods"), ("patch", "*"), ("create", "events"), ("delete", "pods")]
            )
            drop = chance.random() < 0.3
            after = (drop or status >= 500) and chance.random() < 0.5
            nth, times = chance.randint(1, 6), chance.randint(1, 3)
            cluster.faults.add(Fault(verb, resource, nth=nth, times=times, status=status, drop=drop, after=after))
        if chance.random() < 0.03:
            self.result.faults += 1
            judge.note("watches break")
            cluster.drop_watches(chance.choice([None, "pods", "nodes"]))
        if chance.random() < 0.01:
            self.result.faults += 1
            judge.note("the history is forgotten")
            cluster.compact()
            cluster.drop_watches()

    async def _live(self, cluster: Sandbox, judge: Judge) -> None:
        """Create a gang, wait until it is whole, and remove it."""
        self._count += 1
        size = self._chance.randint(2, 8)
        spec = GangSpec(
            f"gang-{self._count}", self._chance.choice(["controlled", "bare"]), size, size, has_group=self._chance.random() < 0.5
        )
        self._specs.append(spec)
        try:
            for manifest in manifests(spec):
                cluster.create(manifest)

            def runs(_: Sandbox) -> bool:
                return sum(phase_of(pod) == "Running" for pod in judge.members(spec)) >= size

            try:
                await cluster.wait_for(runs, timeout=WHOLE_SECONDS)
            except TimeoutError:
                self.result.violations.append(f"{spec.name} is not whole after {WHOLE_SECONDS:g} s: {len(judge.bound(spec))} of {size}")
            self.result.gangs += 1
            await asyncio.sleep(self._chance.uniform(0.1, 1.0))  # the time for which it runs
            self._end(cluster, judge, spec)
            await cluster.wait_for(lambda _: not judge.members(spec), timeout=30, message=f"{spec.name} goes")
        finally:
            self._specs.remove(spec)

    def _end(self, cluster: Sandbox, judge: Judge, spec: GangSpec) -> None:
        """Remove a gang at once, before the scheduler reacts to its lost members."""
        judge.note("the gang is removed", gang=spec)
        if not spec.is_bare:
            cluster.delete("replicasets", spec.name)
        for pod in judge.members(spec):
            with suppress(ApiError):
                cluster.delete("pods", pod["metadata"]["name"], grace=0)
        with suppress(ApiError):
            cluster.delete("podgroups", spec.name)
