"""A problem that is yet to be built: kinds of members times nodes are too many to be looked at by the process that sends it.

A draft is as small as the gang and the cluster themselves. Nodes are packed once for as long as none changes, and unpacked once.
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.fit import FitScoring
from allaboard.model.gang import Objective
from allaboard.model.node import Node
from allaboard.model.packing import Packing
from allaboard.model.rules import Rules
from allaboard.model.snapshot import Snapshot
from allaboard.placement.problem.build import build_problem
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.filters import NodeFilters


class DraftPod(NamedTuple):
    """A pod as a problem sees it, which is quicker to send than a pod."""

    uid: str
    spec: SchedulingSpec


@dataclass(frozen=True, slots=True)
class Draft:
    """What ``build_problem`` takes; ``nodes`` are those of the ``snapshot``, which has none itself."""

    pods: Sequence[DraftPod]
    minimum: int
    snapshot: Snapshot
    nodes: bytes
    objective: Objective
    packing: Packing | FitScoring
    topology: str
    rules: Rules

    def built(self) -> Problem:
        """The problem."""
        nodes, filters = _unpacked(self.nodes)
        return build_problem(
            self.pods,
            self.minimum,
            replace(self.snapshot, nodes=nodes),
            objective=self.objective,
            packing=self.packing,
            topology=self.topology,
            rules=self.rules,
            filters=filters,
        )


class Packer:
    """Packs the nodes of snapshots."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] | None = None
        self._packed = b""

    def packed(self, nodes: tuple[Node, ...]) -> bytes:
        """As much of ``nodes`` as problems are built from."""
        if nodes is not self._nodes:
            # Plain tuples take a quarter of the time that records do.
            rows = [(node.name, node.labels, node.taints, node.is_unschedulable, node.is_ready, node.images, node.shared) for node in nodes]
            self._nodes, self._packed = nodes, pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
        return self._packed


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> tuple[tuple[Node, ...], NodeFilters]:
    nodes = (
        Node(name, "", (), labels, taints, is_unschedulable, is_ready, images, shared)
        for name, labels, taints, is_unschedulable, is_ready, images, shared in pickle.loads(packed)  # noqa: S301 - of our own packing
    )
    return tuple(nodes), NodeFilters()
