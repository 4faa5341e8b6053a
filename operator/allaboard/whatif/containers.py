"""Refuses containers that the API server refuses (kubernetes pkg/apis/core/validation), in pods and in pod templates of workloads.

A template is checked as strictly as a pod. The API server accepts some templates but refuses their pods; a workload with such a template
would get no pods.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from math import inf

from allaboard.model.errors import MalformedError, shown
from allaboard.model.quantities import format_amount, parse_quantity
from allaboard.model.raw_fields import items, mapping, text
from allaboard.model.requests import RawObject, default_requests, pod_requests

_KEYS = ("containers", "initContainers")
_NAME = re.compile(r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})


def refuse_containers(spec: RawObject) -> None:
    """Refuse the spec of a pod for errors in its containers, or in the resources of the pod as a whole (``spec.resources``).

    The spec must not have its defaults yet. Raises ``MalformedError`` with the path within the pod.
    """
    names: set[str] = set()
    for key in _KEYS:
        for path, container in items(spec, key, "spec."):
            name = text(container, "name", path=path)
            if not _NAME.fullmatch(name):
                problem = f"{shown(name)} is not a valid name: at most 63 characters of a-z, 0-9 and '-'" if name else "is missing"
                raise MalformedError(f"{path}name", problem)
            if name in names:
                raise MalformedError(f"{path}name", f"{shown(name)} is the name of another container, too")
            names.add(name)
            _check_image(container.get("image"), f"{path}image")
            resources = mapping(container, "resources", path)
            _check_amounts(resources, f"{path}resources.")
            _check_overcommit(resources, f"{path}resources.")
    _check_pod(spec)


def _check_image(image: object, field: str) -> None:
    if not image:
        raise MalformedError(field, "is missing")
    if not isinstance(image, str):
        raise MalformedError(field, f"{shown(image)} is not a string")
    if image != image.strip():
        raise MalformedError(field, f"{shown(image)} must not begin or end with a blank")


def _check_amounts(resources: RawObject, path: str) -> None:
    """Refuse amounts that can't be read, and requests that are more than their limit."""
    limits = {resource: _amount(resource, value, f"{path}limits[{resource}]") for resource, value in _stated(resources, "limits", path)}
    for resource, value in _stated(resources, "requests", path):
        field = f"{path}requests[{resource}]"
        if _amount(resource, value, field) > limits.get(resource, inf):
            limit = mapping(resources, "limits", path)[resource]
            raise MalformedError(field, f"{shown(value)} is more than the limit of {shown(limit)}")


def _amount(resource: str, value: object, field: str) -> Fraction:
    amount = parse_quantity(value, field)
    # Names with a domain are extended resources, which are counted in whole numbers.
    if "/" in resource and amount.denominator != 1:
        raise MalformedError(field, f"{shown(value)} is not a whole number, as an extended resource requires")
    return amount


def _check_overcommit(resources: RawObject, path: str) -> None:
    """Refuse resources of a container that don't exist, and requests that over-commit a resource that can't be over-committed.

    A name without a slash is a standard resource. Extended resources, such as GPUs, and huge pages can't be over-committed: their limit
    must be stated and must equal the request.
    """
    for kind in ("limits", "requests"):
        for name, _ in _stated(resources, kind, path):
            if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
                raise MalformedError(f"{path}{kind}[{shown(name)}]", "must be a standard resource type or fully qualified")
    limits = dict(_stated(resources, "limits", path))
    names = {name for kind in ("limits", "requests") for name, _ in _stated(resources, kind, path)}
    if any(name.startswith("hugepages-") for name in names) and not names & {"cpu", "memory"}:
        raise MalformedError(path.rstrip("."), "huge pages require cpu or memory as well")
    for name, amount in _stated(resources, "requests", path):
        if not _is_exact(name):
            continue
        limit = limits.get(name)
        if limit is None:
            raise MalformedError(f"{path}limits[{shown(name)}]", "a limit must be set: this resource can't be over-committed")
        if parse_quantity(amount, name) != parse_quantity(limit, name):
            raise MalformedError(f"{path}requests[{shown(name)}]", f"must be equal to the limit, which is {shown(limit)}")


def _check_pod(spec: RawObject) -> None:
    """Refuse resources of a pod as a whole (``spec.resources``) that can't be stated there, or that its containers exceed."""
    resources, path = mapping(spec, "resources", "spec."), "spec.resources."
    stated = {kind: dict(_stated(resources, kind, path)) for kind in ("requests", "limits")}
    for kind, amounts in stated.items():
        for name in amounts:
            if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
                raise MalformedError(
                    f"{path}{kind}[{shown(name)}]", "is not one of cpu, memory and hugepages-…, which a pod as a whole may state"
                )
    _check_amounts(resources, path)
    if not resources:
        return
    for name, amount in pod_requests({"spec": default_requests({**spec, "resources": None, "overhead": None})}):
        asked = Fraction(amount, 1000 if name == "cpu" else 1)
        for kind, amounts in stated.items():
            if name in amounts and asked > parse_quantity(amounts[name], name):
                field = f"{path}{kind}[{name}]"
                raise MalformedError(
                    field, f"{shown(amounts[name])} is less than the {format_amount(name, amount)} that its containers request"
                )
    for where, container in items(spec, "containers", "spec."):
        within = f"{where}resources."
        for name, value in _stated(mapping(container, "resources", where), "limits", within):
            most = stated["limits"].get(name)
            if most is not None and parse_quantity(value, name) > parse_quantity(most, name):
                raise MalformedError(f"{within}limits[{name}]", f"{shown(value)} is more than the pod's limit of {shown(most)}")


def _is_exact(name: str) -> bool:
    """Return whether limits and requests of a resource must be equal."""
    return name.startswith("hugepages-") or ("/" in name and "kubernetes.io/" not in name)


def _stated(resources: RawObject, key: str, path: str) -> Iterator[tuple[str, object]]:
    """Return the resources under ``key`` with their amounts; null counts as absent."""
    return ((name, amount) for name, amount in mapping(resources, key, path).items() if amount is not None)
