"""The place in the queue of gangs that have lost a member, and what is remembered of them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import repeat
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from allaboard.binding.job_suspension import JobKeptError
from allaboard.gangs.run_history import run_was_whole
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective, OnMemberLost, Outline, Undo
from allaboard.model.pod import Owner, Pod
from allaboard.planning.known_gangs import KnownGangs
from allaboard.queueing.order import order_of, order_of_gone
from allaboard.records.partial_bind import Finishing, Leaving
from allaboard.records.record import GangRecords
from allaboard.scheduling.partial_binds import PartialBinds
from allaboard.scheduling.victims import leaving_of
from tests.unit.scheduling.clocks import Clock

KEY = GangKey("default", "gang")


def a_pod(name: str, *, stamped: int = 0) -> Pod:
    pod = Pod(
        "default",
        name,
        f"uid-{name}",
        "1",
        0.0,
        "allaboard",
        "node-1" if stamped else "",
        "Pending",
        0,
        SchedulingSpec((("pods", 1),)),
    )
    return replace(pod, stamped_min_member=stamped, transaction="a" if stamped else "")


def a_gang(*pods: Pod, minimum: int = 3, created: float = 0.0) -> Gang:
    return Gang(KEY, minimum, pods, 0, created, Objective.BINPACK, 60)


HALF = (a_pod("a", stamped=3), a_pod("b", stamped=3), a_pod("c"))
SET, JOB = Owner("apps/v1", "ReplicaSet", "r", "u"), Owner("batch/v1", "Job", "j", "u")


def a_half_of(owner: Owner, **changes: Any) -> Gang:
    """A half gang of which all members are of one owner."""
    return replace(a_gang(*(replace(pod, owner=owner) for pod in HALF)), **changes)


def known(records: GangRecords, clock: Callable[[], float], gang: Gang | None = None) -> KnownGangs:
    """What is known of one gang."""
    registry = Mock()
    registry.gang.return_value, registry.gangs.return_value, registry.group.return_value = gang, [gang] if gang else [], None
    return KnownGangs(registry, records, Mock(), Mock(), Mock(), clock)


def partial_binds_of(
    gang: Gang, records: GangRecords, *, goes: Iterable[bool] = repeat(True), restarter: Any = None, clock: Callable[[], float]
) -> PartialBinds:
    """The partial bind of one gang; ``goes`` tells of each pod that is released whether it does."""
    return PartialBinds(known(records, clock, gang), Mock(release=AsyncMock(side_effect=goes)), restarter or Mock())


def test_healing_goes_before_others_of_its_priority_and_passes_no_higher_one() -> None:
    healing, older = a_gang(*HALF, created=10.0), a_gang(a_pod("x"), created=1.0)
    assert order_of(healing) < order_of(older) < order_of(a_gang(a_pod("y"), created=2.0))
    assert order_of(replace(older, priority=1)) < order_of(healing)


def test_healing_goes_before_nobody_whose_namespace_owes_less_search_time() -> None:
    healing, other = a_gang(*HALF, created=1.0), a_gang(a_pod("x"), created=10.0)
    assert order_of(other) < order_of(healing, usage=1) < order_of(other, usage=2)


def test_no_gang_that_we_left_half_bound_passes_a_higher_priority() -> None:
    half, plain = a_gang(*HALF, created=10.0), a_gang(a_pod("x"), created=1.0)
    assert order_of(half, is_first=True) < order_of(plain)
    assert order_of(replace(plain, priority=1)) < order_of(half, is_first=True)


def test_whoever_is_gone_is_forgotten_at_once() -> None:
    assert order_of_gone(KEY) < order_of(replace(a_gang(*HALF), priority=2_147_483_647), is_first=True)


def test_the_outline_of_a_gang_is_never_further_behind_than_the_gang() -> None:
    """Whoever is kept too far in front is looked at again there; nobody looks at who is kept too far behind."""
    waiting, whole = a_gang(a_pod("x"), a_pod("y")), a_gang(*HALF, minimum=2)
    for gang in (waiting, a_gang(*HALF), whole, replace(a_gang(*HALF), on_member_lost=OnMemberLost.IGNORE)):
        outline = Outline(gang.key, gang.priority, gang.created, is_open=bool(gang.bound))
        assert order_of(outline) <= order_of(gang)
    assert order_of(Outline(KEY, waiting.priority, waiting.created)) == order_of(waiting)


def test_that_one_run_was_whole_says_nothing_of_the_next() -> None:
    records = GangRecords()
    partial_binds = PartialBinds(known(records, lambda: 0.0), Mock(), Mock())
    whole, half = (
        a_gang(*(replace(pod, transaction=run if pod.stamped_min_member else "") for pod in HALF)) for run in ("first", "second")
    )
    partial_binds.observe(whole)
    assert run_was_whole(whole, records.find(KEY))
    partial_binds.add(half)
    partial_binds.observe(half)
    assert not run_was_whole(half, records.find(KEY))


async def test_pods_that_were_released_are_leaving_also_when_the_gang_is_looked_at_before_all_of_that_is_heard() -> None:
    """Their seats are about to be free: nobody else makes way for who waits for them."""
    first, second, waiting = (replace(pod, owner=SET, phase="Running" if pod.stamped_min_member else "Pending") for pod in HALF)
    gang, records = a_gang(first, second, waiting), GangRecords()
    partial_binds = partial_binds_of(gang, records, clock=lambda: 0.0)
    await partial_binds.release(gang, [first, second], force=True)
    await partial_binds.release(gang, [second])
    assert {pod.name for pod in leaving_of(gang, records.partial_bind(KEY), 0.0)} == {"a", "b"}


async def test_when_seats_need_no_longer_be_waited_for_whoever_was_refused_looks_again() -> None:
    """A half gang for which another has made way isn't asked for its own seats until then, and nothing else may ever happen."""
    gang, refused = a_gang(*HALF), replace(a_gang(a_pod("x"), minimum=1), key=GangKey("default", "refused"))
    now = 100.0
    records = GangRecords()
    gangs = known(records, lambda: now)
    partial_binds = PartialBinds(gangs, Mock(), Mock())
    assert gangs.next_look(refused) is None
    await partial_binds.release(gang, [], force=True)
    when = gangs.next_look(refused)
    assert when is not None
    assert when > now
    now = when
    assert gangs.next_look(refused) is None
    assert not records.partial_bind(KEY).is_going(now)


