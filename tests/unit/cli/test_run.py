"""``allaboard run --help`` says what is so."""

import re

import pytest
from click.testing import CliRunner

from allaboard.cli.main import cli
from allaboard.settings import Settings


@pytest.mark.parametrize("option", ["objective", "workers", "metrics-port", "health-port", "log-format"])
def test_help_states_the_defaults_of_the_settings(option: str) -> None:
    text = " ".join(CliRunner().invoke(cli, ["run", "--help"]).stdout.split())
    found = re.search(rf"--{option} .*?\[([^\]|]*)\]\.", text)
    assert found
    assert found[1] == str(Settings.model_fields[option.replace("-", "_")].default)
