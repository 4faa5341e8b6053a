"""Host ports as capacity: for each address of a port that the gang asks for, a node has one unit."""

from collections.abc import Sequence

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.constraints import HostPort, SchedulingSpec
from allaboard.model.snapshot import Snapshot
from allaboard.placement.rules.matching import EVERY_ADDRESS, ports_conflict


def port_columns(specs: Sequence[SchedulingSpec]) -> tuple[HostPort, ...]:
    """Return the addresses and ports that the gang asks for. Each is a capacity, of which a node has one unit.

    A pod takes the units of its own addresses. A pod that listens on every address takes all units of the port. This is kube-scheduler's
    conflict rule in linear form: two pods share a unit exactly when they conflict.
    """
    return tuple(sorted({_canonical(port) for spec in specs for port in spec.host_ports}))


def port_demand(columns: tuple[HostPort, ...], specs: Sequence[SchedulingSpec]) -> Integers:
    """Return the units that one pod of each spec takes: int64[specs, addresses and ports], each 1 or 0."""
    wanted = [tuple(_canonical(port) for port in spec.host_ports) for spec in specs]
    return np.array([[int(any(_covers(port, column) for port in ports)) for column in columns] for ports in wanted], dtype=np.int64)


def free_ports(columns: tuple[HostPort, ...], snapshot: Snapshot) -> Integers:
    """Return the free units of each node: int64[addresses and ports, nodes], 0 if another pod has the unit, else 1."""
    free = np.ones((len(columns), len(snapshot.nodes)), dtype=np.int64)
    numbers = {column.port for column in columns}
    for row, taken in snapshot.host_ports.items():
        for port in taken:
            if port.port in numbers:
                free[[ports_conflict(_canonical(port), column) for column in columns], row] = 0
    return free


def _covers(port: HostPort, column: HostPort) -> bool:
    return port == column or (port.ip == EVERY_ADDRESS and (port.protocol, port.port) == (column.protocol, column.port))


def _canonical(port: HostPort) -> HostPort:
    return HostPort(port.ip or EVERY_ADDRESS, port.protocol or "TCP", port.port)
