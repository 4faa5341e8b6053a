"""The label ``genius/priority`` orders the gangs of a namespace, and delays no gang of another namespace."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.gangs.namespace_priority import NamespacePriority
from allaboard.gangs.registry import GangRegistry
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import GangKey, Outline
from allaboard.model.pod import Pod
from allaboard.queueing.order import order_of

SPEC = SchedulingSpec((("pods", 1),))


def a_pod(namespace: str, name: str, created: float, namespace_priority: int = 0, *, node: str = "", priority: int = 0) -> Pod:
    labels = (("genius/priority", str(namespace_priority)),) if namespace_priority else ()
    return Pod(namespace, name, f"{namespace}-{name}", "1", created, "allaboard", node, "Pending", priority, SPEC, labels=labels)


def order(*pods: Pod) -> list[str]:
    """Return the names of single pods in queue order."""
    registry = GangRegistry(["allaboard"])
    for pod in pods:
        registry.observe_pod(None, pod)
    gangs = [gang for gang in registry.gangs() if not gang.bound]
    return [gang.key.name for gang in sorted(gangs, key=lambda gang: order_of(gang, since=registry.since(gang)))]


def test_a_higher_namespace_priority_goes_first_in_its_namespace_only() -> None:
    assert order(a_pod("x", "a", 1), a_pod("y", "c", 2), a_pod("x", "b", 3, 10)) == ["c", "b", "a"]
    assert order(a_pod("x", "a", 1, 5), a_pod("x", "b", 1, 7), a_pod("x", "c", 0)) == ["b", "a", "c"]


def test_priority_counts_before_namespace_priority_and_bound_pods_do_not_count() -> None:
    assert order(a_pod("x", "a", 1, priority=7), a_pod("x", "b", 2, 10)) == ["a", "b"]
    assert order(a_pod("x", "a", 1), a_pod("x", "b", 2, 10, node="n1"), a_pod("y", "c", 1.5)) == ["a", "c"]


def test_namespace_priority_counts_only_among_gangs_of_equal_priority() -> None:
    assert order(a_pod("x", "a", 1), a_pod("y", "c", 3), a_pod("x", "b", 5, 10, priority=7)) == ["b", "a", "c"]


def test_gang_has_its_own_age_again_when_the_gang_of_higher_namespace_priority_is_gone() -> None:
    registry = GangRegistry(["allaboard"])
    low, high = a_pod("x", "a", 1), a_pod("x", "b", 2, 10)
    for pod in (low, high):
        registry.observe_pod(None, pod)
    gang = registry.gang(GangKey("x", "a", "Pod"))
    assert gang is not None
    assert registry.since(gang) > 2
    assert registry.namespace_priority.changed() == {"x": {GangKey("x", "b", "Pod")}}
    registry.observe_pod(high, None)
    assert registry.since(gang) == 1
    assert (registry.namespace_priority.changed(), registry.namespace_priority.changed()) == ({"x": set()}, {})


GANGS = st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 5), st.integers(0, 3)), max_size=8)


@given(GANGS)
def test_namespace_priority_orders_a_namespace_and_delays_no_gang_of_another_namespace(gangs: list[tuple[str, int, int]]) -> None:
    pods = [
        a_pod(namespace, f"g{number}", created, namespace_priority) for number, (namespace, created, namespace_priority) in enumerate(gangs)
    ]
    stated = {f"g{number}": namespace_priority for number, (_, _, namespace_priority) in enumerate(gangs)}
    spaces = {f"g{number}": namespace for number, (namespace, _, _) in enumerate(gangs)}
    found = order(*pods)
    for namespace in "xy":
        own = [stated[name] for name in found if spaces[name] == namespace]
        assert own == sorted(own, reverse=True)
        # The labels of the other namespace put none of its gangs before a gang that would be before it without these labels.
        unlabelled = order(
            *(a_pod(pod.namespace, pod.name, pod.created, stated[pod.name] if pod.namespace == namespace else 0) for pod in pods)
        )
        for name in (name for name in found if spaces[name] == namespace):
            others = [each for each in found[: found.index(name)] if spaces[each] != namespace]
            assert len(others) <= len([each for each in unlabelled[: unlabelled.index(name)] if spaces[each] != namespace])


def test_a_gang_has_the_highest_namespace_priority_of_its_waiting_members() -> None:
    registry, key = GangRegistry(["allaboard"]), GangKey("x", "g")
    label = ("pod-group.scheduling.sigs.k8s.io/name", "g")
    members = [replace(pod, labels=(*pod.labels, label)) for pod in (a_pod("x", "a", 1, 3), a_pod("x", "b", 2, 8), a_pod("x", "c", 2, 8))]
    stated = []
    for member in members:
        registry.observe_pod(None, member)
        stated.append(registry.namespace_priority.of(key))
    for member in members[1:]:
        registry.observe_pod(member, replace(member, node_name="n1", resource_version="2"))
        stated.append(registry.namespace_priority.of(key))
    assert stated == [3, 8, 8, 8, 3]
    registry.observe_pod(members[0], None)
    assert registry.namespace_priority.of(key) == 0


class Crowd:
    """Gangs of one namespace. ``reads`` counts how often a gang's priority and age are read."""

    def __init__(self) -> None:
        self.outlines: dict[GangKey, Outline] = {}
        self.reads = 0
        self.namespace_priority = NamespacePriority(self.outline)

    def outline(self, key: GangKey) -> Outline | None:
        self.reads += 1
        return self.outlines.get(key)

    def add(self, pod: Pod) -> None:
        key = GangKey("x", pod.name)
        self.outlines[key] = Outline(key, pod.priority, pod.created)
        self.namespace_priority.add_member(key, pod)
        self.namespace_priority.update(key)

    def remove(self, pod: Pod) -> None:
        key = GangKey("x", pod.name)
        del self.outlines[key]
        self.namespace_priority.remove_member(key, pod)
        self.namespace_priority.update(key)

    def since(self, namespace_priority: int) -> float:
        """Return the effective creation time of a gang that is older than all other gangs and has this namespace priority."""
        key = GangKey("x", "oldest")
        self.add(a_pod("x", "oldest", 0, namespace_priority))
        found = self.namespace_priority.since(self.outlines[key])
        self.remove(a_pod("x", "oldest", 0, namespace_priority))
        return found


