"""Measure how long a decision takes on large clusters and for gangs of many roles, with verification, and how much memory it needs.

Decisions are also measured without evolution, the genetic search. Clusters are half full on average. One cluster is full, so that the
search has to prove that the gang doesn't fit. The first decision of each row has cold filters.
"""

import json
import random
import statistics
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot, workload_of
from allaboard.placement import NodeFilters, Plan, SearchSettings, build_problem, search, verify
from allaboard.placement.solvers.improve import STEPS

GI = 1024**3
GPU = "nvidia.com/gpu"
RESOURCES = ("cpu", "memory", GPU, "pods")


def cluster(nodes: int) -> Snapshot:
    """Return nodes without GPUs and nodes with 4 or 8 GPUs, in three zones; each node is between empty and full."""
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
    """Return pending pods of one role."""
    spec = SchedulingSpec(requests=as_requests({"pods": 1, **amounts}), node_selector=selector)
    return [Pod("bench", f"{role}-{i}", f"{role}-{i}", "1", 0.0, "allaboard", "", "Pending", 0, spec) for i in range(number)]


def training(size: int) -> list[Pod]:
    """Return a gang of parameter servers, which require one zone, and workers with a GPU each."""
    servers = max(1, size // 8)
    return [
        *pods("ps", servers, {"cpu": 4000, "memory": 16 * GI}, (("zone", "zone-1"),)),
        *pods("worker", size - servers, {"cpu": 6000, "memory": 20 * GI, GPU: 1}),
    ]


def reinforcement(size: int) -> list[Pod]:
    """Return a gang of three roles that contend for the same nodes: one needs mostly cpu, one memory, and one GPUs."""
    third = size // 3
    return [
        *pods("rollout", third, {"cpu": 8000, "memory": 8 * GI}),
        *pods("replay", third, {"cpu": 2000, "memory": 48 * GI}),
        *pods("learner", size - 2 * third, {"cpu": 4000, "memory": 16 * GI, GPU: 2}),
    ]


def pipeline(roles: int, size: int) -> list[Pod]:
    """Return a gang of ``roles`` roles with different requests, of ``size`` pods each."""
    return [pod for role in range(roles) for pod in pods(f"step-{role}", size, {"cpu": 1000 + 100 * role, "memory": (1 + role % 7) * GI})]


def full(nodes: int) -> Snapshot:
    """Return nodes of 8 GPUs, of which 0 to 7 are free, so that no pod of 8 GPUs fits."""
    amounts = (96_000, 384 * GI, 8, 110)
    allocatable = np.array([amounts] * nodes, dtype=np.int64)
    used = allocatable // 2
    used[:, 2] = 8 - np.arange(nodes) % 8
    rows = tuple(Node(f"node-{index:05}", str(index), as_requests(dict(zip(RESOURCES, amounts, strict=True)))) for index in range(nodes))
    return Snapshot(rows, RESOURCES, allocatable, used)


def mixed(snapshot: Snapshot) -> Snapshot:
    """Return the cluster with a workload, which the fragmentation objective needs: gangs like those that are measured."""
    gangs = [*training(64), *reinforcement(96), *pods("node", 30, {"cpu": 64_000, GPU: 8}), *pods("pair", 40, {"cpu": 16_000, GPU: 2})]
    return replace(snapshot, mix=workload_of(Counter(pod.spec.demand for pod in gangs)))


@dataclass(frozen=True, slots=True)
class Row:
    """One gang on one cluster. ``bar``: limits of the median and the 95th percentile in milliseconds; None without a limit."""

    title: str
    gang: Sequence[Pod]
    snapshot: Snapshot
    objective: Objective = Objective.FRAGMENTATION
    bar: tuple[float, float | None] | None = None


def rows() -> Iterator[Row]:
    """Yield the gangs and clusters that are measured."""
    small, medium, large = mixed(cluster(200)), mixed(cluster(500)), mixed(cluster(5000))
    yield Row("1 pod on 200 nodes", pods("w", 1, {"cpu": 1000, GPU: 1}), small)
    yield Row("64 pods, 1 role, 500 nodes", pods("w", 64, {"cpu": 6000, "memory": 20 * GI, GPU: 1}), medium)
    for objective in Objective:
        bar = (25.0, None) if objective is Objective.FRAGMENTATION else None
        yield Row("64 pods, 2 roles, 500 nodes", training(64), medium, objective, bar)
    yield Row("96 pods, 3 roles, 500 nodes", reinforcement(96), medium)
    yield Row("1,000 pods, 2 roles, 5,000 nodes", training(1000), large, bar=(300.0, None))
    yield Row("2,000 pods, 2 roles, 5,000 nodes", training(2000), large)
    yield Row("999 pods, 3 roles, 5,000 nodes", reinforcement(999), large)
    broad = mixed(cluster(1000))
    for roles, limit in ((2, None), (10, None), (30, 2000.0), (50, 4000.0)):
        yield Row(f"{roles} roles x 20, 1,000 nodes", pipeline(roles, 20), broad, bar=None if limit is None else (limit, None))
    yield Row("10 pods of 8 GPUs, 500 full nodes", pods("w", 10, {"cpu": 8000, GPU: 8}), mixed(full(500)), bar=(50.0, None))


def decided(row: Row, filters: NodeFilters, seed: int, steps: Sequence[str] = STEPS) -> tuple[float, Plan]:
    """Return the milliseconds from the snapshot to a verified plan, and the plan. Raises ``AssertionError`` if the plan isn't valid."""
    started = time.perf_counter()
    problem = build_problem(row.gang, len(row.gang), row.snapshot, objective=row.objective, filters=filters)
    plan = search(problem, SearchSettings(), seed, steps=steps)
    if plan.feasible and verify(dict(plan.assignments), row.gang, row.snapshot):
        raise AssertionError(f"{row.title}: the plan isn't valid")
    return (time.perf_counter() - started) * 1000, plan


def peak(row: Row) -> float:
    """Return the peak memory of one decision in MiB, without the snapshot."""
    tracemalloc.start()
    try:
        decided(row, NodeFilters(), 0)
        return tracemalloc.get_traced_memory()[1] / 1024**2
    finally:
        tracemalloc.stop()


def measured(row: Row, seeds: int) -> dict[str, object]:
    """Measure the decisions for the gang of ``row``, and return its figures by the columns of the table."""
    filters = NodeFilters()
    cold, _ = decided(row, filters, 0)
    runs = [decided(row, filters, seed) for seed in range(seeds)]
    times = sorted(milliseconds for milliseconds, _ in runs)
    off = statistics.median(decided(row, filters, seed, ("polish", "solver"))[0] for seed in range(min(3, seeds)))
    plans = [plan for _, plan in runs]
    p50, p95 = statistics.median(times), times[min(len(times) - 1, int(0.95 * len(times)))]
    limit, tail = row.bar or (None, None)
    return {
        "gang on cluster": row.title,
        "objective": row.objective.value,
        "first ms": round(cold, 1),
        "p50 ms": round(p50, 1),
        "p95 ms": round(p95, 1),
        "bar": "" if limit is None else f"{limit:g}" + (f" / {tail:g}" if tail else ""),
        "held": "" if limit is None else "yes" if p50 <= limit and (tail is None or p95 <= tail) else "NO",
        "generations": round(statistics.median(plan.search.generations for plan in plans)),
        "seed score": round(plans[0].search.seed_score, 2),
        "score": round(statistics.mean(plan.search.score for plan in plans), 2),
        "without evolution ms": round(off, 1),
        "peak MiB": round(peak(row)),
        "answer": {True: "placed", False: "proved impossible", None: "not found"}[plans[0].feasible],
    }


@click.command()
@click.option("--seeds", default=20, show_default=True, help="Number of searches of each row.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--quick", is_flag=True, help="A sample of some seconds.")
def main(seeds: int, output: str, *, quick: bool) -> None:
    """Measure and print a table or JSON."""
    found = []
    for row in track(list(rows()), "searching", console=Console(stderr=True)):
        if quick and len(row.snapshot.nodes) > 500:
            continue
        found.append(measured(row, 2 if quick else seeds))
    if output == "json":
        print(json.dumps(found, indent=2))
        return
    table = Table(*found[0], title="From the snapshot to a verified plan", box=None)
    for each in found:
        table.add_row(*map(str, each.values()))
    Console(width=None if sys.stdout.isatty() else 190).print(table)


if __name__ == "__main__":
    main()
