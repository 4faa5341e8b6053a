"""Test replays: gangs arrive, wait, run and finish, and each gang starts whole or not at all."""

from collections.abc import Sequence

import pytest

from allaboard.simulation.player import Assignments, Player
from allaboard.simulation.players import make_player
from allaboard.simulation.replay import replay
from allaboard.simulation.state import BadAssignmentError, ClusterState
from allaboard.simulation.workload import Arrival, inflated, workload_of
from tests.unit.simulation.making import gangs, mix_of, node, played, setup_of, task

ALL = ("genetic", "fgd", "fgd-bestfit", "fgd-firstfit", "fgd-random")
GPU = task(1)


def test_tasks_that_do_not_fit_are_dropped_from_a_replay_and_counted() -> None:
    found = played(workload_of([node("a", 4)], [(f"t{index}", GPU) for index in range(6)]))
    assert (found.gpus_total, found.gangs_placed, found.pods_failed) == (4, 4, 2)
    assert found.gpus_unallocated_percent == 0


def test_unallocated_and_fragmented_gpus_are_percentages_of_all_gpus() -> None:
    found = played(workload_of([node("a", 4), node("b", 4)], [("t0", task(3)), ("t1", task(3)), ("t2", task(3))]))
    assert found.gpus_unallocated_percent == 25
    assert found.fragmentation_percent == 25
    assert found.pods_failed == 1


@pytest.mark.parametrize("name", ALL)
def test_gang_waits_until_all_its_members_fit(name: str) -> None:
    # The first gang takes three of four GPUs for a minute. The second gang needs two GPUs, the third needs one.
    found = played(
        gangs(
            [node("a", 4)],
            [GPU],
            Arrival("first", (0, 0, 0), 3, 0, 0.0, 60.0),
            Arrival("second", (0, 0), 2, 0, 10.0, 60.0),
            Arrival("third", (0,), 1, 0, 20.0, 60.0),
        ),
        name,
    )
    placed = {sample.at_seconds: sample.gangs_placed for sample in found.timeline}
    assert placed == {0.0: 1, 10.0: 1, 20.0: 2, 60.0: 3, 80.0: 3, 120.0: 3}
    assert found.waiting_seconds_mean == pytest.approx((0 + 50 + 0) / 3)
    assert found.makespan_seconds == 120
    # 3 GPUs for 60 s, 2 for 60 s and 1 for 60 s, of 4 for 120 s.
    assert found.gpus_unallocated_percent == pytest.approx(100 - 100 * 6 * 60 / (4 * 120))


def test_gang_that_never_fits_counts_as_failed_at_the_end_of_the_replay() -> None:
    found = played(gangs([node("a", 4)], [GPU], Arrival("big", (0,) * 5, 5), Arrival("small", (0,), 1, 0, 0.0, 30.0)))
    assert (found.gangs_placed, found.gangs_failed, found.pods_failed) == (1, 1, 5)


@pytest.mark.parametrize("name", ALL)
def test_surplus_members_are_placed_with_the_gang_if_they_fit(name: str) -> None:
    found = played(gangs([node("a", 4)], [GPU], Arrival("elastic", (0,) * 6, 3)), name)
    assert (found.gangs_placed, found.pods_failed) == (1, 2)
    assert found.gpus_unallocated_percent == 0


def test_waiting_gangs_are_ordered_by_priority_and_then_by_arrival() -> None:
    found = played(
        gangs(
            [node("a", 1)],
            [GPU],
            Arrival("running", (0,), 1, 0, 0.0, 100.0),
            Arrival("early", (0,), 1, 0, 10.0, 100.0),
            Arrival("urgent", (0,), 1, 5, 20.0, 100.0),
        )
    )
    # The urgent gang waits 80 s and the early gang 190 s. In order of arrival, they would wait 180 s and 90 s.
    assert found.waiting_seconds_mean == pytest.approx((80 + 190) / 3)
    assert found.timeline[-1].waiting_seconds == found.waiting_seconds_mean


def test_strategy_that_assigns_only_a_part_of_a_gang_is_refused() -> None:
    workload = gangs([node("a", 4)], [GPU], Arrival("g", (0, 0), 2))
    strategy = make_player("fgd-firstfit", setup_of(workload))

    class Partial(Player):
        def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[Assignments | None]:
            [assignments] = strategy.place(state, pending)
            assert assignments
            return [(assignments[0], None)]

    with pytest.raises(BadAssignmentError, match="assigns 1 members of g, which needs 2"):
        replay(workload, Partial(), mix_of(workload))


@pytest.mark.parametrize("name", ["fgd", "fgd-bestfit", "fgd-firstfit", "fgd-random"])
@pytest.mark.parametrize("batch", [1, 7])
def test_repeated_replay_of_a_workload_gives_an_equal_result(name: str, batch: int) -> None:
    asks = [task(1), task(1, 470), task(2), task(), task(1, 810, cpu=9)]
    tasks = workload_of([node(f"n{index}", 4, cpu=32) for index in range(8)], [(f"t{index}", asks[index % 5]) for index in range(40)])
    workload = inflated(tasks, 1.3, seed=7)
    assert played(workload, name, batch) == played(workload, name, batch)


def test_strategy_that_places_gangs_one_by_one_decides_alike_if_arrivals_are_replayed_in_batches() -> None:
    asks = [task(1), task(1, 470), task(2), task(), task(1, 810, cpu=9)]
    tasks = workload_of([node(f"n{index}", 4, cpu=32) for index in range(8)], [(f"t{index}", asks[index % 5]) for index in range(90)])
    single, batched = played(tasks, "fgd"), played(tasks, "fgd", batch=16)
    assert (single.pods_failed, single.gpus_unallocated_percent) == (batched.pods_failed, batched.gpus_unallocated_percent)


@pytest.mark.parametrize("batch", [1, 8])
def test_genetic_strategy_places_tasks_with_whole_gpus(batch: int) -> None:
    tasks = workload_of([node(f"n{index}", 4) for index in range(4)], [(f"t{index}", task((1, 2, 4)[index % 3])) for index in range(12)])
    found = played(tasks, "genetic", batch)
    assert found == played(tasks, "genetic", batch)
    assert found.gpus_unallocated_percent < 20


@pytest.mark.parametrize("batch", [1, 5])
def test_genetic_strategy_places_shares_of_gpus_beside_whole_gpus(batch: int) -> None:
    # All pods fit on eight devices: four take one whole device each, and the other four devices hold 0.7 + 0.3 each.
    asks = [task(1, 700), task(1), task(1, 300)] * 4
    found = played(workload_of([node("a", 4), node("b", 4)], [(f"t{index}", each) for index, each in enumerate(asks)]), "genetic", batch)
    assert found.pods_failed <= 1
    gang = Arrival("g", (0, 0, 1, 1, 2, 2), 6)
    assert played(gangs([node("a", 4)], [task(1, 700), task(1), task(1, 300)], gang), "genetic", batch).gpus_unallocated_percent == 0


def test_cluster_without_gpus_is_measured_by_cpu() -> None:
    found = played(workload_of([node("a", cpu=10)], [(f"t{index}", task(cpu=4)) for index in range(3)]))
    assert (found.gpus_total, found.gpus_unallocated_percent, found.pods_failed) == (0, 0, 1)
    assert found.timeline[-1].arrived_percent == pytest.approx(120)
    assert found.timeline[-1].allocated_percent == pytest.approx(80)
