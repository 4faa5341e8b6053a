"""Tests of gangs that are partially bound or have lost a member: their position in the queue, their records and their releases."""

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
from allaboard.records.partial_bind import Finishing, KeptOpen, Leaving
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


PARTIAL = (a_pod("a", stamped=3), a_pod("b", stamped=3), a_pod("c"))
SET, JOB = Owner("apps/v1", "ReplicaSet", "r", "u"), Owner("batch/v1", "Job", "j", "u")


def a_partial_bind_of(owner: Owner, **changes: Any) -> Gang:
    """Return a partially bound gang whose members all have one owner."""
    return replace(a_gang(*(replace(pod, owner=owner) for pod in PARTIAL)), **changes)


def known(records: GangRecords, clock: Callable[[], float], gang: Gang | None = None) -> KnownGangs:
    """Return the known gangs of a cluster with one gang, or with none."""
    registry = Mock()
    registry.gang.return_value, registry.gangs.return_value, registry.group.return_value = gang, [gang] if gang else [], None
    return KnownGangs(registry, records, Mock(), Mock(), Mock(), clock)


def partial_binds_of(
    gang: Gang, records: GangRecords, *, goes: Iterable[bool] = repeat(True), restarter: Any = None, clock: Callable[[], float]
) -> PartialBinds:
    """Return the partial binds of a cluster with one gang; ``goes`` yields for each release of a pod whether it succeeds."""
    return PartialBinds(known(records, clock, gang), Mock(release=AsyncMock(side_effect=goes)), restarter or Mock())


def test_a_gang_that_heals_goes_before_other_gangs_of_its_priority_only() -> None:
    healing, older = a_gang(*PARTIAL, created=10.0), a_gang(a_pod("x"), created=1.0)
    assert order_of(healing) < order_of(older) < order_of(a_gang(a_pod("y"), created=2.0))
    assert order_of(replace(older, priority=1)) < order_of(healing)


def test_a_gang_that_heals_goes_behind_gangs_whose_namespace_has_used_less_search_time() -> None:
    healing, other = a_gang(*PARTIAL, created=1.0), a_gang(a_pod("x"), created=10.0)
    assert order_of(other) < order_of(healing, usage=1) < order_of(other, usage=2)


def test_a_gang_that_is_being_finished_goes_before_other_gangs_of_its_priority_only() -> None:
    partial, plain = a_gang(*PARTIAL, created=10.0), a_gang(a_pod("x"), created=1.0)
    assert order_of(partial, is_first=True) < order_of(plain)
    assert order_of(replace(plain, priority=1)) < order_of(partial, is_first=True)


def test_a_deleted_gang_is_first_in_the_queue_so_that_it_is_forgotten() -> None:
    assert order_of_gone(KEY) < order_of(replace(a_gang(*PARTIAL), priority=2_147_483_647), is_first=True)


def test_the_outline_of_a_gang_never_ranks_behind_the_gang() -> None:
    """The queue compares the first gang again, by its full state. So an outline may rank a gang too early, and never too late."""
    waiting, whole = a_gang(a_pod("x"), a_pod("y")), a_gang(*PARTIAL, minimum=2)
    for gang in (waiting, a_gang(*PARTIAL), whole, replace(a_gang(*PARTIAL), on_member_lost=OnMemberLost.IGNORE)):
        outline = Outline(gang.key, gang.priority, gang.created, is_partially_bound=bool(gang.bound))
        assert order_of(outline) <= order_of(gang)
    assert order_of(Outline(KEY, waiting.priority, waiting.created)) == order_of(waiting)


def test_a_run_does_not_count_as_whole_only_because_an_earlier_run_was_whole() -> None:
    records = GangRecords()
    partial_binds = PartialBinds(known(records, lambda: 0.0), Mock(), Mock())
    whole, partial = (
        a_gang(*(replace(pod, transaction=run if pod.stamped_min_member else "") for pod in PARTIAL)) for run in ("first", "second")
    )
    partial_binds.observe(whole)
    assert run_was_whole(whole, records.find(KEY))
    partial_binds.add(partial)
    partial_binds.observe(partial)
    assert not run_was_whole(partial, records.find(KEY))


async def test_released_pods_count_as_leaving_before_the_watch_shows_their_deletion() -> None:
    """The capacity of released pods is about to be free, so no other gang is released for a gang that waits for that capacity."""
    first, second, waiting = (replace(pod, owner=SET, phase="Running" if pod.stamped_min_member else "Pending") for pod in PARTIAL)
    gang, records = a_gang(first, second, waiting), GangRecords()
    partial_binds = partial_binds_of(gang, records, clock=lambda: 0.0)
    await partial_binds.release(gang, [first, second], force=True)
    await partial_binds.release(gang, [second])
    assert {pod.name for pod in leaving_of(gang, records.partial_bind(KEY), 0.0)} == {"a", "b"}


async def test_a_refused_gang_is_attempted_again_when_released_members_of_another_gang_take_too_long_to_leave() -> None:
    """While released members leave, no other gang is released for the gang that needs their capacity.

    No other event may make that gang due.
    """
    gang, refused = a_gang(*PARTIAL), replace(a_gang(a_pod("x"), minimum=1), key=GangKey("default", "refused"))
    now = 100.0
    records = GangRecords()
    gangs = known(records, lambda: now)
    partial_binds = PartialBinds(gangs, Mock(), Mock())
    assert gangs.next_attempt(refused) is None
    await partial_binds.release(gang, [], force=True)
    attempt_at = gangs.next_attempt(refused)
    assert attempt_at is not None
    assert attempt_at > now
    now = attempt_at
    assert gangs.next_attempt(refused) is None
    assert not records.partial_bind(KEY).is_going(now)


