"""Reads fields of raw Kubernetes objects. A field of a wrong type raises an error that names its path, instead of a ``TypeError``.

Null counts as absent everywhere, as for the API server. With a limit, a list or map that is too long raises ``OverLimitError`` before
anything loops over it; an entry whose text is too long does so, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from allaboard.model.errors import MalformedError, shown
from allaboard.model.limits import CHARACTERS, Limit, OverLimitError, Tally

LABEL_KEY = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""A pattern for keys of labels, with or without a domain."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAMESPACE = rf"(?=.{{1,63}}\Z){_LABEL}"
"""A pattern for names of namespaces (apimachinery util/validation, ``IsDNS1123Label``)."""
OBJECT_NAME = rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*"
"""A pattern for names of most other objects (``IsDNS1123Subdomain``)."""


# The types that JSON yields come first: a check of an abstract class takes ten times as long, and each pod event makes a hundred checks.
_OBJECTS = (dict, Mapping)
_LISTS = (list, Sequence)

_LARGEST = 2**63 - 1  # the API's whole numbers have 64 bits at most


def version_of(raw: Mapping[str, object]) -> int:
    """Return an object's resourceVersion as a number; 0 if it isn't a number. Later states have greater numbers (KEP-5504)."""
    return version_number(mapping(raw, "metadata").get("resourceVersion"))


def version_number(version: object) -> int:
    """Return a resourceVersion as a number; 0 if it isn't a number."""
    return int(version) if isinstance(version, str) and version.isdecimal() else 0


def mapping(parent: Mapping[str, object], key: str, path: str = "") -> Mapping[str, object]:
    """Return the object under ``key``; an empty object if it is absent or null."""
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, _OBJECTS):
        raise MalformedError(f"{path}{key}", f"{shown(value)} is not an object")
    return value


def sequence(parent: Mapping[str, object], key: str, path: str = "") -> Sequence[object]:
    """Return the list under ``key``; an empty list if it is absent or null."""
    value = parent.get(key)
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, _LISTS):
        raise MalformedError(f"{path}{key}", f"{shown(value)} is not a list")
    return value


def items(
    parent: Mapping[str, object], key: str, path: str = "", limit: Limit | Tally | None = None
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the objects of the list under ``key``, each with its path."""
    if parent.get(key) is None:
        return
    for index, value in enumerate(_within(sequence(parent, key, path), limit, f"{path}{key}")):
        where = f"{path}{key}[{index}]"
        if not isinstance(value, _OBJECTS):
            raise MalformedError(where, f"{shown(value)} is not an object")
        yield f"{where}.", value


def text(parent: Mapping[str, object], key: str, default: str = "", path: str = "") -> str:
    """Return the string under ``key``; ``default`` if it is absent or null."""
    value = parent.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise MalformedError(f"{path}{key}", f"{shown(value)} is not a string")
    if len(value) > CHARACTERS.most:
        raise OverLimitError(f"{path}{key}", CHARACTERS, len(value))
    return value


def integer(parent: Mapping[str, object], key: str, default: int = 0, path: str = "") -> int:
    """Return the whole number under ``key``; ``default`` if it is absent or null."""
    value = parent.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedError(f"{path}{key}", f"{shown(value)} is not a whole number")
    if abs(value) > _LARGEST:
        raise MalformedError(f"{path}{key}", f"{shown(value)} is too large")
    return value


def boolean(parent: Mapping[str, object], key: str, path: str = "") -> bool:
    """Return the truth value under ``key``; False if it is absent or null."""
    value = parent.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise MalformedError(f"{path}{key}", f"{shown(value)} is not true or false")
    return value


def texts(parent: Mapping[str, object], key: str, path: str = "", limit: Limit | Tally | None = None) -> tuple[str, ...]:
    """Return the list of strings under ``key``; an empty list if it is absent or null."""
    values = _within(sequence(parent, key, path), limit, f"{path}{key}")
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise MalformedError(f"{path}{key}[{index}]", f"{shown(value)} is not a string")
        if limit is not None and len(value) > CHARACTERS.most:
            raise OverLimitError(f"{path}{key}[{index}]", CHARACTERS, len(value))
    return tuple(str(value) for value in values)


def labels(parent: Mapping[str, object], key: str, path: str = "", limit: Limit | Tally | None = None) -> dict[str, str]:
    """Return the string-to-string map under ``key``; entries whose value is null are left out."""
    found: dict[str, str] = {}
    for name, value in _within(mapping(parent, key, path), limit, f"{path}{key}").items():
        if not isinstance(name, str):
            raise MalformedError(f"{path}{key}", f"the key {shown(name)} is not a string")
        if value is None:
            continue
        if not isinstance(value, str):
            raise MalformedError(f"{path}{key}[{name[: CHARACTERS.most]}]", f"{shown(value)} is not a string")
        if limit is not None and max(len(name), len(value)) > CHARACTERS.most:
            raise OverLimitError(f"{path}{key}[{name[: CHARACTERS.most]}]", CHARACTERS, max(len(name), len(value)))
        found[name] = value
    return found


_Found = TypeVar("_Found", Sequence[object], Mapping[str, object])


def _within(found: _Found, limit: Limit | Tally | None, field: str) -> _Found:
    if isinstance(limit, Tally):
        limit.take(found, field)
    elif limit is not None and len(found) > limit.most:
        raise OverLimitError(field, limit, len(found))
    return found
