"""Random histories of everything that makes pods: every run starts whole or not at all, and no run waits for a pod that won't come.

The history knows of each pod which submission and which wave it is of, since it plays the controllers; the registry has to find it out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.gangs.job_counts import JobCounts
from allaboard.gangs.registry import GangRegistry
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Owner, Pod

KEY = GangKey("default", "gang")
NAME, MINIMUM = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
INDEX = "batch.kubernetes.io/job-completion-index"


class Controller(Protocol):
    """What makes pods of the gang."""

    def makes(self, world: "World") -> list[Pod]: ...

    def may_start(self, world: "World", pods: Sequence[Pod]) -> str:
        """What is wrong with starting so many of its pods at once; empty if nothing is."""
        ...


@dataclass
class World:
    """The pods, as the API server has them. The registry hears of their changes in order, and late while the watch ``lags``."""

    minimum: int
    registry: GangRegistry = field(default_factory=lambda: GangRegistry(["allaboard"]))
    pods: dict[str, Pod] = field(default_factory=dict)
    maker: dict[str, Controller] = field(default_factory=dict)
    now: float = 100.0
    commits: int = 0
    lags: bool = False
    events: list[tuple[Pod | None, Pod | None]] = field(default_factory=list)
    seen: dict[str, Pod] = field(default_factory=dict)

    def write(self, pod: Pod) -> None:
        self.events.append((self.pods.get(pod.uid), pod))
        self.pods[pod.uid] = pod
        self.watch()

    def delete(self, pod: Pod) -> None:
        self.events.append((self.pods.pop(pod.uid), None))
        self.watch()

    def watch(self) -> None:
        """Let the registry hear of what has happened, unless the watch lags."""
        while self.events and not self.lags:
            old, new = self.events.pop(0)
            self.registry.observe_pod(old, new)
            for pod in (old, new):
                self.seen.pop(pod.uid, None) if pod else None
            if new is not None:
                self.seen[new.uid] = new

    def create(self, maker: Controller, owner: Owner | None, labels: dict[str, str]) -> Pod:
        uid = f"p{len(self.maker)}"
        stated = tuple(sorted({NAME: "gang", MINIMUM: str(self.minimum), **labels}.items()))
        pod = Pod("default", uid, uid, "1", self.now, "allaboard", "", "Pending", 0, SchedulingSpec(()), labels=stated, owner=owner)
        self.maker[uid] = maker
        self.write(pod)
        return pod

    def of(self, maker: Controller, *states: str) -> list[Pod]:
        """A controller's pods in these states: waits, runs, Succeeded, Failed."""
        return [pod for pod in self.pods.values() if self.maker[pod.uid] is maker and state_of(pod) in states]

    def gang(self) -> Gang | None:
        return self.registry.gang(KEY)

    def commit(self, number: int) -> None:
        """Bind the gang whose turn it is: as many as it needs, and ``number`` more if there are so many."""
        if any(new is not None and new.node_name and not new.is_terminal and not (old and old.node_name) for old, new in self.events):
            return  # the last binds are not seen yet
        gang = self.gang()
        if gang is None or gang.hold or not gang.candidates or gang.awaits_pods:
            return
        chosen = gang.candidates[: gang.least + number]
        if gang.missing_once_bound([pod.uid for pod in chosen]):
            return
        for maker in dict.fromkeys(self.maker[pod.uid] for pod in chosen):
            own = [pod for pod in chosen if self.maker[pod.uid] is maker]
            assert not (problem := maker.may_start(self, own)), (problem, [pod.uid for pod in own])
        self.commits += 1
        run = gang.run or f"{self.commits:x}"
        for pod in chosen:
            self.write(replace(pod, node_name="n", phase="Running", transaction=run, stamped_min_member=gang.required, bound_at=self.now))


def state_of(pod: Pod) -> str:
    return pod.phase if pod.is_terminal else "runs" if pod.node_name else "waits"


@dataclass(eq=False)
class BatchJob:
    """A Job, maybe indexed. Its status is what it was when ``sync`` was called last."""

    uid: str
    parallelism: int
    completions: int
    is_indexed: bool
    succeeded: set[str] = field(default_factory=set)
    lost: int = 0
    told: JobCounts | None = None

    def left(self) -> int:
        return self.completions - len(self.succeeded)

    def makes(self, world: World) -> list[Pod]:
        alive = world.of(self, "waits", "runs")
        lacking = min(self.parallelism, self.left()) - len(alive)
        taken = {pod.label(INDEX) for pod in alive} | {world_index for world_index in self.succeeded if self.is_indexed}
        free = [str(index) for index in range(self.completions) if str(index) not in taken]
        owner = Owner("batch/v1", "Job", self.uid, self.uid)
        return [world.create(self, owner, {INDEX: free[place]} if self.is_indexed else {}) for place in range(max(0, lacking))]

    def ends(self, world: World, pod: Pod, phase: str) -> None:
        if phase == "Succeeded":
            self.succeeded.add(pod.label(INDEX) or pod.uid)
        else:
            self.lost += 1

    def sync(self, world: World) -> None:
        new = JobCounts(self.uid, self.uid, self.parallelism, self.completions, len(self.succeeded))
        world.registry.observe_job(self.told, new)
        self.told = new

    def may_start(self, world: World, pods: Sequence[Pod]) -> str:
        """A run starts whole, as large as the Job can make it; a started run may get its lost members, and pods left over from it."""
        running, seen = (
            world.of(self, "runs"),
            [pod for pod in world.seen.values() if pod.owner == pods[0].owner and state_of(pod) == "runs"],
        )
        whole = min(world.minimum, self.parallelism, self.left() - len(running))
        began = min((pod.bound_at for pod in seen), default=0.0)
        new = [pod for pod in pods if pod.created >= began]
        is_replacing = len(new) <= self.lost and bool(seen or self.succeeded)
        is_larger = not self.succeeded and len(seen) + len(pods) >= world.minimum
        if len(pods) >= whole or is_replacing or is_larger:
            self.lost = max(0, self.lost - len(new)) if seen else 0
            return ""
        return f"{len(pods)} of {whole} pods start, {len(running)} run, {len(self.succeeded)} have succeeded, {self.lost} are lost"


