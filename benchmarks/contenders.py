"""Schedulers that the benchmarks compare (contenders), and clusters that are started for them (homes)."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click
import yaml
from rich.console import Console

from allaboard.cli.embedded import api_port
from operator_process import ROOT, operator_process

_PAGES = 10
GATES = ("GenericWorkload",)
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
API_FLAGS = ("--runtime-config=scheduling.k8s.io/v1beta1=true",)

NO_SCHEDULER = "the sandbox has no kube-scheduler: use --home controlplane, or leave out native, coscheduling and volcano"

progress = Console(stderr=True, highlight=False)


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of an API server, and the credentials for it; a credential that isn't needed is empty."""

    url: str
    ca: str = ""
    token: str = ""

    @classmethod
    def of(cls, kubeconfig: Path) -> "Connection":
        """Return a connection to the only cluster of a kubeconfig, as its only user."""
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        return cls(cluster["server"], cluster.get("certificate-authority", ""), user.get("token", ""))

    def session(self, limit: int = 16) -> aiohttp.ClientSession:
        """Return a session of at most ``limit`` connections."""
        context = ssl.create_default_context(cafile=self.ca) if self.ca else True
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        return aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(limit=limit, ssl=context), headers=headers)


@dataclass(frozen=True, slots=True)
class Home:
    """A running cluster.

    ``servers``: pids of the processes that serve the cluster, by name. ``start_scheduler``: starts a kube-scheduler, which is stopped
    together with the cluster, and returns its pid; None where there is no kube-scheduler. Its arguments are those of the function in
    ``control_plane``. ``describe``: returns what the cluster consists of, for people.
    """

    kubeconfig: Path
    servers: Mapping[str, int]
    start_scheduler: Callable[..., int] | None
    describe: Callable[[], str]


@asynccontextmanager
async def control_plane(folder: Path) -> AsyncIterator[Home]:
    """Run etcd, kube-apiserver, kube-controller-manager and fake kubelets (kwok)."""
    sys.path.append(str(ROOT))
    from tests.e2e.controlplane.binaries import Program, ensure
    from tests.e2e.controlplane.controlplane import ControlPlane, Options
    from tests.e2e.controlplane.controlplane import start_scheduler as start_any_scheduler

    plane = ControlPlane(folder, Options(GATES, API_FLAGS), progress)

    def start_scheduler(program: Program | None = None, configuration: Mapping[str, object] | None = None) -> int:
        """Start ``program``, a kube-scheduler with other plugins, or else Kubernetes' own one. Return its pid."""
        if program is None:
            plane.start_scheduler(configuration)
        else:
            start_any_scheduler(plane.processes, ensure([program], progress)[program.name], plane.kubeconfig, folder, configuration)
        return plane.processes.pid("kube-scheduler")

    await asyncio.to_thread(plane.start)
    try:
        servers = {name: plane.processes.pid(name) for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kwok")}
        yield Home(plane.kubeconfig, servers, start_scheduler, plane.describe)
    finally:
        await asyncio.to_thread(plane.stop)


@asynccontextmanager
async def sandbox(folder: Path) -> AsyncIterator[Home]:
    """Run the sandbox in a process of its own."""
    kubeconfig = folder / "kubeconfig"
    command = (sys.executable, "-m", "allaboard", "sandbox", "--nodes", "0", "--kubeconfig-out", str(kubeconfig))
    async with _child(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL) as process:
        if process.stdout is None or not await process.stdout.readline():
            raise click.ClickException("the sandbox could not start: run `allaboard sandbox` to see why")
        yield Home(kubeconfig, {"kube-apiserver": process.pid}, None, lambda: "Allaboard's sandbox")


@asynccontextmanager
async def allaboard(home: Home, profile: Path | None) -> AsyncIterator[int]:
    """Run the operator as users do; yield its pid."""
    async with operator_process(home.kubeconfig, profile) as pid:
        yield pid


@asynccontextmanager
async def with_pages(home: Home, profile: Path | None) -> AsyncIterator[int]:
    """Run the operator while ten open pages read its API; yield its pid. The pages are a process that isn't measured."""
    port = api_port()
    async with operator_process(home.kubeconfig, profile, api_port=port) as pid:
        arguments = str(Path(__file__).with_name("page_readers.py")), f"http://127.0.0.1:{port}", str(_PAGES)
        async with _child(sys.executable, *arguments) as readers:
            yield pid
            if readers.returncode is not None:
                raise RuntimeError("the pages have ended before the measurement")


@asynccontextmanager
async def bare_client(home: Home, profile: Path | None) -> AsyncIterator[int]:
    """Run a client that binds pods as they come, without any scheduling; yield its pid."""
    async with _child(sys.executable, str(Path(__file__).with_name("bare_client.py")), str(home.kubeconfig)) as client:
        yield client.pid


@asynccontextmanager
async def native(home: Home, profile: Path | None) -> AsyncIterator[int]:
    """Run kube-scheduler with the feature gate GenericWorkload; yield its pid. kube-scheduler is stopped together with ``home``."""
    yield await _kube_scheduler(home)


@asynccontextmanager
async def coscheduling(home: Home, profile: Path | None) -> AsyncIterator[int]:
    """Run kube-scheduler with the plugin Coscheduling, as its manifest configures it; yield its pid. It is stopped with ``home``."""
    from tests.e2e.controlplane.binaries import COSCHEDULING

    plugins = {
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    }
    arguments = [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}]
    yield await _kube_scheduler(
        home, COSCHEDULING, {"profiles": [{"schedulerName": "coscheduling", "plugins": plugins, "pluginConfig": arguments}]}
    )


