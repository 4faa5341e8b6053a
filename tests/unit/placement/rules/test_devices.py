"""On which device of a node a pod sits that asks for a part of one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.placement.rules.devices import assign_devices, assign_devices_exactly, best_device


def test_a_part_goes_where_least_is_left() -> None:
    assert best_device(np.array([[1000, 300, 600], [1000, 200, 600]]), 300).tolist() == [1, 2]


def test_a_part_goes_where_what_is_free_loses_least_worth() -> None:
    """600 of 1000 are worth most here, so those are made of a whole device rather than taken from one that has them."""
    worth = np.zeros(1001)
    worth[600] = 5.0
    assert best_device(np.array([[600, 1000]]), 400, worth).tolist() == [1]
    worth[1000] = 9.0
    assert best_device(np.array([[400, 1000]]), 400, worth).tolist() == [0]


@given(st.lists(st.integers(0, 10), max_size=4), st.lists(st.integers(1, 10), max_size=5))
def test_parts_are_seated_on_devices_when_some_way_is_found_by_trying_all(devices: list[int], parts: list[int]) -> None:
    ways = {tuple(devices)}
    for part in parts:
        ways = {(*left[:place], free - part, *left[place + 1 :]) for left in ways for place, free in enumerate(left) if free >= part}
    slots = assign_devices_exactly(devices, parts)
    assert (slots is not None) is bool(ways)
    assert (
        slots is None
        or tuple(free - sum(part for part, seat in zip(parts, slots, strict=True) if seat == place) for place, free in enumerate(devices))
        in ways
    )


@pytest.mark.parametrize("devices", [8, 128])
def test_parts_that_fit_in_sum_and_not_one_by_one_are_given_up_after_some_looks(devices: int) -> None:
    looks = 0

    class Part(int):
        """Counts how often a device is compared with it."""

        def __le__(self, other: int) -> bool:
            nonlocal looks
            looks += 1
            return int(self) <= other

    assert assign_devices_exactly([1000] * devices, [Part(size) for size in [400, 400] * devices + [201] * (devices // 2)]) is None
    assert devices < looks < 100_000


def test_thousands_of_parts_that_do_not_fit_are_given_up_soon() -> None:
    assert assign_devices_exactly([1000] * 128, [7, 11, 13] * 5000) is None


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 10), min_size=3, max_size=3), st.lists(st.integers(0, 3), min_size=2, max_size=2)), min_size=1
    )
)
def test_every_node_has_its_own_sizes(nodes: list[tuple[list[int], list[int]]]) -> None:
    """What fits on several nodes at once is what fits on each of them alone."""
    devices, parts = (np.array(column, dtype=np.int64) for column in zip(*nodes, strict=True))
    sizes = np.array([[1 + row % 4, 1 + row % 7] for row in range(len(nodes))], dtype=np.int64)
    nobody = np.zeros(len(nodes), dtype=np.int64)
    left, fits = assign_devices(devices, nobody, parts, sizes)
    for row in range(len(nodes)):
        alone, fit = assign_devices(devices[[row]], nobody[[row]], parts[[row]], sizes[[row]])
        assert (alone[0].tolist(), bool(fit[0])) == (left[row].tolist(), bool(fits[row]))
        asked = [int(sizes[row, role]) for role in (0, 1) for _ in range(int(parts[row, role]))]
        assert not fits[row] or assign_devices_exactly(devices[row].tolist(), asked) is not None
