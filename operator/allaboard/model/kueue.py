"""Reads the labels and annotations by which Kueue manages pods (pkg/controller/jobs/pod/constants/constants.go, 0.19)."""

import re
from collections.abc import Iterable, Mapping

from allaboard.model.errors import MalformedError, shown
from allaboard.model.limits import CHARACTERS
from allaboard.model.raw_fields import LABEL_KEY

GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
"""Annotation of a pod in a group of plain pods; before Kueue 0.18 a label."""
GROUP_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
_FAST_ADMISSION = "kueue.x-k8s.io/pod-group-fast-admission"
_PREFIX = "kueue.x-k8s.io/"

NO_GROUP = ("", "")

MANAGED = (f"{_PREFIX}workload", f"{_PREFIX}podset", f"{_PREFIX}managed")
"""The labels and annotations of pods that Kueue manages."""

_REQUIRED, _PREFERRED = f"{_PREFIX}podset-required-topology", f"{_PREFIX}podset-preferred-topology"
_SLICES, _SLICE_SIZE = f"{_PREFIX}podset-slice-required-topology", f"{_PREFIX}podset-slice-size"
TOPOLOGY = (_REQUIRED, _PREFERRED, _SLICES, _SLICE_SIZE)
"""The annotations by which pods ask Kueue for a topology (apis/kueue/v1beta2/topology_types.go)."""


def kueue_group_in(labels: Mapping[str, object], annotations: Mapping[str, object]) -> tuple[str, str]:
    """Return the name and the total count of a pod's group, as the pod states them; ``NO_GROUP`` for a pod in no group.

    Kueue admits a group with fast admission when its first pod comes: its pods are created one after another, as those of a StatefulSet. So
    such a group isn't a gang, and counts as none.
    """
    if annotations.get(_FAST_ADMISSION) == "true":
        return NO_GROUP
    return _text(annotations.get(GROUP_NAME)) or _text(labels.get(GROUP_NAME)), _text(annotations.get(GROUP_TOTAL))


def topology_asked_of_kueue(labels: Mapping[str, object], annotations: Mapping[str, object]) -> str:
    """Return what a pod asks of Kueue's topologies, as the option ``topology`` states it; empty if it asks for nothing.

    Kueue chooses the nodes of the pods that it manages, so their annotations aren't read. Raises ``MalformedError`` for an annotation that
    can't be read.
    """
    required, preferred, level, size = asked = [_text(annotations.get(name)) for name in TOPOLOGY]
    if not any(asked) or any(name in labels or name in annotations for name in MANAGED):
        return ""
    if bool(level) is not bool(size):
        missing, there = (_SLICE_SIZE, _SLICES) if level else (_SLICES, _SLICE_SIZE)
        raise MalformedError(_field(there), f"needs {missing} as well")
    for name, value in ((_REQUIRED, required), (_PREFERRED, preferred), (_SLICES, level)):
        if value and not re.fullmatch(LABEL_KEY, value):
            raise MalformedError(_field(name), f"{shown(value)} is not the key of a label")
    if size and not re.fullmatch("[1-9][0-9]{0,3}", size):
        raise MalformedError(_field(_SLICE_SIZE), f"{shown(size)} is not a whole number from 1 to 9999")
    parts = [("required", required), ("preferred", preferred), ("segment", f"{size}@{level}" if level else "")]
    return ", ".join(f"{name}={value}" for name, value in parts if value)


def _field(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"


def is_named_by_kueue(names: Iterable[str]) -> bool:
    """Return whether one of the ``names`` of labels is Kueue's: Kueue labels the pods that it has admitted or gated."""
    return any(name.startswith(_PREFIX) for name in names)


def _text(value: object) -> str:
    return value[: CHARACTERS.most] if isinstance(value, str) else ""
