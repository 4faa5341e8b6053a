"""Drafts of problems: the scheduler sends a draft to a worker process, which builds the problem from the draft.

The work to build a problem grows with roles times nodes, which may be too much for the scheduler's own process. A draft is only as large as
the gang and the cluster. The nodes are packed and unpacked again only when a node changes.
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
from allaboard.model.snapshot import Snapshot
from allaboard.placement.problem.build import build_problem
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.filters import NodeFilters
from allaboard.placement.rules.members import Rules


class DraftPod(NamedTuple):
    """The part of a pod that a problem is built from. This part is sent to a process faster than the whole pod."""

    uid: str
    spec: SchedulingSpec


@dataclass(frozen=True, slots=True)
class Draft:
    """The arguments of ``build_problem``. The nodes are packed by themselves, and not as a part of the snapshot.

    ``nodes``: the packed nodes of ``snapshot``, whose own field ``nodes`` is empty.
    """

    pods: Sequence[DraftPod]
    minimum: int
    snapshot: Snapshot
    nodes: bytes
    objective: Objective
    packing: Packing | FitScoring
    topology: str
    rules: Rules
    ordered_by: tuple[str, ...] = ()

    def built(self) -> Problem:
        """Return the problem that is built from the draft."""
        nodes, filters = _unpacked(self.nodes)
        return build_problem(
            self.pods,
            self.minimum,
            replace(self.snapshot, nodes=nodes),
            objective=self.objective,
            packing=self.packing,
            topology=self.topology,
            ordered_by=self.ordered_by,
            rules=self.rules,
            filters=filters,
        )


class Packer:
    """Packs the nodes of snapshots, and caches the last result."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] | None = None
        self._packed = b""

    def packed(self, nodes: tuple[Node, ...]) -> bytes:
        """Return a pickle of ``nodes``, with those fields that problems are built from."""
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
