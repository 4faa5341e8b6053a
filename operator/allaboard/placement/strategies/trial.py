"""Has a strategy place a gang, and believes nothing that it says.

It is given a copy of the problem, so that whatever it does to it is its own affair. Of its answer only who sits where is looked at; that is
counted again in integers on the problem itself, and the plan is made anew from it. So what comes out is records of ours, as large as the
gang and no larger, however strange the answer.
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
"""Of what is said about a failure; the rest is cut off."""

_MOST_FRAMES = 2000
_OURS = PurePath(__file__).parents[2]


class StrategyError(Exception):
    """A strategy can't place a gang or has placed it wrongly; the message says how, in so few words that they fit in an event."""


def checked_plan(name: str, arguments: Mapping[str, object], problem: Problem, budget: Budget) -> Plan | None:
    """The plan of a strategy; ``None`` if it has found none. Raises ``StrategyError``.

    It is for the caller to end a strategy that doesn't answer: none has to look at its ``budget``.
    """
    plan, cause = None, ""
    try:
        strategy = make_strategy(name, arguments)
        own = deepcopy(problem)
        accepts = strategy.accepts(own)
        if not (isinstance(accepts, bool | np.bool_) and accepts):
            raise StrategyError("it does not accept the gang")
        plan = _believed(name, problem, strategy.place(own, budget))
    except StrategyError as error:
        cause = str(error)
    except KeyboardInterrupt:  # of whoever runs this in a terminal
        raise
    except BaseException as error:  # whatever else it is, a strategy's is none of ours, not even that it wants to end
        cause = f"it raised {type(error).__name__}{_said_by(error)}{_where(error)}"
    if cause:  # here, where nothing of the strategy's hangs on it
        raise StrategyError(" ".join(cause.split())[:_MOST_CHARACTERS])
    return plan


def _believed(name: str, problem: Problem, answer: object) -> Plan | None:
    """The same plan, made by us; ``None`` of an explanation, or of a plan that seats a part only. Raises ``StrategyError``."""
    if isinstance(answer, Explanation) or (isinstance(answer, Plan) and answer.feasible is not True):
        return None
    if not isinstance(answer, Plan):
        raise StrategyError(f"it answered {type(answer).__name__}, which is neither a plan nor an explanation")
    counts = _counted(problem, answer)
    plan = answer_of(problem, counts, name)
    if isinstance(plan, Plan):
        return plan
    raise StrategyError(f"its plan is wrong: {_wrong_with(problem, counts)}")


def _counted(problem: Problem, plan: Plan) -> Integers:
    """How many pods of each role sit on each node: int64[roles, nodes]. Raises ``StrategyError`` if that isn't so many of the gang's."""
    role_of = {uid: role for role, each in enumerate(problem.roles) for uid in each.pods}
    row_of = {name: row for row, name in enumerate(problem.nodes)}
    counts = np.zeros((len(problem.roles), len(problem.nodes)), dtype=np.int64)
    seated: set[str] = set()
    for seat in plan.assignments:
        if not (isinstance(seat, tuple) and len(seat) == 2 and all(type(part) is str for part in seat)):
            raise StrategyError("its plan is wrong: a seat is not a pod's UID and a node's name")
        uid, node = seat
        if uid not in role_of:
            raise StrategyError(f"its plan is wrong: pod {uid!r} is none of the gang's that wait")
        if uid in seated:
            raise StrategyError(f"its plan is wrong: pod {uid} is seated twice")
        if node not in row_of:
            raise StrategyError(f"its plan is wrong: node {node!r} is not there, or takes none of the gang")
        seated.add(uid)
        counts[role_of[uid], row_of[node]] += 1
    return counts


def _wrong_with(problem: Problem, counts: Integers) -> str:
    """The first thing that is wrong with a placement that isn't one."""
    refused = np.argwhere((counts > 0) & ~problem.admits)
    if len(refused):
        role, row = refused[0].tolist()
        return f"node {problem.nodes[row]} does not admit pod {problem.roles[role].pods[0]}"
    over = np.argwhere(np.einsum("rc,rn->cn", problem.demand, counts) > problem.free)
    if len(over):
        column, row = over[0].tolist()
        return f"node {problem.nodes[row]} has too little {problem.columns[column]} for those it is given"
    if (lacking := int(problem.lacking(counts.sum(axis=1)))) > 0:
        return f"it seats {int(counts.sum())}, and {lacking} of those who are needed have no seat"
    if (problem.trimmed(counts[None]) != counts).any():
        return "parts of GPUs don't fit on their devices together"
    return "members who must share a topology domain don't"


def _where(error: BaseException) -> str:
    """The last line of another package that was running; nothing of an error that is raised without one."""
    frames = ((PurePath(frame.f_code.co_filename), line) for frame, line in islice(walk_tb(error.__traceback__), _MOST_FRAMES))
    theirs = [f" ({path.name}:{line})" for path, line in frames if _OURS not in path.parents]
    return theirs[-1][:_MOST_CHARACTERS] if theirs else ""


def _said_by(error: BaseException) -> str:
    """The words of an error, if it has any that can be had."""
    try:
        said = str(error).encode(errors="replace").decode()  # half a surrogate pair can't be sent
    except BaseException:
        return ""
    return f": {said[: _MOST_CHARACTERS - 80]}" if said else ""  # there is where it was to be told yet
