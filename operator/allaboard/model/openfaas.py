"""Reads the requests of an OpenFaaS function from the annotation ``com.openfaas.function.spec`` of its pod.

OpenFaaS's operator writes the function's whole spec into the annotation, as JSON. The kubelet and other schedulers see only the requests of
containers, so the annotation can only add to these requests. The annotation counts only if no container states cpu or memory. So it adds
nothing in a namespace whose quota makes containers state their requests.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

import orjson

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.errors import MalformedError, shown
from allaboard.model.limits import CONTAINERS, FUNCTION_CHARACTERS, OverLimitError
from allaboard.model.quantities import LARGEST_AMOUNT, resource_amount
from allaboard.model.raw_fields import items, mapping
from allaboard.model.requests import RawObject, Requests, as_requests

FUNCTION_SPEC = "com.openfaas.function.spec"
"""The annotation of a pod with the spec of its function."""

_FIELD = f"metadata.annotations[{FUNCTION_SPEC}]"
_RESOURCES = ("cpu", "memory")
"""All resources that a function can request. A function gets GPUs by an OpenFaaS profile, which changes the pod itself."""

_is_bare = re.compile(r"[0-9.]+").fullmatch


def with_function_demand(raw: RawObject, spec: SchedulingSpec, problems: list[MalformedError]) -> tuple[SchedulingSpec, str]:
    """Return ``spec`` of the pod ``raw`` with its function's requests added, and a caution if these are doubtful, else an empty text.

    For each resource the function's request counts, or its limit if it states no request. Neither counts if a container of the pod, or the
    pod as a whole, requests cpu or memory. If the function requests a resource, scores assume no further amount of this resource. An
    annotation that can't be understood counts for nothing, and its error is added to ``problems``.
    """
    try:
        stated = mapping(raw, "metadata").get("annotations")
        text = stated.get(FUNCTION_SPEC) if isinstance(stated, Mapping) else None
        if text is None or _has_requests(raw):
            return spec, ""
        asked, caution = function_demand(text)
    except MalformedError as error:
        problems.append(error.noted())
        return spec, ""
    together = dict(spec.requests)
    for resource, amount in asked:
        together[resource] = min(together.get(resource, 0) + amount, LARGEST_AMOUNT)
    asked_for = {resource for resource, _ in asked}
    unstated = tuple((resource, amount) for resource, amount in spec.unstated if resource not in asked_for)
    return replace(spec, requests=as_requests(together), unstated=unstated), caution


def function_demand(text: object) -> tuple[Requests, str]:
    """Return the requests that a function's spec states, and a caution if they are doubtful, else an empty text.

    Raises ``MalformedError``.
    """
    if not isinstance(text, str):
        raise MalformedError(_FIELD, f"{shown(text)} is not a string")
    if len(text) > FUNCTION_CHARACTERS.most:
        raise OverLimitError(_FIELD, FUNCTION_CHARACTERS, len(text))
    try:
        function = orjson.loads(text)
    except ValueError as error:
        raise MalformedError(_FIELD, f"is not JSON: {error}") from None
    if not isinstance(function, dict):
        raise MalformedError(_FIELD, f"{shown(function)} is not an object")
    requests, limits = (mapping(function, key, f"{_FIELD}.") for key in ("requests", "limits"))
    amounts: dict[str, int] = {}
    caution = ""
    for resource in _RESOURCES:
        key, quantity = next(((key, found) for key, found in _stated(resource, requests, limits)), ("", None))
        if quantity is None:
            continue
        amounts[resource] = resource_amount(resource, quantity, f"{_FIELD}.{key}.{resource}")
        if resource == "memory" and amounts[resource] and _is_bare(str(quantity)):
            caution = f"{_FIELD}.{key}.memory: {shown(quantity)} has no unit and counts as bytes; {quantity}Mi would be mebibytes"
    return as_requests(amounts), caution


def _stated(resource: str, requests: RawObject, limits: RawObject) -> list[tuple[str, object]]:
    """Return (key, quantity) of the request and of the limit for ``resource``, each only if it is stated.

    Empty text states nothing, as in OpenFaaS.
    """
    found = (("requests", requests.get(resource)), ("limits", limits.get(resource)))
    return [(key, quantity) for key, quantity in found if quantity not in (None, "")]


def _has_requests(raw: RawObject) -> bool:
    """Return whether a container of the pod, or the pod as a whole, requests cpu or memory. Raises ``MalformedError``."""
    spec = mapping(raw, "spec")
    parts = [spec, *(container for key in ("containers", "initContainers") for _, container in items(spec, key, "spec.", CONTAINERS))]
    stated = [mapping(mapping(each, "resources"), "requests") for each in parts]
    return any(requests.get(resource) is not None for requests in stated for resource in _RESOURCES)
