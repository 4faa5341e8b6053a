"""How many gangs that fit are missed, the nearer they are to the largest that does.

For each state of a cluster and each family of gangs (`tight_cases.py`) the solver finds and proves the greatest size. At 100, 97, 90 and
80 % of it every gang fits: whoever doesn't place it has missed it. Compared are one-pod-at-a-time scheduling as kube-scheduler does it
(LeastAllocated, pods in creation order), each greedy rule and order of roles, the best of them all, the genetic search without the
solver, and the search as it is shipped.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allaboard.placement import SearchSettings, greedy_seeds, search
from allaboard.placement.solvers.feasibility import satisfies
from openb import ALL_NODES, openb
from tight_cases import FAMILIES, Case, LeftOut, cases

PERCENT = (100, 97, 90, 80)
KUBE, BEST, GENETIC, SHIPPED = "kube-like (spread/given)", "best of all greedy", "genetic search alone", "as shipped, with the solver"

progress = Console(stderr=True, highlight=False)


@dataclass(slots=True)
class Tally:
    """What happened at one tightness: gangs tried, and by contender those missed and the seconds each took."""

    gangs: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {GENETIC: [], SHIPPED: []})
    generations: list[int] = field(default_factory=list)
    missed_by_family: Counter[tuple[str, str]] = field(default_factory=Counter)


def measure(case: Case, percent: int, tally: Tally) -> None:
    """Let every contender place one gang."""
    problem = case.problem(percent)
    tally.gangs += 1
    placed = {name: satisfies(problem, counts) for name, counts in greedy_seeds(problem)}
    contenders = dict(placed)
    contenders[BEST] = any(placed.values())
    contenders[KUBE] = placed["spread/given"]
    started = time.perf_counter()
    plan = search(problem, SearchSettings(branches=0), seed=case.most)
    tally.seconds[GENETIC].append(time.perf_counter() - started)
    tally.generations.append(plan.search.generations)
    contenders[GENETIC] = plan.feasible is True
    started = time.perf_counter()
    plan = search(problem, SearchSettings(), seed=case.most)
    tally.seconds[SHIPPED].append(time.perf_counter() - started)
    if plan.feasible is False:
        raise AssertionError(f"the search called a gang impossible that fits: {case.state} {case.family} {percent} %")
    contenders[SHIPPED] = plan.feasible is True
    for name, is_placed in contenders.items():
        tally.tried[name] += 1
        tally.missed[name] += not is_placed
        tally.missed_by_family[case.family, name] += not is_placed


def report(
    tallies: Mapping[int, Tally], sizes: Mapping[str, Sequence[int]], left_out: Sequence[LeftOut], elapsed: float
) -> dict[str, object]:
    """All figures as a document."""
    names = sorted({name for tally in tallies.values() for name in tally.missed}, key=_place)
    return {
        "gangs": {str(percent): tally.gangs for percent, tally in tallies.items()},
        "leftOut": {
            "tooFewFit": sum(case.is_proved for case in left_out),
            "notProved": Counter(case.family for case in left_out if not case.is_proved),
        },
        "missedPercent": {name: {str(percent): _share(tally, name) for percent, tally in tallies.items()} for name in names},
        "missedPercentAtMost": {
            family: {name: round(100 * tallies[PERCENT[0]].missed_by_family[family, name] / len(most), 1) for name in (KUBE, BEST, GENETIC)}
            for family, most in sizes.items()
        },
        "largestGang": {
            family: {"least": min(most), "median": statistics.median(most), "most": max(most)} for family, most in sizes.items()
        },
        "milliseconds": {
            name: {
                str(percent): {
                    "median": round(1000 * float(np.median(tally.seconds[name])), 1),
                    "p95": round(1000 * float(np.quantile(tally.seconds[name], 0.95)), 1),
                }
                for percent, tally in tallies.items()
            }
            for name in (GENETIC, SHIPPED)
        },
        "generations": {str(percent): statistics.median(tally.generations) for percent, tally in tallies.items()},
        "elapsedSeconds": round(elapsed, 1),
    }


def _share(tally: Tally, name: str) -> float | None:
    """Of those it tried: an order of the roles that is another's too is tried once."""
    return round(100 * tally.missed[name] / tally.tried[name], 1) if tally.tried[name] else None


def _place(name: str) -> tuple[int, str]:
    ours = (BEST, GENETIC, SHIPPED)
    return (0, name) if name == KUBE else (2 + ours.index(name), name) if name in ours else (1, name)


def show(found: dict[str, dict[str, dict[str, float]]]) -> None:
    """The figures as tables."""
    console = Console()
    percents = list(found["gangs"])
    missed = Table("feasible gangs missed, %", *(f"at {percent} %" for percent in percents), box=None)
    for name, shares in found["missedPercent"].items():
        missed.add_row(name, *(f"{shares[percent]:.1f}" if shares[percent] is not None else "–" for percent in percents))
    missed.add_row("gangs", *(str(found["gangs"][percent]) for percent in percents))
    console.print(missed, "")
    families = Table("family, at 100 %", "largest gang", KUBE, BEST, GENETIC, box=None)
    for family, shares in found["missedPercentAtMost"].items():
        sizes = found["largestGang"][family]
        families.add_row(family, f"{sizes['least']}–{sizes['most']}", *(f"{shares[name]:.1f}" for name in (KUBE, BEST, GENETIC)))
    console.print(families, "")
    times = Table("milliseconds, median (p95)", *(f"at {percent} %" for percent in percents), box=None)
    for name, by_percent in found["milliseconds"].items():
        times.add_row(name, *(f"{by_percent[percent]['median']:.0f} ({by_percent[percent]['p95']:.0f})" for percent in percents))
    times.add_row("generations alone, median", *(f"{found['generations'][percent]:.0f}" for percent in percents))
    console.print(times)
    left_out = found["leftOut"]
    console.print(
        f"\nleft out: {left_out['tooFewFit']} cases of which hardly anybody fits, {sum(left_out['notProved'].values())} not proved"
    )
    console.print(f"{found['elapsedSeconds']} s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    nodes_help = "a node list of the openb trace, that of the folder OPENB if not said; made-up nodes like it without either"
    parser.add_argument("--nodes", type=Path, metavar="CSV", default=openb(ALL_NODES), help=nodes_help)
    parser.add_argument("--size", type=int, default=400, help="nodes of a state (%(default)s)")
    parser.add_argument("--states", type=int, default=20, help="states of the cluster (%(default)s), each with a gang of every family")
    parser.add_argument("--quick", action="store_true", help="a sample: 60 nodes, 3 states, at 100 and 90 %%")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    size, states, percents = (60, 3, PERCENT[::2]) if arguments.quick else (arguments.size, arguments.states, PERCENT)
    started = time.monotonic()
    tallies = {percent: Tally() for percent in percents}
    sizes: dict[str, list[int]] = {}
    left_out: list[LeftOut] = []
    every = cases(size, states, list(FAMILIES), arguments.nodes)
    for case in track(every, total=states * len(FAMILIES), console=progress, description="gangs", transient=True):
        if isinstance(case, LeftOut):
            left_out.append(case)
            continue
        sizes.setdefault(case.family, []).append(case.most)
        for percent, tally in tallies.items():
            measure(case, percent, tally)
    found = report(tallies, sizes, left_out, time.monotonic() - started)
    if arguments.output == "json":
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        show(found)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
