"""Tests of the planning round: which gangs are planned together, in which order, and which answer a plan leads to."""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import pytest

from allaboard.cluster.reservations import Reservation
from allaboard.cluster.running import Basis
from allaboard.cluster.view import ClusterView
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.placement import Plan, SearchSettings
from allaboard.planning import round as planning_round
from allaboard.planning.answers import Answer, Failed, Outdated, Placed, Refused, SearchLonger
from allaboard.planning.gang_problem import Packings
from allaboard.planning.planner import Planner
from allaboard.planning.preemption import Preemptions
from allaboard.planning.prepared import PreparedGang, prepared
from allaboard.planning.reservations import Reservations
from allaboard.planning.round import Round, is_planned_alone
from allaboard.planning.search_costs import SearchCosts
from allaboard.planning.search_processes import Searcher, SearchError, SearchOverrunError
from allaboard.queueing.order import order_of
from allaboard.queueing.search_time import SearchTime
from allaboard.records.partial_bind import Finishing
from allaboard.records.record import GangRecords
from allaboard.records.sort_key import Order
from allaboard.report.metrics import Metrics
from tests.unit.placement.clusters import node, pods
from tests.unit.planning.ledgers import a_ledger


def a_gang(name: str, size: int = 2, *, minimum: int = 0, cpus: int = 1, priority: int = 0, created: float = 0.0) -> Gang:
    members = tuple(pods(name, size, {"cpu": cpus * 1000}))
    return Gang(GangKey("default", name), minimum or size, members, priority, created, Objective.BINPACK, 60)


@dataclass
class Waiting:
    """Gangs that are due. ``meanwhile`` is called when a gang is prepared, and ``prepared_`` lists the gangs that were prepared."""

    gangs: dict[GangKey, Gang]
    view: ClusterView
    due: deque[GangKey] = field(default_factory=deque)
    prepared_: list[str] = field(default_factory=list)
    preceded: set[GangKey] = field(default_factory=set)
    gone: set[GangKey] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    usages: dict[str, int] = field(default_factory=dict)
    woken: list[str] = field(default_factory=list)
    meanwhile: Callable[[GangKey], None] = lambda key: None

    async def next(self) -> GangKey | None:
        return self.due.popleft() if self.due else None

    def gang(self, key: GangKey) -> Gang | None:
        return self.gangs.get(key)

    def resolved(self, key: GangKey) -> Gang | None:
        return self.gangs.get(key)

    def prepared(self, key: GangKey) -> PreparedGang | None:
        self.prepared_.append(key.name)
        self.meanwhile(key)
        gang = self.gangs[key]
        return prepared(gang) if key not in self.gone and gang.can_act else None

    def current(self, gang: PreparedGang) -> PreparedGang | None:
        return None if gang.key in self.gone else prepared(self.gangs[gang.key])

    def failed(self, key: GangKey, error: Exception) -> None:
        self.failures.append(key.name)

    def put_back(self, keys: Iterable[GangKey]) -> None:
        self.due.extendleft(reversed(list(keys)))

    def place(self, key: GangKey) -> Order:
        return order_of(self.gangs[key])

    def usage(self, namespace: str) -> int:
        return self.usages.get(namespace, 0)

    def wake(self, key: GangKey) -> None:
        self.woken.append(key.name)

    def is_preceded(self, key: GangKey) -> bool:
        return key in self.preceded


