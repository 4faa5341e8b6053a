"""Computes the status of a PodGroup, and the condition PodScheduled of a pod, as values. Nothing is written here."""

from collections.abc import Mapping, Sequence
from typing import Any

from allaboard.gangs.phases import Ending
from allaboard.gangs.podgroup import INITIALLY_SCHEDULED
from allaboard.model.errors import one_line
from allaboard.model.gang import Gang
from allaboard.model.reasons import Code
from allaboard.records.report_state import GangStatus
from allaboard.report.messages import summary

Condition = dict[str, Any]


def pod_group_status(
    gang: Gang, phase: str, opinion: GangStatus, current: Mapping[str, Any], now: str, ending: Ending | None = None
) -> dict[str, Any]:
    """Return the whole status of a PodGroup. A condition of ``current`` keeps its ``lastTransitionTime`` unless its status changes.

    ``ending`` has the counts of a gang that has ended, including members whose pods are deleted; None for other gangs.
    """
    living = gang.alive_in_all_runs
    owners = sorted({f"{pod.namespace}/{pod.owner.name if pod.owner else pod.name}" for pod in living})
    status: dict[str, Any] = {
        "phase": phase,
        "occupiedBy": ",".join(owners[:10]),
        "members": len(living),
        "scheduled": len(gang.bound_in_all_runs),
        "running": sum(1 for pod in living if pod.phase == "Running"),
        "succeeded": ending.succeeded if ending else gang.in_phase("Succeeded"),
        "failed": ending.failed if ending else gang.in_phase("Failed"),
        "reason": opinion.code,
        "summary": summary(opinion.short or opinion.message),
        "message": one_line(opinion.message),
        "conditions": _conditions(opinion, gang, current.get("conditions") or (), now),
    }
    started = opinion.started or current.get("scheduleStartTime")
    if started:
        status["scheduleStartTime"] = started
    if opinion.expected_start:
        status["expectedStart"] = opinion.expected_start
    scheduler = gang.scheduler_name or current.get("schedulerName")
    if scheduler:
        status["schedulerName"] = scheduler
    return status


def pod_unscheduled(message: str, now: str, reason: str = "Unschedulable") -> Condition:
    """Return the condition PodScheduled=False, to which autoscalers react if the ``reason`` is ``Unschedulable``."""
    return {"type": "PodScheduled", "status": "False", "reason": reason, "message": one_line(message), "lastTransitionTime": now}


def _conditions(opinion: GangStatus, gang: Gang, current: Sequence[Mapping[str, Any]], now: str) -> list[Condition]:
    """Return the conditions.

    ``PodGroupInitiallyScheduled`` never turns False again, as in scheduler-plugins; all other conditions show the current state.
    """
    # Without a schema the stored conditions may be any JSON value.
    stated = current if isinstance(current, Sequence) else ()
    before = {str(condition.get("type")): condition for condition in stated if isinstance(condition, Mapping)}
    was_scheduled = before.get(INITIALLY_SCHEDULED, {}).get("status") == "True"
    is_scheduled = was_scheduled or bool(opinion.whole_since)
    wanted: list[tuple[str, bool, str, str]] = [
        (
            INITIALLY_SCHEDULED,
            is_scheduled,
            Code.SCHEDULED if is_scheduled else opinion.code,
            "all members that must start together have been bound" if is_scheduled else opinion.message,
        ),
    ]
    partial = gang.is_partially_bound and not opinion.is_being_bound
    if partial or "PartiallyBound" in before:
        bound = f"{len(gang.bound)} of {gang.quorum} members bound"
        text = (opinion.message if bound in opinion.message else f"{bound}: {opinion.message}") if partial else "no longer"
        wanted.append(("PartiallyBound", partial, opinion.code if partial else "Whole", text))
    if opinion.has_timed_out or "Timeout" in before:
        text = f"not scheduled within {gang.timeout_seconds} s: {opinion.message}" if opinion.has_timed_out else "no longer"
        wanted.append(("Timeout", opinion.has_timed_out, "ScheduleTimeout" if opinion.has_timed_out else opinion.code, text))
    times = {INITIALLY_SCHEDULED: opinion.whole_since or now}
    return [_condition(*fields, before.get(fields[0], {}), times.get(fields[0], now)) for fields in wanted]


def _condition(kind: str, is_true: bool, reason: str, message: str, before: Mapping[str, Any], now: str) -> Condition:
    status = "True" if is_true else "False"
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {"type": kind, "status": status, "reason": reason, "message": one_line(message)[:32_000], "lastTransitionTime": since or now}
