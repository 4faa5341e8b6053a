"""An operator that can't start says why in one line, however it is started."""

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
    return {**inherited, "PYTHONWARNINGS": "error", "ALLABOARD_METRICS_PORT": "0", **stated}


def ended(*command: str, **environment: str) -> tuple[int, str]:
    """The exit status of an operator that ends by itself, and all that it has printed."""
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
def test_a_kubeconfig_that_is_none_is_told_in_a_line(start: tuple[str, ...], tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("not a kubeconfig\n")
    status, told = ended(*start, KUBECONFIG=str(kubeconfig))
    assert (status, told.count("\n")) == (1, 1), told
    assert told.startswith("Error: no cluster to connect to: ")
    assert f"kubeconfig {kubeconfig} can't be used (it is no kubeconfig)" in told


@ALL_STARTS
def test_a_kubeconfig_that_is_not_there_is_told_with_the_file_that_names_it(start: tuple[str, ...], tmp_path: Path) -> None:
    path, kubeconfig = tmp_path / "scheduler.yaml", tmp_path / "nowhere"
    kind = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    path.write_text(f"{kind}clientConnection: {{kubeconfig: {kubeconfig}}}\n")
    status, told = ended(*start, ALLABOARD_CONFIG=str(path))
    assert status in (1, 2), told
    named = f"kubeconfig {kubeconfig}, which clientConnection.kubeconfig of {path} names, can't be used (there is no such file)"
    assert f"Error: no cluster to connect to: {named}\n" in told


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize(
    ("content", "words"),
    [("objektive: spread\n", "objektive: no such option; did you mean objective?"), ("a: [\n", "line 1: is not YAML: ")],
)
def test_a_settings_file_with_a_mistake_is_told_in_a_line(content: str, words: str, start: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(content)
    status, told = ended(*start, ALLABOARD_CONFIG=str(path))
    assert (status, told.count("\n")) == (1, 1), told
    assert told.startswith(f"Error: {path}: {words}")


def test_a_health_port_that_is_taken_is_told_in_a_line(taken_port: str, tmp_path: Path) -> None:
    status, told = ended(*OURS[:-1], taken_port, KUBECONFIG=str(kubeconfig_of(9, tmp_path)))
    words = f"health can't be served on port {taken_port}: Address already in use; choose another with --health-port, or 0 for none"
    assert (status, told) == (1, f"Error: {words}\n")


@ALL_STARTS
def test_a_metrics_port_that_is_taken_is_told_in_a_line(start: tuple[str, ...], taken_port: str, tmp_path: Path) -> None:
    kubeconfig = kubeconfig_of(9, tmp_path)
    status, told = ended(*start, KUBECONFIG=str(kubeconfig), ALLABOARD_METRICS_PORT=taken_port)
    words = (
        f"metrics can't be served on port {taken_port}: Address already in use; choose another with ALLABOARD_METRICS_PORT, or 0 for none"
    )
    assert (status, told) == (1, f"Error: {words}\n")


@ALL_STARTS
def test_an_api_server_that_is_gone_is_told_in_a_line(start: tuple[str, ...], tmp_path: Path) -> None:
    kubeconfig = kubeconfig_of(9, tmp_path)
    status, told = ended(*start, KUBECONFIG=str(kubeconfig), ALLABOARD_REACH_SECONDS="0")
    assert (status, told.count("\n")) == (1, 1), told
    assert told.startswith(
        f"Error: kubeconfig {kubeconfig} (context 'here') leads to http://127.0.0.1:9, and the API server can't be reached"
    )
    assert told.endswith("start that cluster, or set KUBECONFIG to that of another\n")


async def interrupted(start: tuple[str, ...], folder: Path, refused: bytes, awaited: bytes) -> tuple[int | None, str]:
    """As ``ended``, of an operator that is interrupted when it asks for ``awaited``; nothing is answered but what is ``refused``."""
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
            told, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return process.returncode, told.decode()


async def test_one_that_is_interrupted_while_it_waits_for_the_api_server_ends_without_a_word(tmp_path: Path) -> None:
    assert await interrupted(OURS, tmp_path, b"", b"/api/v1/nodes?limit=1 ") == (0, "")


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
async def test_kopf_waits_for_nothing_when_it_is_interrupted_meanwhile(start: tuple[str, ...], tmp_path: Path) -> None:
    status, told = await interrupted(start, tmp_path, b"", b"/api/v1/nodes?limit=1 ")
    assert (status, told.count("\n")) == (0, 1), told
    assert "Signal SIGINT is received" in told


async def test_one_that_is_interrupted_while_kopf_looks_at_what_is_served_ends_without_a_word(tmp_path: Path) -> None:
    assert await interrupted(OURS, tmp_path, b"/api/v1/nodes?limit=1 ", b"/apis ") == (0, "")
