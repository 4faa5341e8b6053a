"""Who may decide in a replay, by name: every strategy that the scheduler has, shipped or plugged in, and baselines of replays alone.

The baselines are those of FGD's published comparison (Weng et al., USENIX ATC 2023). They seat one pod after another on devices that they
pick themselves, weigh cpu and GPU as published, and are held to the published figures; the strategies of nearly the same names
know gangs, and leave devices to the scheduler.
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
"""They seat one pod after another by a rule of theirs, whatever the objective."""


def player_names() -> tuple[str, ...]:
    """The shipped strategies, the baselines, then strategies of other packages, of which none takes the name of one of ours."""
    return tuple(dict.fromkeys((*(name for name in strategy_names() if name not in plugged_in()), *_BASELINES, *strategy_names())))


def make_player(name: str, setup: Setup) -> Player:
    """Who decides under that name. Raises ``UnknownStrategyError``."""
    if name == DEFAULT_STRATEGY:
        return Genetic(setup)
    if name in _BASELINES:
        return _BASELINES[name](setup)
    if name not in strategy_names():
        raise UnknownStrategyError(f"there is no strategy {name!r}; known are {', '.join(player_names())}")
    return ByStrategy(name, setup)
