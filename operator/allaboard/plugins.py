"""Names of strategies: the shipped strategies, and strategies of other packages with the entry point ``allaboard.strategies``.

This module only looks names up. Other packages are imported in a process of their own, where they can do no harm.
"""

from importlib.metadata import EntryPoint, entry_points

ENTRY_POINTS = "allaboard.strategies"

DEFAULT_STRATEGY = "genetic"
"""The strategy of gangs that choose none, and the replacement for a strategy that fails."""

SHIPPED_STRATEGIES = (DEFAULT_STRATEGY, "exact", "bestfit", "firstfit", "random")

STRATEGY_NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


def plugged_in() -> dict[str, EntryPoint]:
    """Return the entry points of other packages' strategies by name. An entry point with the name of a shipped strategy is ignored."""
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: (entry.name, entry.value), reverse=True)
    return {entry.name: entry for entry in reversed(found) if entry.name not in SHIPPED_STRATEGIES}


def strategy_names() -> tuple[str, ...]:
    """Return the names of all strategies: first the shipped strategies, then the strategies of other packages."""
    return (*SHIPPED_STRATEGIES, *plugged_in())
