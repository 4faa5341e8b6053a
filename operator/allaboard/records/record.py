"""One ``GangRecord`` holds all that is remembered of a gang, and one call of ``forget`` deletes it.

Nothing is decided here. Each part of a record has one writer: the queue writes ``queue``, ``scheduling.partial_binds`` writes
``partial_bind``, and ``report`` writes ``report``. What the cluster itself says of a gang is a ``model.gang.Gang``, built anew each time.
"""

import asyncio
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from allaboard.model.gang import Gang, GangKey
from allaboard.records.history import Decisions, History
from allaboard.records.partial_bind import PartialBind
from allaboard.records.report_state import ReportState
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import CapacityNeed, WakeUpOn

_MOST_WHOLE_RUNS = 64
"""The most runs of one gang that are remembered to have been whole."""


@dataclass(frozen=True, slots=True)
class LastBind:
    """The last bind of one controller's pods in a gang.

    ``at`` is its time on the clock. ``living`` is how many of the controller's pods had a node then and were alive. ``succeeded`` and
    ``failed`` are how many had ended so. ``losses`` is how often in a row members were lost soon after their bind.
    """

    at: float
    living: int
    succeeded: int
    failed: int
    losses: int


@dataclass(slots=True)
class QueueState:
    """A gang's state in the queue: its failures, its backoff, what wakes it, and how often gangs overtook it. Times are on the clock."""

    attempts: int = 0
    """Failed attempts in a row."""
    not_before: float = 0.0
    """The end of the backoff."""
    is_hard: bool = False
    """Whether nothing ends the backoff early."""
    wake_on: WakeUpOn | None = None
    """The changes that wake the gang while it is unschedulable; None while it isn't."""
    need: CapacityNeed | None = None
    """The capacity that the gang needs while it is on the capacity waitlist: the gang becomes due when that much is free."""
    due_at: float | None = None
    """When the gang's timer makes it due; None without a timer."""
    has_looked_again: bool = False
    """Whether the gang was retried once because capacity was freed during its last attempt."""
    tentative: tuple[int, float] | None = None
    """Set when the gang was refused while capacity was assumed for others: the failures before that, and the time.

    The failures are restored if that capacity is returned.
    """
    looked: tuple[float, int] | None = None
    """When the last attempt began, and how many changes of the cluster had been counted then."""
    message_from: float | None = None
    """When the attempt began that the gang's message is from; None if that wasn't a refusal. Other gangs can make a refusal out of date."""
    overtaken: tuple[int, float] = (0, 0.0)
    """How often gangs that were placed together with this one were preferred to it, and since when."""
    passed: int = 0
    """How often younger gangs were placed while only backoff or search-time debt kept this one behind them."""


@dataclass(slots=True)
class Wait:
    """A wait for capacity, or for pods that don't exist yet."""

    since: float
    """When the wait began, on the clock."""
    started: float
    """When the wait began, in seconds since the epoch."""
    is_for_pods: bool = False
    has_timed_out: bool = False
    """Whether it was reported that the wait exceeds the gang's time-out."""
    pods_report: str = ""
    """What was last reported to the gang's pods about a wait for other pods; empty before that."""
    pods_reported_at: float = 0.0
    """When that was reported, on the clock."""


@dataclass(slots=True)
class Advice:
    """A sentence on how a refused gang would fit, the refusal it is known for, and the refusal that advice is wanted for."""

    known_for: str = ""
    text: str = ""
    wanted_for: str = ""
    found_at: float = math.inf
    """When the advice was found, on the clock; infinite before that."""

    def of(self, message: str) -> str:
        """Return the advice for a refusal; empty if none is known."""
        return self.text if self.known_for == message else ""


