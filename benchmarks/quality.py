"""Measure how far the search's placements are from the best possible ones, and what each search step contributes.

Clusters of up to 160 nodes are filled by a history of pods. The gangs have several roles and come in four families. *Everyday* gangs fit
easily. *Spread* gangs are the same gangs with the objective spread. *Racks* gangs prefer few racks of 16 nodes. *Tight* gangs, on 40 nodes,
are repeated as often as they fit (`judge.py`).
The cost of a placement is that of its objective. By default it is in GPUs: the fragmentation that is added, and the racks that are used.
An integer program over the sets of pods that fit on a node together proves the least cost (`exact_cost`). Each row is one way to place: the
best greedy seed, the search without some of its steps, or the search as shipped. Quantiles are over the cases that the row has placed.
"""

import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
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
from allaboard.placement import Problem, SearchSettings, build_problem, search
from allaboard.placement.problem.points import Scale
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers.improve import EVOLUTION, POLISH, SOLVER, STEPS
from judge import fits
from openb import GPU_NODES, openb
from tight_cases import CPU_PODS, FILLS, GI, GPU, GPU_PODS, Shape, drawn_shapes, read_shapes, state_of

RACK = "rack"
RACK_SIZE = 16
NODES, TIGHT_NODES = 160, 40
SEEDS = 2
SECONDS = 60.0
JUDGE_SECONDS = 5.0
SHIPPED = "as shipped"
PARTS = {
    "best greedy seed": (),
    "greedy seeds and polish": (POLISH,),
    "without polish": (EVOLUTION, SOLVER),
    "without evolution": (POLISH, SOLVER),
    "without solver": (POLISH, EVOLUTION),
    SHIPPED: STEPS,
}
MOST_PATTERNS = 60_000

Gang = tuple[tuple[str, int, Mapping[str, int]], ...]
"""The roles of a gang: for each role its name, its number of pods, and the requests of one pod."""

EVERYDAY: Mapping[str, Gang] = {
    "TFJob": (
        ("chief", 1, {"cpu": 4000, "memory": 16 * GI, GPU: 1}),
        ("ps", 2, {"cpu": 8000, "memory": 32 * GI}),
        ("worker", 8, {"cpu": 8000, "memory": 32 * GI, GPU: 1}),
    ),
    "launcher": (("launcher", 1, {"cpu": 1000, "memory": 2 * GI}), ("rank", 16, {"cpu": 10_000, "memory": 48 * GI, GPU: 2})),
    "pipeline": (
        ("read", 6, {"cpu": 4000, "memory": 24 * GI}),
        ("train", 4, {"cpu": 12_000, "memory": 64 * GI, GPU: 2}),
        ("evaluate", 2, {"cpu": 4000, "memory": 16 * GI, GPU: 1}),
    ),
    "DLRM": (("embedding", 6, {"cpu": 6000, "memory": 96 * GI}), ("trainer", 12, {"cpu": 8000, "memory": 24 * GI, GPU: 1})),
}
RACKED: Mapping[str, Gang] = {
    "ps+worker": (("ps", 4, {"cpu": 4000, "memory": 16 * GI}), ("worker", 16, {"cpu": 8000, "memory": 32 * GI, GPU: 1})),
    "ps+worker, 2 GPUs": (("ps", 2, {"cpu": 8000, "memory": 32 * GI}), ("worker", 8, {"cpu": 10_000, "memory": 48 * GI, GPU: 2})),
    "reinforcement": (
        ("environment", 12, {"cpu": 6000, "memory": 12 * GI}),
        ("rollout", 8, {"cpu": 6000, "memory": 24 * GI, GPU: 1}),
        ("actor", 2, {"cpu": 16_000, "memory": 64 * GI, GPU: 4}),
    ),
}
TIGHT: Mapping[str, Gang] = {
    "cpu and memory": (
        ("cpu-heavy", 1, {"cpu": 14_000, "memory": 24 * GI, GPU: 1}),
        ("mem-heavy", 1, {"cpu": 4000, "memory": 96 * GI, GPU: 1}),
    ),
    "4, 2 and 1 GPUs": (
        ("four", 1, {"cpu": 16_000, "memory": 64 * GI, GPU: 4}),
        ("two", 1, {"cpu": 12_000, "memory": 32 * GI, GPU: 2}),
        ("one", 2, {"cpu": 4000, "memory": 24 * GI, GPU: 1}),
    ),
    "sidecars": (("worker", 2, {"cpu": 6000, "memory": 32 * GI, GPU: 1}), ("sidecar", 3, {"cpu": 10_000, "memory": 12 * GI})),
}


