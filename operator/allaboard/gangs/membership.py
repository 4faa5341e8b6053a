"""Find the gang that a pod belongs to, from the pod's labels and spec.

Each way in which a pod can name its gang is one entry of ``DIALECTS``. The first entry that matches decides. A label that can't be
understood is an error: neither a typing mistake nor a label for another scheduler may turn a gang into single pods that start alone.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from allaboard.model.foreign_gang_labels import foreign_label_of, sentence
from allaboard.model.gang import GangKey
from allaboard.model.kueue import GROUP_NAME, GROUP_TOTAL
from allaboard.model.pod import Pod

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
OLDER_POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
PAIR_PREFIXES = ("pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.x-k8s.io")
GANG_NAME_LABEL = f"{PAIR_PREFIXES[0]}/name"
MIN_AVAILABLE_LABEL = f"{PAIR_PREFIXES[0]}/min-available"
GANG_LABELS = (
    POD_GROUP_LABEL,
    OLDER_POD_GROUP_LABEL,
    *(f"{prefix}/{part}" for prefix in PAIR_PREFIXES for part in ("name", "min-available")),
)
"""The labels that make a pod a member of a gang."""

_MAX_MIN_AVAILABLE = 2**31 - 1
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # RFC 1123 subdomain


@dataclass(frozen=True, slots=True)
class Membership:
    """The gang that a pod names.

    ``min_member`` is the gang's minimum if the pod states it, and then no PodGroup object needs to exist; else None. ``error`` says what is
    wrong with ``field`` of the pod, and is empty if nothing is wrong. A gang with an error is held, and ``reason`` is the reason of the
    event that reports this.
    """

    key: GangKey
    min_member: int | None = None
    error: str = ""
    field: str = ""
    reason: str = "InvalidLabel"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way in which a pod can name its gang. ``read`` returns the pod's membership, or None if the pod doesn't use this way."""

    name: str
    read: Callable[[Pod], Membership | None]


def membership_of(pod: Pod) -> Membership:
    """Return the gang that ``pod`` belongs to. A pod that names no gang is a gang of one.

    If the pod also asks another scheduler for more than a gang, the membership has an error, since this scheduler doesn't do that.
    """
    for dialect in DIALECTS:
        if membership := dialect.read(pod):
            return membership if membership.error or not pod.foreign_gang_labels.demand else _with_demand(membership, pod)
    return Membership(single(pod), min_member=1)


def single(pod: Pod) -> GangKey:
    """Return the key of the gang that consists of ``pod`` alone."""
    return GangKey(pod.namespace, pod.name, kind="Pod")


def object_name(value: str) -> str:
    """Return ``value`` if it is a valid object name, else a valid name made from it.

    The made name has the letters and digits of ``value`` in lower case, and a hash that keeps the names of two values apart.
    """
    if _OBJECT_NAME.fullmatch(value):
        return value
    cleaned = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
    digest = hashlib.sha256(value.encode()).hexdigest()[:6]
    return f"{cleaned}-{digest}" if cleaned else f"gang-{digest}"


def min_available(value: str) -> int:
    """Return the number that a ``min-available`` label states. Raises ``ValueError`` with a message if it isn't a number of at least 1."""
    if not re.fullmatch(r"\+?[0-9]{1,10}", value) or not 1 <= int(value) <= _MAX_MIN_AVAILABLE:
        raise ValueError(f"{value!r} is not a whole number of at least 1")
    return int(value)


def _native(pod: Pod) -> Membership | None:
    if not pod.group_name:
        return None
    error = f"spec.schedulingGroup names the scheduling.k8s.io PodGroup {pod.group_name!r}, which is not supported yet"
    return Membership(single(pod), error=error, field="spec.schedulingGroup.podGroupName")


def _by_label(label: str) -> Callable[[Pod], Membership | None]:
    def read(pod: Pod) -> Membership | None:
        name = pod.label(label)
        if name is None:
            return None
        if not name:
            return Membership(single(pod), error=f"label {label} is empty; it must name a PodGroup", field=_label_field(label))
        return Membership(GangKey(pod.namespace, object_name(name)))

    return read


