"""Plays random schedules on a cluster that is served over HTTP, above all a real control plane, before the judge of virtual time.

Real time is slow, so many schedules are played side by side. Each has its own nodes and gangs, which its pods select by a label; acts on
the scheduler hit all of them.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from allaboard_sandbox import ApiError, Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.cluster import Cluster
from tests.tasks import beside
from tests.webhooks import BIND_WEBHOOK

from .gangs import HIGH, HIGH_PRIORITY, Body, GangSpec, Role, manifests
from .judge import Judge, Request, ViolationError, excuses
from .judge.facts import is_alive
from .judge.wire import note_strikes
from .operators import Operator

NODES, NODE_CPU = 3, 4
ACT_SECONDS = 30.0
QUIET_SECONDS = 27.0
"""The outcome is judged after so many seconds in which nothing has happened: a little more than the judge requires."""
_PATIENCE_SECONDS = 90.0
_WATCHED = ("/api/v1/pods", "/api/v1/nodes", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", "/apis/batch/v1/jobs")
_ATTRIBUTED_SECONDS = 100.0
_STALLS = "the machine stalls"
_NO_POLICIES = {"ALLABOARD_RESERVATIONS": "0", "ALLABOARD_PREEMPTION": "false"}
_TICK_SECONDS, _STALL_SECONDS = 0.1, 0.5


class Wire(Protocol):
    """A connection to the API server that reports requests to an observer."""

    observer: Any
    process: str


@dataclass(slots=True)
class LiveResult:
    """The result of a run of schedules."""

    played: int = 0
    stalls: int = 0
    """Times that the machine was too busy for judgements by the clock."""
    happenings: list[str] = field(default_factory=list)


class Feed:
    """Feeds every object of the API server to the judge, by watches of its own."""

    def __init__(self, session: aiohttp.ClientSession, url: str, judge: Judge) -> None:
        self._session, self._url, self._judge = session, url, judge
        self.ready = asyncio.Event()
        self._listed = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for path in _WATCHED:
                group.create_task(self._follow(path))

    async def _follow(self, path: str) -> None:
        plural = path.rpartition("/")[2]
        page: Body = {}
        while "items" not in page:
            # A kind that was installed a moment ago isn't served by every API server process yet.
            async with self._session.get(f"{self._url}{path}") as answer:
                page = await answer.json(content_type=None)
        for body in page["items"]:
            self._take(plural, False, body)
        self._listed += 1
        if self._listed == len(_WATCHED):
            self.ready.set()
        query = {"watch": "1", "resourceVersion": page["metadata"]["resourceVersion"], "timeoutSeconds": "3000"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(f"{self._url}{path}", params=query, timeout=timeout) as stream:
            pending = b""
            async for chunk in stream.content.iter_any():
                *lines, pending = (pending + chunk).split(b"\n")
                for event in map(json.loads, lines):
                    self._take(plural, event["type"] == "DELETED", event["object"])

    def _take(self, plural: str, is_deleted: bool, body: Body) -> None:
        metadata = body["metadata"]
        before = self._judge.books.get(plural, metadata.get("namespace") or "", metadata["name"])
        if plural == "pods" and before is not None:
            self._note_lost_node(is_deleted, body, before)
        self._judge.changed(plural, is_deleted, body, before, self._cause(plural, is_deleted, body, before))

    def _note_lost_node(self, is_deleted: bool, body: Body, before: Body) -> None:
        """Note a loss when the cluster's controllers end the pods of a node that is gone, a minute later."""
        node, spec = before["spec"].get("nodeName"), self._judge.books.gang_of(before)
        if spec is not None and node and node not in self._judge.books.nodes and is_alive(before) and (is_deleted or not is_alive(body)):
            self._judge.note_loss("a member is lost with its node", spec)

    def _cause(self, plural: str, is_deleted: bool, body: Body, before: Body | None) -> Request | None:
        """Return the scheduler's request by which an object was changed, as far as that can be known; None otherwise."""
        if plural != "pods":
            return None
        metadata, now = body["metadata"], self._judge.books.clock()
        is_bound = bool(body["spec"].get("nodeName")) and (before is None or not before["spec"].get("nodeName"))
        is_leaving = (is_deleted or "deletionTimestamp" in metadata) and (before is None or "deletionTimestamp" not in before["metadata"])
        for request in reversed(self._judge.books.requests):
            if request.is_dry_run or (request.namespace, request.name) != (metadata.get("namespace"), metadata["name"]):
                continue
            if request.sent < now - _ATTRIBUTED_SECONDS or request.is_carried_out or 400 <= request.status < 500:
                continue
            if is_bound and request.verb == "bind" and request.target == body["spec"]["nodeName"]:
                return request
            if is_leaving and request.verb in ("delete", "evict"):
                return request
        return None


