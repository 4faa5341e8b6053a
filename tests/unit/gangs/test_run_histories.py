"""Random histories of controllers: every run starts whole or not at all, and no run waits for pods that no controller will create.

The test plays the controllers, so it knows the submission and the wave of each pod. The registry has to find them from the pods.
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
    """Creates pods of the gang, as a Job, a Deployment or a user does."""

    def create_pods(self, world: "World") -> list[Pod]:
        """Create the pods that the controller lacks, and return them."""
        ...

    def problem_of_start(self, world: "World", pods: Sequence[Pod]) -> str:
        """Return why ``pods`` of this controller must not be bound together before its other pods; empty if ``pods`` may be bound."""
        ...


@dataclass
class World:
    """The pods in the API server. The registry observes their changes in order, but none while the watch ``is_late``."""

    minimum: int
    registry: GangRegistry = field(default_factory=lambda: GangRegistry(["allaboard"]))
    pods: dict[str, Pod] = field(default_factory=dict)
    controller_of: dict[str, Controller] = field(default_factory=dict)
    now: float = 100.0
    commits: int = 0
    is_late: bool = False
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
        """Pass the changes to the registry, unless the watch is late."""
        while self.events and not self.is_late:
            old, new = self.events.pop(0)
            self.registry.observe_pod(old, new)
            for pod in (old, new):
                self.seen.pop(pod.uid, None) if pod else None
            if new is not None:
                self.seen[new.uid] = new

    def create(self, controller: Controller, owner: Owner | None, labels: dict[str, str]) -> Pod:
        uid = f"p{len(self.controller_of)}"
        stated = tuple(sorted({NAME: "gang", MINIMUM: str(self.minimum), **labels}.items()))
        pod = Pod("default", uid, uid, "1", self.now, "allaboard", "", "Pending", 0, SchedulingSpec(()), labels=stated, owner=owner)
        self.controller_of[uid] = controller
        self.write(pod)
        return pod

    def of(self, controller: Controller, *states: str) -> list[Pod]:
        """Return a controller's pods in these states: waits, runs, Succeeded, Failed."""
        return [pod for pod in self.pods.values() if self.controller_of[pod.uid] is controller and state_of(pod) in states]

    def gang(self) -> Gang | None:
        return self.registry.gang(KEY)

    def commit(self, number: int) -> None:
        """Bind members of the current run: as many as it needs, and up to ``number`` surplus members."""
        if any(new is not None and new.node_name and not new.is_terminal and not (old and old.node_name) for old, new in self.events):
            return  # the registry hasn't observed the last binds yet
        gang = self.gang()
        if gang is None or gang.hold or not gang.candidates or gang.awaits_pods:
            return
        chosen = gang.candidates[: gang.least + number]
        if gang.missing_once_bound([pod.uid for pod in chosen]):
            return
        for controller in dict.fromkeys(self.controller_of[pod.uid] for pod in chosen):
            own = [pod for pod in chosen if self.controller_of[pod.uid] is controller]
            assert not (problem := controller.problem_of_start(self, own)), (problem, [pod.uid for pod in own])
        self.commits += 1
        run = gang.run or f"{self.commits:x}"
        for pod in chosen:
            self.write(replace(pod, node_name="n", phase="Running", transaction=run, stamped_min_member=gang.required, bound_at=self.now))


def state_of(pod: Pod) -> str:
    return pod.phase if pod.is_terminal else "runs" if pod.node_name else "waits"


@dataclass(eq=False)
class BatchJob:
    """A batch Job, which may be indexed. The registry knows its status as of the last call of ``sync``."""

    uid: str
    parallelism: int
    completions: int
    is_indexed: bool
    succeeded: set[str] = field(default_factory=set)
    lost: int = 0
    failed: set[str] = field(default_factory=set)
    """The indexes at which a pod has failed: another pod of such an index replaces that pod."""
    reported_counts: JobCounts | None = None

    def left(self) -> int:
        return self.completions - len(self.succeeded)

    def create_pods(self, world: World) -> list[Pod]:
        alive = world.of(self, "waits", "runs")
        lacking = min(self.parallelism, self.left()) - len(alive)
        taken = {pod.label(INDEX) for pod in alive} | {world_index for world_index in self.succeeded if self.is_indexed}
        free = [str(index) for index in range(self.completions) if str(index) not in taken]
        owner = Owner("batch/v1", "Job", self.uid, self.uid)
        return [world.create(self, owner, {INDEX: free[place]} if self.is_indexed else {}) for place in range(max(0, lacking))]

    def observe_end(self, world: World, pod: Pod, phase: str) -> None:
        if phase == "Succeeded":
            self.succeeded.add(pod.label(INDEX) or pod.uid)
        else:
            self.lost += 1
            self.failed |= {index for index in (pod.label(INDEX),) if index}

    def sync(self, world: World) -> None:
        new = JobCounts(self.uid, self.uid, self.parallelism, self.completions, len(self.succeeded))
        world.registry.observe_job(self.reported_counts, new)
        self.reported_counts = new

    def problem_of_start(self, world: World, pods: Sequence[Pod]) -> str:
        """Return why the pods must not be bound; empty if they are a whole run, replace lost members, or are surplus of a started run.

        A run is whole if it has the minimum, or all pods that the Job will still create.
        """
        running, seen = (
            world.of(self, "runs"),
            [pod for pod in world.seen.values() if pod.owner == pods[0].owner and state_of(pod) == "runs"],
        )
        whole = min(world.minimum, self.parallelism, self.left() - len(running))
        began = min((pod.bound_at for pod in seen), default=0.0)
        new = [pod for pod in pods if pod.created >= began]
        is_replacing = (len(new) <= self.lost or all(pod.label(INDEX) in self.failed for pod in new)) and bool(seen or self.succeeded)
        is_larger = not self.succeeded and len(seen) + len(pods) >= world.minimum
        if len(pods) >= whole or is_replacing or is_larger:
            # Pods of a whole wave replace no lost member.
            self.lost = 0 if not seen else max(0, self.lost - len(new)) if is_replacing else self.lost
            return ""
        return f"{len(pods)} of {whole} pods start, {len(running)} run, {len(self.succeeded)} have succeeded, {self.lost} are lost"


