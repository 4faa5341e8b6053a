"""Ledgers of reservations for planners in tests."""

from collections.abc import Callable

from allaboard.cluster.reservations import Ledger
from allaboard.cluster.view import ClusterView
from allaboard.model.gang import GangKey
from allaboard.records.sort_key import PLAIN, Order


def by_name(key: GangKey) -> Order:
    """Return a position in the queue by the gang's name."""
    return Order(0, True, PLAIN, 0, 0, 0.0, key)


def a_ledger(view: ClusterView, place: Callable[[GangKey], Order] = by_name, now: Callable[[], float] = lambda: 0.0) -> Ledger:
    """Return an empty ledger for the pods of ``view``."""
    return Ledger(view.running, place, now)
