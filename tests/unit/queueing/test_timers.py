"""When gangs are looked at again whatever happens."""

from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import GangKey
from allaboard.queueing.timers import Timers
from allaboard.records.record import GangRecords

KEYS = A, B, C = [GangKey("default", name) for name in "abc"]


class Bells:
    """Timers of gang records, whose rings are taken as the queue takes them: whoever has rung is due, and has no moment any more."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.records = GangRecords()
        self.timers = Timers(lambda key: self.records.of(key).queue, lambda: self.now)

    def set(self, key: GangKey, seconds: float) -> None:
        self.timers.set(key, self.records.of(key).queue, self.now + seconds)

    def stop(self, key: GangKey) -> None:
        self.timers.stop(self.records.of(key).queue)

    def rung(self, *, after: float = 0.0) -> list[GangKey]:
        self.now += after
        rung = []
        for key in self.timers.rung():
            self.stop(key)
            rung.append(key)
        return rung


def test_those_whose_moment_has_come_ring_the_earliest_first() -> None:
    bells = Bells()
    for key, seconds in ((A, 2.0), (B, 1.0), (C, 2.5)):
        bells.set(key, seconds)
    assert bells.rung(after=0.5) == []
    assert bells.rung(after=1.5) == [B, A]
    assert bells.rung(after=0.5) == [C]
    assert len(bells.timers) == 0


def test_a_gang_that_is_put_off_does_not_ring_at_its_earlier_moment() -> None:
    bells = Bells()
    bells.set(A, 1.0)
    bells.set(A, 3.0)
    assert len(bells.timers) == 1
    assert bells.rung(after=2.0) == []
    assert bells.timers.seconds == 1.0
    assert bells.rung(after=1.0) == [A]


def test_a_gang_that_is_put_off_and_back_rings_once() -> None:
    bells = Bells()
    for seconds in (1.0, 3.0, 1.0):
        bells.set(A, seconds)
    assert bells.rung(after=5.0) == [A]
    assert bells.timers.seconds is None


SECONDS = st.integers(0, 5)
STEPS = st.tuples(st.sampled_from(["set", "stop", "ring"]), st.sampled_from(KEYS), SECONDS)


@given(st.lists(STEPS, max_size=60))
def test_each_gang_rings_at_the_last_moment_that_it_was_set_to(steps: list[tuple[str, GangKey, int]]) -> None:
    bells, moments = Bells(), dict[GangKey, float]()
    for what, key, seconds in steps:
        if what == "set":
            bells.set(key, seconds)
            moments[key] = bells.now + seconds
        elif what == "stop":
            bells.stop(key)
            moments.pop(key, None)
        else:
            rung = bells.rung(after=seconds)
            assert rung == sorted((key for key in moments if moments[key] <= bells.now), key=lambda key: (moments[key], key))
            moments = {key: when for key, when in moments.items() if when > bells.now}
            assert bells.timers.seconds == min((when - bells.now for when in moments.values()), default=None)
        assert len(bells.timers) == len(moments)
