"""The allocatable and used amounts of all nodes, in arrays of which each event changes one row."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allaboard.model.arrays import Integers
from allaboard.model.constraints import HostPort, SchedulingSpec
from allaboard.model.gpu_sharing import Taken
from allaboard.model.node import Node
from allaboard.model.requests import UNSTATED, Requests
from allaboard.model.snapshot import Snapshot

_BASE_RESOURCES = ("cpu", "memory", "pods")


class Charge(NamedTuple):
    """The node that a pod is charged to, the spec that it is charged by, and the devices that it has ``taken``."""

    node_name: str
    spec: SchedulingSpec
    taken: tuple[Taken, ...]

    def is_like(self, other: "Charge") -> bool:
        """Return whether two charges of a pod are equal."""
        return self.spec is other.spec and (self.node_name, self.taken) == (other.node_name, other.taken)


class Usage:
    """Allocatable and used amounts of all nodes: one row for each node, one column for each resource that any node has offered.

    Usage of a resource that no node offers isn't counted, since any tenant can make up names of resources.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._vacant: list[int] = []
        self._columns: dict[str, int] = {resource: column for column, resource in enumerate(_BASE_RESOURCES)}
        self._allocatable: Integers = np.zeros((16, len(_BASE_RESOURCES)), dtype=np.int64)
        self._used: Integers = np.zeros_like(self._allocatable)
        self._unstated: Integers = np.zeros((16, len(UNSTATED)), dtype=np.int64)
        self._ports: dict[int, Counter[HostPort]] = {}

    def row(self, node_name: str) -> int:
        """Return the row of a node; a node without a row gets one."""
        row = self._rows.get(node_name)
        if row is None:
            row = self._rows[node_name] = self._vacant.pop() if self._vacant else len(self._rows)
            if row >= len(self._used):
                self._allocatable = _extended(self._allocatable, rows=len(self._used))
                self._unstated = _extended(self._unstated, rows=len(self._used))
                self._used = _extended(self._used, rows=len(self._used))
        return row

    def release(self, node_name: str) -> None:
        """Free the row of a node that is gone, once no pod is charged to that node."""
        row = self._rows[node_name]
        if not self._used[row].any():
            del self._rows[node_name]
            self._ports.pop(row, None)
            self._vacant.append(row)

    def offer(self, node_name: str, allocatable: Requests) -> bool:
        """Set a node's allocatable; return whether a resource is new. The usage of a new resource must be counted by ``recount``."""
        row, known = self.row(node_name), len(self._columns)
        columns = [self._column(resource) for resource, _ in allocatable]
        self._allocatable[row] = 0
        self._allocatable[row, columns] = [amount for _, amount in allocatable]
        return len(self._columns) > known

    def recount(self, charges: Iterable[tuple[str, SchedulingSpec]]) -> None:
        """Count the usage of every resource from the beginning, by ``charges`` of all pods. Host ports stay counted."""
        self._used[:] = 0
        self._unstated[:] = 0
        for node_name, spec in charges:
            self._change(node_name, spec, +1)

    def add(self, node_name: str, spec: SchedulingSpec, pods: int = 1) -> None:
        """Charge a number of ``pods`` of ``spec`` to a node."""
        row = self._change(node_name, spec, pods)
        if spec.host_ports:
            self._ports.setdefault(row, Counter()).update(dict.fromkeys(spec.host_ports, pods))

    def subtract(self, node_name: str, spec: SchedulingSpec, pods: int = 1) -> None:
        """Stop charging a number of ``pods`` of ``spec`` to a node."""
        row = self._change(node_name, spec, -pods)
        if spec.host_ports:
            ports = self._ports[row]
            ports.subtract(dict.fromkeys(spec.host_ports, pods))
            self._ports[row] = +ports

    def _change(self, node_name: str, spec: SchedulingSpec, pods: int) -> int:
        row = self.row(node_name)
        for resource, amount in spec.requests:
            if (column := self._columns.get(resource)) is not None:
                self._used[row, column] += pods * amount
        for resource, amount in spec.unstated:
            self._unstated[row, UNSTATED.index(resource)] += pods * amount
        return row

    def snapshot(self, nodes: tuple[Node, ...], order: NDArray[np.intp]) -> Snapshot:
        """Return the snapshot of ``nodes``. ``order`` has the row of each node.

        Shape: ``order`` is intp[nodes].
        """
        positions = enumerate(order.tolist()) if self._ports else ()
        allocatable, used, unstated = self._allocatable[order], self._used[order], self._unstated[order]
        for values in (allocatable, used, unstated):
            values.setflags(write=False)
        return Snapshot(
            nodes=nodes,
            resources=tuple(self._columns),
            allocatable=allocatable,
            used=used,
            unstated=unstated,
            host_ports={position: frozenset(ports) for position, row in positions if (ports := self._ports.get(row))},
        )

    def _column(self, resource: str) -> int:
        column = self._columns.setdefault(resource, len(self._columns))
        if column >= self._used.shape[1]:
            self._allocatable = _extended(self._allocatable, columns=1)
            self._used = _extended(self._used, columns=1)
        return column


def _extended(amounts: Integers, *, rows: int = 0, columns: int = 0) -> Integers:
    return np.pad(amounts, ((0, rows), (0, columns)))
