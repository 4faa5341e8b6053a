"""What the GPU terms cost a plan on thousands of nodes with eight GPUs: filters by label, and the score of the cards.

The same gang is planned with and without them, alternating, and the ratio of the medians is told: limits are ratios within one run.
What exporters say anew every 15 s is taken by the event loop, so the time for that is told, too.
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
"""A plan with the GPU terms takes no longer than that, beside one without."""
SAMPLE_LIMIT = 1.5
"""What five rounds can tell: on a busy machine their medians are off by a tenth and more."""


def a_view(nodes: int) -> ClusterView:
    """Nodes of three models, by their labels, each between empty and full."""
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
    """What exporters say of all of them."""
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
    """Members with a GPU each."""
    spec = SchedulingSpec(as_requests({"cpu": 4000, "memory": 16 * GI, "nvidia.com/gpu": 1, "pods": 1}), gpus=asked)
    return [Pod("default", f"p{row}", f"p{row}", "1", 0.0, "allaboard", "", "Pending", 0, spec) for row in range(number)]


def plan(gang: Sequence[Pod], snapshot: Snapshot, filters: NodeFilters, objective: Objective) -> None:
    """The whole of what the scheduler does for one gang."""
    problem = build_problem(gang, len(gang), snapshot, objective=objective, filters=filters)
    if not search(problem, SearchSettings(), seed=1).feasible:
        raise AssertionError("it has room")


def seconds_of(work: Callable[[], object]) -> float:
    """How much of a processor it takes."""
    started = time.process_time()
    work()
    return time.process_time() - started


def compared(view: ClusterView, nodes: int, members: int, rounds: int, objective: Objective) -> dict[str, float]:
    """Medians of plans with and without GPU terms, in turn; what exporters say changes before each, as it does every few seconds."""
    asked = GpuRequest(model="A100|H100", memory_each=1000)
    taken: dict[bool, list[float]] = {False: [], True: []}
    filters = {with_terms: NodeFilters() for with_terms in taken}
    gangs = {False: a_gang(members, None), True: a_gang(members, asked)}
    observed = []
    for number in range(rounds + 1):
        heard = cards(nodes, number)
        seconds = seconds_of(lambda heard=heard: view.observe_cards(heard))  # type: ignore[misc]
        snapshot = view.snapshot()
        for with_terms in (True, False) if number % 2 else (False, True):
            seen = snapshot if with_terms else replace(snapshot, gpus=None)
            spent = seconds_of(lambda t=with_terms, s=seen: plan(gangs[t], s, filters[t], objective))  # type: ignore[misc]
            if number:  # the first has everything to find out
                taken[with_terms].append(spent)
        if number:
            observed.append(seconds)
    without, with_terms = (statistics.median(taken[each]) for each in (False, True))
    return {
        "plan_ms": round(without * 1000, 1),
        "with_gpu_terms_ms": round(with_terms * 1000, 1),
        "ratio": round(with_terms / without, 3),
        "cards_taken_ms": round(statistics.median(observed) * 1000, 1),
        "cards_taken_most_ms": round(max(observed) * 1000, 1),
    }


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--members", default=64, show_default=True)
@click.option("--rounds", default=15, show_default=True)
@click.option("--quick", is_flag=True, help="A sample: five rounds, with a wider limit.")
def main(nodes: int, members: int, rounds: int, quick: bool) -> None:
    """Tell what the GPU terms cost; fails when that is more than they may."""
    view = a_view(nodes)
    found = {str(objective): compared(view, nodes, members, 5 if quick else rounds, objective) for objective in Objective}
    click.echo(json.dumps({"nodes": nodes, "gpus": nodes * GPUS, "members": members, **found}, indent=2))
    if max(each["ratio"] for each in found.values()) > (SAMPLE_LIMIT if quick else LIMIT):
        sys.exit(1)


if __name__ == "__main__":
    main()
