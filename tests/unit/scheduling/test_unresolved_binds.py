"""Tests that the capacity of an unanswered bind is returned when its pod can no longer take it, and not before."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, cast

import pytest

from allaboard.cluster.view import ClusterView
from allaboard.kube.client import ApiError
from allaboard.leadership.fencing import CARRIED_OUT_SECONDS, Term
from allaboard.model.pod import Pod
from allaboard.scheduling.unresolved_binds import UnresolvedBinds
from tests.unit.placement.clusters import node, pods
from tests.unit.scheduling.schedulers import World as Scheduler

BROKEN, CHANGED, GONE = (ApiError(status, "", "no") for status in (500, 409, 404))


class World:
    """A pod with an assumed node, and an API server. ``answers`` are to writes that fence off the pod; an event follows each pause."""

    def __init__(self, *answers: ApiError | None, events: tuple[Callable[["World"], None], ...] = ()) -> None:
        self.now = 0.0
        self.answers, self.events = list(answers), list(events)
        self.fenced: list[str] = []
        self.view = ClusterView()
        self.view.upsert_node(node("a", {"cpu": 1000}))
        (self.pod,) = pods("p", 1, {"cpu": 1000})
        self.view.upsert_pod(self.pod)
        self.view.assume(self.pod, "a")
        self.unresolved = UnresolvedBinds(self.view, cast("Term", self), lambda: self.now, self.sleep)

    async def fence_off(self, pod: Pod) -> ApiError | None:
        self.fenced.append(pod.resource_version)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.view.is_assumed(self.pod)
        if self.events:
            self.events.pop(0)(self)

    async def play(self) -> None:
        async with asyncio.timeout(50):
            await self.unresolved.resolve([(self.pod, "7")])
        assert not self.view.is_assumed(self.pod)
        assert not self.unresolved._awaited  # else the index would grow for ever


def bind(world: World) -> None:
    world.view.upsert_pod(replace(world.pod, resource_version="9", node_name="a"))


def update(world: World) -> None:
    world.view.upsert_pod(replace(world.pod, resource_version="9"))


def delete(world: World) -> None:
    world.view.remove_pod(world.pod.key)


@pytest.mark.parametrize(
    ("world", "seconds"),
    [
        (World(None), 0.0),
        (World(BROKEN, None), 0.1),
        (World(CHANGED, events=(bind,)), 0.1),
        (World(CHANGED, events=(update,)), 0.1),
        (World(GONE, events=(delete,)), 0.1),
        (World(BROKEN, events=(lambda _: None, update)), 0.3),
    ],
)
async def test_capacity_stays_assumed_until_the_pod_is_fenced_off_bound_updated_or_deleted(world: World, seconds: float) -> None:
    await world.play()
    assert world.now == pytest.approx(seconds)
    assert set(world.fenced) == {"7"}


async def test_the_capacity_of_a_pod_that_cannot_be_fenced_off_stays_assumed_for_ninety_seconds() -> None:
    world = World(BROKEN)
    await world.play()
    assert CARRIED_OUT_SECONDS <= world.now < CARRIED_OUT_SECONDS + 5


class FenceRecorder(NamedTuple):
    """A term for which every pod is of an earlier leader; ``fenced`` lists the pods that are fenced off."""

    fenced: list[str]

    def older(self, pods: Iterable[Pod]) -> list[Pod]:
        return list(pods)

    async def fence_off(self, pod: Pod) -> ApiError | None:
        self.fenced.append(pod.name)
        return None


@pytest.mark.parametrize(
    ("bound", "phase", "fenced"),
    [
        (0, "Pending", ["g-0", "g-1", "g-2"]),
        (1, "Pending", ["g-1", "g-2", "g-0"]),  # a release would delete a pod that an earlier leader may still start
        (1, "Running", ["g-1", "g-2"]),
    ],
)
async def test_pods_that_an_earlier_leader_may_bind_or_release_are_fenced_off(bound: int, phase: str, fenced: list[str]) -> None:
    async with Scheduler() as world:
        gang = world.gang(world.add("g", 3, bound=bound))
        gang = replace(gang, members=tuple(replace(pod, phase=phase if pod.node_name else "Pending") for pod in gang.members))
        term = FenceRecorder([])
        unresolved = UnresolvedBinds(world.view, cast("Term", term), world.clock)
        await unresolved.fence_off(unresolved.older(gang))
        assert term.fenced == fenced