class Scene:
    """A round over ``gangs`` that are due, on one node; placed members are assumed in the view."""

    def __init__(self, *gangs: Gang, cpus: int = 8) -> None:
        self.now, self.waited = 1000.0, 0.0
        self.view, self.records, self.searcher = ClusterView(), GangRecords(), Searcher(SearchSettings(), workers=0)
        self.view.upsert_node(node("n", {"cpu": cpus * 1000}))
        for gang in gangs:
            for pod in gang.members:
                self.view.upsert_pod(pod)
        known = {gang.key: gang for gang in gangs}
        self.due = Waiting(known, self.view, deque(sorted(known, key=lambda key: order_of(known[key]))))
        costs = SearchCosts(Metrics(), SearchTime(lambda: 0.0), lambda: 0.0)
        ledger = a_ledger(self.view, self.due.place, lambda: self.now)
        self.planner = Planner(self.view, self.records, self.searcher, costs, Packings(), ledger)
        reservations = Reservations(self.planner, lambda key: self.waited)
        preemptions = Preemptions(self.planner, lambda: (), lambda key: self.waited)
        self.round = Round(self.planner, self.records, reservations, preemptions)

    async def answers(self) -> list[Answer]:
        """Return the answers of one round."""
        found = []
        async with aclosing(self.round.answers(self.due)) as answers:
            async for answer in answers:
                found.append(answer)
                if isinstance(answer, Placed):
                    for each in answer.assignments:
                        self.view.assume(each.pod, each.node_name)
        return found


def kinds_of(answers: list[Answer]) -> list[tuple[str, str]]:
    return [(type(answer).__name__, answer.gang.key.name) for answer in answers]


async def test_gangs_of_one_priority_are_planned_in_one_round_and_none_uses_capacity_of_gangs_placed_before_it() -> None:
    scene = Scene(a_gang("a", 3), a_gang("b", 3, created=1.0), a_gang("low", priority=-1), cpus=5)
    assert kinds_of(await scene.answers()) == [("Placed", "a"), ("Refused", "b")]
    assert kinds_of(await scene.answers()) == [("Placed", "low")]
    assert await scene.answers() == []


async def test_a_gang_that_needs_no_plan_gets_no_answer() -> None:
    gone = a_gang("gone")
    scene = Scene(gone, a_gang("b", created=1.0))
    scene.due.gone.add(gone.key)
    assert kinds_of(await scene.answers()) == [("Placed", "b")]


async def test_a_round_ends_when_a_gang_becomes_due_that_ranks_before_the_next_gang_of_the_round() -> None:
    scene = Scene(*(a_gang(name, created=float(age)) for age, name in enumerate("abc")))
    scene.due.preceded.add(GangKey("default", "b"))
    assert kinds_of(await scene.answers()) == [("Placed", "a")]
    assert [key.name for key in scene.due.due] == ["b", "c"]


@pytest.mark.parametrize("limit", ["MOST_TOGETHER", "MOST_PODS"])
async def test_the_number_of_gangs_and_pods_planned_together_is_limited(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning_round, limit, {"MOST_TOGETHER": 2, "MOST_PODS": 5}[limit])
    scene = Scene(*(a_gang(name, created=float(age)) for age, name in enumerate("abc")))
    assert kinds_of(await scene.answers()) == [("Placed", "a"), ("Placed", "b")]
    assert [key.name for key in scene.due.due] == ["c"]


async def test_gangs_that_contend_are_placed_together() -> None:
    large = a_gang("large", 3, cpus=1)
    others = [a_gang(name, 2, created=1.0 + age) for age, name in enumerate("bc")]
    answers = await Scene(large, *others, cpus=4).answers()
    placed = [answer for answer in answers if isinstance(answer, Placed)]
    assert {answer.gang.key.name for answer in placed} == {"b", "c"}
    assert kinds_of(answers)[-1] == ("Refused", "large")


async def test_a_namespace_that_uses_much_search_time_during_a_round_goes_behind_other_namespaces() -> None:
    first, second = a_gang("a"), a_gang("b", created=1.0)
    third = replace(a_gang("c", created=2.0), key=GangKey("other", "c"))
    scene = Scene(first, second, third)
    scene.due.meanwhile = lambda key: scene.due.usages.update(default=1) if key == third.key else None
    assert [name for _, name in kinds_of(await scene.answers())] == ["c", "a", "b"]


