"""The problem of placing a gang, as arrays: all that a search sees, and all that is sent to the process that runs it.

Nodes are the last axis of the arrays (except ``devices``), so that the operations of a search run along contiguous memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.gpu_sharing import SHARES
from allaboard.model.reasons import Counted, Kind, Reason
from allaboard.model.requests import Requests
from allaboard.placement.problem.fragmentation import Fragmentation
from allaboard.placement.problem.objectives import Scoring, Weights
from allaboard.placement.rules.attraction import Attraction
from allaboard.placement.rules.coupling import Coupling
from allaboard.placement.rules.devices import GPU, assign_devices, slots_on_devices
from allaboard.placement.rules.together import Together

LATE_FILTERS = (
    ((Kind.CLAIM_IN_USE,),),
    ((Kind.ATTACHMENTS,),),
    ((Kind.VOLUMES,), (Kind.NO_VOLUME, Kind.NO_STORAGE)),
    ((Kind.VOLUME_ZONE,),),
    ((Kind.UNLABELLED_SPREAD, Kind.SPREAD),),
    ((Kind.POD_AFFINITY,),),
    ((Kind.ANTI_AFFINITY,),),
    ((Kind.AVOIDED,),),
    ((Kind.RESOURCE_CLAIM,),),
    ((Kind.APART,),),
    ((Kind.TOPOLOGY,),),
    ((Kind.SEGMENTS,),),
)
"""The order in which nodes are refused once they have enough capacity: that of kube-scheduler's plugins, and ours at the end.

