"""What is decided about a gang, by what is known of it: the specification of the scheduler, as a table."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.binding.outcomes import Assignment, BindReply, Committed, MembersChanged, Refused, Result
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Hold, Objective, OnMemberLost, Undo
from allaboard.model.pod import Pod
from allaboard.placement import Plan
from allaboard.records.record import PartialBind
from allaboard.scheduling.decide import Found, Look, Reply, at_look, is_enough, on_plan, on_reply, when_nowhere

NOW = 1000.0
SPEC = SchedulingSpec((("pods", 1),))


def a_pod(number: int, *, is_bound: bool = False, phase: str = "Pending", **fields: Any) -> Pod:
    node_name = "node-1" if is_bound else ""
    pod = Pod("default", f"pod-{number}", f"uid-{number}", "1", 0.0, "allaboard", node_name, phase, 0, SPEC)
    return replace(pod, stamped_min_member=4 if is_bound else 0, transaction="run" if is_bound else "", **fields)


def a_gang(*, bound: int = 0, waiting: int = 0, ended: int = 0, minimum: int = 4, **fields: Any) -> Gang:
    pods = [
        *(a_pod(number, is_bound=True, phase="Running") for number in range(bound)),
        *(a_pod(100 + number) for number in range(waiting)),
        *(a_pod(200 + number, is_bound=True, phase="Succeeded") for number in range(ended)),
    ]
    return Gang(GangKey("default", "gang"), minimum, tuple(pods), 0, 0.0, Objective.BINPACK, 60, **fields)


ABSENT, HALF, WHOLE, LONELY = a_gang(waiting=4), a_gang(bound=2, waiting=2), a_gang(bound=4), a_gang(bound=2)
MENDED = Hold("BadLabel", "a label is wrong", "labels", None)
FINISHING, OVERDUE = PartialBind(deadline=NOW + 1, expires=NOW + 60), PartialBind(deadline=NOW, expires=NOW + 60)
OPEN, TIMED_OUT = PartialBind(is_kept_open=True, expires=NOW + 1), PartialBind(is_kept_open=True, expires=NOW)
TRIED = replace(TIMED_OUT, was_tried=True)
ASKED_ONCE = replace(TIMED_OUT, restarts_at=NOW + 1)
GIVES_UP, SUSPENDS = replace(HALF, on_member_lost=OnMemberLost.RELEASE), replace(HALF, undo=Undo.SUSPEND)


@pytest.mark.parametrize(
    ("gang", "half", "look"),
    [
        # absent
        (ABSENT, None, Look.PLACE),
        (a_gang(waiting=3), None, Look.AWAIT_MEMBERS),
        (replace(ABSENT, hold=MENDED), None, Look.HOLD),
        (a_gang(), None, Look.REST),
        (a_gang(ended=4), None, Look.REST),
        (replace(a_gang(), hold=MENDED), None, Look.REST),
        (ABSENT, OVERDUE, Look.PLACE),
        # half bound, and finished forward while there is time
        (HALF, FINISHING, Look.PLACE),
        (LONELY, FINISHING, Look.AWAIT_MEMBERS),
        (HALF, OVERDUE, Look.UNDO),
        (LONELY, OVERDUE, Look.UNDO),
        (replace(HALF, hold=MENDED), OVERDUE, Look.UNDO),
        (replace(HALF, hold=MENDED), FINISHING, Look.HOLD),
        # half bound, and kept open
        (HALF, OPEN, Look.PLACE),
        (HALF, TIMED_OUT, Look.PLACE),
        (SUSPENDS, OPEN, Look.PLACE),
        (SUSPENDS, TIMED_OUT, Look.PLACE),  # seats may have come free
        (SUSPENDS, TRIED, Look.RESTART_JOBS),
        (replace(LONELY, undo=Undo.SUSPEND), TIMED_OUT, Look.RESTART_JOBS),
        (replace(SUSPENDS, hold=MENDED), TIMED_OUT, Look.RESTART_JOBS),
        (SUSPENDS, replace(ASKED_ONCE, was_tried=True), Look.PLACE),
        (SUSPENDS, PartialBind(expires=NOW), Look.PLACE),  # whole before: it is healed
        # whole before, and has lost members
        (HALF, PartialBind(expires=NOW), Look.PLACE),
        (GIVES_UP, PartialBind(expires=NOW + 1), Look.PLACE),
        (GIVES_UP, PartialBind(expires=NOW), Look.PLACE),
        (GIVES_UP, PartialBind(expires=NOW, was_tried=True), Look.GIVE_UP),
        (replace(LONELY, on_member_lost=OnMemberLost.RELEASE), PartialBind(expires=NOW), Look.GIVE_UP),
        (GIVES_UP, ASKED_ONCE, Look.PLACE),
        (GIVES_UP, replace(FINISHING, expires=NOW), Look.PLACE),
        # whole
        (WHOLE, None, Look.REST),
        (WHOLE, OVERDUE, Look.REST),
        (a_gang(bound=4, waiting=1), None, Look.PLACE),
        (replace(WHOLE, hold=MENDED), None, Look.REST),
        (replace(a_gang(bound=4, waiting=1), hold=MENDED), None, Look.HOLD),
    ],
)
def test_what_a_look_comes_to(gang: Gang, half: PartialBind | None, look: Look) -> None:
    assert at_look(gang, half, NOW) is look


def a_plan(gang: Gang, *, feasible: bool | None, seated: int = 0) -> Plan:
    assignments = tuple((pod.uid, "node-1") for pod in gang.candidates[:seated])
    return cast(Plan, SimpleNamespace(feasible=feasible, assignments=assignments))


@pytest.mark.parametrize(
    ("gang", "feasible", "seated", "half", "found"),
    [
        (ABSENT, True, 4, None, Found.BIND),
        (ABSENT, False, 0, None, Found.MAKE_WAY),
        (ABSENT, None, 0, None, Found.SEARCH_LONGER),
        (HALF, True, 2, FINISHING, Found.BIND),
        (HALF, False, 1, FINISHING, Found.MAKE_WAY),
        (HALF, None, 0, FINISHING, Found.MAKE_WAY),  # it has no time for a longer search
        (HALF, None, 0, OPEN, Found.SEARCH_LONGER),
        (a_gang(bound=4, waiting=1), True, 1, None, Found.BIND),
        (a_gang(bound=4, waiting=1), True, 0, None, Found.MAKE_WAY),
    ],
)
def test_what_a_plan_is_good_for(gang: Gang, feasible: bool | None, seated: int, half: PartialBind | None, found: Found) -> None:
    plan = a_plan(gang, feasible=feasible, seated=seated)
    assert on_plan(gang, plan, half) is found
    assert is_enough(plan) is (found is Found.BIND)


@pytest.mark.parametrize(
    ("gang", "half", "is_settled", "found"),
    [
        (ABSENT, None, True, Found.REFUSE),
        (ABSENT, None, False, Found.SEARCH_LONGER),
        (HALF, FINISHING, True, Found.UNDO),
        (HALF, FINISHING, False, Found.UNDO),
        (HALF, OPEN, True, Found.REFUSE),
        (HALF, OPEN, False, Found.SEARCH_LONGER),
        (a_gang(bound=4, waiting=1), FINISHING, True, Found.REFUSE),
        (SUSPENDS, TIMED_OUT, True, Found.RESTART_JOBS),
        (SUSPENDS, TIMED_OUT, False, Found.SEARCH_LONGER),
        (SUSPENDS, ASKED_ONCE, True, Found.REFUSE),
        (HALF, TIMED_OUT, True, Found.REFUSE),
        (GIVES_UP, PartialBind(expires=NOW), True, Found.GIVE_UP),
        (GIVES_UP, replace(FINISHING, expires=NOW), True, Found.UNDO),
    ],
)
def test_what_is_done_with_whoever_has_no_room(gang: Gang, half: PartialBind | None, is_settled: bool, found: Found) -> None:
    assert when_nowhere(gang, half, NOW, is_settled=is_settled) is found


def test_nobody_is_released_for_whom_another_makes_way() -> None:
    assert when_nowhere(SUSPENDS, TIMED_OUT, NOW, is_settled=True, is_served=True) is Found.REFUSE


def outcome_of(gang: Gang, *, bound: int, result: Result | None = None, in_doubt: str = "") -> Committed:
    """So many of the candidates were bound, and of the others the bind came to ``result``."""
    seats = [Assignment(pod, "node-1") for pod in gang.candidates]
    failed = tuple((seat, BindReply(result, "", in_doubt)) for seat in seats[bound:]) if result else ()
    return Committed(tuple(seats[:bound]), failed, missing=max(0, gang.missing - bound))


@pytest.mark.parametrize(
    ("gang", "half", "bound", "result", "in_doubt", "reply"),
    [
        (ABSENT, None, 4, None, "", Reply.WHOLE),
        (ABSENT, None, 0, Result.UNANSWERED, "", Reply.FAILED),
        (ABSENT, None, 0, Result.UNANSWERED, "7", Reply.FAILED_IN_DOUBT),
        (ABSENT, None, 2, Result.UNANSWERED, "", Reply.FINISH),
        (ABSENT, None, 2, Result.GONE, "", Reply.FINISH),
        (ABSENT, None, 2, Result.REFUSED, "", Reply.UNDO),
        (ABSENT, None, 2, Result.GATED, "", Reply.UNDO),
        (ABSENT, None, 2, Result.REFUSED, "7", Reply.FINISH),  # it may be bound all the same
        (ABSENT, OPEN, 2, Result.UNANSWERED, "", Reply.STAYS_OPEN),
        (HALF, FINISHING, 2, None, "", Reply.WHOLE),
        (HALF, FINISHING, 1, Result.UNANSWERED, "", Reply.FINISH),
        (HALF, FINISHING, 1, Result.REFUSED, "", Reply.UNDO),
        (HALF, FINISHING, 0, Result.UNANSWERED, "", Reply.FINISH),
        (HALF, OPEN, 1, Result.REFUSED, "", Reply.STAYS_OPEN),
        (HALF, None, 1, Result.REFUSED, "", Reply.STAYS_OPEN),
        (HALF, None, 0, Result.UNANSWERED, "7", Reply.STAYS_OPEN),
        (a_gang(bound=4, waiting=1), None, 0, Result.REFUSED, "", Reply.WHOLE),
    ],
)
def test_what_the_answers_make_of_a_gang(
    gang: Gang, half: PartialBind | None, bound: int, result: Result | None, in_doubt: str, reply: Reply
) -> None:
    assert on_reply(gang, outcome_of(gang, bound=bound, result=result, in_doubt=in_doubt), half) is reply


def test_what_was_refused_before_any_bind_has_failed() -> None:
    assert on_reply(ABSENT, Refused(MembersChanged(0, 2)), None) is Reply.FAILED


TIMES = st.sampled_from([NOW - 1, NOW, NOW + 1])
HALVES = st.none() | st.builds(
    PartialBind,
    deadline=st.none() | TIMES,
    is_kept_open=st.booleans(),
    expires=st.none() | TIMES,
    restarts_at=TIMES,
)
GANGS = st.builds(
    a_gang,
    bound=st.integers(0, 5),
    waiting=st.integers(0, 5),
    ended=st.integers(0, 2),
    minimum=st.integers(1, 6),
    hold=st.sampled_from([None, MENDED]),
    undo=st.sampled_from(Undo),
    on_member_lost=st.sampled_from(OnMemberLost),
)


@given(GANGS, HALVES)
def test_no_look_takes_seats_from_a_gang_that_must_keep_them(gang: Gang, half: PartialBind | None) -> None:
    look = at_look(gang, half, NOW)
    if look in (Look.UNDO, Look.GIVE_UP, Look.RESTART_JOBS):
        assert half is not None
    if look is Look.UNDO:
        assert gang.is_open
    if look is Look.GIVE_UP:
        assert gang.on_member_lost is OnMemberLost.RELEASE
    if look is Look.RESTART_JOBS:
        assert gang.undo is Undo.SUSPEND
        assert half is not None
        assert half.is_kept_open


@given(GANGS, HALVES)
def test_only_seats_are_sought_later_in_a_back_off_and_never_those_of_a_gang_that_is_being_finished(
    gang: Gang, half: PartialBind | None
) -> None:
    look, later = at_look(gang, half, NOW), at_look(gang, half, NOW, NOW + 1)
    is_finishing = half is not None and half.is_finishing
    assert later is (Look.BACK_OFF if look is Look.PLACE and not is_finishing else look)
    assert at_look(gang, half, NOW, NOW) is look


@given(GANGS, HALVES)
def test_every_gang_that_waits_has_a_way_out(gang: Gang, half: PartialBind | None) -> None:
    """Nobody who could be placed rests; whoever is told to wait for somebody lacks somebody; and only who must be mended is held."""
    look = at_look(gang, half, NOW)
    if look is Look.REST:
        assert not gang.candidates
    if look is Look.AWAIT_MEMBERS:
        assert gang.awaits_pods
    assert (look is Look.HOLD) <= (gang.hold is not None)
    if look is Look.PLACE:
        assert gang.candidates or gang.missing


@given(GANGS, HALVES, st.integers(0, 5), st.sampled_from([None, *Result]), st.sampled_from(["", "7"]))
def test_a_half_bound_gang_is_never_called_whole_and_never_left(
    gang: Gang, half: PartialBind | None, bound: int, result: Result | None, in_doubt: str
) -> None:
    outcome = outcome_of(gang, bound=min(bound, len(gang.candidates)), result=result, in_doubt=in_doubt)
    reply = on_reply(gang, outcome, half)
    assert (reply is Reply.WHOLE) is (outcome.missing == 0)
    if reply in (Reply.FAILED, Reply.FAILED_IN_DOUBT):
        assert not outcome.bound
        assert not gang.bound
    if reply is Reply.UNDO:
        assert half is None or not half.is_kept_open
