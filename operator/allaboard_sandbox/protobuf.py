"""Decode objects that are sent as protobuf into their JSON form; kubectl's typed commands send it (``kubectl create deployment``).

Answers stay JSON, which clients that send protobuf also accept. Fields that aren't in the table are ignored, as a real server ignores the
fields of a newer client. (The envelope: apimachinery pkg/runtime/serializer/protobuf; the wire: protobuf.dev/programming-guides/encoding.)
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from allaboard_sandbox.clock import stamp
from allaboard_sandbox.messages import KINDS, MESSAGES, Field, Shape
from allaboard_sandbox.store import Body

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10

Part = int | bytes
"""The value of a field: a number, or the bytes of a text, a message or a number of fixed size."""


class MalformedError(ValueError):
    """A request body that isn't protobuf, or isn't of the kind that it states."""


class UnknownKindError(Exception):
    """An object whose kind isn't in the table."""

    def __init__(self, group_version: str, kind: str) -> None:
        super().__init__(f"{group_version} {kind}")
        self.group_version = group_version
        self.kind = kind


def decode(payload: bytes) -> Body:
    """Return the object in a request body.

    Raises ``MalformedError`` and ``UnknownKindError``.
    """
    if not payload.startswith(MAGIC):
        raise MalformedError(f"it doesn't begin with {MAGIC!r}")
    envelope = _last(payload[len(MAGIC) :])
    type_meta = _last(_bytes(envelope.get(1, b"")))
    group_version, kind = _text(type_meta.get(1, b"")), _text(type_meta.get(2, b""))
    if envelope.get(3) or envelope.get(4):
        raise MalformedError("objects in protobuf that are encoded once more aren't read")
    if kind not in KINDS:
        raise UnknownKindError(group_version, kind)
    return {"kind": kind, "apiVersion": group_version, **_message(kind, _bytes(envelope.get(2, b"")), {})}


def _message(name: str, payload: bytes, into: Body) -> Body:
    """Add the fields of a message to ``into`` and return it; the pieces of a message that is sent in several pieces are merged."""
    fields = MESSAGES[name]
    for number, part in _parts(payload):
        field = fields.get(number)
        if field is None:
            continue
        if not field.name:
            _message(field.type, _bytes(part), into)
        elif field.shape is Shape.LIST:
            into.setdefault(field.name, []).extend(_values(field.type, part))
        elif field.shape is Shape.MAP:
            entry = _last(_bytes(part))
            into.setdefault(field.name, {})[_text(entry.get(1, b""))] = _value(field.type, entry.get(2, b""))
        else:
            _set(into, field, part)
    return into


def _set(body: Body, field: Field, part: Part) -> None:
    if field.type in MESSAGES:
        body[field.name] = _message(field.type, _bytes(part), body.get(field.name, {}))
        return
    value = _value(field.type, part)
    if value is None or (not value and not field.keeps_zero and field.type in _SCALARS):
        body.pop(field.name, None)
    else:
        body[field.name] = value


def _values(type: str, part: Part) -> Iterator[Any]:
    """Yield the items that one part of a list field holds: a single item, or several numbers that are packed together."""
    if type in _NUMBERS and isinstance(part, bytes):
        position = 0
        while position < len(part):
            number, position = _varint(part, position)
            yield _value(type, number)
    else:
        yield _value(type, part)


def _value(type: str, part: Part) -> Any:
    if read := _SCALARS.get(type) or _SPECIAL.get(type):
        return read(part)
    return _message(type, _bytes(part), {})


def _parts(payload: bytes) -> Iterator[tuple[int, Part]]:
    """Yield the number and value of each field of a message, in the order in which they are sent."""
    position = 0
    while position < len(payload):
        tag, position = _varint(payload, position)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise MalformedError("there is no field 0")
        if wire_type == _VARINT:
            value, position = _varint(payload, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(payload, position)
        elif wire_type in _FIXED_SIZES:
            size = _FIXED_SIZES[wire_type]
        else:
            raise MalformedError(f"field {number} has the wire type {wire_type}")
        if size > len(payload) - position:
            raise MalformedError("it ends too soon")
        yield number, payload[position : position + size]
        position += size


def _last(payload: bytes) -> dict[int, Part]:
    """Return the fields of a message that has no lists, by number. If a field occurs several times, its last occurrence counts."""
    return dict(_parts(payload))


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    """Return the unsigned number at a position, and the position after the number."""
    value = 0
    for shift, byte in enumerate(payload[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & (1 << 64) - 1, position + shift + 1
    raise MalformedError("it ends within a number" if len(payload) - position < _LONGEST_VARINT else "a number is too long")


def _bytes(part: Part) -> bytes:
    if not isinstance(part, bytes):
        raise MalformedError("a number stands where a text or a message is expected")
    return part


def _number(part: Part, bits: int) -> int:
    """Return a number with its sign, truncated to ``bits``."""
    if not isinstance(part, int):
        raise MalformedError("a text or a message stands where a number is expected")
    sign = 1 << bits - 1
    return (part & (1 << bits) - 1 ^ sign) - sign


def _text(part: Part) -> str:
    try:
        return _bytes(part).decode()
    except UnicodeDecodeError:
        raise MalformedError("a text isn't UTF-8") from None


def _time(part: Part) -> str | None:
    """Return a time to the second, or None for a time without fields, which isn't set."""
    fields = _last(_bytes(part))
    if not fields:
        return None
    try:
        return stamp(datetime.fromtimestamp(_number(fields.get(1, 0), 64), UTC))
    except (ValueError, OverflowError, OSError):
        raise MalformedError("a time is out of range") from None


def _quantity(part: Part) -> str:
    return _text(_last(_bytes(part)).get(1, b"")) or "0"


def _int_or_string(part: Part) -> int | str:
    fields = _last(_bytes(part))
    return _text(fields.get(3, b"")) if fields.get(1) else _number(fields.get(2, 0), 32)


def _raw_json(part: Part) -> Any:
    try:
        return json.loads(_bytes(_last(_bytes(part)).get(1, b"")) or b"null")
    except (ValueError, RecursionError):
        raise MalformedError("the managed fields aren't JSON") from None


_NUMBERS: Mapping[str, Callable[[Part], Any]] = {
    "int32": lambda part: _number(part, 32),
    "int64": lambda part: _number(part, 64),
    "bool": lambda part: bool(_number(part, 64)),
}
_SCALARS: Mapping[str, Callable[[Part], Any]] = {
    **_NUMBERS,
    "string": _text,
    "bytes": lambda part: base64.b64encode(_bytes(part)).decode(),
}
_SPECIAL: Mapping[str, Callable[[Part], Any]] = {
    "Time": _time,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "FieldsV1": _raw_json,
}
"""Readers of the types that have a JSON form of their own."""
