"""Small clusters for tests of rules between members, and an answer by trying all placements."""

import itertools
from collections.abc import Sequence

from allaboard.model.node import HOSTNAME
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.placement import SearchSettings, verify
from allaboard.placement.rules.members import Rules
from tests.unit.placement.clusters import node, snapshot

QUICK = SearchSettings(generations=3, min_generations=1)


def cluster_of(cpus: Sequence[tuple[str, int]]) -> Snapshot:
    """Return nodes with some cpu, each in a zone; empty for no zone."""
    labels = [{"zone": zone, HOSTNAME: f"n{number}"} if zone else {HOSTNAME: f"n{number}"} for number, (zone, _) in enumerate(cpus)]
    return snapshot([node(f"n{number}", {"cpu": cpu * 1000}, labels=labels[number]) for number, (_, cpu) in enumerate(cpus)])


def fits(gang: Sequence[Pod], cluster: Snapshot, rules: Rules, minimum: int) -> bool:
    """Return whether some placement of at least ``minimum`` pods is valid, by trying all of them in plain Python."""
    names = [None, *(each.name for each in cluster.nodes)]
    for chosen in itertools.product(names, repeat=len(gang)):
        assigned = {pod.uid: name for pod, name in zip(gang, chosen, strict=True) if name}
        if len(assigned) >= minimum and not verify(assigned, gang, cluster, rules):
            return True
    return False
