"""The possible answers of a planning round about a gang, as values."""

from collections.abc import Sequence
from dataclasses import dataclass

from allaboard.binding.outcomes import Assignment
from allaboard.binding.outcomes import Refused as Unfit
from allaboard.cluster.reservations import Reservation
from allaboard.model.reasons import Cause
from allaboard.placement import Plan
from allaboard.planning.preemption import Preemption
from allaboard.planning.prepared import PreparedGang


@dataclass(frozen=True, slots=True)
class Placed:
    """A gang whose plan is valid now: ``assignments`` were checked against the current state of the cluster and the gang."""

    gang: PreparedGang
    plan: Plan
    assignments: Sequence[Assignment]


@dataclass(frozen=True, slots=True)
class Refused:
    """A gang for which there is no capacity, and the cause.

    ``cause`` is None for a whole gang, of which only surplus members were refused. The plan's ``feasible`` is False if a proof shows that
    no placement exists, and None if the search merely found none. ``reservation`` is the capacity that is kept for the gang, with its
    expected start; None if the gang has no reservation. ``preemption`` has the pods to evict for the gang; None if none are to be evicted.
    """

    gang: PreparedGang
    plan: Plan
    cause: Cause | None
    reservation: Reservation | None = None
    preemption: Preemption | None = None


@dataclass(frozen=True, slots=True)
class SearchLonger:
    """A gang for which a short search found neither a placement nor a proof that there is none.

    ``plan`` is None if that search took too long and was ended.
    """

    gang: PreparedGang
    plan: Plan | None


@dataclass(frozen=True, slots=True)
class Outdated:
    """A gang whose plan is no longer valid, since the gang or the cluster changed during the search; ``unfit`` says why."""

    gang: PreparedGang
    unfit: Unfit


@dataclass(frozen=True, slots=True)
class Failed:
    """A gang whose search failed with a ``SearchError``, or with another exception, which is a defect."""

    gang: PreparedGang
    error: Exception


Answer = Placed | Refused | SearchLonger | Outdated | Failed


def warning_of(answer: Answer) -> str:
    """Return the warning for the gang's user in an answer's plan; empty without a plan or a warning."""
    plan = answer.plan if isinstance(answer, Placed | Refused | SearchLonger) else None
    return plan.warning if plan is not None else ""
