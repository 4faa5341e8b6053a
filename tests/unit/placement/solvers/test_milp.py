"""Tests that the exact solver is right: its placements are valid, and gangs that it refutes can't be placed."""

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.placement import Problem, SearchSettings, build_problem, search
from allaboard.placement.highs import Status
from allaboard.placement.rules.together import Together
from allaboard.placement.solvers import milp
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.milp import Finding, satisfies, solve
from tests.unit.placement.clusters import GI, GPU, cases, node, pods, snapshot
from tests.unit.placement.tight_gang import tight_cluster, tight_gang

OUT_OF_WORK = Status.UNDECIDED

Amounts = tuple[int, int, int]  # cpu in thousandths, memory in bytes, GPUs


def reachable(problem: Problem, admits: np.ndarray) -> set[tuple[int, ...]]:
    """Return all possible combinations of how many pods of each role are placed, counted node by node in Python's integers."""
    roles = range(len(problem.roles))
    demand, count = problem.demand.tolist(), problem.count.tolist()
    found = {(0,) * len(count)}
    for row in range(len(problem.nodes)):
        free = problem.free[:, row].tolist()
        most = [count[role] if admits[role, row] else 0 for role in roles]
        fitting = [
            taken
            for taken in itertools.product(*(range(number + 1) for number in most))
            if all(sum(taken[role] * demand[role][column] for role in roles) <= amount for column, amount in enumerate(free))
        ]
        found = {
            tuple(min(a + b, limit) for a, b, limit in zip(before, taken, count, strict=True)) for before in found for taken in fitting
        }
    return found


def truly_fits(problem: Problem, together: Sequence[Together] = ()) -> bool:
    """Return whether the minimum fits, by trying every domain for each set of roles in ``together``."""
    choices = [sorted(set(group.domains.tolist()) - {-1}) or [-2] for group in together]
    for domains in itertools.product(*choices):
        admits = problem.admits.copy()
        for group, domain in zip(together, domains, strict=True):
            admits[list(group.roles)] &= group.domains == domain
        for placed in reachable(problem, admits):
            if sum(placed) >= problem.minimum and all(np.array(placed) >= problem.least):
                return True
    return False


def check(problem: Problem, together: Sequence[Together] = ()) -> None:
    """Check the solver's answer against brute force."""
    problem = replace(problem, couplings=tuple(together))
    answer = solve(problem)
    expected = Finding.FITS if truly_fits(problem, together) else Finding.CANNOT_FIT
    event(expected)
    assert answer.finding is expected
    assert (answer.counts is not None) == (expected is Finding.FITS)
    if answer.counts is not None:
        assert satisfies(problem, answer.counts)


def a_problem(nodes: Sequence[Amounts], roles: Sequence[tuple[int, Amounts]], minimum: int | None = None) -> Problem:
    cluster = snapshot([node(f"n{number}", {"cpu": cpu, "memory": memory, GPU: gpus}) for number, (cpu, memory, gpus) in enumerate(nodes)])
    gang = [
        pod
        for number, (count, (cpu, memory, gpus)) in enumerate(roles)
        for pod in pods(f"r{number}", count, {"cpu": cpu, "memory": memory, GPU: gpus})
    ]
    return build_problem(gang, len(gang) if minimum is None else minimum, cluster, objective=Objective.BINPACK)


@settings(max_examples=400, deadline=None)
@given(case=cases(most_nodes=4, most_roles=3, most_pods=4), least=st.lists(st.integers(0, 2), min_size=3, max_size=3))
def test_solver_agrees_with_brute_force(case, least) -> None:
    problem = case.problem()
    wanted = np.array(least[: len(problem.roles)], dtype=np.int64) * (case.seed % 3 == 0)
    check(replace(problem, least=wanted))


_TIGHT_NODES = st.lists(st.tuples(st.integers(2, 9), st.integers(2, 9), st.integers(0, 4)), min_size=1, max_size=4)
_TIGHT_ROLES = st.lists(
    st.tuples(st.integers(1, 4), st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))), min_size=2, max_size=3
)


@settings(max_examples=600, deadline=None)
@given(nodes=_TIGHT_NODES, roles=_TIGHT_ROLES)
def test_solver_is_right_about_gangs_that_nearly_fit(nodes, roles) -> None:
    check(a_problem(nodes, roles))


@settings(max_examples=400, deadline=None)
@given(
    nodes=_TIGHT_NODES,
    roles=_TIGHT_ROLES,
    odd=st.lists(st.integers(-2, 2), min_size=8, max_size=8),
    unit=st.sampled_from((1, 1009, GI, 123_456_789, 3 * 2**40 + 1)),
)
def test_solver_is_right_about_amounts_without_a_common_unit(nodes, roles, odd, unit) -> None:
    """Memory is in bytes, a byte more or less than a round number; cpu is in thousandths, and GPUs are counted singly."""
    awkward = [(cpu * 997, max(1, memory * unit + odd[number]), gpus) for number, (cpu, memory, gpus) in enumerate(nodes)]
    wanted = [
        (count, (cpu * 997, max(1, memory * unit + odd[number + 4]), gpus)) for number, (count, (cpu, memory, gpus)) in enumerate(roles)
    ]
    problem = a_problem(awkward, wanted)
    answer = solve(problem)
    fits = truly_fits(problem)
    event(answer.finding)
    # A byte in 3 Ti is less than the tolerance. Then the solver may have no answer, but never a wrong one.
    assert answer.finding in ((Finding.FITS if fits else Finding.CANNOT_FIT), Finding.NOT_FOUND)
    if answer.counts is not None:
        assert satisfies(problem, answer.counts)
    if unit == GI and not any(odd):
        assert answer.finding is not Finding.NOT_FOUND


