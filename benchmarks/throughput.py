"""How fast gangs are bound, by Allaboard and by the gang scheduling that kube-scheduler has of its own.

One thing to know before changing it: everything but the scheduler is the same for both contenders, and none of it may be what is
measured. So pods are created by a process of their own, and bound pods are heard of by one watch that sends little.
"""

import asyncio
import json
import multiprocessing
import os
import platform
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import aiohttp
import click
import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from operator_process import ROOT, children, cpu_seconds, memory_mib, operator_process

PODS = "/api/v1/namespaces/default/pods"
PODGROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
CRD = ROOT / "crds" / "podgroups.scheduling.x-k8s.io.yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OUR_PODGROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"

GATES = ("GenericWorkload",)
API_FLAGS = ("--runtime-config=scheduling.k8s.io/v1beta1=true",)

_READY_SECONDS = 60.0
_TABLE_WIDTH = 140
_QUIET_SHARE = 0.06  # of a processor: what an idle scheduler may use
_QUIET_SECONDS = (0.5, 20.0)  # how long it must be idle, and how long that is waited for

progress = Console(stderr=True, highlight=False)


@dataclass(frozen=True, slots=True)
class Scenario:
    """So many gangs of so many pods."""

    gangs: int
    size: int

    def __str__(self) -> str:
        return f"{self.gangs}x{self.size}"

    @property
    def pods(self) -> int:
        """Pods of all gangs."""
        return self.gangs * self.size


SCENARIOS = {str(scenario): scenario for scenario in (Scenario(1000, 1), Scenario(50, 20), Scenario(2, 500), Scenario(1, 1000))}


@dataclass(frozen=True, slots=True)
class Connection:
    """Where an API server is, and how one gets in."""

    url: str
    ca: str = ""
    token: str = ""

    @classmethod
    def of(cls, kubeconfig: Path) -> "Connection":
        """The one cluster and user of a kubeconfig."""
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        return cls(cluster["server"], cluster.get("certificate-authority", ""), user.get("token", ""))

    def session(self, limit: int = 16) -> aiohttp.ClientSession:
        """A session of at most ``limit`` connections."""
        context = ssl.create_default_context(cafile=self.ca) if self.ca else True
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        return aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(limit=limit, ssl=context), headers=headers)


@dataclass(frozen=True, slots=True)
class Home:
    """A cluster that runs. ``servers`` are the pids of what serves it; ``start_scheduler`` starts kube-scheduler and returns its pid."""

    kubeconfig: Path
    servers: Sequence[int]
    start_scheduler: Callable[[], int] | None
    describe: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Load:
    """What the load generator is to create: bodies with the number of their gang, in order."""

    connection: Connection
    gangs: int
    bodies: Sequence[tuple[int, bytes]]
    concurrency: int


@dataclass(frozen=True, slots=True)
class Created:
    """When the first pod of each gang was sent, and the last pod of all was there, on the machine's monotonic clock."""

    first: Sequence[float]
    ended: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of one scenario by one contender."""

    pods_per_second: float
    latency_p50: float
    latency_p99: float
    in_part: float
    scheduler_cpu_seconds: float
    scheduler_mib: float
    created_seconds: float
    servers_cpu_seconds: float
    load_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """Where figures come from."""

    scenario: str
    contender: str
    number: int
    figures: Figures


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same in every run."""

    nodes: int
    concurrency: int
    timeout: float


