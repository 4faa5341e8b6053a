"""The best packing of interchangeable pods, exactly: a gang of one role needs no search.

A node is worth ``k * (a + k * b)`` to the binpack score when it takes ``k`` pods: convex, so of two nodes that are both filled in part
one could take a pod of the other at no loss. Some best packing therefore fills every node it uses to its brim, but at most one, and that
is a knapsack over classes of equal nodes (bounded multiplicities, dynamic programming over pods; Kellerer et al., Knapsack Problems, 7).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allaboard.model.gang import Objective
from allaboard.placement.problem import Integers, Problem

Floats = NDArray[np.float64]

_DIGITS = 12  # nodes whose worth differs by rounding only are equal
_MOST_STEPS = 20_000  # operations on whole arrays; more would take longer than a search
_NEVER = -1.0


@dataclass(frozen=True, slots=True)
class _Class:
    """Equal nodes, ``rows`` ascending, each of which takes ``seats`` pods; ``worth``: float64[seats + 1] of taking so many."""

    rows: Integers
    seats: int
    worth: Floats


@dataclass(frozen=True, slots=True)
class _Layer:
    """What was chosen of one class for each number of pods so far.

    ``full``: int64[pods + 1], nodes filled where all are; ``full_beside`` where one node of another class is filled in part;
    ``full_below`` and ``part`` where that one is of this class, which is where ``part`` isn't 0.
    """

    full: Integers
    full_beside: Integers
    full_below: Integers
    part: Integers


def best_packing(problem: Problem) -> Integers | None:
    """The counts, int64[1, nodes], of a packing that nothing beats in the score of ``binpack``; as many pods as there are seats.

    ``None`` when the problem isn't of that kind: several roles, another objective, or a node that would be more than full.
    """
    if len(problem.roles) != 1 or problem.objective is not Objective.BINPACK or not problem.nodes:
        return None
    seats = np.minimum(problem.seats[0], problem.count[0])
    pods = int(min(problem.count[0], seats.sum()))
    scoring = problem.scoring
    weight, used, step = scoring.weight[0], scoring.used, scoring.step[0]
    if (weight * (used + seats * step) > weight * (1.0 + 1e-9)).any():
        return None  # a node that is full counts no more: not convex
    classes = _classes(seats, (weight * used).sum(axis=0), (weight * step).sum(axis=0))
    if sum(2 * min(len(each.rows), pods // each.seats) + each.seats for each in classes) > _MOST_STEPS:
        return None
    return _traced(classes, *_layers(classes, pods), pods, len(problem.nodes))


def _classes(seats: Integers, base: Floats, growth: Floats) -> list[_Class]:
    """The fullest first, so that ties go to nodes that are in use."""
    rows = np.flatnonzero(seats)
    keys = np.column_stack((-np.round(base[rows], _DIGITS), np.round(growth[rows], _DIGITS), seats[rows]))
    kinds, kind_of = np.unique(keys, axis=0, return_inverse=True)
    found = []
    for kind, (base_, growth_, most) in enumerate(kinds.tolist()):
        taken = np.arange(int(most) + 1)
        found.append(_Class(rows[kind_of.ravel() == kind], int(most), taken * (-base_ + taken * growth_)))
    return found


def _layers(classes: list[_Class], pods: int) -> tuple[list[_Layer], bool]:
    """The layers of the knapsack, and whether the best packing fills a node in part."""
    whole = np.full(pods + 1, _NEVER)
    whole[0] = 0.0
    parted = np.full(pods + 1, _NEVER)
    layers = []
    for each in classes:
        most = min(len(each.rows), pods // each.seats)
        below, full_below = _filled(whole, each, min(most, len(each.rows) - 1))
        parted, full_beside = _filled(parted, each, most)
        part = np.zeros(pods + 1, dtype=np.int64)
        for count in range(1, min(each.seats, pods + 1)):
            shifted = np.full(pods + 1, _NEVER)
            shifted[count:] = np.where(below[: pods + 1 - count] >= 0, below[: pods + 1 - count] + each.worth[count], _NEVER)
            better = shifted > parted
            parted = np.where(better, shifted, parted)
            part[better] = count
        whole, full = _filled(whole, each, most)
        layers.append(_Layer(full, full_beside, full_below, part))
    return layers, bool(parted[pods] > whole[pods])


def _filled(values: Floats, each: _Class, most: int) -> tuple[Floats, Integers]:
    """``values`` when up to ``most`` nodes of a class are filled as well, and how many are."""
    best, chosen = values.copy(), np.zeros(len(values), dtype=np.int64)
    for count in range(1, most + 1):
        offset = count * each.seats
        before = values[: len(values) - offset]
        candidate = np.where(before >= 0, before + count * each.worth[-1], _NEVER)
        better = candidate > best[offset:]
        best[offset:] = np.where(better, candidate, best[offset:])
        chosen[offset:][better] = count
    return best, chosen


def _traced(classes: list[_Class], layers: list[_Layer], is_parted: bool, pods: int, nodes: int) -> Integers:
    counts = np.zeros((1, nodes), dtype=np.int64)
    left = pods
    for each, layer in zip(reversed(classes), reversed(layers), strict=True):
        part = int(layer.part[left]) if is_parted else 0
        if part:
            is_parted = False
            left -= part
            filled = int(layer.full_below[left])
            counts[0, each.rows[filled]] = part
        else:
            filled = int((layer.full_beside if is_parted else layer.full)[left])
        counts[0, each.rows[:filled]] = each.seats
        left -= filled * each.seats
    return counts
