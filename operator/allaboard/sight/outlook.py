"""Says where a waiting gang would run, what is missing there, and which gangs must end before."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from allaboard.cluster.reservations import Awaited, Reservation, lacking_of
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang
from allaboard.model.gpu_sharing import WHOLE
from allaboard.model.snapshot import Snapshot
from allaboard.records.advice import Nearest
from allaboard.sight.amounts import amounts_of, gpus_of
from allaboard.sight.values import Amounts, AwaitedRow, Outlook, OutlookNode

UserOf = Callable[[str, str], str | None]
"""Returns the gang of a pod, given its UID and its node, as namespace/name, as the caller may see it; None if the pod is gone."""


def reserved_outlook(reservation: Reservation, snapshot: Snapshot, user_of: UserOf, begins: float | None) -> Outlook:
    """Return where a gang with a reservation will run. ``snapshot`` is the cluster as the gang may use it now."""
    lacks = _lacks(reservation, snapshot)
    return Outlook(
        kind="reserved",
        begins=begins,
        nodes=[
            OutlookNode(
                node=node,
                pods=amounts.get("pods", 0),
                gpus=reservation.parts.get(node, 0) / WHOLE,
                requests=amounts_of(amounts.items()),
                lacks=lacks.get(node, {}),
            )
            for node, amounts in sorted(reservation.amounts.items())
        ],
        unplaced=0,
        waits_for=list(_awaited(reservation.last_awaited, user_of)),
    )


def nearest_outlook(gang: Gang, nearest: Nearest) -> Outlook:
    """Return the placement of a refused gang that lacks least."""
    specs = {pod.uid: pod.spec for pod in gang.candidates}
    lacks = dict(nearest.lacks)
    on_nodes: dict[str, list[tuple[SchedulingSpec, int]]] = {}
    for node, uid, number in nearest.members:
        if (spec := specs.get(uid)) is not None:
            on_nodes.setdefault(node, []).append((spec, number))
    nodes = [
        OutlookNode(
            node=node,
            pods=sum(number for _, number in parts),
            gpus=sum(gpus_of(spec) * number for spec, number in parts),
            requests=_sum(parts),
            lacks=amounts_of([(nearest.resource, lacks[node])]) if node in lacks else {},
        )
        for node, parts in sorted(on_nodes.items())
    ]
    return Outlook(kind="nearest", begins=None, nodes=nodes, unplaced=max(0, gang.missing - sum(each.pods for each in nodes)), waits_for=[])


def _sum(parts: Iterable[tuple[SchedulingSpec, int]]) -> Amounts:
    total: dict[str, int] = {}
    for spec, number in parts:
        for resource, amount in spec.requests:
            total[resource] = total.get(resource, 0) + number * amount
    return amounts_of(total.items())


def _lacks(reservation: Reservation, snapshot: Snapshot) -> Mapping[str, Amounts]:
    """Return what each node lacks now of the amounts that are reserved there; a node that lacks nothing is left out."""
    found = lacking_of(reservation, snapshot)
    if found is None:
        return {}
    rows, lacking = found
    return {
        snapshot.nodes[row].name: amounts_of(
            (snapshot.resources[column], amount) for column, amount in enumerate(lacking[place].tolist()) if amount > 0
        )
        for place, row in enumerate(rows.tolist())
        if (lacking[place] > 0).any()
    }


@dataclass(slots=True)
class _Unit:
    ends: float
    basis: str
    nodes: set[str]


def _awaited(units: Iterable[Awaited], user_of: UserOf) -> Iterator[AwaitedRow]:
    """Yield the gangs that must end before, the first to end first. Units of one gang are one row, which ends with the last of them."""
    found: dict[str, _Unit] = {}
    for unit in units:
        if (name := user_of(unit.uid, unit.node)) is None:
            continue
        known = found.pop(name, None)
        nodes = known.nodes if known else set()
        found[name] = _Unit(unit.ends, str(unit.basis), nodes | {unit.node})
    for name, each in found.items():
        yield AwaitedRow(gang=name, ends=each.ends, basis=each.basis, nodes=sorted(each.nodes))
