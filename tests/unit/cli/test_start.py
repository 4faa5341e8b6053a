"""An operator that can't start says why in one line, however it is started."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STARTS = {"kopf run PATH": ("kopf", "run", "operator/main.py", "-A"), "kopf run -m": ("kopf", "run", "-m", "allaboard.handlers", "-A")}


def ended(*command: str, **environment: str) -> tuple[int, str]:
    """The exit status of an operator that ends by itself, and all that it has printed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ALLABOARD_")}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**inherited, "PYTHONWARNINGS": "error", "ALLABOARD_METRICS_PORT": "0", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


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


@pytest.mark.parametrize("start", [*STARTS.values(), ("allaboard", "run", "--health-port", "0")], ids=[*STARTS, "allaboard run"])
def test_a_metrics_port_that_is_taken_is_told_in_a_line(start: tuple[str, ...], taken_port: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
        "clusters: [{name: here, cluster: {server: http://127.0.0.1:9}}]\n"
        "contexts: [{name: here, context: {cluster: here, user: me}}]\nusers: [{name: me, user: {}}]\n"
    )
    status, told = ended(*start, KUBECONFIG=str(kubeconfig), ALLABOARD_METRICS_PORT=taken_port)
    words = (
        f"metrics can't be served on port {taken_port}: Address already in use; choose another with ALLABOARD_METRICS_PORT, or 0 for none"
    )
    assert (status, told) == (1, f"Error: {words}\n")
