"""Node filters that depend on the node object alone: which nodes a spec may use, whatever is free on them.

Thousands of nodes have only a few distinct taints and label values. So each rule is decided once per distinct value, and spread over the
nodes by array indexing. The results are kept as long as the snapshot has the same tuple of nodes.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Generic, TypeVar

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import GpuRequest, NodeSelectorTerm, Requirement, SchedulingSpec, Toleration
from allaboard.model.gpu_inventory import GpuInventory
from allaboard.model.gpu_sharing import DRIVERS, GPU, WHOLE
from allaboard.model.node import Node, Taint
from allaboard.model.reasons import Counted, Kind, Reason
from allaboard.placement.rules.attraction import NeighbourDislikes, neighbour_dislikes
from allaboard.placement.rules.gpus import gpu_rules
from allaboard.placement.rules.matching import (
    UNSCHEDULABLE_TAINT,
    image_size,
    label_matches,
    name_matches,
    readiness_is_tainted,
    tolerates,
    undesired_taints,
    untolerated_taint,
)

_Value = TypeVar("_Value", bound=Hashable)

_MOST_COLUMNS = 128
_MANY_VALUES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Usable:
    """The nodes that a spec may use, and the reasons why other nodes refuse the spec.

    ``admitted``: bool[nodes]. ``late`` are the filters that kube-scheduler asks after it has compared capacity: volumes and other pods.
    Each has its reason, and the nodes that it refuses and no early filter does: bool[nodes]. ``reasons`` counts the nodes that early
    filters refuse, each by the first of them. A node that only GPU rules refuse is counted under each GPU rule that it fails.
    ``refused_by_gpus``: bool[nodes], the nodes that only GPU rules refuse; ``None`` without GPU rules.
    """

    admitted: Mask
    reasons: Counted
    refused_by_gpus: Mask | None = None
    late: tuple[tuple[Reason, Mask], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Dislikes:
    """The shares of a pod's preferences that each node doesn't meet: float64[nodes] each, from 0 for the best node to 1.

    ``affinity`` is by the node's labels, ``taints`` by its PreferNoSchedule taints, ``images`` by the images on its disk. ``neighbours``
    are preferences about other pods; None without any.
    """

    affinity: Floats
    taints: Floats
    images: Floats
    neighbours: NeighbourDislikes | None = None


@dataclass(frozen=True, slots=True)
class _Column(Generic[_Value]):
    """One property of all nodes: its distinct ``values``, and ``codes``: int64[nodes], the index of each node's value."""

    values: tuple[_Value, ...]
    codes: Integers

    def where(self, holds: Callable[[_Value], bool]) -> Mask:
        return np.array([holds(value) for value in self.values], dtype=np.bool_)[self.codes]


