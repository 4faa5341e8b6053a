"""Capacity that is kept free on each node, for pods that other schedulers place. Headroom is a limit and no preference."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from allaboard.model.errors import MalformedError
from allaboard.model.quantities import milli_amount, whole_amount
from allaboard.model.requests import Requests, as_requests

_PERCENT = re.compile(r"([0-9]{1,3}(\.[0-9]{1,3})?)%")


@dataclass(frozen=True, slots=True)
class Headroom:
    """The capacity of one resource that is kept free: an ``amount``, or a ``share`` of allocatable in thousandths of a percent."""

    amount: int = 0
    share: int = 0

    def cut(self, allocatable: int) -> int:
        """Return what is left of ``allocatable``; 0 if the headroom exceeds it."""
        return max(0, allocatable - max(self.amount, -(-allocatable * self.share // 100_000)))


def headroom_from(resource: str, text: str) -> Headroom:
    """Return the headroom that ``text`` states: ``20%``, or a quantity such as ``4Gi``. Raises ``ValueError`` that says what is wrong."""
    percent = _PERCENT.fullmatch(text.strip())
    if percent and float(percent[1]) <= 100:
        return Headroom(share=round(1000 * float(percent[1])))
    try:
        amount = whole_amount(resource, milli_amount(text.strip(), resource))
    except MalformedError as error:
        raise ValueError(f"{text!r} is neither a percentage up to 100% nor a quantity") from error
    if amount < 0:
        raise ValueError(f"{text!r} is negative")
    return Headroom(amount=amount)


def with_headroom(allocatable: Requests, headroom: Mapping[str, Headroom]) -> Requests:
    """Return the amounts that a node offers once its headroom is subtracted from ``allocatable``."""
    return as_requests({name: headroom[name].cut(amount) if name in headroom else amount for name, amount in allocatable})
