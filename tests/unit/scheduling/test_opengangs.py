"""Which half bound gangs were never whole: the pods tell, and when they don't, the gang was."""

from dataclasses import replace

import pytest

from allaboard.gangs.podgroup import PodGroup, pod_group_from
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Pod, promised_by
from allaboard.scheduling.opengangs import was_cut_off
from allaboard.scheduling.queue import order_of

KEY = GangKey("default", "gang")
BIND = 1000.0


def a_pod(name: str, *, promise: int = 0, created: float = BIND - 10, bound_at: float = BIND) -> Pod:
    node = "node-1" if promise else ""
    spec = SchedulingSpec((("pods", 1),))
    pod = Pod("default", name, f"uid-{name}", "1", created, "allaboard", node, "Pending", 0, spec)
    return replace(pod, promise=promise, bound_at=bound_at if promise else 0.0)


def a_gang(*pods: Pod, minimum: int = 3, created: float = 0.0) -> Gang:
    return Gang(KEY, minimum, pods, 0, created, Objective.BINPACK, 60)


def a_group(whole_since: str) -> PodGroup:
    conditions = [{"type": "PodGroupInitiallyScheduled", "status": "True", "lastTransitionTime": whole_since}]
    return pod_group_from({"metadata": {"name": "gang", "namespace": "default"}, "spec": {}, "status": {"conditions": conditions}})


HALF = (a_pod("a", promise=3), a_pod("b", promise=3), a_pod("c"))


def test_members_that_were_there_at_the_last_bind_and_have_no_seat_were_cut_off() -> None:
    assert was_cut_off(a_gang(*HALF), None)


def test_a_member_that_came_after_the_last_bind_replaces_one_that_was_lost() -> None:
    assert not was_cut_off(a_gang(*HALF[:2], a_pod("c", created=BIND + 5)), None)


@pytest.mark.parametrize(("transaction", "is_cut_off"), [("t1", False), ("t0", True)])
def test_members_that_kubelets_have_rejected_were_bound_with_the_others(transaction: str, is_cut_off: bool) -> None:
    bound = [replace(a_pod(name, promise=3), transaction="t1") for name in "ab"]
    rejected = replace(a_pod("r", promise=3), transaction=transaction, phase="Failed")
    assert was_cut_off(a_gang(*bound, rejected, a_pod("c")), None) is is_cut_off


def test_a_gang_whose_minimum_was_raised_was_not_cut_off() -> None:
    assert not was_cut_off(a_gang(a_pod("a", promise=2), a_pod("b", promise=2), a_pod("c")), None)


def test_a_gang_whose_minimum_was_lowered_owes_the_lower_one() -> None:
    assert not was_cut_off(a_gang(*HALF, minimum=2), None)


@pytest.mark.parametrize(("whole_since", "expected"), [("1970-01-01T00:16:45Z", False), ("1970-01-01T00:10:00Z", True), ("rubbish", True)])
def test_a_pod_group_that_was_whole_says_so_unless_that_was_an_earlier_run(whole_since: str, expected: bool) -> None:
    assert was_cut_off(a_gang(*HALF), a_group(whole_since)) is expected


@pytest.mark.parametrize(
    ("stamp", "promise"),
    [
        ("0123456789ab/4", 4),
        ("a/1", 1),
        ("a/0", 0),
        ("a/-1", 0),
        ("a/01", 0),
        ("a/1000000000", 0),
        ("/4", 0),
        ("a", 0),
        ("", 0),
        (None, 0),
        ("a/٣", 0),
    ],
)
def test_only_a_stamp_of_ours_promises_anything(stamp: str | None, promise: int) -> None:
    assert promised_by(stamp) == promise


def test_healing_goes_before_others_of_its_priority_and_passes_no_higher_one() -> None:
    healing, older = a_gang(*HALF, created=10.0), a_gang(a_pod("x"), created=1.0)
    assert order_of(healing) < order_of(older) < order_of(a_gang(a_pod("y"), created=2.0))
    assert order_of(replace(older, priority=1)) < order_of(healing)
