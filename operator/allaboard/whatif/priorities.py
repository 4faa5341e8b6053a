"""Gives pods the priority that the API server would give them: that of their class, else that of the default class, else 0.

The rules are those of the API server's admission control (kubernetes plugin/pkg/admission/priority, 1.37). Classes are known from their
objects, and from pods that were admitted with them.
"""

from dataclasses import dataclass, field
from typing import Any

from allaboard.model.raw_fields import boolean, integer, mapping, text
from allaboard.model.requests import RawObject
from allaboard.whatif.runtimeclasses import NotAdmittedError

PRIORITY_CLASS = ("scheduling.k8s.io", "PriorityClass")

_BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(slots=True)
class Priorities:
    """Priorities by class; ``default`` is for pods that name no class. With ``are_all`` the cluster has no other classes.

    ``never`` are the classes whose pods preempt no others.
    """

    by_class: dict[str, int] = field(default_factory=lambda: dict(_BUILT_IN))
    default: int = 0
    are_all: bool = False
    never: set[str] = field(default_factory=set)

    def learn(self, priority_class: RawObject) -> None:
        """Add a PriorityClass. Raises ``MalformedError``."""
        value, name = integer(priority_class, "value"), text(mapping(priority_class, "metadata"), "name", path="metadata.")
        self.by_class[name] = value
        if priority_class.get("preemptionPolicy") == "Never":
            self.never.add(name)
        if boolean(priority_class, "globalDefault"):
            self.default = value

    def learn_from_pod(self, pod: RawObject) -> None:
        """Add the PriorityClass that a pod of the cluster names, with the pod's priority. Raises ``MalformedError``."""
        spec = mapping(pod, "spec")
        name = text(spec, "priorityClassName", path="spec.")
        if name and spec.get("priority") is not None:
            self.by_class.setdefault(name, integer(spec, "priority", path="spec."))
            if spec.get("preemptionPolicy") == "Never":
                self.never.add(name)

    def overriding(self, others: "Priorities") -> "Priorities":
        """Return the classes of this object and of ``others``; if both have a class of a name, the class of this object counts."""
        never = self.never | (others.never - self.by_class.keys())
        return Priorities({**others.by_class, **self.by_class}, self.default or others.default, self.are_all or others.are_all, never)

    def admitted(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Return the pod with its priority. Raises ``MalformedError``, and ``NotAdmittedError`` for a class that doesn't exist."""
        spec = pod["spec"]
        if self.are_all and (unknown := self.unknown(pod)):
            raise NotAdmittedError(f"no PriorityClass with name {unknown} was found")
        if spec.get("priority") is not None:
            return pod
        name = text(spec, "priorityClassName", path="spec.")
        priority = self.by_class.get(name, 0) if name else self.default
        stated: dict[str, Any] = {"priority": priority} if priority else {}
        if name in self.never:
            stated["preemptionPolicy"] = "Never"
        return {**pod, "spec": {**spec, **stated}} if stated else pod

    def unknown(self, pod: dict[str, Any]) -> str:
        """Return the class of a pod whose priority isn't known; empty if it is known. Raises ``MalformedError``."""
        name = text(pod["spec"], "priorityClassName", path="spec.")
        return name if name not in self.by_class and pod["spec"].get("priority") is None else ""
