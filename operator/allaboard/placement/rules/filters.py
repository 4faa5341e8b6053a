"""Which nodes a spec may use at all, whatever is free: the filters that depend on the node object alone.

Thousands of nodes have a handful of distinct taints and label values, so each rule is decided once per distinct value and spread
by array indexing. The outcome is kept while the snapshot carries the very same tuple of nodes.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Generic, TypeVar

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import GpuRequest, NodeSelectorTerm, SchedulingSpec, Toleration
from allaboard.model.gpu_inventory import GpuInventory
from allaboard.model.gpu_sharing import DRIVERS, GPU, WHOLE
from allaboard.model.node import Node, Taint
from allaboard.model.reasons import Counted, Kind, Reason
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


@dataclass(frozen=True, slots=True, eq=False)
class Usable:
    """``admitted``: bool[nodes]; ``reasons``: how many of the other nodes were refused by each filter, the first that fails counting.

    Those that fail by what is asked of their GPUs, and by nothing else, are counted for all of that; these are ``refused_by_gpus``:
    bool[nodes], if there are any.
    """

    admitted: Mask
    reasons: Counted
    refused_by_gpus: Mask | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Dislikes:
    """float64[nodes] each, from 0 where a node is all that is preferred to 1: by its labels, its taints, and the images on its disk."""

    affinity: Floats
    taints: Floats
    images: Floats


@dataclass(frozen=True, slots=True)
class _Column(Generic[_Value]):
    """One property of every node: ``values`` are the distinct ones, ``codes`` int64[nodes] points into them."""

    values: tuple[_Value, ...]
    codes: Integers

    def where(self, holds: Callable[[_Value], bool]) -> Mask:
        return np.array([holds(value) for value in self.values], dtype=np.bool_)[self.codes]


class NodeFilters:
    """What each spec may use, remembered for one tuple of nodes. Bounded, since tenants choose the specs."""

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._gpus: GpuInventory | None = None
        self._by_gpus: dict[Hashable, tuple[Usable, Usable]] = {}
        self._start(())

    def usable(self, spec: SchedulingSpec, nodes: tuple[Node, ...], gpus: GpuInventory | None = None) -> Usable:
        """Which of ``nodes``, that have these GPUs, admit pods of ``spec``."""
        if nodes is not self._nodes:
            self._start(nodes)
        usable = self._but_for_gpus(spec)
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

    def _but_for_gpus(self, spec: SchedulingSpec) -> Usable:
        devices = spec.share or (bool(spec.whole_gpus), spec.device_container)
        key = (spec.node_selector, spec.affinity, spec.tolerations, spec.volumes, spec.forbidden_domains, spec.required_domains, devices)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self._limit:
                self._known.clear()
            known = self._known[key] = self._decide(spec)
        return known

    def _start(self, nodes: tuple[Node, ...]) -> None:
        self._nodes = nodes
        self._known: dict[Hashable, Usable] = {}
        self._gpus, self._by_gpus = None, {}
        self._preferences: dict[Hashable, Dislikes] = {}
        self._columns: dict[str, _Column[str | None]] = {}
        self._shares = any(node.shared is not None for node in nodes)
        self._states = _column((node.is_unschedulable, node.is_ready, node.taints) for node in nodes)

    def domains(self, key: str, nodes: tuple[Node, ...], alone: int | None = None) -> Integers:
        """Which of ``nodes`` share the value of a label: int64[nodes], equal where they do. One without it is ``alone``, or by itself."""
        if nodes is not self._nodes:
            self._start(nodes)
        column = self._label(key)
        is_alone = column.where(lambda value: value is None)
        return np.where(is_alone, len(column.values) + np.arange(len(nodes)) if alone is None else alone, column.codes)

    def preference(self, spec: SchedulingSpec, nodes: tuple[Node, ...]) -> Dislikes:
        """How little each of ``nodes`` is what ``spec`` prefers.

        As kube-scheduler scores them: the weights of the terms that don't match, and the PreferNoSchedule taints that aren't tolerated,
        as shares of the most there are; and of the images' bytes, as far as any node has them, those that must be pulled.
        """
        if nodes is not self._nodes:
            self._start(nodes)
        key = ("preference", spec.preferred, spec.tolerations, spec.images)
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
        taints = (avoided / max(1.0, avoided.max(initial=0.0)))[self._states.codes]
        return Dislikes(affinity, taints, self._missing_images(spec))

    def _missing_images(self, spec: SchedulingSpec) -> Floats:
        here, total = np.zeros(len(self._nodes)), 0
        for name in spec.images:
            sizes = np.fromiter((image_size(node, name) for node in self._nodes), dtype=np.float64, count=len(self._nodes))
            here += sizes
            total += sizes.max(initial=0.0)
        return 1.0 - here / total if total else here

    def _decide(self, spec: SchedulingSpec) -> Usable:
        refusals = [refusal_of_state(*state, spec.tolerations) for state in self._states.values]
        reasons: Counter[Reason] = Counter()
        for refusal, count in zip(refusals, np.bincount(self._states.codes, minlength=len(refusals)).tolist(), strict=True):
            if refusal:
                reasons[refusal] += count
        admitted = np.array([not refusal for refusal in refusals], dtype=np.bool_)[self._states.codes]
        for reason, rule in self._rules(spec):
            refused = int(np.count_nonzero(admitted & ~rule))
            if refused:
                reasons[reason] += refused
            admitted = admitted & rule
        admitted.flags.writeable = False
        return Usable(admitted, tuple(sorted(reasons.items())))

    def _rules(self, spec: SchedulingSpec) -> Iterator[tuple[Reason, Mask]]:
        yield Reason(Kind.AFFINITY), self._affinity(spec)
        for kind, rules in resolved_rules(spec):
            yield Reason(kind), self._all(rules)
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
                matches &= self._label(expression.key).where(partial(label_matches, expression))
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


def _with_gpus(usable: Usable, asked: GpuRequest, gpus: GpuInventory | None) -> Usable:
    """``usable`` without the nodes whose GPUs aren't what is asked for."""
    admitted, reasons = usable.admitted, Counter(dict(usable.reasons))
    for reason, rule in gpu_rules(asked, gpus, len(admitted)):
        if refused := int(np.count_nonzero(usable.admitted & ~rule)):
            reasons[reason] += refused
        admitted = admitted & rule
    admitted.flags.writeable = False
    return Usable(admitted, tuple(sorted(reasons.items())), usable.admitted & ~admitted)