@asynccontextmanager
async def control_plane(folder: Path) -> AsyncIterator[Home]:
    """etcd, kube-apiserver, kube-controller-manager and fake kubelets."""
    sys.path.append(str(ROOT))
    from tests.e2e.controlplane.controlplane import ControlPlane, Options

    plane = ControlPlane(folder, Options(GATES, API_FLAGS), progress)

    def start_scheduler() -> int:
        plane.start_scheduler()
        return plane.processes.pid("kube-scheduler")

    await asyncio.to_thread(plane.start)
    try:
        servers = [plane.processes.pid(name) for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kwok")]
        yield Home(plane.kubeconfig, servers, start_scheduler, plane.describe)
    finally:
        await asyncio.to_thread(plane.stop)


@asynccontextmanager
async def sandbox(folder: Path) -> AsyncIterator[Home]:
    """The sandbox, in a process of its own."""
    kubeconfig = folder / "kubeconfig"
    command = (sys.executable, "-m", "allaboard", "sandbox", "--nodes", "0", "--kubeconfig-out", str(kubeconfig))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
    try:
        if process.stdout is None or not await process.stdout.readline():
            raise click.ClickException("the sandbox could not start: `allaboard sandbox` says why")
        yield Home(kubeconfig, [process.pid], None, lambda: "Allaboard's sandbox")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def allaboard(home: Home, profile: Path | None) -> AsyncIterator[int]:
    """The operator, as users run it."""
    async with operator_process(home.kubeconfig, profile) as pid:
        yield pid


@asynccontextmanager
async def native(home: Home, profile: Path | None) -> AsyncIterator[int]:
    """kube-scheduler with GenericWorkload. It ends with its home."""
    if home.start_scheduler is None:
        raise click.UsageError("the sandbox has no kube-scheduler: leave --contender native out, or use --home controlplane")
    yield await asyncio.to_thread(home.start_scheduler)


HOMES: Mapping[str, Callable[[Path], AbstractAsyncContextManager[Home]]] = {"controlplane": control_plane, "sandbox": sandbox}
CONTENDERS: Mapping[str, Callable[[Home, Path | None], AbstractAsyncContextManager[int]]] = {"allaboard": allaboard, "native": native}


def a_node(number: int) -> dict[str, Any]:
    """A ready node of 16 cpu, 64 GiB and 110 pods, kept by a fake kubelet."""
    from allaboard.sandbox import NodeShape, node_object  # not needed where pods are created

    node = node_object(f"node-{number}", NodeShape("16", "64Gi", pods=110))
    node["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    return node


def a_pod(contender: str, name: str, group: str = "", size: int = 1) -> dict[str, Any]:
    """A bare pod, of the gang ``group`` if there is one, in the contender's own way of saying so."""
    labels = {"pod-group.scheduling.sigs.k8s.io/name": group, "pod-group.scheduling.sigs.k8s.io/min-available": str(size)}
    ours: dict[str, Any] = {"schedulerName": "allaboard"}
    theirs: dict[str, Any] = {"schedulingGroup": {"podGroupName": group}} if group else {}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels if group and contender == "allaboard" else {}},
        "spec": {"containers": [container], **(ours if contender == "allaboard" else theirs)},
    }


def a_pod_group(name: str, size: int) -> dict[str, Any]:
    """kube-scheduler's own kind of gang."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    }


def create(load: Load) -> Created:
    """Create pods as fast as the API server takes them. Runs in the load generator's process."""
    return asyncio.run(_create(load))


async def _create(load: Load) -> Created:
    first = [0.0] * load.gangs
    waiting = iter(load.bodies)
    async with load.connection.session(load.concurrency) as session:

        async def post() -> None:
            for gang, body in waiting:
                first[gang] = first[gang] or time.monotonic()
                async with session.post(PODS, data=body) as response:
                    answer = await response.read()
                    if response.status != 201:
                        raise RuntimeError(f"a pod could not be created: {answer.decode(errors='replace')}")

        # Connect first: a handshake is no part of a create.
        await asyncio.gather(*(_send(session, "GET", "/version") for _ in range(load.concurrency)))
        cpu = time.process_time()
        await asyncio.gather(*(post() for _ in range(load.concurrency)))
        return Created(first, time.monotonic(), time.process_time() - cpu)


async def _send(session: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> Any:
    """A request that must succeed, and its answer."""
    async with session.request(method, path, data=None if body is None else json.dumps(body)) as response:
        answer = await response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.decode(errors='replace')}")
        return json.loads(answer)


async def _find(session: aiohttp.ClientSession, path: str) -> Any:
    """What is there; ``None`` when there is nothing, or nothing yet."""
    async with session.get(path) as response:
        answer = await response.read()
        return json.loads(answer) if response.status == 200 else None


