"""The place in the queue of gangs that have lost a member."""

from dataclasses import replace

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective, OnMemberLost, Outline
from allaboard.model.pod import Pod
from allaboard.scheduling.queue import order_of, order_of_gone

KEY = GangKey("default", "gang")


def a_pod(name: str, *, promise: int = 0) -> Pod:
    pod = Pod(
        "default", name, f"uid-{name}", "1", 0.0, "allaboard", "node-1" if promise else "", "Pending", 0, SchedulingSpec((("pods", 1),))
    )
    return replace(pod, promise=promise, transaction="a" if promise else "")


def a_gang(*pods: Pod, minimum: int = 3, created: float = 0.0) -> Gang:
    return Gang(KEY, minimum, pods, 0, created, Objective.BINPACK, 60)


HALF = (a_pod("a", promise=3), a_pod("b", promise=3), a_pod("c"))


def test_healing_goes_before_others_of_its_priority_and_passes_no_higher_one() -> None:
    healing, older = a_gang(*HALF, created=10.0), a_gang(a_pod("x"), created=1.0)
    assert order_of(healing) < order_of(older) < order_of(a_gang(a_pod("y"), created=2.0))
    assert order_of(replace(older, priority=1)) < order_of(healing)


def test_healing_goes_before_nobody_whose_namespace_owes_less_search_time() -> None:
    healing, other = a_gang(*HALF, created=1.0), a_gang(a_pod("x"), created=10.0)
    assert order_of(other) < order_of(healing, debt=1) < order_of(other, debt=2)


def test_no_gang_that_we_left_half_bound_passes_a_higher_priority() -> None:
    half, plain = a_gang(*HALF, created=10.0), a_gang(a_pod("x"), created=1.0)
    assert order_of(half, is_first=True) < order_of(plain)
    assert order_of(replace(plain, priority=1)) < order_of(half, is_first=True)


def test_whoever_is_gone_is_forgotten_at_once() -> None:
    assert order_of_gone(KEY) < order_of(replace(a_gang(*HALF), priority=2_147_483_647), is_first=True)


def test_the_outline_of_a_gang_is_never_further_behind_than_the_gang() -> None:
    """Whoever is kept too far in front is looked at again there; nobody looks at who is kept too far behind."""
    waiting, whole = a_gang(a_pod("x"), a_pod("y")), a_gang(*HALF, minimum=2)
    for gang in (waiting, a_gang(*HALF), whole, replace(a_gang(*HALF), on_member_lost=OnMemberLost.IGNORE)):
        outline = Outline(gang.key, gang.priority, gang.created, is_open=bool(gang.bound))
        assert order_of(outline) <= order_of(gang)
    assert order_of(Outline(KEY, waiting.priority, waiting.created)) == order_of(waiting)