@dataclass(frozen=True, slots=True)
class Family:
    """Gangs, and the objective and topology of their placement. ``is_tight``: whether each gang is repeated as often as it fits."""

    gangs: Mapping[str, Gang]
    objective: Objective = Objective.FRAGMENTATION
    topology: str = ""
    is_tight: bool = False

    def problem(self, gang: Gang, snapshot: Snapshot) -> Problem | None:
        """Return the problem of placing ``gang``; None if a tight gang doesn't fit even once."""
        times = self._most_times(gang, snapshot) if self.is_tight else 1
        return self._problem(gang, snapshot, times) if times else None

    def _problem(self, gang: Gang, snapshot: Snapshot, times: int) -> Problem:
        pods = members(gang, times)
        return build_problem(pods, len(pods), snapshot, objective=self.objective, topology=self.topology)

    def _most_times(self, gang: Gang, snapshot: Snapshot) -> int:
        low, high = 0, 128
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(self._problem(gang, snapshot, middle), JUDGE_SECONDS) else (low, middle)
        return low


FAMILIES: Mapping[str, Family] = {
    "everyday": Family(EVERYDAY),
    "racks": Family(RACKED, topology=RACK),
    "tight": Family(TIGHT, is_tight=True),
    "spread": Family(EVERYDAY, Objective.SPREAD),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One gang on one cluster, and the cost of its best placement."""

    name: str
    problem: Problem
    best: float


def racked(snapshot: Snapshot) -> Snapshot:
    """Return the same cluster, with nodes labelled by rack and a workload for the objective."""
    nodes = tuple(replace(node, labels={RACK: f"rack-{row // RACK_SIZE}"}) for row, node in enumerate(snapshot.nodes))
    return replace(snapshot, nodes=nodes, mix=workload_of(tasks()))


def a_state(number: int, shapes: list[Shape], nodes: int) -> Snapshot:
    rng = random.Random(f"quality/{number}")
    return state_of(rng.sample(shapes, nodes), FILLS[number % 3], ("least", "most")[number // 3 % 2], rng)


def tasks() -> Counter[SchedulingSpec]:
    """Return the kinds of pods that the clusters were filled with, and the weight of each."""
    return Counter(
        {
            SchedulingSpec(as_requests({"cpu": cpu * 1000, "memory": memory * GI, GPU: gpus})): weight
            for weight, cpu, memory, gpus in (*GPU_PODS, *((weight // 3, *pod) for weight, *pod in CPU_PODS))
        }
    )


def members(gang: Gang, times: int) -> list[Pod]:
    """Return the pending pods of a gang whose roles have ``times`` times as many pods."""
    return [
        Pod("bench", f"{role}-{index}", f"{role}-{index}", "1", 0.0, "allaboard", "", "Pending", 0, spec)
        for role, number, amounts in gang
        for spec in [SchedulingSpec(as_requests({"pods": 1, **amounts}))]
        for index in range(number * times)
    ]


def exact_cost(problem: Problem, seconds: float) -> float | None:
    """Return the least cost of a placement of all pods; None if it can't be proved within ``seconds``."""
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
    pods_of_pattern = csr_array(np.concatenate([patterns.T, np.zeros((len(problem.roles), racks))], axis=1))
    all_pods = LinearConstraint(pods_of_pattern, problem.count, problem.count)
    found = milp(
        costs, integrality=np.ones(count + racks), bounds=Bounds(0, 1), constraints=[one_pattern, all_pods],
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )  # fmt: skip
    return float(found.fun) if found.status == 0 else None


def all_patterns(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return the patterns of all nodes: the combinations of pods that fit on a node together.

    The first array is the node of each pattern: int64[k]. The second is its number of pods of each role: int64[k, roles].
    """
    rows, patterns = [], []
    for node in range(len(problem.nodes)):
        most = np.minimum(problem.slots[:, node], problem.count)
        for counts in itertools.product(*(range(int(slots) + 1) for slots in most)):
            if any(counts) and (np.array(counts) @ problem.demand <= problem.free[:, node]).all():
                rows.append(node)
                patterns.append(counts)
    return np.array(rows, dtype=np.int64), np.array(patterns, dtype=np.int64).reshape(len(rows), len(problem.roles))


def cases(family: Family, source: Path | None, states: int, seconds: float) -> tuple[list[Case], int]:
    """Return the cases whose least cost is proved, and the number of cases whose least cost isn't. Gangs that never fit are no cases."""
    shapes = [shape for shape in (read_shapes(source) if source else drawn_shapes()) if shape[2]]
    found, unknown = [], 0
    for number, name in track(list(itertools.product(range(states), family.gangs)), "proving", console=Console(stderr=True)):
        snapshot = racked(a_state(number, shapes, TIGHT_NODES if family.is_tight else NODES))
        problem = family.problem(family.gangs[name], snapshot)
        if problem is None:
            continue
        best = exact_cost(problem, seconds)
        if best is None:
            unknown += 1
        else:
            found.append(Case(f"{name} on {number}", problem, best))
    return found, unknown


@click.command()
@click.option("--nodes", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="CSV of nodes [that of OPENB, if set].")
@click.option("--family", "names", type=click.Choice(list(FAMILIES)), multiple=True, help="Family of gangs; may be repeated [all].")
@click.option("--states", default=14, show_default=True, help="Clusters.")
@click.option("--seconds", default=SECONDS, show_default=True, help="Time to prove the least cost of one case.")
@click.option("--quick", is_flag=True, help="A sample of some seconds.")
def main(nodes: Path | None, names: tuple[str, ...], states: int, seconds: float, *, quick: bool) -> None:
    """Print a table for each family of gangs."""
    source = nodes or (None if quick else openb(GPU_NODES))
    for name in names or FAMILIES:
        known, unknown = cases(FAMILIES[name], source, 1 if quick else states, 5.0 if quick else seconds)
        if known:
            Console().print(table_of(name, known, unknown))
        else:
            print(f"{name}: the least cost is proved for none of {unknown} cases", file=sys.stderr)


def table_of(name: str, known: list[Case], unknown: int) -> Table:
    """Return a table of how far each way to place is from the least cost of the cases."""
    gaps: dict[str, list[float]] = {part: [] for part in PARTS}
    seconds: dict[str, list[float]] = {part: [] for part in PARTS}
    for case, seed in track(list(itertools.product(known, range(SEEDS))), "placing", console=Console(stderr=True)):
        for part, steps in PARTS.items():
            started = time.process_time()
            plan = search(case.problem, SearchSettings(), seed, steps=steps)
            seconds[part].append(time.process_time() - started)
            worst = case.problem.total * Scale.of(case.problem).worst
            cost = worst * (1.0 - plan.search.score / 100.0) if plan.feasible else float("inf")
            gaps[part].append(cost - case.best)
    title = f"{name}: {len(known)} gangs, {SEEDS} seeds each; {unknown} more whose least cost isn't proved"
    table = Table("", "placed", "best reached", "mean gap", "p90", "max", "CPU ms, median", "p99", title=title)
    for part, values in gaps.items():
        placed = np.array([value for value in values if np.isfinite(value)] or [np.nan])
        table.add_row(
            part,
            f"{np.isfinite(values).mean():.0%}",
            f"{np.mean(placed < 1e-6):.0%}",
            f"{placed.mean():.3f}",
            f"{np.quantile(placed, 0.9):.3f}",
            f"{placed.max():.3f}",
            f"{1000 * np.median(seconds[part]):.0f}",
            f"{1000 * np.quantile(seconds[part], 0.99):.0f}",
        )
    return table


if __name__ == "__main__":
    main()