class LiveSchedule:
    """One schedule: its own nodes and gangs, and random acts on them."""

    def __init__(self, number: int, seed: int, cluster: Cluster, judge: Judge) -> None:
        self.number, self._cluster, self._judge = number, cluster, judge
        self._chance = random.Random(f"{seed}/{number}")
        self._pool = f"pool-{number}"
        self._gangs: list[GangSpec] = []
        self._foreign = 0
        self.lasting: list[Fault] = []
        self.story: list[str] = []

    async def furnish(self) -> None:
        """Create its nodes."""
        for node in range(NODES):
            await self._do(partial(self._cluster.add_node, f"{self._pool}-{node}", cpu=str(NODE_CPU), labels={"pool": self._pool}))

    async def play(self) -> None:
        """Let gangs arrive and acts happen for ``ACT_SECONDS``."""
        ends = time.monotonic() + ACT_SECONDS
        await self._arrive()
        while time.monotonic() < ends:
            await asyncio.sleep(self._chance.uniform(0.05, 6.0))  # the pace of the acts
            act = self._chance.choice(
                [
                    self._arrive,
                    self._arrive_in_a_storm,
                    self._fail,
                    self._lose,
                    self._lose,
                    self._fill,
                    self._empty,
                    self._cordon,
                    self._remove_node,
                    self._edit,
                    self._succeed,
                    self._refuse_for_good,
                ]
            )
            await act()

    async def calm(self) -> None:
        """Uncordon the nodes of this schedule, since cordoned nodes would keep its gangs from being placed."""
        for node in range(NODES):
            await self._patch_node(node, is_cordoned=False)

    async def add_capacity(self) -> None:
        """Add a node with capacity for all gangs."""
        self._judge.note("capacity for all gangs is added")
        await self._do(partial(self._cluster.add_node, f"{self._pool}-annex", cpu="256", labels={"pool": self._pool}))

    # Acts.

    async def _arrive(self, faults: int = 0) -> None:
        if len(self._gangs) >= 3:
            return
        chance = self._chance
        size = chance.randint(2, 5)
        others = (Role("ps", 1, chance.randint(1, 3)),) if chance.random() < 0.3 else ()
        spec = GangSpec(
            f"s{self.number}-g{len(self._gangs)}",
            chance.choice(["controlled", "controlled", "bare", "job"]),
            size,
            chance.randint(2, size + len(others)),
            cpu=chance.randint(1, 2),
            has_group=chance.random() < 0.5,
            others=others,
            priority=chance.choice([0, 0, HIGH_PRIORITY]),
            pool=self._pool,
        )
        self._gangs.append(spec)
        self._judge.books.gangs.append(spec)
        for _ in range(faults):
            fault = Fault(
                "bind",
                "pods",
                f"{spec.name}-*",
                nth=chance.randint(1, 4),
                times=chance.choice([1, 2, 8]),
                status=chance.choice([403, 409, 429, 500, 503]),
                drop=chance.random() < 0.2,
                dry_run=chance.choice([False, False, None]),
            )
            self._cluster.faults.add(fault)
        self._log(f"{spec.name} arrives: {spec.kind}, {spec.minimum} of {spec.whole_size}, {spec.cpu} cpu, priority {spec.priority}")
        for manifest in manifests(spec):
            await self._do(partial(self._cluster.create, manifest))

    async def _arrive_in_a_storm(self) -> None:
        await self._arrive(self._chance.randint(1, 2))

    async def _fail(self) -> None:
        spec = self._gang()
        verb = self._chance.choice(["bind", "get", "patch", "delete"])
        self._log(f"a few {verb} of {spec.name} fail")
        status, is_lost = self._chance.choice([429, 500, 503]), self._chance.random() < 0.4
        self._cluster.faults.add(Fault(verb, "pods", f"{spec.name}-*", times=3, status=status, drop=is_lost, after=is_lost))

    async def _lose(self) -> None:
        spec = self._gang()
        if members := self._judge.members(spec):
            name = self._chance.choice(members)["metadata"]["name"]
            self._judge.note_loss("a member is deleted", spec)
            self._log(f"a member of {spec.name} is deleted")
            await self._do(partial(self._cluster.delete, "pods", name, grace=self._chance.choice([0, None])))

    async def _fill(self) -> None:
        node, cpu = self._chance.randrange(NODES), self._chance.randint(1, NODE_CPU)
        self._foreign += 1
        self._note("another scheduler binds a pod", None)
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": str(cpu)}}}
        spec = {"schedulerName": "another", "nodeName": f"{self._pool}-{node}", "containers": [container]}
        metadata = {"name": f"foreign-{self.number}-{self._foreign}", "namespace": "default"}
        await self._do(partial(self._cluster.create, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))

    async def _empty(self) -> None:
        self._note("pods of another scheduler end", None)
        for number in range(1, self._foreign + 1):
            await self._do(partial(self._cluster.delete, "pods", f"foreign-{self.number}-{number}", grace=0))

    async def _cordon(self) -> None:
        await self._patch_node(self._chance.randrange(NODES), is_cordoned=self._chance.random() < 0.7)

    async def _patch_node(self, node: int, *, is_cordoned: bool) -> None:
        self._note("a node is cordoned" if is_cordoned else "a node is uncordoned", None)
        await self._do(partial(self._cluster.patch, "nodes", f"{self._pool}-{node}", {"spec": {"unschedulable": is_cordoned}}, ""))

    async def _remove_node(self) -> None:
        if self._chance.random() < 0.5:
            return
        name = f"{self._pool}-{self._chance.randrange(NODES)}"
        self._note("a node is deleted", None)
        for spec in self._gangs:
            if any(pod["spec"].get("nodeName") == name for pod in self._judge.bound(spec)):
                self._judge.note_loss("a member is lost with its node", spec)
        await self._do(partial(self._cluster.delete, "nodes", name, ""))
        if self._chance.random() < 0.7:
            await self._do(partial(self._cluster.add_node, name, cpu=str(self._chance.randint(1, NODE_CPU)), labels={"pool": self._pool}))

    async def _edit(self) -> None:
        spec = self._gang()
        if spec.has_group:
            self._note("the minimum is edited", spec)
            minimum = self._chance.randint(1, spec.whole_size)
            await self._do(partial(self._cluster.patch, "podgroups", spec.name, {"spec": {"minMember": minimum}}))

    async def _succeed(self) -> None:
        spec = self._gang()
        running = [pod for pod in self._judge.bound(spec) if pod["status"].get("phase") == "Running"]
        for pod in running[: self._chance.choice([1, len(running)])]:
            self._note("a member ends", spec)
            await self._do(partial(self._cluster.finish_pod, pod["metadata"]["name"]))

    async def _refuse_for_good(self) -> None:
        if self._chance.random() < 0.6:
            return
        spec = self._gang()
        status = self._chance.choice([403, 500, 429])
        self._log(f"binds of {spec.name} are refused for good ({status})")
        retry_after = 300 if status == 429 else None
        fault = Fault("bind", "pods", f"{spec.name}-*", times=FOR_EVER, status=status, retry_after=retry_after, dry_run=None)
        self.lasting.append(fault)
        self._cluster.faults.add(fault)

    def _gang(self) -> GangSpec:
        return self._chance.choice(self._gangs)

    def _note(self, what: str, spec: GangSpec | None) -> None:
        self._judge.note(what, gang=spec)
        self._log(f"{what}{f' of {spec.name}' if spec else ''}")

    def _log(self, text: str) -> None:
        self.story.append(f"{self._judge.books.clock():.2f} {text}")

    async def _do(self, act: Callable[[], object]) -> None:
        """Call ``act`` in a thread; errors about objects that are gone, or exist already, don't matter."""
        with suppress(ApiError):
            await asyncio.to_thread(act)


