"""Fixture for tests of ``allaboard plan``."""

from pathlib import Path

import pytest

from tests.unit.cli.plan_command import Plan


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """The command ``allaboard plan`` in a temporary folder."""
    return Plan(tmp_path)
