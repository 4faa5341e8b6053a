"""Lists the rules about single nodes that may refuse a gang: its node selector and affinity, taints of nodes, and cordons.

Each rule comes with the gang or the cluster as it would be without the rule. A search says whether the gang would fit then.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from allaboard.model.constraints import SchedulingSpec, Toleration
from allaboard.model.gang import Gang
from allaboard.model.reasons import Kind, Reason
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters
from allaboard.placement.problem.problem import Candidate
from allaboard.placement.remedies.causes import TEMPORARY, Repaired, with_specs
from allaboard.report.messages import selector_text

_MOST_TAINTS = 3  # The most taints that are left out, one at a time.
_MOST_SPECS = 16  # A gang with more different pods gets no such advice: each rule is left out for all of them.


class Relaxation(NamedTuple):
    """A gang, given by its ``pods``, and a cluster without the rule ``reason``; ``filters`` are for the nodes of ``snapshot``."""

    reason: Reason
    pods: Sequence[Candidate]
    snapshot: Snapshot
    filters: NodeFilters


def relaxations(gang: Gang, snapshot: Snapshot, filters: NodeFilters, repaired: Repaired) -> Iterator[Relaxation]:
    """Yield the gang or the cluster without each rule that keeps a member from a node."""
    specs = list({id(pod.spec): pod.spec for pod in gang.candidates}.values())  # equal specs are mostly one object
    if len(specs) > _MOST_SPECS or not snapshot.nodes:
        return
    usable = [filters.usable(spec, snapshot.nodes, snapshot.gpus) for spec in specs]

    def without(reason: Reason, change: Callable[[SchedulingSpec], SchedulingSpec]) -> Iterator[Relaxation]:
        """Yield the gang with changed specs, if a node admits one of these and not the spec that it was made from."""
        changed = [filters.usable(change(spec), snapshot.nodes, snapshot.gpus) for spec in specs]
        if any((after.admitted & ~before.admitted).any() for before, after in zip(usable, changed, strict=True)):
            yield Relaxation(reason, with_specs(gang.candidates, change), snapshot, filters)

    if any(spec.node_selector or spec.affinity is not None for spec in specs):
        asked = "; ".join(dict.fromkeys(text for spec in specs if (text := selector_text(spec))))
        yield from without(Reason(Kind.AFFINITY, asked), lambda spec: replace(spec, node_selector=(), affinity=None))
    taints = Counter[Reason]()
    for found in usable:
        for reason, nodes in found.reasons:
            if reason.kind is Kind.TAINT and not reason.subject.startswith(TEMPORARY):
                taints[reason] += nodes
    for reason, _ in taints.most_common(_MOST_TAINTS):
        toleration = Toleration(reason.subject, "Equal" if reason.value else "Exists", reason.value)
        yield from without(reason, partial(_tolerant, toleration))
    if any(_is_of_state(reason) for found in usable for reason, _ in found.reasons):
        # Filters cache the results for one tuple of nodes, so the repaired nodes have filters of their own.
        nodes_at_best = replace(snapshot, nodes=repaired.of(snapshot.nodes))
        yield Relaxation(Reason(Kind.UNSCHEDULABLE), gang.candidates, nodes_at_best, repaired.filters)


def _tolerant(toleration: Toleration, spec: SchedulingSpec) -> SchedulingSpec:
    return replace(spec, tolerations=(*spec.tolerations, toleration))


def _is_of_state(reason: Reason) -> bool:
    """Return whether a node refuses pods for its present state, and not for what it is meant for."""
    return reason.kind in (Kind.UNSCHEDULABLE, Kind.NOT_READY) or (reason.kind is Kind.TAINT and reason.subject.startswith(TEMPORARY))
