"""Says where a waiting gang would run, what is missing there, and which gangs must end before."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from allaboard.cluster.reservations import Awaited, Reservation, lacking_of
from allaboard.cluster.reservations import amounts_of as placed_amounts
from allaboard.model.gang import Gang
from allaboard.model.gpu_sharing import WHOLE
from allaboard.model.snapshot import Snapshot
from allaboard.records.advice import Nearest
from allaboard.sight.amounts import amounts_of
from allaboard.sight.values import Amounts, AwaitedRow, Outlook, OutlookNode

UserOf = Callable[[str, str], str | None]
"""Returns the gang of a pod, given its UID and its node, as namespace/name, as the caller may see it; None if the pod is gone."""

UsersOn = Callable[[str], Collection[str]]
"""Returns the gangs with pods on a node, as namespace/name."""


def reserved_outlook(reservation: Reservation, snapshot: Snapshot, user_of: UserOf, users_on: UsersOn, begins: float | None) -> Outlook:
    """Return where a gang with a reservation will run. ``snapshot`` is the cluster as the gang may use it now."""
    lacks = _lacks(reservation, snapshot)
    nodes = list(_nodes(reservation.amounts, reservation.parts, lacks))
    short = {node: users_on(node) for node in lacks}
    awaited = list(_awaited(reservation.last_awaited, user_of, short))
    return Outlook(kind="reserved", begins=begins, nodes=nodes, unplaced=0, waits_for=awaited)


def nearest_outlook(gang: Gang, nearest: Nearest) -> Outlook:
    """Return the placement of a refused gang that lacks least."""
    specs = {pod.uid: pod.spec for pod in gang.candidates}
    placed = [(specs[uid], node) for node, uid, number in nearest.members if uid in specs for _ in range(number)]
    lacks = {node: amounts_of([(nearest.resource, amount)]) for node, amount in nearest.lacks}
    nodes = list(_nodes(*placed_amounts(placed), lacks))
    return Outlook(kind="nearest", begins=None, nodes=nodes, unplaced=max(0, gang.missing - len(placed)), waits_for=[])


def _nodes(requests: Mapping[str, Mapping[str, int]], parts: Mapping[str, int], lacks: Mapping[str, Amounts]) -> Iterator[OutlookNode]:
    """Yield the nodes of a placement. ``requests`` and ``parts`` are what is used of each node, ``lacks`` what it hasn't free."""
    for node, amounts in sorted(requests.items()):
        yield OutlookNode(
            node=node,
            pods=amounts.get("pods", 0),
            gpus=parts.get(node, 0) / WHOLE,
            requests=amounts_of(amounts.items()),
            lacks=lacks.get(node, {}),
        )


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


def _awaited(units: Iterable[Awaited], user_of: UserOf, short: Mapping[str, Collection[str]]) -> Iterator[AwaitedRow]:
    """Yield the gangs that must end before, the first to end first. Units of one gang are one row, which ends with the last of them.

    ``short``: the gangs on each node that lacks something now.
    """
    found: dict[str, _Unit] = {}
    for unit in units:
        if (name := user_of(unit.uid, unit.node)) is None:
            continue
        known = found.pop(name, None)
        nodes = known.nodes if known else set()
        found[name] = _Unit(unit.ends, str(unit.basis), nodes | {unit.node})
    for name, each in found.items():
        nodes = each.nodes | {node for node, users in short.items() if name in users}
        yield AwaitedRow(gang=name, ends=each.ends, basis=each.basis, nodes=sorted(nodes))
