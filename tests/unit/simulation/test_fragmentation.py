"""Test expected fragmentation against values computed by hand, and its updates when nodes change."""

import numpy as np
import pytest

from allaboard.simulation.fragmentation import Fragmentation
from allaboard.simulation.state import Assignment
from allaboard.simulation.workload import Workload, workload_of
from tests.unit.simulation.making import mix_of, node, state_of, task

WHOLE, TWO, HALF, BARE = task(1), task(2), task(1, 500), task()


def fragmentation_after(workload: Workload, *taken: tuple[int, Assignment]) -> float:
    state = state_of(workload)
    found = Fragmentation(mix_of(workload), state)
    for position, assignment in taken:
        state.take(position, assignment)
    updated = found.gpu_milli()
    assert updated == pytest.approx(mix_of(workload).fragmented(state, np.arange(len(state.nodes))).sum())
    return updated


def test_gpus_that_every_task_can_use_are_not_fragmented() -> None:
    assert fragmentation_after(workload_of([node("a", 2)], [("x", WHOLE), ("y", TWO)])) == 0


def test_free_part_of_a_device_is_fragmented_for_tasks_that_need_more() -> None:
    tasks = workload_of([node("a", 2)], [("x", WHOLE), ("y", HALF)])
    # A half and a whole device are free. The half is fragmented for the first class, not for the second.
    assert fragmentation_after(tasks, (1, Assignment(0, (0,)))) == 0.5 * 500


def test_all_free_gpus_are_fragmented_for_a_task_that_does_not_fit() -> None:
    tasks = workload_of([node("a", 2)], [("x", WHOLE), ("y", TWO)])
    assert fragmentation_after(tasks, (0, Assignment(0, (1,)))) == 0.5 * 1000


def test_all_free_gpus_are_fragmented_for_a_task_without_gpu() -> None:
    assert fragmentation_after(workload_of([node("a", 2)], [("x", WHOLE), ("y", BARE), ("z", BARE), ("w", BARE)])) == 0.75 * 2000


def test_all_free_gpus_are_fragmented_for_a_task_that_lacks_cpu() -> None:
    hungry = task(1, cpu=40)
    tasks = workload_of([node("a", 2, cpu=64)], [("x", hungry), ("y", WHOLE)])
    assert fragmentation_after(tasks, (0, Assignment(0, (0,)))) == 0.5 * 1000


def test_gpus_of_a_model_that_a_task_rejects_are_fragmented() -> None:
    tasks = workload_of([node("a", 2, model="T4"), node("b", 1, model="G2")], [("x", task(1, models=("T4",)))])
    assert fragmentation_after(tasks) == 1000


def test_rare_classes_of_tasks_are_not_counted_in_fragmentation() -> None:
    tasks = workload_of([node("a", 1)], [*[(f"x{index}", WHOLE) for index in range(95)], *[(f"y{index}", TWO) for index in range(5)]])
    assert fragmentation_after(tasks) == 0
