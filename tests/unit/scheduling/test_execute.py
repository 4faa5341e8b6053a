"""Tests that the executor carries out each decision: requests, reports, and the time when the gang is due again."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from allaboard.binding.outcomes import BindReply, Result
from allaboard.model.gang import GangKey, Hold
from allaboard.placement import Plan
from allaboard.planning.prepared import prepared
from allaboard.planning.search_processes import SearchError, SearchOverrunError
from allaboard.records.partial_bind import Finishing, KeptOpen
from allaboard.records.record import LastBind
from allaboard.scheduling.attempt import Attempt
from allaboard.scheduling.decide import before_search
from tests.unit.scheduling.schedulers import OF_A_JOB, PARTIAL, World
from tests.unit.scheduling.test_decide import name_of

BOUND, DELETED, EVICTED = ([f"{verb} g-0", f"{verb} g-1"] for verb in ("bind", "delete", "evict"))
SUSPENDED = ["suspend the Job of g-0", "suspend the Job of g-1"]
UNDONE, NO_CAPACITY = "undone, released g-0, g-1: ", "podgroup default/g: 2 of 4 members placeable"
MISSING, LOST = f"{UNDONE}2 missing members could not be bound within", f"{UNDONE}2 lost members could not be replaced within 60 s"
LOST_SOON = "podgroup default/g: members were lost soon after they were bound"
NEVER = math.inf


class Expected(NamedTuple):
    """The expectation for a gang with ``fields``: API requests, the start of the gang's message, and the seconds until the gang is due."""

    fields: dict[str, Any]
    requests: list[str]
    message: str
    seconds: float


BEFORE_SEARCH = {
    "Release": Expected({**PARTIAL, "state": Finishing(0.0)}, DELETED, f"{MISSING} 5 s", 1.0),
    "Release!": Expected({**PARTIAL, "options": {"on-member-lost": "release"}, "state": None}, EVICTED, LOST, 1.0),
    "SuspendJobs": Expected({**OF_A_JOB, "state": KeptOpen()}, SUSPENDED, f"{MISSING} 60 s", 1.0),
    "Wait Held": Expected({}, [], "a label is wrong", 300.0),
    "Done": Expected({"bound": 2}, [], "2 members bound", NEVER),
    "Wait MembersMissing": Expected({"minimum": 4}, [], "podgroup default/g: waiting for members: 2 of 4 exist", 2.0),
    "Wait LostSoon": Expected({}, [], f"{LOST_SOON}, 3 times in a row: the next members are bound 4 s after the last", 4.0),
    "Search": Expected({}, [], "", NEVER),
}
AFTER_SEARCH = {
    "Bind": Expected({}, BOUND, "2 members bound", NEVER),
    "SearchLonger": Expected({}, [], "", 60.0),
    "Wait, with a victim": Expected({}, ["evict victim-0"], "podgroup default/g: 1 of 2 members placeable", 10.0),
    "Release": Expected({**PARTIAL, "state": Finishing(2000.0)}, DELETED, f"{UNDONE}{NO_CAPACITY}", 1.0),
    "Release!": Expected({**PARTIAL, "options": {"on-member-lost": "release"}, "state": None}, EVICTED, LOST, 1.0),
    "SuspendJobs": Expected({**OF_A_JOB, "state": KeptOpen()}, SUSPENDED, f"{MISSING} 60 s", 1.0),
    "Wait": Expected(PARTIAL, [], NO_CAPACITY, 60.0),
}


def add_gang(world: World, fields: dict[str, Any]) -> GangKey:
    """Add a gang. If ``fields`` contain the ``state`` of its partial bind, the gang's time-out is over."""
    fields = dict(fields)
    state = fields.pop("state", NEVER)
    key = world.add("g", **fields)
    if state is not NEVER:
        partial_bind = world.records.partial_bind(key)
        partial_bind.state, partial_bind.expires = state, world.now
    return key


async def plan_and_carry_out(world: World, attempt: Attempt, *, plan: Plan | None = None) -> None:
    """Decide about a gang as the cycle does, and carry the decision out, with ``plan`` or with a plan for the free capacity."""
    gang = prepared(attempt.gang)
    plan = plan or await world.planner.plan(gang)
    answer = await world.cycle.round.conclude(world.due.current, gang, plan, may_search_longer=plan.feasible is None)
    if answer is not None:
        await world.cycle._carry_out(attempt, answer)


async def search_longer(world: World, attempt: Attempt) -> None:
    """Carry out the decision that follows if a short search finds neither a placement nor a proof."""
    await plan_and_carry_out(world, attempt, plan=replace(await world.plan(attempt), feasible=None))


