"""Kubernetes quantities ("500m", "16Gi"), as far as an API server and a kubelet interpret them.

The sandbox has its own parser on purpose: a mistake in the scheduler's arithmetic must not be repeated by the server it is tested on.
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

MESSAGE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

_PATTERN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


class InvalidQuantityError(ValueError):
    """A text that is not a quantity."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Fraction:
    """Return the exact value of a quantity.

    Raises ``InvalidQuantityError`` if the text is no quantity.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise InvalidQuantityError(MESSAGE)
    number, suffix = match.groups(default="")
    scale = _SUFFIXES.get(suffix)
    if scale is None:
        scale = Fraction(Decimal(f"1{suffix}"))
    return Fraction(number) * scale


def canonical(value: int | float | Fraction) -> str:
    """Return the text that the API server stores for a quantity that is written as a bare number."""
    milli = Fraction(str(value)) * 1000
    if milli % 1000 == 0:
        return str(milli // 1000)
    return f"{-(-milli // 1)}m"


@lru_cache(maxsize=4096)
def whole(text: str, *, milli: bool = False) -> int:
    """Return a quantity in whole units, or with ``milli`` in thousandths, rounded up."""
    value = parse(text) * (1000 if milli else 1)
    return -(-value.numerator // value.denominator)


def total(texts: Iterable[str]) -> str:
    """Return the sum of quantities.

    If one of them has a binary unit, the sum is in the largest binary unit that divides it.
    """
    texts = list(texts)
    value = sum((parse(text) for text in texts), Fraction(0))
    if any(text.endswith("i") for text in texts):
        for suffix in ("Ti", "Gi", "Mi", "Ki"):
            if value and value % _SUFFIXES[suffix] == 0:
                return f"{value // _SUFFIXES[suffix]}{suffix}"
    return canonical(value)
