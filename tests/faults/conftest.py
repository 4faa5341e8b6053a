"""Fixtures that the tests of faults share."""

import gc
import logging
from collections.abc import Iterator

import pytest

from .simulation import LOGGERS, quiet


@pytest.fixture
def silence() -> Iterator[None]:
    """Silence the logs of schedules during a test, and restore them for the tests that follow."""
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    quiet()
    yield
    gc.unfreeze()
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
