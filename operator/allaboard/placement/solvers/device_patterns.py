"""Prove that a gang doesn't fit, by the devices alone: by how the parts of GPUs fill single devices.

All devices are pooled, whichever nodes they belong to, and whatever else the nodes have. Equal devices are of one *kind*. A kind can be
filled in some ways, its patterns. Whole numbers of each pattern are chosen so that they hold the minimum of the gang (Gilmore and Gomory
1961). The linear relaxation of this program is so tight that it mostly decides alone (Scheithauer and Terno 1995). No placement holds more
than the program, so a proof holds for the gang. A choice of patterns is no placement, though.
"""

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.highs import Status
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.devices import GPU, WHOLE, whole_devices
from allaboard.placement.rules.program import AssignmentVariables, Rows
from allaboard.placement.solvers.milp_model import add_members, optimize

_MOST_PATTERNS = 4_000
_MOST_WORK = 40_000  # steps that list patterns, each about a microsecond
_BRANCHES = 200


def excluded_by_devices(problem: Problem, slots: Integers, seconds: float = np.inf) -> bool:
    """Return whether the devices of all nodes can't hold the minimum of ``problem``; False if that isn't proved.

    ``slots``: int64[roles, nodes], the pods of each role that a node may take. ``seconds``: the most time.
    """
    if problem.devices is None:
        return False
    whole, roles = problem.whole_gpus, np.arange(len(problem.count))
    kinds, sizes = _kinds(problem.devices, np.where(slots > 0, np.where(whole[:, None] > 0, WHOLE, problem.shares), 0))
    patterns = _patterns(kinds, problem.count, whole)
    if patterns is None:
        return False
    kind, held = patterns
    # The variables: the pods of each role, those of them that need no counted device, and the devices of each pattern.
    most, beside = np.minimum(problem.count, slots.sum(axis=1)), 2 * len(roles)
    rows = Rows()
    add_members(rows, problem, AssignmentVariables(roles, np.full_like(roles, -1), most, ()))
    rows.add(kind, beside + np.arange(len(kind)), np.ones(len(kind)), np.full(len(sizes), -np.inf), sizes.astype(np.float64))
    pattern, role = np.nonzero(held)
    devices = np.maximum(whole, 1).astype(np.float64)  # that a pod takes
    rows.add(
        np.concatenate([role, roles, roles]),
        np.concatenate([beside + pattern, roles, len(roles) + roles]),
        np.concatenate([held[pattern, role].astype(np.float64), -devices, devices]),
        np.where(problem.shares.any(axis=1) | (whole > 0), 0.0, -np.inf),
        np.full(len(roles), np.inf),
    )
    upper = np.concatenate([most, _beside_devices(problem, problem.devices, slots), sizes[kind]]).astype(np.float64)
    # The proof must be found twice, with presolve and without, since the solver has tolerances.
    statuses = (optimize(rows, upper, _BRANCHES, presolve=presolve, seconds=seconds, is_any=True)[0] for presolve in (True, False))
    return all(status is Status.INFEASIBLE for status in statuses)


def _kinds(devices: Integers, takes: Integers) -> tuple[Integers, Integers]:
    """Return the kinds of devices, int64[kinds, 1 + roles], and the number of devices of each kind: int64[kinds].

    ``takes``: int64[roles, nodes], the thousandths that a pod of each role takes of one device; 0 where it can't run. The first column of
    a kind has the free thousandths. The others have what a pod of each role takes of the device; 0 if the device can't take it.
    """
    node, device = np.nonzero(devices > 0)
    table = np.column_stack([devices[node, device], takes.T[node]])
    table[:, 1:][table[:, 1:] > table[:, :1]] = 0
    kinds, sizes = np.unique(table[table[:, 1:].any(axis=1)], axis=0, return_counts=True)
    return kinds, sizes


def _patterns(kinds: Integers, count: Integers, whole: Integers) -> tuple[Integers, Integers] | None:
    """Return the ways to fill a device to which no further pod can be added; None if there are too many.

    The first value is the kind of each pattern: int64[patterns]. The second one is how many pods of each role it holds, or devices of such
    a pod that asks for whole ones: int64[patterns, roles].
    """
    found: list[tuple[int, list[int]]] = []
    work = 0
    for number, (free, *takes) in enumerate(kinds.tolist()):
        roles = sorted((role for role, size in enumerate(takes) if size), key=lambda role: -takes[role])
        open_ways: list[tuple[int, int, list[int]]] = [(0, free, [0] * len(takes))]
        while open_ways:
            work += 1
            if work > _MOST_WORK or len(found) > _MOST_PATTERNS:
                return None
            place, left, held = open_ways.pop()
            if place == len(roles):
                if all(takes[role] > left or held[role] == _most(count, whole, role) for role in roles):
                    found.append((number, held))
                continue
            role = roles[place]
            most = min(left // takes[role], _most(count, whole, role))
            # The last and smallest role takes all that is left: with fewer of its pods, one more could be added.
            numbers = range(most if place == len(roles) - 1 else 0, most + 1)
            open_ways += [(place + 1, left - taken * takes[role], [*held[:role], taken, *held[role + 1 :]]) for taken in numbers]
    if not found:
        return np.zeros(0, dtype=np.int64), np.zeros((0, len(count)), dtype=np.int64)
    return np.array([number for number, _ in found]), np.array([held for _, held in found])


def _most(count: Integers, whole: Integers, role: int) -> int:
    return 1 if whole[role] else int(count[role])


def _beside_devices(problem: Problem, devices: Integers, slots: Integers) -> Integers:
    """Return how many pods with whole GPUs the nodes take whose GPUs aren't counted by ``devices``: int64[roles]."""
    if GPU not in problem.columns:
        return np.zeros_like(problem.count)
    elsewhere = problem.free[problem.columns.index(GPU)] > whole_devices(devices)
    beside: Integers = np.where(problem.whole_gpus > 0, slots[:, elsewhere].sum(axis=1), 0)
    return beside
