"""One ``GangRecord`` holds all that the scheduler remembers of a gang, and one call of ``forget`` deletes it.

A record holds no facts of the cluster: these are in ``model.gang.Gang``, which is assembled again after each change. Nothing is decided
here. Each part of a record has one writer: the queue writes ``queue``, ``scheduling.partial_binds`` writes ``partial_bind``, and ``report``
writes ``report``.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from allaboard.model.gang import Gang, GangKey
from allaboard.records.advice import Advice
from allaboard.records.asked import Asked
from allaboard.records.history import Decisions, History
from allaboard.records.partial_bind import PartialBind
from allaboard.records.report_state import ReportState
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import CapacityNeed, WakeUpOn

_MOST_WHOLE_RUNS = 64
"""The most runs of one gang that are remembered as whole."""


@dataclass(frozen=True, slots=True)
class LastBind:
    """The last bind of one controller's pods in a gang.

    ``at`` is its time on the clock. After this bind, ``living`` of the controller's pods were alive with a node, ``succeeded`` had
    succeeded and ``failed`` had failed. ``losses`` is how often in a row pods of the controller were lost soon after their bind.
    """

    at: float
    living: int
    succeeded: int
    failed: int
    losses: int


@dataclass(slots=True)
class QueueState:
    """A gang's state in the queue: its failures and backoff, and the changes that wake it.

    Times are on the clock, in seconds.
    """

    attempts: int = 0
    """The number of failed attempts in a row."""
    not_before: float = 0.0
    """The end of the backoff."""
    is_hard: bool = False
    """True if nothing ends the backoff early."""
    wake_on: WakeUpOn | None = None
    """The changes that wake the gang while it is unschedulable; None while it isn't."""
    need: CapacityNeed | None = None
    """The capacity that the gang needs while it is on the capacity waitlist: the gang becomes due when that much is free."""
    due_at: float | None = None
    """The time at which the gang's timer makes the gang due; None without a timer."""
    last_attempt: tuple[float, int] | None = None
    """(Time at which the last attempt began, number of capacity changes counted until then); None before the first attempt."""
    message_from: float | None = None
    """The beginning of the attempt from which the gang's current refusal message comes; None if the gang has no such message. A refusal
    message names free capacity, so it is out of date when other gangs take or free capacity.
    """


@dataclass(slots=True)
class Wait:
    """A gang's wait for capacity or for pods."""

    since: float
    """The time at which the wait began, on the clock."""
    started: float
    """The time at which the wait began, in seconds since the epoch."""
    is_for_pods: bool = False
    """True if the gang waits for pods that don't exist yet; False if it waits for capacity."""
    has_timed_out: bool = False
    """True if it was reported that the wait exceeds the gang's time-out."""
    pods_report: str = ""
    """The message about missing pods that was last written to the gang's pods; empty before the first."""
    pods_reported_at: float = 0.0
    """The time at which ``pods_report`` was written, on the clock."""


