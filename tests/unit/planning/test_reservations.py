"""The reservations that refused gangs get, and that no gang behind them delays them."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.cluster.reservations import Reservation
from allaboard.cluster.running import Basis
from allaboard.cluster.view import ClusterView
from allaboard.model.backfill import Backfill
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Pod
from allaboard.model.reasons import Code
from allaboard.placement import SearchSettings
from allaboard.planning.answers import Answer, Placed, Refused
from allaboard.planning.gang_problem import Packings
from allaboard.planning.planner import Planner
from allaboard.planning.policy import Policy
from allaboard.planning.prepared import PreparedGang, prepared
from allaboard.planning.reservations import Reservations, ReservationSettings, _Reported
from allaboard.planning.standstill import Standstill
from allaboard.queueing.order import order_of
from allaboard.records.sort_key import Order
from tests.unit.placement.clusters import GPU, node, pods

NOW = 1_000_000.0
WALLTIMES = (100.0, 200.0, 400.0)


def a_gang(name: str, size: int, gpus: int, *, priority: int = 0, created: float = NOW, walltime: float = 0.0) -> Gang:
    members = tuple(replace(pod, walltime=walltime, priority=priority) for pod in pods(name, size, {GPU: gpus}))
    return Gang(GangKey("default", name), size, members, priority, created, Objective.BINPACK, 60, walltime=walltime)


@dataclass
class Scene(Standstill):
    """A cluster of ``nodes`` with 8 GPUs each, and gangs that wait."""

    nodes: int = 4
    backfill: Backfill = Backfill.EASY
    most: int = 4
    after_seconds: float = 30.0
    view: ClusterView = field(default_factory=ClusterView)
    gangs: dict[GangKey, Gang] = field(default_factory=dict)
    seconds: float = NOW
    answers: dict[str, Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        policy = Policy(self.backfill, ReservationSettings(self.most, self.after_seconds))
        super().__init__(self.view, self.view.running, SearchSettings(generations=3, min_generations=1), Packings(), policy=policy)
        for number in range(self.nodes):
            self.view.upsert_node(node(f"n{number}", {GPU: 8}))

    def run_pod(self, name: str, where: int, gpus: int, *, walltime: float = 0.0, started: float = NOW - 10) -> None:
        """Let a pod run on a node."""
        [pod] = pods(name, 1, {GPU: gpus})
        self.view.upsert_pod(replace(pod, node_name=f"n{where}", phase="Running", walltime=walltime, started=started))

    def end_pod(self, name: str) -> None:
        self.view.remove_pod(f"default/{name}-0")

    def plan(self, *gangs: Gang) -> dict[str, str]:
        """Plan the gangs that wait and ``gangs``, as if all were due. Return for each gang its answer, or the code of its refusal."""
        self.gangs |= {gang.key: gang for gang in gangs}
        for gang in gangs:
            for pod in gang.members:
                self.view.upsert_pod(pod)
        self.answers = {}
        asyncio.run(self.run(list(self.gangs)))
        return {
            name: answer.cause.code if isinstance(answer, Refused) and answer.cause else "Placed" for name, answer in self.answers.items()
        }

    def reservation(self, name: str) -> Reservation:
        found = self._planner.ledger.find(GangKey("default", name))
        assert found is not None
        return found

    @property
    def owners(self) -> list[str]:
        return [each.owner.name for each in self._planner.ledger.reservations]

    def gang(self, key: GangKey) -> Gang | None:
        return self.gangs.get(key)

    def prepared(self, key: GangKey) -> PreparedGang | None:
        gang = self.gangs[key]
        return prepared(gang) if gang.can_act else None

    def place(self, key: GangKey) -> Order:
        return order_of(self.gangs[key])

    def now(self) -> float:
        return self.seconds

    def waited(self, key: GangKey) -> float:
        return self.seconds - self.gangs[key].created

    def answered(self, answer: Answer, *, is_again: bool) -> None:
        self.answers[answer.gang.key.name] = answer
        if isinstance(answer, Placed):
            nodes = {each.pod.uid: each.node_name for each in answer.assignments}
            members = [replace(pod, node_name=nodes[pod.uid], started=self.seconds) for pod in answer.gang.members]
            for pod in members:
                self.view.upsert_pod(pod)
            self.gangs[answer.gang.key] = replace(answer.gang, members=tuple(members))


def the_case(*, most: int = 4, **walltimes: float) -> Scene:
    """Four nodes with 8 GPUs each, on each of which a pod uses 5."""
    scene = Scene(most=most)
    for number in range(4):
        scene.run_pod(f"busy{number}", number, 5, walltime=walltimes.get(f"n{number}", 0.0))
    return scene


@pytest.mark.parametrize("ended", range(4))
@pytest.mark.parametrize("walltimes", [{}, {"n0": 5000.0, "n1": 50.0, "n2": 500.0}])
@pytest.mark.parametrize("later", [0.0, 5.0, 100.0])
def test_gang_of_higher_priority_starts_before_a_smaller_gang_whichever_pod_ends_first(
    ended: int, walltimes: dict[str, float], later: float
) -> None:
    """Two pods of 6 GPUs need two free nodes; 13 pods of one GPU would take the first node that is free."""
    scene = the_case(**walltimes)
    refusals = scene.plan(a_gang("high", 2, 6, priority=1000), a_gang("low", 13, 1))
    assert set(refusals.values()) <= {Code.INSUFFICIENT, Code.FRAGMENTED}
    scene.seconds += later
    scene.end_pod(f"busy{ended}")
    assert scene.plan()["low"] == Code.RESERVED
    scene.end_pod(f"busy{(ended + 1) % 4}")
    assert scene.plan()["high"] == "Placed"


def test_the_refusal_names_the_gang_whose_reservation_keeps_the_capacity() -> None:
    scene = the_case()
    scene.plan(a_gang("high", 2, 6, priority=1000), a_gang("low", 13, 1))
    scene.end_pod("busy0")
    scene.plan()
    answer = scene.answers["low"]
    assert isinstance(answer, Refused)
    assert answer.cause is not None
    assert answer.cause.rule is not None
    assert answer.cause.rule.subject == "podgroup default/high"


def test_a_gang_that_ends_before_the_reservation_begins_starts_on_its_nodes() -> None:
    scene = the_case(n0=1000.0, n1=1000.0, n2=5000.0, n3=5000.0)
    scene.plan(a_gang("wide", 2, 6))
    begins = scene.reservation("wide").begins
    assert begins == NOW - 10 + 1000
    found = scene.plan(
        a_gang("short", 12, 1, created=NOW + 1, walltime=begins - NOW), a_gang("long", 11, 1, created=NOW + 2, walltime=begins - NOW + 1)
    )
    assert (found["short"], found["long"]) == ("Placed", Code.RESERVED)


def test_a_gang_starts_on_capacity_that_no_reservation_needs() -> None:
    scene = the_case(most=1, n0=1000.0, n1=1000.0, n2=5000.0, n3=5000.0)
    scene.plan(a_gang("wide", 2, 6))
    # Nodes 0 and 1 keep one GPU each for wide, beside the five that are freed. So 2 + 2 + 3 + 3 GPUs are left.
    found = scene.plan(a_gang("eleven", 11, 1, created=NOW + 1), a_gang("ten", 10, 1, created=NOW + 2))
    assert (found["eleven"], found["ten"]) == (Code.RESERVED, "Placed")


def test_without_known_walltimes_a_gang_of_the_same_priority_is_held_back_after_a_while() -> None:
    scene = the_case()
    scene.plan(a_gang("wide", 2, 6))
    assert scene.reservation("wide").basis is Basis.UNKNOWN
    assert scene.plan(a_gang("early", 1, 3, created=NOW + 1))["early"] == "Placed"
    scene.seconds += 30.0
    assert scene.plan(a_gang("late", 9, 1, created=NOW + 2))["late"] == Code.RESERVED


def test_without_backfill_no_gang_passes_a_gang_with_a_reservation() -> None:
    scene = Scene(backfill=Backfill.OFF)
    for number in range(4):
        scene.run_pod(f"busy{number}", number, 5, walltime=100.0)
    found = scene.plan(a_gang("wide", 2, 6), a_gang("tiny", 1, 1, created=NOW + 1, walltime=1.0))
    assert found == {"wide": Code.FRAGMENTED, "tiny": Code.RESERVED}


@pytest.mark.parametrize(("backfill", "expected"), [(Backfill.EASY, 100), (Backfill.OFF, 300)])
def test_without_backfill_a_gang_is_expected_no_earlier_than_the_gangs_ahead(backfill: Backfill, expected: int) -> None:
    """One node becomes free at 100 s and two at 300 s; the gang ahead needs two nodes."""
    scene = Scene(nodes=3, backfill=backfill)
    for number, end in enumerate((100.0, 300.0, 300.0)):
        scene.run_pod(f"busy{number}", number, 8, walltime=end, started=NOW)
    scene.plan(a_gang("wide", 2, 8, created=NOW - 100), a_gang("small", 1, 8, walltime=50.0))
    assert scene.reservation("wide").begins == NOW + 300
    assert scene.reservation("small").begins == NOW + expected
    scene.seconds = NOW + 100.0
    scene.end_pod("busy0")
    assert scene.plan()["small"] == ("Placed" if backfill is Backfill.EASY else Code.RESERVED)
    if backfill is Backfill.OFF:
        assert scene.reservation("small").begins == NOW + 300


def test_only_the_first_gangs_in_queue_order_get_reservations() -> None:
    scene = Scene(most=2)
    for number in range(4):
        scene.run_pod(f"busy{number}", number, 8, walltime=100.0)
    scene.plan(*(a_gang(f"g{number}", 1, 8, created=NOW + number) for number in range(4)))
    assert scene.owners == ["g0", "g1"]
    scene.plan(a_gang("first", 1, 8, priority=1))
    assert scene.owners == ["first", "g0"]
    scene.gangs.pop(GangKey("default", "first"))
    scene.plan()
    assert scene.owners == ["g0", "g1"]


def test_a_gang_that_never_fits_gets_no_reservation_and_holds_no_gang_back() -> None:
    scene = Scene(backfill=Backfill.OFF)
    assert scene.plan(a_gang("huge", 5, 8, priority=1), a_gang("small", 1, 1))["small"] == "Placed"
    assert scene.owners == []


def test_each_reservation_leaves_the_capacity_of_those_before_it() -> None:
    scene = Scene(nodes=2)
    for number, walltime in enumerate((100.0, 200.0)):
        scene.run_pod(f"busy{number}", number, 8, walltime=walltime, started=NOW)
    scene.plan(
        a_gang("a", 1, 8),
        a_gang("b", 1, 8, created=NOW + 1, walltime=500.0),
        a_gang("c", 1, 8, created=NOW + 2),
    )
    assert [scene.reservation(name).begins - NOW for name in "abc"] == [100.0, 200.0, 700.0]
    assert {name: list(scene.reservation(name).amounts) for name in "abc"} == {"a": ["n0"], "b": ["n1"], "c": ["n1"]}


def test_a_placement_is_kept_unless_another_is_better_by_a_margin() -> None:
    scene = Scene(nodes=2)
    scene.run_pod("busy0", 0, 8, walltime=1000.0, started=NOW)
    scene.run_pod("busy1", 1, 8, walltime=1050.0, started=NOW)
    scene.plan(a_gang("wide", 1, 8))
    assert (list(scene.reservation("wide").amounts), scene.reservation("wide").begins) == (["n0"], NOW + 1000)
    scene.run_pod("busy0", 0, 8, walltime=1090.0, started=NOW)  # it ends later than was stated
    scene.plan()
    assert (list(scene.reservation("wide").amounts), scene.reservation("wide").begins) == (["n0"], NOW + 1090)
    scene.run_pod("busy0", 0, 8, walltime=1500.0, started=NOW)
    scene.plan()
    assert (list(scene.reservation("wide").amounts), scene.reservation("wide").begins) == (["n1"], NOW + 1050)


def test_a_placement_on_a_node_that_is_gone_is_replaced() -> None:
    scene = the_case(n0=100.0, n1=100.0, n2=900.0, n3=5000.0)
    scene.plan(a_gang("wide", 2, 6))
    scene.view.remove_node("n0")
    scene.plan()
    assert set(scene.reservation("wide").amounts) == {"n1", "n2"}


def test_another_scheduler_finds_the_reservations_that_were_kept() -> None:
    kept, other = the_case(n0=100.0, n1=300.0), the_case(n0=100.0, n1=300.0)
    gangs = a_gang("wide", 2, 6), a_gang("next", 3, 7, created=NOW + 1)
    kept.plan(*gangs)
    for scene in (kept, other):
        scene.seconds += 20.0
    kept.plan()
    other.plan(*gangs)
    assert kept._planner.ledger.reservations == other._planner.ledger.reservations


# A plain computation of the same, on clusters of two nodes


@dataclass(frozen=True)
class Small:
    """Pods that run, each as (node, GPUs, walltime), and a gang of ``size`` pods with ``gpus`` each that doesn't fit now."""

    running: tuple[tuple[int, int, float], ...]
    size: int
    gpus: int

    def free_at(self, seconds: float) -> list[int]:
        return [8 - sum(gpus for at, gpus, walltime in self.running if at == row and walltime > seconds) for row in (0, 1)]

    def begins(self) -> float | None:
        """Return after how many seconds the gang fits first."""
        times = [0.0, *sorted({walltime for _, _, walltime in self.running})]
        return next((when for when in times if sum(free // self.gpus for free in self.free_at(when)) >= self.size), None)


def _fitting(running: list[tuple[int, int, float]]) -> tuple[tuple[int, int, float], ...]:
    """Return the pods that fit on their nodes, in their order."""
    found: list[tuple[int, int, float]] = []
    for where, gpus, walltime in running:
        if sum(each[1] for each in found if each[0] == where) + gpus <= 8:
            found.append((where, gpus, walltime))
    return tuple(found)


small = st.builds(
    Small,
    st.lists(st.tuples(st.integers(0, 1), st.integers(2, 6), st.sampled_from(WALLTIMES)), min_size=2, max_size=6).map(_fitting),
    st.integers(1, 4),
    st.integers(1, 8),
)


@settings(max_examples=60, deadline=None)
@given(small)
def test_a_gang_is_expected_to_start_when_it_fits_first(case: Small) -> None:
    scene = Scene(nodes=2)
    for number, (where, gpus, walltime) in enumerate(case.running):
        scene.run_pod(f"busy{number}", where, gpus, walltime=walltime, started=NOW)
    found, begins = scene.plan(a_gang("wide", case.size, case.gpus)), case.begins()
    assert (found["wide"] == "Placed") is (begins == 0.0)
    if begins == 0.0:
        return
    assert scene.owners == ([] if begins is None else ["wide"])
    if begins is None:
        return
    reservation = scene.reservation("wide")
    assert (reservation.begins, reservation.basis) == (NOW + begins, Basis.STATED)
    free = {f"n{row}": amount for row, amount in enumerate(case.free_at(begins))}
    assert all(amounts[GPU] <= free[name] for name, amounts in reservation.amounts.items())
    assert sum(amounts[GPU] for amounts in reservation.amounts.values()) == case.size * case.gpus


gang_sizes = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 8), st.sampled_from([0.0, *WALLTIMES])), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(small, gang_sizes)
def test_gangs_behind_a_reservation_never_delay_its_start(case: Small, others: list[tuple[int, int, float]]) -> None:
    """The wide gang starts no later than its first expected start, whatever else is placed; every gang ends at its walltime."""
    begins = case.begins()
    if not begins:
        return
    scene = Scene(nodes=2)
    for number, (where, gpus, walltime) in enumerate(case.running):
        scene.run_pod(f"busy{number}", where, gpus, walltime=walltime, started=NOW)
    scene.plan(a_gang("wide", case.size, case.gpus))
    behind = [a_gang(f"g{n}", size, gpus, created=NOW + 1 + n, walltime=walltime) for n, (size, gpus, walltime) in enumerate(others)]
    scene.plan(*behind)
    for when in _ends_of(scene.view.pods()):
        if when > NOW + begins:
            break
        scene.seconds = when
        for pod in list(scene.view.pods()):
            if pod.node_name and pod.walltime and pod.started + pod.walltime <= when:
                scene.view.remove_pod(pod.key)
        scene.plan()
    assert all(pod.node_name for pod in scene.gangs[GangKey("default", "wide")].members)


def _ends_of(known: Iterator[Pod]) -> Iterator[float]:
    """Yield the moments at which a pod may end: all sums of the walltimes that tests use."""
    sums = {a + b + c for a, b, c in product((0.0, *WALLTIMES), repeat=3)}
    return iter(sorted({NOW + each for each in sums if each} | {pod.started + pod.walltime for pod in known if pod.node_name}))


def test_amounts_beyond_those_of_the_members_are_not_reserved() -> None:
    """Three of four nodes are idle; the gang fits there, but its minResources ask for the fourth as well."""
    scene = Scene(nodes=4)
    scene.run_pod("long", 3, 8, walltime=86_400.0)
    greedy = replace(a_gang("greedy", 3, 8, created=NOW - 100), min_resources=((GPU, 32),))
    assert scene.plan(greedy, a_gang("short", 1, 8, walltime=100.0))["short"] == "Placed"
    assert scene.owners == []


def test_a_gang_that_is_refused_although_its_capacity_is_free_is_not_woken_at_once() -> None:
    scene = Scene(nodes=1)
    scene.run_pod("busy", 0, 1, walltime=100.0)
    gang = prepared(a_gang("refused", 1, 1))
    scene.gangs[gang.key] = gang
    asyncio.run(scene._reservations.reserve(gang))
    assert scene.owners == ["refused"]
    assert not scene._reservations.owners_with_free_capacity()


def test_gangs_that_need_the_same_nodes_are_expected_one_after_another() -> None:
    scene = Scene(nodes=2)
    for number in range(2):
        scene.run_pod(f"busy{number}", number, 8, walltime=100.0, started=NOW)
    gangs = [a_gang(name, 2, 8, created=NOW + place, walltime=300.0) for place, name in enumerate("abcd")]
    scene.plan(*gangs)
    assert [scene.reservation(name).begins - NOW for name in "abcd"] == [100.0, 400.0, 700.0, 1000.0]
    assert {scene.reservation(name).basis for name in "abcd"} == {Basis.STATED}
    scene.seconds += 50
    scene.plan()
    assert [scene.reservation(name).begins - NOW for name in "abcd"] == [100.0, 400.0, 700.0, 1000.0]
    scene.end_pod("busy0")
    scene.end_pod("busy1")
    assert scene.plan()["a"] == "Placed"
    assert [scene.reservation(name).begins - NOW for name in "bcd"] == [350.0, 650.0, 950.0]


def test_expected_start_rests_on_the_least_certain_gang_ahead() -> None:
    scene = Scene(nodes=2)
    scene.run_pod("guessed", 0, 8, started=NOW - 3600)
    scene.run_pod("stated", 1, 8, walltime=100.0, started=NOW)
    scene.plan(a_gang("wide", 2, 8, walltime=300.0), a_gang("behind", 1, 8, created=NOW + 1, walltime=9000.0))
    assert scene.reservation("wide").basis is Basis.GUESSED
    assert scene.reservation("behind").begins == scene.reservation("wide").ends
    assert scene.reservation("behind").basis is Basis.GUESSED


def test_gang_whose_expected_start_has_moved_is_attempted_again_but_not_at_once() -> None:
    scene = Scene(nodes=1)
    scene.run_pod("busy", 0, 8, walltime=1000.0, started=NOW)
    scene.plan(a_gang("first", 1, 8, walltime=300.0))
    scene.plan(a_gang("urgent", 1, 8, priority=1000, created=NOW + 1, walltime=500.0))
    assert [scene.reservation(name).begins - NOW for name in ("urgent", "first")] == [1000.0, 1500.0]
    scene._reservations._reported[GangKey("default", "first")] = _Reported(0.0, NOW + 1000.0, Basis.STATED)
    assert asyncio.run(scene._reservations.refresh(scene.gang)) == []
    scene._reservations._reported[GangKey("default", "first")] = _Reported(-31.0, NOW + 1000.0, Basis.STATED)
    assert asyncio.run(scene._reservations.refresh(scene.gang)) == [GangKey("default", "first")]


def test_reservation_that_is_given_up_during_a_refresh_does_not_come_back() -> None:
    scene = Scene(nodes=2)
    for number in range(2):
        scene.run_pod(f"busy{number}", number, 8, walltime=100.0, started=NOW)
    scene.plan(a_gang("given_up", 1, 8), a_gang("kept", 1, 8, created=NOW + 1))
    ledger = scene._planner.ledger

    def gang(key: GangKey) -> Gang | None:
        if key.name == "kept":
            ledger.drop(GangKey("default", "given_up"))
        return scene.gang(key)

    asyncio.run(scene._reservations.refresh(gang))
    assert scene.owners == ["kept"]


def test_positions_of_owners_are_compared_as_they_are_now() -> None:
    """A namespace that has used more search time moves back with all its gangs, also those that have a reservation."""
    scene = Scene(nodes=1)
    scene.run_pod("busy", 0, 8, walltime=300.0)
    scene.plan(a_gang("first", 1, 8, created=NOW - 100, walltime=50.0), a_gang("second", 1, 8, created=NOW - 50, walltime=50.0))
    assert scene.owners == ["first", "second"]
    scene.gangs = {key: replace(gang, created=gang.created + 1000) for key, gang in scene.gangs.items()}
    asyncio.run(scene._reservations.reserve(prepared(scene.gangs[GangKey("default", "second")])))
    assert scene.owners == ["first", "second"]
    assert scene.reservation("second").begins > scene.reservation("first").begins
    assert scene.reservation("first").order == scene.place(GangKey("default", "first"))


@pytest.mark.parametrize("place", [(Reservations, "_revised"), (Planner, "plan")])
def test_a_pod_that_ends_while_reservations_or_plans_are_computed_lets_no_gang_pass(
    place: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reservation of the wide gang was for the first two nodes; the third node becomes free, which the wide gang then needs."""
    scene = Scene(nodes=4)
    for number in range(4):
        scene.run_pod(f"busy{number}", number, 5)
    wide, low = a_gang("wide", 2, 6, priority=1000), a_gang("low", 13, 1)
    scene.plan(wide)
    assert scene.reservation("wide").amounts.keys() == {"n0", "n1"}
    kind, name = place
    computed = getattr(kind, name)

    async def with_an_end(self: object, gang: PreparedGang, *arguments: object, **options: object) -> object:
        if name == "plan" and gang.key == low.key:
            scene.end_pod("busy2")
        found = await computed(self, gang, *arguments, **options)
        if name == "_revised":
            scene.end_pod("busy2")
        return found

    monkeypatch.setattr(kind, name, with_an_end)
    scene.plan(low)
    assert not isinstance(scene.answers["low"], Placed)
    assert scene.plan()["low"] == Code.RESERVED
    assert "n2" in scene.reservation("wide").amounts
