"""Tests the sources of GPU metrics: a named Prometheus, the first Prometheus found that has GPU metrics, and the exporters."""

import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from aiohttp import web

from allaboard.gpu.errors import SourceError
from allaboard.gpu.sources import NoneFoundError, find
from allaboard.gpu.web import Web
from allaboard.kube.client import ApiServer
from allaboard.model.gpus import Measure
from allaboard.settings.gpu_metrics import GpuMetricsOptions
from allaboard_sandbox import Sandbox
from tests.exporters import dcgm, observerward, served

STACK = {"app": "kube-prometheus-stack-prometheus", "app.kubernetes.io/part-of": "kube-prometheus-stack"}


def vector(*series: tuple[Mapping[str, str], str]) -> dict[str, Any]:
    return {"resultType": "vector", "result": [{"metric": labels, "value": [1000.0, value]} for labels, value in series]}


class FakePrometheus:
    """Answers with given metrics, and records the queries and credentials of its clients."""

    def __init__(self, metrics: Mapping[str, str], labels: Mapping[str, str], ready: int = 200, version: str | None = "2.42.0") -> None:
        self.metrics, self.labels, self.ready, self.version = metrics, labels, ready, version
        self.queries: list[str] = []
        self.authorizations: set[str | None] = set()

    async def answer(self, request: web.Request) -> web.Response:
        self.authorizations.add(request.headers.get("Authorization"))
        if request.path.endswith("/-/ready"):
            return web.Response(status=self.ready)
        if request.path.endswith("/buildinfo"):
            return web.json_response({"status": "success", "data": {"version": self.version}})
        query = parse_qs(request.query_string)["query"][0]
        self.queries.append(query)
        if "__name__" in query:
            data = vector(*(({"__name__": name}, "1") for name in self.metrics if name in query))
        elif "timestamp" in query:
            data = vector((self.labels, "990"))
        else:
            name = next((name for name in self.metrics if f"({name}{{" in query), "")
            data = vector((self.labels, self.metrics[name])) if name else vector()
        return web.Response(text=json.dumps({"status": "success", "data": data}))

    @asynccontextmanager
    async def served(self) -> AsyncIterator[int]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


@pytest.fixture
async def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    """Yield a cluster in which names of Services resolve to this machine."""
    resolve = socket.getaddrinfo

    def resolved(host: Any, *arguments: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if str(host).endswith(".svc") else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    async with Sandbox() as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        for namespace in ("monitoring", "gpu-operator"):
            cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        yield cluster


def add_service(sandbox: Sandbox, name: str, port: int, namespace: str = "monitoring") -> None:
    metadata = {"name": name, "namespace": namespace, "labels": STACK}
    sandbox.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"name": "http-web", "port": port}]}})


def add_exporter(sandbox: Sandbox, pod: str, node: str, address: str, namespace: str = "gpu-operator", **labels: str) -> None:
    sandbox.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "namespace": namespace, "labels": labels or {"app": "nvidia-dcgm-exporter"}},
            "spec": {"nodeName": node, "containers": [{"name": "exporter", "image": "exporter"}]},
        }
    )
    sandbox.patch("pods", pod, {"status": {"phase": "Running", "podIP": address}}, namespace=namespace, subresource="status")


async def read(nodes: tuple[str, ...] = ("n1", "n2"), **options: Any) -> Any:
    stated = GpuMetricsOptions(**options)
    async with ApiServer.connect() as server, Web.open(stated) as asker:
        source = await find(stated, server, asker, nodes.__contains__)
        return await source.read()


GPU = {"Hostname": "n1", "gpu": "0"}
METRICS = {"DCGM_FI_DEV_GPU_TEMP": "40", "DCGM_FI_DEV_FB_FREE": "1000"}


