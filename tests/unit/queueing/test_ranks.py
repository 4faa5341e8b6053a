"""The queue positions of gangs, which follow from their records and the search time that their namespaces have used."""

import asyncio
from dataclasses import replace
from typing import cast
from unittest.mock import Mock

from allaboard.gangs.namespace_priority import NamespacePriority
from allaboard.model.gang import GangKey, OnMemberLost, Outline
from allaboard.queueing.order import order_of_gone
from allaboard.queueing.ranks import Ranks
from allaboard.queueing.search_time import MUCH_SECONDS, SearchTime
from allaboard.records.partial_bind import Finishing, KeptOpen
from allaboard.records.record import GangRecords
from tests.unit.scheduling.clocks import Clock
from tests.unit.scheduling.schedulers import World

A, B = GangKey("default", "a"), GangKey("other", "b")


class Scene:
    """The bound gang A and the older waiting gang B, and their queue positions."""

    def __init__(self) -> None:
        self.records, self.clock = GangRecords(), Clock()
        self.shares = SearchTime(self.clock)
        outlines = {A: Outline(A, 0, 2.0, is_partially_bound=True, on_member_lost=OnMemberLost.IGNORE), B: Outline(B, 0, 1.0)}
        registry = Mock(outline=outlines.get, gang=lambda key: None, namespace_priority=NamespacePriority(outlines.get))
        self.ranks = Ranks(registry, self.records, self.shares, self.clock)

    def first(self) -> GangKey:
        return min(A, B, key=self.ranks.place)


def test_older_gang_goes_first_unless_a_transaction_left_the_younger_gang_partially_bound() -> None:
    scene = Scene()
    assert scene.first() == B
    scene.records.partial_bind(A).state = KeptOpen()
    assert scene.first() == B
    scene.records.partial_bind(A).state = Finishing(5.0)
    assert scene.first() == A


def test_gang_of_a_namespace_with_search_time_usage_goes_last() -> None:
    scene = Scene()
    scene.shares.charge("other", 10.0)
    assert scene.first() == A


def test_deleted_gang_goes_first_and_a_gang_with_work_beside_the_cycle_is_ranked_without_reading_its_members() -> None:
    scene = Scene()
    gone = GangKey("default", "gone")
    assert scene.ranks.place(gone) == order_of_gone(gone)
    scene.records.of(A).task = cast("asyncio.Task[None]", object())
    scene.ranks.registry.gang = Mock(side_effect=AssertionError)  # type: ignore[method-assign]
    assert scene.ranks.place(A).key == A


def test_partially_bound_gangs_go_first_until_their_namespace_has_kept_others_waiting_for_long() -> None:
    scene = Scene()
    scene.records.partial_bind(A).state = Finishing(5.0)
    scene.shares.charge("default", 10.0)
    assert scene.first() == A  # even if its namespace has used search time
    scene.ranks.time_first.charge("default", 1.5 * MUCH_SECONDS)
    assert scene.first() == B
    scene.clock.now += 60.0
    assert scene.first() == A
    assert scene.ranks.fallen() == {"default"}


async def test_gangs_with_forged_stamps_delay_another_namespaces_gang_by_two_seconds_at_most() -> None:
    """There are sixty such gangs, older than the other namespace's gang, and each attempt takes a tenth of a second."""
    async with World(cpus=500) as world:
        names = [f"evil-{number}" for number in range(60)]
        for name in names:
            world.add(name, 2, bound=1, cpus=1, namespace="evil")
            for pod in world.gang(GangKey("evil", name)).candidates:
                world.view.upsert_pod(replace(pod, spec=replace(pod.spec, requests=(("cpu", 900_000), ("pods", 1)))))

            def take_a_while() -> None:
                world.now += 0.1

            world.searcher.meanwhile[f"briefly {name}"] = take_a_while
        await world.executor.inherit()
        world.add("good", 2, namespace="team", created=5.0)
        bound_at: list[float] = []
        world.searcher.meanwhile["briefly good"] = lambda: bound_at.append(world.now)
        await world.run_cycle()
        assert bound_at
        assert bound_at[0] <= 1002.0
        assert sum(search.startswith("briefly evil") for search in world.searcher.searches) >= 60
