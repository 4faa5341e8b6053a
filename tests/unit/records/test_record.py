"""What is remembered of gangs."""

from dataclasses import replace

from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.records.record import Case, Docket, Turn
from tests.unit.placement.clusters import pods

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


def a_run(name: str, *others: str) -> Gang:
    members = {run: tuple(replace(pod, uid=run, node_name="n", transaction=run) for pod in pods("p", 1, {})) for run in (name, *others)}
    rest = tuple(pod for run in others for pod in members[run])
    return Gang(A, 1, members[name], 0, 0.0, Objective.BINPACK, 60, others=rest)


def test_of_the_runs_that_were_whole_those_are_remembered_that_can_still_be_seen() -> None:
    case = Case(A)
    for number in range(64):
        assert case.note_whole(a_run(f"run-{number}"))
        assert not case.note_whole(a_run(f"run-{number}"))
    assert case.note_whole(a_run("another", "run-3"))
    assert case.whole_runs == {"another", "run-3"}
    many = [f"many-{number}" for number in range(100)]
    for name in many:
        case.note_whole(a_run(name, *many))
    assert len(case.whole_runs) == 64
    assert not case.note_whole(a_run("many-99", *many))