@settings(max_examples=400, deadline=None)
@given(
    nodes=st.lists(st.tuples(st.integers(2, 9), st.integers(2, 9), st.integers(0, 4)), min_size=2, max_size=5),
    roles=_TIGHT_ROLES,
    racks=st.lists(st.integers(-1, 2), min_size=5, max_size=5),
    shared=st.booleans(),
    spare=st.integers(0, 2),
)
@example([(4, 4, 0), (4, 4, 0)], [(2, (2, 2, 0)), (2, (2, 2, 0))], [0, 0, 0, 0, 0], True, 0)
def test_roles_are_placed_in_one_rack_each_whenever_possible(nodes, roles, racks, shared, spare) -> None:
    """Several roles must each be within one rack, or two of the roles within the same rack (kueue#11953)."""
    problem = a_problem(nodes, roles, max(0, sum(count for count, _ in roles) - spare))
    kept = [int(name[1:]) for name in problem.nodes]
    domains = np.array(racks, dtype=np.int64)[kept]
    all_roles = tuple(range(len(problem.roles)))
    groups = (all_roles[:2], all_roles[2:]) if shared else tuple((role,) for role in all_roles)
    check(problem, [Together("", group, domains) for group in groups if group])


@pytest.mark.parametrize("roles", list(itertools.permutations([(1, (30_000, GI, 0)), (1, (50_000, GI, 0))])))
@pytest.mark.parametrize("sizes", list(itertools.permutations([(53_000, 476 * GI, 0), (31_000, 96 * GI, 0)])))
def test_small_pod_leaves_the_large_node_to_the_large_pod(roles, sizes) -> None:
    """The case is that of volcano#1297."""
    problem = a_problem(sizes, roles)
    assert solve(problem).finding is Finding.FITS
    assert search(problem, SearchSettings(), 0).feasible is True


def test_solver_places_the_tight_gang_and_proves_it_impossible_with_one_more_pod() -> None:
    gang = tight_gang()
    assert solve(build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK)).finding is Finding.FITS
    gang += pods("one-more", 1, {"cpu": 1000, "memory": GI})
    assert solve(build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK)).finding is Finding.CANNOT_FIT


def test_surplus_pods_take_the_capacity_that_is_left() -> None:
    answer = solve(a_problem([(4, 4, 0), (4, 4, 0)], [(3, (2, 2, 0)), (3, (1, 1, 0))], 2))
    assert answer.counts is not None
    assert answer.counts.sum() >= 4


@pytest.mark.parametrize(
    ("devices", "expected"), [((600, 550), Finding.FITS), ((600, 500), Finding.CANNOT_FIT), ((600, 400), Finding.CANNOT_FIT)]
)
def test_shared_gpus_are_counted_device_by_device(devices, expected) -> None:
    """Two shares of 550 fit on one device each, or only in total, or not even in total."""
    cluster = replace(snapshot([node("n", {"cpu": 8000})]), devices=np.array([devices], dtype=np.int64))
    gang = [*pods("a", 1, {"cpu": 1000}, gpu_share=550), *pods("b", 1, {"cpu": 2000}, gpu_share=550)]
    assert solve(build_problem(gang, 2, cluster, objective=Objective.BINPACK)).finding is expected


def test_solver_gives_equal_answers_to_equal_problems() -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK)
    first, second = solve(problem), solve(problem)
    assert first.counts is not None
    assert second.counts is not None
    assert (first.counts == second.counts).all()


def test_solver_that_gives_up_gives_no_verdict() -> None:
    answer = solve(hard_problem(), 0)
    assert answer.finding is Finding.NOT_FOUND
    assert answer.counts is None


def hard_problem() -> Problem:
    """Return a problem whose nodes are equal. To place all pods, each node must take the same number of pods of every role."""
    return a_problem([(100, 100, 0)] * 12, [(24, (31, 17, 0)), (12, (17, 33, 0)), (12, (21, 33, 0))])


def test_solver_writes_nothing_to_stdout_and_stdout_still_works() -> None:
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.unit.placement.solvers.test_milp import a_problem, solve\n"
        "print('before', flush=True)\n"
        "solve(a_problem([(4, 4, 0)], [(1, (2, 2, 0)), (1, (1, 1, 0))]))\n"
        "solve(a_problem([(4, 4, 0)], [(1, (3, 2, 0)), (1, (2, 1, 0))]))\n"
        "print('after')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout == "before\nafter\n"


@pytest.mark.parametrize(
    ("second", "expected"),
    [((Status.INFEASIBLE, None), Finding.CANNOT_FIT), ((OUT_OF_WORK, None), Finding.NOT_FOUND), (None, Finding.FITS)],
)
def test_proof_that_there_is_no_placement_must_be_found_twice(second, expected, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver's first answer is wrong, and its second answer decides. The second answer is ``second``, or its true answer if None."""
    answers = iter([(Status.INFEASIBLE, None), second])
    optimize = milp.optimize
    monkeypatch.setattr(milp, "optimize", lambda *args, **options: next(answers) or optimize(*args, **options))
    answer = solve(a_problem([(4, 4, 0), (4, 4, 0)], [(2, (2, 2, 0)), (2, (2, 2, 0))]))
    assert answer.finding is expected
    assert (answer.counts is not None) == (expected is Finding.FITS)


def test_solver_has_no_more_time_than_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def noted(*_: object, seconds: float, **__: object) -> tuple[Status, None]:
        given.append(seconds)
        return OUT_OF_WORK, None

    monkeypatch.setattr(milp, "optimize", noted)
    problem = a_problem([(8000, 8 * GI, 1)] * 2, [(3, (4000, GI, 0)), (1, (3000, GI, 1))])
    solve(problem, is_patient=True, budget=Budget(seconds=7.0, clock=lambda: 5.0))
    assert set(given) == {7.0}
