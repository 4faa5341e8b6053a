"""Amounts of resources as numbers in base units, for readers who don't know the units of the scheduler's arrays."""

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from allaboard.cluster.running import parts_of
from allaboard.model.arrays import Floats
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gpu_sharing import WHOLE
from allaboard.model.snapshot import Snapshot
from allaboard.placement.rules.devices import GPU, counts_devices
from allaboard.sight.values import Amounts

_CORE: Final = 1000  # the scheduler counts thousandths of a core


def amounts_of(requests: Iterable[tuple[str, int]]) -> Amounts:
    """Return amounts by resource: cores of cpu, bytes of memory, pieces of others."""
    return {resource: amount / _CORE if resource == "cpu" else amount for resource, amount in requests}


def scheduler_amount(resource: str, amount: float) -> int:
    """Return an amount of ``amounts_of`` as the scheduler counts it."""
    cores = math.floor(amount)  # multiplied as an integer, since a float of a file could overflow
    return cores * _CORE + round((amount - cores) * _CORE) if resource == "cpu" else round(amount)


def gpus_of(spec: SchedulingSpec) -> float:
    """Return the GPUs that a pod requests; a part of a GPU counts as a fraction."""
    return parts_of(spec.requests, spec.gpu_share) / WHOLE


def gpus_on(snapshot: Snapshot) -> tuple[Floats, Floats]:
    """Return the GPUs that each node offers, and those that are free: float64[nodes] each.

    The free GPUs of a node whose GPUs are shared are the free parts of its devices.
    """
    column = snapshot.column_of(GPU)
    if column is None:
        nothing = np.zeros(len(snapshot.nodes))
        return nothing, nothing
    offered = snapshot.allocatable[:, column].astype(np.float64)
    free = np.maximum(snapshot.free[:, column], 0).astype(np.float64)
    if snapshot.devices is not None:
        counted = counts_devices(snapshot)
        devices = [sum(each.is_usable for each in node.shared.devices) if node.shared else 0 for node in snapshot.nodes]
        offered = np.where(counted, devices, offered)
        free = np.where(counted, np.maximum(snapshot.devices, 0).sum(axis=1) / WHOLE, free)
    return offered, free
