"""GPU metrics come from a Prometheus that is found by its Service; gangs are scheduled even when it is down."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allaboard.app import App
from allaboard.cli.gpus import NodeRow, read_gpus
from allaboard.gpu.cache import CardCache
from allaboard.kube.client import ApiServer
from allaboard.model.gpus import Cards, Measure
from allaboard.settings.options import load_settings
from tests.cluster import Cluster
from tests.exporters import dcgm, observerward, served
from tests.integration.conftest import StartApp, gang_pod
from tests.prometheus import Prometheus, located

NAMESPACE = "monitoring"
STACK = {
    "app": "kube-prometheus-stack-prometheus",
    "app.kubernetes.io/part-of": "kube-prometheus-stack",
    "release": "stack",
    "self-monitor": "true",
}


@pytest.fixture(scope="session")
def program() -> Path:
    """Return the path of Prometheus. If it is missing, the test is skipped, or fails under CI."""
    return located()


@pytest.fixture
def services_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve names of Services to this machine, as a cluster's DNS resolves them to the Services' addresses."""
    resolve = socket.getaddrinfo

    def resolved(host: Any, *arguments: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if str(host).endswith(".svc") else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.fixture
async def prometheus(program: Path, tmp_path: Path) -> AsyncIterator[tuple[Prometheus, int]]:
    """Yield a Prometheus that scrapes an exporter of each kind, and its port."""
    async with AsyncExitStack() as stack:
        nvidia = await stack.enter_async_context(served(lambda: dcgm("gpu-1", 2)))
        ward = await stack.enter_async_context(served(lambda: observerward(1)))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        jobs: Mapping[str, Any] = {
            "nvidia-dcgm-exporter": {f"127.0.0.1:{nvidia}": {"pod": "exporter-x", "namespace": "gpu-operator"}},
            "gpu-metrics": {f"127.0.0.1:{ward}": {"kubernetes_node": "gpu-2"}},
        }
        started = Prometheus(program, tmp_path, port, jobs)
        started.start()
        try:
            yield started, port
        finally:
            started.kill()


@pytest.fixture
def monitoring(cluster: Cluster) -> Iterator[None]:
    """Create the namespace of Prometheus."""
    if cluster.get("Namespace", NAMESPACE, "") is None:
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield


def a_service(name: str, port: int, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": dict(labels)},
        "spec": {"ports": [{"name": "http-web", "port": port}], "selector": {"app": name}},
    }


def free_memory(app: App) -> dict[str, list[float]]:
    """Return the free memory of each node's GPU cards in MiB, by node; NaN where it is unknown."""
    cards = app.view.cards
    return {node: cards.values[Measure.FREE, row, : len(cards.names[row])].tolist() for node, row in cards.rows.items()}


class CardUpdates:
    """Waits for the view's updates about GPU cards."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        self._updated = asyncio.Event()
        self._observe = app.view.observe_cards
        monkeypatch.setattr(app.view, "observe_cards", self._note)

    def _note(self, cards: Cards) -> None:
        self._observe(cards)
        self._updated.set()

    async def until(self, holds: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                self._updated.clear()
                await self._updated.wait()


def is_known(app: App) -> bool:
    return free_memory(app) == {"gpu-1": [30000.0, 30000.0], "gpu-2": [6144.0]}


async def test_gpus_are_known_while_prometheus_runs_and_gangs_are_scheduled_without_it(
    cluster: Cluster,
    start_app: StartApp,
    prometheus: tuple[Prometheus, int],
    services_on_this_machine: None,
    monitoring: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, port = prometheus
    for node, gpus in (("gpu-1", 2), ("gpu-2", 1)):
        cluster.add_node(node, gpus=gpus)
    cluster.create(a_service("stack-kube-prometheus-stack-alertmanager", 1, {**STACK, "app": "kube-prometheus-stack-alertmanager"}))
    cluster.create(a_service("stack-kube-prometheus-stack-prometheus", port, STACK))
    app = await start_app(gpu_metrics={"source": "auto", "interval_seconds": 0.2, "stale_seconds": 2.0, "timeout_seconds": 5.0})

    updates = CardUpdates(app, monkeypatch)
    await updates.until(lambda: is_known(app))
    assert app.view.cards.models == ("NVIDIA A100-SXM4-40GB", "GeForce GTX 1070 Ti")
    row = app.view.cards.rows["gpu-1"]
    assert app.view.cards.values[Measure.MEMORY, row].tolist() == [40536.0, 40536.0]

    assert app.metrics.registry.get_sample_value("allaboard_gpu_metrics_cards") == 3

    process.kill()
    await updates.until(lambda: all(np.isnan(free).all() for free in free_memory(app).values()))
    assert app.view.cards.rows.keys() == {"gpu-1", "gpu-2"}
    for number in range(2):
        cluster.create(gang_pod(f"member-{number}", "gang", 2))
    await cluster.wait_for(
        lambda seen: all((seen.get("Pod", f"member-{number}") or {})["spec"].get("nodeName") for number in range(2)),
        message="the gang is bound",
    )

    process.start()
    await updates.until(lambda: is_known(app))


async def test_gpus_command_shows_the_gpus_of_each_node(
    cluster: Cluster, kubeconfig: Path, prometheus: tuple[Prometheus, int], services_on_this_machine: None, monitoring: None
) -> None:
    _, port = prometheus
    for node, gpus in (("gpu-1", 2), ("gpu-2", 1)):
        cluster.add_node(node, gpus=gpus)
    cluster.create(a_service("prometheus", port, STACK))
    async with ApiServer.connect() as server, asyncio.timeout(50):
        rows: list[NodeRow] = []
        while len(rows) < 2 or not all(row.cards for row in rows):
            rows, _ = await read_gpus(server, load_settings(), CardCache(120.0))
    assert [(row.node, row.free, row.allocatable, len(row.cards), row.health) for row in rows] == [
        ("gpu-1", 2, 2, 2, "ok"),
        ("gpu-2", 1, 1, 1, ""),
    ]
    assert all(row.age_seconds is not None and row.age_seconds < 60 for row in rows)


@pytest.mark.parametrize(("scheduler", "is_charged", "free"), [("allaboard", True, 1), ("allaboard", False, 3), ("theirs", True, 3)])
async def test_gpus_command_charges_pods_as_the_operator_does(
    scheduler: str, is_charged: bool, free: int, cluster: Cluster, kubeconfig: Path
) -> None:
    cluster.add_node("gpu-1", gpus=4)
    pod = gang_pod("labelled", "gang", 1)
    pod["metadata"]["labels"]["genius/gpu-number"] = "3"
    pod["spec"] |= {"schedulerName": scheduler, "nodeName": "gpu-1"}
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    cluster.create(pod)
    settings = load_settings({"gpu": {"charged_by_label": is_charged}, "gpu_metrics": {"source": "off"}})
    async with ApiServer.connect() as server:
        (row,), _ = await read_gpus(server, settings, CardCache(120.0))
    assert (row.free, row.allocatable) == (free, 4)
