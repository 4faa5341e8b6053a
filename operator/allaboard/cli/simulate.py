"""``allaboard simulate``: replay a workload on simulated nodes, without any cluster.

Only the answer goes to stdout, so that scripts can read it; notes, progress and errors go to stderr.
"""

import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from allaboard.cli.inputs import BadInputError
from allaboard.cli.tables import PlainTable, print_tables
from allaboard.placement import SearchSettings
from allaboard.placement.strategies.named import UnknownStrategyError
from allaboard.placement.strategies.trial import StrategyError
from allaboard.planning.planner import SEED
from allaboard.planning.policy import POLICY, SKIP, STRICT, Policy
from allaboard.plugins import DEFAULT_STRATEGY
from allaboard.settings.options import SettingsError, load_settings
from allaboard.simulation.charts import ChartError, check_chart, draw_chart
from allaboard.simulation.players import ONE_BY_ONE, player_names
from allaboard.simulation.scenario import ScenarioError, read_scenario
from allaboard.simulation.state import BadAssignmentError
from allaboard.simulation.sweep import Job, Run, SweepError, run_here, run_on_dask
from allaboard.simulation.trace import TraceError, read_nodes, read_tasks
from allaboard.simulation.waits import as_figures, expected_start_error, mean_slowdown, waits_of
from allaboard.simulation.workload import Workload, WorkloadError, workload_of

_DEFAULT_SEEDS = {False: tuple(range(SEED, SEED + 10)), True: (SEED,)}
"""Default seeds of CSV files (False) and YAML files (True). One seed is enough for a YAML file, since its gangs aren't shuffled."""
_POLICIES = {"skip": SKIP, "strict": STRICT, "easy": POLICY}
_COLUMNS = {
    "gpusTotal": 0,
    "gpusUnallocatedPercent": 2,
    "fragmentationPercent": 2,
    "podsFailed": 0,
    "gangsPlaced": 0,
    "waitingSecondsMean": 1,
    "makespanSeconds": 1,
}
"""Figures of the table, and their decimal places."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The runs of one strategy, by seed."""

    strategy: str
    batch: int
    runs: tuple[Run, ...]

    @property
    def elapsed_seconds(self) -> float:
        """Sum of the durations of the runs, in seconds; runs may overlap."""
        return sum(run.seconds for run in self.runs)


def simulate(
    nodes_file: str | None,
    pods_file: str | None,
    filename: str | None,
    inflate: float,
    seeds: tuple[int, ...] | None,
    strategies: tuple[str, ...],
    objective: str | None,
    batch: int,
    output: str,
    plot: str | None,
    workers: int | None,
    dask: str | None,
    policy: str | None,
    preemption: bool,
    fair_share: bool,
) -> None:
    """Replay the workload, and print what stays unused. Raises ``BadInputError``."""
    names = tuple(dict.fromkeys(strategies)) or (DEFAULT_STRATEGY,)
    try:
        unknown = [name for name in names if name not in player_names()]
        if unknown:
            raise UnknownStrategyError(f"there is no strategy {unknown[0]!r}; known are {', '.join(player_names())}")
        _note_ignored(names, filename, objective, workers, dask)
        if (policy or preemption or fair_share) and (not filename or names != (DEFAULT_STRATEGY,)):
            click.echo(
                "note: --policy, --preemption and --fair-share are for gangs of -f that genetic places; else any gang that fits starts",
                err=True,
            )
        _note_equal_runs(names, filename, batch, len(seeds or ()))
        if plot is not None:
            check_chart(plot)
        settings = load_settings({"objective": objective} if objective else None)
        workload = _workload(nodes_file, pods_file, filename)
        _note_missing_models(workload)
        search = SearchSettings(**settings.search.model_dump())
        factor = None if workload.waits else inflate
        stated = Policy.by(settings)
        chosen = replace(
            _POLICIES[policy] if policy else stated,
            preemption=replace(stated.preemption, is_on=preemption),
            fair_share=stated.fair_share.model_copy(update={"enabled": stated.fair_share.enabled or fair_share}),
        )
        jobs = [
            Job(workload, name, seed, batch, factor, settings.objective, search, settings.strategy_options.by_name.get(name, {}), chosen)
            for name in names
            for seed in seeds or _DEFAULT_SEEDS[workload.waits]
        ]
        outcomes = _run(jobs, names, batch, workers or os.cpu_count() or 1, dask)
        if plot is not None:
            draw_chart({outcome.strategy: outcome.runs for outcome in outcomes}, plot, waits=workload.waits)
    except WorkloadError as error:
        raise BadInputError(f"{pods_file}: {error}") from error
    except (
        TraceError,
        ScenarioError,
        SettingsError,
        UnknownStrategyError,
        ChartError,
        SweepError,
        BadAssignmentError,
        StrategyError,
    ) as error:
        raise BadInputError(str(error)) from error
    if output == "json":
        documents = [as_json(outcome, waits=workload.waits) for outcome in outcomes]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        _print_table(outcomes, waits=workload.waits)
        if workload.waits:
            _print_waits(outcomes)


