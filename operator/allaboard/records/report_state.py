"""What was reported of one gang, so that only changes are reported, and later reports agree with earlier ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allaboard.model.reasons import Code


@dataclass(frozen=True, slots=True)
class GangStatus:
    """The scheduler's current report on a gang, from which PodGroup conditions are made.

    ``short`` is the ``message`` for a table, which may be cut. ``started`` is when the quorum first existed, RFC 3339. ``whole_since`` is
    when the gang was last found whole; it is still to be reported when the gang isn't whole any more. ``has_timed_out`` is set once the
    gang waits longer than its time-out. ``is_being_bound`` is set while the gang's first members are bound, until it is seen whole or
    something else is reported: such a gang isn't called partially bound.
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
    """The status that a PodGroup was given, and the status that it kept: not all of it with upstream's CRD."""

    uid: str
    status: dict[str, Any]
    kept: Mapping[str, Any] | None


@dataclass(slots=True)
class Change:
    """What the last events were about: why a gang waits, and the UID of the object that the event was about."""

    topic: str = ""
    about: str = ""
    members: dict[str, str] = field(default_factory=dict)
    """The topic last reported to members, by UID; only members that wait and get events."""


@dataclass(slots=True)
class ReportState:
    """What was last reported of one gang."""

    opinion: GangStatus | None = None
    written: Written | None = None
    strategy: tuple[str, float] | None = None
    """What was reported of its strategy when that failed, and when, on the clock."""
    change: Change = field(default_factory=Change)
    logged: str = ""
    """The outcome and the reason of the last attempt that was logged."""
    is_unwritten: bool = False
    """Whether the gang's PodGroup doesn't show ``opinion`` yet."""