def _column(values: Iterable[_Value]) -> _Column[_Value]:
    distinct: dict[_Value, int] = {}
    codes = [distinct.setdefault(value, len(distinct)) for value in values]
    return _Column(tuple(distinct), np.array(codes, dtype=np.int64))


def resolved_rules(spec: SchedulingSpec) -> tuple[tuple[Kind, tuple[tuple[NodeSelectorTerm, ...], ...]], ...]:
    """What the surroundings of a pod ask of nodes, every entry to be met by a term of its own, and why a node is refused that doesn't."""
    return (Kind.VOLUMES, spec.volumes), (Kind.AVOIDED, spec.forbidden_domains), (Kind.APART, spec.required_domains)


def refusal_to_share(spec: SchedulingSpec, node: Node) -> Reason | None:
    """Why what ``spec`` asks for of GPUs is not handed out on ``node``, whatever is free; ``None`` when it is.

    A part is by the driver that it is asked of, where its devices are large enough. A driver that gives whole GPUs must be told which, and
    for which container, so that it has to be one.
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
    """Why a node in this state refuses a pod with these tolerations; ``None`` when it doesn't."""
    if is_unschedulable and not tolerates(tolerations, UNSCHEDULABLE_TAINT):
        return Reason(Kind.UNSCHEDULABLE)
    if not is_ready and not readiness_is_tainted(taints):
        return Reason(Kind.NOT_READY)
    taint = untolerated_taint(taints, tolerations)
    return Reason(Kind.TAINT, taint.key, taint.value) if taint else None
