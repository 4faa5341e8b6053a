"""The unschedulable gangs, which wait for resources that they lacked, or until they fit by count."""

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
FOUR = CapacityNeed(((SchedulingSpec((("gpu", 1), ("pods", 1))), 4),))


class Scene:
    """Unschedulable gangs, and ``free`` GPUs."""

    def __init__(self, free: int = 0, **wake_on: WakeUpOn) -> None:
        self.free, self.states = free, defaultdict[GangKey, QueueState](QueueState)
        self.unschedulable = Unschedulable(lambda key: Order(0, True, 2, 0, 0, 0.0, key), self.slots)
        for name, wake_up in wake_on.items():
            self.add(GangKey("default", name), wake_up)

    def slots(self, specs: Sequence[SchedulingSpec], priority: int, walltime: float) -> Sequence[int]:
        return [self.free // spec.amount("gpu") for spec in specs]

    def add(self, key: GangKey, wake_on: WakeUpOn, need: CapacityNeed | None = None) -> None:
        state = self.states[key]
        state.need = self.unschedulable.countable(need)
        self.unschedulable.add(key, state, wake_on)

    def woken(self, *freed: str) -> list[GangKey]:
        self.unschedulable.wake(freed or None)
        return list(self.unschedulable.woken(9))


def test_a_freed_resource_wakes_gangs_that_lack_it_and_gangs_that_any_change_may_help() -> None:
    scene = Scene(a=CPU, b=GPU, c=ANYTHING)
    assert set(scene.woken("gpu")) == {B, C}
    assert set(scene.woken("memory")) == {C}


def test_an_unknown_change_wakes_every_gang_once_even_without_a_known_shortage() -> None:
    scene = Scene(a=NOTHING, b=BOTH)
    assert scene.woken("cpu", "gpu") == [B]
    assert sorted(scene.woken()) == [A, B]


def test_woken_gangs_are_yielded_a_few_at_a_time() -> None:
    scene = Scene(a=CPU, b=CPU, c=CPU)
    scene.unschedulable.wake(["cpu"])
    assert (list(scene.unschedulable.woken(2)), scene.unschedulable.are_woken) == ([A, B], True)
    assert (list(scene.unschedulable.woken(2)), scene.unschedulable.are_woken) == ([C], False)


def test_a_removed_gang_is_neither_counted_nor_yielded_even_if_it_was_woken() -> None:
    scene = Scene(a=BOTH, b=CPU)
    scene.unschedulable.wake(["cpu"])
    scene.unschedulable.discard(A, scene.states[A])
    scene.unschedulable.discard(A, scene.states[A])
    assert len(scene.unschedulable) == 1
    assert scene.woken("cpu", "gpu") == [B]


def test_a_gang_is_on_the_waitlist_only_if_it_does_not_fit_by_count() -> None:
    assert [Scene(free=gpus).unschedulable.countable(FOUR) for gpus in (3, 4)] == [FOUR, None]


def test_a_gang_on_the_waitlist_is_admitted_when_it_fits_and_not_woken_by_resources() -> None:
    scene = Scene(free=3)
    scene.add(A, GPU, FOUR)
    assert scene.woken("gpu") == list(scene.unschedulable.admitted(9)) == []
    scene.free = 4
    assert list(scene.unschedulable.admitted(9)) == []  # nothing was freed since
    scene.unschedulable.wake(["gpu"])
    assert list(scene.unschedulable.admitted(9)) == [A]


def test_capacity_that_an_admitted_gang_left_free_is_counted_again_for_the_next_gang() -> None:
    scene = Scene()
    for key in (A, B, C):
        scene.add(key, GPU, FOUR)
    scene.unschedulable.discard(B, scene.states[B])
    scene.free = 4
    scene.unschedulable.wake(None)
    assert (list(scene.unschedulable.admitted(9)), scene.unschedulable.recount()) == ([A], True)
    assert (list(scene.unschedulable.admitted(9)), scene.unschedulable.recount()) == ([C], True)
    assert not scene.unschedulable.recount()
