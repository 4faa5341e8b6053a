"""Reads objects that come as protobuf, which is what kubectl's typed commands send (``kubectl create deployment``), as JSON has them.

Answers stay JSON: whoever sends protobuf takes that, too. Fields that aren't in the table are passed over, as a server does with those of a
newer client. (The envelope: apimachinery pkg/runtime/serializer/protobuf; the wire: protobuf.dev/programming-guides/encoding.)
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
"""A number, or the bytes of a text, a message, or a number of fixed size."""


class MalformedError(ValueError):
    """What was sent isn't protobuf, or not of the kind that it says it is."""


class UnknownKindError(Exception):
    """An object of a kind that isn't in the table."""

    def __init__(self, group_version: str, kind: str) -> None:
        super().__init__(f"{group_version} {kind}")
        self.group_version = group_version
        self.kind = kind


def decode(payload: bytes) -> Body:
    """Return the object in a request body. Raises ``MalformedError`` and ``UnknownKindError``."""
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
    """Add the fields of a message to ``into`` and return it: a message that comes in several pieces is all of them."""
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
    """Yield the items of a list that one part holds: numbers may be packed."""
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
    """Yield the fields of a message, each with its number, in the order in which they come."""
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
    """Return the fields of a message without lists; of one that occurs more than once the last counts."""
    return dict(_parts(payload))


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, without a sign, and where the next thing begins."""
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
    """Return a number with its sign, as far as the type holds it."""
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
    """Return a time to the second; one that isn't set has no fields."""
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
        raise MalformedError("the fields that somebody manages aren't JSON") from None


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
"""The types that have a form of their own in JSON."""
