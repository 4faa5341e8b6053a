"""What the tests of ``allaboard plan`` share."""

from pathlib import Path

import pytest

from tests.unit.cli.asking import Plan


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """The command, in a folder of its own."""
    return Plan(tmp_path)
