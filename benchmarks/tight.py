"""Measure how many gangs that fit are missed, by how close they are to the largest gang that fits.

For each state of a cluster and each family of gangs (`tight_cases.py`), the judge finds how many members fit. The judge is a solver that is
independent of the search (`judge.py`). At 100, 95, 90 and 80 % of that size every gang fits, so a contender that doesn't place the gang has
missed it. One contender places one pod at a time, as kube-scheduler does (LeastAllocated, pods in creation order). Others are each greedy
rule with each order of roles, and the best of all these. The last are the search without some of its steps, and the search as shipped. With
one member more than fits, the search has to prove that the gang doesn't fit, or answer that it doesn't know.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allaboard.placement import Plan, Problem, SearchSettings, greedy_seeds, search
from allaboard.placement.solvers.improve import STEPS
from allaboard.placement.solvers.milp import satisfies
from judge import SECONDS
from openb import ALL_NODES, existing, openb
from tight_cases import FAMILIES, Case, cases

PERCENT = (100, 95, 90, 80)
KUBE, BEST, SHIPPED = "kube-like (spread/given)", "best of all greedy", "as shipped"
PARTS = {
    "polish alone": ("polish",),
    "polish and solver": ("polish", "solver"),
    "polish and evolution": ("polish", "evolution"),
    SHIPPED: STEPS,
}

progress = Console(stderr=True, highlight=False)


@dataclass(slots=True)
class Tally:
    """Results at one percentage of the largest size.

    ``gangs``: number of gangs. ``tried``, ``missed``: number of gangs by contender. ``seconds``: processor seconds of each search by
    contender. ``found_by``: number of gangs by the search step that placed them first. ``missed_by_family``: by (family, contender).
    """

    gangs: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PARTS})
    found_by: Counter[str] = field(default_factory=Counter)
    missed_by_family: Counter[tuple[str, str]] = field(default_factory=Counter)


def measure(case: Case, percent: int, tally: Tally) -> None:
    """Let every contender place one gang. Raises ``AssertionError`` if the search says that the gang doesn't fit."""
    problem = case.problem(percent)
    tally.gangs += 1
    placed = {name: satisfies(problem, counts) for name, counts in greedy_seeds(problem)}
    contenders = dict(placed)
    contenders[BEST] = any(placed.values())
    contenders[KUBE] = placed["spread/given"]
    for name, steps in PARTS.items():
        started = time.process_time()
        plan = search(problem, SearchSettings(), seed=case.most, steps=steps)
        tally.seconds[name].append(time.process_time() - started)
        if plan.feasible is False:
            raise AssertionError(f"the search says that a gang can't be placed, but it fits: {case.state} {case.family} {percent} %")
        contenders[name] = plan.feasible is True
        if plan.feasible:
            check(problem, plan)
    tally.found_by[plan.search.found_by or "nobody"] += 1
    for name, is_placed in contenders.items():
        tally.tried[name] += 1
        tally.missed[name] += not is_placed
        tally.missed_by_family[case.family, name] += not is_placed


def check(problem: Problem, plan: Plan) -> None:
    """Check independently of the search that ``plan`` places all pods within capacity. Raises ``AssertionError`` if it doesn't."""
    row = {name: row for row, name in enumerate(problem.nodes)}
    role = {uid: row for row, one in enumerate(problem.roles) for uid in one.pods}
    counts = np.zeros((len(problem.roles), len(row)), dtype=np.int64)
    for uid, name in plan.assignments:
        counts[role.pop(uid), row[name]] += 1
    if role or (problem.demand.T @ counts > problem.free).any() or counts[~problem.admits].any():
        raise AssertionError("the search has returned a plan that isn't valid")


@dataclass(slots=True)
class Over:
    """The search's answers for gangs with one member more than is known to fit."""

    verdicts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """Processor seconds of the searches in which the simple bounds didn't prove that the gang doesn't fit."""

    def measure(self, case: Case) -> None:
        """Search one gang, and record the answer. Raises ``AssertionError`` if a gang is placed that is proved not to fit."""
        started = time.process_time()
        plan = search(case.over(), SearchSettings(), seed=case.most)
        took = time.process_time() - started
        if plan.feasible and case.is_proved:
            raise AssertionError(f"the search placed a gang that can't fit: {case.state} {case.family}, {case.most + 1} members")
        if plan.search.stopped_by != "bound":
            self.seconds.append(took)
        verdict = {False: "proved that it can't", True: "placed: the judge hadn't found that", None: "not known"}[plan.feasible]
        self.verdicts[verdict] += 1


