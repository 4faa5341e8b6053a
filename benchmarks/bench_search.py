"""What the search costs and what it gains over the best greedy placement, on clusters that are half full.

Prints one row per case: generations, the score of the best greedy seed and of the plan, milliseconds (median of the seeds) with the
genetic search and without it, and what it costs to build the problem with cold and with warm filters.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, SearchSettings, build_problem, search

GI = 1024**3
GPU = "nvidia.com/gpu"
RESOURCES = ("cpu", "memory", GPU, "pods")
SEEDS = range(5)

_Result = TypeVar("_Result")


def cluster(nodes: int) -> Snapshot:
    """CPU nodes and nodes with 4 or 8 GPUs in three zones, each between empty and full."""
    rng = random.Random(1)
    rows, allocatable, used = [], [], []
    for index in range(nodes):
        gpus, cpu = rng.choice(((0, 32), (4, 48), (8, 96), (8, 96)))
        amounts = (cpu * 1000, cpu * 4 * GI, gpus, 110)
        share = rng.random()
        rows.append(
            Node(
                name=f"node-{index:05}",
                uid=str(index),
                allocatable=as_requests(dict(zip(RESOURCES, amounts, strict=True))),
                labels={"zone": f"zone-{index % 3}", "kubernetes.io/hostname": f"node-{index:05}"},
            )
        )
        allocatable.append(amounts)
        used.append((int(cpu * 800 * share), int(cpu * 3 * GI * share), round(gpus * share), int(30 * share)))
    return Snapshot(tuple(rows), RESOURCES, np.array(allocatable, dtype=np.int64), np.array(used, dtype=np.int64))


def pods(role: str, number: int, amounts: dict[str, int], selector: tuple[tuple[str, str], ...] = ()) -> list[Pod]:
    """Pending pods of one role."""
    spec = SchedulingSpec(requests=as_requests({"pods": 1, **amounts}), node_selector=selector)
    return [Pod("bench", f"{role}-{i}", f"{role}-{i}", "1", 0.0, "allaboard", "", "Pending", 0, spec) for i in range(number)]


def training(size: int) -> list[Pod]:
    """Parameter servers in one zone, workers with a GPU each."""
    servers = max(1, size // 8)
    return [
        *pods("ps", servers, {"cpu": 4000, "memory": 16 * GI}, (("zone", "zone-1"),)),
        *pods("worker", size - servers, {"cpu": 6000, "memory": 20 * GI, GPU: 1}),
    ]


def reinforcement(size: int) -> list[Pod]:
    """Three roles that want the same nodes for different reasons."""
    third = size // 3
    return [
        *pods("rollout", third, {"cpu": 8000, "memory": 8 * GI}),
        *pods("replay", third, {"cpu": 2000, "memory": 48 * GI}),
        *pods("learner", size - 2 * third, {"cpu": 4000, "memory": 16 * GI, GPU: 2}),
    ]


def timed(work: Callable[[], _Result]) -> tuple[float, _Result]:
    """Milliseconds, and the result."""
    start = time.perf_counter()
    result = work()
    return (time.perf_counter() - start) * 1000, result


def measure(title: str, gang: Sequence[Pod], snapshot: Snapshot, objective: Objective = Objective.BINPACK) -> None:
    """Print one row."""
    filters = NodeFilters()
    cold, _ = timed(lambda: build_problem(gang, len(gang), snapshot, objective=objective, filters=filters))
    warm, problem = timed(lambda: build_problem(gang, len(gang), snapshot, objective=objective, filters=filters))
    runs = [timed(lambda seed=seed: search(problem, SearchSettings(), seed)) for seed in SEEDS]  # type: ignore[misc]
    off, _ = timed(lambda: search(problem, SearchSettings(), 0, use_genetic=False))
    plans = [plan for _, plan in runs]
    median = statistics.median(milliseconds for milliseconds, _ in runs)
    generations = statistics.median(plan.search.generations for plan in plans)
    final = statistics.mean(plan.search.score for plan in plans)
    feasible = sum(plan.feasible is True for plan in plans)
    print(
        f"{title:<38} {objective.value:<8} {cold:>6.1f} {warm:>6.1f} {off:>8.1f} {median:>8.1f} {generations:>6.0f}"
        f"  {plans[0].search.seed_score:>6.2f} → {final:>6.2f}  {feasible}/{len(plans)}  {plans[0].proof}"
    )


def main() -> None:
    """Print the table."""
    print(f"{'gang on cluster':<38} {'wanted':<8} {'cold':>6} {'warm':>6} {'GA off':>8} {'GA ms':>8} {'gens':>6}  {'score':<15}  placed")
    small, medium, large = cluster(200), cluster(500), cluster(5000)
    measure("1 pod on 200 nodes", pods("w", 1, {"cpu": 1000, GPU: 1}), small)
    measure("64 pods, 1 role, 500 nodes", pods("w", 64, {"cpu": 6000, "memory": 20 * GI, GPU: 1}), medium)
    for objective in Objective:
        measure("64 pods, 2 roles, 500 nodes", training(64), medium, objective)
    measure("96 pods, 3 roles, 500 nodes", reinforcement(96), medium)
    for size in (1000, 2000):
        measure(f"{size} pods, 2 roles, 5,000 nodes", training(size), large)
    measure("999 pods, 3 roles, 5,000 nodes", reinforcement(999), large)


if __name__ == "__main__":
    main()