@pytest.mark.parametrize("name", BEFORE_SEARCH)
async def test_decisions_before_a_search_are_carried_out(name: str) -> None:
    expected = BEFORE_SEARCH[name]
    async with World() as world:
        key = add_gang(world, expected.fields)
        if name in ("Release!", "SuspendJobs"):
            world.records.partial_bind(key).was_tried = True
        attempt = world.begin(key)
        attempt.gang = replace(attempt.gang, hold=Hold("BadLabel", "a label is wrong") if name == "Wait Held" else None)
        if name == "Wait LostSoon":
            world.records.of(key).last_binds["u/"] = LastBind(world.now, 2, 0, 0, losses=3)
        decision = before_search(attempt.gang, world.records.find_partial_bind(key), world.now, world.due._lost_soon(attempt.gang))
        assert name_of(decision).startswith(name)
        world.carry_out(attempt, decision)
        await world.wait_until_idle()
        assert (world.api.requests, world.seconds_until_due(key)) == (expected.requests, expected.seconds)
        assert world.has_message(key, expected.message)


@pytest.mark.parametrize("decision", AFTER_SEARCH)
async def test_decisions_after_a_search_are_carried_out(decision: str) -> None:
    expected = AFTER_SEARCH[decision]
    async with World(cpus=2) as world:
        world.searcher.may_answer.clear()
        if decision == "Wait, with a victim":
            world.add_partially_bound("victim", bound=1)
        attempt = world.begin(key := add_gang(world, expected.fields))
        if decision == "SearchLonger":
            await search_longer(world, attempt)
        else:
            await plan_and_carry_out(world, attempt)
        await world.run_other_tasks()
        assert (world.api.requests, world.seconds_until_due(key)) == (expected.requests, expected.seconds)
        assert world.has_message(key, expected.message)
        assert world.long.is_searching(key) is (decision == "SearchLonger")


@pytest.mark.parametrize(("change", "seconds"), [("full", 0.02), ("held", 0.0), ("gone", 0.0)])
async def test_an_outdated_plan_binds_no_member_and_the_gang_is_attempted_again(change: str, seconds: float) -> None:
    async with World() as world:
        attempt = world.begin(world.add("g"))
        plan = await world.plan(attempt)
        if change == "full":
            world.resize(1)
        elif change == "held":
            world.view.upsert_pod(replace(attempt.gang.members[0], priority=1))
        else:
            world.remove(attempt.gang.key)
        world.queue.pop()  # the watch has made the gang due
        await plan_and_carry_out(world, attempt, plan=plan)
        await world.wait_until_idle()
        assert (world.api.requests, world.view.counts["assumed_pods"]) == ([], 0)
        assert world.seconds_until_due(attempt.gang.key) == pytest.approx(seconds)


@pytest.mark.parametrize(("was_undone", "dry_runs"), [(False, ["g-1"]), (True, ["g-0", "g-1"])])
async def test_every_member_gets_a_dry_run_after_a_rollback(was_undone: bool, dry_runs: list[str]) -> None:
    async with World() as world:
        attempt = world.begin(world.add("g"))
        world.records.of(attempt.gang.key).was_undone = was_undone
        await plan_and_carry_out(world, attempt)
        await world.wait_until_idle()
        assert world.api.dry_runs == dry_runs


async def test_capacity_stays_assumed_while_an_unanswered_bind_may_still_be_carried_out() -> None:
    async with World() as world:
        world.api.fences.clear()
        world.api.replies["g-1"] = BindReply(Result.UNANSWERED, "no answer", in_doubt="1")
        attempt = world.begin(world.add("g"))
        await plan_and_carry_out(world, attempt)
        await world.run_other_tasks()
        assert [world.view.is_assumed(pod) for pod in attempt.gang.members] == [True, True]  # no watch has delivered the bind of the first
        world.api.fences.set()
        await world.run_other_tasks()
        assert [world.view.is_assumed(pod) for pod in attempt.gang.members] == [True, False]


TOO_LONG, DIED = SearchOverrunError("it took too long"), SearchError("the process died")


@pytest.mark.parametrize(
    ("error", "is_finishing", "is_searched_longer"), [(TOO_LONG, False, True), (TOO_LONG, True, False), (DIED, False, False)]
)
async def test_a_gang_gets_a_long_search_after_a_search_that_overran_and_backs_off_after_one_that_failed(
    error: SearchError, is_finishing: bool, is_searched_longer: bool
) -> None:
    """A gang that is being finished has no time for a long search."""
    async with World() as world:
        world.searcher.may_answer.clear()
        attempt = world.begin(world.add("g", **PARTIAL))
        if is_finishing:
            world.partial_binds.add(attempt.gang)
        world.searcher.fails["briefly g"] = error
        world.queue.mark(attempt.gang.key)
        await world.cycle.run()
        await world.run_other_tasks()
        assert world.long.is_searching(attempt.gang.key) is is_searched_longer
        assert world.has_message(attempt.gang.key, "" if is_searched_longer else str(error))
        assert world.records.of(attempt.gang.key).queue.attempts == (0 if is_searched_longer else 1)