@pytest.mark.parametrize(("timeout", "seconds"), [(10, 10.0), (3600, 40.0)])
async def test_the_capacity_of_released_members_is_awaited_for_forty_seconds_at_most(timeout: int, seconds: float) -> None:
    gang, records = a_partial_bind_of(SET, timeout_seconds=timeout), GangRecords()
    partial_binds = partial_binds_of(gang, records, clock=lambda: 100.0)
    await partial_binds.release(gang, gang.bound, force=True)
    assert records.partial_bind(gang.key).leaving.until == 100.0 + seconds


@pytest.mark.parametrize("state", ["waits", "is deleted", "is whole", "is released itself", "waits, one pod released"])
async def test_jobs_are_suspended_for_another_gang_only_while_that_gang_waits_or_once_a_pod_is_released(state: str) -> None:
    gang = a_partial_bind_of(JOB, undo=Undo.SUSPEND, timeout_seconds=50)
    other = replace(gang, key=GangKey("default", "other"))
    records, seen = GangRecords(), list[bool]()
    records.partial_bind(KEY).expires = 0.0
    records.partial_bind(KEY).restarts_at = 7.0

    async def restart(pods: Any, *, even_running: bool, is_wanted: Callable[[], bool]) -> None:
        now = {"is deleted": None, "is whole": replace(other, min_member=2)}.get(state, other)
        registry.gang.side_effect = lambda key: now if key == other.key else gang
        if state in ("is released itself", "waits, one pod released"):
            records.partial_bind(other.key).leaving = Leaving((), 101.0)
        seen.append(is_wanted())
        raise JobKeptError("j", "stays")

    goes = [state == "waits, one pod released", False]
    partial_binds = partial_binds_of(gang, records, goes=goes, restarter=Mock(restart=restart), clock=lambda: 100.0)
    registry = cast("Mock", partial_binds.gangs.registry)
    await partial_binds.release(gang, gang.bound, force=True, other=other.key)
    assert seen == [state in ("waits", "waits, one pod released")]
    assert records.partial_bind(KEY).restarts_at == (150.0 if state == "waits" else 7.0)  # the other gang delays no release


async def test_jobs_are_suspended_for_the_gangs_own_sake_whether_or_not_a_gang_waits() -> None:
    gang, records, restarter = a_partial_bind_of(JOB, undo=Undo.SUSPEND), GangRecords(), Mock(restart=AsyncMock())
    records.partial_bind(KEY).expires = 0.0
    partial_binds = partial_binds_of(gang, records, goes=repeat(False), restarter=restarter, clock=lambda: 100.0)
    await partial_binds.release(gang, gang.bound)
    assert restarter.restart.await_args.kwargs["is_wanted"]()


async def test_no_job_is_suspended_for_released_pods_that_are_still_visible() -> None:
    gang, records, restarter = a_partial_bind_of(JOB, undo=Undo.SUSPEND), GangRecords(), Mock(restart=AsyncMock())
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


async def test_a_refused_gang_is_attempted_again_at_the_time_out_of_a_gang_that_is_being_finished() -> None:
    records = GangRecords()
    partial = records.partial_bind(KEY)
    partial.state, partial.expires = Finishing(5.0), 30.0
    assert known(records, lambda: 0.0).next_attempt(replace(a_gang(a_pod("x")), key=GangKey("default", "refused"))) == 30.0


async def test_jobs_are_suspended_at_most_once_in_each_time_out() -> None:
    gang, records = a_partial_bind_of(JOB, undo=Undo.SUSPEND), GangRecords()
    restarter = Mock(restart=AsyncMock(side_effect=JobKeptError("j", "it isn't ours")))
    records.partial_bind(KEY).expires = 0.0
    partial_binds = partial_binds_of(gang, records, goes=repeat(False), restarter=restarter, clock=lambda: 100.0)
    await partial_binds.release(gang, gang.bound, force=True)
    assert restarter.restart.await_count == 1
    assert records.partial_bind(KEY).restarts_at == 100.0 + gang.timeout_seconds


async def test_the_deadline_of_a_gang_that_an_earlier_leader_left_runs_from_its_first_attempt_and_restarts_once() -> None:
    gang, records, clock = a_gang(*PARTIAL), GangRecords(), Clock()
    partial_binds = PartialBinds(known(records, clock, gang), Mock(), Mock())
    assert [key async for key in partial_binds.inherited()] == [KEY]
    clock.now = 6.0
    partial_binds.observe(gang)
    assert records.partial_bind(KEY).deadline == 11.0
    clock.now = 7.0
    partial_binds.observe(gang)
    assert records.partial_bind(KEY).deadline == 11.0
    partial_binds.renew(KEY)  # our own binds may be unanswered, too
    assert records.partial_bind(KEY).deadline == 12.0


async def test_a_release_that_fails_does_not_change_the_state_of_the_partially_bound_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    gang, records = a_gang(*PARTIAL), GangRecords()
    records.partial_bind(KEY).state = KeptOpen()
    monkeypatch.setattr("allaboard.scheduling.partial_binds.undo", AsyncMock(side_effect=RuntimeError("a defect")))
    with pytest.raises(RuntimeError):
        await partial_binds_of(gang, records, clock=lambda: 0.0).release(gang, gang.bound, force=True)
    assert records.partial_bind(KEY).state == KeptOpen()
