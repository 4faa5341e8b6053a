"""Tests of ``allaboard sandbox``: invalid options, and errors while it starts."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from allaboard.cli.embedded import OperatorEndedError, OperatorStoppedError
from allaboard.cli.main import cli


def sandbox(*options: str) -> Result:
    return CliRunner().invoke(cli, ["sandbox", "--nodes", "0", *options])


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--memory", "-5", "'-5' is negative"),
        ("--memory", "0", "'0' is not more than 0"),
        ("--cpu", "lots", "'lots' is not a quantity such as 500m, 2 or 16Gi"),
    ],
)
def test_invalid_size_of_nodes_is_refused_with_its_option(option: str, value: str, problem: str) -> None:
    result = sandbox(option, value)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}': {problem}" in result.stderr


def test_error_names_the_kubeconfig_that_can_not_be_written(tmp_path: Path) -> None:
    result = sandbox("--kubeconfig-out", str(tmp_path / "none" / "x"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"Error: {tmp_path}/none/x: can't be written: No such file or directory\n"


@pytest.mark.parametrize("text", ["precious", "clusters: [{name: mine}]", "{", "[1]"])
def test_file_that_is_no_sandbox_kubeconfig_is_not_overwritten(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config"
    config.write_text(text)
    result = sandbox("--kubeconfig-out", str(config))
    assert (result.exit_code, config.read_text()) == (2, text)
    assert result.stderr == f"Error: {config}: exists, and isn't a sandbox's kubeconfig; name another file\n"


def test_error_names_the_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = sandbox("--port", str(port))
    assert (result.exit_code, result.stderr) == (2, f"Error: can't listen on port {port}: Address already in use\n")


def test_settings_that_the_scheduler_can_not_use_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_WORKERS", "many")
    result = sandbox("--run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert "workers" in result.stderr


@pytest.mark.parametrize(
    ("ended", "code", "said"),
    [(OperatorEndedError("the operator could not start"), 1, "Error: the operator could not start\n"), (OperatorStoppedError(), 0, "")],
)
def test_the_sandbox_ends_if_its_scheduler_ends_while_it_starts(
    ended: OperatorEndedError, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def operator(kubeconfig: Path, **settings: object) -> AsyncIterator[None]:
        raise ended
        yield

    monkeypatch.setattr("allaboard.cli.embedded.operator", operator)
    monkeypatch.setattr("allaboard.cli.sandbox.start_logging", lambda _: None)
    result = sandbox("--run")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", said)


def test_help_of_the_command_sandbox_has_examples_for_a_first_try() -> None:
    text = CliRunner().invoke(cli, ["sandbox", "--help"]).stdout
    assert "\n    allaboard sandbox --nodes 1 --gpus 4 --run\n" in text
    assert "\n    kubectl apply -f examples/two-jobs.yaml\n" in text
