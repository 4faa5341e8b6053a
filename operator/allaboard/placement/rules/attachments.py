"""CSI volumes as capacity: how many more volumes of a driver a node can attach.

A volume that several pods share is attached once per node. Amounts per pod can't express sharing for every mixture of pods. So the volumes
on a node are counted in one of two ways, and neither way ever allows more volumes than the node can attach:

- The node's free attachments are first reduced by all shared volumes; then each pod takes the volumes that it doesn't share. This count is
  exact if all pods share the same volumes.
- Each pod takes all its volumes. This count is exact if the pods on the node share no volume.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.snapshot import Snapshot
from allaboard.model.volumes import Attaches


class Attachments(NamedTuple):
    """The volumes that nodes can attach, as capacities of a problem: one or two capacities for each driver.

    ``names``: the driver of each capacity. ``demand``: int64[specs, capacities], what one pod takes. ``free``: int64[capacities, nodes].
    """

    names: tuple[str, ...]
    demand: Integers
    free: Integers


def attachment_columns(specs: Sequence[SchedulingSpec], pods: int, snapshot: Snapshot) -> Attachments:
    """Return the capacities that count volumes, for a gang of ``pods`` pods with the specs ``specs``."""
    names: list[str] = []
    demand = [np.zeros((len(specs), 0), dtype=np.int64)]
    free = [np.zeros((0, len(snapshot.nodes)), dtype=np.int64)]
    for driver in sorted({each.driver for spec in specs for each in spec.attaches} & snapshot.attachable.keys()):
        asked = [next((each for each in spec.attaches if each.driver == driver), Attaches(driver)) for spec in specs]
        own = np.array([each.own for each in asked], dtype=np.int64)
        number = own + np.array([len(each.shared) for each in asked], dtype=np.int64)
        enough = pods * int(number.max(initial=0))  # the gang never attaches more
        left = np.clip(snapshot.attachable[driver], 0, enough)
        shared = dict(pair for each in asked for pair in each.shared)
        if not shared:
            names, demand, free = [*names, driver], [*demand, own[:, None]], [*free, left[None]]
            continue
        is_common = all(len(each.shared) == len(shared) for each in asked if each.own or each.shared)
        set_aside = _unattached(shared.values(), snapshot)
        sets_aside = left - set_aside >= (0 if is_common else int(own.max(initial=0)))
        names = [*names, driver, driver]
        demand = [*demand, own[:, None], number[:, None]]
        free = [*free, np.where(sets_aside, left - set_aside, enough)[None], np.where(sets_aside, enough, left)[None]]
    return Attachments(tuple(names), np.concatenate(demand, axis=1), np.concatenate(free))


def _unattached(shared: Collection[tuple[str, ...]], snapshot: Snapshot) -> Integers:
    """Return how many of the ``shared`` volumes each node would have to attach: int64[nodes].

    ``shared``: for each volume, the names of the nodes that have the volume attached.
    """
    found = np.full(len(snapshot.nodes), len(shared), dtype=np.int64)
    if any(shared):
        row_of = {node.name: row for row, node in enumerate(snapshot.nodes)}
        for nodes in shared:
            found[[row_of[name] for name in nodes if name in row_of]] -= 1
    return found