@dataclass(eq=False)
class Serving:
    """A Deployment: its newest ReplicaSet makes pods until there are so many; a rollout begins another."""

    replicas: int
    revision: int = 0
    was_whole: bool = False

    def makes(self, world: World) -> list[Pod]:
        name = f"rs-{self.revision}"
        lacking = self.replicas - len(world.of(self, "waits", "runs"))
        return [world.create(self, Owner("apps/v1", "ReplicaSet", name, name), {}) for _ in range(max(0, lacking))]

    def ends(self, world: World, pod: Pod, phase: str) -> None:
        pass

    def may_start(self, world: World, pods: Sequence[Pod]) -> str:
        running = world.of(self, "runs")
        if running or len(pods) >= world.minimum:
            return ""
        return f"{len(pods)} of {world.minimum} start, and none runs"


@dataclass(eq=False)
class Bare:
    """Runs of bare pods that a user submits."""

    size: int
    succeeded_beside: bool = False

    def makes(self, world: World) -> list[Pod]:
        return [world.create(self, None, {}) for _ in range(self.size)] if not world.of(self, "waits") else []

    def ends(self, world: World, pod: Pod, phase: str) -> None:
        pass

    def may_start(self, world: World, pods: Sequence[Pod]) -> str:
        running = world.of(self, "runs")
        return "" if running or len(pods) >= world.minimum else f"{len(pods)} of {world.minimum} start, and none runs"


STEPS, LATE_STEPS = (
    st.lists(st.tuples(st.sampled_from(words), st.integers(0, 7), st.integers(0, 7)), max_size=40)
    for words in ("mmmbbbsfdyr", "mmmbbbsfdyrlv")
)


def play(world: World, makers: Sequence[BatchJob | Serving | Bare], steps: Sequence[tuple[str, int, int]]) -> None:
    """Play a history: controllers make pods, the scheduler commits, pods end and are deleted, and statuses are written late."""
    for what, one, other in steps:
        world.now += 1
        maker = makers[one % len(makers)]
        running, ended = world.of(maker, "runs"), world.of(maker, "Succeeded", "Failed")
        if what == "m":
            maker.makes(world)
        elif what == "b":
            world.commit(other)
        elif what in "sf" and running:
            pod = running[other % len(running)]
            phase = "Failed" if what == "f" or isinstance(maker, Serving) else "Succeeded"
            maker.ends(world, pod, phase)
            world.write(replace(pod, phase=phase))
        elif what == "d" and ended:
            world.delete(ended[other % len(ended)])
        elif what == "y" and isinstance(maker, BatchJob):
            maker.sync(world)
        elif what == "r" and isinstance(maker, Serving):
            maker.revision += 1
        elif what in "lv":
            world.lags = what == "l"
            world.watch()
    world.lags = False
    world.watch()


def settle(world: World, makers: Sequence[BatchJob | Serving | Bare]) -> None:
    """Let controllers make all that they will, statuses be written, and the scheduler bind what it can, until nothing changes."""
    for _ in range(60):
        before = world.commits
        for maker in makers:
            maker.makes(world) if not isinstance(maker, Bare) else None
            if isinstance(maker, BatchJob):
                maker.sync(world)
        world.now += 1
        world.commit(99)
        if world.commits == before:
            return


@settings(max_examples=500, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2), st.integers(1, 10), st.booleans(), st.integers(1, 2), LATE_STEPS)
def test_every_run_of_every_job_starts_whole_and_none_waits_for_pods_that_will_not_come(
    minimum: int, surplus: int, completions: int, is_indexed: bool, jobs: int, steps: list[tuple[str, int, int]]
) -> None:
    world = World(minimum)
    parallelism = minimum + surplus
    makers = [BatchJob(f"job-{number}", parallelism, max(completions, minimum), is_indexed) for number in range(jobs)]
    for maker in makers:
        maker.sync(world)
    play(world, makers, steps)
    # All running pods succeed, again and again: then all Jobs are done.
    for _ in range(40):
        settle(world, makers)
        for maker in makers:
            for pod in world.of(maker, "runs"):
                maker.ends(world, pod, "Succeeded")
                world.write(replace(pod, phase="Succeeded"))
    assert [maker.left() for maker in makers] == [0] * jobs


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2), STEPS)
def test_every_rollout_ends_with_the_replicas_that_were_asked_for(minimum: int, surplus: int, steps: list[tuple[str, int, int]]) -> None:
    world, maker = World(minimum), Serving(minimum + surplus)
    play(world, [maker], steps)
    settle(world, [maker])
    assert len(world.of(maker, "runs")) == maker.replicas


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), STEPS)
def test_every_run_of_bare_pods_starts_whole(minimum: int, steps: list[tuple[str, int, int]]) -> None:
    world, maker = World(minimum), Bare(minimum)
    play(world, [maker], steps)
    # Running pods end; the rest is bound, if it is enough for a run.
    for pod in world.of(maker, "runs"):
        world.write(replace(pod, phase="Succeeded"))
    settle(world, [maker])
    assert len(world.of(maker, "waits")) < minimum
