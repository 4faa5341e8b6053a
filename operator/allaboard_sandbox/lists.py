"""LIST: the records that a request selects, in pages that all show the state of the first page.

A continue token names a revision and the last key of a page. The event log lets any remembered revision be rebuilt, so the server keeps no
pages for clients that may never come back. A token older than the log is answered 410, with a new token that continues from the present
state.
"""

import base64
import binascii
import bisect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from allaboard_sandbox import errors
from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.selectors import everything, field_selector, label_selector
from allaboard_sandbox.store import Body, Key, Record, Store

EXACT, NOT_OLDER_THAN = "Exact", "NotOlderThan"
CURRENT = -1
"""Revision in a token that continues from the current revision."""
CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue "
    "parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token "
    "results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and "
    "now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a resource that a request is about: a namespace (None for all) and two selectors."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    @property
    def is_filtered(self) -> bool:
        """Return whether the request has a label or field selector."""
        return bool(self.labels or self.fields)

    def predicate(self, resource: Resource) -> Callable[[Body], bool]:
        """Return a predicate that is true of the objects that both selectors match."""
        by_label, by_field = label_selector(self.labels), field_selector(self.fields, resource)
        if by_label is everything:
            return by_field
        return lambda body: by_label(body["metadata"].get("labels") or {}) and by_field(body)


@dataclass(frozen=True, slots=True)
class Paging:
    """The paging parameters of a list: most items per page, continue token, resourceVersion, and ``match`` (resourceVersionMatch)."""

    limit: int = 0
    token: str = ""
    revision: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, and the token of the next page, which is empty on the last page."""

    records: Sequence[Record]
    revision: int
    token: str = ""
    remaining: int | None = None


def list_page(store: Store, resource: Resource, selection: Selection, paging: Paging = Paging()) -> Page:
    """Return the page that a LIST asks for.

    Raises ``ApiError`` with the API server's answer if the options are invalid or the revision is forgotten.
    """
    revision, after = _position(store, resource, paging)
    records = store.table(resource.table).snapshot(selection.namespace, revision, store.revision)
    if records is None:
        if not paging.token:
            raise errors.expired("The resourceVersion for the provided list is too old.")
        raise errors.expired(CONTINUE_EXPIRED, continue_token=_token(CURRENT, after or ("", "")))
    start = bisect.bisect_right(records, after, key=lambda record: record.key) if after else 0
    if not paging.limit and not start and not selection.is_filtered:
        return Page(records, revision)
    matches = selection.predicate(resource)
    found: list[Record] = []
    for index in range(start, len(records)):
        if not matches(records[index].body):
            continue
        if paging.limit and len(found) == paging.limit:
            # As in a real server, the rest of a filtered list isn't counted: that would evaluate the selectors to the end.
            remaining = None if selection.is_filtered else len(records) - index
            return Page(found, revision, _token(revision, found[-1].key), remaining)
        found.append(records[index])
    return Page(found, revision)


def _position(store: Store, resource: Resource, paging: Paging) -> tuple[int, Key | None]:
    """Return the revision to list at, and the key after which the page starts. The key is None for the first page."""
    if paging.match and not paging.revision and not paging.token:
        raise _bad_options(resource, "resourceVersionMatch is forbidden unless resourceVersion is provided")
    if paging.match == EXACT and paging.revision == "0":
        raise _bad_options(resource, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if paging.token:
        revision, after = _parsed_token(paging.token)
        return (store.revision if revision == CURRENT else revision), after
    asked = parsed_revision(paging.revision)
    if asked > store.revision:
        raise errors.too_large_revision(asked, store.revision)
    return (asked if paging.match == EXACT else store.revision), None


def parsed_revision(text: str) -> int:
    """Return a resourceVersion parameter as a number; 0 if it is absent.

    Raises ``ApiError`` (500) if the parameter isn't a number.
    """
    try:
        return int(text or 0)
    except ValueError:
        message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise errors.ApiError(500, "", message) from None


def _bad_options(resource: Resource, message: str) -> errors.ApiError:
    text = f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: {message}'
    return errors.ApiError(422, "Invalid", text, details={"group": "meta.k8s.io", "kind": "ListOptions"})


def _token(revision: int, after: Key) -> str:
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": "/".join(after)}, separators=(",", ":"))
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def _parsed_token(token: str) -> tuple[int, Key]:
    try:
        decoded = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = str(decoded["start"]).partition("/")
        return int(decoded["rv"]), (namespace, name)
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise errors.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
