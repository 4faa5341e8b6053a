"""Detects gangs that would need more capacity than they held when they were whole."""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping

from allaboard.model.gang import Gang
from allaboard.model.pod import Pod
from allaboard.records.record import GangRecord


def asked_by(pods: Iterable[Pod]) -> Mapping[str, int]:
    """Return the sum of the requests of ``pods``, by resource."""
    asked: Counter[str] = Counter()
    for pod in pods:
        asked.update(dict(pod.spec.requests))
    return asked


def has_grown(gang: Gang, record: GangRecord) -> bool:
    """Return whether a gang that has lost members could need more of a resource than it held when it was whole.

    Gangs that have lost members go ahead in the queue. Without this check a tenant could have tiny members bound, and replace them by large
    ones that go ahead, too. A gang that this process hasn't seen whole hasn't grown.
    """
    if record.held is None:
        return False
    asked = asked_by(gang.bound)
    amounts = [dict(pod.spec.requests) for pod in gang.candidates]
    names = {name for each in amounts for name in each}
    return any(
        asked.get(name, 0) + sum(heapq.nlargest(gang.missing_of_stamped, (each.get(name, 0) for each in amounts)))
        > record.held.get(name, 0)
        for name in names
    )
