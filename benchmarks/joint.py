"""Measure how many GPUs a queue of gangs puts to work if its gangs are placed together, and if they are placed one after another.

A queue has 12 to 24 gangs of equal priority, which request 0.9 or 1.3 times the free GPUs (`joint_cases.py`). The contenders are first come
first served (FIFO), the smallest gang first, the largest gang first, and the joint search. An integer program adds the exact choice and its
bound. FIFO is either strict, so that a gang that doesn't fit holds up all gangs behind it, or skips such a gang. The joint search runs as
shipped and with parts left out.

A share is relative to the GPUs that are free or requested, whichever is less. A gain is relative to skipping FIFO. *Left out* are gangs
that skipping FIFO would have placed. Gangs placed one after another get slots by the joint search's own rules: binpack first, then the
other rules.
"""

import json
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, SearchSettings, verify
from allaboard.placement.contest.contest import Contest, Waiting, contest_of
from allaboard.placement.contest.decoder import Decoder
from allaboard.placement.contest.joint import Joint, place_together
from allaboard.placement.rules.program import Rows
from allaboard.placement.solvers.milp_model import add_capacity, assignment_variables, contended
from allaboard.planning.search_processes import JOINT_EFFORT
from joint_cases import LOADS, queue
from openb import ALL_NODES, openb
from tight_cases import GPU

STRICT, SKIP, SMALL, LARGE = "FIFO, strict", "FIFO, skipping", "small first", "large first"
SORTED, EVOLVED, SOLVED, OURS = "ours, sorted orders", "ours, solver off", "ours, genetic off", "ours"
EXACT, BOUND = "exact", "bound"
QUEUES, NODES = 12, 400
SECONDS = 10.0

progress = Console(stderr=True, highlight=False)


@dataclass(slots=True)
class Tally:
    """Results of the queues of one load.

    Lists have one entry for each queue. ``gangs``: number of gangs. ``possible``: GPUs that are free or requested, whichever is less.
    ``gpus``, ``seconds``: GPUs at work and wall-clock seconds, by contender. ``placed``: gangs of all queues, by contender.
    ``generations``, ``orders``: by the joint search as shipped, generations of its genetic search and orders tried.
    """

    gangs: list[int] = field(default_factory=list)
    possible: list[float] = field(default_factory=list)
    gpus: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    placed: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    """Gangs of all queues that the contender doesn't place although skipping FIFO places them."""
    generations: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)


def measure(cluster: Snapshot, gangs: Sequence[Waiting], tally: Tally) -> None:
    """Let every contender place one queue."""
    contest = contest_of(gangs, cluster)
    gpus = [gang.most_gpus / 1000 for gang in contest.gangs]
    column = cluster.resources.index(GPU)
    tally.gangs.append(len(gangs))
    tally.possible.append(min(sum(gpus), float((cluster.allocatable - cluster.used)[:, column].sum())))

    skipped: set[int] = set()

    def record(name: str, found: float, started: float, placed: Collection[int] | None = None) -> None:
        tally.gpus[name].append(found)
        tally.seconds[name].append(time.perf_counter() - started)
        if name == SKIP and placed is not None:
            skipped.update(placed)
        if placed is not None:
            tally.placed[name] += len(placed)
            tally.left_out[name] += len(skipped.difference(placed))

    given = list(range(len(gangs)))
    small = sorted(given, key=lambda position: gpus[position])
    for name, order in ((SKIP, given), (STRICT, given), (SMALL, small), (LARGE, small[::-1])):
        started = time.perf_counter()
        placed = one_by_one(contest, order, is_strict=name == STRICT)
        record(name, sum(gpus[position] for position in placed), started, placed)
    for name, parts in (
        (SORTED, {"use_genetic": False, "use_solver": False}),
        (EVOLVED, {"use_solver": False}),
        (SOLVED, {"use_genetic": False}),
        (OURS, {}),
    ):
        started = time.perf_counter()
        joint = place_together(contest_of(gangs, cluster, NodeFilters()), SearchSettings(effort=JOINT_EFFORT), **parts)
        record(name, sum(gpus[position] for position in joint.taken), started, joint.taken)
        check(joint, gangs, cluster)
    tally.generations.append(joint.generations)
    tally.orders.append(joint.orders)
    started = time.perf_counter()
    found, bound = exact(contest)
    record(EXACT, found, started)
    record(BOUND, bound, started)


def one_by_one(contest: Contest, order: Sequence[int], *, is_strict: bool) -> list[int]:
    """Return the positions of the gangs that are placed if the gangs are tried one after another in ``order``.

    ``is_strict``: whether the first gang that doesn't fit ends the attempts.
    """
    decoder, placed = Decoder(contest), []
    table = decoder.start.copy()
    for position in order:
        slots = decoder.find(table, position)
        if slots is not None:
            decoder.take(table, contest.gangs[position], slots)
            placed.append(position)
        elif is_strict:
            break
    return placed


def check(joint: Joint, gangs: Sequence[Waiting], cluster: Snapshot) -> None:
    """Verify the plans of all gangs together. Raises ``AssertionError`` if they break a rule or a capacity."""
    assignments = dict(pair for plan in joint.plans if plan for pair in plan.assignments)
    wrong = verify(assignments, [pod for gang in gangs for pod in gang.pods], cluster)
    if wrong:
        raise AssertionError(f"the plans of the joint search aren't valid together: {wrong[0]}")