@pytest.mark.parametrize("is_finishing", [False, True])
async def test_a_gang_without_placement_or_proof_gets_a_long_search_unless_it_is_being_finished(
    is_finishing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = a_gang("a", 9)
    scene = Scene(gang)
    if is_finishing:
        scene.records.partial_bind(gang.key).state = Finishing(5.0)

    async def unknown(self: Planner, gang: PreparedGang, without: object = ()) -> Plan:
        return replace(await plan(self, gang), feasible=None)

    plan = Planner.plan
    monkeypatch.setattr(Planner, "plan", unknown)
    (answer,) = await scene.answers()
    assert isinstance(answer, Refused if is_finishing else SearchLonger)


@pytest.mark.parametrize(
    ("error", "is_finishing", "kind"),
    [
        (SearchOverrunError("too long"), False, SearchLonger),
        (SearchOverrunError("too long"), True, Failed),
        (SearchError("it died"), False, Failed),
        (LookupError("a defect"), False, Failed),
    ],
)
async def test_an_error_in_a_search_affects_its_gang_alone(
    error: Exception, is_finishing: bool, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = a_gang("a")
    scene = Scene(gang, a_gang("b", created=1.0))
    if is_finishing:
        scene.records.partial_bind(gang.key).state = Finishing(5.0)
    plan = Planner.plan

    async def fails(self: Planner, asked: PreparedGang, without: object = ()) -> Plan:
        if asked.key == gang.key:
            raise error
        return await plan(self, asked)

    monkeypatch.setattr(Planner, "plan", fails)
    first, second = await scene.answers()
    assert isinstance(first, kind)
    assert isinstance(second, Placed)


@pytest.mark.parametrize("error", [SearchOverrunError("too long"), SearchError("it died")])
async def test_a_gang_whose_search_fails_although_its_capacity_is_free_is_not_woken_at_once(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = a_gang("a")
    scene = Scene(gang)
    found = Reservation(gang.key, order_of(gang), 0, {"n": {"cpu": 2000}}, {}, 1000.0, 2000.0, Basis.STATED, 0, 0.0)
    scene.planner.ledger.revise((), [found])
    assert scene.round.reservations.owners_with_free_capacity() == [gang.key]

    async def fails(self: Planner, asked: PreparedGang, without: object = ()) -> Plan:
        raise error

    monkeypatch.setattr(Planner, "plan", fails)
    await scene.answers()
    assert scene.planner.ledger.find(gang.key) is not None
    assert not scene.round.reservations.owners_with_free_capacity()


async def test_an_outdated_plan_places_no_member() -> None:
    scene = Scene(a_gang("a"))
    key = GangKey("default", "a")
    gang = prepared(scene.due.gangs[key])
    plan = await scene.planner.plan(gang)
    scene.view.upsert_node(node("n", {"cpu": 1000}))
    assert isinstance(await scene.round.conclude(scene.due.current, gang, plan), Outdated)
    scene.due.gone.add(key)
    assert await scene.round.conclude(scene.due.current, gang, plan) is None


def test_a_gang_that_is_held_or_waits_for_pods_cannot_be_planned() -> None:
    with pytest.raises(ValueError, match="default/a can't be planned"):
        prepared(a_gang("a", 2, minimum=3))


def test_a_gang_that_was_deleted_since_it_was_queued_is_planned_alone() -> None:
    assert is_planned_alone(None)
    assert not is_planned_alone(a_gang("a"))


@pytest.mark.parametrize("method", ["gang", "place", "prepared", "is_preceded"])
async def test_an_error_in_the_preparation_of_one_gang_does_not_end_the_round(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(*(a_gang(name, created=float(age)) for age, name in enumerate("abc")))
    real = getattr(scene.due, method)

    def fails(key: GangKey) -> object:
        if key.name == "b":
            raise LookupError("a defect")
        return real(key)

    monkeypatch.setattr(scene.due, method, fails)
    assert [(type(each).__name__, each.gang.key.name) for each in await scene.answers()] == [("Placed", "a"), ("Placed", "c")]
    assert scene.due.failures == ["b"]


async def test_a_round_that_is_closed_early_makes_its_unanswered_gangs_due_again() -> None:
    scene = Scene(*(a_gang(name, created=float(age)) for age, name in enumerate("abc")))
    async with aclosing(scene.round.answers(scene.due)) as answers:
        await anext(answers)
    assert [key.name for key in scene.due.due] == ["b", "c"]
