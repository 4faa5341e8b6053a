"""Gives the current state of each gang in the cluster, and the times at which the gang must be attempted again."""

from collections.abc import Callable
from dataclasses import dataclass, field

from allaboard.cluster.view import ClusterView
from allaboard.gangs.registry import GangRegistry
from allaboard.gangs.run_history import settled
from allaboard.model.gang import Gang, GangKey
from allaboard.model.topologies import LEVELS, Levels
from allaboard.planning.resolve import resolve
from allaboard.records.losses import Losses
from allaboard.records.record import GangRecords
from allaboard.records.waiting import WaitClock


@dataclass(frozen=True, slots=True)
class KnownGangs:
    """The gangs of the cluster, with their records. ``clock`` is monotonic, in seconds."""

    registry: GangRegistry
    records: GangRecords
    waits: WaitClock
    losses: Losses
    view: ClusterView
    clock: Callable[[], float]
    levels: Levels = field(default_factory=lambda: LEVELS)

    def current(self, key: GangKey) -> Gang | None:
        """Return the current state of a gang, with what volumes and other pods require of its members' nodes; None if it is gone."""
        gang = self.registry.gang(key)
        if gang is None:
            return None
        return resolve(settled(gang, self.records.find(key), self.clock()), self.view.volumes, self.view, self.levels)

    def next_look(self, gang: Gang) -> float | None:
        """Return when the gang must be attempted even if nothing changes, on the clock; None if it needn't be.

        That is when a deadline of its own partial bind passes, or a deadline of a gang whose capacity it may wait for.
        """
        now, mine = self.clock(), self.records.find_partial_bind(gang.key)
        times = list(mine.times()) if mine else []
        for _, other in self.records.partial_binds():
            times += other.times_for_others()
        return min((when for when in times if when is not None and when > now), default=None)