def _by_pair(prefix: str) -> Callable[[Pod], Membership | None]:
    name_label, min_label = _pair(prefix)

    def read(pod: Pod) -> Membership | None:
        name, minimum = pod.label(name_label), pod.label(min_label)
        if name is None and minimum is None:
            return None
        key = GangKey(pod.namespace, object_name(name)) if name else single(pod)
        if not name or minimum is None:
            missing = min_label if name else name_label
            error = f"labels {name_label} and {min_label} go together; {missing} is missing"
            return Membership(key, error=error, field=_label_field(missing))
        try:
            return Membership(key, min_member=min_available(minimum))
        except ValueError as problem:
            return Membership(key, error=f"label {min_label}: {problem}", field=_label_field(min_label))

    return read


def _by_kueue(pod: Pod) -> Membership | None:
    """Return the membership of a pod in a group of plain pods that Kueue admits together: all pods of the group must start together."""
    name, total = pod.kueue_group
    if not name and not total:
        return None
    key = GangKey(pod.namespace, object_name(name)) if name else single(pod)
    if not name or not total:
        missing = GROUP_TOTAL if name else GROUP_NAME
        error = f"annotations {GROUP_NAME} and {GROUP_TOTAL} go together; {missing} is missing"
        return Membership(key, error=error, field=f"metadata.annotations[{missing}]", reason="InvalidAnnotation")
    try:
        return Membership(key, min_member=min_available(total))
    except ValueError as problem:
        field = f"metadata.annotations[{GROUP_TOTAL}]"
        return Membership(key, error=f"annotation {GROUP_TOTAL}: {problem}", field=field, reason="InvalidAnnotation")


def _foreign(pod: Pod) -> Membership | None:
    """Return the membership of a pod that only has labels or annotations of other schedulers; None if they ask for nothing.

    The membership has an error, which names the gang that the pod asks another scheduler for. If the pod asks for no gang, the error
    names what the pod asks for.
    """
    if not (first := pod.foreign_gang_labels.first):
        return None
    label, kind = foreign_label_of(first), _kind_of(pod, first)
    if not label.asks_for_gang:
        return _with_demand(Membership(single(pod)), pod) if pod.foreign_gang_labels.demand else None
    advice = f"name the gang by the labels {' and '.join(_pair(PAIR_PREFIXES[0]))}, or remove it if the pod is to start alone"
    error = f"{kind} {first} asks {label.scheduler} for a gang, and isn't read here yet; {advice}"
    return Membership(single(pod), error=error, field=f"metadata.{kind}s[{first}]", reason="Unsupported")


def _with_demand(membership: Membership, pod: Pod) -> Membership:
    """Return ``membership`` with an error that names what the pod asks another scheduler for."""
    name, kind = pod.foreign_gang_labels.demand, _kind_of(pod, pod.foreign_gang_labels.demand)
    error = f"{kind} {name} {sentence(foreign_label_of(name))}"
    return replace(membership, error=error, field=f"metadata.{kind}s[{name}]", reason="Unsupported")


def _kind_of(pod: Pod, name: str) -> str:
    return "annotation" if pod.label(name) is None else "label"


def _pair(prefix: str) -> tuple[str, str]:
    return f"{prefix}/name", f"{prefix}/min-available"


def _label_field(label: str) -> str:
    return f"metadata.labels[{label}]"


DIALECTS: tuple[Dialect, ...] = (
    Dialect("native", _native),
    Dialect("pod-group", _by_label(POD_GROUP_LABEL)),
    Dialect("older-pod-group", _by_label(OLDER_POD_GROUP_LABEL)),
    *(Dialect(f"pair {prefix}", _by_pair(prefix)) for prefix in PAIR_PREFIXES),
    Dialect("kueue", _by_kueue),
    Dialect("foreign", _foreign),
)
