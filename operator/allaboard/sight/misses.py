"""Says what each group of equal nodes lacks for one more member of a waiting gang."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang
from allaboard.model.reasons import Kind, Reason
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters
from allaboard.report.reason_words import reason
from allaboard.sight.amounts import amounts_of
from allaboard.sight.values import NodeGroup

_MOST_GROUPS = 16  # Groups of nodes for one role.
_MOST_ROLES = 8
_MOST_NAMES = 12  # Names of nodes in one group.


@dataclass(slots=True)
class Misses:
    """Compares what members of a gang request with what is free on each node. ``filters`` cache which nodes admit a spec."""

    filters: NodeFilters = field(default_factory=NodeFilters)

    def of(self, gang: Gang, seen: Snapshot, present: Snapshot) -> Iterator[NodeGroup]:
        """Yield the groups of nodes for each role of ``gang``: first the nodes that take members, then those that lack least.

        ``seen`` is the cluster as the gang may use it; in ``present`` nothing is reserved for other gangs. Only amounts are compared, not
        the rules between members.
        """
        specs = {(pod.role, pod.spec): pod.spec for pod in gang.candidates}
        for (role, _), spec in list(specs.items())[:_MOST_ROLES] if seen.nodes else ():
            usable = self.filters.usable(spec, seen.nodes, seen.gpus)
            yield from _admitted(role, spec, seen, present, np.flatnonzero(usable.admitted))
            refused = dict(self.filters.refused(spec, seen.nodes)) if usable.reasons else {}
            for why, number in usable.reasons:
                names = _names(seen, np.flatnonzero(refused[why])) if why in refused else []
                yield NodeGroup(role=role, nodes=number, names=names, takes=0, lacks={}, reasons=[reason(why)])
            for why, mask in usable.late:
                rows = np.flatnonzero(mask)
                yield NodeGroup(role=role, nodes=len(rows), names=_names(seen, rows), takes=0, lacks={}, reasons=[reason(why)])


def _admitted(role: str, spec: SchedulingSpec, seen: Snapshot, present: Snapshot, rows: Integers) -> Iterator[NodeGroup]:
    """Yield the nodes at ``rows``, all of which admit ``spec``, grouped by what they take and lack."""
    asked = [(resource, amount) for resource, amount in spec.requests if amount > 0]
    if not asked or not len(rows):
        return
    demand = np.array([amount for _, amount in asked], dtype=np.int64)
    free, lacks = _free_and_lacking(asked, seen, rows)
    is_short = (lacks > 0).any(axis=1)
    is_kept = (lacks > _free_and_lacking(asked, present, rows)[1]).any(axis=1)
    takes = np.where(is_short, 0, (np.maximum(free, 0) // demand).min(axis=1))
    if spec.host_ports:
        takes = np.minimum(takes, 1)  # each node has a port once
    found, first, group = np.unique(np.column_stack([takes, is_kept, lacks]), axis=0, return_index=True, return_inverse=True)
    share = (found[:, 2:] / demand).max(axis=1)
    for each in np.lexsort((first, share, -found[:, 0]))[:_MOST_GROUPS].tolist():
        those = rows[group.ravel() == each]
        number, kept, *lacking = found[each].tolist()
        missing = [(name, amount) for (name, _), amount in zip(asked, lacking, strict=True) if amount]
        why = [reason(Reason(Kind.INSUFFICIENT, name)) for name, _ in missing]
        yield NodeGroup(
            role=role,
            nodes=len(those),
            names=_names(seen, those),
            takes=number,
            lacks=amounts_of(missing),
            reasons=[*why, "some of it is reserved for other gangs"] if kept else why,
        )


def _free_and_lacking(asked: Sequence[tuple[str, int]], snapshot: Snapshot, rows: Integers) -> tuple[Integers, Integers]:
    """Return how much of each resource is free on the nodes at ``rows``, and how much they lack: int64[rows, resources] each."""
    free = np.zeros((len(rows), len(asked)), dtype=np.int64)
    for place, (name, _) in enumerate(asked):
        if (column := snapshot.column_of(name)) is not None:
            free[:, place] = snapshot.free[rows, column]
    return free, np.maximum(np.array([amount for _, amount in asked], dtype=np.int64) - free, 0)


def _names(snapshot: Snapshot, rows: Integers) -> Sequence[str]:
    return [snapshot.nodes[row].name for row in rows[:_MOST_NAMES].tolist()]