def exact(contest: Contest) -> tuple[float, float]:
    """Return the GPUs at work by the best choice that is found within ``SECONDS``, and a number of GPUs that no choice exceeds."""
    problem, gangs = contest.problem, contest.gangs
    slots = np.minimum(problem.slots, problem.count[:, None])
    where = contended(problem.demand, slots, problem.free)
    variables = assignment_variables(problem, slots, np.asarray(where.any(axis=0)))
    rows, pods = Rows(), len(variables.role)
    add_capacity(rows, problem, where, variables)
    role = np.concatenate([gang.roles for gang in gangs])
    column = pods + np.repeat(np.arange(len(gangs)), [len(gang.roles) for gang in gangs])
    value = -np.concatenate([gang.count for gang in gangs]).astype(np.float64)
    nothing = np.zeros(len(problem.roles))
    rows.add(
        np.concatenate([variables.role, role]),
        np.concatenate([np.arange(pods), column]),
        np.concatenate([np.ones(pods), value]),
        nothing,
        nothing,
    )
    cost = np.concatenate([np.zeros(pods), [-gang.most_gpus / 1000 for gang in gangs]])
    upper = np.concatenate([variables.most, np.ones(len(gangs))])
    entries = (np.concatenate(rows.value), (np.concatenate(rows.row), np.concatenate(rows.column)))
    matrix = csr_array(entries, shape=(rows.size, len(cost)))
    result = milp(
        cost,
        integrality=np.ones(len(cost)),
        bounds=Bounds(np.zeros(len(cost)), upper),
        constraints=LinearConstraint(matrix, np.concatenate(rows.low), np.concatenate(rows.high)),
        options={"time_limit": SECONDS, "mip_rel_gap": 0.0},
    )
    return (0.0 if result.x is None else -result.fun), -result.mip_dual_bound


def report(tallies: dict[float, Tally], elapsed: float) -> dict[str, object]:
    """Return all figures as a JSON document."""
    names = [STRICT, SKIP, SMALL, LARGE, SORTED, EVOLVED, SOLVED, OURS, EXACT, BOUND]

    def every(name: str) -> np.ndarray:
        return np.concatenate([tally.gpus[name] for tally in tallies.values()])

    skip, bound = every(SKIP), every(BOUND)
    seconds = {name: np.concatenate([tally.seconds[name] for tally in tallies.values()]) for name in names}
    return {
        "queues": {str(load): len(tally.gangs) for load, tally in tallies.items()},
        "gangs": {str(load): {"least": min(tally.gangs), "most": max(tally.gangs)} for load, tally in tallies.items()},
        "atWorkPercent": {
            name: {
                str(load): round(100 * float(np.mean(np.divide(tally.gpus[name], tally.possible))), 2) for load, tally in tallies.items()
            }
            for name in names
        },
        "gainPercent": {name: _summary(100 * (every(name) / skip - 1), ("mean", "median", "max")) for name in names},
        "belowBoundPercent": {name: _summary(100 * (1 - every(name) / bound), ("mean", "max")) for name in names},
        "gangsPlaced": {name: sum(tally.placed[name] for tally in tallies.values()) for name in names},
        "gangsLeftOut": {name: sum(tally.left_out[name] for tally in tallies.values()) for name in names},
        "seconds": {name: _summary(seconds[name], ("mean", "max")) for name in names},
        "generations": {str(load): statistics.median(tally.generations) for load, tally in tallies.items()},
        "orders": {str(load): statistics.median(tally.orders) for load, tally in tallies.items()},
        "elapsedSeconds": round(elapsed, 1),
    }


def _summary(figures: np.ndarray, what: Sequence[str]) -> dict[str, float]:
    return {name: round(float(getattr(np, name)(figures)), 3) + 0.0 for name in what}


def show(found: dict[str, Any]) -> None:
    """Print the figures as a table."""
    console = Console()
    loads = list(found["queues"])
    table = Table(
        "% at work", *(f"at {load}" for load in loads), "gain (median, max)", "gap (max)", "gangs", "left out", "s (max)", box=None
    )
    for name, shares in found["atWorkPercent"].items():
        gain, below, seconds = (found[key][name] for key in ("gainPercent", "belowBoundPercent", "seconds"))
        table.add_row(
            name,
            *(f"{shares[load]:.1f}" for load in loads),
            f"{gain['mean']:+.2f} ({gain['median']:+.1f}, {gain['max']:+.1f})",
            f"{below['mean']:.2f} ({below['max']:.2f})",
            *(str(found[key][name] or "–") for key in ("gangsPlaced", "gangsLeftOut")),
            f"{seconds['mean']:.2f} ({seconds['max']:.2f})",
        )
    console.print(table, "")
    for load in loads:
        gangs = found["gangs"][load]
        console.print(
            f"at {load}: {found['queues'][load]} queues of {gangs['least']}–{gangs['most']} gangs; "
            f"{found['generations'][load]:.0f} generations and {found['orders'][load]:.0f} orders (medians)"
        )
    console.print(f"{found['elapsedSeconds']} s")


@click.command(help=__doc__)
@click.option("--nodes", "source", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A node list of the openb trace.")
@click.option("--size", default=NODES, show_default=True, help="Nodes of a cluster.")
@click.option("--queues", default=QUEUES, show_default=True, help="Queues of each load.")
@click.option("--quick", is_flag=True, help="A sample: 60 nodes, 3 queues of each load.")
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True)
def main(source: Path | None, size: int, queues: int, quick: bool, output: str) -> None:
    """Measure and print a table or JSON."""
    source = source or openb(ALL_NODES)
    if quick:
        size, queues = 60, 3
    started = time.monotonic()
    tallies = {load: Tally() for load in LOADS}
    every = [(load, number) for load in LOADS for number in range(queues)]
    for load, number in track(every, console=progress, description="queues", transient=True):
        measure(*queue(number, size, load, source), tallies[load])
    found = report(tallies, time.monotonic() - started)
    if output == "json":
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        show(found)


if __name__ == "__main__":
    main()
