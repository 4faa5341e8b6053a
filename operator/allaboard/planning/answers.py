"""The answers of a planning round about a gang, as values."""

from collections.abc import Sequence
from dataclasses import dataclass

from allaboard.binding.outcomes import Assignment
from allaboard.binding.outcomes import Refused as Unfit
from allaboard.model.gang import GangKey
from allaboard.model.reasons import Cause
from allaboard.placement import Plan
from allaboard.planning.prepared import PreparedGang


@dataclass(frozen=True, slots=True)
class Placed:
    """A gang whose plan holds now: ``assignments`` were checked against the current state of the cluster and the gang.

    ``is_turn``: the gang is placed in its own queue position, not together with a gang before it. ``overtaken`` are gangs that would fit in
    queue order, and don't because of the gangs that were planned together.
    """

    gang: PreparedGang
    plan: Plan
    assignments: Sequence[Assignment]
    is_turn: bool = True
    overtaken: Sequence[GangKey] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A gang for which there is no capacity, and why; ``cause`` is None for a whole gang, of which only surplus members were refused.

    The plan's ``feasible`` is False if that is proved, None if no placement was found.
    """

    gang: PreparedGang
    plan: Plan
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class SearchLonger:
    """A gang for which a short search found neither a placement nor a proof. ``plan`` is None if the search took too long and was ended."""

    gang: PreparedGang
    plan: Plan | None


@dataclass(frozen=True, slots=True)
class Outdated:
    """A gang whose plan doesn't hold any more, since the gang or the cluster changed during the search."""

    gang: PreparedGang
    unfit: Unfit


@dataclass(frozen=True, slots=True)
class Failed:
    """A gang whose search failed: with a ``SearchError``, or with any other exception, which is a defect."""

    gang: PreparedGang
    error: Exception


Answer = Placed | Refused | SearchLonger | Outdated | Failed


def warning_of(answer: Answer) -> str:
    """Return the warning of the answer's plan for the gang's user; empty if there is none."""
    plan = answer.plan if isinstance(answer, Placed | Refused | SearchLonger) else None
    return plan.warning if plan is not None else ""