def report(
    tallies: Mapping[int, Tally], sizes: Mapping[str, Sequence[int]], over: Over, undecided: Sequence[Case], elapsed: float
) -> dict[str, object]:
    """Return all figures as a JSON document."""
    names = sorted({name for tally in tallies.values() for name in tally.missed}, key=_sort_key)
    return {
        "gangs": {str(percent): tally.gangs for percent, tally in tallies.items()},
        "undecided": [f"{case.family} on {case.state}: {case.most} fit, {case.most + 1} isn't known" for case in undecided],
        "oneOver": {**over.verdicts, "seconds": _times(over.seconds)},
        "missedPercent": {name: {str(percent): _share(tally, name) for percent, tally in tallies.items()} for name in names},
        "missedPercentAtMost": {
            family: {name: round(100 * tallies[PERCENT[0]].missed_by_family[family, name] / len(most), 1) for name in (KUBE, BEST, *PARTS)}
            for family, most in sizes.items()
        },
        "largestGang": {
            family: {"least": min(most), "median": statistics.median(most), "most": max(most)} for family, most in sizes.items()
        },
        "seconds": {name: {str(percent): _times(tally.seconds[name]) for percent, tally in tallies.items()} for name in PARTS},
        "foundBy": {str(percent): tally.found_by for percent, tally in tallies.items()},
        "elapsedSeconds": round(elapsed, 1),
    }


def _times(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile of processor seconds; zeros without any."""
    values = np.array(seconds or [0.0])
    return {"median": round(float(np.median(values)), 4), "p99": round(float(np.quantile(values, 0.99)), 3)}


def _share(tally: Tally, name: str) -> float | None:
    """Return the percentage of gangs that the contender ``name`` missed, among the gangs that it tried; None if it tried none.

    A contender doesn't try a gang if an earlier contender with the same greedy rule takes the roles in the same order.
    """
    return round(100 * tally.missed[name] / tally.tried[name], 1) if tally.tried[name] else None


def _sort_key(name: str) -> tuple[int, str]:
    ours = (BEST, *PARTS)
    return (0, name) if name == KUBE else (2 + ours.index(name), name) if name in ours else (1, name)


def show(found: dict[str, Any]) -> None:
    """Print the figures as tables."""
    console = Console()
    percents = list(found["gangs"])
    missed = Table("feasible gangs missed, %", *(f"at {percent} %" for percent in percents), box=None)
    for name, shares in found["missedPercent"].items():
        missed.add_row(name, *(f"{shares[percent]:.1f}" if shares[percent] is not None else "–" for percent in percents))
    missed.add_row("gangs", *(str(found["gangs"][percent]) for percent in percents))
    console.print(missed, "")
    families = Table("family, at 100 %", "largest gang", KUBE, BEST, *PARTS, box=None)
    for family, shares in found["missedPercentAtMost"].items():
        sizes = found["largestGang"][family]
        families.add_row(family, f"{sizes['least']}–{sizes['most']}", *(f"{shares[name]:.1f}" for name in (KUBE, BEST, *PARTS)))
    console.print(families, "")
    times = Table("processor seconds, median (p99)", *(f"at {percent} %" for percent in percents), box=None)
    for name, by_percent in found["seconds"].items():
        times.add_row(name, *(f"{by_percent[percent]['median']:.3f} ({by_percent[percent]['p99']:.2f})" for percent in percents))
    steps = sorted({step for by_step in found["foundBy"].values() for step in by_step})
    for step in steps:
        times.add_row(
            "gangs not placed" if step == "nobody" else f"gangs placed first by {step}",
            *(str(found["foundBy"][percent].get(step, 0)) for percent in percents),
        )
    console.print(times, "")
    over = dict(found["oneOver"])
    seconds = over.pop("seconds")
    console.print(
        "one member more than is known to fit: " + ", ".join(f"{verdict} {number}" for verdict, number in over.items()), highlight=False
    )
    console.print(f"where the simple bounds don't decide: median {seconds['median']:.2f} s, p99 {seconds['p99']:.2f} s")
    console.print(f"undecided by the judge: {len(found['undecided'])}", *found["undecided"], sep="\n  ", highlight=False)
    console.print(f"{found['elapsedSeconds']} s")


def main() -> None:
    """Measure and print tables or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    nodes_help = "node list of the openb trace; by default that of the folder OPENB, or made-up nodes like those of the trace"
    parser.add_argument("--nodes", type=existing, metavar="CSV", default=openb(ALL_NODES), help=nodes_help)
    parser.add_argument("--size", type=int, default=400, help="nodes of a state (%(default)s)")
    parser.add_argument("--states", type=int, default=20, help="states of the cluster (%(default)s), each with a gang of every family")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="seconds that the judge may take for one size (%(default)s)")
    parser.add_argument("--name", default="tight", help="another name draws other states, which weren't used for tuning (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a sample: 60 nodes, 3 states, at 100 and 90 %%, a judge of one second")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    size, states, percents = (60, 3, PERCENT[::2]) if arguments.quick else (arguments.size, arguments.states, PERCENT)
    seconds = 1.0 if arguments.quick else arguments.seconds
    started = time.monotonic()
    tallies = {percent: Tally() for percent in percents}
    sizes: dict[str, list[int]] = {}
    over, undecided = Over(), list[Case]()
    every = cases(size, states, list(FAMILIES), arguments.nodes, seconds=seconds, name=arguments.name)
    for case in track(every, total=states * len(FAMILIES), console=progress, description="gangs", transient=True):
        if case is None:
            continue
        if not case.is_proved:
            undecided.append(case)
        over.measure(case)
        sizes.setdefault(case.family, []).append(case.most)
        for percent, tally in tallies.items():
            measure(case, percent, tally)
    found = report(tallies, sizes, over, undecided, time.monotonic() - started)
    if arguments.output == "json":
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        show(found)


if __name__ == "__main__":
    main()
