"""Computes the report on a waiting gang as one value, which ``reporter`` publishes in statuses, conditions, events, metrics and the log."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from allaboard.binding import reasons
from allaboard.binding.reasons import Reason
from allaboard.gangs.registry import OVER_LIMIT
from allaboard.model.gang import Gang
from allaboard.model.reasons import Code
from allaboard.placement import SearchReport
from allaboard.records.advice import Advice
from allaboard.report import messages
from allaboard.report.changes import reference_of
from allaboard.report.events import ObjectReference
from allaboard.report.expected import expected_start
from allaboard.report.messages import Refusal


@dataclass(frozen=True, slots=True)
class Waiting:
    """The report on a gang that waits.

    ``of_pods``: the messages of the gang's candidates, by UID. ``topic``: the reason without its numbers; a new topic gets an event.
    ``outcome``: the outcome in the log; empty if nothing is logged. ``result``: the label value of the metrics; empty if nothing is
    counted. ``pods``: the number of pods that are counted with this ``result``. ``pod_reason``: the reason of the condition PodScheduled.
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
    """True if each candidate gets an event ``FailedScheduling``, instead of the PodGroup and the first members."""
    is_of_gang: bool = True
    """True if the gang's PodGroup shows the reason."""
    about: ObjectReference | None = None
    """The object that a user has to fix: it gets an event with the reason ``topic``. None if there is no such object."""
    has_event: bool = True
    """True if a new ``topic`` is reported by events."""
    over_limit: str = ""
    """The name of the limit that the gang exceeds; empty if the gang isn't held for a limit."""
    to_advise: str = ""
    """The message without advice; empty if no advice is to be computed for the gang."""
    search: SearchReport | None = None
    expected_start: float = 0.0
    """When the gang is expected to start, in seconds since the epoch; 0 if that isn't known."""


def waiting_of(gang: Gang, because: Reason, *, advice: Advice | None = None) -> Waiting:
    """Return the report on a gang that waits ``because`` of a reason; a refusal gets the ``advice``, if that is known."""
    if isinstance(because, reasons.NoCapacity) and because.cause is not None:
        refusal = messages.refused(gang, because.plan, because.cause, because.reservation, because.provisioning)
        is_advisable = because.plan.feasible is False and not gang.is_single and because.cause.code is not Code.RESERVED
        waiting = _waiting_for_capacity(gang, refusal, advice if is_advisable else None, because.plan.search)
        if not because.lacks_nodes:
            waiting = replace(waiting, pod_reason=Code.RESERVED)  # capacity exists: no autoscaler has to add nodes for these pods
        elif because.provisioning is not None and because.provisioning.is_being_made:
            waiting = replace(waiting, of_pods={})  # an autoscaler that sees these pods before their annotation adds nodes for each pod
        return replace(waiting, expected_start=expected_start(because.reservation) if because.reservation else 0.0)
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
