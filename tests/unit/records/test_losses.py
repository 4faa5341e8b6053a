"""Members that are lost again and again soon after their bind: which pods' next bind is delayed, and for how long."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Owner, Pod
from allaboard.records.backoff import BACKOFF
from allaboard.records.losses import Losses
from allaboard.records.record import GangRecords
from tests.unit.placement.clusters import pods

SET, OLDER_SET = Owner("apps/v1", "ReplicaSet", "new", "new"), Owner("apps/v1", "ReplicaSet", "old", "old")
STATEFUL, JOB = Owner("apps/v1", "StatefulSet", "s", "s"), Owner("batch/v1", "Job", "j", "j")
KEY = GangKey("default", "gang")


class World:
    """A gang whose members a test binds and loses."""

    def __init__(self, minimum: int = 2) -> None:
        self.now, self.minimum = 1000.0, minimum
        self.records, self.pods = GangRecords(), list[Pod]()
        self.losses = Losses(self.records, lambda pod: pod.owner.uid if pod.owner else "", BACKOFF, lambda: self.now)
        self.lost_at = self.now
        self.created = 0

    def create(self, number: int, owner: Owner | None = SET, **fields: object) -> Sequence[Pod]:
        created = [replace(pod, owner=owner, **fields) for pod in pods(f"p{self.created}", number, {})]  # type: ignore[arg-type]
        self.created += 1
        return created

    def gang(self, candidates: Sequence[Pod] = ()) -> Gang:
        """Return the gang whose current run has the living members and ``candidates``; ended members belong to an earlier run."""
        living = tuple(pod for pod in self.pods if pod.is_alive)
        ended = tuple(pod for pod in self.pods if not pod.is_alive)
        return Gang(KEY, self.minimum, (*living, *candidates), 0, 0.0, Objective.BINPACK, 60, others=ended)

    def seconds(self, candidates: Sequence[Pod]) -> float:
        """Return the seconds for which the bind of ``candidates`` is delayed."""
        return max(0.0, self.losses.back_off(self.gang(candidates))[0] - self.now)

    def bind(self, candidates: Sequence[Pod]) -> None:
        gang = self.gang(candidates)
        self.losses.observe_bind(gang, candidates, self.lost_at)
        self.pods += [replace(pod, node_name="n", transaction="run", stamped_min_member=self.minimum) for pod in candidates]

    def lose(self, *lost: Pod, phase: str | None = "Failed") -> None:
        """End the pods ``lost``, or all living pods if none is given: they get the ``phase``, or are deleted if that is None."""
        names = {pod.uid for pod in lost} or {pod.uid for pod in self.pods if pod.is_alive}
        kept = [replace(pod, phase=phase) if phase and pod.uid in names else pod for pod in self.pods]
        self.pods = [pod for pod in kept if phase or pod.uid not in names]
        self.lost_at = self.now

    def delays(self, times: int, phase: str | None = "Failed", owner: Owner | None = SET) -> list[float]:
        """Lose all members right after their bind, ``times`` times. Return the delay before each bind, in seconds."""
        found = []
        for _ in range(times):
            candidates = self.create(2, owner)
            found.append(self.seconds(candidates))
            self.now += found[-1]
            self.bind(candidates)
            self.lose(phase=phase)
        return found


@pytest.mark.parametrize("owner", [SET, JOB, STATEFUL, None])
@pytest.mark.parametrize("phase", ["Failed", None])
def test_members_lost_again_and_again_are_replaced_at_once_first_and_then_after_growing_delays(
    phase: str | None, owner: Owner | None
) -> None:
    assert World().delays(9, phase, owner) == [0, 0, 1, 2, 4, 8, 16, 32, 60]


def test_members_that_have_succeeded_are_not_lost() -> None:
    assert World().delays(4, "Succeeded") == [0, 0, 0, 0]


@pytest.mark.parametrize(("stayed", "delay"), [(59.0, 16.0), (60.0, 0.0)])
def test_losses_are_forgotten_once_members_have_stayed_for_a_minute(stayed: float, delay: float) -> None:
    world = World()
    world.delays(4)
    world.now += 4
    candidates = world.create(2)
    world.bind(candidates)
    world.now += stayed
    world.lose()
    world.bind(world.create(2))
    world.lose()
    assert world.seconds(world.create(2)) == delay


def test_losses_are_forgotten_only_after_twice_the_last_backoff_if_that_is_longer() -> None:
    world = World()
    world.delays(9)
    world.now += 60
    world.bind(world.create(2))
    world.now += 119
    world.lose()
    world.bind(world.create(2))
    assert world.seconds(world.create(1)) == 60
    world.now += 120
    world.lose()
    world.bind(world.create(2))
    assert world.seconds(world.create(1)) == 0


def test_run_that_starts_beside_other_runs_has_lost_no_member() -> None:
    world = World()
    for number in range(8):
        candidates = world.create(2, Owner("batch/v1", "Job", f"j{number}", f"j{number}"))
        assert world.seconds(candidates) == 0
        world.bind(candidates)


def test_the_losses_of_one_job_delay_no_other_job() -> None:
    world = World()
    world.delays(4, owner=JOB)
    assert world.seconds(world.create(2, JOB)) > 0
    assert world.seconds(world.create(2, Owner("batch/v1", "Job", "k", "k"))) == 0


@pytest.mark.parametrize("owner", [SET, STATEFUL])
def test_a_member_that_a_rolling_update_replaces_is_not_lost(owner: Owner) -> None:
    world = World(minimum=4)
    older = OLDER_SET if owner is SET else STATEFUL
    world.bind(world.create(4, older, labels=(("controller-revision-hash", "1"),)))
    for each in list(world.pods):
        world.lose(each, phase=None)
        candidates = world.create(1, owner, labels=(("controller-revision-hash", "2"),))
        assert world.seconds(candidates) == 0
        world.bind(candidates)
        world.now += 1


def test_a_surplus_member_is_lost_if_it_failed_and_not_if_it_was_deleted() -> None:
    world = World()
    world.bind(world.create(2))
    for phase, expected in (None, [0.0, 0.0, 0.0]), ("Failed", [0.0, 1.0, 2.0]):
        delays = []
        for _ in range(3):
            world.bind(surplus := world.create(1))
            world.lose(*surplus, phase=phase)
            candidates = world.create(1)
            delays.append(world.seconds(candidates))
            world.now += delays[-1]
        assert delays == expected, phase


def test_times_of_last_binds_are_kept_for_the_latest_controllers_only() -> None:
    world = World()
    for number in range(100):
        world.bind(world.create(2, Owner("batch/v1", "Job", f"j{number}", f"j{number}")))
    last_binds = world.records.of(KEY).last_binds
    assert list(last_binds) == [f"j{number}/" for number in range(84, 100)]
