"""Tests that an operator that can't start prints the reason in one line, for each command that starts it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
SECONDS = 100.0
STARTS = {"kopf run PATH": ("kopf", "run", "operator/main.py", "-A"), "kopf run -m": ("kopf", "run", "-m", "allaboard.handlers", "-A")}
OURS = ("allaboard", "run", "--health-port", "0")
ALL_STARTS = pytest.mark.parametrize("start", [*STARTS.values(), OURS], ids=[*STARTS, "allaboard run"])


def environment_of(**stated: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ALLABOARD_")}
    return {**inherited, "PYTHONWARNINGS": "error", "ALLABOARD_METRICS_PORT": "0", "ALLABOARD_API_PORT": "0", **stated}


def ended(*command: str, **environment: str) -> tuple[int, str]:
    """Return the exit status of an operator that ends by itself, and its output."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment_of(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def kubeconfig_of(port: int, folder: Path) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
        f"clusters: [{{name: here, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n"
        "contexts: [{name: here, context: {cluster: here, user: me}}]\nusers: [{name: me, user: {}}]\n"
    )
    return path


@pytest.fixture
def taken_port() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        yield str(taken.getsockname()[1])


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_invalid_kubeconfig_is_reported_in_one_line(start: tuple[str, ...], tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("not a kubeconfig\n")
    status, output = ended(*start, KUBECONFIG=str(kubeconfig))
    assert (status, output.count("\n")) == (1, 1), output
    assert output.startswith("Error: no cluster to connect to: ")
    assert f"kubeconfig {kubeconfig} can't be used (it is no kubeconfig)" in output


@ALL_STARTS
def test_missing_kubeconfig_is_reported_with_the_file_that_names_it(start: tuple[str, ...], tmp_path: Path) -> None:
    path, kubeconfig = tmp_path / "scheduler.yaml", tmp_path / "nowhere"
    kind = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    path.write_text(f"{kind}clientConnection: {{kubeconfig: {kubeconfig}}}\n")
    status, output = ended(*start, ALLABOARD_CONFIG=str(path))
    assert status in (1, 2), output
    named = f"kubeconfig {kubeconfig}, which clientConnection.kubeconfig of {path} names, can't be used (there is no such file)"
    assert f"Error: no cluster to connect to: {named}\n" in output


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize(
    ("content", "words"),
    [("objektive: spread\n", "objektive: no such option; did you mean objective?"), ("a: [\n", "line 1: is not YAML: ")],
)
def test_mistake_in_the_settings_file_is_reported_in_one_line(content: str, words: str, start: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(content)
    status, output = ended(*start, ALLABOARD_CONFIG=str(path))
    assert (status, output.count("\n")) == (1, 1), output
    assert output.startswith(f"Error: {path}: {words}")


def test_health_port_in_use_is_reported_in_one_line(taken_port: str, tmp_path: Path) -> None:
    status, output = ended(*OURS[:-1], taken_port, KUBECONFIG=str(kubeconfig_of(9, tmp_path)))
    words = f"health can't be served on port {taken_port}: Address already in use; choose another with --health-port, or 0 for none"
    assert (status, output) == (1, f"Error: {words}\n")


@ALL_STARTS
def test_metrics_port_in_use_is_reported_in_one_line(start: tuple[str, ...], taken_port: str, tmp_path: Path) -> None:
    kubeconfig = kubeconfig_of(9, tmp_path)
    status, output = ended(*start, KUBECONFIG=str(kubeconfig), ALLABOARD_METRICS_PORT=taken_port)
    words = (
        f"metrics can't be served on port {taken_port}: Address already in use; choose another with ALLABOARD_METRICS_PORT, or 0 for none"
    )
    assert (status, output) == (1, f"Error: {words}\n")


@ALL_STARTS
def test_unreachable_api_server_is_reported_in_one_line(start: tuple[str, ...], tmp_path: Path) -> None:
    kubeconfig = kubeconfig_of(9, tmp_path)
    status, output = ended(*start, KUBECONFIG=str(kubeconfig), ALLABOARD_REACH_SECONDS="0")
    assert (status, output.count("\n")) == (1, 1), output
    assert output.startswith(
        f"Error: kubeconfig {kubeconfig} (context 'here') leads to http://127.0.0.1:9, and the API server can't be reached"
    )
    assert output.endswith("start that cluster, or set KUBECONFIG to that of another\n")


async def interrupted(start: tuple[str, ...], folder: Path, refused: bytes, awaited: bytes) -> tuple[int | None, str]:
    """Return exit status and output of an operator that is interrupted when it requests ``awaited``.

    The API server refuses requests for ``refused``, and doesn't answer others.
    """
    asked = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                if refused and line.startswith(b"GET " + refused):
                    writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                elif line.startswith(b"GET " + awaited):
                    asked.set()
        finally:
            writer.close()

    async with asyncio.timeout(SECONDS), await asyncio.start_server(answer, "127.0.0.1") as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *start),
            cwd=ROOT,
            env=environment_of(KUBECONFIG=str(kubeconfig_of(server.sockets[0].getsockname()[1], folder))),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            await asked.wait()
            process.send_signal(signal.SIGINT)
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return process.returncode, output.decode()


async def test_operator_that_is_interrupted_while_it_waits_for_the_api_server_prints_nothing(tmp_path: Path) -> None:
    assert await interrupted(OURS, tmp_path, b"", b"/api/v1/nodes?limit=1 ") == (0, "")


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
async def test_kopf_run_that_is_interrupted_while_it_waits_for_the_api_server_ends_at_once(start: tuple[str, ...], tmp_path: Path) -> None:
    status, output = await interrupted(start, tmp_path, b"", b"/api/v1/nodes?limit=1 ")
    assert (status, output.count("\n")) == (0, 1), output
    assert "Signal SIGINT is received" in output


async def test_operator_that_is_interrupted_while_kopf_lists_resources_prints_nothing(tmp_path: Path) -> None:
    assert await interrupted(OURS, tmp_path, b"/api/v1/nodes?limit=1 ", b"/apis ") == (0, "")
