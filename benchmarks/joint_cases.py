"""Builds queues of gangs that contend for free capacity, for `joint.py`.

Nodes and their history are those of `tight_cases.py`. A queue has 12 to 24 gangs of equal priority and of common kinds. Gangs are drawn
until together they request a given multiple of the free GPUs. Half of the gangs require GPUs of one model.
"""

import csv
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.pod import Pod
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot
from allaboard.placement import build_problem
from allaboard.placement.contest.contest import Waiting
from allaboard.placement.solvers.milp import Finding, solve
from tight_cases import FILLS, GI, GPU, drawn_shapes, read_shapes, state_of

LOADS = (0.9, 1.3)
MODEL = "nvidia.com/gpu.product"
_FEWEST, _MOST = 12, 24
_ONE_MODEL = 0.5  # share of the gangs that require GPUs of one model
_SPREAD = 0.8  # standard deviation of the logarithm of the gangs' sizes
_MODELS: Mapping[int, Sequence[str]] = {8: ("V100M32", "G2", "G3"), 4: ("P100",), 2: ("T4",)}

Kind = Sequence[tuple[int, Mapping[str, int]]]
"""A kind of gangs: for each role, the number of pods in one unit of the gang, and the requests of one pod."""

KINDS: Mapping[str, tuple[int, Kind]] = {
    # kind: (weight with which it is drawn, roles)
    "whole nodes": (3, ((1, {"cpu": 64_000, "memory": 256 * GI, GPU: 8}),)),
    "half nodes": (3, ((1, {"cpu": 32_000, "memory": 128 * GI, GPU: 4}),)),
    "pairs of GPUs": (2, ((1, {"cpu": 16_000, "memory": 64 * GI, GPU: 2}),)),
    "single GPUs": (3, ((1, {"cpu": 8000, "memory": 32 * GI, GPU: 1}),)),
    "parameter servers": (2, ((1, {"cpu": 8000, "memory": 48 * GI}), (4, {"cpu": 6000, "memory": 24 * GI, GPU: 1}))),
    "reinforcement learning": (
        2,
        (
            (4, {"cpu": 12_000, "memory": 16 * GI}),
            (2, {"cpu": 8000, "memory": 48 * GI, GPU: 1}),
            (1, {"cpu": 24_000, "memory": 96 * GI, GPU: 4}),
        ),
    ),
    "cpu against memory": (
        2,
        ((1, {"cpu": 14_000, "memory": 24 * GI, GPU: 1}), (1, {"cpu": 4000, "memory": 96 * GI, GPU: 1})),
    ),
}


def queue(number: int, nodes: int, load: float, source: Path | None) -> tuple[Snapshot, list[Waiting]]:
    """Return a cluster, and a queue that requests about ``load`` times its free GPUs. Each gang fits if it is alone."""
    rng = random.Random(f"joint/{number}/{load}")
    cluster = _cluster(number, nodes, source, rng)
    gpus = (cluster.allocatable - cluster.used)[:, cluster.resources.index(GPU)]
    free = Counter[str]()
    for node, amount in zip(cluster.nodes, gpus.tolist(), strict=True):
        free[node.labels[MODEL]] += amount
    models = sorted(model for model in free if free[model])
    wanted = load * sum(free.values())
    mean = wanted / rng.randint(_FEWEST, _MOST)
    gangs: list[Waiting] = []
    while len(gangs) < _MOST and (wanted > 0 or len(gangs) < _FEWEST):
        roles = KINDS[rng.choices(list(KINDS), weights=[weight for weight, _ in KINDS.values()])[0]][1]
        model = rng.choices(models, weights=[free[model] for model in models])[0] if rng.random() < _ONE_MODEL else ""
        unit = sum(pods * amounts.get(GPU, 0) for pods, amounts in roles)
        units = max(1, round(mean * rng.lognormvariate(0.0, _SPREAD) / unit))
        while units and not _fits(cluster, gang := _gang(len(gangs), roles, units, model)):
            units //= 2
        if units:
            gangs.append(gang)
            wanted -= units * unit
    return cluster, gangs


def _cluster(number: int, nodes: int, source: Path | None, rng: random.Random) -> Snapshot:
    """Return a state of `tight_cases.py` whose nodes have labels that name their GPU models."""
    if source:
        with source.open(newline="") as lines:
            models = [row["model"] or "none" for row in csv.DictReader(lines)]
        every = list(zip(read_shapes(source), models, strict=True))
    else:
        every = [(shape, rng.choice(_MODELS[shape[2]]) if shape[2] else "none") for shape in drawn_shapes()]
    chosen = rng.sample(every, min(nodes, len(every)))
    fill, rule = FILLS[number % len(FILLS)], ("least", "most")[number // len(FILLS) % 2]
    cluster = state_of([shape for shape, _ in chosen], fill, rule, rng)
    labelled = (replace(node, labels={MODEL: model}) for node, (_, model) in zip(cluster.nodes, chosen, strict=True))
    return replace(cluster, nodes=tuple(labelled))


def _gang(index: int, roles: Kind, units: int, model: str) -> Waiting:
    """Return a gang of ``units`` units. With a ``model``, its roles that request GPUs require that model."""
    selector = ((MODEL, model),) if model else ()
    pods = [
        pod
        for role, (each, amounts) in enumerate(roles)
        for pod in _pods(f"{index}-{role}", units * each, amounts, selector if amounts.get(GPU) else ())
    ]
    return Waiting(pods, len(pods), seed=index, objective=Objective.FRAGMENTATION)


def _fits(cluster: Snapshot, gang: Waiting) -> bool:
    return solve(build_problem(gang.pods, gang.minimum, cluster, objective=gang.objective)).finding is Finding.FITS


def _pods(name: str, number: int, amounts: Mapping[str, int], selector: tuple[tuple[str, str], ...]) -> list[Pod]:
    spec = SchedulingSpec(requests=as_requests({"pods": 1, **amounts}), node_selector=selector)
    return [Pod("bench", f"{name}-{index}", f"{name}-{index}", "1", 0.0, "allaboard", "", "Pending", 0, spec) for index in range(number)]
