"""The errors that a Kubernetes API server answers with, in the API server's words.

Clients distinguish errors by code, reason and sometimes message. Each error is therefore made in one place, worded as the real server words
it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allaboard_sandbox.kinds import Resource


class ApiError(Exception):
    """The API server refuses a request. ``status`` is the HTTP code, ``reason`` the machine-readable word."""

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
        """Return the Status object that a client receives."""
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
    """One problem of one field of an object."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def body(self) -> dict[str, str]:
        """Return the cause as an entry of ``details.causes``."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def required(field: str, detail: str = "") -> Cause:
    """Return the cause for a missing field."""
    return Cause(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def invalid_value(field: str, value: object, detail: str) -> Cause:
    """Return the cause for an invalid value."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {detail}")


def type_invalid(field: str, value: object, detail: str) -> Cause:
    """Return the cause for a value of the wrong type."""
    return Cause(field, "FieldValueTypeInvalid", f"Invalid value: {quoted(value)}: {detail}")


def not_supported(field: str, value: object, supported: Sequence[object]) -> Cause:
    """Return the cause for a value that is not among the ``supported`` values."""
    choices = ", ".join(quoted(each) for each in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {choices}")


def not_allowed(field: str, detail: str) -> Cause:
    """Return the cause for a forbidden value or change."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def too_long(field: str, limit: int) -> Cause:
    """Return the cause for a value of more than ``limit`` bytes."""
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, actual: int, limit: int) -> Cause:
    """Return the cause for a list of more than ``limit`` items."""
    return Cause(field, "FieldValueTooMany", f"Too many: {actual}: must have at most {limit} items")


def quoted(value: object) -> str:
    """Return ``value`` as Go prints it in a field error: strings in quotes, all other values as JSON."""
    return json.dumps(value, ensure_ascii=False, default=str)


def about(resource: "Resource", name: str, *, kind: str | None = None) -> dict[str, str]:
    """Return the ``details`` that name the object of an error."""
    details = {"name": name}
    if resource.group:
        details["group"] = resource.group
    return details | {"kind": kind or resource.plural}


def not_found(resource: "Resource", name: str) -> ApiError:
    """Return the 404 for an object that doesn't exist."""
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details=about(resource, name))


def already_exists(resource: "Resource", name: str) -> ApiError:
    """Return the 409 for a create of an object that exists."""
    return ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', details=about(resource, name))


def conflict(resource: "Resource", name: str, message: str, *, subresource: str = "") -> ApiError:
    """Return the 409 for a write that conflicts with the present state of the object."""
    qualified = f"{resource.qualified}/{subresource}" if subresource else resource.qualified
    kind = f"{resource.plural}/{subresource}" if subresource else resource.plural
    text = f'Operation cannot be fulfilled on {qualified} "{name}": {message}'
    return ApiError(409, "Conflict", text, details=about(resource, name, kind=kind))


def precondition_failed(resource: "Resource", name: str, message: str) -> ApiError:
    """Return the 409 for a deletion or eviction whose preconditions don't hold.

    The message and the details state the kind of the object, as an API server's do, although other conflicts state the plural resource
    name.
    """
    details = about(resource, name, kind=resource.kind)
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {resource.qualified_kind} "{name}": {message}', details=details)


def storage_conflict(resource: "Resource", key: tuple[str, str], word: str, wanted: str, actual: str, *, dry_run: bool = False) -> ApiError:
    """Return the 409 for a write whose precondition fails in the storage layer."""
    # A dry run goes no deeper than the layer above etcd, which doesn't know the prefix of the keys.
    path = "/".join((resource.storage_path if not dry_run else f"/{resource.plural}", *filter(None, key)))
    return conflict(
        resource,
        key[1],
        f"StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {actual}",
    )


def modified(resource: "Resource", name: str) -> ApiError:
    """Return the 409 for a write that is based on an outdated version."""
    return conflict(resource, name, "the object has been modified; please apply your changes to the latest version and try again")


def invalid(resource: "Resource", name: str, causes: Sequence[Cause]) -> ApiError:
    """Return the 422 that lists the problems of an object."""
    listed = ", ".join(str(cause) for cause in causes)
    if len(causes) > 1:
        listed = f"[{listed}]"
    details: dict[str, Any] = {**about(resource, name, kind=resource.kind), "causes": [cause.body() for cause in causes]}
    return ApiError(422, "Invalid", f'{resource.qualified_kind} "{name}" is invalid: {listed}', details=details)


def version_required(resource: "Resource", name: str) -> ApiError:
    """Return the 422 for an update without a resourceVersion.

    The message and the details state the plural resource name, as an API server's do, although other invalid objects are named by kind.
    """
    cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
    details: dict[str, Any] = {**about(resource, name), "causes": [cause.body()]}
    return ApiError(422, "Invalid", f'{resource.qualified} "{name}" is invalid: {cause}', details=details)


def forbidden(resource: "Resource", name: str, message: str) -> ApiError:
    """Return the 403 for a request that admission forbids."""
    return ApiError(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {message}', details=about(resource, name))


def bad_request(message: str) -> ApiError:
    """Return the 400 for a request that can't be understood."""
    return ApiError(400, "BadRequest", message)


def expired(message: str, *, continue_token: str | None = None) -> ApiError:
    """Return the 410 for a revision that is forgotten; ``continue_token`` lets a client continue its list."""
    metadata = {"continue": continue_token} if continue_token else None
    return ApiError(410, "Expired", message, metadata=metadata)


def too_large_revision(asked: int, current: int) -> ApiError:
    """Return the 504 for a resourceVersion that is newer than the current one."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message, details={"causes": causes}, retry_after=1)


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """Return the 415 for a request body whose format is not among the ``accepted`` ones."""
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ApiError(415, "UnsupportedMediaType", message)


def kind_not_in_protobuf(group_version: str, kind: str) -> ApiError:
    """Return the 415 for a kind that the sandbox can't read as protobuf; a real API server can read all built-in kinds."""
    message = (
        f"the sandbox doesn't read {group_version} {kind} as protobuf - accepted media types include: application/json, application/yaml"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def unknown_media_type() -> ApiError:
    """Return the 415 for a patch in a format that the API server doesn't know."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def no_such_subresource() -> ApiError:
    """Return the 404 for a resource or subresource that is not served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def no_containers(name: str, wanted: str) -> ApiError:
    """Return the 400 for a request that a real API server would pass on to the kubelet."""
    return bad_request(f'pod "{name}" {wanted}: the sandbox runs no containers')


def method_not_allowed() -> ApiError:
    """Return the 405 for a method that the resource doesn't support."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={})
