"""Reads the walltime of a pod: the longest time that the pod will run, as its owner has stated it.

A walltime says when capacity will be free. Only ``activeDeadlineSeconds`` is enforced, by the kubelet; this scheduler ends no pod because
of a walltime.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress

from allaboard.model.errors import MalformedError
from allaboard.model.raw_fields import integer

UNKNOWN = 0.0
"""The walltime of a pod that states none."""

NEVER = math.inf
"""The walltime of a pod that runs until it is deleted, such as the pod of a Deployment."""

LEAVING = -1.0
"""The walltime of a pod that is being deleted: it ends in a moment."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_SECONDS = 10 * 365 * 86_400.0
_PARTS = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,3})?)([smhd])")
_DURATION = re.compile(rf"(?:{_PARTS.pattern}){{1,4}}|[0-9]{{1,10}}")
_SERVICES = frozenset({"DaemonSet", "ReplicaSet", "StatefulSet", "ReplicationController", "Node"})
"""Kinds of controllers whose pods never end by themselves. A ``Node`` is the controller of a static pod."""
_SLURM_MINUTES = "slurmjob.slinky.slurm.net/timelimit"
_KUEUE_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds"


def parse_walltime(text: str) -> float:
    """Return the seconds of a walltime such as ``5400``, ``90m`` or ``1h30m``. Raises ``ValueError`` if it isn't a time above 0."""
    found = _DURATION.fullmatch(text.strip())
    seconds = 0.0 if not found else float(text) if text.strip().isdigit() else _sum_of(text)
    if not 0.0 < seconds <= _LONGEST_SECONDS:
        raise ValueError(f"{text[:64]!r} is not a time such as 5400, 90m, 1h30m or 2d")
    return seconds


def _sum_of(text: str) -> float:
    return sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(text))


def end_of(start: float, walltime: float) -> float:
    """Return when a gang with ``walltime`` that starts at ``start`` will have ended; infinite if that isn't known."""
    return start + walltime if walltime != UNKNOWN else math.inf


def walltime_of(metadata: Mapping[str, object], spec: Mapping[str, object], stated: str | None = None, controller_kind: str = "") -> float:
    """Return the walltime of a pod in seconds: the least that its fields state, ``NEVER`` for the pod of a service, else ``UNKNOWN``.

    ``stated`` is the value of the annotation ``allaboard.dev/walltime``. ``controller_kind`` is the kind of the pod's controller, if any.
    A malformed value counts as unknown here; the gang is held for a malformed annotation.
    """
    if controller_kind in _SERVICES:
        return NEVER
    found = [_deadline_of(spec), *_by_other_schedulers(metadata)]
    if stated is not None:
        with suppress(ValueError):
            found.append(parse_walltime(stated))
    return min((seconds for seconds in found if seconds > 0.0), default=UNKNOWN)


def _deadline_of(spec: Mapping[str, object]) -> float:
    try:
        return _bounded(integer(spec, "activeDeadlineSeconds"))
    except MalformedError:
        return UNKNOWN


def _by_other_schedulers(metadata: Mapping[str, object]) -> list[float]:
    """Return the limits that slurm-bridge (minutes) and Kueue (seconds) read from the pod's metadata."""
    annotations, labels = metadata.get("annotations"), metadata.get("labels")
    found = []
    for stated, key, unit in ((annotations, _SLURM_MINUTES, 60), (labels, _KUEUE_SECONDS, 1)):
        value = stated.get(key) if isinstance(stated, dict) else None
        if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value, re.ASCII):
            found.append(_bounded(int(value) * unit))
    return found


def _bounded(seconds: float) -> float:
    return float(min(seconds, _LONGEST_SECONDS)) if seconds > 0 else UNKNOWN  # a whole number may be too large for a float
