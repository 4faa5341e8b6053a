"""Measure how long the queue takes, when capacity is freed, to find the gangs worth another attempt among thousands of refused gangs.

Gangs of four pods wait on a full cluster. Whenever capacity is freed, the queue counts the slots for each kind of pods that a gang waits
with. It then wakes as many gangs as the free capacity is enough for: none while no gang fits. The limit for each such check is 20 ms with
10,000 gangs.
"""

import asyncio
import math
import statistics
import time

import click
from rich.console import Console
from rich.table import Table

from allaboard.cluster.reservations import Ledger, Reservation
from allaboard.cluster.running import Basis
from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import GangKey
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.queueing.capacity_waitlist import Capacity
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.requeue import Freed, Requeue
from allaboard.records.sort_key import PLAIN, Order
from allaboard.records.wake_up import CapacityNeed, WakeUpOn

LIMIT_SECONDS = 0.02
GPU = "nvidia.com/gpu"
SIZE = 4


def full_cluster(nodes: int) -> ClusterView:
    """Return a cluster of nodes of eight GPUs, all of them in use."""
    view = ClusterView()
    allocatable = (("cpu", 64_000), ("memory", 512 << 30), (GPU, 8), ("pods", 110))
    taken = SchedulingSpec((("cpu", 1000), (GPU, 8), ("pods", 1)))
    for number in range(nodes):
        view.upsert_node(Node(f"node-{number}", f"node-{number}", allocatable))
        view.upsert_pod(Pod("others", f"pod-{number}", f"pod-{number}", "1", 0.0, "other", f"node-{number}", "Running", 0, taken))
    return view


def reservations_of(view: ClusterView, number: int) -> list[Reservation]:
    """Return reservations of 16 whole nodes each, for gangs that are older than all others."""
    nodes = [node.name for node in view.snapshot().nodes]
    found = []
    for each in range(number):
        amounts = {name: {GPU: 8} for name in nodes[16 * each : 16 * each + 16]}
        key, begins = GangKey("ml", f"-{each + 1}"), time.time() + 3600.0
        order = Order(0, True, PLAIN, 0, 0, -1.0 - each, key)
        found.append(Reservation(key, order, 0, amounts, {}, begins, math.inf, Basis.STATED, 16, -math.inf))
    return found


async def measure(view: ClusterView, gangs: int, needs: int, wakes: int, reservations: int) -> tuple[float, float, int]:
    """Return the median and the maximum seconds of a check that wakes no gang, and how many gangs the GPUs of one freed node wake.

    ``needs``: the number of kinds of pods that the ``gangs`` gangs consist of. ``wakes``: the number of checks that are measured.
    ``reservations``: the number of gangs ahead that have a reservation.
    """

    def place(key: GangKey) -> Order:
        return Order(0, True, PLAIN, 0, 0, float(key.name), key)

    ledger = Ledger(view.running, place, time.time)
    ledger.replace_all(reservations_of(view, reservations))
    queue = GangQueue(place, slots=Capacity(view, ledger))
    specs = [SchedulingSpec((("cpu", 1000 + each), (GPU, 1), ("pods", 1))) for each in range(needs)]
    for number in range(gangs):
        need = CapacityNeed(((specs[number % needs], SIZE),))
        queue.requeue(GangKey("ml", str(number)), Requeue.refused(WakeUpOn(frozenset({GPU})), need=need), seen=queue.changes)
    took = []
    for _ in range(wakes):
        began = time.perf_counter()
        queue.observe(Freed([GPU]))
        await queue.drain()
        took.append(time.perf_counter() - began)
    gone = view.pod("others/pod-0")
    view.remove_pod("others/pod-0")
    queue.observe(Freed([GPU]))
    await queue.drain()
    woken = queue.sizes()["active"]
    if gone is not None:
        view.upsert_pod(gone)
    return statistics.median(took), max(took), woken


@click.command(help=__doc__)
@click.option("--gangs", default=10_000, show_default=True, help="Waiting gangs.")
@click.option("--nodes", default=5_000, show_default=True, help="Nodes of the cluster.")
@click.option("--reservations", default=4, show_default=True, help="Gangs ahead that have a reservation of 16 nodes.")
@click.option("--wakes", default=50, show_default=True, help="Wakes that are measured.")
def main(gangs: int, nodes: int, reservations: int, wakes: int) -> None:
    """Measure and print a table."""
    view = full_cluster(nodes)
    table = Table(
        "different needs", "a wake, median", "longest", "woken by 8 freed GPUs", "within limit", title=f"{gangs:,} gangs, {nodes:,} nodes"
    )
    for needs in (1, 20, 200):
        median, longest, woken = asyncio.run(measure(view, gangs, needs, wakes, reservations))
        is_within = "yes" if median <= LIMIT_SECONDS else "NO"
        table.add_row(str(needs), f"{median * 1000:.2f} ms", f"{longest * 1000:.2f} ms", str(woken), is_within)
    Console().print(table)


if __name__ == "__main__":
    main()
