"""Tests the free amounts, rows and columns of a snapshot, and its workload."""

import numpy as np

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot, workload_of


def snapshot() -> Snapshot:
    return Snapshot(
        nodes=(Node("a", "ua", (("cpu", 4000),)), Node("b", "ub", (("cpu", 2000), ("nvidia.com/gpu", 4)))),
        resources=("cpu", "nvidia.com/gpu"),
        allocatable=np.array([[4000, 0], [2000, 4]], dtype=np.int64),
        used=np.array([[1000, 0], [3000, 1]], dtype=np.int64),
    )


def test_free_amounts_are_negative_where_a_node_is_over_committed() -> None:
    assert snapshot().free.tolist() == [[3000, 0], [-1000, 3]]


def test_rows_and_columns_are_found_by_name() -> None:
    found = snapshot()
    assert (found.row_of("b"), found.row_of("c")) == (1, None)
    assert (found.column_of("nvidia.com/gpu"), found.column_of("memory")) == (1, None)


def test_a_workload_keeps_gpu_tasks_beside_any_number_of_other_tasks() -> None:
    others = {SchedulingSpec(as_requests({"cpu": cpu})): 9 for cpu in range(1, 1000)}
    gpus = {SchedulingSpec(as_requests({"cpu": 1, "nvidia.com/gpu": 1})): 2, SchedulingSpec(as_requests({"cpu": 1}), gpu_share=300): 1}
    mix = workload_of(others | gpus)
    assert gpus.items() <= set(mix)
    assert len(mix) < 300
    assert workload_of(dict(reversed((others | gpus).items())))[-2:] == mix[-2:]
