"""Tests for the log lines of an operator that fail the end-to-end tests."""

import subprocess
import sys

import pytest

from tests.e2e.controlplane.operators import complaints_in

pytestmark = pytest.mark.processes

_PROGRAM = """
import logging
from allaboard.cli.run import start_logging
from allaboard.settings.options import Settings

start_logging(Settings(log_format="json"))
logging.info("an Error is mentioned")
logging.warning("a bind is tried again")
logging.error("an error without a traceback")
logging.error("Request attempt #1/9 failed; will retry: 'storage is (re)initializing'")
logging.critical("the end")
try:
    1 / 0
except ZeroDivisionError:
    logging.warning("an error with a traceback", exc_info=True)
"""


@pytest.fixture(scope="module")
def log() -> str:
    """The log of an operator in the format of ``config/``."""
    return subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True).stderr


@pytest.mark.parametrize("words", ["an error without a traceback", "the end", "ZeroDivisionError"])
def test_log_line_of_an_error_or_traceback_fails_a_test(words: str, log: str) -> None:
    (line,) = (line for line in log.splitlines() if words in line)
    assert complaints_in(log).count(line) == 1


def test_other_log_lines_do_not_fail_a_test(log: str) -> None:
    assert len(log.splitlines()) == 6
    assert len(complaints_in(log)) == 3
