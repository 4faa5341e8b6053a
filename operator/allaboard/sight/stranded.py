"""Counts the GPUs of each node, and how many of the free ones the cluster's GPU pods can't use."""

from dataclasses import dataclass, field, replace

import numpy as np

from allaboard.cluster.view import ClusterView
from allaboard.model.arrays import Floats
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters
from allaboard.placement.problem.fragmentation import fragmentation_of
from allaboard.sight.amounts import gpus_on


@dataclass(slots=True)
class Stranded:
    """The stranded GPUs of a cluster: free GPUs that its pods with GPUs couldn't use, on average over these pods.

    That is their expected fragmentation. Pods without GPUs are left out: each of them would count all free GPUs as stranded.
    """

    view: ClusterView
    _filters: NodeFilters = field(init=False, default_factory=NodeFilters)

    def of_nodes(self, snapshot: Snapshot | None = None) -> tuple[Floats, Floats, Floats]:
        """Return the GPUs that each node of ``snapshot`` offers, those that are free, and those that are stranded: float64[nodes] each.

        Without a ``snapshot``, the nodes are those of the cluster as it is now.
        """
        snapshot = self.view.snapshot() if snapshot is None else snapshot
        snapshot = replace(snapshot, mix=tuple((task, pods) for task, pods in snapshot.mix if task.asks_for_devices))
        found = fragmentation_of((), snapshot, np.arange(len(snapshot.nodes)), self._filters) if snapshot.nodes else None
        return *gpus_on(snapshot), np.zeros(len(snapshot.nodes)) if found is None else found.before
