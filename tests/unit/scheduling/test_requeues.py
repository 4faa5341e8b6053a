"""Tables of how a gang goes back to the queue, by the decision about it: the specification of requeueing."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from allaboard.binding import reasons
from allaboard.binding.outcomes import Assignment, BindReply, Committed, Result
from allaboard.model.gang import Gang, GangKey, Hold, Objective
from allaboard.model.reasons import Cause, Code
from allaboard.placement import Explanation, Plan, Shortage
from allaboard.queueing.requeue import Requeue
from allaboard.records.wake_up import ANYTHING, NOTHING, WakeUpOn
from allaboard.scheduling import requeues
from allaboard.scheduling.requeues import Facts
from tests.unit.placement.clusters import pods

NOW = 1000.0
GANG = Gang(GangKey("default", "g"), 2, tuple(pods("g", 2, {"cpu": 1000})), 0, 0.0, Objective.BINPACK, 60)
PLAN = cast(Plan, SimpleNamespace(explanation=Explanation(1, 2, 0, (), Shortage("cpu", 2000, 0))))
CPU = WakeUpOn(frozenset({"cpu"}))
FACTS = Facts(NOW, next_attempt=NOW + 9, retry_by=NOW + 60)
HELD = reasons.Held(Hold("BadLabel", "a label is wrong"))
MISSING, LOST = reasons.MembersMissing(), reasons.LostSoon(3, 4.0, NOW + 4)
FULL = reasons.NoCapacity(PLAN, Cause(Code.INSUFFICIENT))
FAILED = reasons.SearchFailed("it died")


@pytest.mark.parametrize(
    ("because", "facts", "expected"),
    [
        (HELD, replace(FACTS, next_attempt=None), [Requeue.waiting(NOTHING)]),
        (HELD, FACTS, [Requeue.waiting(NOTHING), Requeue.again(9.0)]),
        (HELD, replace(FACTS, in_grace=True), [Requeue.again(1.0)]),
        (MISSING, replace(FACTS, next_attempt=None), []),
        (MISSING, replace(FACTS, settles_at=NOW - 1, next_report=2.0), [Requeue.again(9.0), Requeue.again(0.0), Requeue.again(2.0)]),
        (LOST, FACTS, [Requeue.waiting(NOTHING, retry_by=NOW + 4), Requeue.again(9.0)]),
        (FULL, FACTS, [Requeue.refused(CPU, retry_by=NOW + 60)]),
        (
            FULL,
            replace(FACTS, wakes_deferred_runs=ANYTHING),
            [Requeue.refused(WakeUpOn(frozenset({"cpu"}), anything=True), retry_by=NOW + 60)],
        ),
        (FAILED, replace(FACTS, pause=7.0), [Requeue.failed(retry_by=NOW, at_least=7.0)]),
        (reasons.Defect(), FACTS, [Requeue.failed(retry_by=NOW)]),
    ],
)
def test_a_waiting_gang_is_requeued_according_to_its_reason(because: reasons.Reason, facts: Facts, expected: list[Requeue]) -> None:
    assert list(requeues.of_wait(GANG, because, facts)) == expected


def bound(*, failed: bool = False, retry_after: float = 0.0) -> Committed:
    """Return an outcome with all members bound; if ``failed``, the bind of a surplus member was refused."""
    assignments = tuple(Assignment(pod, "n") for pod in GANG.members)
    reply = BindReply(Result.REFUSED, "no", retry_after=retry_after)
    return Committed(assignments, ((assignments[0], reply),) if failed else ())


@pytest.mark.parametrize(
    ("outcome", "has_surplus", "was_brief", "expected"),
    [
        (bound(), False, True, [Requeue.settled()]),
        (bound(), True, True, [Requeue.settled(), Requeue.failed(CPU)]),
        (bound(), True, False, [Requeue.settled(), Requeue.now()]),
        (bound(failed=True, retry_after=8.0), True, True, [Requeue.settled(), Requeue.failed(retry_by=NOW, at_least=8.0)]),
    ],
)
def test_a_whole_gang_is_requeued_only_for_its_surplus_members(
    outcome: Committed, has_surplus: bool, was_brief: bool, expected: list[Requeue]
) -> None:
    assert list(requeues.of_whole(GANG, PLAN, outcome, NOW, has_surplus=has_surplus, was_brief=was_brief)) == expected


def test_refused_surplus_members_of_a_whole_gang_count_as_a_failure() -> None:
    """Surplus members that are refused again and again are tried less and less often, since earlier failures are kept."""
    whole = replace(GANG, members=tuple(replace(pod, node_name="n") for pod in GANG.members))
    again = requeues.of_whole(whole, PLAN, bound(failed=True), NOW, has_surplus=False, was_brief=True)
    assert list(again) == [Requeue.failed(retry_by=NOW)]


@pytest.mark.parametrize(
    ("has_released", "is_unfinished", "is_paced", "expected"),
    [
        (True, False, False, Requeue.failed(retry_by=NOW, at_least=3.0)),
        (False, False, False, Requeue.failed(retry_by=NOW, at_least=3.0)),
        (True, True, False, Requeue.again(0.5)),
        (False, False, True, Requeue.resumed(0.5)),
        (True, False, True, Requeue.failed(retry_by=NOW, at_least=3.0)),
        (False, True, True, Requeue.again(0.5)),
    ],
)
def test_a_released_gang_is_requeued_according_to_the_result_of_its_release(
    has_released: bool, is_unfinished: bool, is_paced: bool, expected: Requeue
) -> None:
    facts = Facts(NOW, pause=3.0)
    after = requeues.of_release(facts, has_released=has_released, is_unfinished=is_unfinished, is_paced=is_paced)
    assert list(after) == [expected]


@pytest.mark.parametrize(
    ("retry_after", "expected"),
    [(0.0, Requeue.again(0.5)), (3.0, Requeue.again(3.0, is_hard=True)), (9.0, Requeue.again(5.0, is_hard=True))],
)
def test_a_gang_that_is_being_finished_is_requeued_soon_but_not_before_the_api_server_allows(retry_after: float, expected: Requeue) -> None:
    assert list(requeues.of_finish(bound(failed=True, retry_after=retry_after))) == [expected]
