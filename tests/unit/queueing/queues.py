"""Queues with a given order, and functions that read and empty them."""

from allaboard.model.gang import GangKey
from allaboard.queueing.queue import GangQueue
from allaboard.records.sort_key import PLAIN, Order
from allaboard.records.wake_up import WakeUpOn
from tests.unit.scheduling.clocks import Clock

A, B, C = (GangKey("default", name) for name in "abc")
CPU = WakeUpOn(frozenset({"cpu"}))


def a_queue_by_usage(clock: Clock, usages: dict[str, int]) -> GangQueue:
    """Return a queue that orders gangs by the search-time usage level of their namespaces, then by name."""

    def order(key: GangKey) -> Order:
        return Order(0, True, PLAIN, usages.get(key.namespace, 0), 0, float(key.name), key)

    return GangQueue(order, clock=clock)


def gang_of(namespace: str, name: int) -> GangKey:
    return GangKey(namespace, str(name))


def a_queue(clock: Clock, priorities: dict[GangKey, int] | None = None, partially_bound: GangKey | None = None) -> GangQueue:
    def order(key: GangKey) -> Order:
        return Order(-(priorities or {}).get(key, 0), True, int(key != partially_bound), 0, 0, 0.0, key)

    return GangQueue(order, clock=clock)


def drain(queue: GangQueue) -> list[GangKey]:
    popped = []
    while (key := queue.pop()) is not None:
        popped.append(key)
    return popped


def failures_of(queue: GangQueue, key: GangKey) -> int:
    """Return the number of a gang's failed attempts in a row."""
    return queue._read_state(key).attempts
