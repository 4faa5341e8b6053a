"""Check that an object has the shape that the API server's typed decoder expects.

Only fields of which a wrong shape would break the sandbox are checked. The messages are those of Go's json package, as kube-apiserver 1.37
sends them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.pods import CONTAINER_LISTS

_TEXTS = "map[string]string"


def problem(resource: Resource, body: Any) -> str:
    """Return a message about the first wrong shape in an object; empty if there is none."""
    return next(_problems(resource, body), "")


def _problems(resource: Resource, body: Any) -> Iterator[str]:
    if not isinstance(body, Mapping):
        yield _type_mismatch(body, "value", f"v1.{resource.kind}")
        return
    kind = resource.kind
    metadata = body.get("metadata")
    if not _is_object(metadata):
        # The metadata of a custom object is decoded separately.
        yield _type_mismatch(metadata, "value" if resource.custom else f"struct field {kind}.metadata", "v1.ObjectMeta")
        return
    for field in ("labels", "annotations"):
        texts, place = (metadata or {}).get(field), f"struct field ObjectMeta.{'' if resource.custom else 'metadata.'}{field}"
        if not _is_object(texts):
            yield _type_mismatch(texts, place, _TEXTS)
        else:
            yield from (_type_mismatch(text, place, "string") for text in (texts or {}).values() if not isinstance(text, str | None))
    if resource.custom:
        # The schema checks the rest of a custom object.
        return
    for field in ("spec", "status"):
        if not _is_object(body.get(field)):
            yield _type_mismatch(body[field], f"struct field {kind}.{field}", f"v1.{kind}{field.capitalize()}")
            return
    spec = body.get("spec") or {}
    yield from _pod_spec_problems(spec, "spec")
    template = spec.get("template")
    if not _is_object(template):
        yield _type_mismatch(template, f"struct field {kind}Spec.spec.template", "v1.PodTemplateSpec")
        return
    pod_spec = (template or {}).get("spec")
    if not _is_object(pod_spec):
        yield _type_mismatch(pod_spec, "struct field PodTemplateSpec.spec.template.spec", "v1.PodSpec")
        return
    yield from _pod_spec_problems(pod_spec or {}, "spec.template.spec")


def _pod_spec_problems(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    for field in CONTAINER_LISTS:
        containers, place = spec.get(field) or [], f"struct field PodSpec.{path}.{field}"
        if not isinstance(containers, list):
            yield _type_mismatch(containers, place, "[]v1.Container")
        else:
            yield from (_type_mismatch(container, place, "v1.Container") for container in containers if not isinstance(container, Mapping))


def _is_object(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


def _type_mismatch(value: Any, place: str, go_type: str) -> str:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
    return f"json: cannot unmarshal {names.get(type(value), 'object')} into Go {place} of type {go_type}"
