"""Tables of the decisions about a gang, by its state: the specification of the scheduler."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.binding import reasons
from allaboard.binding.outcomes import Assignment, BindReply, Committed, MembersChanged, Refused, Result
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Hold, Objective, OnMemberLost, Undo
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind, Reason
from allaboard.placement import Plan, Violation, Wrong
from allaboard.planning.answers import Failed, Outdated, Placed, SearchLonger
from allaboard.planning.answers import Refused as NoPlacement
from allaboard.planning.prepared import PreparedGang
from allaboard.planning.search_processes import SearchError
from allaboard.records.partial_bind import Finishing, KeptOpen, Left, PartialBind, Releasing
from allaboard.scheduling.decide import Decision, Release, after_bind, after_search, before_search

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


ABSENT, PARTIAL, WHOLE, LACKS_PODS = a_gang(waiting=4), a_gang(bound=2, waiting=2), a_gang(bound=4), a_gang(bound=2)
HOLD = Hold("BadLabel", "a label is wrong", "labels", None)
FINISHING, OVERDUE = PartialBind(Finishing(NOW + 1), expires=NOW + 60), PartialBind(Finishing(NOW), expires=NOW + 60)
LEFT = PartialBind(Left(), expires=NOW + 60)
KEPT_OPEN, TIMED_OUT = PartialBind(KeptOpen(), expires=NOW + 1), PartialBind(KeptOpen(), expires=NOW)
LOST = reasons.LostSoon(4, 8.0, NOW + 1)


def name_of(decision: Decision) -> str:
    """Return the name of a decision and of its reason; "!" after the decision means that running members are evicted."""
    because = getattr(decision, "because", None)
    force = "!" if isinstance(decision, Release) and decision.force else ""
    return type(decision).__name__ + force + (f" {type(because).__name__}" if because else "")


SEARCH, MEMBERS, HELD, DONE = "Search", "Wait MembersMissing", "Wait Held", "Done"
RELEASE, GIVE_UP, SUSPEND = "Release NotFinished", "Release! NotReplaced", "SuspendJobs NotFinished"
TRIED = replace(TIMED_OUT, was_tried=True)
RELEASED_BEFORE = replace(TIMED_OUT, restarts_at=NOW + 1)
GIVES_UP, SUSPENDS = replace(PARTIAL, on_member_lost=OnMemberLost.RELEASE), replace(PARTIAL, undo=Undo.SUSPEND)


@pytest.mark.parametrize(
    ("gang", "partial", "decision"),
    [
        # absent
        (ABSENT, None, SEARCH),
        (a_gang(waiting=3), None, MEMBERS),
        (replace(ABSENT, hold=HOLD), None, HELD),
        (a_gang(), None, DONE),
        (a_gang(ended=4), None, DONE),
        (replace(a_gang(), hold=HOLD), None, DONE),
        (ABSENT, OVERDUE, SEARCH),
        # partially bound, and being finished until the deadline
        (PARTIAL, FINISHING, SEARCH),
        (LACKS_PODS, FINISHING, MEMBERS),
        (PARTIAL, OVERDUE, RELEASE),
        (PARTIAL, LEFT, RELEASE),  # all members were released
        (ABSENT, LEFT, SEARCH),
        (LACKS_PODS, OVERDUE, RELEASE),
        (replace(PARTIAL, hold=HOLD), OVERDUE, RELEASE),
        (replace(PARTIAL, hold=HOLD), FINISHING, HELD),
        # partially bound, and kept open
        (PARTIAL, KEPT_OPEN, SEARCH),
        (PARTIAL, TIMED_OUT, SEARCH),
        (SUSPENDS, KEPT_OPEN, SEARCH),
        (SUSPENDS, TIMED_OUT, SEARCH),  # capacity may have been freed
        (SUSPENDS, TRIED, SUSPEND),
        (replace(LACKS_PODS, undo=Undo.SUSPEND), TIMED_OUT, SUSPEND),
        (replace(SUSPENDS, hold=HOLD), TIMED_OUT, SUSPEND),
        (SUSPENDS, replace(RELEASED_BEFORE, was_tried=True), SEARCH),
        (SUSPENDS, PartialBind(expires=NOW), SEARCH),  # the gang was whole before: it is healed
        # whole before, with lost members
        (PARTIAL, PartialBind(expires=NOW), SEARCH),
        (GIVES_UP, PartialBind(expires=NOW + 1), SEARCH),
        (GIVES_UP, PartialBind(expires=NOW), SEARCH),
        (GIVES_UP, PartialBind(expires=NOW, was_tried=True), GIVE_UP),
        (replace(LACKS_PODS, on_member_lost=OnMemberLost.RELEASE), PartialBind(expires=NOW), GIVE_UP),
        (GIVES_UP, RELEASED_BEFORE, SEARCH),
        (GIVES_UP, replace(FINISHING, expires=NOW), SEARCH),
        # whole
        (WHOLE, None, DONE),
        (WHOLE, OVERDUE, DONE),
        (a_gang(bound=4, waiting=1), None, SEARCH),
        (replace(WHOLE, hold=HOLD), None, DONE),
        (replace(a_gang(bound=4, waiting=1), hold=HOLD), None, HELD),
    ],
)
def test_the_decision_before_a_search_follows_from_the_gang_and_its_partial_bind(
    gang: Gang, partial: PartialBind | None, decision: str
) -> None:
    assert name_of(before_search(gang, partial, NOW)) == decision


PLAN, UNKNOWN = (cast(Plan, SimpleNamespace(feasible=feasible)) for feasible in (False, None))
REFUSE, SEARCH_LONGER, ROLL_BACK = "Wait NoCapacity", "SearchLonger", "Release NoCapacity"


def refused(gang: Gang, plan: Plan = PLAN) -> NoPlacement:
    return NoPlacement(PreparedGang(gang), plan, None)


@pytest.mark.parametrize(
    ("gang", "partial", "victims_known", "decision"),
    [
        (ABSENT, None, True, REFUSE),
        (ABSENT, None, False, SEARCH_LONGER),
        (PARTIAL, FINISHING, True, ROLL_BACK),
        (PARTIAL, FINISHING, False, ROLL_BACK),
        (PARTIAL, KEPT_OPEN, True, REFUSE),
        (PARTIAL, KEPT_OPEN, False, SEARCH_LONGER),
        (a_gang(bound=4, waiting=1), FINISHING, True, REFUSE),
        (SUSPENDS, TIMED_OUT, True, SUSPEND),
        (SUSPENDS, TIMED_OUT, False, SEARCH_LONGER),
        (SUSPENDS, RELEASED_BEFORE, True, REFUSE),
        (PARTIAL, TIMED_OUT, True, REFUSE),
        (GIVES_UP, PartialBind(expires=NOW), True, GIVE_UP),
        (GIVES_UP, replace(FINISHING, expires=NOW), True, ROLL_BACK),
    ],
)
def test_the_decision_about_a_refused_gang_follows_from_its_partial_bind(
    gang: Gang, partial: PartialBind | None, victims_known: bool, decision: str
) -> None:
    assert name_of(after_search(gang, refused(gang), partial, NOW, victims_known=victims_known)) == decision


def test_a_gang_is_not_released_while_victims_are_being_released_for_it() -> None:
    assert name_of(after_search(SUSPENDS, refused(SUSPENDS), TIMED_OUT, NOW, is_releasing_victims=True)) == REFUSE


def test_each_answer_of_a_search_other_than_a_refusal_leads_to_its_own_decision() -> None:
    gang = PreparedGang(ABSENT)
    answers = {
        "Bind": Placed(gang, PLAN, ()),
        SEARCH_LONGER: SearchLonger(gang, UNKNOWN),
        "LookAgain": Outdated(gang, Refused(MembersChanged(1, 2))),
        "Wait NotBound": Outdated(gang, Refused(Violation(Wrong.BROKEN, reason=Reason(Kind.SEGMENTS, "rack", "a, b")))),
        "Wait SearchFailed": Failed(gang, SearchError("it died")),
    }
    assert [name_of(after_search(gang, answer, None, NOW)) for answer in answers.values()] == list(answers)


def outcome_of(gang: Gang, *, bound: int, result: Result | None = None, in_doubt: str = "") -> Committed:
    """Return an outcome with ``bound`` candidates bound, and with ``result`` for the binds of the other candidates."""
    assignments = [Assignment(pod, "node-1") for pod in gang.candidates]
    failed = tuple((each, BindReply(result, "", in_doubt)) for each in assignments[bound:]) if result else ()
    return Committed(tuple(assignments[:bound]), failed, missing=max(0, gang.missing - bound))


@pytest.mark.parametrize(
    ("gang", "partial", "bound", "result", "in_doubt", "decision"),
    [
        (ABSENT, None, 4, None, "", "Whole"),
        (ABSENT, None, 0, Result.UNANSWERED, "", "Wait NotBound"),
        (ABSENT, None, 0, Result.UNANSWERED, "7", "Wait NotBound"),
        (ABSENT, None, 2, Result.UNANSWERED, "", "Finish NotBound"),
        (ABSENT, None, 2, Result.GONE, "", "Finish NotBound"),
        (ABSENT, None, 2, Result.REFUSED, "", "Release NotBound"),
        (ABSENT, None, 2, Result.GATED, "", "Release NotBound"),
        (ABSENT, None, 2, Result.REFUSED, "7", "Finish NotBound"),  # the member may be bound all the same
        (ABSENT, KEPT_OPEN, 2, Result.UNANSWERED, "", "StayOpen NotBound"),
        (PARTIAL, FINISHING, 2, None, "", "Whole"),
        (PARTIAL, FINISHING, 1, Result.UNANSWERED, "", "Finish NotBound"),
        (PARTIAL, FINISHING, 1, Result.REFUSED, "", "Release NotBound"),
        (PARTIAL, FINISHING, 0, Result.UNANSWERED, "", "Finish NotBound"),
        (PARTIAL, KEPT_OPEN, 1, Result.REFUSED, "", "StayOpen NotBound"),
        (PARTIAL, None, 1, Result.REFUSED, "", "StayOpen NotBound"),
        (PARTIAL, None, 0, Result.UNANSWERED, "7", "StayOpen NotBound"),
        (a_gang(bound=4, waiting=1), None, 0, Result.REFUSED, "", "Whole"),
    ],
)
def test_the_decision_after_the_binds_follows_from_their_answers(
    gang: Gang, partial: PartialBind | None, bound: int, result: Result | None, in_doubt: str, decision: str
) -> None:
    assert name_of(after_bind(gang, outcome_of(gang, bound=bound, result=result, in_doubt=in_doubt), partial)) == decision


def test_a_gang_whose_transaction_is_refused_before_any_bind_waits() -> None:
    assert name_of(after_bind(ABSENT, Refused(MembersChanged(0, 2)), None)) == "Wait NotBound"


TIMES = st.sampled_from([NOW - 1, NOW, NOW + 1])
RESTS = st.none() | st.builds(Finishing, TIMES, st.booleans()) | st.just(KeptOpen()) | st.builds(Left, st.booleans())
PARTIALS = st.none() | st.builds(
    PartialBind,
    RESTS | st.builds(Releasing, RESTS, TIMES),
    expires=st.none() | TIMES,
    restarts_at=TIMES,
)
GANGS = st.builds(
    a_gang,
    bound=st.integers(0, 5),
    waiting=st.integers(0, 5),
    ended=st.integers(0, 2),
    minimum=st.integers(1, 6),
    hold=st.sampled_from([None, HOLD]),
    undo=st.sampled_from(Undo),
    on_member_lost=st.sampled_from(OnMemberLost),
)


@given(GANGS, PARTIALS)
def test_a_gang_is_released_before_a_search_only_if_its_state_and_options_allow_it(gang: Gang, partial: PartialBind | None) -> None:
    decision = name_of(before_search(gang, partial, NOW))
    if decision in (RELEASE, GIVE_UP, SUSPEND):
        assert partial is not None
    if decision == RELEASE:
        assert gang.is_partially_bound
    if decision == GIVE_UP:
        assert gang.on_member_lost is OnMemberLost.RELEASE
    if decision == SUSPEND:
        assert gang.undo is Undo.SUSPEND
        assert partial is not None
        assert partial.is_kept_open


@given(GANGS, PARTIALS)
def test_a_backoff_after_losses_delays_only_the_search_for_a_gang_that_is_not_being_finished(
    gang: Gang, partial: PartialBind | None
) -> None:
    without, within = (name_of(before_search(gang, partial, NOW, lost)) for lost in (None, LOST))
    is_finishing = partial is not None and partial.is_finishing
    assert within == ("Wait LostSoon" if without == SEARCH and not is_finishing else without)


@given(GANGS, PARTIALS)
def test_the_decision_before_a_search_is_justified_by_the_state_of_the_gang(gang: Gang, partial: PartialBind | None) -> None:
    """A gang with candidates is never done, a gang that waits for members lacks pods, and only an invalid gang is held."""
    decision = name_of(before_search(gang, partial, NOW))
    if decision == DONE:
        assert not gang.candidates
    if decision == MEMBERS:
        assert gang.awaits_pods
    assert (decision == HELD) <= (gang.hold is not None)
    if decision == SEARCH:
        assert gang.candidates or gang.missing


@given(GANGS, PARTIALS, st.integers(0, 5), st.sampled_from([None, *Result]), st.sampled_from(["", "7"]))
def test_a_partially_bound_gang_never_counts_as_whole_and_is_never_abandoned(
    gang: Gang, partial: PartialBind | None, bound: int, result: Result | None, in_doubt: str
) -> None:
    outcome = outcome_of(gang, bound=min(bound, len(gang.candidates)), result=result, in_doubt=in_doubt)
    decision = name_of(after_bind(gang, outcome, partial))
    assert (decision == "Whole") is (outcome.missing == 0)
    if decision == "Wait NotBound":
        assert not outcome.bound
        assert not gang.bound
    if decision == "Release NotBound":
        assert partial is None or not partial.is_kept_open
