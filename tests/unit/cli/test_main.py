"""How commands end that are ended from outside: told in a line at most, and by exit codes that mean nothing else."""

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
def test_an_interrupt_is_told_apart_from_a_verdict(command: list[str], inside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inside, interrupted)
    result = CliRunner().invoke(cli, command)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_while_a_command_is_imported_waits_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = []

    def interrupted(name: str) -> None:
        signal.raise_signal(signal.SIGINT)  # to this thread: others, which libraries start while they are imported, block it, too
        imported.append(name)

    monkeypatch.setattr("allaboard.cli.commands.import_module", interrupted)
    result = CliRunner().invoke(cli, ["plan", "-f", "x.yaml"])
    assert (result.exit_code, result.stderr, imported) == (130, "interrupted\n", ["allaboard.cli.plan"])


@pytest.mark.parametrize("command", ["demo", "sandbox"])
@pytest.mark.parametrize("missing", ["allaboard_sandbox", "jsonschema"])
def test_a_command_without_the_sandbox_that_it_needs_names_the_extra(command: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [name for name in sys.modules if name.partition(".")[0] == "allaboard_sandbox"]
    for name in (*known, "allaboard.cli.demo", "allaboard.cli.sandbox", "allaboard.cli.stories"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    result = CliRunner().invoke(cli, [command])
    told = f"Error: `allaboard {command}` needs the extra: pip install 'allaboard[sandbox]'\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", told)


def test_an_answer_that_nobody_listens_to_is_dropped_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(HELP, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not (os.path.exists("/dev/full") or os.environ.get("CI")), reason="needs Linux, which CI must have")
def test_an_answer_that_finds_no_room_is_told_in_a_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(HELP, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "Error: the answer can't be written: No space left on device\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_is_ended_from_outside_ends_whom_it_has_started(number: signal.Signals) -> None:
    program = "from allaboard.cli.main import main; main()"
    arguments = ["simulate", "-f", "examples/simulate/training.yaml", "--seeds", "1-200", "--workers", "2"]
    with subprocess.Popen([sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.read(1)  # progress: its processes are there
        process.send_signal(number)
        _, rest = process.communicate(timeout=100)  # which ends when nobody has standard output open any more
    assert process.returncode == 130
    assert rest.endswith(b"interrupted\n")
