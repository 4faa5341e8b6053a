"""Make strategies from their names and arguments: one register for the operator and for the commands ``plan`` and ``simulate``."""

from collections.abc import Callable, Mapping

from allaboard.placement.strategies.shipped import BestFit, Exact, FirstFit, Genetic, Random
from allaboard.placement.strategies.strategy import Strategy
from allaboard.plugins import plugged_in, strategy_names

_SHIPPED: Mapping[str, Callable[..., Strategy]] = {
    "genetic": Genetic,
    "exact": Exact,
    "bestfit": BestFit,
    "firstfit": FirstFit,
    "random": Random,
}


class UnknownStrategyError(ValueError):
    """Raised for a name that no strategy has."""


def make_strategy(name: str, arguments: Mapping[str, object] | None = None) -> Strategy:
    """Return the strategy ``name``, made with ``arguments``. Raises ``UnknownStrategyError``, and any error that a plug-in raises."""
    make: Callable[..., Strategy] | None = _SHIPPED.get(name)
    if make is None:
        entry = plugged_in().get(name)
        if entry is None:
            raise UnknownStrategyError(f"there is no strategy {name!r}; known are {', '.join(strategy_names())}")
        make = entry.load()
    return make(**(arguments or {}))
