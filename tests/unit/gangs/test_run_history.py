"""The decision whether a partially bound gang was ever whole. A gang counts as whole unless its pods prove that it never was."""

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


def bound_pair(of: int) -> tuple[Pod, Pod]:
    return a_pod("a", stamped=of), a_pod("b", stamped=of)


OLD, YOUNG = BIND - 10, BIND + 5


@pytest.mark.parametrize(
    ("minimum", "waiting", "is_cut_off"),
    [
        (3, (OLD,), True),
        (3, (YOUNG,), False),  # the waiting pod replaces a member that was bound
        (4, (OLD, OLD), True),
        (4, (OLD, YOUNG), True),  # at most three members were ever bound
        (4, (YOUNG, YOUNG), False),
        (4, (OLD,), False),  # a member was lost without a replacement
        (4, (OLD, OLD, YOUNG, YOUNG), False),  # four of six were whole, and two of them were lost
        (4, (OLD, OLD, OLD, YOUNG), True),
    ],
)
def test_commit_of_a_gang_was_interrupted_if_too_few_members_can_ever_have_been_bound(
    minimum: int, waiting: tuple[float, ...], is_cut_off: bool
) -> None:
    others = (a_pod(f"w{number}", created=created) for number, created in enumerate(waiting))
    assert was_cut_off(a_gang(*bound_pair(minimum), *others, minimum=minimum), None) is is_cut_off


def test_commit_of_a_gang_was_not_interrupted_if_a_stamp_says_that_the_run_was_whole() -> None:
    first, second = bound_pair(3)
    assert not was_cut_off(a_gang(first, replace(second, was_whole=True), a_pod("c")), None)
    ended = replace(second, uid="e", phase="Failed", was_whole=True)
    assert not was_cut_off(a_gang(*bound_pair(4), ended, a_pod("c"), a_pod("d"), minimum=4), None)


def test_members_that_a_kubelet_has_rejected_count_as_bound() -> None:
    rejected = replace(a_pod("r", stamped=3), phase="Failed")
    assert not was_cut_off(a_gang(*bound_pair(3), rejected, a_pod("c")), None)


def test_commit_of_a_gang_was_not_interrupted_if_only_the_minimum_was_raised_later() -> None:
    assert not was_cut_off(a_gang(*bound_pair(2), a_pod("c")), None)


def test_gang_whose_minimum_was_lowered_needs_only_the_lower_minimum() -> None:
    assert not was_cut_off(a_gang(*bound_pair(3), a_pod("c"), minimum=2), None)


@pytest.mark.parametrize(("whole_since", "expected"), [("1970-01-01T00:16:45Z", False), ("1970-01-01T00:10:00Z", True), ("rubbish", True)])
def test_commit_of_a_gang_was_not_interrupted_if_its_pod_group_says_that_the_run_was_whole(whole_since: str, expected: bool) -> None:
    assert was_cut_off(a_gang(*bound_pair(3), a_pod("c")), a_group(whole_since)) is expected


@dataclass
class History:
    """The true history of a gang, and what the scheduler knows of it (``known_whole``), which a crash deletes."""

    size: int
    minimum: int
    members: list[Pod] = field(default_factory=list)
    was_ever_whole: bool = False
    known_whole: bool = False
    now: float = BIND
    created_pods: int = 0
    runs: int = 0

    def gang(self) -> Gang:
        return a_gang(*self.members, minimum=self.minimum)

    def create_pods(self) -> None:
        """Create the pods that the controller lacks."""
        self.now += 1
        while sum(not pod.is_terminal for pod in self.members) < self.size:
            self.created_pods += 1
            self.members.append(a_pod(f"p{self.created_pods}", created=self.now))

    def bind(self, wanted: int) -> None:
        """Bind ``wanted`` candidates in a transaction that is then cut off. If the gang is whole after it, the scheduler knows that."""
        self.now += 1
        gang = self.gang()
        if not gang.bound:
            self.runs, self.was_ever_whole, self.known_whole = self.runs + 1, False, False
        waiting = gang.candidates[:wanted]
        mark = self.known_whole or was_whole(gang)
        stamped = {"stamped_min_member": self.minimum, "transaction": gang.run or f"{self.runs:x}", "was_whole": mark, "bound_at": self.now}
        for pod in waiting:
            index = self.members.index(pod)
            self.members[index] = replace(pod, node_name="node-1", **stamped)  # type: ignore[arg-type]
        if self.gang().is_whole and self.gang().bound:
            self.was_ever_whole = self.known_whole = True

    def lose(self, number: int, *, is_shown: bool) -> None:
        """End a living member. If ``is_shown``, a bound member stays visible as failed; else its pod is deleted."""
        self.now += 1
        if alive := [pod for pod in self.members if not pod.is_terminal]:
            pod = alive[number % len(alive)]
            index = self.members.index(pod)
            self.members[index : index + 1] = [replace(pod, phase="Failed")] if is_shown and pod.node_name else []

    def crash(self) -> None:
        """Start another scheduler, which decides from the pods whether the run was whole, and keeps that decision.

        Before that the controller creates the pods that it lacks. Otherwise a surplus member that was lost would leave no trace.
        """
        self.create_pods()
        gang = self.gang()
        is_cut_off = was_cut_off(gang, None)
        if gang.is_partially_bound and gang.missing_of_stamped:
            assert not (is_cut_off and self.was_ever_whole), "counts as cut off although it was whole"
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
@example(4, 0, [("bind", 4), ("lose", 0), ("lose", 0), ("make", 0), ("crash", 0), ("bind", 1)])  # cut off while lost members are replaced
def test_commit_of_a_gang_that_was_whole_never_counts_as_interrupted(
    minimum: int, surplus: int, events_in_order: list[tuple[str, int]]
) -> None:
    history = History(minimum + surplus, minimum)
    history.create_pods()
    for what, number in events_in_order:
        if what == "bind":
            history.bind(number)
        elif what in ("lose", "show"):
            history.lose(number, is_shown=what == "show")
        elif what == "scale":
            history.size = max(history.size, number)
        elif what == "make":
            history.create_pods()
        else:
            history.crash()
    history.crash()


@given(st.integers(2, 6), st.data())
def test_interruption_of_the_first_transaction_is_recognized_even_if_one_waiting_member_was_replaced(
    minimum: int, data: st.DataObject
) -> None:
    history = History(minimum, minimum)
    history.create_pods()
    bound = data.draw(st.integers(1, minimum - 1))
    history.bind(bound)
    if bound + 1 < minimum:
        history.lose(bound, is_shown=False)
        history.create_pods()
    assert was_cut_off(history.gang(), None)
