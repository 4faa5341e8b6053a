"""The states of a partially bound gang, and the events that change them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.records.partial_bind import (
    FORWARD_SECONDS,
    RELEASING_SECONDS,
    Event,
    Finishing,
    KeptOpen,
    Leaving,
    Left,
    PartialBind,
    Releasing,
    State,
    transition,
)

NOW = 1000.0
FINISHING, RENEWED = Finishing(NOW + 1), Finishing(NOW + 1, is_renewed=True)
FORWARD = NOW + FORWARD_SECONDS


def releasing(before: Finishing | KeptOpen | Left | None) -> Releasing:
    return Releasing(before, NOW + RELEASING_SECONDS)


@pytest.mark.parametrize(
    ("state", "event", "after"),
    [
        (None, Event.LEFT_IN_PART, Finishing(FORWARD)),
        (FINISHING, Event.LEFT_IN_PART, FINISHING),
        (KeptOpen(), Event.LEFT_IN_PART, KeptOpen()),
        (Left(), Event.LEFT_IN_PART, Left()),
        (FINISHING, Event.INHERITED, Finishing(FORWARD)),
        (FINISHING, Event.ANSWERED, Finishing(FORWARD, is_renewed=True)),
        (RENEWED, Event.ANSWERED, RENEWED),  # extended once only
        (Left(), Event.ANSWERED, Finishing(FORWARD, is_renewed=True)),
        (KeptOpen(), Event.ANSWERED, KeptOpen()),
        (None, Event.ANSWERED, None),
        (FINISHING, Event.SEEN_CLOSED, None),
        (Left(), Event.SEEN_CLOSED, None),
        (KeptOpen(), Event.SEEN_CLOSED, KeptOpen()),
        (KeptOpen(), Event.CLOSED, None),
        (RENEWED, Event.RELEASE_BEGAN, releasing(RENEWED)),
        (releasing(KeptOpen()), Event.RELEASE_BEGAN, releasing(KeptOpen())),
        (releasing(RENEWED), Event.RELEASE_FAILED, RENEWED),
        (releasing(RENEWED), Event.RELEASE_UNFINISHED, Finishing(NOW, is_renewed=True)),
        (releasing(RENEWED), Event.ALL_RELEASED, Left(is_renewed=True)),
        (releasing(FINISHING), Event.SOME_KEPT, KeptOpen()),
    ],
)
def test_each_event_of_a_partially_bound_gang_leads_to_one_state(state: State, event: Event, after: State) -> None:
    assert transition(state, event, NOW) == after


RESTS = st.none() | st.builds(Finishing, st.sampled_from([NOW - 1, NOW, NOW + 1]), st.booleans()) | st.just(KeptOpen()) | st.builds(Left)
STATES = RESTS | st.builds(Releasing, RESTS, st.sampled_from([NOW - 1, NOW + 1]))


@given(STATES, st.lists(st.sampled_from(Event), max_size=20))
def test_the_deadline_to_finish_a_gang_is_extended_once_at_most_and_a_closed_partial_bind_has_no_state(
    state: State, events: list[Event]
) -> None:
    renewals, was_renewed = 0, True
    for event in events:
        before, state = state, transition(state, event, NOW)
        rest = state.before if isinstance(state, Releasing) else state
        is_renewed = isinstance(rest, Finishing | Left) and rest.is_renewed
        renewals = renewals + (is_renewed and not was_renewed) if rest is not None else 0
        was_renewed = is_renewed
        if event is Event.CLOSED:
            assert state is None
        if event is Event.RELEASE_BEGAN:
            assert isinstance(state, Releasing)
        if isinstance(before, KeptOpen) and event in (Event.LEFT_IN_PART, Event.ANSWERED, Event.SEEN_CLOSED):
            assert state == before


def test_release_that_takes_too_long_no_longer_counts_as_in_progress() -> None:
    partial_bind = PartialBind(KeptOpen())
    partial_bind.move(Event.RELEASE_BEGAN, NOW)
    assert partial_bind.is_kept_open
    assert [partial_bind.is_releasing(NOW + seconds) for seconds in (0.0, 9.9, 10.0)] == [True, True, False]


def test_a_gang_whose_members_were_released_is_released_again_if_a_member_turns_out_to_be_bound() -> None:
    partial_bind = PartialBind(Finishing(NOW + 5))
    assert not partial_bind.is_overdue(NOW)
    partial_bind.move(Event.ALL_RELEASED, NOW)
    assert partial_bind.is_overdue(NOW)
    assert partial_bind.is_finishing


def test_partial_bind_that_is_closed_forgets_its_state_and_still_knows_which_released_members_are_leaving() -> None:
    leaving = Leaving((), NOW + 9)
    partial_bind = PartialBind(KeptOpen(), NOW, was_tried=True, restarts_at=NOW, leaving=leaving, no_victim_until=NOW + 1)
    partial_bind.close(NOW)
    assert partial_bind == PartialBind(leaving=leaving, no_victim_until=NOW + 1)
    assert partial_bind.restarts_at == -math.inf
