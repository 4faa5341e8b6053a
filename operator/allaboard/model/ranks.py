"""The ranks of a gang's members: the numbers that job controllers give to pods."""

import re
from collections.abc import Sequence

from allaboard.model.pod import Pod

_INDEXES = (
    "jobset.sigs.k8s.io/job-global-index",
    "leaderworkerset.sigs.k8s.io/group-index",
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "apps.kubernetes.io/pod-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
)
"""The labels by which job controllers number their pods, from the outermost number to the innermost."""


def rank_of(pod: Pod) -> tuple[int, ...]:
    """Return the place of a pod among the members of its job, by the indexes in its labels; else by the first number in its name."""
    stated = dict(pod.labels)
    indexes = tuple(_number(stated.get(label, "")) for label in _INDEXES)
    return indexes if any(index >= 0 for index in indexes) else (*indexes, _number(re.findall("[0-9]+|$", pod.name)[0]))


def segments_of(members: Sequence[Pod], size: int) -> list[list[Pod]]:
    """Return the living ``members`` in segments of ``size`` ranks; segments without living members are left out.

    Members that have ended keep their places if all living members have different ranks; else only the living members are counted.
    """
    alive = sorted((pod for pod in members if pod.is_alive), key=lambda pod: (rank_of(pod), pod.name))
    ranks = [rank_of(pod) for pod in alive]
    if len(set(ranks)) < len(ranks):
        return [alive[first : first + size] for first in range(0, len(alive), size)]
    places = {rank: place for place, rank in enumerate(sorted({rank_of(pod) for pod in members}))}
    found: dict[int, list[Pod]] = {}
    for pod, rank in zip(alive, ranks, strict=True):
        found.setdefault(places[rank] // size, []).append(pod)
    return list(found.values())


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