class NodeFilters:
    """Decides which nodes specs may use. The results for one tuple of nodes are cached.

    The cache is limited, since tenants choose the specs.
    """

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._gpus: GpuInventory | None = None
        self._by_gpus: dict[Hashable, tuple[Usable, Usable]] = {}
        self._reset(())

    def usable(self, spec: SchedulingSpec, nodes: tuple[Node, ...], gpus: GpuInventory | None = None) -> Usable:
        """Return which of ``nodes`` admit pods of ``spec``; ``gpus`` has the GPUs of the nodes."""
        if nodes is not self._nodes:
            self._reset(nodes)
        usable = self._without_gpu_rules(spec)
        if spec.gpus is None or not spec.gpus.rules:
            return usable
        if gpus is not self._gpus:
            self._gpus, self._by_gpus = gpus, {}
        key = (id(usable), spec.gpus)
        known = self._by_gpus.get(key)
        if known is None or known[0] is not usable:
            if len(self._by_gpus) >= self._limit:
                self._by_gpus.clear()
            known = self._by_gpus[key] = usable, _with_gpus(usable, spec.gpus, gpus)
        return known[1]

    def _without_gpu_rules(self, spec: SchedulingSpec) -> Usable:
        key = _place_of(spec)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self._limit:
                self._known.clear()
            known = self._known[key] = self._evaluate(spec)
        return known

    def _reset(self, nodes: tuple[Node, ...]) -> None:
        self._nodes = nodes
        self._known: dict[Hashable, Usable] = {}
        self._gpus, self._by_gpus = None, {}
        self._preferences: dict[Hashable, Dislikes] = {}
        self._columns: dict[str, _Column[str | None]] = {}
        self._shares = any(node.shared is not None for node in nodes)
        self._states = _column((node.is_unschedulable, node.is_ready, node.taints) for node in nodes)

    def domains(self, key: str, nodes: tuple[Node, ...], alone: int | None = None) -> Integers:
        """Return a code for the value of a label on each of ``nodes``: int64[nodes]. Equal values have equal codes.

        A node without the label has the code ``alone``. If ``alone`` is ``None``, such a node has a code that no other node has.
        """
        if nodes is not self._nodes:
            self._reset(nodes)
        column = self._label(key)
        is_alone = column.where(lambda value: value is None)
        return np.where(is_alone, len(column.values) + np.arange(len(nodes)) if alone is None else alone, column.codes)

    def domain(self, key: str, value: str, nodes: tuple[Node, ...]) -> int:
        """Return the code that ``domains`` returns for the nodes with a value of a label; -2 if no node has it."""
        if nodes is not self._nodes:
            self._reset(nodes)
        values = self._label(key).values
        return values.index(value) if value in values else -2

    def eligible(self, spec: SchedulingSpec, nodes: tuple[Node, ...], *, by_affinity: bool, by_taints: bool) -> Mask:
        """Return the nodes that the node affinity of ``spec`` admits, and whose taints it tolerates: bool[nodes]."""
        if nodes is not self._nodes:
            self._reset(nodes)
        mask = self._affinity(spec) if by_affinity else np.ones(len(nodes), dtype=np.bool_)
        return mask & self._states.where(lambda state: untolerated_taint(state[2], spec.tolerations) is None) if by_taints else mask

    def matching(self, terms: Sequence[NodeSelectorTerm], nodes: tuple[Node, ...]) -> Mask:
        """Return the nodes that match one of ``terms``: bool[nodes]."""
        if nodes is not self._nodes:
            self._reset(nodes)
        return self._any_term(terms)

    def preference(self, spec: SchedulingSpec, nodes: tuple[Node, ...]) -> Dislikes:
        """Return the share of the preferences of ``spec`` that each of ``nodes`` doesn't meet, as kube-scheduler scores nodes.

        - Affinity: the weight of the preferred terms that don't match, as a share of the weight of all terms.
        - Taints: the number of PreferNoSchedule taints that aren't tolerated, as a share of the largest such number on a node that the pod
          may use.
        - Images: the bytes that must be pulled, as a share of the bytes of those images that any node has.
        - Neighbours: ``attraction.neighbour_dislikes``, for the nodes that the pod may use.
        """
        if nodes is not self._nodes:
            self._reset(nodes)
        key: tuple[Hashable, ...] = (spec.preferred, spec.images, spec.preferred_spread, spec.neighbours, _place_of(spec))
        known = self._preferences.get(key)
        if known is None:
            if len(self._preferences) >= self._limit:
                self._preferences.clear()
            known = self._preferences[key] = self._dislikes(spec)
        return known

    def _dislikes(self, spec: SchedulingSpec) -> Dislikes:
        affinity = np.zeros(len(self._nodes))
        total = sum(weight for weight, _ in spec.preferred)
        for weight, term in spec.preferred:
            affinity += ~self._any_term((term,)) * (weight / total)
        avoided = np.array([len(undesired_taints(taints, spec.tolerations)) for _, _, taints in self._states.values], dtype=np.float64)
        taints = avoided[self._states.codes]
        may_use = self._without_gpu_rules(spec).admitted if spec.neighbours is not None or avoided.any() else None
        if may_use is not None:
            taints = np.minimum(taints / max(1.0, taints[may_use].max(initial=0.0)), 1.0)
        neighbours = None
        if spec.neighbours is not None and may_use is not None:
            amounts_of = partial(self.amounts, nodes=self._nodes)
            neighbours = neighbour_dislikes(spec.neighbours, spec.preferred_spread, amounts_of, may_use)
        return Dislikes(affinity, taints, self._missing_images(spec), neighbours)

    def amounts(self, key: str, amounts: Mapping[str, int], nodes: tuple[Node, ...]) -> tuple[Integers, Integers]:
        """Return the domain of each of ``nodes`` by a label, -1 without it, and the amount for the label's value: int64[nodes] each.

        A value that ``amounts`` doesn't name has the amount 0.
        """
        domains, column = self.domains(key, nodes, -1), self._label(key)
        of_values = np.array([amounts.get(value or "", 0) for value in column.values], dtype=np.int64)
        return domains, np.where(domains >= 0, of_values[column.codes], 0)

    def _missing_images(self, spec: SchedulingSpec) -> Floats:
        here, total = np.zeros(len(self._nodes)), 0
        for name in spec.images:
            sizes = np.fromiter((image_size(node, name) for node in self._nodes), dtype=np.float64, count=len(self._nodes))
            here += sizes
            total += sizes.max(initial=0.0)
        return 1.0 - here / total if total else here

    def refused(self, spec: SchedulingSpec, nodes: tuple[Node, ...]) -> Iterator[tuple[Reason, Mask]]:
        """Yield each reason for which early filters refuse ``nodes``, with the nodes for which it is the first: bool[nodes].

        The rules about GPUs are left out.
        """
        if nodes is not self._nodes:
            self._reset(nodes)
        refusals = [refusal_of_state(*state, spec.tolerations) for state in self._states.values]
        for refusal in dict.fromkeys(filter(None, refusals)):
            yield refusal, np.array([each == refusal for each in refusals], dtype=np.bool_)[self._states.codes]
        left = np.array([not refusal for refusal in refusals], dtype=np.bool_)[self._states.codes]
        for reason, rule in self._rules(spec):
            if (refused := left & ~rule).any():
                yield reason, refused
            left &= rule

    def _evaluate(self, spec: SchedulingSpec) -> Usable:
        reasons: Counter[Reason] = Counter()
        admitted = np.ones(len(self._nodes), dtype=np.bool_)
        for reason, refused in self.refused(spec, self._nodes):
            reasons[reason] += int(np.count_nonzero(refused))
            admitted &= ~refused
        late, early = [], admitted
        for kind, rules in resolved_rules(spec):
            refused_here = early & ~self._all(rules)
            if refused_here.any():
                late.append((Reason(kind), refused_here))
                admitted = admitted & ~refused_here
        admitted.flags.writeable = False
        return Usable(admitted, tuple(sorted(reasons.items())), late=tuple(late))

    def _rules(self, spec: SchedulingSpec) -> Iterator[tuple[Reason, Mask]]:
        yield Reason(Kind.AFFINITY), self._affinity(spec)
        if spec.share or (self._shares and spec.whole_gpus):
            refusals = [refusal_to_share(spec, node) for node in self._nodes]
            for reason in dict.fromkeys(filter(None, refusals)):
                yield reason, np.array([refusal != reason for refusal in refusals], dtype=np.bool_)

    def _affinity(self, spec: SchedulingSpec) -> Mask:
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for key, wanted in spec.node_selector:
            mask &= self._label(key).where(partial(eq, wanted))
        return mask if spec.affinity is None else mask & self._any_term(spec.affinity)

    def _all(self, rules: Iterable[Sequence[NodeSelectorTerm]]) -> Mask:
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for terms in rules:
            mask &= self._any_term(terms)
        return mask

    def _any_term(self, terms: Sequence[NodeSelectorTerm]) -> Mask:
        mask = np.zeros(len(self._nodes), dtype=np.bool_)
        for term in terms:
            if not (term.expressions or term.fields):
                continue
            matches = np.ones(len(self._nodes), dtype=np.bool_)
            for expression in term.expressions:
                matches &= self._label(expression.key).where(_predicate(expression))
            for requirement in term.fields:
                matches &= np.fromiter(
                    (name_matches(requirement, node.name) for node in self._nodes), dtype=np.bool_, count=len(self._nodes)
                )
            mask |= matches
        return mask

    def _label(self, key: str) -> _Column[str | None]:
        column = self._columns.get(key)
        if column is None:
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.clear()
            column = self._columns[key] = _column(node.labels.get(key) for node in self._nodes)
        return column


