"""Strategies by name: the shipped ones, and those that other packages bring by the entry point ``allaboard.strategies``.

Here is only looked up what there is. Nothing of another package is imported: that is done where it can do no harm.
"""

from importlib.metadata import EntryPoint, entry_points

ENTRY_POINTS = "allaboard.strategies"

DEFAULT_STRATEGY = "genetic"
"""Who places gangs that choose nobody else, and in the stead of one that fails."""

SHIPPED_STRATEGIES = (DEFAULT_STRATEGY, "exact", "bestfit", "firstfit", "random")

STRATEGY_NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


def plugged_in() -> dict[str, EntryPoint]:
    """Where other packages have their strategies, by name; no other package's takes the name of a shipped one."""
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: (entry.name, entry.value), reverse=True)
    return {entry.name: entry for entry in reversed(found) if entry.name not in SHIPPED_STRATEGIES}


def strategy_names() -> tuple[str, ...]:
    """The shipped ones first, then those of other packages."""
    return (*SHIPPED_STRATEGIES, *plugged_in())
