"""Builds a gang that has few placements, and that no greedy rule places in any order of its roles.

There are three kinds of nodes and three roles, which request cpu and memory in different proportions. All 48 pods together take all cpu and
all memory. So filling a node with one role wastes capacity that other roles need. Greedy rules place at most 44 of the 48 pods.
"""

from collections.abc import Sequence

from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.placement.solvers.improve import EXACT, STEPS

from .clusters import GI, node, pods, snapshot

NODES = (
    # name, nodes, cpu, memory in Gi
    ("memory", 3, 16, 96),
    ("cpu", 3, 32, 64),
    ("even", 3, 24, 64),
)
ROLES = (
    # name, pods, cpu, memory in Gi
    ("rollout", 21, 6, 8),
    ("replay", 9, 2, 24),
    ("learner", 18, 4, 16),
)
MOST_GREEDY_SLOTS = 44
GENETIC = tuple(step for step in STEPS if step != EXACT)
"""The steps of a search without the proof of the best placement, after which gangs of few roles need no generations."""


def tight_cluster() -> Snapshot:
    """Return the nine nodes, empty."""
    return snapshot(
        [
            node(f"{kind}-{index}", {"cpu": cpu * 1000, "memory": memory * GI})
            for kind, number, cpu, memory in NODES
            for index in range(1, number + 1)
        ]
    )


def tight_gang(roles: Sequence[tuple[str, int, int, int]] = ROLES) -> list[Pod]:
    """Return the 48 pods, role after role in the order of ``roles``."""
    return [pod for role, number, cpu, memory in roles for pod in pods(role, number, {"cpu": cpu * 1000, "memory": memory * GI})]
