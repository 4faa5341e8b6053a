"""The strategies of a replay by name: the scheduler itself and the baselines; others join by the entry point ``allaboard.strategies``.

An entry point names a callable that takes a ``Setup`` and returns a ``Strategy``.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points

from allaboard.simulation.baselines import BestFit, FirstFit, Random
from allaboard.simulation.fgd import GradientDescent
from allaboard.simulation.ours import Genetic
from allaboard.simulation.strategy import Setup, Strategy

ENTRY_POINTS = "allaboard.strategies"
BASELINES = frozenset({"fgd", "bestfit", "firstfit", "random"})
"""Those of our own that aim at one thing, whatever the objective."""

StrategyFactory = Callable[[Setup], Strategy]

_BUILT_IN: Mapping[str, StrategyFactory] = {
    "genetic": Genetic,
    "fgd": GradientDescent,
    "bestfit": BestFit,
    "firstfit": FirstFit,
    "random": Random,
}


class UnknownStrategyError(ValueError):
    """There is no strategy of that name, or it can't be loaded."""


def strategy_names() -> tuple[str, ...]:
    """Our own first, then those of other packages."""
    return (*_BUILT_IN, *sorted(_plugged_in()))


def make_strategy(name: str, setup: Setup) -> Strategy:
    """The strategy of that name. Raises ``UnknownStrategyError``."""
    built_in = _BUILT_IN.get(name)
    if built_in:
        return built_in(setup)
    entry = _plugged_in().get(name)
    if entry is None:
        raise UnknownStrategyError(f"there is no strategy {name!r}; known are {', '.join(strategy_names())}")
    try:
        factory: StrategyFactory = entry.load()
    except Exception as error:
        raise UnknownStrategyError(f"strategy {name!r} ({entry.value}) can't be loaded: {error}") from error
    return factory(setup)


def _plugged_in() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
