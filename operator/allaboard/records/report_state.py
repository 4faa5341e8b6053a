"""What was told of one gang, so that it is told again only when it has changed, and what is told next agrees with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allaboard.model.reasons import Code


@dataclass(frozen=True, slots=True)
class GangStatus:
    """The scheduler's last word on a gang: what PodGroup conditions are made of.

    ``short`` is the ``message`` for a table, which may be cut. ``started`` is RFC 3339, when the quorum was first there; ``whole_since``
    when the gang was last found whole, which is still to be told when it isn't any more; ``has_timed_out`` once it waited longer than it
    asked for; ``is_being_bound`` from when its first members are bound until it is seen whole, or more is said of it: that some are bound
    before others doesn't make it half bound.
    """

    code: Code
    message: str
    short: str = ""
    started: str = ""
    whole_since: str = ""
    has_timed_out: bool = False
    is_being_bound: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """What a PodGroup was given as its status, and what it had then: not all of it with upstream's CRD."""

    uid: str
    status: dict[str, Any]
    kept: Mapping[str, Any] | None


@dataclass(slots=True)
class Change:
    """What events were last made of: why a gang waits, and the UID of the object that the event was about."""

    topic: str = ""
    about: str = ""
    members: dict[str, str] = field(default_factory=dict)
    """The topic that members were told last, by UID; only members that wait and are told by events."""


@dataclass(slots=True)
class ReportState:
    """The last words on one gang."""

    opinion: GangStatus | None = None
    written: Written | None = None
    strategy: tuple[str, float] | None = None
    """What was said of its strategy when it failed, and when, on the clock."""
    change: Change = field(default_factory=Change)
    logged: str = ""
    """The outcome and the reason of the last attempt that was logged."""
    is_unwritten: bool = False
    """Whether its PodGroup doesn't show the opinion yet."""
