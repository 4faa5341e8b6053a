"""Timers of gangs, which ring whatever else happens."""

from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import GangKey
from allaboard.queueing.timers import Timers
from allaboard.records.record import GangRecords

KEYS = A, B, C = [GangKey("default", name) for name in "abc"]


class Bells:
    """Timers of gang records, used as the queue does: a gang that was yielded is due, and has no time any more."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.records = GangRecords()
        self.timers = Timers(lambda key: self.records.of(key).queue, lambda: self.now)

    def set(self, key: GangKey, seconds: float) -> None:
        self.timers.set(key, self.records.of(key).queue, self.now + seconds)

    def stop(self, key: GangKey) -> None:
        self.timers.stop(self.records.of(key).queue)

    def expired(self, *, after: float = 0.0) -> list[GangKey]:
        self.now += after
        expired = []
        for key in self.timers.expired():
            self.stop(key)
            expired.append(key)
        return expired


def test_gangs_whose_time_has_come_are_yielded_the_earliest_first() -> None:
    bells = Bells()
    for key, seconds in ((A, 2.0), (B, 1.0), (C, 2.5)):
        bells.set(key, seconds)
    assert bells.expired(after=0.5) == []
    assert bells.expired(after=1.5) == [B, A]
    assert bells.expired(after=0.5) == [C]
    assert len(bells.timers) == 0


def test_a_gang_whose_timer_is_moved_back_is_not_yielded_at_the_earlier_time() -> None:
    bells = Bells()
    bells.set(A, 1.0)
    bells.set(A, 3.0)
    assert len(bells.timers) == 1
    assert bells.expired(after=2.0) == []
    assert bells.timers.seconds == 1.0
    assert bells.expired(after=1.0) == [A]


def test_a_gang_whose_timer_is_moved_back_and_forth_is_yielded_once() -> None:
    bells = Bells()
    for seconds in (1.0, 3.0, 1.0):
        bells.set(A, seconds)
    assert bells.expired(after=5.0) == [A]
    assert bells.timers.seconds is None


SECONDS = st.integers(0, 5)
STEPS = st.tuples(st.sampled_from(["set", "stop", "ring"]), st.sampled_from(KEYS), SECONDS)


@given(st.lists(STEPS, max_size=60))
def test_each_gang_is_yielded_at_the_last_time_that_was_set(steps: list[tuple[str, GangKey, int]]) -> None:
    bells, moments = Bells(), dict[GangKey, float]()
    for what, key, seconds in steps:
        if what == "set":
            bells.set(key, seconds)
            moments[key] = bells.now + seconds
        elif what == "stop":
            bells.stop(key)
            moments.pop(key, None)
        else:
            expired = bells.expired(after=seconds)
            assert expired == sorted((key for key in moments if moments[key] <= bells.now), key=lambda key: (moments[key], key))
            moments = {key: when for key, when in moments.items() if when > bells.now}
            assert bells.timers.seconds == min((when - bells.now for when in moments.values()), default=None)
        assert len(bells.timers) == len(moments)