class Binds:
    """Hears of pods that are bound, and when. Use ``listening()``."""

    def __init__(self, scenario: Scenario) -> None:
        self._missing = scenario.pods
        self.first = np.zeros(scenario.gangs)
        self.last = np.zeros(scenario.gangs)
        self.complete = asyncio.Event()

    @property
    def missing(self) -> int:
        """Pods that are not bound yet."""
        return self._missing

    @asynccontextmanager
    async def listening(self, session: aiohttp.ClientSession) -> AsyncIterator[asyncio.Task[None]]:
        """Listen from now on; yields the task that does, which ends only by an error."""
        task = asyncio.create_task(self._listen(session, (await _send(session, "GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _listen(self, session: aiohttp.ClientSession, version: str) -> None:
        """Watch until cancelled. The API server closes watches that don't keep up with a burst; they go on where they were."""
        # A pod comes into the selection by being bound. Of a pod, metadata is enough.
        headers = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"}
        query = {"watch": "1", "fieldSelector": "spec.nodeName!="}
        while True:
            parameters = {**query, "resourceVersion": version}
            async with session.get(PODS, params=parameters, headers=headers, timeout=aiohttp.ClientTimeout(total=None)) as response:
                response.raise_for_status()
                rest = b""
                async for chunk in response.content.iter_any():
                    now = time.monotonic()
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        version = self._take(json.loads(line), now)

    def _take(self, event: dict[str, Any], now: float) -> str:
        """Take one event, and return the version it brings."""
        if event["type"] == "ERROR":
            raise RuntimeError(f"the watch of bound pods has failed: {event['object'].get('message')}")
        metadata = event["object"]["metadata"]
        if event["type"] == "ADDED":
            gang = int(metadata["name"].split("-")[1])
            self.first[gang] = self.first[gang] or now
            self.last[gang] = now
            self._missing -= 1
            if not self._missing:
                self.complete.set()
        return str(metadata["resourceVersion"])


async def measure(home: Home, contender: str, scenario: Scenario, rules: Rules, generator: Executor, profile: Path | None) -> Figures:
    """One scenario by one contender, on a cluster that nobody has used."""
    connection = Connection.of(home.kubeconfig)
    async with connection.session() as session:
        await _furnish(session, rules.nodes)
        async with CONTENDERS[contender](home, profile) as pid:
            await _warm_up(session, contender)
            return await _run(session, connection, home, pid, contender, scenario, rules, generator)


async def _run(
    session: aiohttp.ClientSession,
    connection: Connection,
    home: Home,
    pid: int,
    contender: str,
    scenario: Scenario,
    rules: Rules,
    generator: Executor,
) -> Figures:
    if contender == "native" and scenario.size > 1:
        groups = (_send(session, "POST", PODGROUPS, a_pod_group(f"gang-{gang}", scenario.size)) for gang in range(scenario.gangs))
        await asyncio.gather(*groups)
    bodies = [
        (gang, json.dumps(a_pod(contender, f"gang-{gang}-{member}", f"gang-{gang}" if scenario.size > 1 else "", scenario.size)).encode())
        for gang in range(scenario.gangs)
        for member in range(scenario.size)
    ]
    await _quiet(pid)
    binds = Binds(scenario)
    async with binds.listening(session) as listener:
        before, servers_before = _used([pid]), _used(home.servers)
        load = Load(connection, scenario.gangs, bodies, rules.concurrency)
        created = await asyncio.get_running_loop().run_in_executor(generator, create, load)
        waiter = asyncio.create_task(binds.complete.wait())
        await asyncio.wait((waiter, listener), timeout=rules.timeout, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if listener.done():
            listener.result()
        if binds.missing:
            raise RuntimeError(f"{contender}, {scenario}: {binds.missing} pods are not bound after {rules.timeout:.0f} s")
        servers_used = _used(home.servers) - servers_before
        await _quiet(pid)
        first = np.array(created.first)
        latency = binds.last - first
        return Figures(
            pods_per_second=scenario.pods / float(binds.last.max() - first.min()),
            latency_p50=float(np.percentile(latency, 50)),
            latency_p99=float(np.percentile(latency, 99)),
            in_part=float((binds.last - binds.first).max()),
            scheduler_cpu_seconds=_used([pid]) - before,
            scheduler_mib=sum(memory_mib(each)[1] for each in _family(pid)),
            created_seconds=created.ended - float(first.min()),
            servers_cpu_seconds=servers_used,
            load_cpu_seconds=created.cpu_seconds,
        )


async def _furnish(session: aiohttp.ClientSession, nodes: int) -> None:
    """Nodes that are ready, and Allaboard's CRD; both contenders find the same."""
    if await _find(session, OUR_PODGROUPS) is None:
        await _send(session, "POST", CRDS, yaml.safe_load(CRD.read_text()))
    await asyncio.gather(*(_send(session, "POST", "/api/v1/nodes", a_node(number)) for number in range(nodes)))

    async def is_untainted() -> bool:
        answer = await _send(session, "GET", "/api/v1/nodes")
        return not any(node["spec"].get("taints") for node in answer["items"])

    async def is_served() -> bool:
        return await _find(session, OUR_PODGROUPS) is not None

    await _until(is_untainted, "the nodes to be ready")
    await _until(is_served, "PodGroups to be served")


async def _warm_up(session: aiohttp.ClientSession, contender: str) -> None:
    """Have one pod scheduled and taken away: a contender that knows the cluster and works is what is to be measured."""
    path = f"{PODS}/warm-up"

    async def is_bound() -> bool:
        return bool((await _send(session, "GET", path))["spec"].get("nodeName"))

    async def is_gone() -> bool:
        return await _find(session, path) is None

    await _send(session, "POST", PODS, a_pod(contender, "warm-up"))
    await _until(is_bound, f"{contender} to bind a pod")
    await _send(session, "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    await _until(is_gone, "a pod to go")


async def _until(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not await is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {_READY_SECONDS:.0f} s in vain for {what}")
        await asyncio.sleep(0.05)


async def _quiet(pid: int) -> None:
    """Wait until a scheduler has nothing to do: it writes events after the last bind, and they are its work as well."""
    window, longest = _QUIET_SECONDS
    deadline = time.monotonic() + longest
    used = _used([pid])
    while time.monotonic() < deadline:
        await asyncio.sleep(window)
        before, used = used, _used([pid])
        if used - before <= _QUIET_SHARE * window:
            return


def _family(pid: int) -> list[int]:
    return [pid, *(each for child in children(pid) for each in _family(child))]


def _used(pids: Sequence[int]) -> float:
    """Processor time of processes and of what they have started."""
    return sum(cpu_seconds(each) for pid in pids for each in _family(pid))


async def measure_all(
    home: str, scenarios: Sequence[Scenario], contenders: Sequence[str], runs: int, rules: Rules, profile: Path | None
) -> tuple[list[Run], str]:
    """Every scenario by every contender, turn by turn, each on a cluster of its own; and what the clusters were made of."""
    done: list[Run] = []
    description = ""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as generator:
        generator.submit(os.getpid).result()  # importing is no part of creating
        for number in range(1, runs + 1):
            for scenario in scenarios:
                # Whoever is second in one run is first in the next.
                for contender in contenders if number % 2 else contenders[::-1]:
                    label = f"run {number}/{runs}, {scenario}, {contender}"
                    target = _profile_of(profile, scenario, number, len(scenarios) * runs) if contender == "allaboard" else None
                    with progress.status(label), tempfile.TemporaryDirectory(prefix="allaboard-throughput-") as folder:
                        async with HOMES[home](Path(folder)) as cluster:
                            figures = await measure(cluster, contender, scenario, rules, generator, target)
                            description = max(description, cluster.describe(), key=len)  # the one with kube-scheduler
                    done.append(Run(str(scenario), contender, number, figures))
                    progress.print(f"{label}: {figures.pods_per_second:.0f} pods/s" + (f", profile in {target}" if target else ""))
    return done, description


def _profile_of(profile: Path | None, scenario: Scenario, number: int, files: int) -> Path | None:
    """Where the profile of one run goes: the file named, with the scenario and run in its name when there are several."""
    if profile is None or files == 1:
        return profile and profile.absolute()
    return profile.absolute().with_stem(f"{profile.stem}-{scenario}-{number}")


def medians(runs: Sequence[Run]) -> dict[tuple[str, str], Figures]:
    """The median of each figure by scenario and contender, in the order they were first run."""
    grouped: dict[tuple[str, str], list[Figures]] = {}
    for run in runs:
        grouped.setdefault((run.scenario, run.contender), []).append(run.figures)
    names = [field.name for field in fields(Figures)]
    return {key: Figures(*(statistics.median(getattr(each, name) for each in group) for name in names)) for key, group in grouped.items()}


def as_table(runs: Sequence[Run], title: str) -> Table:
    """One row a scenario and contender; with several runs, medians and the range of pods per second."""
    found = medians(runs)
    several = len({run.number for run in runs}) > 1
    table = Table(title=title)
    table.add_column("gangs×pods", no_wrap=True)
    table.add_column("contender", no_wrap=True)
    columns = (
        "pods/s",
        *(("range",) if several else ()),
        "ratio",
        "p50 s",
        "p99 s",
        "in part s",
        "CPU s",
        "MiB",
        "created s",
        "servers' CPU s",
    )
    for column in columns:
        table.add_column(column, justify="right")
    last = ""
    for (scenario, contender), figures in found.items():
        if last and scenario != last:
            table.add_section()
        other = found.get((scenario, "native"))
        speeds = [run.figures.pods_per_second for run in runs if (run.scenario, run.contender) == (scenario, contender)]
        table.add_row(
            scenario.replace("x", "×") if scenario != last else "",
            contender,
            f"{figures.pods_per_second:.0f}",
            *((f"{min(speeds):.0f}–{max(speeds):.0f}",) if several else ()),
            f"{figures.pods_per_second / other.pods_per_second:.2f}" if other and contender != "native" else "",
            f"{figures.latency_p50:.2f}",
            f"{figures.latency_p99:.2f}",
            f"{figures.in_part:.2f}",
            f"{figures.scheduler_cpu_seconds:.1f}",
            f"{figures.scheduler_mib:.0f}",
            f"{figures.created_seconds:.2f}",
            f"{figures.servers_cpu_seconds:.1f}",
        )
        last = scenario
    return table


def as_json(runs: Sequence[Run], description: str, rules: Rules) -> str:
    """All runs and their medians."""
    content = {
        "cluster": description,
        "machine": {"processors": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "rules": asdict(rules),
        "runs": [asdict(run) for run in runs],
        "medians": [
            {"scenario": scenario, "contender": contender, **asdict(figures)} for (scenario, contender), figures in medians(runs).items()
        ],
    }
    return json.dumps(content, indent=2)


_EPILOG = """
\b
How it counts, the same way for both contenders:
  pods/s         pods, divided by the seconds from sending the first create to hearing of the last bind
  p50, p99       of the gangs' latency: from sending a gang's first create to hearing of its last bind
  in part        the longest time that any gang had some members bound and others not
  CPU s          processor time of the scheduler with its workers, from the first create until it has nothing left to
                 say (events are written after the last bind); MiB is its resident memory at its highest
  created s      how long the creates took: no scheduler can be faster than its pods come
  servers' CPU s processor time of etcd, kube-apiserver, kube-controller-manager and kwok until the last bind
A bind counts when its event arrives at a watch of bound pods; the API's own times have a resolution of one second.

Each scenario of each contender has a cluster of its own, booted anew with the same flags, with 16 cpu, 64 GiB and 110
pods a node. Before the clock starts, the nodes are ready, the scheduler has bound one pod, and the native PodGroups
exist. A gang of one is a plain pod for both. kube-scheduler's client has qps 1000 and burst 2000, and runs for its own
turns only.

\b
Examples:
  python benchmarks/throughput.py                                             everything once, about three minutes
  python benchmarks/throughput.py --runs 5 -o json > figures.json             medians that can be compared
  python benchmarks/throughput.py --scenario 1x1000 --contender allaboard     one of each
  python benchmarks/throughput.py --contender allaboard --profile a.prof      where the operator's time goes
  python benchmarks/throughput.py --home sandbox                              nothing to build, Allaboard alone
"""


@click.command(help=(__doc__ or "").partition("\n")[0], epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    type=click.Choice([*HOMES]),
    default="controlplane",
    show_default=True,
    help="A real control plane, whose programs are built with Go when they are missing, or the sandbox, which knows no native gangs.",
)
@click.option("--scenario", "names", type=click.Choice([*SCENARIOS]), multiple=True, help="Gangs and their size; may be repeated [all].")
@click.option("--contender", "contenders", type=click.Choice([*CONTENDERS]), multiple=True, help="May be repeated [all the home has].")
@click.option("--nodes", type=click.IntRange(min=63), default=200, show_default=True, help="1,000 pods of 1 cpu need at least 63.")
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="How often; the table then shows medians.")
@click.option("--concurrency", type=click.IntRange(min=1), default=32, show_default=True, help="Creates in flight at once.")
@click.option("--timeout", type=click.FloatRange(min=1), default=300.0, show_default=True, help="Seconds for binding all pods.")
@click.option(
    "--profile",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write a profile of the operator: by py-spy (speedscope) if it is installed, else by cProfile, which slows it down.",
)
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True, help="JSON has every run.")
def main(
    home: str,
    names: tuple[str, ...],
    contenders: tuple[str, ...],
    nodes: int,
    runs: int,
    concurrency: int,
    timeout: float,
    profile: Path | None,
    output: str,
) -> None:
    """Measure, and print."""
    rules = Rules(nodes, concurrency, timeout)
    if home == "sandbox" and "native" in contenders:
        raise click.UsageError("the sandbox has no kube-scheduler: leave --contender native out, or use --home controlplane")
    chosen = contenders or tuple(name for name in CONTENDERS if home != "sandbox" or name != "native")
    scenarios = [SCENARIOS[name] for name in names or SCENARIOS]
    try:
        done, description = asyncio.run(measure_all(home, scenarios, chosen, runs, rules, profile))
    except (RuntimeError, aiohttp.ClientError) as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        click.echo(as_json(done, description, rules))
        return
    # A table that is cut says nothing; what isn't a terminal takes any width.
    console = Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH)
    console.print(as_table(done, f"1,000 pods on {nodes} nodes"))
    console.print(description, style="dim", highlight=False)


if __name__ == "__main__":
    main()
