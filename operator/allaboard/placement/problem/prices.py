"""What free GPUs are worth to the cluster's workload: bid prices, by which a node is chosen that loses little of it.

Fragmentation (``fragmentation``) asks whether *one* task of a class still runs on a node. Two losses it doesn't see. A gap on a device is
worth what the most valuable tasks that fill it together are worth, which is the dual of the cutting-stock problem (Gilmore and Gomory
1961): if the workload is to be held by as few devices as possible, a gap of a half may be worth less than half a device. And free GPUs
need cpu beside them: of a node's, those are lost that its free cpu is not expected to serve, when tasks ask for as much per GPU as they do
on average, with their spread (a newsvendor's expected shortage). And whole ones are worth nothing to tasks that need more of them
together than a node has left. Bid prices are what online packing places by (Talluri and van Ryzin 1998).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtr

from allaboard.model.arrays import Floats, Integers
from allaboard.model.snapshot import Workload
from allaboard.placement.problem.objectives import Weights
from allaboard.placement.rules.devices import WHOLE

_GRID = 10  # sizes and gaps are counted in so many thousandths
_GAPS = WHOLE // _GRID
_ROUNDS = 200
_EPSILON = 1e-9
_SHARES = 200  # demands are compared in two hundredths of all, so that prices are found anew only when the workload has changed
_LEAST_SPREAD = 0.05
_MOST_DEVICES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """``cpu_per_gpu``: thousandths of a core per GPU asked for, ``spread`` of it for one GPU; ``gaps``: float64[1001], GPUs that so many
    free thousandths of a device are worth; ``too_few``: float64[devices + 1], GPUs that are lost when so many whole ones are free.
    """

    cpu_per_gpu: float
    spread: float
    gaps: Floats
    too_few: Floats

    def worth(self, cpu: Integers, gpus: Integers, devices: Integers | None) -> Floats:
        """GPUs: float64[k] that nodes are worth with ``cpu``: int64[k] and ``gpus``: int64[k] whole ones free, on ``devices`` if shared."""
        if devices is None:
            free = worth = gpus.astype(np.float64)
        else:
            free, worth = devices.sum(axis=1) / WHOLE, self.gaps[devices].sum(axis=1)
        return worth - self._without_cpu(cpu, free) - self.too_few[np.minimum(gpus, len(self.too_few) - 1)]

    def _without_cpu(self, cpu: Integers, gpus: Floats) -> Floats:
        """GPUs that are expected to stay without cpu: E[(D - cpu)+] / ``cpu_per_gpu``, D normal, its mean and variance as the GPUs."""
        deviation = self.spread * np.sqrt(np.maximum(gpus, 1e-9))
        surplus = (cpu - self.cpu_per_gpu * gpus) / deviation
        density = np.exp(-0.5 * surplus * surplus) / np.sqrt(2.0 * np.pi)
        short = deviation * (density - surplus * ndtr(-surplus)) / self.cpu_per_gpu
        lost: Floats = np.where(gpus > 0, np.minimum(short, gpus), 0.0)
        return lost


def prices_of(mix: Workload) -> Prices | None:
    """The prices of a workload; ``None`` when nobody asks for GPUs, or for cpu beside them. The last answer is remembered."""
    global _latest  # the workload changes seldom, and is asked for at every placement
    if _latest is None or _latest[0] is not mix:
        _latest = mix, _found(mix)
    return _latest[1]


_latest: tuple[Workload, Prices | None] | None = None


def _found(mix: Workload) -> Prices | None:
    tasks = [
        (spec.amount("cpu"), spec.whole_gpus, spec.gpu_share, number)
        for spec, number in mix
        if 0 < spec.whole_gpus <= _MOST_DEVICES or spec.gpu_share  # no node takes one that asks for more, and prices mind it not
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
    """What gaps are worth, by which a node gives its devices to parts of GPUs; ``None`` where ``weights`` don't mind them."""
    return prices.gaps if prices and weights.worth else None


@functools.lru_cache(maxsize=64)
def _gap_values(sizes: tuple[int, ...], demand: tuple[int, ...]) -> Floats:
    """GPUs that gaps of 0 to 1000 are worth when ``demand`` pieces of ``sizes`` steps are cut from as few devices as possible.

    A whole device is worth the part of it that is used then.
    """
    patterns = [[_GAPS // size if other == number else 0 for other in range(len(sizes))] for number, size in enumerate(sizes)]
    for _ in range(_ROUNDS):
        columns = np.array(patterns, dtype=np.float64).T
        found = linprog(np.ones(len(patterns)), A_ub=-columns, b_ub=-np.array(demand, dtype=np.float64), method="highs")
        prices = np.maximum(-found.ineqlin.marginals, 0.0)
        values, pattern = _best_filling(sizes, prices)
        if values[_GAPS] <= 1.0 + _EPSILON:
            break
        patterns.append(pattern)
    used = float(np.dot(sizes, demand)) / (float(found.fun) * _GAPS)
    worth: Floats = values[np.arange(WHOLE + 1) // _GRID] / max(values[_GAPS], _EPSILON) * used
    return worth


def _best_filling(sizes: Sequence[int], prices: Floats) -> tuple[Floats, list[int]]:
    """What each gap is worth, filled with the best pieces (unbounded knapsack), and the pieces that fill a whole device."""
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
