"""Which half bound gangs were never whole: the pods tell, and when they don't, the gang was."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allaboard.gangs.podgroup import PodGroup, pod_group_from
from allaboard.gangs.run_history import was_cut_off, was_whole
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Pod

KEY = GangKey("default", "gang")
BIND = 1000.0


def a_pod(name: str, *, stamped: int = 0, created: float = BIND - 10, bound_at: float = BIND) -> Pod:
    node = "node-1" if stamped else ""
    spec = SchedulingSpec((("pods", 1),))
    pod = Pod("default", name, f"uid-{name}", "1", created, "allaboard", node, "Pending", 0, spec)
    return replace(pod, stamped_min_member=stamped, transaction="a", bound_at=bound_at) if stamped else pod


def a_gang(*pods: Pod, minimum: int = 3) -> Gang:
    return Gang(KEY, minimum, pods, 0, 0.0, Objective.BINPACK, 60)


def a_group(whole_since: str) -> PodGroup:
    conditions = [{"type": "PodGroupInitiallyScheduled", "status": "True", "lastTransitionTime": whole_since}]
    return pod_group_from({"metadata": {"name": "gang", "namespace": "default"}, "spec": {}, "status": {"conditions": conditions}})


def half(of: int) -> tuple[Pod, Pod]:
    return a_pod("a", stamped=of), a_pod("b", stamped=of)


OLD, YOUNG = BIND - 10, BIND + 5


@pytest.mark.parametrize(
    ("minimum", "waiting", "is_cut_off"),
    [
        (3, (OLD,), True),
        (3, (YOUNG,), False),  # it replaces one that was bound
        (4, (OLD, OLD), True),
        (4, (OLD, YOUNG), True),  # at most three were ever bound
        (4, (YOUNG, YOUNG), False),
        (4, (OLD,), False),  # somebody has gone without a replacement
        (4, (OLD, OLD, YOUNG, YOUNG), False),  # four of six were whole, and two of them were lost
        (4, (OLD, OLD, OLD, YOUNG), True),
    ],
)
def test_a_gang_was_cut_off_when_too_few_can_have_been_bound(minimum: int, waiting: tuple[float, ...], is_cut_off: bool) -> None:
    others = (a_pod(f"w{number}", created=created) for number, created in enumerate(waiting))
    assert was_cut_off(a_gang(*half(minimum), *others, minimum=minimum), None) is is_cut_off


def test_a_bind_that_says_that_the_run_was_whole_is_believed() -> None:
    first, second = half(3)
    assert not was_cut_off(a_gang(first, replace(second, was_whole=True), a_pod("c")), None)
    ended = replace(second, uid="e", phase="Failed", was_whole=True)
    assert not was_cut_off(a_gang(*half(4), ended, a_pod("c"), a_pod("d"), minimum=4), None)


def test_members_that_kubelets_have_rejected_were_bound_with_the_others() -> None:
    rejected = replace(a_pod("r", stamped=3), phase="Failed")
    assert not was_cut_off(a_gang(*half(3), rejected, a_pod("c")), None)


def test_a_gang_whose_minimum_was_raised_was_not_cut_off() -> None:
    assert not was_cut_off(a_gang(*half(2), a_pod("c")), None)


def test_a_gang_whose_minimum_was_lowered_owes_the_lower_one() -> None:
    assert not was_cut_off(a_gang(*half(3), a_pod("c"), minimum=2), None)


@pytest.mark.parametrize(("whole_since", "expected"), [("1970-01-01T00:16:45Z", False), ("1970-01-01T00:10:00Z", True), ("rubbish", True)])
def test_a_pod_group_that_was_whole_says_so_unless_that_was_an_earlier_run(whole_since: str, expected: bool) -> None:
    assert was_cut_off(a_gang(*half(3), a_pod("c")), a_group(whole_since)) is expected


@dataclass
class History:
    """A gang's true history. The scheduler knows it as ``PartialBinds`` does, and forgets it when it crashes."""

    size: int
    minimum: int
    members: list[Pod] = field(default_factory=list)
    was_ever_whole: bool = False
    known_whole: bool = False
    now: float = BIND
    born: int = 0
    runs: int = 0

    def gang(self) -> Gang:
        return a_gang(*self.members, minimum=self.minimum)

    def make(self) -> None:
        """The controller makes whoever is lacking."""
        self.now += 1
        while sum(not pod.is_terminal for pod in self.members) < self.size:
            self.born += 1
            self.members.append(a_pod(f"p{self.born}", created=self.now))

    def bind(self, wanted: int) -> None:
        """A commit, cut off when ``wanted`` are bound; a scheduler that sees the end of it knows what it came to."""
        self.now += 1
        gang = self.gang()
        if not gang.bound:
            self.runs, self.was_ever_whole, self.known_whole = self.runs + 1, False, False
        waiting = gang.candidates[:wanted]
        mark = self.known_whole or was_whole(gang)
        stamped = {"stamped_min_member": self.minimum, "transaction": gang.run or f"{self.runs:x}", "was_whole": mark, "bound_at": self.now}
        for pod in waiting:
            place = self.members.index(pod)
            self.members[place] = replace(pod, node_name="node-1", **stamped)  # type: ignore[arg-type]
        if self.gang().is_whole and self.gang().bound:
            self.was_ever_whole = self.known_whole = True

    def lose(self, number: int, *, is_shown: bool) -> None:
        """A member goes, and can be seen as failed still, or not."""
        self.now += 1
        if alive := [pod for pod in self.members if not pod.is_terminal]:
            pod = alive[number % len(alive)]
            place = self.members.index(pod)
            self.members[place : place + 1] = [replace(pod, phase="Failed")] if is_shown and pod.node_name else []

    def crash(self) -> None:
        """The next scheduler decides by what it sees, and sticks to it.

        Meanwhile the controller has made whoever is lacking: one of more members than the minimum that has gone without a replacement
        leaves no trace.
        """
        self.make()
        gang = self.gang()
        is_cut_off = was_cut_off(gang, None)
        if gang.is_partially_bound and gang.missing_of_stamped:
            assert not (is_cut_off and self.was_ever_whole), "called cut off when it was whole"
        self.known_whole = bool(gang.run) and not is_cut_off


