"""Replaces the names in a snapshot, so that it can be shown to others: the same name by the same word everywhere.

All strings are replaced except those that are known to say nothing about their users: numbers and amounts, times, and the words that
Kubernetes and Allaboard define. So selectors still match, gangs keep their members, and a plan has the same answer.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allaboard.gangs.membership import GANG_LABELS

_PUBLIC_DOMAINS = ("kubernetes.io", "k8s.io", "allaboard.dev", "nvidia.com", "amd.com", "intel.com", "kubeflow.org", "volcano.sh", "ray.io")
_OWN_ANNOTATIONS = re.compile(r"allaboard\.dev/.+|kueue\.x-k8s\.io/.+|(pod-group\.)?scheduling\.(sigs\.|x-)?k8s\.io.*")
_PLAIN = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?([numkMGTPE]i?)?|\d{4}-\d\d-\d\dT[\d:.]+(Z|[-+][\d:]+)|true|false|True|False|Unknown|")
_WORDS = frozenset(
    (
        *("v1", "Pod", "Node", "Job", "PodGroup", "List", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal"),
        *("NoSchedule", "PreferNoSchedule", "NoExecute", "Always", "OnFailure", "Never", "Pending", "Running", "Succeeded"),
        *("Failed", "Ready", "TCP", "UDP", "SCTP", "DoNotSchedule", "ScheduleAnyway", "Honor", "Ignore", "WaitForFirstConsumer"),
        *("Immediate", "PreemptLowerPriority", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod", "Filesystem"),
        *("Block", "Bound", "Available", "PodScheduled", "Unschedulable", "Delete", "Retain", "allaboard", "default-scheduler"),
        *("kube-scheduler", "Burstable", "Guaranteed", "BestEffort", "Container", "Indexed", "NonIndexed"),
    )
)
_NAMED = {"Namespace": "namespace", "Node": "node", "PodGroup": "gang", "Job": "job", "Pod": "pod"}
_OTHER = "object"
_KEPT = ("apiVersion", "kind", "uid", "resourceVersion", "controller-uid", "phase", "topologyKey", "schedulerName", "creationTimestamp")
_DROPPED = ("message", "reason", "generateName", "selfLink", "nodeInfo", "images", "addresses", "hostIP", "podIP", "providerID")
_BY_LABEL = ("labels", "matchLabels", "nodeSelector")
_OF_KEY = ("key", "topologyKey")


class Anonymous:
    """Replaces names; the same name by the same word in all objects that one instance is given."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._numbers: dict[str, int] = {}

    def of_all(self, objects: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return ``objects`` with other names. Names of one kind keep their order, which decides between equal gangs and nodes."""
        names: dict[str, set[str]] = {}
        for raw in objects:
            for kind, name in _names_in(raw):
                if isinstance(name, str) and not _is_plain(name):
                    names.setdefault(kind, set()).add(name)
        for kind in (*_NAMED.values(), _OTHER):
            known = sorted(names.get(kind, ()))
            for number, name in enumerate(known, 1):
                self._words.setdefault(name, f"{kind}-{number:0{len(str(len(known)))}}")
        return [self._mapping(each, "") for each in objects]

    def _word(self, text: str, kind: str) -> str:
        if _is_plain(text):
            return text
        if text not in self._words:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            self._words[text] = f"{kind}-{self._numbers[kind]}"
        return self._words[text]

    def _key(self, text: str) -> str:
        domain, slash, _ = text.rpartition("/")
        is_public = any(domain == each or domain.endswith(f".{each}") for each in _PUBLIC_DOMAINS)
        return text if slash and is_public else self._word(text, "key")

    def _mapping(self, raw: Mapping[str, Any], parent: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in raw.items():
            if key in _DROPPED:
                continue
            if parent in _BY_LABEL:
                found[self._key(key)] = self._value(value, "value")
            elif parent == "annotations":
                if _OWN_ANNOTATIONS.fullmatch(key):
                    found[key] = self._words.get(value, value) if isinstance(value, str) else value
            elif key in _OF_KEY and isinstance(value, str):
                found[key] = self._key(value)
            else:
                found[key] = value if key in _KEPT and isinstance(value, str) else self._value(value, key)
        return found

    def _value(self, value: Any, key: str) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value, key)
        if isinstance(value, list):
            return [self._value(each, key) for each in value]
        return self._word(value, "value") if isinstance(value, str) else value


def _is_plain(text: str) -> bool:
    return bool(_PLAIN.fullmatch(text)) or text in _WORDS


def _names_in(raw: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the names by which an object is found, each with the word that replaces it."""
    metadata = raw.get("metadata") or {}
    yield _NAMED.get(str(raw.get("kind")), _OTHER), metadata.get("name")
    yield _NAMED["Namespace"], metadata.get("namespace")
    for label in GANG_LABELS:
        yield _NAMED["PodGroup"], (metadata.get("labels") or {}).get(label)