CHANGES = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 400), st.integers(0, 20)), max_size=60)


@pytest.mark.parametrize("number", [0, 1, 300])
@given(changes=CHANGES, own=st.integers(0, 400))
def test_gang_counts_as_created_just_after_the_youngest_gang_of_higher_namespace_priority(
    number: int, changes: list[tuple[int, int, int]], own: int
) -> None:
    crowd, waiting, chance = Crowd(), dict[str, Pod](), random.Random(7)
    at_first = [(100 + each, chance.randint(1, 400), chance.randint(0, 20)) for each in range(number)]
    for name, namespace_priority, created in [*at_first, *changes]:
        if (old := waiting.pop(f"g{name}", None)) is not None:
            crowd.remove(old)
        else:
            waiting[f"g{name}"] = a_pod("x", f"g{name}", created, namespace_priority)
            crowd.add(waiting[f"g{name}"])
    last = max((pod.created for pod in waiting.values() if int(dict(pod.labels)["genius/priority"]) > own), default=None)
    since = crowd.since(own)
    assert since == 0 if last is None else last < since < last + 1e-9
    assert own == 0 or since <= crowd.since(own - 1)


def test_time_to_rank_a_gang_does_not_grow_with_the_number_of_gangs_in_its_namespace() -> None:
    crowd, number = Crowd(), 3000
    pods = [a_pod("x", f"g{each}", each, 1 + each) for each in range(number)]
    for pod in pods:
        crowd.add(pod)
        assert crowd.namespace_priority.since(Outline(GangKey("x", "z"), 0, 0.0)) > pod.created
    random.Random(3).shuffle(pods)
    for pod in pods:
        crowd.remove(pod)
        crowd.namespace_priority.since(Outline(GangKey("x", "z"), 0, 0.0))
    assert crowd.reads == number
    assert not crowd.namespace_priority._sorted
    assert not crowd.namespace_priority._stated