events = st.one_of(
    st.tuples(st.just("bind"), st.integers(1, 8)),
    st.tuples(st.just("lose"), st.integers(0, 7)),
    st.tuples(st.just("show"), st.integers(0, 7)),
    st.tuples(st.just("scale"), st.integers(1, 7)),
    st.tuples(st.just("make"), st.just(0)),
    st.tuples(st.just("crash"), st.just(0)),
)


@settings(max_examples=600)
@given(st.integers(2, 6), st.integers(0, 2), st.lists(events, max_size=14))
@example(4, 0, [("bind", 4), ("lose", 0), ("lose", 0), ("make", 0), ("crash", 0), ("bind", 1)])  # cut off while it heals
def test_no_gang_that_was_whole_is_ever_called_cut_off(minimum: int, surplus: int, happens: list[tuple[str, int]]) -> None:
    history = History(minimum + surplus, minimum)
    history.make()
    for what, number in happens:
        if what == "bind":
            history.bind(number)
        elif what in ("lose", "show"):
            history.lose(number, is_shown=what == "show")
        elif what == "scale":
            history.size = max(history.size, number)
        elif what == "make":
            history.make()
        else:
            history.crash()
    history.crash()


@given(st.integers(2, 6), st.data())
def test_a_gang_that_was_cut_off_in_its_first_commit_is_known_to_have_been_while_one_waiting_member_is_replaced(
    minimum: int, data: st.DataObject
) -> None:
    history = History(minimum, minimum)
    history.make()
    bound = data.draw(st.integers(1, minimum - 1))
    history.bind(bound)
    if bound + 1 < minimum:
        history.lose(bound, is_shown=False)
        history.make()
    assert was_cut_off(history.gang(), None)
