"""Builds gangs that hardly any search can place or prove impossible (the 3-PARTITION problem).

Each member requests between a quarter and a half of a node's cpu, and the members' amounts differ. Together the members request all cpu of
the nodes except one thousandth of a core. So every node has to take three members that fill it almost exactly.
"""

import random

from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot

from .clusters import node, pods, snapshot

NODE_CPU = 16_000


def three_partition(nodes: int, seed: int = 1) -> tuple[list[Pod], Snapshot]:
    """Return a gang of three members per node, and a cluster of ``nodes`` nodes."""
    gang = [pod for number, cpu in enumerate(sizes(nodes, seed)) for pod in pods(f"member-{number}", 1, {"cpu": cpu})]
    return gang, snapshot([node(f"node-{number}", {"cpu": NODE_CPU}) for number in range(nodes)])


def sizes(nodes: int, seed: int) -> list[int]:
    """Return the cpu in thousandths that each member requests. The sum is one thousandth less than the cpu of all nodes."""
    rng = random.Random(seed)
    asked = [4800 + rng.randrange(1060) for _ in range(3 * nodes)]
    over, step = sum(asked) - (nodes * NODE_CPU - 1), 0
    while over:
        change = 1 if over < 0 else -1
        asked[step % len(asked)] += change
        over, step = over + change, step + 1
    return asked