def _predicate(expression: Requirement) -> Callable[[str | None], bool]:
    """Return whether a value of the label meets ``expression``. An expression may name the hosts of thousands of pods."""
    if len(expression.values) < _MANY_VALUES or expression.operator not in ("In", "NotIn"):
        return partial(label_matches, expression)
    values = frozenset(expression.values)
    return values.__contains__ if expression.operator == "In" else lambda value: value not in values


def _with_gpus(usable: Usable, asked: GpuRequest, gpus: GpuInventory | None) -> Usable:
    """Return ``usable`` without the nodes whose GPUs aren't what the pod asks for."""
    admitted, reasons = usable.admitted, Counter(dict(usable.reasons))
    for reason, rule in gpu_rules(asked, gpus, len(admitted)):
        if refused := int(np.count_nonzero(usable.admitted & ~rule)):
            reasons[reason] += refused
        admitted = admitted & rule
    admitted.flags.writeable = False
    return Usable(admitted, tuple(sorted(reasons.items())), usable.admitted & ~admitted, usable.late)


def _place_of(spec: SchedulingSpec) -> Hashable:
    """Return what decides, beside GPU rules, which nodes ``spec`` may use."""
    devices = spec.share or (bool(spec.whole_gpus), spec.device_container)
    of_others = spec.volumes, spec.storage, spec.forbidden_domains, spec.avoided_domains, spec.required_domains
    return spec.node_selector, spec.affinity, spec.tolerations, of_others, devices


