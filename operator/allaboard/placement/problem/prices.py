"""Bid prices: what free GPUs are worth to the cluster's workload. Placements prefer nodes whose free GPUs lose little worth.

Fragmentation (``fragmentation``) asks whether *one* task of a class still runs on a node. Bid prices also count three other losses:

- A gap on a device is worth as much as the most valuable set of tasks that fills the gap. The values of tasks are the dual of the
  cutting-stock problem (Gilmore and Gomory 1961), which packs the workload into as few devices as possible. By these values, a gap of one
  half may be worth less than half a device.
- Free GPUs need free cpu on the same node. GPUs that the node's free cpu is expected not to serve are lost. The expectation assumes that
  tasks ask for the workload's mean cpu per GPU, with the spread of the workload (a newsvendor's expected shortage).
- Whole GPUs are worth nothing to tasks that need more GPUs together than the node has left.

Online packing places by bid prices (Talluri and van Ryzin 1998).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, exp, pi, sqrt

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.model.snapshot import Workload
from allaboard.placement.highs import Matrix, minimize
from allaboard.placement.problem.objectives import Weights
from allaboard.placement.rules.devices import WHOLE

_GRID = 10  # thousandths of a device in one step; sizes and gaps are counted in steps
_GAPS = WHOLE // _GRID  # steps of a whole device
_ROUNDS = 200  # most rounds of column generation
_EPSILON = 1e-9
_SHARES = 200  # demands are rounded to 1/200 of their sum, so that a small change of the workload keeps the prices
_LEAST_SPREAD = 0.05
_MOST_DEVICES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """The worth of free GPUs to one workload, by free cpu, by gaps on devices, and by the number of whole free GPUs.

    - ``cpu_per_gpu``: mean cpu that tasks ask for per GPU, in thousandths of a core;
    - ``spread``: standard deviation of that cpu for one GPU;
    - ``gaps``: float64[1001], the worth of a gap in GPUs, by the free thousandths of the device;
    - ``too_few``: float64[devices + 1], by the number of whole free GPUs: how many GPUs are lost, since tasks need more together.
    """

    cpu_per_gpu: float
    spread: float
    gaps: Floats
    too_few: Floats

    def worth(self, cpu: Integers, gpus: Integers, devices: Integers | None) -> Floats:
        """Return what the free GPUs of each of k nodes are worth, in GPUs: float64[k].

        ``cpu``: int64[k], the free cpu. ``gpus``: int64[k], the whole free GPUs. ``devices``: int64[k, devices], the free thousandths of
        each device; ``None`` if no GPU is shared.
        """
        if devices is None:
            free = worth = gpus.astype(np.float64)
        else:
            free, worth = devices.sum(axis=1) / WHOLE, self.gaps[devices].sum(axis=1)
        return worth - self._without_cpu(cpu, free) - self.too_few[np.minimum(gpus, len(self.too_few) - 1)]

    def _without_cpu(self, cpu: Integers, gpus: Floats) -> Floats:
        """Return how many GPUs are expected to find no cpu beside them: E[(D - cpu)+] / ``cpu_per_gpu``.

        The demand D for cpu is normal; its mean and its variance are proportional to ``gpus``.
        """
        deviation = self.spread * np.sqrt(np.maximum(gpus, 1e-9))
        surplus = (cpu - self.cpu_per_gpu * gpus) / deviation
        short = deviation * _expected_shortage(surplus) / self.cpu_per_gpu
        lost: Floats = np.where(gpus > 0, np.minimum(short, gpus), 0.0)
        return lost


_SURPLUS = np.linspace(-8.0, 8.0, 8193)  # in standard deviations
_SHORTAGE = np.array([exp(-0.5 * z * z) / sqrt(2.0 * pi) - z * 0.5 * erfc(z / sqrt(2.0)) for z in _SURPLUS.tolist()])


def _expected_shortage(surplus: Floats) -> Floats:
    """Return E[(Z - ``surplus``)+] for a standard normal Z, interpolated to seven digits: NumPy has no normal distribution."""
    shortage: Floats = np.where(surplus < _SURPLUS[0], -surplus, np.interp(surplus, _SURPLUS, _SHORTAGE))
    return shortage


def prices_of(mix: Workload) -> Prices | None:
    """Return the prices of a workload. The last result is cached.

    ``None`` if no task asks for GPUs, or if no task that asks for GPUs asks for cpu.
    """
    global _latest  # the workload changes seldom, and every placement needs its prices
    if _latest is None or _latest[0] is not mix:
        _latest = mix, _prices_from(mix)
    return _latest[1]


_latest: tuple[Workload, Prices | None] | None = None


def _prices_from(mix: Workload) -> Prices | None:
    tasks = [
        (spec.amount("cpu"), spec.whole_gpus, spec.gpu_share, number)
        for spec, number in mix
        if 0 < spec.whole_gpus <= _MOST_DEVICES or spec.gpu_share  # tasks that ask for more devices fit on no node
    ]
    if not tasks:
        return None
    cpu, whole, share, number = (np.array(column, dtype=np.float64) for column in zip(*tasks, strict=True))
    gpus = whole + share / WHOLE
    total = float((number * gpus).sum())
    per_gpu = float((number * cpu).sum()) / total
    if per_gpu <= 0:
        return None
    variance = float((number * (cpu - per_gpu * gpus) ** 2).sum()) / total
    demand = np.bincount(np.where(share > 0, np.ceil(share / _GRID), _GAPS).astype(np.int64), number * np.where(share > 0, 1, whole))
    sizes = np.flatnonzero(demand)
    shares = np.maximum(1, np.rint(demand[sizes] * (_SHARES / demand.sum())).astype(np.int64))
    counts = np.arange(_MOST_DEVICES + 1)
    return Prices(
        cpu_per_gpu=per_gpu,
        spread=max(variance**0.5, _LEAST_SPREAD * per_gpu, 1.0),
        gaps=_gap_values(tuple(sizes.tolist()), tuple(shares.tolist())),
        too_few=counts * (number * (whole > counts[:, None])).sum(axis=1) / number.sum(),
    )


def gap_worth(prices: Prices | None, weights: Weights) -> Floats | None:
    """Return the worth of each gap, which decides the device of a GPU part; ``None`` if ``weights`` ignore the worth of GPUs."""
    return prices.gaps if prices and weights.worth else None


@functools.lru_cache(maxsize=64)
def _gap_values(sizes: tuple[int, ...], demand: tuple[int, ...]) -> Floats:
    """Return the worth in GPUs of gaps of 0 to 1000 thousandths: float64[1001].

    The worth is by the cutting-stock problem: ``demand`` pieces of each of ``sizes`` are cut from as few devices as possible. Sizes are in
    steps of 10 thousandths. A whole device is worth as much as the part of all these devices that the pieces use.
    """
    least = np.array(demand, dtype=np.float64)
    patterns = [[_GAPS // size if other == number else 0 for other in range(len(sizes))] for number, size in enumerate(sizes)]
    for _ in range(_ROUNDS):
        columns = np.array(patterns, dtype=np.float64).T
        size, cut = np.nonzero(columns)
        pieces = Matrix.of(size, cut, columns[size, cut], len(sizes))
        unlimited = np.full(len(patterns), np.inf)
        found = minimize(np.ones(len(patterns)), unlimited, pieces, least, np.full(len(sizes), np.inf))
        prices = np.maximum(found.duals, 0.0)
        values, pattern = _best_filling(sizes, prices)
        if values[_GAPS] <= 1.0 + _EPSILON:
            break
        patterns.append(pattern)
    used = float(np.dot(sizes, demand)) / (float(prices @ least) * _GAPS)
    worth: Floats = values[np.arange(WHOLE + 1) // _GRID] / max(values[_GAPS], _EPSILON) * used
    return worth


def _best_filling(sizes: Sequence[int], prices: Floats) -> tuple[Floats, list[int]]:
    """Return the worth of each gap if the most valuable pieces fill it (unbounded knapsack), and the pieces that fill a whole device."""
    values, last = np.zeros(_GAPS + 1), np.full(_GAPS + 1, -1)
    pieces = np.array(sizes)
    for gap in range(1, _GAPS + 1):
        values[gap] = values[gap - 1]
        fits = np.flatnonzero(pieces <= gap)
        if len(fits):
            filled = values[gap - pieces[fits]] + prices[fits]
            best = int(filled.argmax())
            if filled[best] > values[gap] + _EPSILON:
                values[gap], last[gap] = filled[best], fits[best]
    pattern, gap = [0] * len(sizes), _GAPS
    while gap > 0:
        if last[gap] >= 0:
            pattern[last[gap]] += 1
            gap -= sizes[last[gap]]
        else:
            gap -= 1
    return values, pattern
