"""How commands end that are ended from outside: told in a line at most, and by exit codes that mean nothing else."""

import os
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from allaboard.cli.main import cli

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
