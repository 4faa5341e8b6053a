"""What docs/simulate.md shows is what is read."""

import re
from pathlib import Path

from allaboard.simulation.scenario import read_scenario

PAGE = Path(__file__).parents[3] / "docs" / "simulate.md"


def test_the_scenario_of_the_page_can_be_replayed(tmp_path: Path) -> None:
    [scenario] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "s.yaml").write_text(scenario)
    found = read_scenario(str(tmp_path / "s.yaml"))
    assert (len(found.nodes), len(found.arrivals), found.arrivals[0].minimum) == (6, 12, 9)
