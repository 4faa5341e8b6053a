"""The condition ``DisruptionTarget``, which says that a pod is about to be ended by something other than its own end.

Before this scheduler evicts pods for a gang of higher priority, it writes the condition to all of them. So a later leader knows which
evictions belong together, by the mark of the gang at the end of the condition's message. Tenants can't write the status of their pods.
"""

import re
from collections.abc import Mapping
from hashlib import blake2s
from typing import Any

from allaboard.model.errors import MalformedError
from allaboard.model.limits import ENTRIES
from allaboard.model.raw_fields import items, mapping
from allaboard.model.times import api_time

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTED = "PreemptionByScheduler"
"""The condition's reason if a scheduler evicts the pod, as kube-scheduler writes it."""

_MESSAGE = "allaboard: preempting to accommodate a gang of higher priority"
_MARKED = re.compile(re.escape(_MESSAGE) + r" \(([0-9a-f]{8})\)")


def mark_of(namespace: str, name: str) -> str:
    """Return the mark of a gang: a digest, since the tenants of the evicted pods must not learn names of another namespace."""
    return blake2s(f"{namespace}/{name}".encode(), digest_size=4).hexdigest()


def disrupted_for(mark: str, now: float) -> dict[str, str]:
    """Return the condition of a pod that is evicted for the gang with ``mark``; without a mark, of a pod that stays after all.

    ``now`` is in seconds since the epoch.
    """
    return {
        "type": DISRUPTION_TARGET,
        "status": "True" if mark else "False",
        "reason": PREEMPTED,
        "message": f"{_MESSAGE} ({mark})" if mark else "allaboard: no longer needed",
        "lastTransitionTime": api_time(now),
    }


def is_disrupted(status: Mapping[str, object]) -> bool:
    """Return whether a condition says that the pod is ended for another reason than its own end or its controller."""
    return _condition_in(status) is not None


def mark_in(status: Mapping[str, object]) -> str:
    """Return the mark of the gang for which this scheduler evicts the pod; empty if it evicts the pod for none."""
    condition = _condition_in(status) or {}
    found = _MARKED.fullmatch(str(condition.get("message"))) if condition.get("reason") == PREEMPTED else None
    return found[1] if found else ""


def _condition_in(status: Mapping[str, object]) -> Mapping[str, Any] | None:
    """Return the condition ``DisruptionTarget`` if it is true; None otherwise."""
    try:
        conditions = items(status, "conditions", "status.", ENTRIES)
        return next((each for _, each in conditions if (each.get("type"), each.get("status")) == (DISRUPTION_TARGET, "True")), None)
    except MalformedError:
        return None


def policy_ignores_disruption(job: Mapping[str, object]) -> bool:
    """Return whether a Job's policy ignores disruptions: its first rule about the condition ``DisruptionTarget`` has the action Ignore.

    Earlier rules about exit codes don't matter, since they can't match the evicted pods.
    """
    try:
        for path, rule in items(mapping(mapping(job, "spec"), "podFailurePolicy"), "rules"):
            for _, condition in items(rule, "onPodConditions", path):
                if condition.get("type") == DISRUPTION_TARGET and condition.get("status", "True") == "True":
                    return rule.get("action") == "Ignore"
    except MalformedError:
        return False
    return False
