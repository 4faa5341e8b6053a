"""Tests of ``allaboard demo``: its options, and its messages if the operator can't start."""

from typing import Any

import pytest
from click.testing import CliRunner, Result

from allaboard.cli.embedded import OperatorEndedError, OperatorStoppedError
from allaboard.cli.main import cli


def demo(*options: str) -> Result:
    return CliRunner().invoke(cli, ["demo", "--story", "pack", *options])


def ending(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    async def perform(*_: Any) -> int:
        raise error

    monkeypatch.setattr("allaboard.cli.demo._perform", perform)


@pytest.mark.parametrize("pace", ["nan", "inf", "-1", "61"])
def test_demo_refuses_a_pace_outside_of_its_range(pace: str) -> None:
    result = demo("--pace", pace)
    assert result.exit_code == 2
    assert "Invalid value for '--pace'" in result.stderr


def test_a_wrong_setting_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_OBJECTIVE", "wat")
    result = demo()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: objective: must be 'binpack', 'spread' or 'fragmentation', not 'wat'\n"


def test_error_says_why_the_operator_can_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    ending(monkeypatch, OperatorEndedError("the operator could not start: address in use"))
    result = demo()
    assert (result.exit_code, result.stderr) == (1, "Error: the operator could not start: address in use\n")


@pytest.mark.parametrize("error", [OperatorStoppedError("the operator was stopped"), KeyboardInterrupt()])
def test_interrupted_demo_exits_with_130(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    ending(monkeypatch, error)
    result = demo()
    assert (result.exit_code, result.stdout) == (130, "interrupted\n")
