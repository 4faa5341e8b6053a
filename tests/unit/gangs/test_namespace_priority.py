"""``genius/priority``: an order among a namespace's own gangs, by which nobody else comes later."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.gangs.namespace_priority import Urgency
from allaboard.gangs.registry import GangRegistry
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import GangKey, Outline
from allaboard.model.pod import Pod
from allaboard.queueing.order import order_of

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
    assert registry.urgency.changed() == {"x": {GangKey("x", "b", "Pod")}}
    registry.observe_pod(high, None)
    assert registry.since(gang) == 1
    assert (registry.urgency.changed(), registry.urgency.changed()) == ({"x": set()}, {})


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


def test_a_gang_is_as_urgent_as_its_most_urgent_waiting_member() -> None:
    registry, key = GangRegistry(["allaboard"]), GangKey("x", "g")
    label = ("pod-group.scheduling.sigs.k8s.io/name", "g")
    members = [replace(pod, labels=(*pod.labels, label)) for pod in (a_pod("x", "a", 1, 3), a_pod("x", "b", 2, 8), a_pod("x", "c", 2, 8))]
    urgencies = []
    for member in members:
        registry.observe_pod(None, member)
        urgencies.append(registry.urgency.of(key))
    for member in members[1:]:
        registry.observe_pod(member, replace(member, node_name="n1", resource_version="2"))
        urgencies.append(registry.urgency.of(key))
    assert urgencies == [3, 8, 8, 8, 3]
    registry.observe_pod(members[0], None)
    assert registry.urgency.of(key) == 0


class Crowd:
    """Gangs of one namespace, whose urgency and age are looked up."""

    def __init__(self) -> None:
        self.outlines: dict[GangKey, Outline] = {}
        self.looked_up = 0
        self.urgency = Urgency(self.outline)

    def outline(self, key: GangKey) -> Outline | None:
        self.looked_up += 1
        return self.outlines.get(key)

    def come(self, pod: Pod) -> None:
        key = GangKey("x", pod.name)
        self.outlines[key] = Outline(key, pod.priority, pod.created)
        self.urgency.joins(key, pod)
        self.urgency.settle(key)

    def go(self, pod: Pod) -> None:
        key = GangKey("x", pod.name)
        del self.outlines[key]
        self.urgency.leaves(key, pod)
        self.urgency.settle(key)

    def since(self, urgency: int) -> float:
        """Return when a gang of this urgency counts as made that was made before all others."""
        key = GangKey("x", "asks")
        self.come(a_pod("x", "asks", 0, urgency))
        found = self.urgency.since(self.outlines[key])
        self.go(a_pod("x", "asks", 0, urgency))
        return found


CHANGES = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 400), st.integers(0, 20)), max_size=60)


@pytest.mark.parametrize("number", [0, 1, 300])
@given(changes=CHANGES, asked=st.integers(0, 400))
def test_a_gang_counts_as_made_just_after_the_last_that_is_more_urgent(
    number: int, changes: list[tuple[int, int, int]], asked: int
) -> None:
    crowd, waiting, chance = Crowd(), dict[str, Pod](), random.Random(7)
    at_first = [(100 + each, chance.randint(1, 400), chance.randint(0, 20)) for each in range(number)]
    for name, urgency, created in [*at_first, *changes]:
        if (old := waiting.pop(f"g{name}", None)) is not None:
            crowd.go(old)
        else:
            waiting[f"g{name}"] = a_pod("x", f"g{name}", created, urgency)
            crowd.come(waiting[f"g{name}"])
    last = max((pod.created for pod in waiting.values() if int(dict(pod.labels)["genius/priority"]) > asked), default=None)
    since = crowd.since(asked)
    assert since == 0 if last is None else last < since < last + 1e-9
    assert asked == 0 or since <= crowd.since(asked - 1)


def test_what_a_gang_costs_does_not_grow_with_the_gangs_of_its_namespace() -> None:
    crowd, number = Crowd(), 3000
    pods = [a_pod("x", f"g{each}", each, 1 + each) for each in range(number)]
    for pod in pods:
        crowd.come(pod)
        assert crowd.urgency.since(Outline(GangKey("x", "z"), 0, 0.0)) > pod.created
    random.Random(3).shuffle(pods)
    for pod in pods:
        crowd.go(pod)
        crowd.urgency.since(Outline(GangKey("x", "z"), 0, 0.0))
    assert crowd.looked_up == number
    assert not crowd.urgency._levels
    assert not crowd.urgency._stated