A node counts for the first plugin that refuses it: for the first reason of each tuple of this plugin.
"""


class Candidate(Protocol):
    """A pod that can be placed."""

    @property
    def uid(self) -> str:
        """The UID of the pod."""

    @property
    def spec(self) -> SchedulingSpec:
        """The requests and constraints of the pod."""


@dataclass(frozen=True, slots=True)
class Role:
    """Interchangeable pods, by UID. ``refusals``: for each reason, how many nodes are left out of the problem."""

    pods: tuple[str, ...]
    requests: Requests
    refusals: Counted


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """The pods that must be placed, and the nodes that can take them.

    Pods:

    - ``minimum``: pods that must be placed in all;
    - ``least``: int64[roles], pods of each role that must be placed;
    - ``sums``: (roles, number): at least ``number`` pods of these roles together must be placed;
    - ``couplings``: the rules by which the nodes of some pods restrict the nodes of other pods;
    - ``attractions``: what pods cost each other in the same domain, by their preferences;
    - ``outside``: for each role, the number of nodes that ``confined`` has left out, with the reason; empty without such nodes;
    - ``count``: int64[roles], pods of each role.

    Capacities:

    - ``columns``: names of the capacities that nodes have. The first ``resources`` of them are resources. The others come from rules: host
      ports, of which each node has one, and volumes that nodes can attach;
    - ``reasons``: for each capacity, the reason to report if a node has too little of it;
    - ``demand``: int64[roles, capacities], what one pod takes;
    - ``free``: int64[capacities, nodes], never negative;
    - ``taken``: int64[capacities, nodes], what other pods use of each resource. No search reads ``taken``, so nodes that differ only in it
      count as equal.

    Nodes:

    - ``admits``: bool[roles, nodes], the result of the filters that don't depend on what is free;
    - ``slots``: int64[roles, nodes], how many pods of the role the node could take if it took no other role;
    - ``nodes``: names of the nodes;
    - ``total_nodes``: number of nodes of the cluster, including nodes that can take no member.

    Shared GPUs:

    - ``devices``: int64[nodes, devices], the free thousandths of each device; ``None`` if no role asks for a part of a GPU;
    - ``shares``: int64[roles, nodes], the thousandths of one device that a pod takes there; int64[roles, 0] without ``devices``.

    By the capacities alone, more pods fit than by the devices; ``trimmed`` leaves out the excess.

    Costs:

    - ``dislike``: float64[roles, nodes], the part of a pod's cost that doesn't depend on other pods; ``None`` if it is 0 everywhere;
    - ``domains``: int64[nodes], the topology domain of each node, from 0, if a placement should use few domains; else ``None``.

    ``order``: int64[nodes], the place of each node among its neighbours in the topology; pods that follow each other get nodes that do.
    ``None`` for the order of names.
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
    order: Integers | None = None
    sums: tuple[tuple[tuple[int, ...], int], ...] = ()
    couplings: tuple[Coupling, ...] = ()
    attractions: tuple[Attraction, ...] = ()
    outside: tuple[Counted, ...] = ()

    @property
    def total(self) -> int:
        """The number of pods of all roles."""
        return int(self.count.sum())

    @property
    def together(self) -> tuple[Together, ...]:
        """The couplings that are sets of roles, each of which must be placed within one domain."""
        return tuple(each for each in self.couplings if isinstance(each, Together))

    @property
    def has_other_couplings(self) -> bool:
        """Return whether there are couplings other than those of ``together``."""
        return len(self.together) < len(self.couplings)

    @property
    def attractions_in_domains(self) -> tuple[Attraction, ...]:
        """The attractions whose domains have several nodes."""
        return tuple(each for each in self.attractions if not each.is_per_node)

    def coupled_classes(self) -> Integers:
        """Return a number for each node: int64[roles, nodes]. Nodes with equal numbers are alike for all couplings of the role."""
        numbers = np.zeros_like(self.slots)
        for coupling in self.couplings:
            for role in coupling.roles:
                numbers[role] = combined([numbers[role], coupling.classes])
        return numbers

    def allowed(self, counts: Integers, role: int) -> Mask:
        """Return the nodes that all couplings allow to one more pod of ``role`` beside the placement ``counts``: bool[nodes]."""
        allowed = np.ones(counts.shape[1], dtype=np.bool_)
        for coupling in self.couplings:
            allowed &= coupling.allows(counts, role)
        return allowed

    def lacking(self, placed: Integers) -> Integers:
        """Return how many more pods must be placed if the pods ``placed`` are placed already.

        ``placed``: int64[..., roles], pods of each role. The result is int64[...].
        """
        of_roles = np.maximum(self.least - placed, 0).sum(axis=-1)
        for roles, least in self.sums:
            of_roles = of_roles + np.maximum(least - placed[..., list(roles)].sum(axis=-1), 0)
        lacking: Integers = np.maximum(of_roles, self.minimum - placed.sum(axis=-1))
        return lacking

    def confined(self, domains: Sequence[int]) -> "Problem":
        """Return the problem with each set of roles in ``together`` confined to one domain: the i-th set to ``domains[i]``."""
        admits, others = self.admits.copy(), tuple(each for each in self.couplings if not isinstance(each, Together))
        outside: list[Counted] = [()] * len(self.roles)
        for group, domain in zip(self.together, domains, strict=True):
            here = group.domains == domain
            for role in group.roles:
                elsewhere = int(np.count_nonzero(self.admits[role] & ~here))
                outside[role] = ((Reason(Kind.TOPOLOGY), elsewhere),) if elsewhere else ()
                admits[role] &= here
        return replace(self, admits=admits, slots=np.where(admits, self.slots, 0), outside=tuple(outside), couplings=others)

    @property
    def node_arrays(self) -> tuple[Integers | Floats, ...]:
        """The arrays by which a search distinguishes nodes. Nodes are the last axis, and an element has 8 bytes.

        ``admits`` isn't among them: a node that doesn't admit a role has no slots for the role.
        """
        return (*self.node_arrays_without_dislike, *(() if self.dislike is None else (self.dislike,)))

    def node_table(self, *, with_dislike: bool) -> NDArray[np.uint64]:
        """Return the bits of all values by which a search distinguishes nodes: uint64[values, nodes]. Equal nodes have equal columns."""
        arrays = self.node_arrays if with_dislike else self.node_arrays_without_dislike
        return np.concatenate([np.ascontiguousarray(values).view(np.uint64).reshape(-1, len(self.nodes)) for values in arrays])

    @property
    def node_arrays_without_dislike(self) -> tuple[Integers | Floats, ...]:
        """The arrays of ``node_arrays`` without ``dislike``."""
        shared = (None, None) if self.devices is None else (self.devices.T, self.shares)
        optional = (self.domains, *shared)
        return (
            self.free,
            self.slots,
            *self.scoring.node_arrays,
            *(self.fragmentation.node_arrays if self.fragmentation else ()),
            *(each.classes for each in self.couplings),
            *(each.classes for each in self.attractions),
            *(values for values in optional if values is not None),
        )

    def restricted_to(self, rows: Integers) -> "Problem":
        """Return the problem on some of the nodes, given by ascending position; the same object if these are all nodes."""
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
            order=None if self.order is None else self.order[rows],
            couplings=tuple(each.restricted_to(rows) for each in self.couplings),
            attractions=tuple(each.restricted_to(rows) for each in self.attractions),
        )

    def left_on_devices(self, counts: Integers) -> Integers | None:
        """Return how many more pods of each role the devices take beside ``counts``: int64[roles, nodes].

        ``None`` if no role asks for a part of a GPU. For a role that asks for no part, the number is the largest integer.
        """
        if self.devices is None:
            return None
        shared = np.flatnonzero(self.shares.any(axis=1))
        left, _ = self.assigned_on_devices(np.arange(len(self.nodes)), counts.T)
        slots = np.full(counts.shape, np.iinfo(np.int64).max)
        slots[shared] = slots_on_devices(left, self.shares[shared])
        return slots

    @property
    def whole_gpus(self) -> Integers:
        """The whole GPUs that a pod of each role takes: int64[roles]."""
        return self.demand[:, self.columns.index(GPU)] if GPU in self.columns else np.zeros_like(self.count)

    def assigned_on_devices(self, rows: Integers, patterns: Integers) -> tuple[Integers, Mask]:
        """Assign pods to the devices of each of the nodes ``rows``, as ``assign_devices`` does. There must be ``devices``.

        ``rows``: int64[k]. ``patterns``: int64[k, roles], the pods of each role on each of these nodes.
        """
        if self.devices is None:
            raise ValueError("no role asks for a part of a GPU")
        shared = np.flatnonzero(self.shares.any(axis=1))
        return assign_devices(self.devices[rows], patterns @ self.whole_gpus, patterns[:, shared], self.shares[shared][:, rows].T)

    def trimmed(self, counts: Integers) -> Integers:
        """Return ``counts`` without the pods that fit in the sum of a node's devices, but on no single device.

        Example: two devices have 500 thousandths free each, and a pod asks for 600 of one device. The sum of both devices is enough for
        this pod, but neither device is. ``counts`` and the result: int64[plans, roles, nodes].
        """
        shared = np.flatnonzero(self.shares.any(axis=1))
        if self.devices is None or not len(shared):
            return counts
        plans, rows = np.nonzero(counts[:, shared].any(axis=1))
        while len(plans):
            patterns = counts[plans, :, rows]
            _, fits = self.assigned_on_devices(rows, patterns)
            plans, rows, patterns = plans[~fits], rows[~fits], patterns[~fits]
            if len(plans):
                sizes = self.shares[shared][:, rows].T
                # Leave out a pod of the role with the largest part.
                counts = counts.copy()
                victims = shared[np.where(patterns[:, shared] > 0, sizes, 0).argmax(axis=1)]
                counts[plans, victims, rows] -= 1
                left = counts[plans][:, shared][np.arange(len(plans)), :, rows].any(axis=1)
                plans, rows = plans[left], rows[left]
        return counts


def numbered(codes: Integers) -> Integers:
    """Return ``codes`` renumbered from 0, in the order of their values: [1, 0, 1] for [7, 3, 7]."""
    return np.unique(codes, return_inverse=True)[1].ravel().astype(np.int64)


def combined(codes: Sequence[Integers]) -> Integers:
    """Return a number for each position, from 0: positions have equal numbers if they agree in all ``codes``, of which there are some."""
    found = numbered(codes[0])
    for each in map(numbered, codes[1:]):
        found = numbered(found * (int(each.max(initial=0)) + 1) + each)
    return found


def capacity_refusals(
    reasons: Sequence[Reason], demand: Integers, free: Integers, where: Mask, on_devices: Integers | None = None
) -> Counted:
    """Return the reasons why nodes can't take one more pod, each with the number of these nodes.

    A node counts for the first rule that it fails, such as a host port. If it fails no rule, it counts for each resource of which it has
    too little. ``demand``: int64[capacities], what the pod takes. ``where``: bool[nodes], the nodes that are counted. ``on_devices``:
    int64[nodes], how many more pods the devices take, for a role that asks for a part of a GPU.
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
