"""Run HiGHS, a solver of linear and mixed-integer linear programs (Huangfu and Hall 2018), on one processor.

HiGHS is used by its own package instead of by SciPy's: SciPy takes ten times the memory and the time to import.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import NamedTuple, Self

import highspy
import numpy as np

from allaboard.model.arrays import Floats, Integers

_ANY_GAP = 1e9
_MOST_BRANCHES = 2**31 - 1
_ROWWISE, _MINIMIZE = 2, 1  # HiGHS' constants, as integers, which ``passModel`` expects.


class Status(Enum):
    """The end of a run: with values of the least cost, with a proof that no values hold all rows, or without either."""

    OPTIMAL = auto()
    INFEASIBLE = auto()
    UNDECIDED = auto()


class Matrix(NamedTuple):
    """A sparse matrix by rows: the entries of row i are those from ``start[i]`` to ``start[i + 1]``."""

    start: Integers
    column: Integers
    value: Floats

    @classmethod
    def of(cls, row: Integers, column: Integers, value: Floats, rows: int) -> Self:
        """Return the matrix of entries in any order; entries at one place are added up."""
        order = np.lexsort((column, row))
        row, column, value = row[order], column[order], value[order]
        is_first = np.ones(len(row), dtype=bool)
        is_first[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
        first = np.flatnonzero(is_first)
        added: Floats = np.add.reduceat(value, first) if len(first) else value
        return cls(np.searchsorted(row[first], np.arange(rows + 1)), column[first], added)


class Solution(NamedTuple):
    """The result of a run. ``values``: float64[variables], None if none are known. ``duals``: float64[rows], of linear programs.

    A dual is what the cost would grow by if the limit of its row grew by one.
    """

    status: Status
    values: Floats | None
    duals: Floats


def minimize(
    cost: Floats,
    upper: Floats,
    matrix: Matrix,
    low: Floats,
    high: Floats,
    *,
    whole: Floats | None = None,
    branches: int = _MOST_BRANCHES,
    presolve: bool = True,
    seconds: float = np.inf,
    is_any: bool = False,
) -> Solution:
    """Choose values of variables at the least ``cost``, so that each row of ``matrix`` is between ``low`` and ``high``.

    A value is between 0 and ``upper``. ``whole``: 1 for each variable that must be a whole number; None if none must be. ``branches``:
    the most branches. ``seconds``: the most time. ``is_any``: the first values that the solver finds will do.
    """
    integrality = np.zeros(len(cost)) if whole is None else whole
    rows = (_ROWWISE, _MINIMIZE, 0.0, cost, np.zeros(len(cost)), upper, low, high)
    with _silent():
        solver = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy is partly typed
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("parallel", "off"),
            ("presolve", "on" if presolve else "off"),
            ("mip_max_nodes", min(branches, _MOST_BRANCHES)),
            ("mip_rel_gap", _ANY_GAP if is_any else 0.0),
            ("time_limit", max(0.0, seconds)),
        ):
            solver.setOptionValue(option, value)
        solver.passModel(
            len(cost), len(low), len(matrix.value), *rows, matrix.start, matrix.column, matrix.value, integrality.astype(np.int32)
        )
        solver.run()
        ended, solution = solver.getModelStatus(), solver.getSolution()
        has_values = solver.getInfo().primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    statuses = {highspy.HighsModelStatus.kOptimal: Status.OPTIMAL, highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE}
    values = np.array(solution.col_value) if has_values and solution.value_valid else None
    return Solution(statuses.get(ended, Status.UNDECIDED), values, np.array(solution.row_dual))


@contextmanager
def _silent() -> Iterator[None]:
    """Discard what is written to file descriptor 1 within the block.

    HiGHS is C++ and writes to this descriptor, stdout. Only our own output may appear there, since other programs read it.
    """
    try:
        kept = os.dup(1)
    except OSError:  # there is no stdout
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        yield
    finally:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)  # else the C library would write its buffer later
        os.dup2(kept, 1)
        os.close(kept)
        os.close(null)
