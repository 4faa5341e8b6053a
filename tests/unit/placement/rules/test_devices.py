"""On which device of a node a pod sits that asks for a part of one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allaboard.placement.rules.devices import best_device, fit_on_devices


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
def test_parts_fit_on_devices_when_some_way_to_seat_them_is_found_by_trying_all(devices: list[int], parts: list[int]) -> None:
    ways = {tuple(devices)}
    for part in parts:
        ways = {(*left[:place], free - part, *left[place + 1 :]) for left in ways for place, free in enumerate(left) if free >= part}
    assert fit_on_devices(devices, parts) is bool(ways)
