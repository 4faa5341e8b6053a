"""Test the benchmark that compares strategies with the published figures, on its simulated cluster."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "fgd.py"


def test_quick_benchmark_prints_each_baseline_and_its_distance_to_fgd(tmp_path: Path) -> None:
    options = ("--quick", "--seeds", "1", "--workers", "1", "--json", str(tmp_path / "rows.json"))
    done = subprocess.run([sys.executable, str(BENCHMARK), *options], capture_output=True, text=True, timeout=250, check=False)

    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    kinds = [(row["strategy"], row["batch"]) for row in rows]
    assert kinds == [("fgd", 1), ("fgd-bestfit", 1), ("fgd-firstfit", 1), ("fgd-random", 1), ("genetic", 1), ("genetic", 16)]
    points = {row["strategy"]: row["pointsBelowFgd"] for row in rows}
    assert points["fgd"] == 0
    assert points["fgd-random"] < 0
    assert "a made-up cluster: 40 nodes" in done.stdout
