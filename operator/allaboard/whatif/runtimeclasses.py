"""Adds the overhead, node selector and tolerations of a RuntimeClass to a pod that names it.

The rules are those of the API server's admission control (kubernetes plugin/pkg/admission/runtimeclass, 1.37).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allaboard.model.errors import MalformedError, shown
from allaboard.model.quantities import parse_quantity
from allaboard.model.raw_fields import labels, mapping, sequence, text
from allaboard.model.requests import RawObject

RUNTIME_CLASS = ("node.k8s.io", "RuntimeClass")


class NotAdmittedError(Exception):
    """The API server would refuse a pod; the message says why, in the API server's words."""


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """The additions of one RuntimeClass: overhead amounts by resource, node labels, and raw tolerations."""

    overhead: Mapping[str, object]
    node_selector: Mapping[str, str]
    tolerations: tuple[object, ...]


@dataclass(slots=True)
class RuntimeClasses:
    """RuntimeClasses by name. With ``are_all`` the cluster has no other RuntimeClasses."""

    by_name: dict[str, RuntimeClass] = field(default_factory=dict)
    are_all: bool = False

    def learn(self, raw: RawObject) -> None:
        """Add a RuntimeClass. Raises ``MalformedError``."""
        scheduling = mapping(raw, "scheduling")
        overhead = mapping(mapping(raw, "overhead"), "podFixed", "overhead.")
        for resource, amount in overhead.items():
            parse_quantity(amount, f"overhead.podFixed[{resource}]")
        self.by_name[text(mapping(raw, "metadata"), "name", path="metadata.")] = RuntimeClass(
            overhead, labels(scheduling, "nodeSelector", "scheduling."), tuple(sequence(scheduling, "tolerations", "scheduling."))
        )

    def overriding(self, others: "RuntimeClasses") -> "RuntimeClasses":
        """Return the classes of this object and of ``others``; if both have a class of a name, the class of this object counts."""
        return RuntimeClasses({**others.by_name, **self.by_name}, self.are_all or others.are_all)

    def admitted(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Return a raw pod with the additions of its RuntimeClass.

        Raises ``NotAdmittedError`` for a pod that the API server refuses, and ``MalformedError`` for a class that isn't known.
        """
        spec = pod["spec"]
        name = text(spec, "runtimeClassName", path="spec.")
        if name and name not in self.by_name and not self.are_all:
            problem = f"RuntimeClass {shown(name)} is not known; add the output of `kubectl get runtimeclasses -o json` to --cluster"
            raise MalformedError("spec.runtimeClassName", problem)
        if name and name not in self.by_name:
            raise NotAdmittedError(f"RuntimeClass {shown(name)} not found")
        overhead = mapping(spec, "overhead", "spec.")
        known = self.by_name.get(name)
        if known is None or not known.overhead:
            if overhead:
                raise NotAdmittedError("Pod Overhead set without corresponding RuntimeClass defined Overhead")
        elif overhead and _amounts(overhead) != _amounts(known.overhead):
            raise NotAdmittedError(f"Pod's Overhead doesn't match RuntimeClass's defined Overhead of {name}")
        return {**pod, "spec": _with(spec, known)} if known else pod


def _with(spec: Mapping[str, Any], runtime: RuntimeClass) -> dict[str, Any]:
    """Return the spec of a pod with the additions of its RuntimeClass. Raises ``NotAdmittedError`` if the node selectors conflict."""
    selector = labels(spec, "nodeSelector", "spec.")
    for key, value in runtime.node_selector.items():
        if selector.get(key, value) != value:
            raise NotAdmittedError(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
    added = {
        "overhead": runtime.overhead,
        "nodeSelector": {**selector, **runtime.node_selector},
        "tolerations": [*sequence(spec, "tolerations", "spec."), *runtime.tolerations],
    }
    return {**spec, **{key: value for key, value in added.items() if value}}


def _amounts(overhead: Mapping[str, object]) -> Mapping[str, object]:
    return {resource: parse_quantity(amount, f"spec.overhead[{resource}]") for resource, amount in overhead.items()}
