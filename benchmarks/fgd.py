"""Measure how many GPUs stay unallocated by the protocol of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023).

The cluster has 1,213 GPU nodes with 6,212 GPUs. Tasks of the openb trace, shuffled and inflated to 130 % of all GPUs, arrive one by one and
stay. Our search has the shipped settings, and places one pod at a time or batches of pending pods. All baselines get the same shuffles: the
seeds 42 to 51, and 100 to 109, which were not used for tuning.
The trace is not in this repository: name its folder in OPENB, or name the files. Without the trace, and with --quick, a small made-up
cluster is used, whose figures can't be compared with the published ones.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from allaboard.placement import SearchSettings
from allaboard.settings.options import Settings
from allaboard.simulation.sweep import Job, Run, run_here
from allaboard.simulation.trace import read_nodes, read_tasks
from allaboard.simulation.workload import SimNode, TaskClass, Workload, workload_of
from openb import GPU_NODES, TASKS, existing, openb

PUBLISHED = {"fgd": 4.61, "fgd-bestfit": 6.92, "fgd-random": 12.53}
BASELINES = ("fgd", "fgd-bestfit", "fgd-firstfit", "fgd-random")
OURS = "genetic"
SEEDS = (range(42, 52), range(100, 110))
BATCHES = (1, 16, 64)
QUICK_SEEDS = (range(42, 44),)
QUICK_BATCHES = (1, 16)
INFLATE = 1.3
GI = 1024**3

progress = Console(stderr=True, highlight=False)


def made_up(nodes: int = 40, tasks: int = 250) -> Workload:
    """Return a workload of nodes with two or eight GPUs, and of tasks that request no GPU, a share of one, one or several."""
    rng = random.Random(7)
    shapes = ((64, 256, 2, "T4"), (96, 384, 8, "G2"), (96, 384, 8, "G2"))
    machines = []
    for index in range(nodes):
        cpu, memory, gpus, model = rng.choice(shapes)
        machines.append(SimNode(f"node-{index}", cpu * 1000, memory * GI, gpus, model))
    found = []
    for index in range(tasks):
        gpus, milli = rng.choices(((0, 0), (1, 250), (1, 450), (1, 800), (1, 1000), (2, 1000), (8, 1000)), (13, 9, 10, 14, 50, 2, 2))[0]
        cpu = rng.choice((3, 6, 11)) * max(1, gpus)
        found.append((f"task-{index}", TaskClass(cpu * 1000, 4 * cpu * GI, gpus, milli)))
    return workload_of(machines, found)


def jobs_of(workload: Workload, seeds: Sequence[range], batches: Sequence[int], contenders: Sequence[str]) -> Iterator[Job]:
    """Yield a job for each contender, batch size and seed. Baselines place pods one by one, so their only batch size is 1."""
    settings = Settings.model_construct()
    search = SearchSettings(**settings.search.model_dump())
    for name in contenders:
        for batch in batches if name == OURS else (1,):
            for seed_set in seeds:
                for seed in seed_set:
                    yield Job(workload, name, seed, batch, INFLATE, settings.objective, search)


def tabulated(runs: Sequence[Run], seeds: Sequence[range]) -> list[dict[str, object]]:
    """Return one row for each set of seeds, strategy and batch size; means are over the seeds of the set."""
    rows: list[dict[str, object]] = []
    for seed_set in seeds:
        runs_of_set = [run for run in runs if run.seed in seed_set]
        kinds = list(dict.fromkeys((run.strategy, run.batch) for run in sorted(runs_of_set, key=_order)))
        means = {kind: statistics.fmean(_unallocated(runs_of_set, kind)) for kind in kinds}
        for kind in kinds:
            values = _unallocated(runs_of_set, kind)
            runs_of_kind = [run for run in runs_of_set if (run.strategy, run.batch) == kind]
            rows.append(
                {
                    "seeds": f"{seed_set[0]}-{seed_set[-1]}",
                    "strategy": kind[0],
                    "batch": kind[1],
                    "unallocatedPercent": round(means[kind], 3),
                    "deviation": round(statistics.stdev(values), 3) if len(values) > 1 else 0.0,
                    "pointsBelowFgd": round(means["fgd", 1] - means[kind], 3) if ("fgd", 1) in means else None,
                    "podsFailed": round(statistics.fmean(run.replay.pods_failed for run in runs_of_kind), 1),
                    "fragmentationPercent": round(statistics.fmean(run.replay.fragmentation_percent for run in runs_of_kind), 3),
                    "secondsPerRun": round(statistics.fmean(run.seconds for run in runs_of_kind), 1),
                }
            )
    return rows


def _order(run: Run) -> tuple[int, int]:
    return (*BASELINES, OURS).index(run.strategy), run.batch


def _unallocated(runs: Sequence[Run], kind: tuple[str, int]) -> list[float]:
    return [run.replay.gpus_unallocated_percent for run in runs if (run.strategy, run.batch) == kind]


def show(rows: Sequence[dict[str, object]], is_published: bool, title: str) -> None:
    """Print the table. Published figures are shown only for the trace, on which they were measured."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("seeds", "strategy", "batch", "unallocated %", "±", "below fgd", "published %", "failed pods", "frag %", "s/run"):
        table.add_column(heading, justify="left" if heading in ("seeds", "strategy") else "right", no_wrap=True)
    for row in rows:
        published = PUBLISHED.get(str(row["strategy"])) if is_published else None
        values = [*list(row.values())[:6], "" if published is None else published, *list(row.values())[6:]]
        table.add_row(*("" if value is None else str(value) for value in values), style="bold" if row["strategy"] == OURS else None)
    Console(width=140).print(table)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small made-up cluster, two seeds: half a minute")
    parser.add_argument("--nodes", type=existing, default=openb(GPU_NODES), help="CSV of nodes")
    parser.add_argument("--pods", type=existing, default=openb(TASKS), help="CSV of tasks")
    parser.add_argument("--seeds", type=int, default=None, help="number of seeds of each set; all, if not given")
    parser.add_argument("--batch", type=int, action="append", help="only batches of this size; may be repeated")
    parser.add_argument("--strategy", action="append", choices=(*BASELINES, OURS), help="only this strategy; may be repeated")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    options = parser.parse_args()
    is_traced = bool(options.nodes and options.pods) and not options.quick
    workload = workload_of(read_nodes(str(options.nodes)), read_tasks(str(options.pods))) if is_traced else made_up()
    seeds = [seed_set[: options.seeds] for seed_set in (QUICK_SEEDS if options.quick else SEEDS)]
    batches = options.batch or (QUICK_BATCHES if options.quick else BATCHES)
    jobs = list(jobs_of(workload, seeds, batches, options.strategy or (*BASELINES, OURS)))
    started = time.perf_counter()
    runs = list(track(run_here(jobs, options.workers), "replaying", total=len(jobs), console=progress, disable=not sys.stderr.isatty()))
    rows = tabulated(runs, seeds)
    where = "the openb trace" if is_traced else "a made-up cluster"
    title = f"GPUs unallocated at 130 % load on {where}: {len(workload.nodes)} nodes, {workload.gpus} GPUs"
    show(rows, is_traced, f"{title} ({time.perf_counter() - started:.0f} s, {options.workers} processes)")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
