"""Decisions are carried out, and nothing else."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from allaboard.binding.outcomes import BindReply, Result
from allaboard.model.gang import GangKey, Hold
from allaboard.placement import Plan
from allaboard.planning.answers import Placed
from allaboard.planning.prepared import prepared
from allaboard.planning.search_processes import SearchError, SearchOverrunError
from allaboard.records.partial_bind import Finishing, KeptOpen
from allaboard.records.record import LastBind
from allaboard.scheduling.attempt import Attempt
from allaboard.scheduling.decide import before_search
from tests.unit.scheduling.schedulers import OF_A_JOB, PARTIAL, World
from tests.unit.scheduling.test_decide import name_of

BOUND, DELETED, EVICTED = ([f"{what} g-0", f"{what} g-1"] for what in ("bind", "delete", "evict"))
SUSPENDED = ["suspend the Job of g-0", "suspend the Job of g-1"]
UNDONE, NO_ROOM = "undone, released g-0, g-1: ", "podgroup default/g: 2 of 4 members placeable"
MISSING, LOST = f"{UNDONE}2 missing members could not be bound within", f"{UNDONE}2 lost members could not be replaced within 60 s"
SOON_LOST = "podgroup default/g: members were lost soon after they were bound"
NEVER = math.inf


class Done(NamedTuple):
    """The result for a gang with ``fields``: the requests, what is reported, and in how many seconds the gang is due again."""

    fields: dict[str, Any]
    asked: list[str]
    said: str
    seconds: float


LOOKS = {
    "Release": Done({**PARTIAL, "state": Finishing(0.0)}, DELETED, f"{MISSING} 5 s", 1.0),
    "Release!": Done({**PARTIAL, "options": {"on-member-lost": "release"}, "state": None}, EVICTED, LOST, 1.0),
    "SuspendJobs": Done({**OF_A_JOB, "state": KeptOpen()}, SUSPENDED, f"{MISSING} 60 s", 1.0),
    "Wait Held": Done({}, [], "a label is wrong", 300.0),
    "Done": Done({"bound": 2}, [], "2 members bound", NEVER),
    "Wait MembersMissing": Done({"minimum": 4}, [], "podgroup default/g: waiting for members: 2 of 4 exist", 2.0),
    "Wait LostSoon": Done({}, [], f"{SOON_LOST}, 3 times in a row: the next are bound 4 s after the last", 4.0),
    "Search": Done({}, [], "", NEVER),
}
FOUND = {
    "Bind": Done({}, BOUND, "2 members bound", NEVER),
    "SearchLonger": Done({}, [], "", 60.0),
    "of victims": Done({}, ["evict victim-0"], "podgroup default/g: 1 of 2 members placeable", 10.0),
    "Release": Done({**PARTIAL, "state": Finishing(2000.0)}, DELETED, f"{UNDONE}{NO_ROOM}", 1.0),
    "Release!": Done({**PARTIAL, "options": {"on-member-lost": "release"}, "state": None}, EVICTED, LOST, 1.0),
    "SuspendJobs": Done({**OF_A_JOB, "state": KeptOpen()}, SUSPENDED, f"{MISSING} 60 s", 1.0),
    "Wait": Done(PARTIAL, [], NO_ROOM, 60.0),
}


def made(world: World, fields: dict[str, Any]) -> GangKey:
    """Add a gang, with the state of its partial bind if that is among the ``fields``: then its time-out is over."""
    fields = dict(fields)
    state = fields.pop("state", NEVER)
    key = world.add("g", **fields)
    if state is not NEVER:
        partial_bind = world.records.partial_bind(key)
        partial_bind.state, partial_bind.expires = state, world.now
    return key


async def carry_out(world: World, attempt: Attempt, *, plan: Plan | None = None, is_turn: bool = True) -> None:
    """Bind as the cycle does, with ``plan`` or a plan for what is free now."""
    gang = prepared(attempt.gang)
    plan = plan or await world.planner.plan(gang)
    answer = await world.cycle_.round.conclude(world.due.current, gang, plan, may_search_longer=plan.feasible is None)
    if isinstance(answer, Placed):
        answer = replace(answer, counts_as_pass=is_turn)
    if answer is not None:
        await world.cycle_._carry_out(attempt, answer)


async def search_longer(world: World, attempt: Attempt) -> None:
    """Pretend that a short search has found neither a placement nor a proof."""
    await carry_out(world, attempt, plan=replace(await world.plan(attempt), feasible=None))


@pytest.mark.parametrize("look", LOOKS)
async def test_decisions_before_a_search_are_carried_out(look: str) -> None:
    done = LOOKS[look]
    async with World() as world:
        key = made(world, done.fields)
        if look in ("Release!", "SuspendJobs"):
            world.records.partial_bind(key).was_tried = True
        attempt = world.begin(key)
        attempt.gang = replace(attempt.gang, hold=Hold("BadLabel", "a label is wrong") if look == "Wait Held" else None)
        if look == "Wait LostSoon":
            world.records.of(key).last_binds["u/"] = LastBind(world.now, 2, 0, 0, losses=3)
        decision = before_search(attempt.gang, world.records.find_partial_bind(key), world.now, world.due._lost_soon(attempt.gang))
        assert name_of(decision).startswith(look)
        world.decide(attempt, decision)
        await world.settle()
        assert (world.api.asked, world.seconds_until_due(key)) == (done.asked, done.seconds)
        assert world.has_said(key, done.said)


@pytest.mark.parametrize("found", FOUND)
async def test_decisions_after_a_search_are_carried_out(found: str) -> None:
    done = FOUND[found]
    async with World(cpus=2) as world:
        world.searched.goes_on.clear()
        if found == "of victims":
            world.add_partially_bound("victim", bound=1)
        attempt = world.begin(key := made(world, done.fields))
        if found == "SearchLonger":
            await search_longer(world, attempt)
        else:
            await carry_out(world, attempt)
        await world.breathe()
        assert (world.api.asked, world.seconds_until_due(key)) == (done.asked, done.seconds)
        assert world.has_said(key, done.said)
        assert world.long.is_searching(key) is (found == "SearchLonger")


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
        await carry_out(world, attempt, plan=plan)
        await world.settle()
        assert (world.api.asked, world.view.counts["assumed_pods"]) == ([], 0)
        assert world.seconds_until_due(attempt.gang.key) == pytest.approx(seconds)


@pytest.mark.parametrize(("was_undone", "tried"), [(False, ["g-1"]), (True, ["g-0", "g-1"])])
async def test_after_a_rollback_every_member_is_dry_run(was_undone: bool, tried: list[str]) -> None:
    async with World() as world:
        attempt = world.begin(world.add("g"))
        world.records.of(attempt.gang.key).was_undone = was_undone
        await carry_out(world, attempt)
        await world.settle()
        assert world.api.tried == tried


@pytest.mark.parametrize("is_turn", [True, False])
async def test_a_gang_that_is_placed_by_itself_passes_an_older_one_in_backoff(is_turn: bool) -> None:
    """For gangs that are placed together the cycle counts one pass."""
    async with World() as world:
        old = world.begin(world.add("old")).gang
        world.failed(old, "no answer")
        world.queue.mark(old.key)
        await carry_out(world, world.begin(world.add("g", created=1.0)), is_turn=is_turn)
        assert world.records.of(old.key).queue.passed == (1 if is_turn else 0)


async def test_capacity_stays_assumed_while_an_unanswered_bind_may_still_be_carried_out() -> None:
    async with World() as world:
        world.api.seals.clear()
        world.api.replies["g-1"] = BindReply(Result.UNANSWERED, "no answer", in_doubt="1")
        attempt = world.begin(world.add("g"))
        await carry_out(world, attempt)
        await world.breathe()
        assert [world.view.is_assumed(pod) for pod in attempt.gang.members] == [True, True]  # no watch has delivered the first
        world.api.seals.set()
        await world.breathe()
        assert [world.view.is_assumed(pod) for pod in attempt.gang.members] == [True, False]


TOO_LONG, DIED = SearchOverrunError("it took too long"), SearchError("the process died")


@pytest.mark.parametrize(
    ("error", "is_finishing", "is_begun_anew"), [(TOO_LONG, False, True), (TOO_LONG, True, False), (DIED, False, False)]
)
async def test_a_search_that_overran_is_repeated_at_length_and_one_that_failed_after_a_backoff(
    error: SearchError, is_finishing: bool, is_begun_anew: bool
) -> None:
    """A partially bound gang has no time for a long search."""
    async with World() as world:
        world.searched.goes_on.clear()
        attempt = world.begin(world.add("g", **PARTIAL))
        if is_finishing:
            world.partial_binds.add(attempt.gang)
        world.searched.fails["briefly g"] = error
        world.queue.mark(attempt.gang.key)
        await world.cycle_.run()
        await world.breathe()
        assert world.long.is_searching(attempt.gang.key) is is_begun_anew
        assert world.has_said(attempt.gang.key, "" if is_begun_anew else str(error))
        assert world.records.of(attempt.gang.key).queue.attempts == (0 if is_begun_anew else 1)


@pytest.mark.parametrize(
    ("meanwhile", "bound", "said", "seconds"),
    [
        ("a placement is found", BOUND, "2 members bound", NEVER),
        ("the node shrinks", [], "", 0.02),
        ("none are found", [], "podgroup default/g: 2 of 2 members placeable", 60.0),
        ("the process dies", [], "the process died", 1.0),
        ("it is abandoned", [], "", 60.0),
    ],
)
async def test_the_decision_after_a_long_search_is_carried_out_and_the_next_search_begins(
    meanwhile: str, bound: list[str], said: str, seconds: float
) -> None:
    async with World() as world:
        world.searched.goes_on.clear()
        world.searched.finds_nothing |= {"at length g"} if meanwhile == "none are found" else set()
        world.searched.fails |= {"at length g": DIED} if meanwhile == "the process dies" else {}
        key, after = world.add("g"), world.add("next", created=1.0)
        for each in (key, after):
            await search_longer(world, world.begin(each))
        assert world.has_said(key, "")
        assert "no placement found" in world.said(after)  # a waiting gang reports what is known
        await world.breathe()
        if meanwhile == "the node shrinks":
            world.resize(1)
        elif meanwhile == "it is abandoned":
            world.long.abandon(key)
        world.searched.goes_on.set()
        await world.settle()
        assert [each for each in world.api.asked if " g-" in each] == bound
        assert world.has_said(key, said)
        assert world.seconds_until_due(key) == pytest.approx(seconds)
        assert "at length next" in world.searched.asked


@pytest.mark.parametrize(("has_turn", "bound"), [(True, ["bind first-0", "bind first-1"]), (False, BOUND)])
async def test_a_plan_of_a_long_search_waits_two_seconds_at_most_for_gangs_that_rank_before(has_turn: bool, bound: list[str]) -> None:
    async with World(cpus=2) as world:
        world.searched.goes_on.clear()
        key = world.add("g")
        await search_longer(world, world.begin(key))
        await world.breathe()
        world.add("first", priority=1)
        in_hand: list[bool] = []
        world.searched.meanwhile["briefly first"] = lambda: in_hand.append(world.due.is_outranked(key))
        world.searched.goes_on.set()
        await world.breathe()
        assert world.api.asked == []
        if has_turn:
            await world.cycle()
        else:
            world.now += 2.0
            await world.settle()
        assert (world.api.asked, in_hand) == (bound, [True] if has_turn else [])
        assert world.due.is_outranked(key) is not has_turn


async def test_a_gang_outranks_others_until_it_is_decided_about_also_while_its_victims_are_found() -> None:
    async with World(cpus=2) as world:
        world.add_partially_bound("victim", bound=1)
        world.add("first", priority=1)
        later = world.add("later")
        outranked: list[bool] = []

        def note() -> None:
            outranked.append(world.due.is_outranked(later))
            world.searched.meanwhile["briefly first"] = note

        note()
        await world.cycle()
        assert world.searched.asked.count("briefly first") > 1  # the round's search, and those that find the victims
        assert all(outranked)
        assert not world.due.is_outranked(later)


async def test_victims_that_take_long_to_find_are_found_beside_the_cycle() -> None:
    async with World(cpus=2) as world:
        world.add_partially_bound("victim", bound=1)
        attempt = world.begin(world.add("g"))
        assert not await world.longer.release_victims(prepared(attempt.gang), 0.0)
        assert world.api.asked == []
        await search_longer(world, attempt)
        await world.settle()
        assert world.api.asked == ["evict victim-0"]


async def test_a_gang_is_not_called_partially_bound_while_its_first_binds_are_in_flight() -> None:
    async with World() as world:
        attempt = world.begin(world.add("g"))
        world.failed(attempt.gang, "a webhook said no")
        world.now += 10.0
        world.api.answers.clear()
        attempt = world.begin(attempt.gang.key)
        await carry_out(world, attempt)
        await world.breathe()
        assert [opinion.is_being_bound for opinion in [world.keeper.opinion(attempt.gang.key)] if opinion] == [True]
        world.api.answers.set()
