"""Tests the assignment of pods that ask for a part of a GPU to the devices of a node."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.placement.rules.devices import assign_devices, assign_devices_exactly, best_device


def test_gpu_part_goes_to_the_device_with_the_least_free_capacity_that_suffices() -> None:
    assert best_device(np.array([[1000, 300, 600], [1000, 200, 600]]), 300).tolist() == [1, 2]


def test_gpu_part_goes_to_the_device_that_loses_the_least_worth() -> None:
    """At first only 600 free thousandths have a worth. So a part of 400 goes to a whole device, and a device with 600 free is kept."""
    worth = np.zeros(1001)
    worth[600] = 5.0
    assert best_device(np.array([[600, 1000]]), 400, worth).tolist() == [1]
    worth[1000] = 9.0
    assert best_device(np.array([[400, 1000]]), 400, worth).tolist() == [0]


@given(st.lists(st.integers(0, 10), max_size=4), st.lists(st.integers(1, 10), max_size=5))
def test_gpu_parts_are_assigned_if_and_only_if_an_assignment_exists(devices: list[int], parts: list[int]) -> None:
    ways = {tuple(devices)}
    for part in parts:
        ways = {(*left[:place], free - part, *left[place + 1 :]) for left in ways for place, free in enumerate(left) if free >= part}
    chosen = assign_devices_exactly(devices, parts)
    assert (chosen is not None) is bool(ways)
    if chosen is not None:
        taken = [sum(part for part, device in zip(parts, chosen, strict=True) if device == place) for place in range(len(devices))]
        assert tuple(free - part for free, part in zip(devices, taken, strict=True)) in ways


@pytest.mark.parametrize("devices", [8, 128])
def test_search_for_devices_is_limited_in_comparisons(devices: int) -> None:
    comparisons = 0

    class Part(int):
        """A size that counts its comparisons with devices."""

        def __le__(self, other: int) -> bool:
            nonlocal comparisons
            comparisons += 1
            return int(self) <= other

    assert assign_devices_exactly([1000] * devices, [Part(size) for size in [400, 400] * devices + [201] * (devices // 2)]) is None
    assert devices < comparisons < 100_000


def test_search_for_devices_of_thousands_of_gpu_parts_ends_soon() -> None:
    assert assign_devices_exactly([1000] * 128, [7, 11, 13] * 5000) is None


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 10), min_size=3, max_size=3), st.lists(st.integers(0, 3), min_size=2, max_size=2)), min_size=1
    )
)
def test_gpu_parts_may_have_different_sizes_on_each_node(nodes: list[tuple[list[int], list[int]]]) -> None:
    """Assigning on several nodes at once gives the same result as on each node alone."""
    devices, parts = (np.array(column, dtype=np.int64) for column in zip(*nodes, strict=True))
    sizes = np.array([[1 + row % 4, 1 + row % 7] for row in range(len(nodes))], dtype=np.int64)
    none_whole = np.zeros(len(nodes), dtype=np.int64)
    left, fits = assign_devices(devices, none_whole, parts, sizes)
    for row in range(len(nodes)):
        alone, fit = assign_devices(devices[[row]], none_whole[[row]], parts[[row]], sizes[[row]])
        assert (alone[0].tolist(), bool(fit[0])) == (left[row].tolist(), bool(fits[row]))
        asked = [int(sizes[row, role]) for role in (0, 1) for _ in range(int(parts[row, role]))]
        assert not fits[row] or assign_devices_exactly(devices[row].tolist(), asked) is not None
