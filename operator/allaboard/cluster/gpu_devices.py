"""Charge pods to single GPUs, on nodes whose GPUs are shared. The amounts are in an array with one row for each such node.

A pod is charged to the devices that its annotations name, or to the devices that were assumed for it. A pod whose devices aren't known is
charged once, to the device where the charge leaves least capacity (``model.gpu_sharing.charge_unnamed``). This charge depends on all other
pods of the node, so it is computed when it is needed. When a driver lists other devices than before, the next query counts the pods of that
node again.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gpu_sharing import GPU, WHOLE, Shared, Taken, Unnamed, charge_unnamed, charges_of
from allaboard.model.node import Node
from allaboard.model.snapshot import Sharing, Snapshot

_MOST_WHOLE = 64  # GPUs of a node without a driver; they are listed one by one only to be scored like shared GPUs


@dataclass(slots=True)
class _Row:
    """The shared devices of one node, whose free amounts are in row ``place`` of the array.

    Nothing is charged to the row until its pods are counted (``is_counted``). ``unnamed`` are the numbers of pods whose devices aren't
    known, by request. ``worst`` are the free amounts of the devices after these pods are charged; ``None`` until they are computed.
    """

    shared: Shared
    place: int
    is_counted: bool = False
    unnamed: Counter[Unnamed] = field(default_factory=Counter)
    worst: Sequence[int] | None = None


class SharedDevices:
    """The free amount of each GPU, on nodes whose GPUs are shared, in thousandths of a GPU.

    ``are_any`` is true if a node shares its GPUs. Otherwise ``add`` and ``subtract`` need not be called.
    """

    def __init__(self) -> None:
        self.are_any = False
        self._rows: dict[str, _Row] = {}
        self._vacant: list[int] = []
        self._free: Integers = np.zeros((0, 0), dtype=np.int64)
        self.uncounted: set[str] = set()
        self._with_unnamed: set[str] = set()
        self._reserved: frozenset[str] = frozenset()
        self._nodes: tuple[Node, ...] | None = None
        self._sharing = Sharing.of(())
        self._position_of: dict[str, int] = {}
        self._positions: Integers = np.zeros(0, dtype=np.int64)
        self._places: Integers = np.zeros(0, dtype=np.int64)

    def offer(self, node_name: str, shared: Shared | None) -> None:
        """Set the devices that a node shares; ``None`` if the node shares none or is gone."""
        row = self._rows.get(node_name)
        if row is None and shared is None:
            return
        if shared is None:
            self._vacant.append(self._rows.pop(node_name).place)
            self._with_unnamed.discard(node_name)
            self.are_any = bool(self._rows)
            self.uncounted.discard(node_name)
            return
        if row is not None and row.shared == shared:
            return
        place = row.place if row is not None else self._vacant.pop() if self._vacant else len(self._rows)
        self._rows[node_name] = _Row(shared, place)
        self.are_any = True
        self._widen(place + 1, len(shared.devices))
        self._clear(self._rows[node_name])
        self.uncounted.add(node_name)

    def add(self, node_name: str, spec: SchedulingSpec, taken: Sequence[Taken]) -> None:
        """Charge a pod of ``spec`` that is bound to a node or assumed on it."""
        self._change(node_name, spec, taken, -1)

    def subtract(self, node_name: str, spec: SchedulingSpec, taken: Sequence[Taken]) -> None:
        """Stop charging a pod that was charged by ``add``."""
        self._change(node_name, spec, taken, +1)

    def count(self, charges: Iterable[tuple[str, SchedulingSpec, Sequence[Taken]]]) -> None:
        """Charge the pods of the ``uncounted`` nodes; ``charges`` are the pods of all nodes."""
        names, self.uncounted = self.uncounted, set()
        for name in names:
            self._rows[name].is_counted = True
            self._clear(self._rows[name])
        for node_name, spec, taken in charges:
            if node_name in names:
                self._change(node_name, spec, taken, -1)

    def reserve(self, node_names: Iterable[str]) -> None:
        """Count no device of these nodes as free, since late binds may take any of them. Earlier reservations are replaced."""
        self._reserved = frozenset(node_names)

    def is_overbooked(self, node_name: str, uuids: Sequence[str]) -> bool:
        """Return whether one of the devices ``uuids`` of a node is overbooked or gone."""
        row = self._rows.get(node_name)
        if row is None:
            return True
        usable = {device.uuid: place for place, device in enumerate(row.shared.devices) if device.is_usable}
        named = self._free[row.place]
        if any(uuid not in usable or named[usable[uuid]] < 0 for uuid in uuids):
            return True
        # It isn't known which devices the unnamed pods have, so the sum of their requests must fit.
        return bool(row.unnamed) and np.maximum(named[list(usable.values())], 0).sum() < sum(
            pod.total * pods for pod, pods in row.unnamed.items()
        )

    def onto(self, snapshot: Snapshot) -> Snapshot:
        """Return ``snapshot`` with the free amount of each device, in thousandths of a GPU, as its ``devices``.

        A node without a driver has as many free devices as GPUs that aren't requested. ``devices`` is int64[nodes, devices].
        """
        if snapshot.nodes is not self._nodes:
            self._index(snapshot.nodes)
        column = snapshot.column_of(GPU)
        free = np.zeros(len(snapshot.nodes), dtype=np.int64)
        if column is not None:
            free = np.clip(snapshot.allocatable[:, column] - snapshot.used[:, column], 0, _MOST_WHOLE)
        free[self._positions] = 0
        width = max(self._free.shape[1], int(free.max(initial=0)))
        devices = np.where(np.arange(width) < free[:, None], WHOLE, 0)
        devices[self._positions[:, None], np.arange(self._free.shape[1])] = self._free[self._places]
        for name in self._with_unnamed:
            if (position := self._position_of.get(name)) is not None:
                devices[position, : len(self._rows[name].shared.devices)] = self._free_of(self._rows[name])
        for position in self._positions.tolist() if self._reserved else ():
            if snapshot.nodes[position].name in self._reserved:
                devices[position] = np.minimum(devices[position], 0)
        devices.setflags(write=False)
        return replace(snapshot, devices=devices, sharing=self._sharing)

    def _index(self, nodes: tuple[Node, ...]) -> None:
        """Record which of ``nodes`` share their GPUs: each such node's position in ``nodes``, and its row in the array of free amounts."""
        self._nodes = nodes
        self._sharing = Sharing.of([node.shared for node in nodes])
        sharing = [(position, self._rows[node.name].place) for position, node in enumerate(nodes) if node.shared is not None]
        self._position_of = {nodes[position].name: position for position, _ in sharing}
        self._positions, self._places = np.array(sharing, dtype=np.int64).reshape(len(sharing), 2).T

    def _change(self, node_name: str, spec: SchedulingSpec, taken: Sequence[Taken], sign: int) -> None:
        row = self._rows.get(node_name)
        if row is None or not row.is_counted:
            return
        named, unnamed = charges_of(row.shared, spec.share, spec.whole_gpus, taken)
        for device, thousandths in named:
            self._free[row.place, device] += sign * thousandths
        row.worst = None
        if unnamed is None:
            return
        row.unnamed[unnamed] -= sign
        if not row.unnamed[unnamed]:
            del row.unnamed[unnamed]
        (self._with_unnamed.add if row.unnamed else self._with_unnamed.discard)(node_name)

    def _free_of(self, row: _Row) -> Sequence[int]:
        """Return the free amount of each device of a node, in thousandths, after all its pods are charged."""
        if row.worst is None:
            row.worst = charge_unnamed(row.shared, self._free[row.place, : len(row.shared.devices)].tolist(), row.unnamed)
        return row.worst

    def _clear(self, row: _Row) -> None:
        """Make all usable devices of a node free."""
        row.unnamed.clear()
        row.worst = None
        self._free[row.place] = 0
        self._free[row.place, : len(row.shared.devices)] = [WHOLE if device.is_usable else 0 for device in row.shared.devices]

    def _widen(self, rows: int, columns: int) -> None:
        more = (max(0, rows - len(self._free)), max(0, columns - self._free.shape[1]))
        if any(more):
            # The number of rows is doubled, since nodes are added one by one.
            self._free = np.pad(self._free, ((0, max(more[0], len(self._free)) if more[0] else 0), (0, more[1])))
