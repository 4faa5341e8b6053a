"""What was told of one gang, so that it is told again only when it has changed, and what is told next agrees with it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from allaboard.model.gang import GangKey
from allaboard.report.conditions import Opinion


@dataclass(frozen=True, slots=True)
class Written:
    """What a PodGroup was given as its status, and what it had then: not all of it with upstream's CRD."""

    uid: str
    status: dict[str, Any]
    kept: Mapping[str, Any] | None


@dataclass(slots=True)
class Wait:
    """A wait for seats: since when, on the clock and in seconds since the epoch, and whether it was told that it takes too long."""

    since: float
    started: float
    has_timed_out: bool = False


@dataclass(slots=True)
class Told:
    """The last words on one gang."""

    wait: Wait | None = None
    opinion: Opinion | None = None
    written: Written | None = None
    strategy: tuple[str, float] | None = None
    """What was said of its strategy when it failed, and when, on the clock."""
    is_unwritten: bool = False
    """Whether its PodGroup doesn't show the opinion yet."""


class Remembered(Protocol):
    """Where it is kept what was told of each gang, and forgotten with all else that is remembered of it."""

    def told(self, key: GangKey) -> Told:
        """What was told of a gang; nothing yet, if it hasn't been spoken of."""
        ...

    def find_told(self, key: GangKey) -> Told | None:
        """What was told of a gang, if anything is remembered of it."""
        ...

    def all_told(self) -> Iterable[tuple[GangKey, Told]]:
        """What was told, by gang."""
        ...
