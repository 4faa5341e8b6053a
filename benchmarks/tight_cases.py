"""Builds gangs that barely fit on clusters that are nearly full, for `tight.py`.

A state is a cluster after a history. Its nodes have the shapes of the openb trace (Weng et al., USENIX ATC'23). The trace has a research
licence, so its file is read only if it is given. The nodes are filled with pods one by one. Then nearly a third of the pods leave, and
other pods are added.
A family is a gang whose roles need the resources of the same nodes in different proportions, so that no order of the roles helps. The
gang's size is the largest for which the judge (`judge.py`) finds a placement within a time limit. Mostly the judge also proves that one
member more doesn't fit.
"""

import csv
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from allaboard.model.arrays import Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Problem, build_problem
from judge import fits

GI = 1024**3
GPU = "nvidia.com/gpu"
RDMA = "rdma/hca"
RESOURCES = ("cpu", "memory", GPU, RDMA, "pods")
Shape = tuple[int, int, int]
"""The size of a node: cpu in thousandths, memory in bytes, GPUs."""

Background = tuple[int, int, int, int]
"""A kind of pods that fill the cluster: weight with which it is drawn, cpu, memory in Gi, GPUs."""

# Percentage of nodes, their cpu, memory in Gi and GPUs: about as in the trace, for use without its file.
_SHAPES = ((36, 96, 384, 8), (26, 104, 512, 2), (8, 16, 120, 2), (3, 128, 768, 8), (3, 32, 128, 4), (8, 32, 256, 0), (16, 96, 512, 0))
GPU_PODS: Sequence[Background] = (
    (30, 4, 8, 1),
    (25, 11, 47, 1),
    (10, 8, 29, 1),
    (8, 18, 63, 1),
    (5, 24, 91, 1),
    (4, 16, 64, 2),
    (6, 32, 128, 4),
    (4, 64, 256, 8),
)
CPU_PODS: Sequence[Background] = ((50, 8, 29, 0), (30, 12, 56, 0), (20, 32, 48, 0))
_CHURN = 0.3
FILLS = (0.6, 0.8, 0.9)
_STARTING_SIZE = 64
_MOST_SIZE = 8192
_MOST_REFUSED = 40

