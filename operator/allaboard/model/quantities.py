"""Kubernetes quantities (``250m``, ``1Gi``, ``1e3``) as exact numbers.

Quantities are decimal text, so they are parsed to ``Fraction``: a float would turn ``0.1`` into something that rounds up to 101m.
"""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

from allaboard.model.errors import MalformedError, shown

_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
# apimachinery resource/quantity.go: a signed decimal, then either a suffix or a decimal exponent.
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?")
_MAX_LENGTH = 64


LARGEST_AMOUNT = 2**50
"""Larger amounts are cut to this amount. No node counts as having as much, and sums over thousands of pods fit 64 bits."""


@lru_cache(maxsize=4096)
def _parse(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None or len(text) > _MAX_LENGTH:
        raise ValueError(text)
    number, suffix, exponent = match.groups()
    if exponent is not None:
        return Fraction(number) * Fraction(10) ** int(exponent)
    return Fraction(number) * _SUFFIXES[suffix or ""]


@lru_cache(maxsize=4096)
def _parse_milli(text: str) -> int:
    return ceil(_parse(text) * 1000)


def parse_quantity(value: object, field: str = "quantity") -> Fraction:
    """Read a quantity as the API server does; bare integers and floats are accepted.

    Raises ``MalformedError`` naming ``field`` for anything else. A negative amount is an error, too: no request may be negative.
    """
    return _parse(_checked(value, field))


def milli_amount(value: object, field: str = "quantity") -> int:
    """Return a quantity in thousandths, rounded up, as the API server stores the resources of a pod (defaults.go, ``RoundUp``)."""
    return _parse_milli(_checked(value, field))


def whole_amount(resource: str, milli: int) -> int:
    """Convert thousandths of ``resource`` to the unit it is counted in: milli-cores for ``cpu``, bytes or pieces otherwise.

    The result is rounded up, as by ``Value`` of apimachinery. Amounts must be added before they are rounded.
    """
    return min(milli if resource == "cpu" else -(-milli // 1000), LARGEST_AMOUNT)


def resource_amount(resource: str, value: object, field: str = "quantity") -> int:
    """Return a quantity of ``resource`` in the unit it is counted in. Raises ``MalformedError``."""
    return whole_amount(resource, milli_amount(value, field))


def format_amount(resource: str, amount: int) -> str:
    """Return ``amount`` of ``resource`` as text for messages, such as ``2500m``, ``16Gi`` or ``4``."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for suffix in ("Ti", "Gi", "Mi", "Ki"):
            unit = int(_SUFFIXES[suffix])
            if amount and amount % unit == 0:
                return f"{amount // unit}{suffix}"
    return str(amount)


def _checked(value: object, field: str) -> str:
    """Return a quantity as text, after a check that it is well-formed and not negative."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise MalformedError(field, f"{shown(value)} is not a quantity such as 500m, 2 or 16Gi")
    try:
        text = str(value)
        parsed = _parse(text)
    except ValueError:
        raise MalformedError(field, f"{shown(value)} is not a quantity such as 500m, 2 or 16Gi") from None
    if parsed < 0:
        raise MalformedError(field, f"{shown(value)} is negative; a quantity must be 0 or more")
    return text
