"""Measure what GPU terms add to the time of a plan on thousands of nodes with eight GPUs: filters by label, and scores by metrics.

The same gang is planned with and without GPU terms in turn. The result is the ratio of the medians of one run, which has a limit.
Every 15 s the event loop takes over the metrics that exporters report, so the time for that is measured as well.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import click
import numpy as np

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import GpuRequest, SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.gpus import Cards, Measure
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, SearchSettings, build_problem, search

GI = 1024**3
GPUS = 8
MODELS = ("Tesla T4", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
LIMIT = 1.1
"""Largest ratio of the time of a plan with GPU terms to the time of a plan without."""
SAMPLE_LIMIT = 1.5
"""Largest ratio for a quick run of five rounds, whose medians are off by a tenth or more on a busy machine."""


def a_view(nodes: int) -> ClusterView:
    """Return a view of nodes whose labels name three GPU models; each node is between empty and full."""
    view, rng = ClusterView(), random.Random(1)
    for row in range(nodes):
        labels = {
            "nvidia.com/gpu.product": MODELS[row % 3].replace(" ", "-"),
            "nvidia.com/gpu.memory": str((15360, 81920, 81559)[row % 3]),
            "nvidia.com/gpu.count": str(GPUS),
            "kubernetes.io/hostname": f"n{row}",
        }
        amounts = {"cpu": 96_000, "memory": 768 * GI, "nvidia.com/gpu": GPUS, "pods": 110}
        view.upsert_node(Node(f"n{row:05}", f"n{row}", as_requests(amounts), labels))
        gpus = rng.randint(0, GPUS)
        taken = SchedulingSpec(
            as_requests({"cpu": gpus * rng.choice((4000, 8000)), "memory": gpus * 64 * GI, "nvidia.com/gpu": gpus, "pods": 1})
        )
        pod = Pod("default", f"there-{row}", f"there-{row}", "1", 0.0, "other", f"n{row:05}", "Running", 0, taken)
        view.upsert_pod(pod)
    return view


def cards(nodes: int, seed: int) -> Cards:
    """Return random metrics of all GPUs, as exporters report them."""
    rng = np.random.default_rng(seed)
    values = np.full((len(Measure), nodes, GPUS), np.nan, dtype=np.float32)
    for measure, most in (
        (Measure.FREE, 80_000),
        (Measure.POWER, 400),
        (Measure.ENCODER, 1),
        (Measure.DECODER, 1),
        (Measure.UTILIZATION, 1),
    ):
        values[measure] = rng.uniform(0, most, (nodes, GPUS))
    values[Measure.XID] = 0
    model = np.repeat(np.arange(nodes, dtype=np.int32)[:, None] % 3, GPUS, axis=1)
    names = tuple(tuple(map(str, range(GPUS))) for _ in range(nodes))
    return Cards({f"n{row:05}": row for row in range(nodes)}, names, MODELS, model, values)


def a_gang(number: int, asked: GpuRequest | None) -> list[Pod]:
    """Return ``number`` members with a GPU each. ``asked``: the GPU terms of each member; None without."""
    spec = SchedulingSpec(as_requests({"cpu": 4000, "memory": 16 * GI, "nvidia.com/gpu": 1, "pods": 1}), gpus=asked)
    return [Pod("default", f"p{row}", f"p{row}", "1", 0.0, "allaboard", "", "Pending", 0, spec) for row in range(number)]


def plan(gang: Sequence[Pod], snapshot: Snapshot, filters: NodeFilters, objective: Objective) -> None:
    """Build the problem of a gang and search a placement, as the scheduler does. Raises ``AssertionError`` if there is none."""
    problem = build_problem(gang, len(gang), snapshot, objective=objective, filters=filters)
    if not search(problem, SearchSettings(), seed=1).feasible:
        raise AssertionError("the search has found no placement for a gang that fits")


def seconds_of(work: Callable[[], object]) -> float:
    """Return the processor seconds that ``work`` takes."""
    started = time.process_time()
    work()
    return time.process_time() - started


def compared(view: ClusterView, nodes: int, members: int, rounds: int, objective: Objective) -> dict[str, float]:
    """Return the median times of plans with GPU terms and of plans without, and of taking over metrics.

    The two kinds of plans are made in turn. Metrics change before each pair, as they do in a cluster.
    """
    asked = GpuRequest(model="A100|H100", memory_each=1000)
    plan_seconds: dict[bool, list[float]] = {False: [], True: []}
    filters = {with_terms: NodeFilters() for with_terms in plan_seconds}
    gangs = {False: a_gang(members, None), True: a_gang(members, asked)}
    observe_seconds = []
    for number in range(rounds + 1):
        reported = cards(nodes, number)
        seconds = seconds_of(lambda reported=reported: view.observe_cards(reported))  # type: ignore[misc]
        snapshot = view.snapshot()
        for with_terms in (True, False) if number % 2 else (False, True):
            seen = snapshot if with_terms else replace(snapshot, gpus=None)
            spent = seconds_of(lambda t=with_terms, s=seen: plan(gangs[t], s, filters[t], objective))  # type: ignore[misc]
            if number:  # the first round fills caches
                plan_seconds[with_terms].append(spent)
        if number:
            observe_seconds.append(seconds)
    bare, scored = (statistics.median(plan_seconds[each]) for each in (False, True))
    return {
        "plan_ms": round(bare * 1000, 1),
        "with_gpu_terms_ms": round(scored * 1000, 1),
        "ratio": round(scored / bare, 3),
        "cards_taken_ms": round(statistics.median(observe_seconds) * 1000, 1),
        "cards_taken_most_ms": round(max(observe_seconds) * 1000, 1),
    }


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--members", default=64, show_default=True)
@click.option("--rounds", default=15, show_default=True)
@click.option("--quick", is_flag=True, help="A sample: five rounds, with a wider limit.")
def main(nodes: int, members: int, rounds: int, quick: bool) -> None:
    """Measure what GPU terms cost, print JSON, and exit with 1 if the ratio exceeds its limit."""
    view = a_view(nodes)
    found = {str(objective): compared(view, nodes, members, 5 if quick else rounds, objective) for objective in Objective}
    click.echo(json.dumps({"nodes": nodes, "gpus": nodes * GPUS, "members": members, **found}, indent=2))
    if max(each["ratio"] for each in found.values()) > (SAMPLE_LIMIT if quick else LIMIT):
        sys.exit(1)


if __name__ == "__main__":
    main()
