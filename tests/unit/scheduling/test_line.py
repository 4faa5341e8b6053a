"""A line whose members' places change while they are in it."""

from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import GangKey
from allaboard.scheduling.line import Line
from allaboard.scheduling.order import Order

KEYS = [GangKey("default", name) for name in "abcd"]


class Crowd:
    def __init__(self) -> None:
        self.depths = dict.fromkeys(KEYS, 0)
        self.line = Line(self.place)

    def place(self, key: GangKey) -> Order:
        return Order(self.depths[key], True, 2, 0, 0.0, key)


def test_who_is_further_behind_than_when_it_came_goes_there() -> None:
    crowd = Crowd()
    for key in KEYS[:2]:
        crowd.line.push(key)
    crowd.depths[KEYS[0]] = 5
    assert [crowd.line.pop(), crowd.line.pop()] == [KEYS[1], KEYS[0]]


def test_who_is_further_to_the_front_is_put_in_again() -> None:
    crowd = Crowd()
    for key in KEYS[:2]:
        crowd.line.push(key)
    crowd.depths[KEYS[1]] = -5
    crowd.line.push(KEYS[1])
    assert len(crowd.line) == 2
    assert [crowd.line.pop(), crowd.line.pop()] == [KEYS[1], KEYS[0]]
    assert not crowd.line


STEPS = st.one_of(
    st.tuples(st.just("push"), st.sampled_from(KEYS), st.integers(-3, 3)),
    st.tuples(st.just("discard"), st.sampled_from(KEYS), st.just(0)),
    st.tuples(st.just("fall"), st.sampled_from(KEYS), st.integers(0, 3)),
    st.tuples(st.just("pop"), st.just(KEYS[0]), st.just(0)),
)


@given(st.lists(STEPS, max_size=300))
def test_the_first_is_always_the_one_with_the_least_place(steps: list[tuple[str, GangKey, int]]) -> None:
    crowd, members = Crowd(), set[GangKey]()
    for what, key, amount in steps:
        if what == "push":
            crowd.depths[key] = amount
            crowd.line.push(key)
            members.add(key)
        elif what == "fall":
            crowd.depths[key] += amount
        elif what == "discard":
            crowd.line.discard(key)
            members.discard(key)
        elif members:
            expected = min(map(crowd.place, members)).key
            assert crowd.line.pop() == expected
            members.discard(expected)
        assert set(crowd.line.members) == members
        assert len(crowd.line._heap) <= 2 * len(members) + 66
