"""``genius/priority``: an order among a namespace's own gangs, by which nobody else comes later."""

from hypothesis import given
from hypothesis import strategies as st

from allaboard.gangs.registry import GangRegistry
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import GangKey
from allaboard.model.pod import Pod
from allaboard.scheduling.order import order_of

SPEC = SchedulingSpec((("pods", 1),))


def a_pod(namespace: str, name: str, created: float, urgency: int = 0, *, node: str = "", priority: int = 0) -> Pod:
    labels = (("genius/priority", str(urgency)),) if urgency else ()
    return Pod(namespace, name, f"{namespace}-{name}", "1", created, "allaboard", node, "Pending", priority, SPEC, labels=labels)


def order(*pods: Pod) -> list[str]:
    """The gangs of one as they stand in the queue."""
    registry = GangRegistry(["allaboard"])
    for pod in pods:
        registry.observe_pod(None, pod)
    gangs = [gang for gang in registry.gangs() if not gang.bound]
    return [gang.key.name for gang in sorted(gangs, key=lambda gang: order_of(gang, since=registry.since(gang)))]


def test_the_urgent_go_before_their_own_and_nobody_else() -> None:
    assert order(a_pod("x", "a", 1), a_pod("y", "c", 2), a_pod("x", "b", 3, 10)) == ["c", "b", "a"]
    assert order(a_pod("x", "a", 1, 5), a_pod("x", "b", 1, 7), a_pod("x", "c", 0)) == ["b", "a", "c"]


def test_priority_classes_come_first_and_who_sits_holds_nobody_up() -> None:
    assert order(a_pod("x", "a", 1, priority=7), a_pod("x", "b", 2, 10)) == ["a", "b"]
    assert order(a_pod("x", "a", 1), a_pod("x", "b", 2, 10, node="n1"), a_pod("y", "c", 1.5)) == ["a", "c"]


def test_the_urgent_of_one_priority_class_hold_up_none_of_another() -> None:
    assert order(a_pod("x", "a", 1), a_pod("y", "c", 3), a_pod("x", "b", 5, 10, priority=7)) == ["b", "a", "c"]


def test_a_namespace_whose_urgent_gangs_have_gone_stands_as_it_was() -> None:
    registry = GangRegistry(["allaboard"])
    low, high = a_pod("x", "a", 1), a_pod("x", "b", 2, 10)
    for pod in (low, high):
        registry.observe_pod(None, pod)
    gang = registry.gang(GangKey("x", "a", "Pod"))
    assert gang is not None
    assert registry.since(gang) > 2
    assert registry.urgency.changed() == {"x"}
    registry.observe_pod(high, None)
    assert registry.since(gang) == 1
    assert (registry.urgency.changed(), registry.urgency.changed()) == ({"x"}, set())


GANGS = st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 5), st.integers(0, 3)), max_size=8)


@given(GANGS)
def test_within_a_namespace_urgency_decides_and_no_other_gang_comes_later_than_without_it(gangs: list[tuple[str, int, int]]) -> None:
    pods = [a_pod(namespace, f"g{number}", created, urgency) for number, (namespace, created, urgency) in enumerate(gangs)]
    urgencies = {f"g{number}": urgency for number, (_, _, urgency) in enumerate(gangs)}
    spaces = {f"g{number}": namespace for number, (namespace, _, _) in enumerate(gangs)}
    found = order(*pods)
    for namespace in "xy":
        own = [urgencies[name] for name in found if spaces[name] == namespace]
        assert own == sorted(own, reverse=True)
        # Whatever another namespace says, as many of it at most are before a gang as there would be if it said nothing.
        mute = order(
            *(a_pod(pod.namespace, pod.name, pod.created, urgencies[pod.name] if pod.namespace == namespace else 0) for pod in pods)
        )
        for name in (name for name in found if spaces[name] == namespace):
            others = [each for each in found[: found.index(name)] if spaces[each] != namespace]
            assert len(others) <= len([each for each in mute[: mute.index(name)] if spaces[each] != namespace])