def _column(values: Iterable[_Value]) -> _Column[_Value]:
    distinct: dict[_Value, int] = {}
    codes = [distinct.setdefault(value, len(distinct)) for value in values]
    return _Column(tuple(distinct), np.array(codes, dtype=np.int64))


def resolved_rules(spec: SchedulingSpec) -> tuple[tuple[Kind, tuple[tuple[NodeSelectorTerm, ...], ...]], ...]:
    """Return the requirements of ``spec`` that come from volumes and other pods, each with the reason for a refusal.

    A requirement consists of entries. A node must match a term of every entry. ``planning.resolve`` computes these requirements.
    """
    return (
        *((kind, (terms,)) for kind, terms in spec.storage if kind is Kind.CLAIM_IN_USE),
        (Kind.VOLUMES, spec.volumes),
        *((kind, (terms,)) for kind, terms in spec.storage if kind is not Kind.CLAIM_IN_USE),
        (Kind.ANTI_AFFINITY, spec.avoided_domains),
        (Kind.AVOIDED, spec.forbidden_domains),
        (Kind.APART, spec.required_domains),
    )


def refusal_to_share(spec: SchedulingSpec, node: Node) -> Reason | None:
    """Return why ``node`` doesn't provide the GPUs that ``spec`` asks for, whatever is free; ``None`` if the node provides them.

    A part of a GPU must be provided by the driver whose resources the pod requests, on devices that are large enough. A driver that
    provides whole GPUs needs to know the devices of a container, so only one container may request GPUs.
    """
    shared, share = node.shared, spec.share
    if share is not None:
        if shared is None or shared.driver != share.driver or not shared.memory:
            return Reason(Kind.SHARING, share.driver)
        return None if share.of(shared.memory, shared.least) <= WHOLE else Reason(Kind.GPU_TOO_SMALL)
    if shared is None or DRIVERS[shared.driver].count != GPU or not spec.whole_gpus or spec.device_container >= 0:
        return None
    return Reason(Kind.GPU_CONTAINER)


def refusal_of_state(
    is_unschedulable: bool, is_ready: bool, taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]
) -> Reason | None:
    """Return why a node in this state refuses a pod with ``tolerations``; ``None`` if the node admits the pod."""
    if is_unschedulable and not tolerates(tolerations, UNSCHEDULABLE_TAINT):
        return Reason(Kind.UNSCHEDULABLE)
    if not is_ready and not readiness_is_tainted(taints):
        return Reason(Kind.NOT_READY)
    taint = untolerated_taint(taints, tolerations)
    return Reason(Kind.TAINT, taint.key, taint.value) if taint else None