def as_json(outcome: _Outcome, *, waits: bool) -> dict[str, Any]:
    """Return the answer for one strategy as a document."""
    runs = [_figures(run, waits=waits) for run in outcome.runs]
    return {
        "strategy": outcome.strategy,
        "batch": outcome.batch,
        "runs": [{"seed": run.seed} | figures | _waits(run, waits=waits) for run, figures in zip(outcome.runs, runs, strict=True)],
        "mean": {
            key: round(statistics.mean(figures[key] for figures in runs), 4) for key in runs[0] if all(key in figures for figures in runs)
        },
        "elapsedSeconds": round(outcome.elapsed_seconds, 3),
    }


def _figures(run: Run, *, waits: bool) -> dict[str, float]:
    replay = run.replay
    figures: dict[str, float] = {
        "gpusTotal": replay.gpus_total,
        "gpusUnallocatedPercent": round(replay.gpus_unallocated_percent, 4),
        "podsFailed": replay.pods_failed,
        "fragmentationPercent": round(replay.fragmentation_percent, 4),
    }
    if waits:
        figures |= {
            "gangsPlaced": replay.gangs_placed,
            "gangsFailed": replay.gangs_failed,
            "waitingSecondsMean": round(replay.waiting_seconds_mean, 3),
            "makespanSeconds": round(replay.makespan_seconds, 3),
            "boundedSlowdownMean": round(mean_slowdown(replay.gangs), 3),
            "reservedIdlePercent": round(replay.reserved_idle_percent, 4),
            "gangsPreempted": replay.gangs_preempted,
            "lostGpuHours": round(replay.lost_seconds / 3600.0, 3),
        }
        if (error := expected_start_error(replay.gangs)) is not None:
            figures["expectedStartErrorSeconds"] = round(error, 1)
    return figures


def _waits(run: Run, *, waits: bool) -> dict[str, Any]:
    return {"waitingSeconds": as_figures(waits_of(run.replay.gangs))} if waits else {}


def _note_ignored(names: Sequence[str], filename: str | None, objective: str | None, workers: int | None, dask: str | None) -> None:
    """Print a note on each option that has no effect, since it may be a mistake."""
    if dask == "":
        raise click.UsageError("--dask needs an address such as tcp://scheduler:8786.")
    if filename and click.get_current_context().get_parameter_source("inflate") is ParameterSource.COMMANDLINE:
        click.echo("note: --inflate is for CSV files only; the workload of -f is replayed unchanged", err=True)
    if objective and ONE_BY_ONE.issuperset(names):
        click.echo(f"note: --objective is for genetic only; {', '.join(names)} ignores it", err=True)
    if dask and workers:
        click.echo("note: --workers has no effect with --dask, which uses no processes of this machine", err=True)


def _note_equal_runs(names: Sequence[str], filename: str | None, batch: int, seeds: int) -> None:
    """Print a note on strategies for which ``--seeds`` or ``--batch`` makes no difference."""
    alone = [name for name in names if name != DEFAULT_STRATEGY]
    fixed = [
        name for name in alone if name in ONE_BY_ONE and not name.endswith("random")
    ]  # for CSV files, the seed decides the order of tasks
    if filename and seeds > 1 and fixed:
        click.echo(f"note: --seeds makes no difference to {', '.join(fixed)} with -f", err=True)
    if filename and batch > 1:
        click.echo("note: --batch is for CSV files only; with -f, all gangs that are due at the same time are placed together", err=True)
    elif batch > 1 and alone:
        click.echo(f"note: --batch is for genetic only; {', '.join(alone)} places tasks one by one", err=True)


