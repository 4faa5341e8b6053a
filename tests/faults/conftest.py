"""What the tests of faults share."""

import gc
import logging
from collections.abc import Iterator

import pytest

from .simulation import LOGGERS, quiet


@pytest.fixture
def silence() -> Iterator[None]:
    """No logs of thousands of schedules, and those of the tests that follow again."""
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    quiet()
    yield
    gc.unfreeze()
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
