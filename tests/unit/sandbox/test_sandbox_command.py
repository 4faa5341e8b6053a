"""The command ``allaboard sandbox``, run as a process of its own."""

import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp
import pytest
import yaml

pytestmark = pytest.mark.processes

SECONDS = 100.0
PODS = "/api/v1/namespaces/default/pods"


async def start(*arguments: str) -> asyncio.subprocess.Process:
    program = "from allaboard.cli.main import main; main()"
    return await asyncio.create_subprocess_exec(sys.executable, "-c", program, "sandbox", *arguments, stdout=PIPE, stderr=PIPE)


def server_in(kubeconfig: Path) -> str:
    return str(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])


def is_there(path: Path) -> bool:
    return path.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_command_prints_the_path_of_its_kubeconfig_and_removes_it_when_interrupted(number: signal.Signals) -> None:
    process = await start("--nodes", "2", "--gpus", "3")
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        line = (await process.stdout.readline()).decode()
        kubeconfig = Path(line.removeprefix("export KUBECONFIG=").strip())
        url = server_in(kubeconfig)
        async with aiohttp.ClientSession(url) as session:
            async with session.get("/api/v1/nodes") as response:
                nodes = (await response.json())["items"]
            async with session.get("/apis/scheduling.x-k8s.io/v1alpha1/podgroups") as response:
                assert response.status == 200
        process.send_signal(number)
        rest, _ = await process.communicate()
    assert line.startswith("export KUBECONFIG=/")
    assert [(node["metadata"]["name"], node["status"]["allocatable"]["nvidia.com/gpu"]) for node in nodes] == [
        ("node-1", "3"),
        ("node-2", "3"),
    ]
    assert (process.returncode, rest) == (0, b"")
    assert not is_there(kubeconfig)


@pytest.mark.parametrize(
    ("number", "flag"),
    [(signal.SIGINT, "--run"), (signal.SIGHUP, "--ui")],
    ids=["signal-that-kopf-handles", "signal-that-kopf-does-not-handle"],
)
async def test_command_with_a_scheduler_runs_pods_and_an_interrupt_ends_both_processes(number: signal.Signals, flag: str) -> None:
    process = await start("--nodes", "1", flag)
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        api = (await process.stdout.readline()).decode().removeprefix("export ALLABOARD_API=").strip()
        line = (await process.stdout.readline()).decode()
        kubeconfig = Path(line.removeprefix("export KUBECONFIG=").strip())
        spec = {"schedulerName": "allaboard", "containers": [{"name": "main", "image": "busybox:1"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        async with aiohttp.ClientSession(server_in(kubeconfig)) as session:
            async with session.post(PODS, json=pod) as response:
                assert response.status == 201
            async with session.get(PODS, params={"watch": "1", "fieldSelector": "status.phase=Running"}) as running:
                assert json.loads(await running.content.readline())["object"]["spec"]["nodeName"] == "node-1"
        async with aiohttp.ClientSession(api) as session, session.get("/api/v1/status") as response:
            assert (await response.json())["leads"]
        process.send_signal(number)
        rest, log = await process.communicate()
    assert (process.returncode, rest) == (0, b"")
    assert b"gang=default/p outcome=bound" in log
    assert (b"The departure board: http://127.0.0.1:" in log) == (flag == "--ui")
    assert b"Traceback" not in log
    assert not is_there(kubeconfig)


async def test_kubeconfig_is_written_to_a_given_path_and_kept(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    process = await start("--nodes", "0", "--kubeconfig-out", str(kubeconfig))
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        assert await process.stdout.readline() == f"export KUBECONFIG={kubeconfig}\n".encode()
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode == 0
    assert is_there(kubeconfig)


async def test_a_port_in_use_is_reported_as_an_error_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = await start("--port", str(taken.getsockname()[1]))
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"Error: can't listen on port ")
