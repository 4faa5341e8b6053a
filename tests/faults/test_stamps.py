"""Tests that stamps and epochs forged by a tenant cause no crash, and no deletion that the facts don't call for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .gangs import EPOCH, STAMP, GangSpec, pod_of
from .world import World

FORGED = (
    "",
    "/",
    "garbage",
    "x/-1",
    "x/0",
    "x/3.5",
    "x/٣",
    "x/9999999999999999999999",
    "1/2/3",
    "victim/1000000",
    "\u0000/3",
    "🚂/8",
    "x" * 3000,
    "9" * 3000,
    "x/" + "9" * 3000,
    "9223372036854775808",
    "-1",
    "1e999",
    "NaN",
)
stamps = st.one_of(st.sampled_from(FORGED), st.text(max_size=30), st.integers().map(lambda number: f"x/{number}"))


def play(stamp: str, epoch: str, *, is_late: bool, startup_delay: float = 0.05) -> None:
    """Play a tenant that forges annotations on its own pods, before or after they are bound: no gang loses anything."""
    with World(startup_delay=startup_delay) as world:
        forged = {STAMP: stamp, EPOCH: epoch}
        victim = GangSpec("victim", size=4, minimum=4, namespace="team")
        bare = GangSpec("bare", "bare", size=3, minimum=2)
        made = GangSpec("made", size=3, minimum=2)
        for gang in (victim, bare, made):
            world.add(gang)
        if not is_late:
            for gang in (bare, made):
                world.annotate(gang, forged)
        world.advance(3)
        if is_late:
            for gang in (bare, made):
                world.annotate(gang, forged)
        kept = {spec: {pod["metadata"]["uid"] for pod in world.judge.bound(spec)} for spec in (victim, bare, made)}
        assert [len(uids) for uids in kept.values()] == [4, 3, 3]
        world.advance(1)
        world.crash()
        world.advance(100)
        world.judge.check()
        for spec, uids in kept.items():
            assert {pod["metadata"]["uid"] for pod in world.judge.bound(spec)} == uids
        assert world.app is not None
        assert world.app.is_ready
        assert world.leaked() == []


@pytest.mark.parametrize("forged", [*FORGED, "x" * 9000])
def test_forged_stamp_takes_no_capacity_from_any_gang(forged: str) -> None:
    play(forged, forged, is_late=True)


@settings(max_examples=60)
@given(stamp=stamps, epoch=stamps, is_late=st.booleans(), startup_delay=st.sampled_from([0.05, 3600.0]))
def test_random_text_as_stamp_or_epoch_takes_no_capacity_from_any_gang(stamp: str, epoch: str, is_late: bool, startup_delay: float) -> None:
    play(stamp, epoch, is_late=is_late, startup_delay=startup_delay)


def test_stamp_that_names_another_gangs_transaction_does_not_affect_that_gang() -> None:
    with World(startup_delay=3600) as world:
        victim, thief = GangSpec("victim", size=4, minimum=4, namespace="team"), GangSpec("thief", "bare", size=3, minimum=3)
        world.add(victim)
        world.advance(2)
        (stamp,) = {pod["metadata"]["annotations"][STAMP] for pod in world.judge.bound(victim)}
        for number in range(2):
            pod = pod_of(thief, f"thief-{number}")
            pod["metadata"]["annotations"] = {STAMP: stamp.replace("/4", "/400"), EPOCH: "9" * 18}
            world.place(pod, "node-0")
        world.gangs.append(thief)
        world.crash()
        world.advance(100)
        assert len(world.judge.bound(victim)) == 4
        assert len(world.judge.bound(thief)) == 2
        assert world.judge.released == 0


def test_forged_stamp_releases_no_pod_when_the_pod_group_is_deleted() -> None:
    with World() as world:
        gang = GangSpec("gang", size=3, minimum=2, has_group=True, gives_up=True)
        world.add(gang)
        world.advance(5)
        world.annotate(gang, {STAMP: "deadbeef/16"})
        world.advance(3)
        world.delete_group(gang)
        world.advance(100)
        world.judge.check()
        assert world.judge.released == 0
        assert len(world.judge.bound(gang)) == 3