FAMILIES: Mapping[str, Sequence[tuple[str, int, Mapping[str, int]]]] = {
    # family: (role, share of the gang, requests of one pod)
    "cpu-mem": (("cpu-heavy", 1, {"cpu": 12_000, "memory": 16 * GI}), ("mem-heavy", 1, {"cpu": 4000, "memory": 72 * GI})),
    "gpu-cpu-mem": (
        ("cpu-heavy", 1, {"cpu": 14_000, "memory": 24 * GI, GPU: 1}),
        ("mem-heavy", 1, {"cpu": 4000, "memory": 96 * GI, GPU: 1}),
    ),
    "rdma-3-way": (
        ("rollout", 4, {"cpu": 16_000, "memory": 24 * GI}),
        ("replay", 2, {"cpu": 4000, "memory": 96 * GI, RDMA: 1}),
        ("trainer", 1, {"cpu": 8000, "memory": 48 * GI, GPU: 2, RDMA: 2}),
    ),
    "4g-3g-1g": (
        ("four", 1, {"cpu": 16_000, "memory": 64 * GI, GPU: 4}),
        ("three", 1, {"cpu": 20_000, "memory": 48 * GI, GPU: 3}),
        ("one", 1, {"cpu": 4000, "memory": 24 * GI, GPU: 1}),
    ),
    "cpu-sidecars": (
        ("worker", 1, {"cpu": 6000, "memory": 32 * GI, GPU: 1}),
        ("sidecar", 3, {"cpu": 10_000, "memory": 12 * GI}),
        ("cache", 2, {"cpu": 2000, "memory": 80 * GI}),
    ),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A family on a state, and ``most``, the largest number of members that is known to fit.

    ``is_proved``: whether one member more is proved not to fit. ``order``: the order in which the pods of the roles were created.
    """

    state: str
    family: str
    order: tuple[int, ...]
    snapshot: Snapshot
    most: int
    is_proved: bool

    def problem(self, percent: int) -> Problem:
        """Return the problem of placing the gang at ``percent`` of the largest size that fits; all members must be placed."""
        return _problem(self.snapshot, self.family, self.order, max(1, self.most * percent // 100))

    def over(self) -> Problem:
        """Return the problem of placing the gang with one member more than is known to fit."""
        return _problem(self.snapshot, self.family, self.order, self.most + 1)


def cases(
    nodes: int, states: int, families: Sequence[str], source: Path | None, *, seconds: float, name: str = "tight"
) -> Iterator[Case | None]:
    """Yield a case for each state and family; None if fewer members fit than there are roles. ``name`` seeds the random states."""
    shapes = read_shapes(source) if source else drawn_shapes()
    for number in range(states):
        fill, rule = FILLS[number % len(FILLS)], ("least", "most")[number // len(FILLS) % 2]
        rng = random.Random(f"{name}/{number}")
        snapshot = state_of(rng.sample(shapes, min(nodes, len(shapes))), fill, rule, rng)
        for family in families:
            order = tuple(rng.sample(range(len(FAMILIES[family])), len(FAMILIES[family])))
            most, is_proved = _most(snapshot, family, order, seconds)
            yield Case(f"{number}: {fill:.0%} {rule}-allocated", family, order, snapshot, most, is_proved) if most >= len(order) else None


def read_shapes(source: Path) -> list[Shape]:
    with source.open(newline="") as rows:
        return [(int(row["cpu_milli"]), int(row["memory_mib"]) * 1024**2, int(row["gpu"])) for row in csv.DictReader(rows)]


def drawn_shapes() -> list[Shape]:
    return [(cpu * 1000, memory * GI, gpus) for weight, cpu, memory, gpus in _SHAPES for _ in range(weight * 15)]


def state_of(shapes: Sequence[Shape], fill: float, rule: str, rng: random.Random) -> Snapshot:
    """Return a cluster of nodes with ``shapes`` whose pods have come and gone.

    ``fill``: share of the GPUs in use, or of the cpu on nodes without GPUs. ``rule``: whether pods go to the least or the most allocated
    nodes.
    """
    allocatable = np.array([(*shape, 4 if shape[2] == 8 else 0, 110) for shape in shapes], dtype=np.int64)
    used = np.zeros_like(allocatable)
    with_gpus = allocatable[:, 2] > 0
    for where, pods, column in ((with_gpus, GPU_PODS, 2), (~with_gpus, CPU_PODS, 0)):
        assigned = list(_filled_up(allocatable, used, where, pods, column, fill, rule, rng))
        for row, pod in rng.sample(assigned, int(len(assigned) * _CHURN)):
            used[row] -= pod
        list(_filled_up(allocatable, used, where, pods, column, fill, rule, rng))
    nodes = tuple(
        Node(name=f"node-{row:04}", uid=str(row), allocatable=as_requests(dict(zip(RESOURCES, amounts, strict=True))))
        for row, amounts in enumerate(allocatable.tolist())
    )
    return Snapshot(nodes, RESOURCES, allocatable, used)


def _filled_up(
    allocatable: Integers, used: Integers, where: Mask, pods: Sequence[Background], column: int, fill: float, rule: str, rng: random.Random
) -> Iterator[tuple[int, Integers]]:
    """Add pods until the share ``fill`` of a resource is in use; yield (node, pod). ``rule``: see ``state_of``."""
    refused = 0
    while used[where, column].sum() < fill * allocatable[where, column].sum() and refused < _MOST_REFUSED:
        _, cpu, memory, gpus = rng.choices(pods, weights=[weight for weight, *_ in pods])[0]
        pod = np.array((cpu * 1000, memory * GI, gpus, gpus // 4, 1), dtype=np.int64)
        rows = np.flatnonzero(where & (used + pod <= allocatable).all(axis=1))
        if not len(rows):
            refused += 1
            continue
        free = ((allocatable - used)[rows, :3] / np.maximum(allocatable[rows, :3], 1)).sum(axis=1)
        row = int(rows[np.argmax(free) if rule == "least" else np.argmin(free)])
        used[row] += pod
        yield row, pod


def _most(snapshot: Snapshot, family: str, order: tuple[int, ...], seconds: float) -> tuple[int, bool]:
    """Return the most members for which the judge finds a placement, and whether it proves that one member more doesn't fit."""

    def verdict(size: int) -> bool | None:
        return fits(_problem(snapshot, family, order, size), seconds)

    low, high = 0, _STARTING_SIZE
    while high <= _MOST_SIZE and verdict(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if verdict(middle) else (low, middle)
    return low, verdict(low + 1) is False


def _problem(snapshot: Snapshot, family: str, order: tuple[int, ...], size: int) -> Problem:
    """Return the problem of placing ``size`` pods in the family's proportions. A larger gang has at least as many pods of each role."""
    roles = FAMILIES[family]
    round_ = [role for role, (_, share, _) in enumerate(roles) for _ in range(share)]
    members = Counter(itertools.islice(itertools.cycle(round_), size))
    gang = [pod for role in order for pod in _pods(roles[role][0], members[role], roles[role][2])]
    return build_problem(gang, len(gang), snapshot, objective=Objective.BINPACK)


def _pods(role: str, number: int, amounts: Mapping[str, int]) -> list[Pod]:
    spec = SchedulingSpec(requests=as_requests({"pods": 1, **amounts}))
    return [Pod("bench", f"{role}-{index}", f"{role}-{index}", "1", 0.0, "allaboard", "", "Pending", 0, spec) for index in range(number)]
