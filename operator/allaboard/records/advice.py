"""The last advice for a refused gang: what would make it fit, and the placement that lacks least."""

import math
from dataclasses import dataclass
from typing import NamedTuple


class Nearest(NamedTuple):
    """The placement of a refused gang that lacks the least amount of one resource, and nothing else.

    ``members``: (node, UID of a member, number of members that request the same). ``lacks``: (node, amount) of each node with too little of
    ``resource``, in the units of ``model.requests``.
    """

    members: tuple[tuple[str, str, int], ...]
    resource: str
    lacks: tuple[tuple[str, int], ...]


class Advised(NamedTuple):
    """Changes that would make a gang fit, as a sentence, and the placement that it rests on; empty and None if nothing is known."""

    text: str = ""
    nearest: Nearest | None = None


@dataclass(slots=True)
class Advice:
    """Advice for a refused gang: what would make it fit."""

    known_for: str = ""
    """The refusal message that ``text`` is the advice for; empty before the first advice."""
    text: str = ""
    """The advice, as a sentence."""
    nearest: Nearest | None = None
    """The placement that the advice rests on; None if the advice names no amount."""
    wanted_for: str = ""
    """The refusal message for which advice is to be found; empty if none is wanted."""
    found_at: float = math.inf
    """The time at which the advice was found, on the clock; infinite before that."""

    def of(self, message: str) -> str:
        """Return the advice for the refusal ``message``; empty if none is known."""
        return self.text if self.known_for == message else ""
