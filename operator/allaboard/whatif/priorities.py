"""The priority that the API server would give a pod: that of its class, else that of the default class, else 0.

As its admission control does (kubernetes plugin/pkg/admission/priority, 1.37). Classes are known by their objects, and by pods that have
been admitted with them.
"""

from dataclasses import dataclass, field
from typing import Any

from allaboard.model.raw_fields import boolean, integer, mapping, text
from allaboard.model.requests import RawObject
from allaboard.whatif.runtimeclasses import NotAdmittedError

PRIORITY_CLASS = ("scheduling.k8s.io", "PriorityClass")

_OF_EVERY_CLUSTER = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(slots=True)
class Priorities:
    """Priorities by class; ``default`` is that of pods that name none. ``are_all`` tells that the cluster has no other classes."""

    by_class: dict[str, int] = field(default_factory=lambda: dict(_OF_EVERY_CLUSTER))
    default: int = 0
    are_all: bool = False

    def learn(self, priority_class: RawObject) -> None:
        """Take a PriorityClass. Raises ``MalformedError``."""
        value = integer(priority_class, "value")
        self.by_class[text(mapping(priority_class, "metadata"), "name", path="metadata.")] = value
        if boolean(priority_class, "globalDefault"):
            self.default = value

    def learn_from_pod(self, pod: RawObject) -> None:
        """Take what a pod of the cluster was given. Raises ``MalformedError``."""
        spec = mapping(pod, "spec")
        name = text(spec, "priorityClassName", path="spec.")
        if name and spec.get("priority") is not None:
            self.by_class.setdefault(name, integer(spec, "priority", path="spec."))

    def beside(self, others: "Priorities") -> "Priorities":
        """These, and ``others`` of which these say nothing."""
        return Priorities({**others.by_class, **self.by_class}, self.default or others.default, self.are_all or others.are_all)

    def admitted(self, pod: dict[str, Any]) -> dict[str, Any]:
        """The pod with its priority. Raises ``MalformedError``, and ``NotAdmittedError`` for a class that doesn't exist."""
        spec = pod["spec"]
        if self.are_all and (unknown := self.unknown(pod)):
            raise NotAdmittedError(f"no PriorityClass with name {unknown} was found")
        if spec.get("priority") is not None:
            return pod
        name = text(spec, "priorityClassName", path="spec.")
        priority = self.by_class.get(name, 0) if name else self.default
        return {**pod, "spec": {**spec, "priority": priority}} if priority else pod

    def unknown(self, pod: dict[str, Any]) -> str:
        """The class of a pod whose priority can't be told; empty otherwise. Raises ``MalformedError``."""
        name = text(pod["spec"], "priorityClassName", path="spec.")
        return name if name not in self.by_class and pod["spec"].get("priority") is None else ""