@dataclass(slots=True)
class GangRecord:
    """All that the scheduler remembers of one gang."""

    key: GangKey
    queue: QueueState = field(default_factory=QueueState)
    last_binds: dict[str, LastBind] = field(default_factory=dict)
    """The last bind of each controller's pods, the oldest first (``records.losses``)."""
    partial_bind: PartialBind | None = None
    was_undone: bool = False
    """True if bound members were released before. Then the next transaction dry-runs the bind of every member."""
    whole_runs: set[str] = field(default_factory=set)
    """The ids of the runs that were whole, or may have been."""
    wakes_deferred_runs: WakeUpOn | None = None
    """The changes that wake the gang's deferred runs, which were refused before the current run; None if no run is deferred."""
    held: Mapping[str, int] | None = None
    """The sum of all members' requests when the gang was last whole, by resource; None if this process hasn't seen it whole."""
    is_inherited: bool = False
    """True if the gang existed when this scheduler became leader, and hasn't been attempted since."""
    short_since: float | None = None
    """The time since which fewer replacements exist than members were lost, on the clock; None while there are enough."""
    had_grace: bool = False
    """True if the grace period for a missing PodGroup has been used."""
    task: asyncio.Task[None] | None = None
    """The task that acts on the gang outside the cycle, for instance binds its members; None without one."""
    is_deferred: bool = False
    """True if the gang became due while ``task`` was running: then the gang is attempted when the task ends."""
    long_search: Order | None = None
    """The gang's queue position when it began to wait for a long search; None if it doesn't wait for one."""
    advice: Advice = field(default_factory=Advice)
    wait: Wait | None = None
    """The gang's wait for capacity or pods; None while it doesn't wait."""
    asked: Asked | None = None
    """The nodes that an autoscaler was asked for; None if it wasn't asked."""
    report: ReportState = field(default_factory=ReportState)
    history: History = field(default_factory=History)

    def note_whole(self, gang: Gang) -> bool:
        """Record that the current run of ``gang`` was whole. Return whether this is new and was recorded.

        At most 64 runs are recorded. When there are more, runs without visible pods are deleted first.
        """
        if gang.run in self.whole_runs:
            return False
        if len(self.whole_runs) >= _MOST_WHOLE_RUNS:
            self.whole_runs &= {pod.transaction for pod in gang.all_pods}
        is_new = len(self.whole_runs) < _MOST_WHOLE_RUNS
        if is_new:
            self.whole_runs.add(gang.run)
        return is_new


class GangRecords:
    """The records of all gangs, by key. The few partial binds also have an index, so that finding them doesn't read all records."""

    def __init__(self) -> None:
        self._records: dict[GangKey, GangRecord] = {}
        self._partial_binds: dict[GangKey, PartialBind] = {}
        self.decisions = Decisions()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[GangRecord]:
        return iter(list(self._records.values()))

    def of(self, key: GangKey) -> GangRecord:
        """Return the record of a gang. An empty record is added if there is none."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = GangRecord(key)
        return record

    def find(self, key: GangKey) -> GangRecord | None:
        """Return the record of a gang; None if there is none."""
        return self._records.get(key)

    def knows_whole(self, key: GangKey, run: str) -> bool:
        """Return whether the record of the gang says that ``run`` was whole."""
        record = self._records.get(key)
        return record is not None and run in record.whole_runs

    def report_state(self, key: GangKey) -> ReportState:
        """Return what was last reported about a gang. An empty record is added if there is none."""
        return self.of(key).report

    def find_report_state(self, key: GangKey) -> ReportState | None:
        """Return what was last reported about a gang; None if the gang has no record."""
        record = self._records.get(key)
        return record.report if record else None

    def report_states(self) -> Iterator[tuple[GangKey, ReportState]]:
        """Yield each gang that has a record, with what was last reported about it."""
        return ((record.key, record.report) for record in self)

    def partial_bind(self, key: GangKey) -> PartialBind:
        """Return the partial bind of a gang. An empty one is added if there is none."""
        record = self.of(key)
        if record.partial_bind is None:
            record.partial_bind = self._partial_binds[key] = PartialBind()
        return record.partial_bind

    def find_partial_bind(self, key: GangKey) -> PartialBind | None:
        """Return the partial bind of a gang; None if there is none."""
        return self._partial_binds.get(key)

    def is_finishing(self, key: GangKey) -> bool:
        """Return whether missing members are to be bound before any other gang is attempted, or all bound members were just released."""
        partial_bind = self._partial_binds.get(key)
        return partial_bind is not None and partial_bind.is_finishing

    def partial_binds(self) -> Collection[tuple[GangKey, PartialBind]]:
        """Return the gangs that have a partial bind, each with its partial bind."""
        return self._partial_binds.items()

    def forget(self, key: GangKey) -> None:
        """Delete the record of a gang, if there is one."""
        self._records.pop(key, None)
        self._partial_binds.pop(key, None)
