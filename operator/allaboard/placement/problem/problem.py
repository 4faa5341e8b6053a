"""A gang and a cluster as integers: the only thing a search sees, and what travels to the worker that runs it.

Arrays have their nodes last, so that every operation of the search runs along contiguous memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.gpu_sharing import SHARES
from allaboard.model.reasons import Counted, Kind, Reason
from allaboard.model.requests import Requests
from allaboard.placement.problem.fragmentation import Fragmentation
from allaboard.placement.problem.objectives import Scoring, Weights
from allaboard.placement.rules.devices import GPU, assign_devices, slots_on_devices


class Candidate(Protocol):
    """A pod, as far as its seat goes."""

    @property
    def uid(self) -> str:
        """Who it is."""

    @property
    def spec(self) -> SchedulingSpec:
        """What it asks for."""


@dataclass(frozen=True, slots=True)
class Role:
    """Interchangeable pods, in the order given. ``refusals`` are (reason, nodes) of the nodes that aren't in the problem."""

    pods: tuple[str, ...]
    requests: Requests
    refusals: Counted


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """``roles`` that must all sit within one topology domain. ``domains``: int64[nodes], the domain of each node, -1 without one.

    Nodes of one domain have the same value of ``label``.
    """

    label: str
    roles: tuple[int, ...]
    domains: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What must be placed, and where it could go.

    ``minimum`` pods in all, ``least``: int64[roles] of each role, and of some ``sums`` of roles so many together must be placed, and those
    of each of ``together`` within one domain; ``outside`` has for each role (reason, nodes) of those outside once one is chosen.
    ``columns`` names what is counted: ``resources`` resources first, then what rules leave: host ports, of which each node has one, and
    volumes that nodes can attach. ``reasons`` are told where a node has too little of a column.
    ``count``: int64[roles], pods of each. ``demand``: int64[roles, columns], of one pod. ``free``: int64[columns, nodes], never
    negative. ``taken``: int64[columns, nodes], what others have of each resource there; no search looks at it, so it tells no nodes apart.
    ``admits``: bool[roles, nodes], the filters that don't depend on what is free. ``slots``: int64[roles, nodes], pods of
    one role that a node could take alone.
    Where a role asks for a part of a GPU, ``devices``: int64[nodes, devices] are the thousandths that are free, and ``shares``:
    int64[roles, nodes] what one pod asks of a device there; without nodes where nobody does. The columns then allow more than the devices
    do; ``trimmed`` says what they take.
    ``dislike``: float64[roles, nodes], what a pod costs on a node whoever else is there. ``domains``: int64[nodes], from 0.
    """

    minimum: int
    least: Integers
    objective: Objective
    roles: tuple[Role, ...]
    nodes: tuple[str, ...]
    total_nodes: int
    columns: tuple[str, ...]
    reasons: tuple[Reason, ...]
    resources: int
    count: Integers
    demand: Integers
    free: Integers
    taken: Integers
    admits: Mask
    slots: Integers
    devices: Integers | None
    shares: Integers
    weights: Weights
    scoring: Scoring
    dislike: Floats | None
    fragmentation: Fragmentation | None
    domains: Integers | None
    sums: tuple[tuple[tuple[int, ...], int], ...] = ()
    together: tuple[Together, ...] = ()
    outside: tuple[Counted, ...] = ()

    @property
    def total(self) -> int:
        """Pods in all."""
        return int(self.count.sum())

    def lacking(self, placed: Integers) -> Integers:
        """Pods that must be placed still when ``placed``: int64[..., roles] are: int64[...]."""
        of_roles = np.maximum(self.least - placed, 0).sum(axis=-1)
        for roles, least in self.sums:
            of_roles = of_roles + np.maximum(least - placed[..., list(roles)].sum(axis=-1), 0)
        lacking: Integers = np.maximum(of_roles, self.minimum - placed.sum(axis=-1))
        return lacking

    def confined(self, domains: Sequence[int]) -> "Problem":
        """The same with the domain chosen in which each of ``together`` sits."""
        admits = self.admits.copy()
        outside: list[Counted] = [()] * len(self.roles)
        for group, domain in zip(self.together, domains, strict=True):
            here = group.domains == domain
            for role in group.roles:
                elsewhere = int(np.count_nonzero(self.admits[role] & ~here))
                outside[role] = ((Reason(Kind.TOPOLOGY), elsewhere),) if elsewhere else ()
                admits[role] &= here
        return replace(self, admits=admits, slots=np.where(admits, self.slots, 0), outside=tuple(outside), together=())

    @property
    def node_arrays(self) -> tuple[Integers | Floats, ...]:
        """All that tells nodes apart, nodes last, 8 bytes each; who isn't admitted has no seat."""
        return (*self.node_arrays_without_dislike, *(() if self.dislike is None else (self.dislike,)))

    @property
    def node_arrays_without_dislike(self) -> tuple[Integers | Floats, ...]:
        """The same without what a pod costs on a node whoever else is there."""
        shared = (None, None) if self.devices is None else (self.devices.T, self.shares)
        optional = (self.domains, *shared)
        return (
            self.free,
            self.slots,
            *self.scoring.node_arrays,
            *(self.fragmentation.node_arrays if self.fragmentation else ()),
            *(group.domains for group in self.together),
            *(values for values in optional if values is not None),
        )

    def restricted_to(self, rows: Integers) -> "Problem":
        """The same gang on some of the nodes, given by ascending position; itself on all of them."""
        if len(rows) == len(self.nodes):
            return self
        return replace(
            self,
            nodes=tuple(self.nodes[row] for row in rows.tolist()),
            free=self.free.take(rows, axis=1),
            taken=self.taken.take(rows, axis=1),
            admits=self.admits.take(rows, axis=1),
            slots=self.slots.take(rows, axis=1),
            shares=self.shares if self.devices is None else self.shares.take(rows, axis=1),
            devices=None if self.devices is None else self.devices[rows],
            scoring=self.scoring.restricted_to(rows),
            dislike=None if self.dislike is None else self.dislike.take(rows, axis=1),
            fragmentation=self.fragmentation.restricted_to(rows) if self.fragmentation else None,
            domains=None if self.domains is None else numbered(self.domains[rows]),
            together=tuple(replace(group, domains=group.domains[rows]) for group in self.together),
        )

    def left_on_devices(self, counts: Integers) -> Integers | None:
        """How many pods of each role the devices take beside ``counts``: int64[roles, nodes]; ``None`` where nobody asks for a part."""
        if self.devices is None:
            return None
        shared = np.flatnonzero(self.shares.any(axis=1))
        whole = counts.T @ self.demand[:, self.columns.index(GPU)] if GPU in self.columns else np.zeros(len(self.nodes), dtype=np.int64)
        left, _ = assign_devices(self.devices, whole, counts[shared].T, self.shares[shared].T)
        slots = np.full(counts.shape, np.iinfo(np.int64).max)
        slots[shared] = slots_on_devices(left, self.shares[shared])
        return slots

    def trimmed(self, counts: Integers) -> Integers:
        """``counts``: int64[plans, roles, nodes] without the pods that no single device takes although all together could."""
        shared = np.flatnonzero(self.shares.any(axis=1))
        if self.devices is None or not len(shared):
            return counts
        whole = self.columns.index(GPU) if GPU in self.columns else -1
        plans, rows = np.nonzero(counts[:, shared].any(axis=1))
        while len(plans):
            patterns = counts[plans, :, rows]
            takes = patterns @ self.demand[:, whole] if whole >= 0 else np.zeros(len(plans), dtype=np.int64)
            sizes = self.shares[shared][:, rows].T
            _, fits = assign_devices(self.devices[rows], takes, patterns[:, shared], sizes)
            plans, rows, patterns, sizes = plans[~fits], rows[~fits], patterns[~fits], sizes[~fits]
            if len(plans):
                # The largest share of those that are there is the one to leave out.
                counts = counts.copy()
                victims = shared[np.where(patterns[:, shared] > 0, sizes, 0).argmax(axis=1)]
                counts[plans, victims, rows] -= 1
                left = counts[plans][:, shared][np.arange(len(plans)), :, rows].any(axis=1)
                plans, rows = plans[left], rows[left]
        return counts


