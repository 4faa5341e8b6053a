"""Computes each gang's place in the queue, from the gang, its record, and the search time that its namespace has used."""

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field

from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import Gang, GangKey, Outline
from allaboard.queueing.order import order_of, order_of_gone
from allaboard.queueing.search_time import SearchTime
from allaboard.records.growth import has_grown
from allaboard.records.record import GangRecords, QueueState
from allaboard.records.sort_key import Order


@dataclass(frozen=True, slots=True)
class Overtaking:
    """How often younger gangs may be placed before an older one of their priority, and how long after the first time."""

    times: int = 3
    seconds: float = 300.0

    def is_over(self, state: QueueState, now: float) -> bool:
        """Return whether a gang has been overtaken often enough, or first overtaken long ago."""
        times, since = state.overtaken
        return (times > 0 and (times >= self.times or now - since >= self.seconds)) or state.passed >= self.times


OVERTAKING = Overtaking()


@dataclass(frozen=True, slots=True)
class Ranks:
    """Computes the places of gangs; ``place`` is what the queue orders by.

    ``firsts`` counts the time for which partially bound gangs have kept the others of their priority waiting. Only stamps on a tenant's own
    pods show that such a gang goes first. So it does only while its namespace has used little of that time.
    """

    registry: GangRegistry
    records: GangRecords
    shares: SearchTime
    overtaking: Overtaking
    clock: Callable[[], float]
    firsts: SearchTime = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "firsts", SearchTime(self.clock))

    @contextmanager
    def charged(self, gang: Gang, began: float, searched: float) -> Iterator[None]:
        """Charge the namespace of a partially bound gang for an attempt that started at ``began``.

        Searches are charged already: ``searched`` is the search time that the namespace had used when the attempt began, in seconds.
        """
        namespace = gang.key.namespace
        try:
            yield
        finally:
            if gang.bound and gang.missing:
                took = self.clock() - began
                self.firsts.charge(namespace, took)
                self.shares.charge(namespace, took - max(0.0, self.shares.used(namespace) - searched))

    def moved(self) -> Mapping[str, Collection[GangKey]]:
        """Return the namespaces whose gangs may have moved to the front since the last call, with the gangs that moved by themselves."""
        return {**dict.fromkeys(self.promote(), ()), **self.registry.namespace_priority.changed()}

    def promote(self) -> Set[str]:
        """Return the namespaces whose gangs may have moved to the front since the last call, since their usage has faded."""
        return self.shares.promote() | self.firsts.promote()

    def place(self, key: GangKey) -> Order:
        """Return a gang's place in the queue.

        A gang that we left partially bound comes first of its priority, after gangs that don't exist any more.
        """
        gang: Gang | Outline | None = self.registry.outline(key)
        if gang is None:  # without living members the priority isn't known yet
            return order_of_gone(key)
        record = self.records.find(key)
        if gang.is_partially_bound and not (record and record.task):  # else it is deferred, and gets its place when the task ends
            gang = self.registry.gang(key) or gang
        usage = self.shares.level(key.namespace)
        since, namespace_priority = self.registry.namespace_priority.since(gang), self.registry.namespace_priority.of(key)
        if record is None:
            return order_of(gang, usage=usage, since=since, namespace_priority=namespace_priority)
        is_first = record.partial_bind is not None and record.partial_bind.is_finishing and gang.is_partially_bound
        is_protected = self.overtaking.is_over(record.queue, self.clock())
        is_grown = isinstance(gang, Gang) and gang.is_partially_bound and has_grown(gang, record)
        return order_of(
            gang,
            is_first=is_first,
            may_go_first=not self.firsts.level(key.namespace),
            is_protected=is_protected,
            has_grown=is_grown,
            usage=usage,
            since=since,
            namespace_priority=namespace_priority,
        )