@pytest.mark.parametrize(("timeout", "seconds"), [(10, 10.0), (3600, 40.0)])
async def test_who_was_released_is_waited_for_forty_seconds_at_most(timeout: int, seconds: float) -> None:
    gang, records = a_half_of(SET, timeout_seconds=timeout), GangRecords()
    partial_binds = partial_binds_of(gang, records, clock=lambda: 100.0)
    await partial_binds.release(gang, gang.bound, force=True)
    assert records.partial_bind(gang.key).leaving.until == 100.0 + seconds


@pytest.mark.parametrize("what", ["waits", "is gone", "is whole", "has made way", "some have gone"])
async def test_jobs_are_suspended_for_another_gang_only_while_it_waits_or_once_some_have_gone(what: str) -> None:
    gang = a_half_of(JOB, undo=Undo.SUSPEND, timeout_seconds=50)
    other = replace(gang, key=GangKey("default", "other"))
    records, seen = GangRecords(), list[bool]()
    records.partial_bind(KEY).expires = 0.0
    records.partial_bind(KEY).restarts_at = 7.0

    async def restart(pods: Any, *, even_running: bool, is_wanted: Callable[[], bool]) -> None:
        now = {"is gone": None, "is whole": replace(other, min_member=2)}.get(what, other)
        registry.gang.side_effect = lambda key: now if key == other.key else gang
        if what in ("has made way", "some have gone"):
            records.partial_bind(other.key).leaving = Leaving((), 101.0)
        seen.append(is_wanted())
        raise JobKeptError("j", "stays")

    goes = [what == "some have gone", False]
    partial_binds = partial_binds_of(gang, records, goes=goes, restarter=Mock(restart=restart), clock=lambda: 100.0)
    registry = cast("Mock", partial_binds.gangs.registry)
    await partial_binds.release(gang, gang.bound, force=True, other=other.key)
    assert seen == [what in ("waits", "some have gone")]
    assert records.partial_bind(KEY).restarts_at == (150.0 if what == "waits" else 7.0)  # its own time isn't put off by others'


