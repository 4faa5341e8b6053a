"""Test that the scenario shown in docs/simulate.md can be read."""

import re
from pathlib import Path

from allaboard.simulation.scenario import read_scenario

PAGE = Path(__file__).parents[3] / "docs" / "simulate.md"


def test_scenario_in_the_documentation_is_valid(tmp_path: Path) -> None:
    [scenario] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "s.yaml").write_text(scenario)
    found = read_scenario(str(tmp_path / "s.yaml"))
    assert (len(found.nodes), len(found.arrivals), found.arrivals[0].minimum) == (6, 12, 9)
