"""Creates the players of replays by name: all strategies of the scheduler, shipped or plugged in, and baselines that exist in replays only.

The baselines are FGD (fragmentation gradient descent, Weng et al., USENIX ATC 2023), and the baselines that its authors compare with it.
They assign one pod after another, and pick devices themselves. They weigh cpu and GPU as published, so that their results can be compared
with the published figures. The scheduler's strategies of nearly the same names know gangs, and leave the choice of devices to the
scheduler.
"""

from collections.abc import Callable, Mapping

from allaboard.placement.strategies.named import UnknownStrategyError
from allaboard.plugins import DEFAULT_STRATEGY, plugged_in, strategy_names
from allaboard.simulation.baselines import BestFit, FirstFit, Random
from allaboard.simulation.fgd import GradientDescent
from allaboard.simulation.ours import ByStrategy, Genetic
from allaboard.simulation.player import Player, Setup

_BASELINES: Mapping[str, Callable[[Setup], Player]] = {
    "fgd": GradientDescent,
    "fgd-bestfit": BestFit,
    "fgd-firstfit": FirstFit,
    "fgd-random": Random,
}

BASELINES = frozenset(_BASELINES)

ONE_BY_ONE = BASELINES | {"bestfit", "firstfit", "random"}
"""Names of the strategies that assign one pod after another by a fixed rule, whatever the objective."""


def player_names() -> tuple[str, ...]:
    """Return the names of the shipped strategies, the baselines and the plug-ins, in this order; each name once."""
    return tuple(dict.fromkeys((*(name for name in strategy_names() if name not in plugged_in()), *_BASELINES, *strategy_names())))


def make_player(name: str, setup: Setup) -> Player:
    """Return a new player of the strategy or baseline ``name``. Raises ``UnknownStrategyError``."""
    if name == DEFAULT_STRATEGY:
        return Genetic(setup)
    if name in _BASELINES:
        return _BASELINES[name](setup)
    if name not in strategy_names():
        raise UnknownStrategyError(f"there is no strategy {name!r}; known are {', '.join(player_names())}")
    return ByStrategy(name, setup)
