"""What is remembered of gangs."""

from allaboard.model.gang import GangKey
from allaboard.scheduling.docket import Case, Docket, Turn

A, B = GangKey("default", "a"), GangKey("default", "b")


def test_a_case_begins_when_there_is_something_to_remember() -> None:
    docket = Docket()
    assert docket.find(A) is None
    assert docket.case(A) is docket.case(A) is docket.find(A)
    assert docket.case(A) == Case(A)
    assert len(docket) == 1


def test_half_gangs_are_found_among_thousands() -> None:
    docket = Docket()
    docket.case(A)
    half = docket.half(B)
    assert list(docket.halves()) == [(B, half)]
    assert docket.find_half(A) is None
    assert docket.case(B).half is docket.half(B) is half


def test_one_forget_forgets_all() -> None:
    docket = Docket()
    docket.half(A).is_kept_open = True
    case = docket.case(A)
    case.turn.attempts, case.whole_runs, case.was_undone = 3, {"run"}, True
    docket.forget(A)
    docket.forget(A)
    assert not docket.halves()
    assert docket.case(A) == Case(A)
    assert docket.case(A).turn == Turn()


def test_the_time_of_a_half_gang_is_over_when_it_expires() -> None:
    half = Docket().half(A)
    assert not half.has_timed_out(1e9)
    half.expires = 10.0
    assert [half.has_timed_out(now) for now in (9.9, 10.0)] == [False, True]
    assert not half.is_going(0.0)
    half.asked_until = 5.0
    assert half.is_going(4.0)
