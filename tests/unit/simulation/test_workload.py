"""Test the published protocol, which shuffles tasks and inflates the load by sampling with replacement."""

import pytest

from allaboard.simulation.workload import Workload, WorkloadError, inflated, workload_of
from tests.unit.simulation.making import node, task

FEW = workload_of([node("a", 8), node("b", 8)], [("x", task(4)), ("y", task(1)), ("z", task(1, 500)), ("c", task())])


def requested_gpu_milli(workload: Workload) -> int:
    return sum(workload.gpu_milli_of(arrival) for arrival in workload.arrivals)


@pytest.mark.parametrize("factor", [1.0, 1.3, 3.0])
def test_tasks_are_sampled_until_they_request_the_inflated_load(factor: float) -> None:
    found = inflated(FEW, factor, seed=42)
    assert requested_gpu_milli(found) >= factor * 16_000
    assert requested_gpu_milli(found) - found.gpu_milli_of(found.arrivals[-1]) < factor * 16_000


def test_every_task_arrives_once_before_any_task_is_repeated() -> None:
    names = [arrival.name for arrival in inflated(FEW, 1.3, seed=42).arrivals]
    assert sorted(names[:4]) == ["c", "x", "y", "z"]
    assert all(name.split("~")[0] in "xyzc" for name in names[4:])
    assert len(set(names)) == len(names)


def test_order_of_tasks_depends_on_the_seed_only() -> None:
    assert inflated(FEW, 1.3, seed=42) == inflated(FEW, 1.3, seed=42)
    assert inflated(FEW, 1.3, seed=42) != inflated(FEW, 1.3, seed=43)


def test_random_tasks_are_removed_if_all_tasks_request_more_than_the_inflated_load() -> None:
    many = workload_of([node("a", 8), node("b", 8)], [(f"t{number}", task(1)) for number in range(40)])
    kept = [{arrival.name for arrival in inflated(many, 1.25, seed=seed).arrivals} for seed in (42, 43)]
    assert [len(names) for names in kept] == [20, 20]
    assert kept[0] != kept[1]


def test_tasks_are_shuffled_and_none_is_added_with_inflation_0() -> None:
    found = inflated(FEW, 0.0, seed=42)
    assert sorted(arrival.name for arrival in found.arrivals) == ["c", "x", "y", "z"]


def test_tasks_without_gpus_can_not_be_inflated() -> None:
    with pytest.raises(WorkloadError, match="no task asks for a GPU"):
        inflated(workload_of([node("a", 8)], [("c", task())]), 1.3, seed=42)


def test_tasks_with_equal_requests_form_one_class() -> None:
    found = workload_of([node("a", 8)], [("x", task(1)), ("y", task(2)), ("z", task(1))])
    assert found.classes == (task(1), task(2))
    assert found.popularity == (2, 1)