async def test_first_service_that_is_ready_and_has_gpu_metrics_is_read(sandbox: Sandbox) -> None:
    starting, wrong, empty, right = (
        FakePrometheus(METRICS, GPU, ready=503),
        FakePrometheus(METRICS, GPU, version=None),
        FakePrometheus({}, GPU),
        FakePrometheus(METRICS, GPU, ready=404),
    )
    async with starting.served() as a, wrong.served() as b, empty.served() as c, right.served() as d:
        for name, port in zip("abcd", (a, b, c, d), strict=True):
            add_service(sandbox, f"{name}-prometheus", port)
        reading = await read()
    assert reading.nodes == ("n1",)
    assert reading.values[Measure.FREE].tolist() == [[1000.0]]
    assert reading.ages.tolist() == [10.0]
    assert (starting.queries, wrong.queries, len(empty.queries)) == ([], [], 1)


async def test_service_outside_the_configured_namespaces_gets_no_request(sandbox: Sandbox) -> None:
    tenant = FakePrometheus(METRICS, GPU)
    async with tenant.served() as port:
        add_service(sandbox, "prometheus", port, "default")
        with pytest.raises(NoneFoundError):
            await read()
    assert tenant.authorizations == set()


async def test_discovered_service_without_tls_is_sent_no_credentials(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    found, named = FakePrometheus(METRICS, GPU), FakePrometheus(METRICS, GPU)
    async with found.served() as port, named.served() as other:
        add_service(sandbox, "prometheus", port)
        await read(token_file=str(tmp_path / "token"))
        await read(token_file=str(tmp_path / "token"), url=f"http://127.0.0.1:{other}/prefix")
    assert (found.authorizations, named.authorizations) == ({None}, {"Bearer s3cret"})


async def test_later_queries_ask_only_for_the_labels_that_name_nodes_and_gpus(sandbox: Sandbox) -> None:
    prometheus = FakePrometheus(METRICS, {**GPU, "modelName": "A100", "instance": "10.0.0.1:9400"})
    async with prometheus.served() as port:
        reading = await read(url=f"http://127.0.0.1:{port}", matchers={"job": 'a"b\\'})
    names, first, times, second = prometheus.queries
    assert first.startswith("max by (Hostname, exported_Hostname, ")
    assert times == r'min by (Hostname) (timestamp(DCGM_FI_DEV_GPU_TEMP{job="a\"b\\"}))'
    assert second == r'min by (Hostname, gpu) (DCGM_FI_DEV_FB_FREE{GPU_I_ID="",job="a\"b\\"})'
    assert r'job="a\"b\\"' in names
    assert reading.models == ("A100",)


async def test_series_that_names_no_node_belongs_to_the_node_of_its_exporter(sandbox: Sandbox) -> None:
    prometheus = FakePrometheus(METRICS, {"instance": "10.9.8.7:9400", "gpu": "0"})
    add_exporter(sandbox, "exporter-a", "n2", "10.9.8.7")
    add_exporter(sandbox, "tenant", "n1", "10.9.8.7", "default")
    async with prometheus.served() as port:
        reading = await read(url=f"http://127.0.0.1:{port}")
    assert reading.nodes == ("n2",)


async def test_gpus_of_an_exporter_that_is_read_directly_belong_to_the_node_on_which_it_runs(sandbox: Sandbox) -> None:
    add_exporter(sandbox, "nvidia", "n1", "127.0.0.2")
    add_exporter(sandbox, "ward", "n2", "127.0.0.3", "monitoring", name="observerward")
    add_exporter(sandbox, "silent", "n2", "127.0.0.4")
    async with served(lambda: dcgm("n2", 2), "127.0.0.2", 9400), served(lambda: observerward(1), "127.0.0.3", 9909):
        reading = await read(source="exporters")
    free = dict(zip(reading.nodes, reading.values[Measure.FREE].tolist(), strict=True))
    assert free["n1"] == [30000.0, 30000.0]
    assert free["n2"][0] == 6144.0
    with pytest.raises(SourceError, match="can't be reached"):
        await read(source="exporters")


async def test_missing_exporters_are_reported(sandbox: Sandbox) -> None:
    with pytest.raises(NoneFoundError, match="no exporter's pod"):
        await read(source="exporters")
