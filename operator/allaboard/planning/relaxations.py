"""Lists the rules about single nodes that may refuse a gang: its node selector and affinity, taints of nodes, and cordons.

Each rule comes with the gang or the cluster as it would be without the rule. A search says whether the gang would fit then.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from allaboard.model.constraints import SchedulingSpec, Toleration
from allaboard.model.gang import Gang
from allaboard.model.reasons import Kind, Reason
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters
from allaboard.placement.problem.problem import Candidate
from allaboard.placement.remedies.causes import TEMPORARY, Repaired
from allaboard.report.messages import selector_text

_MOST_TAINTS = 3  # The most taints that are left out, one at a time.
_MOST_SPECS = 16  # A gang with more different pods gets no such advice: each rule is left out for all of them.


class Relaxation(NamedTuple):
    """A gang, given by its ``pods``, and a cluster without the rule ``reason``; ``filters`` are for the nodes of ``snapshot``."""

    reason: Reason
    pods: Sequence[Candidate]
    snapshot: Snapshot
    filters: NodeFilters


@dataclass(frozen=True, slots=True)
class _Relaxed:
    uid: str
    spec: SchedulingSpec


def relaxations(gang: Gang, snapshot: Snapshot, filters: NodeFilters, repaired: Repaired) -> Iterator[Relaxation]:
    """Yield the gang or the cluster without each rule that keeps a member from a node."""
    specs = {id(pod.spec): pod.spec for pod in gang.candidates}  # equal specs are mostly one object
    if len(specs) > _MOST_SPECS or not snapshot.nodes:
        return
    usable = {each: filters.usable(spec, snapshot.nodes, snapshot.gpus) for each, spec in specs.items()}

    def without(change: Callable[[SchedulingSpec], SchedulingSpec]) -> Sequence[Candidate]:
        changed = {each: change(spec) for each, spec in specs.items()}
        return [_Relaxed(pod.uid, changed[id(pod.spec)]) for pod in gang.candidates]

    def admits_more(pods: Sequence[Candidate], nodes: Snapshot) -> bool:
        before = {pod.uid: usable[id(pod.spec)] for pod in gang.candidates}
        kinds = {id(pod.spec): pod for pod in pods}.values()
        return any((filters.usable(pod.spec, nodes.nodes, nodes.gpus).admitted & ~before[pod.uid].admitted).any() for pod in kinds)

    asked = [text for spec in specs.values() if (text := selector_text(spec))]
    if any(spec.node_selector or spec.affinity is not None for spec in specs.values()):
        free = without(lambda spec: replace(spec, node_selector=(), affinity=None))
        if admits_more(free, snapshot):
            yield Relaxation(Reason(Kind.AFFINITY, asked[0] if asked else ""), free, snapshot, filters)
    taints = Counter[Reason]()
    for found in usable.values():
        for reason, nodes in found.reasons:
            if reason.kind is Kind.TAINT and not reason.subject.startswith(TEMPORARY):
                taints[reason] += nodes
    for reason, _ in taints.most_common(_MOST_TAINTS):
        toleration = Toleration(reason.subject, "Exists") if not reason.value else Toleration(reason.subject, "Equal", reason.value)
        tolerant = without(lambda spec, added=toleration: replace(spec, tolerations=(*spec.tolerations, added)))  # type: ignore[misc]
        if admits_more(tolerant, snapshot):
            yield Relaxation(reason, tolerant, snapshot, filters)
    if any(_is_of_state(reason) for found in usable.values() for reason, _ in found.reasons):
        # Filters cache the results for one tuple of nodes, so the repaired nodes have filters of their own.
        changed = replace(snapshot, nodes=repaired.of(snapshot.nodes))
        yield Relaxation(Reason(Kind.UNSCHEDULABLE), gang.candidates, changed, repaired.filters)


def _is_of_state(reason: Reason) -> bool:
    """Return whether a node refuses pods for its present state, and not for what it is meant for."""
    return reason.kind in (Kind.UNSCHEDULABLE, Kind.NOT_READY) or (reason.kind is Kind.TAINT and reason.subject.startswith(TEMPORARY))
