"""Returns the current state of each gang in the cluster, and the time at which the gang must be attempted again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from allaboard.cluster.view import ClusterView
from allaboard.gangs.registry import GangRegistry
from allaboard.gangs.run_history import settled
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.model.topologies import LEVELS, Levels
from allaboard.planning.resolve import resolve
from allaboard.records.losses import Losses
from allaboard.records.record import GangRecords
from allaboard.records.waiting import WaitClock


@dataclass(frozen=True, slots=True)
class KnownGangs:
    """The gangs of the cluster, and their records; ``clock`` is monotonic, in seconds."""

    registry: GangRegistry
    records: GangRecords
    waits: WaitClock
    losses: Losses
    view: ClusterView
    clock: Callable[[], float]
    levels: Levels = field(default_factory=lambda: LEVELS)

    def current(self, key: GangKey) -> Gang | None:
        """Return a gang's current state; None if the gang is gone.

        Its members' specs contain what volumes and other pods require of the members' nodes (``resolve``).
        """
        gang = self.registry.gang(key)
        if gang is None:
            return None
        return resolve(settled(gang, self.records.find(key), self.clock()), self.view.volumes, self.view, self.levels)

    def foreign_pods(self) -> Iterator[Pod]:
        """Return an iterator over the pods of other schedulers."""
        return (pod for pod in self.view.pods() if not self.registry.is_ours(pod))

    def next_attempt(self, gang: Gang) -> float | None:
        """Return the time, on the clock, at which the gang must be attempted even if nothing changes; None if there is no such time.

        The time is the next deadline of the gang's own partial bind, or of a partially bound gang whose capacity the gang may wait for,
        whichever comes first.
        """
        now, mine = self.clock(), self.records.find_partial_bind(gang.key)
        times = list(mine.times()) if mine else []
        for _, other in self.records.partial_binds():
            times += other.times_for_others()
        return min((when for when in times if when is not None and when > now), default=None)
