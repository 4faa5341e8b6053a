"""Expected fragmentation by hand, and kept up to date."""

import numpy as np
import pytest

from allaboard.simulation.fragmentation import Fragmentation
from allaboard.simulation.state import Seat
from allaboard.simulation.workload import Workload, workload_of
from tests.unit.simulation.making import mix_of, node, state_of, task

WHOLE, TWO, HALF, BARE = task(1), task(2), task(1, 500), task()


def measured(workload: Workload, *taken: tuple[int, Seat]) -> float:
    state = state_of(workload)
    found = Fragmentation(mix_of(workload), state)
    for position, seat in taken:
        state.take(position, seat)
    renewed = found.gpu_milli()
    assert renewed == pytest.approx(mix_of(workload).fragmented(state, np.arange(len(state.nodes))).sum())
    return renewed


def test_nothing_is_fragmented_where_every_task_can_use_all() -> None:
    assert measured(workload_of([node("a", 2)], [("x", WHOLE), ("y", TWO)])) == 0


def test_a_part_of_a_device_is_lost_for_tasks_that_need_more_of_one() -> None:
    tasks = workload_of([node("a", 2)], [("x", WHOLE), ("y", HALF)])
    # Half a device is left beside a whole one: lost for the first class, not for the second.
    assert measured(tasks, (1, Seat(0, (0,)))) == 0.5 * 500


def test_all_that_is_free_is_lost_for_a_task_that_can_not_run() -> None:
    tasks = workload_of([node("a", 2)], [("x", WHOLE), ("y", TWO)])
    assert measured(tasks, (0, Seat(0, (1,)))) == 0.5 * 1000


def test_all_that_is_free_is_lost_for_a_task_without_gpu() -> None:
    assert measured(workload_of([node("a", 2)], [("x", WHOLE), ("y", BARE), ("z", BARE), ("w", BARE)])) == 0.75 * 2000


def test_too_little_cpu_loses_all() -> None:
    hungry = task(1, cpu=40)
    tasks = workload_of([node("a", 2, cpu=64)], [("x", hungry), ("y", WHOLE)])
    assert measured(tasks, (0, Seat(0, (0,)))) == 0.5 * 1000


def test_a_model_that_a_task_does_not_accept_is_lost_for_it() -> None:
    tasks = workload_of([node("a", 2, model="T4"), node("b", 1, model="G2")], [("x", task(1, models=("T4",)))])
    assert measured(tasks) == 1000


def test_rare_classes_are_not_counted() -> None:
    tasks = workload_of([node("a", 1)], [*[(f"x{index}", WHOLE) for index in range(95)], *[(f"y{index}", TWO) for index in range(5)]])
    assert measured(tasks) == 0