async def test_jobs_are_suspended_for_the_gangs_own_sake_whoever_waits() -> None:
    gang, records, restarter = a_half_of(JOB, undo=Undo.SUSPEND), GangRecords(), Mock(restart=AsyncMock())
    records.partial_bind(KEY).expires = 0.0
    partial_binds = partial_binds_of(gang, records, goes=repeat(False), restarter=restarter, clock=lambda: 100.0)
    await partial_binds.release(gang, gang.bound)
    assert restarter.restart.await_args.kwargs["is_wanted"]()


async def test_no_job_is_suspended_for_pods_that_were_released_and_are_seen_for_a_while_yet() -> None:
    gang, records, restarter = a_half_of(JOB, undo=Undo.SUSPEND), GangRecords(), Mock(restart=AsyncMock())
    records.partial_bind(KEY).expires = 0.0
    clock = Clock(100.0)
    partial_binds = partial_binds_of(gang, records, goes=[True, True, False, False, False, False], restarter=restarter, clock=clock)
    await partial_binds.release(gang, gang.bound, force=True, other=GangKey("default", "other"))
    await partial_binds.release(gang, gang.bound)
    assert restarter.restart.await_count == 0
    assert not records.partial_bind(KEY).is_kept_open
    clock.now = records.partial_bind(KEY).leaving.until
    await partial_binds.release(gang, gang.bound)
    assert restarter.restart.await_count == 1


async def test_whoever_was_refused_looks_again_when_the_time_of_a_gang_that_is_being_finished_is_over() -> None:
    records = GangRecords()
    half = records.partial_bind(KEY)
    half.state, half.expires = Finishing(5.0), 30.0
    assert known(records, lambda: 0.0).next_look(replace(a_gang(a_pod("x")), key=GangKey("default", "refused"))) == 30.0


async def test_jobs_are_not_asked_again_before_the_time_is_over_once_more() -> None:
    gang, records = a_half_of(JOB, undo=Undo.SUSPEND), GangRecords()
    restarter = Mock(restart=AsyncMock(side_effect=JobKeptError("j", "it isn't ours")))
    records.partial_bind(KEY).expires = 0.0
    partial_binds = partial_binds_of(gang, records, goes=repeat(False), restarter=restarter, clock=lambda: 100.0)
    await partial_binds.release(gang, gang.bound, force=True)
    assert restarter.restart.await_count == 1
    assert records.partial_bind(KEY).restarts_at == 100.0 + gang.timeout_seconds


async def test_the_time_of_a_gang_that_was_cut_off_runs_from_when_nothing_of_an_earlier_leader_can_come_any_more() -> None:
    gang, records, clock = a_gang(*HALF), GangRecords(), Clock()
    partial_binds = PartialBinds(known(records, clock, gang), Mock(), Mock())
    assert [key async for key in partial_binds.inherited()] == [KEY]
    clock.now = 6.0
    partial_binds.observe(gang)
    assert records.partial_bind(KEY).deadline == 11.0
    clock.now = 7.0
    partial_binds.observe(gang)
    assert records.partial_bind(KEY).deadline == 11.0
    partial_binds.renew(KEY)  # binds of ours may be unanswered, too
    assert records.partial_bind(KEY).deadline == 12.0
