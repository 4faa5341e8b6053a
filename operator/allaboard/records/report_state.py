"""The last reports about each gang, which are kept so that only changes are reported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allaboard.model.reasons import Code


@dataclass(frozen=True, slots=True)
class GangStatus:
    """The scheduler's current status of a gang, from which the PodGroup's conditions are made.

    - ``short`` is the ``message`` for a table, which may be cut.
    - ``expected_start`` is when the gang is expected to start, RFC 3339; empty if that isn't known.
    - ``started`` is when the quorum's pods first existed, RFC 3339; empty before.
    - ``whole_since`` is when the gang was last found whole, RFC 3339; empty before. It is kept when the gang loses a member, since the
      PodGroup reports it.
    - ``has_timed_out`` is set once the gang waits longer than its time-out.
    - ``is_being_bound`` is set while the gang's first binds are in flight, so that such a gang isn't reported as partially bound. It ends
      when the gang is seen whole, or when something else is reported.
    """

    code: Code
    message: str
    short: str = ""
    expected_start: str = ""
    started: str = ""
    whole_since: str = ""
    has_timed_out: bool = False
    is_being_bound: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The status that was written to a PodGroup, and the part of it that the API server ``kept``.

    The API server drops fields that the CRD of scheduler-plugins doesn't have.
    """

    uid: str
    status: dict[str, Any]
    kept: Mapping[str, Any] | None


@dataclass(slots=True)
class Change:
    """The content of the latest events about a gang and its members, so that no event is written again without a change."""

    topic: str = ""
    """The reason that the last event reported: why the gang waits, or that it is scheduled; empty before the first event."""
    about: str = ""
    """The UID of the object that the event was about."""
    members: dict[str, str] = field(default_factory=dict)
    """The topic of the last event of each waiting member that gets events of its own, by the member's UID."""


@dataclass(slots=True)
class ReportState:
    """The last reports about one gang."""

    opinion: GangStatus | None = None
    """The gang's current status; None before the first."""
    written: Written | None = None
    """The status that was last written to the PodGroup; None before the first write."""
    strategy: tuple[str, float] | None = None
    """(Message about the last failure of the gang's strategy, time of the report on the clock); None without a failure."""
    change: Change = field(default_factory=Change)
    logged: str = ""
    """The outcome and reason that were logged for the last attempt; empty before the first."""
    is_unwritten: bool = False
    """True while ``opinion`` isn't written to the gang's PodGroup yet."""
