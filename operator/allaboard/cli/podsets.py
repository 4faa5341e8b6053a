"""Sets of pods that a controller makes of one template, and what the API server refuses of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from allaboard.cli.documents import Document
from allaboard.model.errors import MalformedError, shown
from allaboard.model.fields import integer, items, labels, mapping, sequence, text
from allaboard.model.quantities import parse_quantity
from allaboard.model.requests import default_requests

MAX_PODS = 100_000
"""Pods that a plan may hold; a typing mistake in ``replicas`` shouldn't end in a machine without memory."""

RawPod = dict[str, Any]
Labels = dict[str, str]


def at_once(index: int) -> int:
    """Return that a pod waits for no other before it is made."""
    return 0


@dataclass(frozen=True, slots=True)
class PodSet:
    """``count`` pods of one template. ``path`` leads to the template inside the workload, with a dot at the end.

    ``after`` is how many earlier pods of the workload must be Ready before the controller makes a pod; 0 for pods made at once.
    """

    path: str
    template: Mapping[str, Any]
    count: int
    owner: Mapping[str, Any] | None
    name: Callable[[int], str]
    labels: Callable[[int], Labels]
    claims: tuple[str, ...] = ()
    after: Callable[[int], int] = at_once

    def pods(self, namespace: str) -> Iterator[RawPod]:
        """The raw pods, with requests defaulted from limits as the API server would. Raises ``MalformedError``, paths within a pod."""
        stated = mapping(self.template, "spec")
        if not sequence(stated, "containers", "spec."):
            raise MalformedError("spec.containers", "is missing; a pod needs at least one container")
        _check_resources(stated)
        spec = default_requests(stated)
        metadata = mapping(self.template, "metadata")
        template_labels = labels(metadata, "labels", "metadata.")
        annotations = labels(metadata, "annotations", "metadata.")
        for index in range(self.count):
            name = self.name(index)
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": made_up_uid(namespace, name),
                    "labels": {**template_labels, **self.labels(index)},
                    "annotations": annotations,
                    "ownerReferences": [self.owner] if self.owner else [],
                },
                "spec": self._with_claims(spec, name),
                "status": {"phase": "Pending"},
            }

    def _with_claims(self, spec: dict[str, Any], pod_name: str) -> dict[str, Any]:
        if not self.claims:
            return spec
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{pod_name}"}} for claim in self.claims]
        return {**spec, "volumes": [*sequence(spec, "volumes", "spec."), *volumes]}


def _check_resources(spec: Mapping[str, object]) -> None:
    """Refuse what the API server refuses of resources as they are stated. Raises ``MalformedError``."""
    for key in ("containers", "initContainers"):
        for path, container in items(spec, key, "spec."):
            _check_amounts(mapping(container, "resources", path), f"{path}resources.")
    _check_amounts(mapping(spec, "resources", "spec."), "spec.resources.")


def _check_amounts(resources: Mapping[str, object], path: str) -> None:
    limits = {
        resource: _amount(resource, value, f"{path}limits[{resource}]") for resource, value in mapping(resources, "limits", path).items()
    }
    for resource, value in mapping(resources, "requests", path).items():
        field = f"{path}requests[{resource}]"
        requested = _amount(resource, value, field)
        if resource in limits and requested > limits[resource]:
            limit = mapping(resources, "limits", path)[resource]
            raise MalformedError(field, f"{shown(value)} is more than the limit of {shown(limit)}")


def _amount(resource: str, value: object, field: str) -> Fraction:
    amount = parse_quantity(value, field)
    # Names with a domain are extended resources: whole pieces, and never more than one may use.
    if "/" in resource and amount.denominator != 1:
        raise MalformedError(field, f"{shown(value)} is not a whole number; an extended resource comes in whole pieces")
    return amount


def made_up_uid(namespace: str, name: str, kind: str = "") -> str:
    """A UID that is the same every time; no real one looks like it."""
    return f"manifest:{namespace}/{kind}/{name}" if kind else f"manifest:{namespace}/{name}"


def count_of(parent: Mapping[str, object], key: str, default: int, path: str) -> int:
    """A number of pods. Raises ``MalformedError`` for negative and absurd ones too."""
    count = integer(parent, key, default, path)
    if count < 0:
        raise MalformedError(f"{path}{key}", f"{count} is negative")
    if count > MAX_PODS:
        raise MalformedError(f"{path}{key}", f"{count} is more than the {MAX_PODS} pods that a plan may hold")
    return count


def pod_set(
    parent: Mapping[str, object],
    count: int,
    owner: Mapping[str, Any],
    *,
    name: Callable[[int], str],
    labels: Callable[[int], Labels] = lambda index: {},
    path: str = "spec.",
    claims: tuple[str, ...] = (),
    after: Callable[[int], int] = at_once,
) -> PodSet:
    template = mapping(parent, "template", path)
    if not template:
        raise MalformedError(f"{path}template", "is missing")
    _check_selector(parent, template, path)
    return PodSet(f"{path}template.", template, count, owner, name, labels, claims, after)


def _check_selector(parent: Mapping[str, object], template: Mapping[str, object], path: str) -> None:
    """Refuse a selector that doesn't select the template's pods, as the API server does. Raises ``MalformedError``."""
    selector, within = parent.get("selector"), f"{path}selector."
    if not isinstance(selector, Mapping) or "matchLabels" not in selector:  # a ReplicationController's has another form
        return
    stated = labels(mapping(template, "metadata", f"{path}template."), "labels", f"{path}template.metadata.")
    for key, value in labels(selector, "matchLabels", within).items():
        if stated.get(key) != value:
            raise MalformedError(f"{within}matchLabels[{key}]", f"{shown(value)} is not among the labels of the template's pods")


def owner_of(document: Document, namespace: str, name: str, kind: str = "") -> dict[str, Any]:
    kind = kind or document.kind
    return {
        "apiVersion": document.api_version,
        "kind": kind,
        "name": name,
        "uid": text(mapping(document.raw, "metadata"), "uid", path="metadata.") or made_up_uid(namespace, name, kind),
        "controller": True,
        "blockOwnerDeletion": True,
    }
