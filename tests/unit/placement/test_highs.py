"""Tests that HiGHS is called correctly: its answers agree with those of SciPy, which states its programs in another way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from allaboard.model.arrays import Floats
from allaboard.placement.highs import Matrix, Status, minimize

Program = tuple[Floats, Floats, Floats, Floats, Floats]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Return the cost, the upper bounds, the dense rows, and the least and the greatest value of each row."""
    variables, rows = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    entries = rng.integers(-3, 6, (rows, variables)) * rng.integers(0, 2, (rows, variables))
    low = rng.integers(-5, 12, rows).astype(np.float64)
    high = np.where(rng.random(rows) < 0.5, np.inf, low + rng.integers(0, 4, rows))
    return rng.integers(-4, 9, variables).astype(np.float64), rng.integers(0, 7, variables).astype(np.float64), entries * 1.0, low, high


def sparse(dense: Floats) -> Matrix:
    """Return the matrix with each entry split into two, in a shuffled order."""
    row, column = np.nonzero(dense)
    order = np.random.default_rng(0).permutation(2 * len(row))
    value = np.concatenate([dense[row, column] - 1.0, np.ones(len(row))])
    return Matrix.of(np.tile(row, 2)[order], np.tile(column, 2)[order], value[order], len(dense))


@given(program=programs(), presolve=st.booleans())
def test_whole_numbers_have_the_cost_that_scipy_finds(program: Program, presolve: bool) -> None:
    cost, upper, dense, low, high = program
    found = minimize(cost, upper, sparse(dense), low, high, whole=np.ones(len(cost)), presolve=presolve)
    expected = milp(
        cost, integrality=np.ones(len(cost)), bounds=Bounds(np.zeros(len(cost)), upper), constraints=LinearConstraint(dense, low, high)
    )
    assert (found.status is Status.OPTIMAL) == (expected.status == 0)
    if found.status is Status.OPTIMAL:
        assert found.values is not None
        assert cost @ found.values == pytest.approx(expected.fun)
        assert (dense @ found.values >= low - 1e-6).all()
        assert (dense @ found.values <= high + 1e-6).all()
        assert found.values == pytest.approx(np.rint(found.values))
    else:
        assert (found.status, found.values) == (Status.INFEASIBLE, None)


@given(program=programs())
def test_duals_are_those_that_scipy_finds_if_they_prove_the_least_cost(program: Program) -> None:
    cost, _, dense, low, _ = program
    cost, low, unlimited = np.abs(cost), np.maximum(low, 0.0), np.full(len(cost), np.inf)
    found = minimize(cost, unlimited, sparse(dense), low, np.full(len(low), np.inf))
    expected = linprog(cost, A_ub=-dense, b_ub=-low)
    assert (found.status is Status.OPTIMAL) == (expected.status == 0)
    if found.status is Status.OPTIMAL:
        assert found.duals @ low == pytest.approx(expected.fun)
        assert (found.duals @ dense <= cost + 1e-6).all()


def test_a_solver_without_branches_or_time_is_undecided_and_any_values_will_do_if_asked() -> None:
    rng = np.random.default_rng(5)
    dense, ones = rng.integers(1, 100, (4, 40)).astype(np.float64), np.ones(40)
    half = np.floor(dense.sum(axis=1) / 2)
    cost = rng.random(40)

    def solved(**options: float) -> Status:
        return minimize(cost, ones, sparse(dense), half, half, whole=ones, **options).status  # type: ignore[arg-type]

    assert solved(branches=1) is Status.UNDECIDED
    assert solved(seconds=0.0) is Status.UNDECIDED
    loose = minimize(cost, ones, sparse(dense), half, half + 50.0, whole=ones, is_any=True)
    best = minimize(cost, ones, sparse(dense), half, half + 50.0, whole=ones)
    assert loose.values is not None
    assert best.values is not None
    assert cost @ loose.values > cost @ best.values