@dataclass(slots=True)
class GangRecord:
    """All that is remembered of one gang."""

    key: GangKey
    queue: QueueState = field(default_factory=QueueState)
    last_binds: dict[str, LastBind] = field(default_factory=dict)
    """The last bind of each controller, the oldest first (``records.losses``)."""
    partial_bind: PartialBind | None = None
    was_undone: bool = False
    """Whether bound members were released before, so that each member is dry-run at the next bind."""
    whole_runs: set[str] = field(default_factory=set)
    """The ids of the runs that have been whole, or may have been."""
    wakes_deferred_runs: WakeUpOn | None = None
    """The changes that wake the runs that were refused and deferred, before the run that is planned now."""
    held: Mapping[str, int] | None = None
    """The requests of all members when the gang was last whole, by resource."""
    is_inherited: bool = False
    """Whether the gang existed before this scheduler started, and hasn't been attempted yet."""
    short_since: float | None = None
    """Since when fewer replacements exist than members were lost, on the clock; None while there are enough."""
    had_grace: bool = False
    """Whether the grace period for a missing PodGroup has been used."""
    task: asyncio.Task[None] | None = None
    """The task that acts on the gang outside the cycle."""
    is_deferred: bool = False
    """Whether the gang became due while the task was running."""
    long_search: Order | None = None
    """The gang's place in the queue when it began to wait for a long search; None if it doesn't wait for one."""
    advice: Advice = field(default_factory=Advice)
    wait: Wait | None = None
    """What the gang waits for, and since when; None while the gang is whole or unknown."""
    report: ReportState = field(default_factory=ReportState)
    history: History = field(default_factory=History)

    def note_whole(self, gang: Gang) -> bool:
        """Record that the run of ``gang`` has been whole. Return whether that is new. Beyond 64 visible runs nothing is recorded."""
        if gang.run in self.whole_runs:
            return False
        if len(self.whole_runs) >= _MOST_WHOLE_RUNS:
            self.whole_runs &= {pod.transaction for pod in gang.all_pods}
        is_new = len(self.whole_runs) < _MOST_WHOLE_RUNS
        if is_new:
            self.whole_runs.add(gang.run)
        return is_new


class GangRecords:
    """The records of all gangs, by key. Partial binds have an index of their own, since there are few of them."""

    def __init__(self) -> None:
        self._records: dict[GangKey, GangRecord] = {}
        self._partial_binds: dict[GangKey, PartialBind] = {}
        self.decisions = Decisions()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[GangRecord]:
        return iter(list(self._records.values()))

    def of(self, key: GangKey) -> GangRecord:
        """Return the record of a gang; an empty one is added if there is none."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = GangRecord(key)
        return record

    def find(self, key: GangKey) -> GangRecord | None:
        """Return the record of a gang, None if there is none."""
        return self._records.get(key)

    def knows_whole(self, key: GangKey, run: str) -> bool:
        """Return whether a run of a gang is known to have been whole."""
        record = self._records.get(key)
        return record is not None and run in record.whole_runs

    def report_state(self, key: GangKey) -> ReportState:
        """Return what was reported of a gang; a record is added if there is none."""
        return self.of(key).report

    def find_report_state(self, key: GangKey) -> ReportState | None:
        """Return what was reported of a gang, None without a record."""
        record = self._records.get(key)
        return record.report if record else None

    def report_states(self) -> Iterator[tuple[GangKey, ReportState]]:
        """Yield what was reported of each gang."""
        return ((record.key, record.report) for record in self)

    def partial_bind(self, key: GangKey) -> PartialBind:
        """Return the partial bind of a gang; an empty one is added if there is none."""
        record = self.of(key)
        if record.partial_bind is None:
            record.partial_bind = self._partial_binds[key] = PartialBind()
        return record.partial_bind

    def find_partial_bind(self, key: GangKey) -> PartialBind | None:
        """Return the partial bind of a gang, None if there is none."""
        return self._partial_binds.get(key)

    def is_finishing(self, key: GangKey) -> bool:
        """Return whether a gang is partially bound and being finished, before any other gang."""
        partial_bind = self._partial_binds.get(key)
        return partial_bind is not None and partial_bind.is_finishing

    def partial_binds(self) -> Collection[tuple[GangKey, PartialBind]]:
        """Return each gang that has a partial bind, with its partial bind."""
        return self._partial_binds.items()

    def forget(self, key: GangKey) -> None:
        """Delete the record of a gang."""
        self._records.pop(key, None)
        self._partial_binds.pop(key, None)
