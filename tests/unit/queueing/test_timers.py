"""The timers of gangs, each of which expires at the last time that was set."""

from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import GangKey
from allaboard.queueing.timers import Timers
from allaboard.records.record import GangRecords

KEYS = A, B, C = [GangKey("default", name) for name in "abc"]


class Alarms:
    """The timers of some gangs, and a clock. As in the queue, the timer of a gang is stopped once the gang was yielded as expired."""

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
    alarms = Alarms()
    for key, seconds in ((A, 2.0), (B, 1.0), (C, 2.5)):
        alarms.set(key, seconds)
    assert alarms.expired(after=0.5) == []
    assert alarms.expired(after=1.5) == [B, A]
    assert alarms.expired(after=0.5) == [C]
    assert len(alarms.timers) == 0


def test_a_gang_whose_timer_is_moved_back_is_not_yielded_at_the_earlier_time() -> None:
    alarms = Alarms()
    alarms.set(A, 1.0)
    alarms.set(A, 3.0)
    assert len(alarms.timers) == 1
    assert alarms.expired(after=2.0) == []
    assert alarms.timers.seconds == 1.0
    assert alarms.expired(after=1.0) == [A]


def test_a_gang_whose_timer_is_moved_back_and_forth_is_yielded_once() -> None:
    alarms = Alarms()
    for seconds in (1.0, 3.0, 1.0):
        alarms.set(A, seconds)
    assert alarms.expired(after=5.0) == [A]
    assert alarms.timers.seconds is None


SECONDS = st.integers(0, 5)
STEPS = st.tuples(st.sampled_from(["set", "stop", "expire"]), st.sampled_from(KEYS), SECONDS)


@given(st.lists(STEPS, max_size=60))
def test_each_gang_is_yielded_at_the_last_time_that_was_set(steps: list[tuple[str, GangKey, int]]) -> None:
    alarms, times = Alarms(), dict[GangKey, float]()
    for step, key, seconds in steps:
        if step == "set":
            alarms.set(key, seconds)
            times[key] = alarms.now + seconds
        elif step == "stop":
            alarms.stop(key)
            times.pop(key, None)
        else:
            expired = alarms.expired(after=seconds)
            assert expired == sorted((key for key in times if times[key] <= alarms.now), key=lambda key: (times[key], key))
            times = {key: when for key, when in times.items() if when > alarms.now}
            assert alarms.timers.seconds == min((when - alarms.now for when in times.values()), default=None)
        assert len(alarms.timers) == len(times)
