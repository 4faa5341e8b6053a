"""Tests of ``allaboard simulate``, which prints its answer on stdout, and notes and errors on stderr."""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from allaboard.cli.main import cli
from tests.unit.simulation.making import write_trace

SCENARIO = """
nodes:
- {name: n, cpu: 16, memory: 64Gi, gpus: 4}
workload:
- name: g
  repeat: 4
  every: 1m
  run: 5m
  members:
  - {count: 3, cpu: 1, gpus: 1}
"""


class Simulate:
    """Runs the command in a folder that has a trace and a scenario."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes, self.pods = write_trace(folder)
        (folder / "s.yaml").write_text(SCENARIO)

    def trace(self, *options: str) -> Result:
        return self.on_dask("--workers", "1", *options)

    def on_dask(self, *options: str) -> Result:
        return self.run("--nodes", self.nodes, "--pods", self.pods, *options)

    def scenario(self, *options: str) -> Result:
        return self.run("-f", str(self.folder / "s.yaml"), "--workers", "1", *options)

    def run(self, *options: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, ["simulate", *options], input=stdin)


@pytest.fixture
def simulate(tmp_path: Path) -> Simulate:
    return Simulate(tmp_path)


def answer(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_simulate_answers_with_a_run_for_each_seed_and_the_mean_of_the_runs(simulate: Simulate) -> None:
    found = answer(simulate.trace("--strategy", "fgd", "--seeds", "42-43,50", "--batch", "4", "-o", "json"))
    assert list(found) == ["strategy", "batch", "runs", "mean", "elapsedSeconds"]
    assert (found["strategy"], found["batch"]) == ("fgd", 4)
    figures = ["gpusTotal", "gpusUnallocatedPercent", "podsFailed", "fragmentationPercent"]
    assert [list(run) for run in found["runs"]] == [["seed", *figures]] * 3
    assert [run["seed"] for run in found["runs"]] == [42, 43, 50]
    assert list(found["mean"]) == figures
    assert found["mean"]["gpusTotal"] == 30
    for figure in figures:
        assert found["mean"][figure] == pytest.approx(sum(run[figure] for run in found["runs"]) / 3, abs=1e-4)


def test_ten_seeds_are_replayed_unless_other_seeds_are_given(simulate: Simulate) -> None:
    found = answer(simulate.trace("--strategy", "firstfit", "-o", "json"))
    assert [run["seed"] for run in found["runs"]] == list(range(42, 52))


def test_simulate_answers_with_a_list_if_several_strategies_are_given(simulate: Simulate) -> None:
    found = answer(simulate.trace("--strategy", "fgd", "--strategy", "random", "--seeds", "1", "-o", "json"))
    assert [each["strategy"] for each in found] == ["fgd", "random"]


def test_simulate_gives_equal_answers_to_equal_commands(simulate: Simulate) -> None:
    first, second = (answer(simulate.trace("--strategy", "random", "--seeds", "1-3", "-o", "json")) for _ in range(2))
    assert first | {"elapsedSeconds": 0} == second | {"elapsedSeconds": 0}


def test_without_inflation_each_task_is_replayed_once(simulate: Simulate) -> None:
    found = answer(simulate.trace("--strategy", "firstfit", "--seeds", "1", "--inflate", "0", "-o", "json"))
    more = answer(simulate.trace("--strategy", "firstfit", "--seeds", "1", "--inflate", "4", "-o", "json"))
    assert found["mean"]["podsFailed"] < more["mean"]["podsFailed"]


def test_a_scenario_is_replayed_by_the_schedulers_own_strategy_unless_another_strategy_is_chosen(simulate: Simulate) -> None:
    found = answer(simulate.scenario("-o", "json"))
    assert found["strategy"] == "genetic"
    [run] = found["runs"]
    # Gangs come at 0, 1, 2 and 3 minutes, and one of them fits at a time.
    assert run["waitingSecondsMean"] == (0 + 240 + 480 + 720) / 4
    assert (run["gangsPlaced"], run["gangsFailed"], run["makespanSeconds"]) == (4, 0, 1200)
    assert run["gpusUnallocatedPercent"] == 25


def test_the_table_has_a_line_for_each_run_and_a_line_for_the_mean(simulate: Simulate) -> None:
    result = simulate.trace("--strategy", "bestfit", "--seeds", "42-43")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["STRATEGY", "BATCH", "SEED", "GPUS", "UNALLOCATED", "%", "FRAGMENTATION", "%", "PODS", "FAILED", "SECONDS"]
    assert [line[:4] for line in lines[1:]] == [["bestfit", "1", seed, "30"] for seed in ("42", "43", "mean")]


def test_table_of_a_scenario_has_waiting_times(simulate: Simulate) -> None:
    lines = simulate.scenario("--strategy", "fgd").stdout.splitlines()
    assert lines[0].split()[-7:] == ["GANGS", "PLACED", "WAITING", "S", "MAKESPAN", "S", "SECONDS"]
    assert lines[1].split()[:9] == ["fgd", "1", "42", "4", "25.00", "0.00", "0", "4", "360.0"]


def test_progress_is_printed_on_stderr(simulate: Simulate) -> None:
    result = simulate.trace("--strategy", "fgd", "--seeds", "42-43", "-o", "json")
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["1 of 2 runs", "2 of 2 runs"]


@pytest.mark.parametrize(("name", "start"), [("curves.png", b"\x89PNG"), ("curves.SVG", b"<?xml")])
def test_suffix_of_a_plots_name_decides_its_format(simulate: Simulate, name: str, start: bytes) -> None:
    file = simulate.folder / name
    result = simulate.trace("--strategy", "fgd", "--strategy", "random", "--seeds", "42-43", "--plot", str(file))
    assert result.exit_code == 0, result.output
    assert file.read_bytes().startswith(start)
    if start == b"<?xml":
        text = file.read_text()
        panels = ("allocated (%)", "expected fragmentation", "gangs placed", "pods that didn't fit", "arrived load")
        assert all(words in text for words in (*panels, "fgd", "random"))


def test_the_plot_of_a_scenario_shows_waits_over_hours_and_is_the_same_every_time(simulate: Simulate) -> None:
    file = simulate.folder / "curves.svg"
    content = []
    for _ in range(2):
        simulate.scenario("--strategy", "fgd", "--plot", str(file))
        content.append(file.read_text())
    assert "mean wait of the gangs placed so far" in content[0]
    assert "hours" in content[0]
    assert "arrived load" not in content[0]
    assert content[0] == content[1]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "Name what to replay: --nodes CSV and --pods CSV, or -f YAML."),
        (("--nodes", "n.csv"), "Name what to replay"),
        (("-f", "s.yaml", "--nodes", "n.csv"), "-f holds nodes and workload"),
        (("-f", "none.yaml"), "Error: none.yaml: can't be read: No such file"),
        (("--nodes", "none.csv", "--pods", "none.csv"), "Error: none.csv: can't be read: No such file"),
        (("--seeds", "9-3"), "'9-3' ends before it starts"),
        (("--seeds", "1-20000"), "'1-20000' are too many seeds; 10000 are the most allowed"),
        (("--seeds", "1-9999,1-9999"), "10000 are the most allowed"),
        (("--inflate", "nan"), "Invalid value for '--inflate': 'nan' is not a finite number"),
        (("--dask", ""), "--dask needs an address"),
        (("--seeds", "1-"), "'1-' is not a seed or a range of them such as 42-51"),
        (("--strategy", "best"), "there is no strategy 'best'; known are genetic, exact, bestfit, firstfit, random, fgd, fgd-bestfit"),
        (("--plot", "curves.pdf"), "curves.pdf: a plot is written as .png or .svg; use one of these suffixes"),
        (("--plot", ""), "--plot: a plot is written as .png or .svg; use one of these suffixes"),
        (("--plot", "none/curves.png"), "none/curves.png: there is no folder none; create it first"),
        (("--batch", "0"), "Invalid value for '--batch'"),
    ],
)
def test_bad_input_exits_with_2_and_a_message(simulate: Simulate, options: tuple[str, ...], problem: str) -> None:
    result = simulate.run(*options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert problem in result.stderr


def test_options_without_effect_are_noted(simulate: Simulate) -> None:
    result = simulate.scenario("--inflate", "1.3", "--strategy", "fgd", "--objective", "spread", "-o", "json")
    assert answer(result)["strategy"] == "fgd"
    assert "note: --inflate is for CSV files only" in result.stderr
    assert "note: --objective is for genetic only; fgd ignores it" in result.stderr
    assert "--seeds" not in result.stderr


def test_note_says_that_the_options_seeds_and_batch_make_no_difference(simulate: Simulate) -> None:
    result = simulate.scenario("--strategy", "fgd", "--strategy", "random", "--seeds", "1-2", "--batch", "8")
    assert "note: --seeds makes no difference to fgd with -f" in result.stderr
    assert "note: --batch is for CSV files only; with -f, all gangs that are due at the same time are placed together" in result.stderr


def test_error_names_the_extra_to_install_if_matplotlib_is_missing(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = simulate.trace("--plot", "curves.png")
    assert result.exit_code == 2
    assert "a plot needs the extra: pip install 'allaboard[simulate]', or '.[simulate]' in the repository" in result.stderr


def test_error_names_the_extra_to_install_if_the_package_distributed_is_missing(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = simulate.on_dask("--dask", "tcp://nowhere:8786")
    assert result.exit_code == 2
    assert "a Dask cluster needs the extra: pip install 'allaboard[dask]'" in result.stderr


def test_scenario_may_come_from_standard_input(simulate: Simulate) -> None:
    found = answer(simulate.run("-f", "-", "--strategy", "fgd", "-o", "json", stdin=SCENARIO))
    assert found["runs"][0]["gangsPlaced"] == 4
    assert "Error: standard input: is empty" in simulate.run("-f", "-", stdin="").stderr


def test_tasks_without_gpus_are_refused_with_their_file_unless_inflation_is_off(simulate: Simulate) -> None:
    Path(simulate.pods).write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\nt,1000,1024,0,0,\n")
    result = simulate.trace("--strategy", "fgd", "--seeds", "1")
    assert result.exit_code == 2
    assert f"Error: {simulate.pods}: no task asks for a GPU" in result.stderr
    assert simulate.trace("--strategy", "fgd", "--seeds", "1", "--inflate", "0").exit_code == 0


def test_a_gpu_model_that_no_node_has_is_noted(simulate: Simulate) -> None:
    scenario = SCENARIO.replace("gpus: 1}", "gpus: 1, models: [H9000, H9001]}\n  - {cpu: 1}")
    result = simulate.run("-f", "-", "--strategy", "fgd", stdin=scenario)
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == "note: no node has GPU model H9000 or H9001 (12 of 16 tasks)"


def test_row_for_the_mean_of_all_runs_has_the_mean_of_their_seconds(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.simulation.sweep.time.perf_counter", itertools.count(0.0, 3.0).__next__)
    lines = simulate.trace("--strategy", "firstfit", "--seeds", "1-3").stdout.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["3.0"] * 4


def test_help_of_the_command_simulate_has_an_example(simulate: Simulate) -> None:
    result = simulate.run("--help")
    assert result.exit_code == 0
    assert "allaboard simulate --nodes nodes.csv --pods pods.csv" in result.stdout


CASE = """
nodes: [{name: n, count: 4, cpu: 64, memory: 256Gi, gpus: 8}]
workload:
- {name: first, run: 100, members: [{cpu: 1, gpus: 5}]}
- {name: others, repeat: 3, every: 0, run: 1000, members: [{cpu: 1, gpus: 5}]}
- {name: low, arrival: 5, run: 500, members: [{count: 13, cpu: 1, gpus: 1}]}
- {name: high, arrival: 10, run: 500, priority: 1000, members: [{count: 2, cpu: 1, gpus: 6}]}
"""
"""A gang of low priority fits when the first pod ends, at 100 s. A gang of high priority fits when a second pod has ended, at 1000 s."""


@pytest.mark.parametrize(
    ("policy", "low", "high"), [("skip", 95.0, 990.0), ("strict", 995.0, 990.0), ("easy", 995.0, 990.0), ("", 995.0, 990.0)]
)
def test_policy_decides_whether_a_gang_of_low_priority_passes(simulate: Simulate, policy: str, low: float, high: float) -> None:
    (simulate.folder / "s.yaml").write_text(CASE)
    found = answer(simulate.scenario(*(("--policy", policy) if policy else ()), "-o", "json"))
    [run] = found["runs"]
    waits = run["waitingSeconds"]
    assert (waits["priority 1000"]["max"], waits["priority 0"]["max"]) == (990.0, low)
    assert bool(run["reservedIdlePercent"]) is (policy != "skip")
    assert run["reservedIdlePercent"] < run["gpusUnallocatedPercent"]


SURPLUS = """
nodes: [{name: n, count: 2, cpu: 64, memory: 256Gi, gpus: 8}]
workload:
- {name: elastic, run: 3600, minMember: 2, members: [{count: 4, cpu: 1, gpus: 2}]}
- {name: rigid, run: 7200, members: [{cpu: 1, gpus: 8}]}
- {name: small, arrival: 100, run: 500, priority: 10, members: [{count: 2, cpu: 1, gpus: 2}]}
- {name: large, arrival: 3600, run: 500, priority: 10, members: [{count: 2, cpu: 1, gpus: 8}]}
"""
"""At 100 s a gang needs the surplus of the gang ``elastic``, and at 3600 s a gang needs both nodes."""


def test_preemption_evicts_surplus_first_and_starts_evicted_gangs_again(simulate: Simulate) -> None:
    (simulate.folder / "s.yaml").write_text(SURPLUS)
    [run] = answer(simulate.scenario("--preemption", "-o", "json"))["runs"]
    assert run["waitingSeconds"]["priority 10"]["max"] == 0.0
    assert run["gangsPreempted"] == 1
    assert run["lostGpuHours"] == round((2 * 2 * 100 + 8 * 3600) / 3600, 3)
    assert run["podsFailed"] == 2
    assert run["makespanSeconds"] == 3600 + 500 + 7200
    assert "PREEMPTED" in simulate.scenario("--preemption").stdout
    [without] = answer(simulate.scenario("-o", "json"))["runs"]
    assert without["gangsPreempted"] == 0
    assert without["waitingSeconds"]["priority 10"]["max"] == 3600.0


FAIR = """
nodes: [{name: n, cpu: 64, memory: 256Gi, gpus: 8}]
workload:
- {name: many, namespace: a, repeat: 8, every: 0, run: 100, members: [{cpu: 1, gpus: 8}]}
- {name: one, namespace: b, arrival: 50, run: 100, members: [{cpu: 1, gpus: 8}]}
"""
"""A namespace has eight gangs, one after the other. Another namespace comes later with one gang."""


@pytest.mark.parametrize(("options", "wait"), [((), 750.0), (("--fair-share",), 50.0)])
def test_fair_order_starts_the_gang_of_the_namespace_that_has_used_less(simulate: Simulate, options: tuple[str, ...], wait: float) -> None:
    (simulate.folder / "s.yaml").write_text(FAIR)
    [run] = answer(simulate.scenario(*options, "-o", "json"))["runs"]
    assert run["waitingSeconds"]["namespace b"]["max"] == wait


def test_table_of_a_scenario_shows_how_long_gangs_have_waited_by_size(simulate: Simulate) -> None:
    (simulate.folder / "s.yaml").write_text(CASE)
    lines = [line.split() for line in simulate.scenario().stdout.splitlines()]
    place = lines.index(["STRATEGY", "GANGS", "WITH", "GANGS", "WAIT", "P50", "S", "P95", "S", "LONGEST", "S"])
    assert lines[place + 1] == ["genetic", "4-15", "GPUs", "6", "0.0", *lines[place + 1][5:]]
    assert [line[1:3] for line in lines[place + 2 :]] == [["priority", "1000"], ["priority", "0"]]


def test_policy_without_effect_is_noted(simulate: Simulate) -> None:
    assert (
        "note: --policy, --preemption and --fair-share are for gangs"
        in simulate.trace("--policy", "strict", "--strategy", "fgd", "--seeds", "1").stderr
    )
