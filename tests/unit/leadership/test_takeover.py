"""A new leader reserves capacity for pods that an earlier leader may still bind, on each node where such pods could land."""

from dataclasses import replace
from typing import cast

import pytest

from allaboard.cluster.view import ClusterView
from allaboard.kube.client import ApiServer
from allaboard.leadership.fencing import CARRIED_OUT_SECONDS, Term
from allaboard.leadership.takeover import TakeoverReservation, claim_on
from allaboard.model.constraints import HostPort
from tests.unit.placement.clusters import node, pods

NODE = node("a", {"cpu": 8000, "gpu": 4}, labels={"disk": "fast"})
SMALL = pods("s", 1, {"cpu": 1000})[0].spec
GPU = pods("g", 1, {"cpu": 500, "gpu": 2})[0].spec
MIDDLE = pods("m", 1, {"cpu": 3000})[0].spec
LARGE = pods("l", 1, {"cpu": 9000})[0].spec
ELSEWHERE = pods("e", 1, {"cpu": 1000}, node_selector=(("disk", "slow"),))[0].spec
PORT = HostPort("0.0.0.0", "TCP", 80)  # noqa: S104


@pytest.mark.parametrize(
    ("kinds", "most", "claim"),
    [
        ([(SMALL, 3)], 64, {"cpu": 3000, "pods": 3}),
        ([(SMALL, 100)], 4, {"cpu": 4000, "pods": 4}),
        ([(SMALL, 3), (GPU, 3)], 4, {"cpu": 3500, "gpu": 6, "pods": 4}),  # the sum of the four largest amounts of each resource
        ([(SMALL, 3), (MIDDLE, 2)], 3, {"cpu": 7000, "pods": 3}),  # the largest three pods, in whatever order
        ([(LARGE, 3)], 64, {}),
        ([(ELSEWHERE, 3)], 64, {}),
        ([], 64, {}),
    ],
)
def test_takeover_reservation_is_the_most_that_late_binds_could_take(
    kinds: list[tuple[object, int]], most: int, claim: dict[str, int]
) -> None:
    reserved = claim_on(NODE, kinds, most)  # type: ignore[arg-type]
    assert dict(reserved.requests if reserved else ()) == claim


def test_host_ports_are_part_of_a_takeover_reservation() -> None:
    reserved = claim_on(NODE, [(replace(SMALL, host_ports=(PORT,)), 1)], 1)
    assert reserved is not None
    assert reserved.host_ports == (PORT,)


class World:
    """A view, a term that began at version 10, and a takeover reservation. One of ``events`` happens in each of its pauses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.freed = 0
        self.view = ClusterView()
        self.view.upsert_node(NODE)
        self.term = Term(cast("ApiServer", None), clock=lambda: self.now)
        self.term._first_version, self.term.carried_out_at = 10, CARRIED_OUT_SECONDS
        self.pods = pods("p", 2, {"cpu": 3000})
        for pod in self.pods:
            self.view.upsert_pod(pod)
        self.takeover_reservation = TakeoverReservation(self.view, self.term, 64, self.free, lambda: self.now, self.sleep)
        self.events: list[object] = []
        self.reserved: list[int] = []

    def free(self) -> None:
        self.freed += 1

    @property
    def used(self) -> int:
        snapshot = self.view.snapshot()
        return int(snapshot.used[:, snapshot.resources.index("cpu")].sum())

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.reserved.append(self.used)
        if self.events:
            self.events.pop(0)()  # type: ignore[operator]


async def test_reserved_capacity_is_given_back_when_pods_are_fenced_off_or_gone() -> None:
    world = World()
    first, second = world.pods
    await world.takeover_reservation.begin(world.pods)
    world.events = [lambda: world.view.upsert_pod(replace(first, resource_version="11")), lambda: world.view.remove_pod(second.key)]
    await world.takeover_reservation.run()
    assert world.reserved == [6000, 3000]
    assert (world.used, world.now) == (0, 2.0)


async def test_all_reserved_capacity_is_given_back_when_no_request_can_be_in_flight() -> None:
    world = World()
    await world.takeover_reservation.begin(world.pods)
    await world.takeover_reservation.run()
    assert set(world.reserved) == {6000}
    assert (world.used, world.now) == (0, CARRIED_OUT_SECONDS)
    assert world.freed


async def test_pod_that_is_bound_after_all_is_counted_once() -> None:
    world = World()
    first, _ = world.pods
    await world.takeover_reservation.begin(world.pods[:1])
    world.events = [lambda: world.view.upsert_pod(replace(first, node_name="a"))]
    await world.takeover_reservation.run()
    assert world.used == 3000


async def test_node_that_is_removed_and_added_again_has_no_capacity_reserved() -> None:
    world = World()
    await world.takeover_reservation.begin(world.pods)
    other = node("b", {"cpu": 8000})
    world.events = [lambda: world.view.upsert_node(other), lambda: world.view.remove_node("a"), lambda: world.view.remove_node("b")]
    await world.takeover_reservation.run()
    world.view.upsert_node(NODE)
    assert world.used == 0


async def test_capacity_is_reserved_on_a_node_that_is_added_later() -> None:
    world = World()
    await world.takeover_reservation.begin(world.pods)
    before = world.used
    seen: list[int] = []
    world.events = [lambda: world.view.upsert_node(node("b", {"cpu": 8000})), lambda: seen.append(world.used)]
    await world.takeover_reservation.run()
    assert seen == [2 * before]