async def play_live(
    cluster: Cluster, wire: Wire, feed: Callable[[Judge], Feed], kubeconfig: Path, folder: Path, *, seed: int, schedules: int
) -> LiveResult:
    """Play ``schedules`` schedules side by side, with one scheduler that is killed now and then. Raises ``ViolationError``.

    By every second seed the scheduler reserves capacity, and evicts pods for gangs of higher priority.
    """
    judge = Judge([], time.monotonic, patience=3.0)
    note_strikes(cluster.faults, judge.books)
    judge.reserving.is_on = bool(seed % 2)
    judge.reserving.epoch = time.time() - time.monotonic()
    judge.commits.wait_until_idle, judge.commits.fresh, judge.books.news.lag = 2.5, 10.0, 1.5  # several processes share the machine
    await asyncio.to_thread(
        cluster.create, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": HIGH}, "value": HIGH_PRIORITY}
    )
    await asyncio.to_thread(cluster.apply, BIND_WEBHOOK)
    chance, result = random.Random(seed), LiveResult()
    played = [LiveSchedule(number, seed, cluster, judge) for number in range(schedules)]
    async with (
        beside(feed(judge).run),
        _Relay(cluster, wire, judge, kubeconfig, folder) as relay,
        _with_stories(judge, played),
        beside(partial(_note_stalls, judge, wire)),
    ):
        await asyncio.gather(*(each.furnish() for each in played))
        await relay.next()
        playing = asyncio.gather(*(each.play() for each in played))
        for _ in range(2):
            await asyncio.sleep(chance.uniform(5, 12))  # the time in which the scheduler works
            if chance.random() < 0.4:
                judge.note("watches break")
                cluster.drop_watches()
            await relay.next()
        await playing
        cluster.faults.clear()
        for each in played:
            for fault in each.lasting:
                cluster.faults.add(fault)
            await each.calm()
        await _quiet(judge)
        judge.check()
        for each in played:
            await each.add_capacity()
        cluster.faults.clear()
        await _quiet(judge)
        judge.check()
    result.played = schedules
    result.stalls = sum(deed.what.startswith(_STALLS) for deed in judge.books.deeds)
    result.happenings = [line for each in played for line in each.story]
    return result


