"""Tests of ``allaboard gpus``, which shows the GPUs of nodes, the requests of pods, and the metrics of exporters."""

import asyncio
import io
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.table import Table

from allaboard.cli.gpus import CardRow, NodeRow, _fitted, _of_cards, _of_nodes
from allaboard.cli.main import cli
from allaboard.gpu.gathering import Reading
from allaboard.model.gpus import Measure
from allaboard_sandbox import Sandbox


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def sandbox(loop: asyncio.AbstractEventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """A cluster served by a thread, with two nodes that have GPUs and one that has none."""

    def run_in_loop(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    async def opened() -> Sandbox:
        cluster = Sandbox(controllers=False)
        await cluster.__aenter__()
        cluster.add_node("gpu-1", gpus=4, labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.memory": "40960"})
        cluster.add_node("gpu-2", gpus=2)
        cluster.add_node("plain")
        container = {"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "3"}}}
        cluster.create(
            {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": {"nodeName": "gpu-1", "containers": [container]}}
        )
        return cluster

    cluster = run_in_loop(opened())
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    yield cluster
    run_in_loop(cluster.__aexit__(None, None, None))


def run(tmp_path: Path, *arguments: str) -> Any:
    return CliRunner().invoke(cli, ["gpus", "--kubeconfig", str(tmp_path / "kubeconfig"), *arguments])


def test_without_metrics_the_table_of_nodes_shows_gpu_labels_and_requests(sandbox: Sandbox, tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["NODE", "MODEL", "FREE", "MEM/GPU", "MEM", "FREE", "UTIL", "POWER", "TEMP", "HEALTH", "AGE"]
    assert lines[1].split() == ["gpu-1", "A100-SXM4-40GB", "1/4", "40Gi", "-", "-", "-", "-", "-", "-"]
    assert lines[2].split() == ["gpu-2", "-", "2/2", "-", "-", "-", "-", "-", "-", "-"]
    assert len(lines) == 3
    assert "no Prometheus with GPU metrics was found" in result.stderr


def test_json_output_has_the_nodes_that_the_table_has(sandbox: Sandbox, tmp_path: Path) -> None:
    found = json.loads(run(tmp_path, "--no-metrics", "-o", "json").stdout)
    assert found["note"] == ""
    assert [(row["node"], row["free"], row["allocatable"], row["memory_mib"]) for row in found["nodes"]] == [
        ("gpu-1", 1, 4, 40960.0),
        ("gpu-2", 2, 2, None),
    ]


def test_free_parts_of_shared_gpus_are_shown(sandbox: Sandbox, loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    async def share() -> None:
        listing = "".join(f"GPU-{card},10,16000,100,NVIDIA-A100,0,true:" for card in range(2))
        sandbox.add_node("gpu-3", gpus=20)
        sandbox.patch("nodes", "gpu-3", {"metadata": {"annotations": {"hami.io/node-nvidia-register": listing}}}, "")
        container = {"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}}}
        metadata = {"name": "b", "annotations": {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,8000,0:;"}}
        sandbox.create({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"nodeName": "gpu-3", "containers": [container]}})

    asyncio.run_coroutine_threadsafe(share(), loop).result(30)
    rows = [line.split()[:3] for line in run(tmp_path, "--no-metrics").stdout.splitlines()]
    assert ["gpu-3", "-", "1.5/2"] in rows
    cards = [line.split()[:3] for line in run(tmp_path, "--no-metrics", "--cards").stdout.splitlines()]
    assert [card for card in cards if card[0] == "gpu-3"] == [["gpu-3", "GPU-0", "1"], ["gpu-3", "GPU-1", "0.5"]]
    (found,) = (row for row in json.loads(run(tmp_path, "--no-metrics", "-o", "json").stdout)["nodes"] if row["node"] == "gpu-3")
    assert found["devices"] == [{"uuid": "GPU-0", "free_thousandths": 1000}, {"uuid": "GPU-1", "free_thousandths": 500}]


@pytest.mark.parametrize("url", ["nowhere", "http://h:99999", ""])
def test_wrong_options_are_refused_in_one_line(url: str, tmp_path: Path, sandbox: Sandbox) -> None:
    result = run(tmp_path, "--url", url, "--no-metrics") if not url else run(tmp_path, "--url", url)
    assert (result.exit_code, result.stdout) == (2, "")
    found = result.stderr.splitlines()[-1]
    assert found.startswith("Error: gpu_metrics.url: must be like https" if url else "Error: --url and --no-metrics: state one of them")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_prometheus_at_a_given_url_that_does_not_answer_is_an_error(scheme: str, sandbox: Sandbox, tmp_path: Path) -> None:
    result = run(tmp_path, "--url", f"{scheme}://127.0.0.1:1")
    assert result.exit_code == 1
    assert "can't be reached: Connection refused" in result.stderr
    assert result.stdout.startswith("NODE ")


def test_without_metrics_the_table_of_gpus_shows_what_labels_state(sandbox: Sandbox, tmp_path: Path) -> None:
    rows = [line.split()[:4] for line in run(tmp_path, "--no-metrics", "--cards").stdout.splitlines()[1:]]
    assert rows == [
        *(["gpu-1", str(card), "A100-SXM4-40GB", "40Gi"] for card in range(4)),
        *(["gpu-2", str(card), "-", "-"] for card in range(2)),
    ]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics of ``gpu-2`` that are 100 s old: card 0 has failed, and each card draws 70 W."""
    values = np.full((len(Measure), 1, 2), np.nan, dtype=np.float32)
    values[Measure.XID, 0, 0], values[Measure.POWER, 0, :] = 79.0, 70.0
    reading = Reading(("gpu-2",), (("0", "1"),), (), np.full((1, 2), -1, dtype=np.int32), values, np.array([100.0]))

    class Source:
        async def read(self) -> Reading:
            return reading

    async def find(*_: object) -> Source:
        return Source()

    monkeypatch.setattr("allaboard.cli.gpus.find", find)


@pytest.mark.parametrize(("unhealthy", "free"), [("exclude", 1), ("ignore", 2)])
def test_gpu_with_an_error_counts_as_free_only_if_the_settings_ignore_errors(
    unhealthy: str, free: int, measured: None, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLABOARD_GPU__UNHEALTHY", unhealthy)
    found = json.loads(run(tmp_path, "-o", "json").stdout)
    assert [(row["node"], row["free"]) for row in found["nodes"]] == [("gpu-1", 1), ("gpu-2", free)]


@pytest.mark.parametrize(("stale_seconds", "watts"), [(90, None), (110, 70.0)])
def test_metrics_are_shown_until_they_are_stale(
    stale_seconds: int, watts: float | None, measured: None, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLABOARD_GPU_METRICS__STALE_SECONDS", str(stale_seconds))
    found = json.loads(run(tmp_path, "-o", "json").stdout)
    assert {card["power_watts"] for row in found["nodes"] for card in row["cards"]} == {watts}


@pytest.mark.parametrize("width", [60, 80, 200])
def test_gpu_model_in_a_table_is_not_cut_inside_a_word(width: int) -> None:
    row = NodeRow("gke-prod-gpu-h100-pool-1a2b3c4d-x9z8", "NVIDIA-A100-SXM4-40GB", 16, 16, 81559.0, "7: XID 79 +1", 118.0, ())
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(_fitted(_of_nodes([row]), width))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    assert {"A100-SXM4-40GB", "16/16", "XID", "118s"} <= set(" ".join(lines).split())


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("table", [_of_nodes, _of_cards])
def test_tables_fit_the_width_of_a_terminal(table: Callable[[Sequence[NodeRow]], Table], width: int) -> None:
    card = CardRow("7", "NVIDIA H100 80GB HBM3", 81559.0, 81000.0, 0.97, 699.6, 88.0, 79, True)
    fine = CardRow("0", "NVIDIA H100 80GB HBM3", 81559.0, 81000.0, 0.97, 699.6, 88.0, 0, False)
    row = NodeRow("gke-prod-gpu-h100-pool-1a2b3c4d-x9z8", card.model, 16, 16, 81559.0, "7: XID 79 +1", 118.0, (fine, card))
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(_fitted(table([row]), width))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    assert lines[1].split()[-1] == "118s"
    for word in ("97%", "88 C", "80Gi"):
        assert word in lines[1]
