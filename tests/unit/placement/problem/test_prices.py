"""Prices of free GPUs agree with known solutions of the cutting-stock problem, and with the expected shortage of cpu by integration."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Workload, workload_of
from allaboard.placement.problem.prices import prices_of
from tests.unit.placement.clusters import GPU

Task = tuple[int, int, int, int]  # cpu in thousandths, whole GPUs, thousandths of one, how many


def a_mix(*listed: Task) -> Workload:
    return workload_of(
        Counter({SchedulingSpec(as_requests({"cpu": cpu, GPU: gpus}), gpu_share=part): number for cpu, gpus, part, number in listed})
    )


def gaps(*listed: Task) -> np.ndarray:
    prices = prices_of(a_mix(*listed))
    assert prices is not None
    return prices.gaps


def test_free_part_of_a_gpu_that_is_too_small_for_all_tasks_is_worth_nothing() -> None:
    worth = gaps((1000, 0, 500, 9))
    assert worth[490] == 0
    assert worth[500] == worth[990] == pytest.approx(0.5)
    assert worth[1000] == pytest.approx(1.0)


def test_two_free_parts_that_fill_a_gpu_are_together_worth_a_gpu() -> None:
    # Each part of 700 is paired with a part of 300, so devices are used completely.
    worth = gaps((1000, 0, 700, 10), (1000, 0, 300, 10))
    assert worth[1000] == pytest.approx(1.0)
    assert worth[700] + worth[300] == pytest.approx(1.0)


def test_gpu_of_which_tasks_can_use_only_a_part_is_worth_that_part() -> None:
    assert gaps((1000, 0, 600, 5))[1000] == pytest.approx(0.6)


def test_partly_free_gpu_is_worth_nothing_if_tasks_ask_for_whole_gpus() -> None:
    worth = gaps((8000, 1, 0, 5), (32_000, 4, 0, 5))
    assert worth[999] == 0
    assert worth[1000] == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 2), st.integers(1, 100), st.integers(1, 20)), min_size=1, max_size=6))
def test_worth_of_a_free_part_of_a_gpu_grows_with_its_size_up_to_one_gpu(listed: list[Task]) -> None:
    worth = gaps(*((cpu, gpus, 0 if gpus else 10 * part, number) for cpu, gpus, part, number in listed))
    assert (np.diff(worth) >= -1e-9).all()
    assert worth[0] == 0
    assert worth[1000] <= 1.0 + 1e-6


@given(st.integers(0, 120_000), st.integers(1, 8))
def test_worth_of_gpus_is_reduced_by_the_expected_shortage_of_cpu(cpu: int, gpus: int) -> None:
    prices = prices_of(a_mix((4000, 1, 0, 3), (12_000, 1, 0, 2), (60_000, 4, 0, 1)))
    assert prices is not None
    mean, deviation = prices.cpu_per_gpu * gpus, prices.spread * gpus**0.5
    demands = np.linspace(mean - 8 * deviation, mean + 8 * deviation, 40_001)
    density = np.exp(-0.5 * ((demands - mean) / deviation) ** 2) / (deviation * (2 * np.pi) ** 0.5)
    short = float((np.maximum(demands - cpu, 0) * density).sum() * (demands[1] - demands[0])) / prices.cpu_per_gpu
    lost = gpus - prices.worth(np.array([cpu]), np.array([gpus]), None)[0] - prices.too_few[gpus]
    assert lost == pytest.approx(min(short, gpus), abs=1e-3)


def test_free_gpus_of_a_node_are_of_no_use_to_tasks_that_need_more_gpus() -> None:
    prices = prices_of(a_mix((8000, 1, 0, 3), (64_000, 8, 0, 1)))
    assert prices is not None
    assert prices.too_few[:10].tolist() == pytest.approx([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 0, 0])


@pytest.mark.parametrize("mix", [(), a_mix((1000, 0, 0, 5)), a_mix((0, 2, 0, 5))])
def test_workload_without_gpus_or_without_cpu_has_no_prices(mix: Workload) -> None:
    assert prices_of(mix) is None


def test_equal_workloads_have_equal_prices() -> None:
    mix = a_mix((1000, 0, 330, 7), (4000, 1, 0, 9), (2000, 0, 810, 5))
    first = prices_of(mix)
    prices_of(())
    again = prices_of(a_mix((1000, 0, 330, 7), (4000, 1, 0, 9), (2000, 0, 810, 5)))
    assert first is not None
    assert again is not None
    assert first.gaps.tolist() == again.gaps.tolist()