@pytest.mark.parametrize(
    ("event", "bound", "message", "seconds"),
    [
        ("a placement is found", BOUND, "2 members bound", NEVER),
        ("the node shrinks", [], "", 0.02),
        ("no placement is found", [], "podgroup default/g: 2 of 2 members placeable", 60.0),
        ("the process dies", [], "the process died", 1.0),
        ("the search is abandoned", [], "", 60.0),
    ],
)
async def test_the_decision_after_a_long_search_is_carried_out_and_the_next_search_begins(
    event: str, bound: list[str], message: str, seconds: float
) -> None:
    async with World() as world:
        world.searcher.may_answer.clear()
        world.searcher.finds_nothing |= {"at length g"} if event == "no placement is found" else set()
        world.searcher.fails |= {"at length g": DIED} if event == "the process dies" else {}
        key, after = world.add("g"), world.add("next", created=1.0)
        for each in (key, after):
            await search_longer(world, world.begin(each))
        assert world.has_message(key, "")
        assert "no placement found" in world.message_of(after)  # a gang that waits for its long search reports the result of the short one
        await world.run_other_tasks()
        if event == "the node shrinks":
            world.resize(1)
        elif event == "the search is abandoned":
            world.long.abandon(key)
        world.searcher.may_answer.set()
        await world.wait_until_idle()
        assert [each for each in world.api.requests if " g-" in each] == bound
        assert world.has_message(key, message)
        assert world.seconds_until_due(key) == pytest.approx(seconds)
        assert "at length next" in world.searcher.searches


@pytest.mark.parametrize(("runs_cycle", "bound"), [(True, ["bind first-0", "bind first-1"]), (False, BOUND)])
async def test_the_plan_of_a_long_search_waits_for_gangs_of_higher_rank_for_two_seconds_at_most(runs_cycle: bool, bound: list[str]) -> None:
    async with World(cpus=2) as world:
        world.searcher.may_answer.clear()
        key = world.add("g")
        await search_longer(world, world.begin(key))
        await world.run_other_tasks()
        world.add("first", priority=1)
        was_outranked: list[bool] = []
        world.searcher.meanwhile["briefly first"] = lambda: was_outranked.append(world.due.is_outranked(key))
        world.searcher.may_answer.set()
        await world.run_other_tasks()
        assert world.api.requests == []
        if runs_cycle:
            await world.run_cycle()
        else:
            world.now += 2.0
            await world.wait_until_idle()
        assert (world.api.requests, was_outranked) == (bound, [True] if runs_cycle else [])
        assert world.due.is_outranked(key) is not runs_cycle


async def test_a_gang_outranks_later_gangs_until_its_decision_even_while_its_victims_are_searched_for() -> None:
    async with World(cpus=2) as world:
        world.add_partially_bound("victim", bound=1)
        world.add("first", priority=1)
        later = world.add("later")
        outranked: list[bool] = []

        def note() -> None:
            outranked.append(world.due.is_outranked(later))
            world.searcher.meanwhile["briefly first"] = note

        note()
        await world.run_cycle()
        assert world.searcher.searches.count("briefly first") > 1  # the search of the round, and the searches that find victims
        assert all(outranked)
        assert not world.due.is_outranked(later)


async def test_victims_that_take_long_to_find_are_found_beside_the_cycle() -> None:
    async with World(cpus=2) as world:
        world.add_partially_bound("victim", bound=1)
        attempt = world.begin(world.add("g"))
        assert not await world.longer.release_victims(prepared(attempt.gang), 0.0)
        assert world.api.requests == []
        await search_longer(world, attempt)
        await world.wait_until_idle()
        assert world.api.requests == ["evict victim-0"]


async def test_a_gang_is_marked_as_being_bound_while_its_first_binds_are_in_flight() -> None:
    async with World() as world:
        attempt = world.begin(world.add("g"))
        world.fail(attempt.gang, "a webhook said no")
        world.now += 10.0
        world.api.answers.clear()
        attempt = world.begin(attempt.gang.key)
        await plan_and_carry_out(world, attempt)
        await world.run_other_tasks()
        opinion = world.podgroup_writer.opinion(attempt.gang.key)
        assert opinion is not None
        assert opinion.is_being_bound
        world.api.answers.set()
