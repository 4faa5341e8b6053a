"""Changes of GPU metrics, which wake gangs that are blocked by GPUs and no other gangs."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

from allaboard.model.gpu_inventory import GpuInventory, gpus_of
from allaboard.model.gpus import Measure
from allaboard.model.reasons import Kind, Reason
from allaboard.placement import Explanation, RoleExplanation
from allaboard.queueing.gpu_changes import GpuChanges
from allaboard.queueing.order import wakes_up_on
from allaboard.queueing.requeue import Freed, Requeue
from allaboard.records.wake_up import ANYTHING, GPU_CHANGES, WakeUpOn
from tests.unit.model.gpus import Known, cards_of
from tests.unit.queueing.queues import CPU, A, B, C, a_queue, drain
from tests.unit.scheduling.clocks import Clock

GPU = "nvidia.com/gpu"


def table(*measured: Mapping[Measure, float], model: int = 0) -> GpuInventory | None:
    found = [Known("n", len(measured), {}, [(model, each) for each in measured])]
    return gpus_of([known.node for known in found], cards_of(found))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (table({Measure.FREE: 1000}), table({Measure.FREE: 1000}), set()),
        (table({Measure.FREE: 1000}), table({Measure.FREE: 1010}), set()),
        (table({Measure.FREE: 1000}), table({Measure.FREE: 900}), set()),
        (table({Measure.POWER: 10}), table({Measure.POWER: 90}), set()),
        (table({Measure.FREE: 1000}), table({Measure.FREE: 2000}), {GPU_CHANGES}),
        (table({Measure.FREE: 1000}), table({}), {GPU_CHANGES}),
        (table({}), table({}, model=1), {GPU_CHANGES}),
        (table({Measure.XID: 79}), table({Measure.XID: 0}), {GPU_CHANGES, GPU}),
        (table({Measure.XID: 0}), table({Measure.XID: 79}), {GPU_CHANGES}),
        (None, table({}), {GPU_CHANGES, GPU}),
        (table({}), None, set()),
    ],
)
def test_increased_amounts_of_gpus_give_the_keys_of_the_gangs_to_wake(
    old: GpuInventory | None, new: GpuInventory | None, expected: set[str]
) -> None:
    found = GpuChanges().gained(old, new)
    assert {GPU_CHANGES, GPU} & found == expected


def test_gpu_memory_that_is_freed_in_small_steps_wakes_gangs_even_after_gpu_memory_was_taken() -> None:
    changes, woken = GpuChanges(), []
    free = [1000, 1060, 1063, 1120, 1180, 1184, 600, 640, 664, 680, 700, 728]
    tables = [table({Measure.FREE: each}) for each in free]
    for index, (old, new) in enumerate(pairwise(tables), 1):
        if changes.gained(old, new):
            woken.append(free[index])
    assert woken == [1120, 1184, 664, 728]


def test_a_gang_blocked_by_gpus_waits_for_gpu_changes_alone() -> None:
    def wake_on(*kinds: Kind) -> WakeUpOn:
        role = RoleExplanation(("p",), 1, 0, tuple((Reason(kind, GPU if kind is Kind.INSUFFICIENT else ""), 1) for kind in kinds))
        return wakes_up_on(Explanation(1, 1, 0, (role,), None, 1), ())

    assert wake_on(Kind.GPU_MODEL) == WakeUpOn(frozenset({GPU_CHANGES}))
    assert wake_on(Kind.GPU_MEMORY_EACH, Kind.INSUFFICIENT) == WakeUpOn(frozenset({GPU_CHANGES, GPU}))


def test_gpu_changes_wake_gangs_that_lack_gpus_and_not_gangs_that_any_change_may_help() -> None:
    queue = a_queue(Clock())
    for key, wake_on in ((A, WakeUpOn(frozenset({GPU_CHANGES}))), (B, CPU), (C, ANYTHING)):
        queue.mark(key)
        assert queue.pop() == key
        queue.requeue(key, Requeue.waiting(wake_on), seen=queue.changes)
    queue.observe(Freed([GPU_CHANGES], is_only=True))
    assert drain(queue) == [A]
    queue.observe(Freed())
    assert sorted(drain(queue)) == [B, C]
