"""Tests that a Job that is suspended to release its gang goes on, whenever its scheduler dies."""

import itertools
from dataclasses import replace

import pytest

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER

from .directed.ground import cut_off
from .gangs import Body, GangSpec, manifests
from .world import World

GANG = GangSpec("gang", "job", suspends=True)
BEFORE_SECONDS, MEANWHILE_SECONDS = 35, 10
"""Seconds that pass until shortly before the gang's time-out, and seconds of each wait from then on.

The gang is partially bound at once, is kept so after 5 s, and is attempted again after 30 s.
"""

COUNTED = ("[!wb]*", "[!l]*")
"""Every request but watches, leases, and binds, which are refused."""

REQUESTS = 7
"""The least number of requests by which a scheduler reads the Job, its pods and the labelled Jobs, suspends the Job, and resumes it."""


def begin(world: World) -> None:
    """Add a Job of three, of which two can be bound, and wait until shortly before its time-out."""
    world.fault(Fault("bind", "pods", nth=3, times=FOR_EVER, status=403))
    (job,) = manifests(GANG)
    job["spec"]["backoffLimit"] = 0
    world.gangs.append(GANG)
    world.sandbox.create(job)
    world.advance(BEFORE_SECONDS)
    assert len(world.judge.bound(GANG)) == 2


def job_of(world: World) -> Body:
    return world.sandbox.get("jobs", GANG.name) or {}


def was_suspended(world: World) -> bool:
    return any(each["type"] == "Suspended" for each in (job_of(world)["status"].get("conditions") or ()))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_suspended_job_is_whole_again_after_its_scheduler_is_killed_at_any_request(after: bool) -> None:
    for number in itertools.count(1):
        with World(startup_delay=3600) as world:
            begin(world)
            world.crash_at(*COUNTED, nth=number, after=after)
            world.advance(MEANWHILE_SECONDS)
            if not world.restarts:
                assert was_suspended(world)
                break  # there are fewer requests
            world.settle()
            job = job_of(world)
            assert job["spec"]["suspend"] is False, number
            assert not job["metadata"].get("labels"), number
            assert not job["status"].get("failed"), number
            assert world.judge.missing(GANG) == 0, number
    assert number > REQUESTS


def hold_pods(world: World) -> None:
    """Let the present pods stay when they are deleted."""

    async def hold() -> None:
        for pod in world.judge.members(GANG):
            world.sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": ["example.com/held"]}})

    world.run(hold())


def test_scheduler_that_shuts_down_resumes_a_suspended_job_first() -> None:
    with World(startup_delay=3600) as world:
        begin(world)
        hold_pods(world)
        world.advance(MEANWHILE_SECONDS)
        assert job_of(world)["spec"]["suspend"] is True
        assert world.app is not None
        world.run(world.app.stop())
        assert job_of(world)["spec"]["suspend"] is False


def test_suspended_job_whose_pods_do_not_terminate_is_resumed() -> None:
    with World(startup_delay=3600) as world:
        begin(world)
        hold_pods(world)
        world.advance(MEANWHILE_SECONDS)
        assert job_of(world)["spec"]["suspend"] is True
        world.settle()
        assert job_of(world)["spec"]["suspend"] is False
        assert world.judge.missing(GANG) == 0


@pytest.mark.parametrize("is_deleted", [False, True], ids=["resumed", "deleted"])
def test_suspended_job_that_a_user_resumes_or_deletes_causes_no_error(is_deleted: bool) -> None:
    with World(startup_delay=3600) as world:
        begin(world)
        hold = world.sandbox.faults.pause("patch", "jobs", nth=2)
        world.advance(MEANWHILE_SECONDS)
        assert hold.has_arrived
        if is_deleted:
            world.sandbox.delete("jobs", GANG.name)
        else:
            world.sandbox.patch("jobs", GANG.name, {"spec": {"suspend": False}})
        hold.release()
        world.settle()
        if is_deleted:
            assert job_of(world) == {}
            assert not world.judge.members(GANG)
        else:
            assert not job_of(world)["metadata"].get("labels")
            assert world.judge.missing(GANG) == 0


def test_suspended_job_is_resumed_when_the_api_server_accepts_writes_again() -> None:
    with World(startup_delay=3600) as world:
        begin(world)
        world.fault(Fault("patch", "jobs", nth=2, times=FOR_EVER, status=503))
        world.advance(120)
        assert job_of(world)["spec"]["suspend"] is True
        world.settle()
        assert job_of(world)["spec"]["suspend"] is False
        assert world.judge.missing(GANG) == 0


def test_job_that_is_not_suspended_at_its_time_out_is_completed_at_once_when_capacity_is_freed() -> None:
    with World(nodes=1, cpu=4) as world:
        world.advance(6)
        cut_off(world, replace(GANG, size=4, minimum=4))
        world.fill()
        hold = world.sandbox.faults.pause("get", "jobs")
        for _ in range(60):
            if not hold.has_arrived:
                world.advance(1)
        assert hold.has_arrived
        (gang,) = world.gangs
        assert len(world.judge.bound(gang)) == 2
        world.remove_foreign()
        hold.release()
        world.advance(3)
        assert len(world.judge.bound(gang)) == 4
