"""A gang that fits in few ways only, and that no greedy rule places in any order of its roles.

Three kinds of node, three roles that want them in different proportions: one for cpu, one for memory, one for both. All cpu and all
memory is taken once everybody sits, so a node filled with one role wastes what the others need. Greedy seats 44 of the 48 at best.
"""

from collections.abc import Sequence

from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot

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


def tight_cluster() -> Snapshot:
    """The nine nodes, empty."""
    return snapshot(
        [
            node(f"{kind}-{index}", {"cpu": cpu * 1000, "memory": memory * GI})
            for kind, number, cpu, memory in NODES
            for index in range(1, number + 1)
        ]
    )


def tight_gang(roles: Sequence[tuple[str, int, int, int]] = ROLES) -> list[Pod]:
    """The 48 pods, with ``roles`` in the order given."""
    return [pod for role, number, cpu, memory in roles for pod in pods(role, number, {"cpu": cpu * 1000, "memory": memory * GI})]
