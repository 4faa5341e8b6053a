"""What the scheduler knows of gangs: from the cluster, and from what it remembers of each."""

from collections.abc import Callable
from dataclasses import dataclass, field

from allaboard.cluster.view import ClusterView
from allaboard.gangs.registry import GangRegistry
from allaboard.gangs.run_history import settled
from allaboard.model.gang import Gang, GangKey
from allaboard.model.topologies import LEVELS, Levels
from allaboard.planning.resolve import in_surroundings
from allaboard.records.losses import Losses
from allaboard.records.record import GangRecords
from allaboard.records.waiting import WaitClock


@dataclass(frozen=True, slots=True)
class KnownGangs:
    """The gangs of the cluster, with what is remembered of each. ``clock`` is monotonic, in seconds."""

    registry: GangRegistry
    records: GangRecords
    waits: WaitClock
    losses: Losses
    view: ClusterView
    clock: Callable[[], float]
    levels: Levels = field(default_factory=lambda: LEVELS)

    def current(self, key: GangKey) -> Gang | None:
        """Return a gang as it is now, its members with what their volumes and the pods around them ask of nodes; None if it is gone."""
        gang = self.registry.gang(key)
        if gang is None:
            return None
        return in_surroundings(settled(gang, self.records.find(key), self.clock()), self.view.volumes, self.view, self.levels)

    def next_look(self, gang: Gang) -> float | None:
        """Return when the gang must be looked at even if nothing happens, on the clock; None if it needn't be.

        A time of its own partial bind is over then, or of that of a gang whose capacity it may wait for.
        """
        now, mine = self.clock(), self.records.find_partial_bind(gang.key)
        times = list(mine.times()) if mine else []
        for _, other in self.records.partial_binds():
            times += other.times_for_others()
        return min((when for when in times if when is not None and when > now), default=None)
