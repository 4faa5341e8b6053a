"""A proof by devices holds: no gang that fits is excluded. And gangs that no devices can hold are excluded, or nearly all of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.placement import Problem, SearchSettings, build_problem, search
from allaboard.placement.solvers.device_patterns import excluded_by_devices
from allaboard.placement.solvers.milp import Finding, solve
from tests.unit.placement.clusters import GPU, node, pods, snapshot

Asked = tuple[int, int, int]
"""The thousandths of one device that a pod asks for, or 0; the whole devices, if no part; and the number of pods."""


def a_problem(devices: Sequence[Sequence[int]], asked: Sequence[Asked], minimum: int = 0) -> Problem:
    width = max(map(len, devices))
    table = np.array([[*each, *[0] * (width - len(each))] for each in devices], dtype=np.int64)
    nodes = [node(f"n{number}", {"cpu": 64_000, GPU: len(each)}) for number, each in enumerate(devices)]
    gang = [
        pod
        for role, (part, whole, number) in enumerate(asked)
        for pod in (pods(f"r{role}", number, {"cpu": 1000 + role, **({} if part else {GPU: whole})}, gpu_share=part))
    ]
    return build_problem(gang, minimum or len(gang), replace(snapshot(nodes), devices=table), objective=Objective.BINPACK)


def most_pods(devices: Sequence[Sequence[int]], asked: Sequence[Asked]) -> int:
    """Return the most pods that fit, found by trying every device or node for each pod."""
    each_pod = [(part, whole) for part, whole, number in asked for _ in range(number)]

    def most(left: tuple[tuple[int, ...], ...], pods_left: Sequence[tuple[int, int]]) -> int:
        if not pods_left:
            return 0
        (part, whole), best = pods_left[0], most(left, pods_left[1:])
        seen = set()
        for number, own in enumerate(left):
            free = sorted(range(len(own)), key=lambda device: -own[device])
            for taken in [free[:whole]] if not part else [[device] for device in range(len(own))]:
                amount = part or 1000
                if len(taken) == (whole if not part else 1) and all(own[device] >= amount for device in taken):
                    after = tuple(sorted(free_now - amount * (device in taken) for device, free_now in enumerate(own)))
                    state = (number, after)
                    if state not in seen:
                        seen.add(state)
                        best = max(best, 1 + most((*left[:number], after, *left[number + 1 :]), pods_left[1:]))
        return best

    return most(tuple(map(tuple, devices)), each_pod)


DEVICES = st.lists(st.lists(st.sampled_from([1000, 1000, 700, 400, 0]), min_size=1, max_size=3), min_size=1, max_size=2)
ASKED = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([600, 500, 400, 300, 200]), st.just(0), st.integers(1, 3)),
        st.tuples(st.just(0), st.integers(1, 2), st.integers(1, 2)),
    ),
    min_size=1,
    max_size=3,
)


@given(devices=DEVICES, asked=ASKED, leave_out=st.integers(0, 2))
def test_no_gang_that_fits_is_excluded_by_its_devices(devices: list[list[int]], asked: list[Asked], leave_out: int) -> None:
    if not any(part for part, _, _ in asked):
        asked = [*asked, (300, 0, 1)]
    total = sum(number for _, _, number in asked)
    minimum = max(1, total - leave_out)
    problem = a_problem(devices, asked, minimum)
    slots = np.minimum(problem.slots, problem.count[:, None])
    is_excluded, fits = excluded_by_devices(problem, slots), most_pods(devices, asked) >= minimum
    event(f"fits: {fits}, excluded: {is_excluded}")
    assert not (is_excluded and fits)
    if is_excluded:
        assert solve(problem).finding is Finding.CANNOT_FIT


@pytest.mark.parametrize(
    ("devices", "asked", "expected"),
    [
        ([[1000] * 2], [(600, 0, 2)], False),
        ([[1000] * 2], [(600, 0, 3)], True),
        ([[1000] * 4] * 2, [(540, 0, 8), (480, 0, 1)], True),  # a part of 480 shares no device with a part of 540
        ([[1000] * 4] * 2, [(540, 0, 7), (480, 0, 2)], False),
        ([[1000] * 2], [(500, 0, 2), (0, 1, 1)], False),
        ([[1000] * 2], [(500, 0, 3), (0, 1, 1)], True),
        ([[700, 400]], [(400, 0, 2)], False),
        ([[700, 300]], [(400, 0, 2)], True),
    ],
)
def test_devices_exclude_gangs_that_their_sum_would_hold(devices: list[list[int]], asked: list[Asked], expected: bool) -> None:
    problem = a_problem(devices, asked)
    assert excluded_by_devices(problem, np.minimum(problem.slots, problem.count[:, None])) is expected
    plan = search(problem, SearchSettings(generations=5), 1)
    assert plan.feasible is (not expected)
    if expected:
        assert plan.search.stopped_by in ("proof", "bound")


def test_too_many_patterns_prove_nothing() -> None:
    asked = [(part, 0, 40) for part in (31, 37, 41, 43, 47)]
    problem = a_problem([[1000] * 4], asked)
    assert not excluded_by_devices(problem, np.minimum(problem.slots, problem.count[:, None]))