@dataclass(eq=False)
class Serving:
    """A Deployment. Its newest ReplicaSet creates pods up to ``replicas``, and a rollout begins another ReplicaSet."""

    replicas: int
    revision: int = 0
    was_whole: bool = False

    def create_pods(self, world: World) -> list[Pod]:
        name = f"rs-{self.revision}"
        lacking = self.replicas - len(world.of(self, "waits", "runs"))
        return [world.create(self, Owner("apps/v1", "ReplicaSet", name, name), {}) for _ in range(max(0, lacking))]

    def observe_end(self, world: World, pod: Pod, phase: str) -> None:
        pass

    def problem_of_start(self, world: World, pods: Sequence[Pod]) -> str:
        running = world.of(self, "runs")
        if running or len(pods) >= world.minimum:
            return ""
        return f"{len(pods)} of {world.minimum} start, and none runs"


@dataclass(eq=False)
class Bare:
    """Runs of bare pods that a user submits."""

    size: int

    def create_pods(self, world: World) -> list[Pod]:
        return [world.create(self, None, {}) for _ in range(self.size)] if not world.of(self, "waits") else []

    def observe_end(self, world: World, pod: Pod, phase: str) -> None:
        pass

    def problem_of_start(self, world: World, pods: Sequence[Pod]) -> str:
        running = world.of(self, "runs")
        return "" if running or len(pods) >= world.minimum else f"{len(pods)} of {world.minimum} start, and none runs"


STEPS, LATE_STEPS = (
    st.lists(st.tuples(st.sampled_from(words), st.integers(0, 7), st.integers(0, 7)), max_size=40)
    for words in ("mmmbbbsfdyr", "mmmbbbsfdyrlv")
)


def play(world: World, controllers: Sequence[BatchJob | Serving | Bare], steps: Sequence[tuple[str, int, int]]) -> None:
    """Play a history of ``steps``: (event, number that selects a controller, number that selects a pod).

    The events: ``m`` a controller creates pods, ``b`` the scheduler binds pods, ``s`` and ``f`` a pod succeeds or fails, ``d`` a pod is
    deleted. ``y`` a Job's status is written, ``r`` a rollout begins, ``l`` the watch becomes late, ``v`` the watch catches up.
    """
    for event, which_controller, number in steps:
        world.now += 1
        controller = controllers[which_controller % len(controllers)]
        running, ended = world.of(controller, "runs"), world.of(controller, "Succeeded", "Failed")
        if event == "m":
            controller.create_pods(world)
        elif event == "b":
            world.commit(number)
        elif event in "sf" and running:
            pod = running[number % len(running)]
            phase = "Failed" if event == "f" or isinstance(controller, Serving) else "Succeeded"
            controller.observe_end(world, pod, phase)
            world.write(replace(pod, phase=phase))
        elif event == "d" and ended:
            world.delete(ended[number % len(ended)])
        elif event == "y" and isinstance(controller, BatchJob):
            controller.sync(world)
        elif event == "r" and isinstance(controller, Serving):
            controller.revision += 1
        elif event in "lv":
            world.is_late = event == "l"
            world.watch()
    world.is_late = False
    world.watch()


def settle(world: World, controllers: Sequence[BatchJob | Serving | Bare]) -> None:
    """Create all pods that controllers will create, write the statuses, and bind what can be bound, until nothing changes."""
    for _ in range(60):
        before = world.commits
        for controller in controllers:
            controller.create_pods(world) if not isinstance(controller, Bare) else None
            if isinstance(controller, BatchJob):
                controller.sync(world)
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
    controllers = [BatchJob(f"job-{number}", parallelism, max(completions, minimum), is_indexed) for number in range(jobs)]
    for controller in controllers:
        controller.sync(world)
    play(world, controllers, steps)
    # All running pods succeed, time after time. Then all Jobs must be done.
    for _ in range(40):
        settle(world, controllers)
        for controller in controllers:
            for pod in world.of(controller, "runs"):
                controller.observe_end(world, pod, "Succeeded")
                world.write(replace(pod, phase="Succeeded"))
    assert [controller.left() for controller in controllers] == [0] * jobs


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2), STEPS)
def test_every_rollout_ends_with_the_replicas_that_were_asked_for(minimum: int, surplus: int, steps: list[tuple[str, int, int]]) -> None:
    world, controller = World(minimum), Serving(minimum + surplus)
    play(world, [controller], steps)
    settle(world, [controller])
    assert len(world.of(controller, "runs")) == controller.replicas


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), STEPS)
def test_every_run_of_bare_pods_starts_whole(minimum: int, steps: list[tuple[str, int, int]]) -> None:
    world, controller = World(minimum), Bare(minimum)
    play(world, [controller], steps)
    # Running pods end. Then waiting pods are bound if they are enough for a run.
    for pod in world.of(controller, "runs"):
        world.write(replace(pod, phase="Succeeded"))
    settle(world, [controller])
    assert len(world.of(controller, "waits")) < minimum