async def _note_stalls(judge: Judge, wire: Wire) -> None:
    """Note each time when the machine is so busy that no process runs in time, not even the scheduler."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(_TICK_SECONDS)  # measures the pace of the machine
        if (late := time.monotonic() - began - _TICK_SECONDS) > _STALL_SECONDS:
            judge.note(f"{_STALLS} for {late:.1f} s", process=wire.process)


@asynccontextmanager
async def _with_stories(judge: Judge, played: list[LiveSchedule]) -> AsyncIterator[None]:
    """Add the acts and the requests of each accused schedule to the text of a ``ViolationError``."""
    try:
        yield
    except ViolationError as error:
        accused = {int(number) for number in re.findall(r"\bs(\d+)-", str(error))}
        stories = [line for each in played if each.number in accused for line in [*each.story, *_requests(judge, f"s{each.number}-")]]
        raise ViolationError("\n".join([str(error), *sorted(stories)])) from error


def _requests(judge: Judge, names: str) -> list[str]:
    return [
        f"{each.sent:.2f} {each.process}: {each.verb} {each.name} {each.target}{' (dry run)' if each.is_dry_run else ''}: {each.status}"
        for each in judge.books.requests
        if each.name.startswith(names) and each.verb in ("bind", "delete", "evict")
    ]


async def _quiet(judge: Judge) -> None:
    """Wait until nothing has happened for as long as the judge needs, checking all the time."""
    ends = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < ends:
        judge.check()
        if time.monotonic() - max(judge.books.moved, excuses.quiet_since(judge.books)) > QUIET_SECONDS:
            return
        await asyncio.sleep(0.5)  # silence is the lack of an event


class _Relay:
    """Operators that follow one another: each is killed before the next begins."""

    def __init__(self, cluster: Cluster, wire: Wire, judge: Judge, kubeconfig: Path, folder: Path) -> None:
        self._cluster, self._wire, self._judge = cluster, wire, judge
        self._kubeconfig, self._folder = kubeconfig, folder
        self._stack = AsyncExitStack()
        self._current: Operator | None = None
        self._lives = 0

    async def __aenter__(self) -> "_Relay":
        self._wire.observer = self._judge
        return self

    async def __aexit__(self, *_: object) -> None:
        self._wire.observer = None
        await self._stack.aclose()

    async def next(self) -> None:
        """Kill the present operator, and let the next one reach the cluster."""
        following = Operator(
            self._cluster.url,
            self._kubeconfig,
            self._folder / str(self._lives),
            environment={
                "ALLABOARD_SCHEDULE_TIMEOUT_SECONDS": "30",
                "ALLABOARD_BACKOFF_MAX_SECONDS": "8",
                **({} if self._judge.reserving.is_on else _NO_POLICIES),
            },
        )
        await self._stack.enter_async_context(following)
        deed = None
        if self._current is not None:
            deed = self._judge.note("the scheduler is killed", process=self._wire.process, seconds=_PATIENCE_SECONDS)
            self._judge.leading = None
            await self._current.kill()
        self._lives += 1
        self._wire.process = f"life {self._lives}"
        self._current = following
        await following.let_in()
        self._judge.leading = time.monotonic()
        if deed is not None:
            deed.until = time.monotonic()
