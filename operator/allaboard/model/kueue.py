"""Reads the labels and annotations by which Kueue manages pods (pkg/controller/jobs/pod/constants/constants.go, 0.19)."""

from collections.abc import Iterable, Mapping

from allaboard.model.limits import CHARACTERS

GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
"""Annotation of a pod in a group of plain pods; before Kueue 0.18 a label."""
GROUP_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
_FAST_ADMISSION = "kueue.x-k8s.io/pod-group-fast-admission"
_PREFIX = "kueue.x-k8s.io/"

NO_GROUP = ("", "")


def kueue_group_in(labels: Mapping[str, object], annotations: Mapping[str, object]) -> tuple[str, str]:
    """Return the name and the total count of a pod's group, as the pod states them; ``NO_GROUP`` for a pod in no group.

    Kueue admits a group with fast admission when its first pod comes: its pods are created one after another, as those of a StatefulSet. So
    such a group isn't a gang, and counts as none.
    """
    if annotations.get(_FAST_ADMISSION) == "true":
        return NO_GROUP
    return _text(annotations.get(GROUP_NAME)) or _text(labels.get(GROUP_NAME)), _text(annotations.get(GROUP_TOTAL))


def is_named_by_kueue(names: Iterable[str]) -> bool:
    """Return whether one of the ``names`` of labels is Kueue's: Kueue labels the pods that it has admitted or gated."""
    return any(name.startswith(_PREFIX) for name in names)


def _text(value: object) -> str:
    return value[: CHARACTERS.most] if isinstance(value, str) else ""
