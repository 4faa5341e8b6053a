"""Measure how much of the free GPUs is fragmented as a cluster fills, for each objective and for the published baselines.

The protocol is the published one (`fgd.py`): tasks of the openb trace, shuffled and inflated, arrive one by one and stay. Example: the
column "80 % arrived" is the expected fragmentation, in percent of all GPUs, once tasks that request 80 % of all GPUs have arrived. The
trace is not in this repository: name its folder in OPENB.
"""

import json
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allaboard.model.gang import Objective
from allaboard.placement import SearchSettings
from allaboard.simulation.sweep import Job, Run, run_job
from allaboard.simulation.trace import read_nodes, read_tasks
from allaboard.simulation.workload import Workload, workload_of
from fgd import INFLATE, made_up
from openb import GPU_NODES, TASKS, openb

ARRIVED = (50, 80, 90, 100, 130)
BASELINES = ("fgd", "fgd-bestfit", "fgd-random")


def jobs(workload: Workload, seeds: range) -> list[tuple[str, Job]]:
    """Return a title and a job for each pair of an objective or baseline and a seed."""
    search = SearchSettings()
    ours = [
        (f"genetic, {objective.value}", "genetic", objective)
        for objective in (Objective.FRAGMENTATION, Objective.BINPACK, Objective.SPREAD)
    ]
    others = [(name, name, Objective.FRAGMENTATION) for name in BASELINES]
    return [
        (title, Job(workload, strategy, seed, 1, INFLATE, objective, search))
        for title, strategy, objective in (*ours, *others)
        for seed in seeds
    ]


def fragmentation_at(run: Run, arrived: int) -> float:
    """Return the fragmentation, in percent of all GPUs, at the last sample before the tasks request more than ``arrived`` percent.

    The tasks are those that have arrived until then; their requests, too, are in percent of all GPUs.
    """
    return [sample.fragmentation_percent for sample in run.replay.timeline if sample.arrived_percent <= arrived][-1]


@click.command()
@click.option("--seeds", default=2, show_default=True, help="Shuffles, from 42 on.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--quick", is_flag=True, help="A sample of some seconds, on a made-up cluster.")
def main(seeds: int, output: str, *, quick: bool) -> None:
    """Measure and print a table."""
    nodes, tasks = openb(GPU_NODES), openb(TASKS)
    workload = workload_of(read_nodes(str(nodes)), read_tasks(str(tasks))) if nodes and tasks and not quick else made_up()
    wanted = jobs(workload, range(42, 43 if quick else 42 + seeds))
    with ProcessPoolExecutor(min(len(wanted), os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        runs = list(track(pool.map(run_job, [job for _, job in wanted]), "replaying", len(wanted), console=Console(stderr=True)))
    found: dict[str, list[Run]] = {}
    for (title, _), run in zip(wanted, runs, strict=True):
        found.setdefault(title, []).append(run)
    figures = {
        title: {arrived: statistics.fmean(fragmentation_at(run, arrived) for run in same) for arrived in ARRIVED}
        for title, same in found.items()
    }
    if output == "json":
        print(json.dumps(figures, indent=2))
        return
    table = Table("", *(f"{arrived} % arrived" for arrived in ARRIVED), title="Expected fragmentation, % of all GPUs", box=None)
    for title, values in figures.items():
        table.add_row(title, *(f"{value:.2f}" for value in values.values()))
    Console(width=None if sys.stdout.isatty() else 130).print(table)


if __name__ == "__main__":
    main()