def numbered(codes: Integers) -> Integers:
    """``codes`` as numbers from 0."""
    return np.unique(codes, return_inverse=True)[1].ravel().astype(np.int64)


def capacity_refusals(
    reasons: Sequence[Reason], demand: Integers, free: Integers, where: Mask, on_devices: Integers | None = None
) -> Counted:
    """Why nodes ``where``: bool[nodes] can't take one more pod of ``demand``: the first rule in the way, else each resource that lacks.

    ``on_devices``: int64[nodes], how many the devices take of one that asks for a part of a GPU.
    """
    lacks = demand[:, None] > free
    if on_devices is not None:
        lacks[reasons.index(Reason(Kind.INSUFFICIENT, SHARES))] |= on_devices == 0
    lacks &= where
    found: list[tuple[Reason, int]] = []
    for rule in dict.fromkeys(reason for reason in reasons if reason.kind is not Kind.INSUFFICIENT):
        refused = lacks[[reason == rule for reason in reasons]].any(axis=0)
        found.append((rule, int(np.count_nonzero(refused))))
        lacks &= ~refused
    for amount in dict.fromkeys(reason for reason in reasons if reason.kind is Kind.INSUFFICIENT):
        refused = lacks[[reason == amount for reason in reasons]].any(axis=0)
        found.append((amount, int(np.count_nonzero(refused))))
    return tuple((reason, nodes) for reason, nodes in found if nodes)
