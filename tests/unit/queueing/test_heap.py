"""The heap of gangs whose queue positions change while they are in the heap."""

from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import GangKey
from allaboard.queueing.heap import LazyHeap
from allaboard.records.sort_key import Group, Order, Own

KEYS = [GangKey("default", name) for name in "abcd"]


class Crowd:
    """Gangs in a heap, whose priorities a test changes."""

    def __init__(self) -> None:
        self.depths = dict.fromkeys(KEYS, 0)
        self.heap = LazyHeap(self.place)

    def place(self, key: GangKey) -> Order:
        return Order(self.depths[key], True, 2, 0, 0, 0.0, key)


def pop(heap: LazyHeap) -> GangKey:
    """Remove and return the first gang of ``heap``."""
    key = heap.first().key
    heap.discard(key)
    return key


def test_a_gang_that_ranks_lower_than_at_its_push_is_moved_when_it_is_at_the_top_of_the_heap() -> None:
    crowd = Crowd()
    for key in KEYS[:2]:
        crowd.heap.push(key)
    crowd.depths[KEYS[0]] = 5
    assert [pop(crowd.heap), pop(crowd.heap)] == [KEYS[1], KEYS[0]]


def test_gang_that_has_moved_to_the_front_stays_first_when_another_gang_is_pushed() -> None:
    crowd = Crowd()
    for key in KEYS[:2]:
        crowd.heap.push(key)
    crowd.depths[KEYS[1]] = -5
    crowd.heap.push(KEYS[1])
    assert len(crowd.heap) == 2
    assert [pop(crowd.heap), pop(crowd.heap)] == [KEYS[1], KEYS[0]]
    assert not crowd.heap


STEPS = st.one_of(
    st.tuples(st.just("push"), st.sampled_from(KEYS), st.integers(-3, 3)),
    st.tuples(st.just("discard"), st.sampled_from(KEYS), st.just(0)),
    st.tuples(st.just("fall"), st.sampled_from(KEYS), st.integers(0, 3)),
    st.tuples(st.just("pop"), st.just(KEYS[0]), st.just(0)),
)


def entries(heap: LazyHeap) -> int:
    """Return the number of entries that a heap keeps."""
    return len(heap._fronts) + sum(len(members.heap) for groups in heap._groups.values() for members in groups.values())


@given(st.lists(STEPS, max_size=300))
def test_first_gang_always_has_the_least_queue_position(steps: list[tuple[str, GangKey, int]]) -> None:
    crowd, members = Crowd(), set[GangKey]()
    for step, key, amount in steps:
        if step == "push":
            crowd.depths[key] = amount
            crowd.heap.push(key)
            members.add(key)
        elif step == "fall":
            crowd.depths[key] += amount
        elif step == "discard":
            crowd.heap.discard(key)
            members.discard(key)
        elif members:
            expected = min(map(crowd.place, members)).key
            assert pop(crowd.heap) == expected
            members.discard(expected)
        assert set(crowd.heap.members) == members
        assert entries(crowd.heap) <= 600


class Tenants:
    """Gangs of several namespaces, with their namespace priorities and ages. Each namespace has a search-time usage."""

    def __init__(self, gangs: list[tuple[str, int, int]]) -> None:
        self.gangs = {GangKey(namespace, str(number)): (priority, created) for number, (namespace, priority, created) in enumerate(gangs)}
        self.waiting: set[GangKey] = set()
        self.usages: dict[str, int] = {}
        self.computed = 0

    def place(self, key: GangKey) -> Order:
        """Return a gang's queue position, which is behind the waiting gangs of higher namespace priority."""
        self.computed += 1
        namespace_priority, created = self.gangs[key]
        others = [self.gangs[other] for other in self.waiting if other.namespace == key.namespace]
        behind = [other_created + 0.01 for other_priority, other_created in others if other_priority > namespace_priority]
        since = max([float(created), *behind])
        group = Group(key.namespace, 0, True, heals=False)
        return Order(0, True, 2, self.usages.get(key.namespace, 0), 0, since, key, (group, Own(-namespace_priority, created, key)))


GANGS = st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 2), st.integers(0, 5)), min_size=1, max_size=8)
EVENTS = st.lists(st.tuples(st.sampled_from(["come", "go", "use", "pop"]), st.integers(0, 7), st.integers(0, 2)), max_size=40)


@given(GANGS, EVENTS)
def test_pop_returns_the_first_gang_whenever_usage_levels_or_the_gangs_of_a_namespace_have_changed(
    gangs: list[tuple[str, int, int]], events: list[tuple[str, int, int]]
) -> None:
    tenants = Tenants(gangs)
    heap, keys = LazyHeap(tenants.place), list(tenants.gangs)
    for step, number, usage in events:
        key = keys[number % len(keys)]
        if step == "come":
            tenants.waiting.add(key)
            heap.push(key)
        elif step == "go":
            tenants.waiting.discard(key)
            heap.discard(key)
        elif step == "use":
            tenants.usages[key.namespace] = usage
        if step != "pop":
            heap.promote(key.namespace)
        elif tenants.waiting:
            firsts = [
                min((tenants.place(each).own, each) for each in tenants.waiting if each.namespace == namespace)[1]
                for namespace in {each.namespace for each in tenants.waiting}
            ]
            first = min(firsts, key=tenants.place)
            assert pop(heap) == first
            tenants.waiting.discard(first)
            heap.promote(first.namespace)
        assert set(heap.members) == tenants.waiting


@given(
    st.lists(st.tuples(st.sampled_from(["push", "discard", "first", "promote", "move"]), st.integers(0, 5), st.integers(0, 5)), max_size=60)
)
def test_no_gang_is_lost_when_its_queue_position_changes_without_a_push(steps: list[tuple[str, int, int]]) -> None:
    """A new pod of a gang may be older than the known pods. Then the gang moves to the front of its group."""
    tenants = Tenants([("x", 0, 3)] * 6)
    heap, keys = LazyHeap(tenants.place), list(tenants.gangs)
    members = set[GangKey]()
    for step, number, created in steps:
        key = keys[number]
        if step == "push":
            heap.push(key)
            members.add(key)
        elif step == "discard":
            heap.discard(key)
            members.discard(key)
        elif step == "promote":
            heap.promote("x")
        elif step == "move":
            tenants.gangs[key] = (number % 2, created)
        elif members:
            assert heap.first().key in members
            assert [front.key in members for front in heap.fronts()] == [True]
    assert {pop(heap) for _ in range(len(members))} == members
    assert not heap


def test_promoting_a_namespace_computes_the_queue_position_of_its_first_gang_only() -> None:
    number = 2000
    tenants = Tenants([("x", 0, created) for created in range(number)])
    heap = LazyHeap(tenants.place)
    for key in tenants.gangs:
        heap.push(key)
    tenants.computed = 0
    for change in range(100):
        tenants.usages["x"] = change % 3
        heap.promote("x")
        heap.first()
        assert len(list(heap.fronts())) == 1
    assert tenants.computed <= 400
    for _ in range(number):
        pop(heap)
    assert tenants.computed <= 400 + 3 * number