def _note_missing_models(workload: Workload) -> None:
    tasks = sum(workload.popularity)
    for models, count in workload.missing_models.items():
        click.echo(f"note: no node has GPU model {' or '.join(models)} ({count} of {tasks} tasks)", err=True)


def _workload(nodes_file: str | None, pods_file: str | None, filename: str | None) -> Workload:
    if filename:
        if nodes_file or pods_file:
            raise click.UsageError("-f holds nodes and workload: state either -f, or --nodes and --pods.")
        return read_scenario(filename)
    if not (nodes_file and pods_file):
        raise click.UsageError("Name what to replay: --nodes CSV and --pods CSV, or -f YAML.")
    return workload_of(read_nodes(nodes_file), read_tasks(pods_file))


def _run(jobs: Sequence[Job], names: Sequence[str], batch: int, workers: int, dask: str | None) -> list[_Outcome]:
    found: dict[str, list[Run]] = {name: [] for name in names}
    with _progress(len(jobs)) as progress:
        for run in run_on_dask(jobs, dask) if dask else run_here(jobs, workers):
            found[run.strategy].append(run)
            progress.add(run)
    return [_Outcome(name, batch, tuple(sorted(found[name], key=lambda run: run.seed))) for name in names]


class _ProgressReport(Protocol):
    def add(self, run: Run) -> None: ...


class _Bar:
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("replaying", total=total, last="")

    def add(self, run: Run) -> None:
        self._progress.update(self._task, advance=1, last=_summary(run))


class _Lines:
    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def add(self, run: Run) -> None:
        self._done += 1
        click.echo(f"{self._done} of {self._total} runs: {_summary(run)}", err=True)


def _summary(run: Run) -> str:
    return f"{run.strategy}, seed {run.seed}: {run.replay.gpus_unallocated_percent:.2f} % unallocated ({run.seconds:.1f} s)"


@contextmanager
def _progress(total: int) -> Iterator[_ProgressReport]:
    """Show the progress on stderr: a bar on a terminal, else a line for each run."""
    if not sys.stderr.isatty():
        yield _Lines(total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[last]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress, total)


def _print_table(outcomes: Sequence[_Outcome], *, waits: bool) -> None:
    table = PlainTable(padding=(0, 2, 0, 0), header_style="bold", pad_edge=True)
    headings = ["STRATEGY", "BATCH", "SEED", "GPUS", "UNALLOCATED %", "FRAGMENTATION %", "PODS FAILED"]
    columns = dict(_COLUMNS)
    if any(run.replay.gangs_preempted for outcome in outcomes for run in outcome.runs):
        columns |= {"gangsPreempted": 0, "lostGpuHours": 1}
    headings += ["GANGS PLACED", "WAITING S", "MAKESPAN S"] if waits else []
    headings += ["PREEMPTED", "LOST GPU H"] if len(columns) > len(_COLUMNS) else []
    for number, heading in enumerate([*headings, "SECONDS"]):
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    for outcome in outcomes:
        rows = [(str(run.seed), [run], run.seconds) for run in outcome.runs]
        if len(rows) > 1:
            rows.append(("mean", list(outcome.runs), statistics.fmean(run.seconds for run in outcome.runs)))
        for seed, runs, seconds in rows:
            figures = [_figures(run, waits=waits) for run in runs]
            cells = [
                f"{statistics.fmean(each[key] for each in figures):.{digits}f}" for key, digits in columns.items() if key in figures[0]
            ]
            style = "bold" if seed == "mean" else None
            table.add_row(outcome.strategy, str(outcome.batch), seed, *cells, f"{seconds:.1f}", style=style)
    print_tables(table)


def _print_waits(outcomes: Sequence[_Outcome]) -> None:
    """Print how long gangs have waited, by size and priority; with several seeds, the gangs of all runs together."""
    table = PlainTable(padding=(0, 2, 0, 0), header_style="bold", pad_edge=True)
    for number, heading in enumerate(("STRATEGY", "GANGS WITH", "GANGS", "WAIT P50 S", "P95 S", "LONGEST S")):
        table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=True)
    for outcome in outcomes:
        for each in waits_of([gang for run in outcome.runs for gang in run.replay.gangs]):
            figures = (f"{seconds:.1f}" for seconds in (each.p50, each.p95, each.longest))
            table.add_row(outcome.strategy, each.title, str(each.gangs), *figures)
    if table.row_count:
        click.echo()
        print_tables(table)
