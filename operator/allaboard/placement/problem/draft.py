"""Drafts of problems, which worker processes build.

The work to build a problem grows with roles times nodes, which may be too much for the scheduler's own process. A draft is only as large
as the gang and the cluster. The nodes are packed and unpacked again only when one of them changes.
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
    """The part of a pod that a problem needs; sending it to a process is quicker than sending the pod."""

    uid: str
    spec: SchedulingSpec


@dataclass(frozen=True, slots=True)
class Draft:
    """The arguments of ``build_problem``. ``nodes`` are the packed nodes of ``snapshot``, whose own ``nodes`` are empty."""

    pods: Sequence[DraftPod]
    minimum: int
    snapshot: Snapshot
    nodes: bytes
    objective: Objective
    packing: Packing | FitScoring
    topology: str
    rules: Rules

    def built(self) -> Problem:
        """Return the problem."""
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
    """Packs the nodes of snapshots, and keeps the last result."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] | None = None
        self._packed = b""

    def packed(self, nodes: tuple[Node, ...]) -> bytes:
        """Return the fields of ``nodes`` that problems are built from, pickled."""
        if nodes is not self._nodes:
            # Pickling plain tuples takes a quarter of the time that pickling records takes.
            rows = [(node.name, node.labels, node.taints, node.is_unschedulable, node.is_ready, node.images, node.shared) for node in nodes]
            self._nodes, self._packed = nodes, pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
        return self._packed


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> tuple[tuple[Node, ...], NodeFilters]:
    nodes = (
        Node(name, "", (), labels, taints, is_unschedulable, is_ready, images, shared)
        for name, labels, taints, is_unschedulable, is_ready, images, shared in pickle.loads(packed)  # noqa: S301 - pickled by ``Packer``
    )
    return tuple(nodes), NodeFilters()
