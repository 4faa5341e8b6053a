"""Let a strategy place a gang, and check its answer.

The strategy gets a copy of the problem, so changes that it makes have no effect. Only the assignments of its answer are read. These
assignments are counted in integers on the original problem, and a new plan is made from the counts. So the result consists of this
package's own records and is no larger than the gang, whatever the strategy answers.
"""

from collections.abc import Mapping
from copy import deepcopy
from itertools import islice
from pathlib import PurePath
from traceback import walk_tb

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.plan import Explanation, Plan
from allaboard.placement.problem.problem import Problem
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.strategies.named import make_strategy
from allaboard.placement.strategies.strategy import answer_of

_MOST_CHARACTERS = 200
"""The longest message about a failure, in characters; the rest is cut off."""

_MOST_FRAMES = 2000
_ALLABOARD = PurePath(__file__).parents[2]


class StrategyError(Exception):
    """Raised if a strategy can't place a gang, or if its plan is wrong.

    The message gives the reason, and is short enough for an event.
    """


def checked_plan(name: str, arguments: Mapping[str, object], problem: Problem, budget: Budget) -> Plan | None:
    """Return the checked plan of a strategy; ``None`` if the strategy finds none. Raises ``StrategyError``.

    A strategy may ignore ``budget``, so the caller has to end a strategy that doesn't answer.
    """
    plan, cause = None, ""
    try:
        strategy = make_strategy(name, arguments)
        own = deepcopy(problem)
        accepts = strategy.accepts(own)
        if not (isinstance(accepts, bool | np.bool_) and accepts):
            raise StrategyError("it does not accept the gang")
        plan = _checked(name, problem, strategy.place(own, budget))
    except StrategyError as error:
        cause = str(error)
    except KeyboardInterrupt:  # from the user of a terminal
        raise
    except BaseException as error:  # a strategy must not end this process, not even by SystemExit
        cause = f"it raised {type(error).__name__}{_text_of(error)}{_line_of(error)}"
    if cause:  # raised here, so that no error of the strategy is its context
        raise StrategyError(" ".join(cause.split())[:_MOST_CHARACTERS])
    return plan


def _checked(name: str, problem: Problem, answer: object) -> Plan | None:
    """Return a new plan with the assignments of ``answer``, once they are checked. Raises ``StrategyError``.

    ``None`` if ``answer`` is an explanation, or a plan that isn't feasible.
    """
    if isinstance(answer, Explanation) or (isinstance(answer, Plan) and answer.feasible is not True):
        return None
    if not isinstance(answer, Plan):
        raise StrategyError(f"it answered {type(answer).__name__}, which is neither a plan nor an explanation")
    counts = _counts_of(problem, answer)
    plan = answer_of(problem, counts, name)
    if isinstance(plan, Plan):
        return plan
    raise StrategyError(f"its plan is wrong: {_violation_of(problem, counts)}")


def _counts_of(problem: Problem, plan: Plan) -> Integers:
    """Return how many pods of each role the plan assigns to each node: int64[roles, nodes].

    Raises ``StrategyError`` if an assignment isn't of a pod of the gang to a node of the problem, or a pod is assigned twice.
    """
    role_of = {uid: role for role, each in enumerate(problem.roles) for uid in each.pods}
    row_of = {name: row for row, name in enumerate(problem.nodes)}
    counts = np.zeros((len(problem.roles), len(problem.nodes)), dtype=np.int64)
    assigned: set[str] = set()
    for assignment in plan.assignments:
        if not (isinstance(assignment, tuple) and len(assignment) == 2 and all(type(part) is str for part in assignment)):
            raise StrategyError("its plan is wrong: an assignment is not a pod's UID and a node's name")
        uid, node = assignment
        if uid not in role_of:
            raise StrategyError(f"its plan is wrong: pod {uid!r} is no waiting member of the gang")
        if uid in assigned:
            raise StrategyError(f"its plan is wrong: pod {uid} is assigned twice")
        if node not in row_of:
            raise StrategyError(f"its plan is wrong: node {node!r} does not exist, or can take no member")
        assigned.add(uid)
        counts[role_of[uid], row_of[node]] += 1
    return counts


def _violation_of(problem: Problem, counts: Integers) -> str:
    """Return the first thing that is wrong with ``counts``, a placement that isn't valid."""
    refused = np.argwhere((counts > 0) & ~problem.admits)
    if len(refused):
        role, row = refused[0].tolist()
        return f"node {problem.nodes[row]} does not admit pod {problem.roles[role].pods[0]}"
    over = np.argwhere(np.einsum("rc,rn->cn", problem.demand, counts) > problem.free)
    if len(over):
        column, row = over[0].tolist()
        return f"node {problem.nodes[row]} has too little {problem.columns[column]} for the pods assigned to it"
    if (lacking := int(problem.lacking(counts.sum(axis=1)))) > 0:
        return f"it assigns {int(counts.sum())} pods, but the gang needs {lacking} more"
    if (problem.trimmed(counts[None]) != counts).any():
        return "parts of GPUs don't fit on their devices together"
    return "members that must share a topology domain don't"


def _line_of(error: BaseException) -> str:
    """Return the last line outside of Allaboard in the traceback of ``error``, as `` (file:line)``; empty if there is none."""
    frames = ((PurePath(frame.f_code.co_filename), line) for frame, line in islice(walk_tb(error.__traceback__), _MOST_FRAMES))
    lines = [f" ({path.name}:{line})" for path, line in frames if _ALLABOARD not in path.parents]
    return lines[-1][:_MOST_CHARACTERS] if lines else ""


def _text_of(error: BaseException) -> str:
    """Return the message of an error after a colon; empty if the error has none, or making it fails."""
    try:
        text = str(error).encode(errors="replace").decode()  # half a surrogate pair can't be encoded
    except BaseException:
        return ""
    return f": {text[: _MOST_CHARACTERS - 80]}" if text else ""  # leaves space for the line
