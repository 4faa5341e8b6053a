"""Gangs that nothing proves impossible: triples that would have to fill each node to the last thousandth (3-PARTITION).

Each member asks for another amount between a quarter and a half of a node, and together they ask for what there is, but for one thousandth.
"""

import random

from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot

from .clusters import node, pods, snapshot

NODE_CPU = 16_000


def three_partition(nodes: int, seed: int = 1) -> tuple[list[Pod], Snapshot]:
    """Three members for each of ``nodes``, and those."""
    gang = [pod for number, cpu in enumerate(sizes(nodes, seed)) for pod in pods(f"member-{number}", 1, {"cpu": cpu})]
    return gang, snapshot([node(f"node-{number}", {"cpu": NODE_CPU}) for number in range(nodes)])


def sizes(nodes: int, seed: int) -> list[int]:
    """What the members of a gang ask for: all there is but a thousandth."""
    rng = random.Random(seed)
    asked = [4800 + rng.randrange(1060) for _ in range(3 * nodes)]
    over, step = sum(asked) - (nodes * NODE_CPU - 1), 0
    while over:
        change = 1 if over < 0 else -1
        asked[step % len(asked)] += change
        over, step = over + change, step + 1
    return asked
