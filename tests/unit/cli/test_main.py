"""Tests of commands that are interrupted or can't write: they print at most one line, and have exit codes of their own."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from allaboard.cli.main import cli

pytestmark = pytest.mark.processes

HELP = [sys.executable, "-m", "allaboard", "--help"]


@pytest.mark.parametrize(
    ("command", "inside"),
    [
        (["plan", "-f", "x.yaml"], "allaboard.cli.plan.read_manifests"),
        (["simulate", "-f", "x.yaml"], "allaboard.cli.simulate.read_scenario"),
    ],
)
def test_interrupt_has_an_exit_code_of_its_own(command: list[str], inside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inside, interrupted)
    result = CliRunner().invoke(cli, command)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")


def test_interrupt_during_the_import_of_a_command_takes_effect_after_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = []

    def interrupted(name: str) -> None:
        signal.raise_signal(signal.SIGINT)  # sent to this thread; threads that libraries start during their import block the signal, too
        imported.append(name)

    monkeypatch.setattr("allaboard.cli.commands.import_module", interrupted)
    result = CliRunner().invoke(cli, ["plan", "-f", "x.yaml"])
    assert (result.exit_code, result.stderr, imported) == (130, "interrupted\n", ["allaboard.cli.plan"])


@pytest.mark.parametrize("command", ["demo", "sandbox"])
@pytest.mark.parametrize("missing", ["allaboard_sandbox", "jsonschema"])
def test_missing_package_of_the_sandbox_is_reported_with_the_extra(command: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [name for name in sys.modules if name.partition(".")[0] == "allaboard_sandbox"]
    for name in (*known, "allaboard.cli.demo", "allaboard.cli.sandbox", "allaboard.cli.stories"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    result = CliRunner().invoke(cli, [command])
    expected = f"Error: `allaboard {command}` needs the extra: pip install 'allaboard[sandbox]'\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", expected)


def test_output_into_a_closed_pipe_is_dropped_without_an_error() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(HELP, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not (os.path.exists("/dev/full") or os.environ.get("CI")), reason="needs Linux, which CI must have")
def test_output_to_a_full_disk_is_an_error_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(HELP, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "Error: the output can't be written: No space left on device\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_command_that_is_ended_by_a_signal_ends_its_processes(number: signal.Signals) -> None:
    program = "from allaboard.cli.main import main; main()"
    arguments = ["simulate", "-f", "examples/simulate/training.yaml", "--seeds", "1-200", "--workers", "2"]
    with subprocess.Popen([sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.read(1)  # the first progress: its processes run
        process.send_signal(number)
        _, rest = process.communicate(timeout=100)  # returns when no process has stdout open
    assert process.returncode == 130
    assert rest.endswith(b"interrupted\n")
