"""Refused gangs wait for what they lacked, or for room by count."""

from collections import defaultdict
from collections.abc import Sequence

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import GangKey
from allaboard.queueing.unschedulable import Unschedulable
from allaboard.records.record import QueueState
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import ANYTHING, NOTHING, CapacityNeed, WakeUpOn

A, B, C = (GangKey("default", name) for name in "abc")
CPU, GPU, BOTH = (WakeUpOn(frozenset(names)) for names in (["cpu"], ["gpu"], ["cpu", "gpu"]))
FOUR: CapacityNeed = ((SchedulingSpec((("gpu", 1), ("pods", 1))), 4),)


class Scene:
    """Gangs that are parked where so many GPUs are free."""

    def __init__(self, free: int = 0, **wake_on: WakeUpOn) -> None:
        self.free, self.turns = free, defaultdict[GangKey, QueueState](QueueState)
        self.parked = Unschedulable(lambda key: Order(0, True, 2, 0, 0.0, key), self.seats)
        for name, lack in wake_on.items():
            self.park(GangKey("default", name), lack)

    def seats(self, specs: Sequence[SchedulingSpec]) -> Sequence[int]:
        return [self.free // spec.amount("gpu") for spec in specs]

    def park(self, key: GangKey, wake_on: WakeUpOn, need: CapacityNeed | None = None) -> None:
        state = self.turns[key]
        state.need = self.parked.countable(need)
        self.parked.add(key, state, wake_on)

    def woken(self, *freed: str) -> list[GangKey]:
        self.parked.wake(freed or None)
        return list(self.parked.woken(9))


def test_what_comes_free_wakes_those_who_lacked_it_and_those_whom_anything_helps() -> None:
    scene = Scene(a=CPU, b=GPU, c=ANYTHING)
    assert set(scene.woken("gpu")) == {B, C}
    assert set(scene.woken("memory")) == {C}


def test_when_anything_may_have_changed_all_are_woken_once_those_too_who_are_not_known_to_lack_anything() -> None:
    scene = Scene(a=NOTHING, b=BOTH)
    assert scene.woken("cpu", "gpu") == [B]
    assert sorted(scene.woken()) == [A, B]


def test_those_who_are_woken_are_told_a_few_at_a_time() -> None:
    scene = Scene(a=CPU, b=CPU, c=CPU)
    scene.parked.wake(["cpu"])
    assert (list(scene.parked.woken(2)), scene.parked.are_woken) == ([A, B], True)
    assert (list(scene.parked.woken(2)), scene.parked.are_woken) == ([C], False)


def test_a_gang_that_waits_no_more_is_neither_counted_nor_told_though_it_was_woken_before() -> None:
    scene = Scene(a=BOTH, b=CPU)
    scene.parked.wake(["cpu"])
    scene.parked.discard(A, scene.turns[A])
    scene.parked.discard(A, scene.turns[A])
    assert len(scene.parked) == 1
    assert scene.woken("cpu", "gpu") == [B]


def test_a_gang_waits_by_count_only_for_room_that_is_not_there() -> None:
    assert [Scene(free=gpus).parked.countable(FOUR) for gpus in (3, 4)] == [FOUR, None]


def test_whoever_waits_by_count_is_let_in_when_there_is_room_and_not_for_what_it_lacked() -> None:
    scene = Scene(free=3)
    scene.park(A, GPU, FOUR)
    assert scene.woken("gpu") == list(scene.parked.admitted(9)) == []
    scene.free = 4
    assert list(scene.parked.admitted(9)) == []  # nothing is known to have come free since
    scene.parked.wake(["gpu"])
    assert list(scene.parked.admitted(9)) == [A]


def test_seats_that_whoever_was_let_in_left_free_are_counted_once_more_for_the_next() -> None:
    scene = Scene()
    for key in (A, B, C):
        scene.park(key, GPU, FOUR)
    scene.parked.discard(B, scene.turns[B])
    scene.free = 4
    scene.parked.wake(None)
    assert (list(scene.parked.admitted(9)), scene.parked.recount()) == ([A], True)
    assert (list(scene.parked.admitted(9)), scene.parked.recount()) == ([C], True)
    assert not scene.parked.recount()
