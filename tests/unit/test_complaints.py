"""Which lines of an operator's log fail the end-to-end tests."""

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
logging.info("an Error is told of")
logging.warning("a bind is tried again")
logging.error("a defect without more")
logging.error("Request attempt #1/9 failed; will retry: 'storage is (re)initializing'")
logging.critical("the end")
try:
    1 / 0
except ZeroDivisionError:
    logging.warning("a defect that goes on", exc_info=True)
"""


@pytest.fixture(scope="module")
def said() -> str:
    """What an operator says with the options that it is shipped with."""
    return subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True).stderr


@pytest.mark.parametrize("words", ["a defect without more", "the end", "ZeroDivisionError"])
def test_a_line_of_an_error_is_one_to_complain_of(words: str, said: str) -> None:
    (line,) = (line for line in said.splitlines() if words in line)
    assert complaints_in(said).count(line) == 1


def test_no_other_is(said: str) -> None:
    assert len(said.splitlines()) == 6
    assert len(complaints_in(said)) == 3
