"""The failures a Kubernetes API server answers with, in its own words.

Clients tell failures apart by code, reason and now and then by the message, so each is made here, once, as the real server words it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allaboard_sandbox.kinds import Resource


class ApiError(Exception):
    """A request the API refuses; ``status`` is the HTTP code, ``reason`` the machine-readable word."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """Return the Status object a client receives."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(self.metadata or {}),
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        details = dict(self.details or {})
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details or self.details is not None:
            body["details"] = details
        body["code"] = self.status
        return body


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong with one field of an object."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def body(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def required(field: str, detail: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def invalid_value(field: str, value: object, detail: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {detail}")


def type_invalid(field: str, value: object, detail: str) -> Cause:
    return Cause(field, "FieldValueTypeInvalid", f"Invalid value: {quoted(value)}: {detail}")


def not_supported(field: str, value: object, supported: Sequence[object]) -> Cause:
    choices = ", ".join(quoted(each) for each in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {choices}")


def not_allowed(field: str, detail: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def too_long(field: str, limit: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, actual: int, limit: int) -> Cause:
    return Cause(field, "FieldValueTooMany", f"Too many: {actual}: must have at most {limit} items")


def quoted(value: object) -> str:
    """Return ``value`` as Go prints it in a field error: strings quoted, the rest as JSON."""
    return json.dumps(value, ensure_ascii=False, default=str)


def about(resource: "Resource", name: str, *, kind: str | None = None) -> dict[str, str]:
    """Return the ``details`` that name the object a failure is about."""
    details = {"name": name}
    if resource.group:
        details["group"] = resource.group
    return details | {"kind": kind or resource.plural}


def not_found(resource: "Resource", name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details=about(resource, name))


def already_exists(resource: "Resource", name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', details=about(resource, name))


def conflict(resource: "Resource", name: str, message: str, *, subresource: str = "") -> ApiError:
    """Return the 409 of a write that meets a newer or different object."""
    qualified = f"{resource.qualified}/{subresource}" if subresource else resource.qualified
    kind = f"{resource.plural}/{subresource}" if subresource else resource.plural
    text = f'Operation cannot be fulfilled on {qualified} "{name}": {message}'
    return ApiError(409, "Conflict", text, details=about(resource, name, kind=kind))


def of_another_state(resource: "Resource", name: str, message: str) -> ApiError:
    """Return the 409 of a deletion whose preconditions don't hold; the API server names the kind where it means the resource."""
    details = about(resource, name, kind=resource.kind)
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {resource.qualified_kind} "{name}": {message}', details=details)


def storage_conflict(
    resource: "Resource", key: tuple[str, str], word: str, wanted: str, actual: str, *, rehearsed: bool = False
) -> ApiError:
    """Return the 409 of a write whose precondition fails in the storage layer."""
    # A rehearsal goes no deeper than the layer above etcd, which doesn't know under what prefix things are kept.
    path = "/".join((resource.storage_path if not rehearsed else f"/{resource.plural}", *filter(None, key)))
    return conflict(
        resource,
        key[1],
        f"StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {actual}",
    )


def modified(resource: "Resource", name: str) -> ApiError:
    return conflict(resource, name, "the object has been modified; please apply your changes to the latest version and try again")


def invalid(resource: "Resource", name: str, causes: Sequence[Cause]) -> ApiError:
    """Return the 422 that lists what is wrong with an object."""
    listed = ", ".join(str(cause) for cause in causes)
    if len(causes) > 1:
        listed = f"[{listed}]"
    details: dict[str, Any] = {**about(resource, name, kind=resource.kind), "causes": [cause.body() for cause in causes]}
    return ApiError(422, "Invalid", f'{resource.qualified_kind} "{name}" is invalid: {listed}', details=details)


def version_required(resource: "Resource", name: str) -> ApiError:
    """Return the 422 of an update that doesn't say of which version; the API server names the resource where it means the kind."""
    cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
    details: dict[str, Any] = {**about(resource, name), "causes": [cause.body()]}
    return ApiError(422, "Invalid", f'{resource.qualified} "{name}" is invalid: {cause}', details=details)


def forbidden(resource: "Resource", name: str, message: str) -> ApiError:
    return ApiError(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {message}', details=about(resource, name))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def expired(message: str, *, continue_token: str | None = None) -> ApiError:
    metadata = {"continue": continue_token} if continue_token else None
    return ApiError(410, "Expired", message, metadata=metadata)


def too_large_revision(asked: int, current: int) -> ApiError:
    """Return the 504 for a resourceVersion from the future."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message, details={"causes": causes}, retry_after=1)


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ApiError(415, "UnsupportedMediaType", message)


def kind_not_in_protobuf(group_version: str, kind: str) -> ApiError:
    """Return the 415 that only the sandbox answers: a real server knows all built-in kinds in either form."""
    message = (
        f"the sandbox doesn't read {group_version} {kind} as protobuf - accepted media types include: application/json, application/yaml"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def unknown_media_type() -> ApiError:
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def no_such_subresource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def no_containers(name: str, wanted: str) -> ApiError:
    """Return the 400 that only the sandbox answers, in place of what a kubelet would."""
    return bad_request(f'pod "{name}" {wanted}: the sandbox runs no containers')


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={})
