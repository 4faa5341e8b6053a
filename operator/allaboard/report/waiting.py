"""What is reported of a waiting gang, as one value: ``reporter`` publishes it to pods, the PodGroup, events, metrics and the log."""

from collections.abc import Mapping
from dataclasses import dataclass

from allaboard.binding import reasons
from allaboard.binding.reasons import Reason
from allaboard.gangs.registry import OVER_LIMIT
from allaboard.model.gang import Gang
from allaboard.model.reasons import Code
from allaboard.placement import SearchReport
from allaboard.records.record import Advice
from allaboard.report import messages
from allaboard.report.changes import reference_of
from allaboard.report.events import ObjectReference
from allaboard.report.messages import Refusal


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a gang waits. ``of_pods`` has the messages of its candidates, by UID; ``topic`` is what makes the reason news.

    ``outcome`` is the word of the log, ``result`` that of the metrics, empty if nothing is counted; ``pods`` are counted with it.
    """

    code: Code
    message: str
    of_pods: Mapping[str, str]
    topic: str
    outcome: str
    result: str = ""
    pods: int = 0
    short: str = ""
    pod_reason: str = "SchedulerError"
    is_pod_event: bool = False
    is_of_gang: bool = True
    """Whether the gang's PodGroup shows the reason."""
    about: ObjectReference | None = None
    """The object to fix, which has an event of its own, with ``topic``; None without one."""
    has_event: bool = True
    """Whether the reason is reported by events, if it is news."""
    over_limit: str = ""
    """The limit that the gang exceeds, if it is held for that."""
    to_advise: str = ""
    """The message without advice, if advice is wanted for it."""
    search: SearchReport | None = None


def waiting_of(gang: Gang, because: Reason, *, times_overtaken: int = 0, advice: Advice | None = None) -> Waiting:
    """Return what is reported of a waiting gang; for capacity with the ``advice`` for its refusal, if known.

    ``times_overtaken`` is how often other gangs were placed before it.
    """
    if isinstance(because, reasons.NoCapacity) and because.cause is not None:
        refusal = messages.refused(gang, because.plan, because.cause, times_overtaken)
        may_be_advised = because.plan.feasible is False and not gang.is_single
        return _waiting_for_capacity(gang, refusal, advice if may_be_advised else None, because.plan.search)
    message = messages.why(gang, because)
    of_pods = {pod.uid: message for pod in gang.candidates}
    match because:
        case reasons.Held(hold):
            about = reference_of(gang) if hold.pod is None else ObjectReference.of_pod(hold.pod)
            limit = hold.field if hold.reason == OVER_LIMIT else ""
            return Waiting(Code.HELD, message, of_pods, hold.reason, "held", about=about, over_limit=limit)
        case reasons.MembersMissing():
            short = messages.members_missing_in_short(gang)
            return Waiting(Code.WAITING, message, of_pods, Code.WAITING, "", short=short, pod_reason=Code.WAITING)
    is_about_gang = bool(gang.missing) and not gang.is_single
    has_failed = not isinstance(because, reasons.LostSoon)
    return Waiting(
        Code.RETRYING,
        message,
        of_pods,
        Code.RETRYING,
        "failed" if has_failed else "backs off",
        result="error" if has_failed else "",
        pods=len(of_pods),
        is_pod_event=not is_about_gang,
        is_of_gang=bool(gang.missing),
    )


def _waiting_for_capacity(gang: Gang, refusal: Refusal, advice: Advice | None, search: SearchReport | None) -> Waiting:
    return Waiting(
        refusal.code,
        messages.with_advice(refusal.message, advice.of(refusal.message) if advice else ""),
        refusal.of_pods,
        refusal.code,
        "refused",
        result="unschedulable",
        pods=len(refusal.of_pods),
        short=refusal.short,
        pod_reason="Unschedulable",
        is_pod_event=gang.is_single,
        to_advise=refusal.message if advice else "",
        search=search,
    )
