"""How far from the best possible the placements are that the search finds, where the best possible can be told.

Clusters of up to 160 nodes in racks of 16, filled by a history of pods; gangs of two and three roles of which every member fits. The cost
is the default objective's, in GPUs: fragmentation that is added, and racks that are used. The best is proved by an integer program over
who can sit on each node together (`exact_cost`). Each row is one way to place: every greedy seed, the best of them, the search
without some of its steps, and the search as shipped. The gap is in GPUs; the quantiles are over all cases.
"""

import itertools
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.pod import Pod
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot, workload_of
from allaboard.placement import Problem, SearchSettings, build_problem, greedy_seeds, search
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers.pursuit import STEPS
from openb import GPU_NODES, openb
from tight_cases import CPU_PODS, FILLS, GI, GPU, GPU_PODS, Shape, drawn_shapes, read_shapes, state_of

RACK = "rack"
RACK_SIZE = 16
NODES = 160
SEEDS = 2
SECONDS = 60.0
SHIPPED = "as shipped"
PARTS = {"seeds": (), "seeds and polish": ("polish",), "seeds and evolution": ("evolution", "solver"), SHIPPED: STEPS}
MOST_PATTERNS = 60_000

GANGS = {
    "ps+worker": (("ps", 4, {"cpu": 4000, "memory": 16 * GI}), ("worker", 16, {"cpu": 8000, "memory": 32 * GI, GPU: 1})),
    "ps+worker, 2 GPUs": (("ps", 2, {"cpu": 8000, "memory": 32 * GI}), ("worker", 8, {"cpu": 10_000, "memory": 48 * GI, GPU: 2})),
    "reinforcement": (
        ("environment", 12, {"cpu": 6000, "memory": 12 * GI}),
        ("rollout", 8, {"cpu": 6000, "memory": 24 * GI, GPU: 1}),
        ("actor", 2, {"cpu": 16_000, "memory": 64 * GI, GPU: 4}),
    ),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One gang on one cluster, and what its best placement costs."""

    name: str
    problem: Problem
    best: float


def racked(snapshot: Snapshot) -> Snapshot:
    """The same nodes in racks."""
    nodes = tuple(replace(node, labels={RACK: f"rack-{row // RACK_SIZE}"}) for row, node in enumerate(snapshot.nodes))
    return replace(snapshot, nodes=nodes, mix=workload_of(tasks()))


def a_state(number: int, shapes: list[Shape], nodes: int) -> Snapshot:
    rng = random.Random(f"quality/{number}")
    return state_of(rng.sample(shapes, nodes), FILLS[number % 3], ("least", "most")[number // 3 % 2], rng)


def tasks() -> Counter[SchedulingSpec]:
    """The workload that the clusters were filled with."""
    return Counter(
        {
            SchedulingSpec(as_requests({"cpu": cpu * 1000, "memory": memory * GI, GPU: gpus})): weight
            for weight, cpu, memory, gpus in (*GPU_PODS, *((weight // 3, *pod) for weight, *pod in CPU_PODS))
        }
    )


def members(gang: str) -> list[Pod]:
    """The pending pods of a gang."""
    return [
        Pod("bench", f"{role}-{index}", f"{role}-{index}", "1", 0.0, "allaboard", "", "Pending", 0, spec)
        for role, number, amounts in GANGS[gang]
        for spec in [SchedulingSpec(as_requests({"pods": 1, **amounts}))]
        for index in range(number)
    ]


def exact_cost(problem: Problem, seconds: float) -> float | None:
    """The cost that no placement of all pods goes below; ``None`` when that can't be proved in time."""
    rows, patterns = all_patterns(problem)
    if not len(rows) or len(rows) > MOST_PATTERNS:
        return None
    count, nodes, racks = len(rows), len(problem.nodes), int(problem.domains.max()) + 1 if problem.domains is not None else 0
    columns = np.arange(count)
    costs = np.concatenate([Valuation(problem).node_costs(rows, patterns), np.full(racks, problem.weights.domains)])
    is_used = coo_array((np.ones(count), (rows, columns)), shape=(nodes, count + racks))
    if problem.domains is not None:
        in_rack = coo_array((-np.ones(nodes), (np.arange(nodes), count + problem.domains)), shape=(nodes, count + racks))
        one_pattern = LinearConstraint(csr_array(is_used + in_rack), -np.inf, 0.0)
    else:
        one_pattern = LinearConstraint(csr_array(is_used), -np.inf, 1.0)
    seated = csr_array(np.concatenate([patterns.T, np.zeros((len(problem.roles), racks))], axis=1))
    everybody = LinearConstraint(seated, problem.count, problem.count)
    found = milp(
        costs, integrality=np.ones(count + racks), bounds=Bounds(0, 1), constraints=[one_pattern, everybody],
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )  # fmt: skip
    return float(found.fun) if found.status == 0 else None


def all_patterns(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Who can sit on each node together: node by node, and int64[k, roles]."""
    rows, patterns = [], []
    for node in range(len(problem.nodes)):
        most = np.minimum(problem.seats[:, node], problem.count)
        for counts in itertools.product(*(range(int(seats) + 1) for seats in most)):
            if any(counts) and (np.array(counts) @ problem.demand <= problem.free[:, node]).all():
                rows.append(node)
                patterns.append(counts)
    return np.array(rows, dtype=np.int64), np.array(patterns, dtype=np.int64).reshape(len(rows), len(problem.roles))


def cases(source: Path | None, states: int, seconds: float) -> tuple[list[Case], int]:
    """The cases whose best is known, and how many aren't."""
    shapes = [shape for shape in (read_shapes(source) if source else drawn_shapes()) if shape[2]]
    found, unknown = [], 0
    for number, gang in track(list(itertools.product(range(states), GANGS)), "proving", console=Console(stderr=True)):
        snapshot = racked(a_state(number, shapes, NODES))
        pods = members(gang)
        problem = build_problem(pods, len(pods), snapshot, objective=Objective.FRAGMENTATION, topology=RACK)
        best = exact_cost(problem, seconds)
        if best is None:
            unknown += 1
        else:
            found.append(Case(f"{gang} on {number}", problem, best))
    return found, unknown


@click.command()
@click.option(
    "--nodes", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Node list, CSV; without it that of OPENB, if set."
)
@click.option("--states", default=14, show_default=True, help="Clusters.")
@click.option("--seconds", default=SECONDS, show_default=True, help="Time to prove the best of one case.")
@click.option("--quick", is_flag=True, help="A sample of some seconds.")
def main(nodes: Path | None, states: int, seconds: float, *, quick: bool) -> None:
    """Print the table."""
    known, unknown = cases(nodes or (None if quick else openb(GPU_NODES)), 2 if quick else states, 5.0 if quick else seconds)
    gaps: dict[str, list[float]] = {}
    times, generations = [], []
    for case in track(known, "placing", console=Console(stderr=True)):
        valuation = Valuation(case.problem)
        costs = {
            name: float(valuation.costs(counts[None])[0])
            for name, counts in greedy_seeds(case.problem)
            if counts.sum() == case.problem.total
        }
        for name, cost in costs.items():
            gaps.setdefault(f"greedy {name}", []).append(cost - case.best)
        for seed in range(SEEDS):
            for name, steps in PARTS.items():
                started = time.perf_counter()
                plan = search(case.problem, SearchSettings(), seed, steps=steps)
                if name == SHIPPED:
                    times.append(time.perf_counter() - started)
                    generations.append(plan.search.generations)
                cost = case.problem.total * (1.0 - plan.search.score / 100.0) if plan.feasible else float("inf")
                gaps.setdefault(name, []).append(cost - case.best)
    table = Table("", "placed", "best reached", "mean gap, GPUs", "p90", "max", title=f"{len(known)} cases, {unknown} unknown")
    for name, values in sorted(gaps.items(), key=lambda item: float(np.mean(item[1]))):
        placed = [value for value in values if np.isfinite(value)]
        hits = sum(value < 1e-6 for value in placed)
        table.add_row(
            name,
            str(len(placed)),
            f"{hits / len(placed):.0%}",
            f"{np.mean(placed):.3f}",
            f"{np.quantile(placed, 0.9):.3f}",
            f"{max(placed):.3f}",
        )
    Console().print(table)
    print(f"median {1000 * np.median(times):.0f} ms, {np.median(generations):.0f} generations", file=sys.stderr)


if __name__ == "__main__":
    main()
