"""Volumes that are free, as capacity: the claims on a node each need a volume of their own, or a node where one can be provisioned.

Take any set of kinds of claims: there must be as many volumes that fit one of these kinds as there are such claims on the node. If this
holds for each set, all claims can get volumes (Hall's theorem). Each set of kinds is therefore a capacity of the nodes. A kind for which
the node can get provisioned volumes never lacks one. The number of kinds in a gang is limited, since their sets are many.

The capacities are exact for volumes that one node can use, such as local disks. ``planning.claims`` gives the other volumes to claims
beforehand, unless a gang has one claim only.
"""

from collections import deque
from collections.abc import Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from allaboard.model.arrays import Integers, Mask
from allaboard.model.constraints import FreeVolume, NodeSelectorTerm, SchedulingSpec, UnboundClaim
from allaboard.model.node import Node
from allaboard.placement.rules.filters import NodeFilters
from allaboard.placement.rules.matching import all_match

_Entries = tuple[tuple[NodeSelectorTerm, ...], ...]


class ClaimColumns(NamedTuple):
    """The volumes that are free, as capacities of a problem.

    ``demand``: int64[specs, capacities], the claims of one pod. ``free``: int64[capacities, nodes].
    """

    demand: Integers
    free: Integers


def claim_columns(specs: Sequence[SchedulingSpec], pods: int, nodes: tuple[Node, ...], filters: NodeFilters) -> ClaimColumns:
    """Return the capacities that count free volumes, for a gang of ``pods`` pods with the specs ``specs``."""
    kinds = sorted({claim for spec in specs for claim in spec.unbound})
    sets = _connected_sets(kinds)
    demand = np.array([[sum(claim in some for claim in spec.unbound) for some in sets] for spec in specs], dtype=np.int64)
    enough = pods * int(demand.max(initial=0))  # the gang never needs more
    free = np.zeros((len(sets), len(nodes)), dtype=np.int64)
    rows = _Rows(nodes, filters)
    for position, some in enumerate(sets):
        for volume in {volume.name: volume for claim in some for volume in claim.volumes}.values():
            free[position, rows.of(volume.terms)] += 1
        for claim in some:
            free[position, rows.of(claim.provisioned)] = enough
    return ClaimColumns(demand.reshape(len(specs), len(sets)), np.minimum(free, enough))


def _connected_sets(kinds: Sequence[UnboundClaim]) -> list[frozenset[UnboundClaim]]:
    """Return the sets of kinds that may lack volumes together though no smaller set does: those that share volumes."""
    names = {kind: frozenset(volume.name for volume in kind.volumes) for kind in kinds}
    sets = []
    for some in chain.from_iterable(combinations(kinds, size) for size in range(1, len(kinds) + 1)):
        reached, rest = set(names[some[0]]), list(some[1:])
        while near := [kind for kind in rest if reached & names[kind]]:
            reached.update(*(names[kind] for kind in near))
            rest = [kind for kind in rest if kind not in near]
        if not rest:
            sets.append(frozenset(some))
    return sets


class _Rows:
    """Finds the nodes that match a term of every entry, mostly one node by its host name."""

    def __init__(self, nodes: tuple[Node, ...], filters: NodeFilters) -> None:
        self._nodes, self._filters = nodes, filters
        self._by_value: dict[str, dict[str, list[int]]] = {}
        self._masks: dict[_Entries, Mask] = {}

    def of(self, entries: _Entries) -> Mask | list[int]:
        """Return the nodes, by position or as bool[nodes]."""
        if (only := _only_value(entries)) is not None:
            key, value = only
            if key not in self._by_value:
                found = self._by_value[key] = {}
                for row, node in enumerate(self._nodes):
                    if key in node.labels:
                        found.setdefault(node.labels[key], []).append(row)
            return self._by_value[key].get(value, [])
        if entries not in self._masks:
            mask = np.ones(len(self._nodes), dtype=np.bool_)
            for terms in entries:
                mask &= self._filters.matching(terms, self._nodes)
            self._masks[entries] = mask
        return self._masks[entries]


def _only_value(entries: _Entries) -> tuple[str, str] | None:
    """Return the label and the value that ``entries`` ask for, if they ask for one value of one label."""
    if len(entries) != 1 or len(entries[0]) != 1 or entries[0][0].fields or len(entries[0][0].expressions) != 1:
        return None
    expression = entries[0][0].expressions[0]
    return (expression.key, expression.values[0]) if expression.operator == "In" and len(expression.values) == 1 else None


def volumes_for(claims: Sequence[tuple[UnboundClaim, Node]]) -> list[FreeVolume | None] | None:
    """Return a volume for each claim, None where one must be provisioned. Return None if not all claims can get volumes.

    ``claims``: each claim with the node of its pod. Free volumes go first, and of these the smallest that is enough. This is a matching in
    a bipartite graph by augmenting paths (Kuhn), the shortest first.
    """
    usable = _UsableVolumes()
    candidates = [usable.on(claim, node) for claim, node in claims]
    taken: dict[str, tuple[int, FreeVolume]] = {}
    given: dict[int, FreeVolume] = {}

    def place(first: int) -> bool:
        """Give a volume to the claim at ``first``, if others can get other volumes. Paths are tried in the order of their lengths."""
        claims_to_try, tried = deque([first]), dict[str, int]()
        while claims_to_try:
            position = claims_to_try.popleft()
            for volume in candidates[position]:
                if volume.name in tried:
                    continue
                tried[volume.name] = position
                if volume.name in taken:
                    claims_to_try.append(taken[volume.name][0])
                    continue
                free: FreeVolume | None = volume
                while free is not None:  # each claim on the path gets the volume of the next one
                    position = tried[free.name]
                    before, given[position] = given.get(position), free
                    taken[free.name], free = (position, free), before
                return True
        return False

    for position in sorted(range(len(claims)), key=lambda each: _is_provisioned(*claims[each])):
        if not place(position) and not _is_provisioned(*claims[position]):
            return None
    found: list[FreeVolume | None] = [None] * len(claims)
    for position, volume in taken.values():
        found[position] = volume
    return found


class _UsableVolumes:
    """Finds the volumes of claims that a node can use, mostly by the one host name that a volume asks for."""

    def __init__(self) -> None:
        self._indexes: dict[int, tuple[dict[tuple[str, str], list[FreeVolume]], list[FreeVolume]]] = {}

    def on(self, claim: UnboundClaim, node: Node) -> list[FreeVolume]:
        """Return the volumes of ``claim`` that ``node`` can use, the smallest first."""
        if id(claim) not in self._indexes:
            by_label: dict[tuple[str, str], list[FreeVolume]] = {}
            others: list[FreeVolume] = []
            for volume in claim.volumes:
                only = _only_value(volume.terms)
                (others if only is None else by_label.setdefault(only, [])).append(volume)
            self._indexes[id(claim)] = by_label, others
        by_label, others = self._indexes[id(claim)]
        keys = {key for key, _ in by_label} if len(by_label) < len(node.labels) else node.labels.keys()
        found = [volume for key in keys for volume in by_label.get((key, node.labels.get(key, "")), ())]
        return sorted((*found, *(volume for volume in others if all_match(volume.terms, node))))


def _is_provisioned(claim: UnboundClaim, node: Node) -> bool:
    """Return whether a volume can be provisioned for a claim, near a node."""
    return all_match(claim.provisioned, node)