async def _kube_scheduler(home: Home, *arguments: object) -> int:
    if home.start_scheduler is None:
        raise click.UsageError(NO_SCHEDULER)
    return await asyncio.to_thread(home.start_scheduler, *arguments)


@asynccontextmanager
async def volcano(home: Home, profile: Path | None) -> AsyncIterator[int]:
    """Run Volcano's scheduler with its default configuration; yield its pid.

    The benchmark does what Volcano's controllers would do: it creates the PodGroups, and opens the queue.
    """
    from tests.e2e.controlplane.binaries import VOLCANO, ensure, module_folder
    from tests.e2e.controlplane.processes import free_ports

    module = await asyncio.to_thread(module_folder, VOLCANO)
    program = (await asyncio.to_thread(ensure, [VOLCANO], progress))[VOLCANO.name]
    (port,) = free_ports(1)
    flags = (
        f"--kubeconfig={home.kubeconfig}",
        f"--scheduler-conf={module / 'installer/helm/chart/volcano/config/volcano-scheduler.conf'}",
        *("--leader-elect=false", "--enable-healthz=false", f"--listen-address=127.0.0.1:{port}"),
        *("--kube-api-qps=1000", "--kube-api-burst=2000"),
    )
    async with Connection.of(home.kubeconfig).session() as session:
        for file in sorted((module / "config/crd/volcano/bases").glob("*.yaml")):
            async with session.post(CRDS, json=yaml.safe_load(file.read_text())) as answer:
                answer.raise_for_status()
        with home.kubeconfig.with_name("volcano.log").open("wb") as log:
            async with _child(program, *flags, stdout=log, stderr=log) as scheduler:
                await _open_queue(session)
                yield scheduler.pid


async def _open_queue(session: aiohttp.ClientSession) -> None:
    """Open Volcano's default queue as soon as the scheduler has created it. Raises ``RuntimeError`` after 60 s."""
    path = "/apis/scheduling.volcano.sh/v1beta1/queues/default/status"
    headers = {"Content-Type": "application/merge-patch+json"}
    for _ in range(600):
        async with session.patch(path, data='{"status": {"state": "Open"}}', headers=headers) as answer:
            if answer.status == 200:
                return
        await asyncio.sleep(0.1)
    raise RuntimeError("Volcano's scheduler has created no queue within 60 s")


@asynccontextmanager
async def _child(program: str | Path, *arguments: str, **streams: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process, and end it with the context."""
    process = await asyncio.create_subprocess_exec(program, *arguments, **streams)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


USUAL = ("allaboard", "podgroup", "native")
"""The contenders that are measured unless others are named."""

HOMES: Mapping[str, Callable[[Path], AbstractAsyncContextManager[Home]]] = {"controlplane": control_plane, "sandbox": sandbox}
CONTENDERS: Mapping[str, Callable[[Home, Path | None], AbstractAsyncContextManager[int]]] = {
    "allaboard": allaboard,
    "podgroup": allaboard,
    "pages": with_pages,
    "bare": allaboard,
    "client": bare_client,
    "native": native,
    "coscheduling": coscheduling,
    "volcano": volcano,
}
"""Contenders by name. ``allaboard`` and ``podgroup`` are the operator, with gangs that are stated in different ways.

``native`` is kube-scheduler's own gang scheduling. ``coscheduling`` (scheduler-plugins) and ``volcano`` are built with Go when they are
first measured, which takes minutes.

``pages`` is ``allaboard`` while ten pages are open, and ``bare`` is ``allaboard`` with pods that nothing recreates. ``client`` is no
scheduler: it binds pods as they come, and so shows what the servers allow.

A gang of ``allaboard`` is stated by two labels of its pods. A gang of ``podgroup`` is stated by a PodGroup of scheduling.x-k8s.io; Kopf
doesn't watch the pods of such a gang.
"""
