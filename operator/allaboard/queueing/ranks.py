"""Computes each gang's queue position, from the gang, its record, and the search time that its namespace has used."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field

from allaboard.cluster.view import ClusterView
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import Gang, GangKey, Outline
from allaboard.queueing.fair_share import FairShare
from allaboard.queueing.order import order_of, order_of_gone
from allaboard.queueing.search_time import SearchTime
from allaboard.records.growth import has_grown
from allaboard.records.record import GangRecords
from allaboard.records.sort_key import Order
from allaboard.settings.fair_share import FairShareOptions
from allaboard.settings.options import Settings


@dataclass(frozen=True, slots=True)
class Ranks:
    """Computes gangs' queue positions; the queue orders gangs by ``place``.

    ``shares`` is the search time that namespaces have used. ``time_first`` is the time for which a namespace's partially bound gangs have
    gone first and kept other gangs waiting. These gangs go first only while their namespace has used little of this time: a gang counts as
    partially bound by stamps on its pods, which a tenant can forge. ``fair`` has the shares of the cluster that tenants have used.
    """

    registry: GangRegistry
    records: GangRecords
    shares: SearchTime
    clock: Callable[[], float]
    fair: FairShare = field(default_factory=lambda: FairShare(FairShareOptions(), time.time))
    time_first: SearchTime = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "time_first", SearchTime(self.clock))

    @contextmanager
    def charged(self, gang: Gang, began: float, searched: float) -> Iterator[None]:
        """Charge the namespace of a partially bound gang for the time of an attempt, which began at ``began`` and ends with the context.

        ``searched`` is the search time, in seconds, that the namespace had used when the attempt began. The search time of the attempt is
        charged elsewhere, so it isn't charged again here.
        """
        namespace = gang.key.namespace
        try:
            yield
        finally:
            if gang.bound and gang.missing:
                took = self.clock() - began
                self.time_first.charge(namespace, took)
                self.shares.charge(namespace, took - max(0.0, self.shares.used(namespace) - searched))

    def moved(self) -> Mapping[str, Collection[GangKey]]:
        """Return the namespaces of which gangs may have moved ahead in the queue since the last call.

        Each namespace comes with the gangs whose namespace priority, priority or age has changed (``NamespacePriority.changed``).
        """
        return {**dict.fromkeys(self.fallen(), ()), **self.registry.namespace_priority.changed()}

    def fallen(self) -> Set[str]:
        """Return the namespaces whose usage or tenants' shares have fallen since the last call, so that gangs move ahead in the queue."""
        return self.shares.fallen() | self.time_first.fallen() | self.fair.fallen()

    def place(self, key: GangKey) -> Order:
        """Return a gang's queue position.

        Gangs that no longer exist are first. Within a priority, gangs that this scheduler left partially bound are first.
        """
        gang: Gang | Outline | None = self.registry.outline(key)
        if gang is None:  # without living members the priority isn't known yet
            return order_of_gone(key)
        record = self.records.find(key)
        if gang.is_partially_bound and not (record and record.task):  # a gang with a task is deferred: its position is computed later
            gang = self.registry.gang(key) or gang
        usage = self.shares.level(key.namespace)
        since, namespace_priority = self.registry.namespace_priority.since(gang), self.registry.namespace_priority.of(key)
        share, tenant = self.fair.place(key.namespace, self.registry.first_member(key))
        if record is None:
            return order_of(gang, usage=usage, share=share, tenant=tenant, since=since, namespace_priority=namespace_priority)
        is_first = record.partial_bind is not None and record.partial_bind.is_finishing and gang.is_partially_bound
        is_grown = isinstance(gang, Gang) and gang.is_partially_bound and has_grown(gang, record)
        return order_of(
            gang,
            is_first=is_first,
            may_go_first=not self.time_first.level(key.namespace),
            has_grown=is_grown,
            usage=usage,
            share=share,
            tenant=tenant,
            since=since,
            namespace_priority=namespace_priority,
        )


def ranks_by(settings: Settings, registry: GangRegistry, records: GangRecords, view: ClusterView) -> Ranks:
    """Return the ranks of the gangs of ``registry``, with the shares of the cluster that the pods of ``view`` use."""
    fair = FairShare(settings.fair_share, time.time)
    fair.follow(view)
    return Ranks(registry, records, SearchTime(time.monotonic), time.monotonic, fair)
