"""Tests of the end of an attempt: metrics, reports, and the time when the gang is due again."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from allaboard.binding.outcomes import Assignment, BindReply, Committed, MembersChanged, Refused, Result
from allaboard.binding.reasons import Held, MembersMissing, NotFinished
from allaboard.gangs.membership import POD_GROUP_LABEL
from allaboard.gangs.podgroup import PodGroup
from allaboard.gangs.registry import OVER_LIMIT
from allaboard.model.gang import Gang, GangKey, Hold
from allaboard.model.pod import Owner
from allaboard.model.reasons import Cause, Code
from allaboard.planning.prepared import prepared
from allaboard.queueing.requeue import Requeue
from allaboard.records.record import LastBind
from allaboard.records.wake_up import ANYTHING, WakeUpOn
from allaboard.scheduling.decide import SuspendJobs, Wait, after_bind
from tests.unit.placement.clusters import pods
from tests.unit.scheduling.schedulers import JOB, OF_A_JOB, PARTIAL, World

MEMBER_GONE = Refused(MembersChanged(1, 2))
NEVER = math.inf
FIRST_JOB, SECOND_JOB = Owner("batch/v1", "Job", "one", "one"), Owner("batch/v1", "Job", "two", "two")


def answers(gang: Gang, bound: int, result: Result = Result.UNANSWERED, **fields: Any) -> Committed:
    """Return an outcome with ``bound`` candidates bound, and with ``result`` for the binds of the other candidates."""
    assignments = [Assignment(pod, "n") for pod in gang.candidates]
    failed = tuple((each, BindReply(result, "no", **fields)) for each in assignments[bound:])
    return Committed(tuple(assignments[:bound]), failed, missing=max(0, gang.missing - bound))


class Ending(NamedTuple):
    """The expected end of an attempt at a gang with ``fields``, of which ``bound`` members are bound.

    ``refusal`` describes the reply to the other binds. ``counted`` are the outcomes of its transactions in the metrics. The gang is due in
    ``seconds``, or in ``seconds_asked`` if the API server asks for a pause of eight seconds.
    """

    fields: dict[str, Any]
    bound: int
    refusal: dict[str, Any]
    counted: list[str]
    message: str
    seconds: float
    seconds_asked: float = 8.0
    requests: list[str] = []  # noqa: RUF012  # never written
    is_finishing: bool = False


DOUBT, DENIED = {"in_doubt": "7"}, {"result": Result.REFUSED}
RELEASED = ["delete g-0", "delete g-1"]
ENDINGS = {
    "Wait": Ending({}, 0, {}, ["refused"], "pods g-0, g-1: no", 1.0),
    "Wait, in doubt": Ending({}, 0, DOUBT, ["refused"], "pods g-0, g-1: no", 1.0, is_finishing=True),
    "StayOpen": Ending(PARTIAL, 1, DENIED, ["open"], "3 of 4 members bound, 1 missing: pod g-3: no", 1.0),
    "Finish": Ending({"size": 3}, 2, {}, ["open"], "2 of 3 members bound, 1 missing: pod g-2: no", 0.5, 5.0, is_finishing=True),
    "Release": Ending({"size": 3}, 2, DENIED, ["open", "undone"], "undone, released g-0, g-1: pod g-2: no", 1.0, 8.0, RELEASED, True),
    "Whole": Ending({"size": 3, "minimum": 2}, 2, DENIED, ["whole"], "2 members bound", 1.0),
}


@pytest.mark.parametrize("retry_after", [0.0, 8.0])
@pytest.mark.parametrize("decision", ENDINGS)
async def test_the_result_of_the_binds_is_counted_and_reported_and_the_gang_is_requeued(decision: str, retry_after: float) -> None:
    ending = ENDINGS[decision]
    async with World() as world:
        attempt = world.begin(world.add("g", **ending.fields))
        key, outcome = attempt.gang.key, answers(attempt.gang, ending.bound, retry_after=retry_after, **ending.refusal)
        assert type(after_bind(attempt.gang, outcome, None)).__name__ == decision.partition(",")[0]

        await world.executor.after_bind(attempt, await world.plan(attempt), outcome)

        outcomes = ("refused", "open", "undone", "whole")
        assert [each for each in outcomes if world.counted("transactions", outcome=each)] == ending.counted
        assert (world.counted("binds", result="bound"), world.api.requests) == (ending.bound, ending.requests)
        assert (world.message_of(key), world.records.is_finishing(key)) == (ending.message, ending.is_finishing)
        assert world.seconds_until_due(key) == (ending.seconds_asked if retry_after else ending.seconds)
        if retry_after:  # nothing shortens this pause
            world.queue.mark(key)
            assert world.seconds_until_due(key) == ending.seconds_asked


async def test_each_bind_is_counted_by_its_result() -> None:
    async with World() as world:
        attempt = world.begin(world.add("g", 3))
        await world.executor.after_bind(attempt, await world.plan(attempt), answers(attempt.gang, 1))
        assert (world.counted("binds", result="bound"), world.counted("binds", result="unanswered")) == (1, 2)


@pytest.mark.parametrize(("held_seconds", "seconds"), [(0.5, 1.0), (3.0, 3.0)])
async def test_the_backoff_of_a_gang_whose_transaction_failed_is_at_least_as_long_as_it_held_capacity(
    held_seconds: float, seconds: float
) -> None:
    async with World() as world:
        attempt = world.begin(world.add("g"))
        attempt.held_seconds = held_seconds
        await world.executor.after_bind(attempt, await world.plan(attempt), MEMBER_GONE)
        assert world.seconds_until_due(attempt.gang.key) == seconds
        assert world.counted("transactions", outcome="refused") == 1
        assert world.message_of(attempt.gang.key).endswith("1 of 2 unbound members still exist")


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_refusal_has_no_backoff_once_capacity_assumed_for_another_gang_is_returned(is_refused: bool) -> None:
    async with World(cpus=2) as world:
        attempt = world.begin(world.add("g"))
        plan = await world.plan(attempt)
        for pod in attempt.gang.candidates:
            world.view.assume(pod, "n")
        other = world.begin(world.add("other"))
        world.refuse(other, await world.plan(other), Cause(Code.INSUFFICIENT))
        for pod in attempt.gang.candidates if is_refused else ():
            world.view.forget(pod)
        await world.executor.after_bind(attempt, plan, MEMBER_GONE if is_refused else answers(attempt.gang, 2))
        await world.queue.drain()
        assert (other.gang.key in world.queue._active) is is_refused


async def test_a_refusal_has_no_backoff_once_resolved_binds_return_the_capacity() -> None:
    async with World(cpus=2) as world:
        attempt = world.begin(world.add("g"))
        for pod in attempt.gang.candidates:
            world.view.assume(pod, "n")
        other = world.begin(world.add("other"))
        world.refuse(other, await world.plan(other), Cause(Code.INSUFFICIENT))
        for pod in attempt.gang.candidates:
            world.view.forget(pod)
        await world.executor._resolved(attempt.gang.key, Committed(()))
        await world.queue.drain()
        assert other.gang.key in world.queue._active


@pytest.mark.parametrize(("held_seconds", "seconds", "is_reported"), [(0.5, 300.0, True), (3.0, 0.0, False)])
async def test_surplus_members_without_capacity_wait_for_it_unless_the_plan_may_be_outdated(
    held_seconds: float, seconds: float, is_reported: bool
) -> None:
    async with World(cpus=2) as world:
        attempt = world.begin(world.add("g", 3, minimum=2))
        attempt.held_seconds = held_seconds
        plan = await world.plan(attempt)
        await world.executor.after_bind(attempt, plan, replace(answers(attempt.gang, 2), failed=()))
        assert world.seconds_until_due(attempt.gang.key) == seconds
        assert (("g-2", "FailedScheduling") in world.events.reported) is is_reported


async def test_a_whole_gang_is_not_attempted_again_and_its_earlier_failures_are_forgotten() -> None:
    async with World() as world:
        key = world.add_partially_bound("g", 2, bound=1)
        world.fail(world.begin(key).gang, "no")
        world.records.of(key).had_grace = True
        attempt = world.begin(key)
        await world.executor.after_bind(attempt, await world.plan(attempt), answers(attempt.gang, 1))
        record = world.records.of(key)
        assert (record.queue.attempts, record.had_grace) == (0, False)
        assert record.partial_bind is not None
        assert not record.partial_bind.is_kept_open
        assert world.seconds_until_due(key) == NEVER


async def test_a_gang_past_its_time_out_is_due_for_its_release_half_a_second_after_a_failed_bind() -> None:
    async with World() as world:
        attempt = world.begin(world.add_partially_bound("g", **OF_A_JOB))
        await world.executor.after_bind(attempt, await world.plan(attempt), answers(attempt.gang, 1))
        assert world.seconds_until_due(attempt.gang.key) == 0.5


async def test_a_refused_gang_reports_the_cause_and_is_due_when_the_lacking_capacity_is_freed() -> None:
    async with World(cpus=1) as world:
        attempt = world.begin(world.add("g"))
        key, plan = attempt.gang.key, await world.plan(attempt)
        world.refuse(attempt, plan, await world.planner.cause(prepared(attempt.gang)))
        opinion = world.podgroup_writer.opinion(key)
        assert opinion is not None
        assert (opinion.code, opinion.short) == (Code.NEVER_FITS, "needs 2 cpu; the nodes it may use have 1 in all")
        assert world.records.of(key).advice.wanted_for == opinion.message
        assert world.seconds_until_due(key) == 60.0  # at the gang's time-out
        for cpus, seconds in ((1, 60.0), (2, 0.0)):
            world.resize(cpus)
            await world.queue.drain()
            assert world.seconds_until_due(key) == seconds


async def test_only_surplus_members_of_a_whole_gang_are_reported_as_unschedulable() -> None:
    async with World(cpus=2) as world:
        attempt = world.begin(world.add("g", 3, minimum=2, bound=2))
        world.refuse(attempt, await world.plan(attempt), None)
        assert world.message_of(attempt.gang.key) == "2 members bound"
        assert world.events.reported == [("g-2", "FailedScheduling"), ("g", "Scheduled")]


@pytest.mark.parametrize(
    ("hold", "seconds"),
    [
        (Hold("BadLabel", "wrong"), [300.0, 300.0]),
        (Hold(OVER_LIMIT, "wrong", field="members"), [300.0, 300.0]),
        (Hold("PodGroupNotFound", "wrong"), [1.0, 300.0]),  # a PodGroup may be created just after its pods
    ],
)
async def test_a_held_gang_is_reported_and_not_attempted(hold: Hold, seconds: list[float]) -> None:
    async with World() as world:
        key = world.add("g")
        for until_due in seconds:
            world.carry_out(world.begin(key), Wait(Held(hold)))
            assert world.seconds_until_due(key) == until_due
            assert world.message_of(key) == ("wrong" if until_due == 300.0 else "")
        assert world.counted("over_limit", what="members") == (2 if hold.reason == OVER_LIMIT else 0)


async def test_a_gang_that_waits_for_members_is_attempted_at_its_time_out() -> None:
    async with World() as world:
        key = world.add_partially_bound("g", 2, bound=1, minimum=3)
        world.records.partial_bind(key).expires = world.now + 20.0
        for seconds in (2.0, 18.0):  # first the report to its pods is due, then its time-out
            world.carry_out(world.begin(key), Wait(MembersMissing()))
            assert world.seconds_until_due(key) == seconds
            world.now += 2.0
        assert world.message_of(key) == "podgroup default/g: waiting for members: 2 of 3 exist"


async def test_a_gang_is_due_when_its_binds_are_resolved_and_its_deadline_restarts_once() -> None:
    async with World() as world:
        key = world.add("g", **PARTIAL)
        world.partial_binds.add(world.begin(key).gang)
        deadlines = []
        for _ in range(2):
            world.now += 4.0
            await world.executor._resolved(key, Committed(()))
            deadlines.append((world.records.partial_bind(key).deadline or 0.0) - world.now)
        assert deadlines == [5.0, 1.0]
        assert world.seconds_until_due(key) == 0.0


@pytest.mark.parametrize("bound", [0, 2])
async def test_a_gang_with_a_defect_is_retried_and_is_finished_if_it_is_partially_bound(bound: int) -> None:
    async with World() as world:
        key = world.add("g", 4, bound=bound)
        for seconds in (1.0, 2.0, 4.0):
            world.begin(key)
            world.executor.handle_defect(key, LookupError("a defect"))
            assert world.seconds_until_due(key) == seconds
        assert world.message_of(key) == "the scheduler failed on this gang with an internal error; see its log"
        assert world.records.is_finishing(key) is bool(bound)


async def test_forgetting_a_gang_deletes_its_record_and_all_references_to_the_gang() -> None:
    async with World() as world:
        key, other = world.add_partially_bound("g", bound=1), world.add_partially_bound("other", bound=1)
        world.records.partial_bind(other).released_for = key
        world.fail(world.gang(key), "no")
        world.executor.forget(key)
        assert world.records.find(key) is None
        assert world.records.partial_bind(other).released_for is None
        assert set(world.queue.sizes().values()) == {0}


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_a_surplus_member_whose_bind_or_dry_run_was_refused_waits_as_long_as_the_api_server_asks(is_dropped: bool) -> None:
    async with World() as world:
        attempt = world.begin(world.add("g", 3, minimum=2))
        outcome = answers(attempt.gang, 2, Result.REFUSED, retry_after=8.0)
        if is_dropped:
            outcome = replace(outcome, failed=(), dropped=outcome.failed)
        await world.executor.after_bind(attempt, await world.plan(attempt), outcome)
        assert world.seconds_until_due(attempt.gang.key) == 8.0


@pytest.mark.parametrize(("cpus", "is_first"), [(1, True), (2, False)])
async def test_a_gang_that_lost_a_member_goes_before_older_gangs_unless_it_requests_more_than_it_held(cpus: int, is_first: bool) -> None:
    async with World() as world:
        healed, older = world.add("healed", 2, bound=2, created=9.0), world.add("older", 1, created=1.0)
        world.do_nothing(world.gang(healed))
        lost = world.gang(healed).bound[0]
        world.view.remove_pod(lost.key)
        (larger,) = pods("larger", 1, {"cpu": cpus * 1000})
        world.view.upsert_pod(replace(larger, owner=lost.owner, labels=lost.labels, created=9.0))
        assert world.queue.peek() == (healed if is_first else older)


@pytest.mark.parametrize(
    ("phases", "code", "message"),
    [
        (("Succeeded", "Succeeded"), Code.ENDED, "ended: 2 members succeeded, 0 failed"),
        (("Succeeded", "Pending"), Code.ENDED, "ended: 1 member succeeded, 0 failed"),
        (("Failed", "Pending"), Code.ENDED, "ended: 0 members succeeded, 1 failed"),
        (("Pending", "Pending"), Code.WAITING, "podgroup default/g: waiting for members: 0 of 2 exist"),
    ],
)
async def test_a_gang_whose_pods_were_deleted_reports_its_end_or_that_it_waits(phases: tuple[str, ...], code: Code, message: str) -> None:
    async with World() as world:
        key = world.add("g", bound=2)
        world.do_nothing(world.gang(key))
        members = world.gang(key).members
        for pod, phase in zip(members, phases, strict=True):
            world.view.upsert_pod(replace(pod, phase=phase))
        for pod in members:
            world.view.remove_pod(pod.key)
        world.do_nothing(world.gang(key))
        opinion = world.podgroup_writer.opinion(key)
        assert opinion is not None
        assert (opinion.code, opinion.message) == (code, message)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"phase": "Finished", "reason": "Ended", "succeeded": 2, "schedulerName": "allaboard"}, "ended: 2 members succeeded, 0 failed"),
        (
            {"phase": "Running", "reason": "Scheduled", "succeeded": 1, "failed": 1, "schedulerName": "allaboard"},
            "ended: 1 member succeeded, 1 failed",
        ),
        ({"phase": "Running", "schedulerName": "allaboard"}, "podgroup default/g: waiting for members: 0 of 2 exist"),
        ({"phase": "Finished"}, ""),  # the status of another scheduler, or of upstream's CRD, is not changed
        ({"phase": "Running", "reason": "Scheduled", "schedulerName": "second"}, ""),
        ({"phase": "Finished", "reason": "Ended", "succeeded": 2, "schedulerName": "second"}, ""),
        ({"phase": "Running", "schedulerName": ["allaboard"]}, ""),
        (None, ""),
    ],
)
async def test_the_end_of_a_gang_is_read_from_its_podgroup_after_a_restart(status: dict[str, Any] | None, message: str) -> None:
    async with World() as world:
        key = GangKey("default", "g")
        world.registry.observe_group(PodGroup(key, "uid", 1, 2, 60, 0.0, {}, status=status))
        world.do_nothing(world.gang(key))
        assert world.message_of(key) == message
        assert message or not world.events.reported


def two_jobs(world: World, cpus: int = 1, bound: int = 0, **later_amounts: int) -> GangKey:
    """Add a gang of two Jobs with two pods each.

    Each pod of the first Job requests ``cpus`` processors, and each pod of the second Job one processor and ``later_amounts``.
    """
    key = world.add("g", minimum=2, cpus=cpus, owner=FIRST_JOB, bound=bound)
    later = pods("later", 2, {"cpu": 1000, **later_amounts})
    for pod in later:
        world.view.upsert_pod(replace(pod, owner=SECOND_JOB, created=1.0, labels=((POD_GROUP_LABEL, "g"),)))
    return key


async def test_a_run_that_does_not_fit_delays_no_later_run_and_is_attempted_again() -> None:
    async with World(cpus=4) as world:
        key = two_jobs(world, cpus=100)
        first = world.begin(key)
        world.refuse(first, await world.plan(first), Cause(Code.INSUFFICIENT, "cpu"))
        assert world.seconds_until_due(key) == 0.0
        second = world.begin(key)
        plan = await world.plan(second)
        assert {uid for uid, _ in plan.assignments} == {"later-0", "later-1"}
        await world.executor.after_bind(second, plan, answers(second.gang, 2))
        assert world.gang(key).candidates == first.gang.candidates


async def test_a_gang_whose_runs_all_lack_capacity_is_woken_by_a_resource_that_any_run_lacks() -> None:
    async with World(cpus=2) as world:
        key = two_jobs(world, cpus=100, memory=1)
        for wait in (0.0, 60.0):
            attempt = world.begin(key)
            world.refuse(attempt, await world.plan(attempt), Cause(Code.INSUFFICIENT, "cpu"))
            assert world.seconds_until_due(key) == wait
        state = world.records.of(key).queue
        assert (state.need, state.wake_on) == (None, WakeUpOn(frozenset({"cpu", "memory"})))
        assert world.gang(key).candidates[0].owner == FIRST_JOB


async def test_a_run_whose_binds_are_refused_delays_no_later_run() -> None:
    async with World() as world:
        key = two_jobs(world, cpus=1)
        first = world.begin(key)
        await world.executor.after_bind(first, await world.plan(first), answers(first.gang, 0, Result.REFUSED))
        assert world.seconds_until_due(key) == 0.0
        assert {pod.owner for pod in world.begin(key).gang.candidates} == {SECOND_JOB}


async def test_a_run_that_backs_off_after_losses_delays_no_later_run() -> None:
    async with World() as world:
        key = two_jobs(world, cpus=1)
        world.records.of(key).last_binds["one/"] = LastBind(world.now, 2, 0, 0, losses=4)
        world.back_off(world.begin(key))
        assert world.seconds_until_due(key) == 0.0
        assert {pod.owner for pod in world.begin(key).gang.candidates} == {SECOND_JOB}


async def test_a_partially_bound_run_is_not_deferred() -> None:
    async with World(cpus=2) as world:
        key = two_jobs(world, cpus=2, bound=1)
        world.records.of(key).whole_runs = {"run"}
        attempt = world.begin(key)
        world.refuse(attempt, await world.plan(attempt), Cause(Code.INSUFFICIENT, "cpu"))
        assert (world.seconds_until_due(key), world.gang(key).run) == (60.0, "run")


async def test_a_run_for_which_the_api_server_asks_for_a_pause_is_not_deferred_and_ends_all_deferrals() -> None:
    async with World() as world:
        key = two_jobs(world)
        first = world.begin(key)
        await world.executor.after_bind(first, await world.plan(first), answers(first.gang, 0, Result.REFUSED))
        second = world.begin(key)
        refusal = answers(second.gang, 0, Result.REFUSED, retry_after=8.0)
        await world.executor.after_bind(second, await world.plan(second), refusal)
        assert world.seconds_until_due(key) == 8.0
        assert world.gang(key).candidates == first.gang.candidates
        assert world.records.of(key).wakes_deferred_runs is None
        await world.executor.after_bind(first, await world.plan(first), refusal)
        assert world.gang(key).candidates == first.gang.candidates


async def test_a_gang_in_backoff_after_losses_is_attempted_at_its_time_out() -> None:
    async with World() as world:
        attempt = world.begin(world.add("g", 4, bound=2))
        key = attempt.gang.key
        world.records.of(key).last_binds["u/"] = LastBind(world.now, 4, 0, 0, losses=4)
        world.records.partial_bind(key).expires = world.now + 3.0
        world.back_off(attempt)
        assert world.seconds_until_due(key) == 3.0


async def test_a_failed_suspension_of_jobs_does_not_shorten_a_pause_that_the_api_server_asked_for() -> None:
    async with World() as world:
        attempt = world.begin(world.add("g", 2, bound=1, owner=JOB))
        key = attempt.gang.key
        world.queue.requeue(key, Requeue.failed(ANYTHING, retry_by=world.now, at_least=10.0), seen=world.queue.changes)
        world.queue.requeue(key, Requeue.again(0.0))  # the gang's time-out is over
        assert world.queue.pop() == key
        world.carry_out(attempt, SuspendJobs(NotFinished(1, 60.0)))
        await world.wait_until_idle()
        world.now += 9.9
        assert world.queue.pop() is None
        world.now += 0.1
        assert world.queue.pop() == key


@pytest.mark.parametrize(("namespace", "is_named"), [("default", True), ("team", False)])
async def test_a_release_names_the_gang_that_needs_the_capacity_only_within_one_namespace(namespace: str, is_named: bool) -> None:
    async with World() as world:
        victim = world.begin(world.add("g", **PARTIAL)).gang
        world.executor.release_for(replace(victim, key=GangKey(namespace, "secret")), [victim])
        await world.wait_until_idle()
        assert world.message_of(victim.key).startswith("undone, released g-0, g-1: not whole within 60 s, and")
        assert ("secret" in world.message_of(victim.key)) is is_named


async def test_decisions_are_recorded_for_each_gang_and_for_all_gangs() -> None:
    async with World(cpus=1) as world:
        key = world.add("g")
        for _ in range(30):
            attempt = world.begin(key)
            world.refuse(attempt, await world.plan(attempt), Cause(Code.INSUFFICIENT, "cpu"))
            world.now += 100.0
        history = world.records.of(key).history
        (transition,) = history.transitions
        assert (transition.decision, transition.reason, transition.times) == ("Wait", str(Code.INSUFFICIENT), 30)
        assert transition.last_at - transition.first_at == 2900.0
        assert history.plan is not None
        assert (history.plan.feasible, history.plan.placed, history.plan.unplaced) == (False, 1, 1)
        assert [each for each, _ in world.records.decisions.last()] == [key] * 30


async def test_a_run_that_is_being_finished_is_not_deferred() -> None:
    async with World() as world:
        key = two_jobs(world)
        attempt = world.begin(key)
        world.partial_binds.suspect(key)
        world.fail(attempt.gang, "no answer")
        assert world.gang(key).candidates == attempt.gang.candidates
        assert world.seconds_until_due(key) == 1.0
