"""Histories are bounded, and equal decisions in a row are one entry."""

from allaboard.model.gang import GangKey
from allaboard.records.history import MOST_DECISIONS, MOST_TRANSITIONS, Decisions, History, Transition


def test_equal_decisions_in_a_row_are_counted_in_one_entry() -> None:
    history = History()
    for at, reason in ((1.0, "NoCapacity"), (2.0, "NoCapacity"), (3.0, "Held"), (4.0, "NoCapacity")):
        history.add(Transition.of(at, "Wait", reason, "no capacity"))
    assert [(each.first_at, each.last_at, each.reason, each.times) for each in history.transitions] == [
        (1.0, 2.0, "NoCapacity", 2),
        (3.0, 3.0, "Held", 1),
        (4.0, 4.0, "NoCapacity", 1),
    ]


def test_oldest_decisions_are_dropped_beyond_a_limit() -> None:
    history, decisions = History(), Decisions()
    for number in range(1000):
        entry = Transition.of(float(number), "Wait", str(number))
        history.add(entry)
        decisions.add(GangKey("default", str(number)), entry)
    assert [each.reason for each in history.transitions] == [str(number) for number in range(1000 - MOST_TRANSITIONS, 1000)]
    assert len(decisions.last()) == MOST_DECISIONS
    assert decisions.last()[-1][0] == GangKey("default", "999")


def test_long_messages_in_the_history_of_decisions_are_cut() -> None:
    assert len(Transition.of(0.0, "Wait", message="x" * 10_000).message) == 256
