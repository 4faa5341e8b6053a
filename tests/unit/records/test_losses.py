"""Members that are lost again and again soon after they were bound: which pods are delayed, and for how long."""

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
        self.made = 0

    def make(self, number: int, owner: Owner | None = SET, **fields: object) -> Sequence[Pod]:
        made = [replace(pod, owner=owner, **fields) for pod in pods(f"p{self.made}", number, {})]  # type: ignore[arg-type]
        self.made += 1
        return made

    def gang(self, candidates: Sequence[Pod] = ()) -> Gang:
        """Return the run of the candidates; members that have ended belong to an earlier run."""
        living = tuple(pod for pod in self.pods if pod.is_alive)
        ended = tuple(pod for pod in self.pods if not pod.is_alive)
        return Gang(KEY, self.minimum, (*living, *candidates), 0, 0.0, Objective.BINPACK, 60, others=ended)

    def seconds(self, candidates: Sequence[Pod]) -> float:
        """Return for how many seconds none of the candidates is bound."""
        return max(0.0, self.losses.back_off(self.gang(candidates))[0] - self.now)

    def bind(self, candidates: Sequence[Pod]) -> None:
        gang = self.gang(candidates)
        self.losses.observe_bind(gang, candidates, self.lost_at)
        self.pods += [replace(pod, node_name="n", transaction="run", stamped_min_member=self.minimum) for pod in candidates]

    def lose(self, *lost: Pod, phase: str | None = "Failed") -> None:
        """End pods in a phase, or delete them."""
        names = {pod.uid for pod in lost} or {pod.uid for pod in self.pods if pod.is_alive}
        kept = [replace(pod, phase=phase) if phase and pod.uid in names else pod for pod in self.pods]
        self.pods = [pod for pod in kept if phase or pod.uid not in names]
        self.lost_at = self.now

    def pauses(self, times: int, phase: str | None = "Failed", owner: Owner | None = SET) -> list[float]:
        """Return the backoffs after so many losses of all members, each half a second after their bind."""
        found = []
        for _ in range(times):
            candidates = self.make(2, owner)
            found.append(self.seconds(candidates))
            self.now += found[-1]
            self.bind(candidates)
            self.lose(phase=phase)
        return found


@pytest.mark.parametrize("owner", [SET, JOB, STATEFUL, None])
@pytest.mark.parametrize("phase", ["Failed", None])
def test_members_that_are_lost_again_and_again_are_replaced_at_once_first_and_then_later(phase: str | None, owner: Owner | None) -> None:
    assert World().pauses(9, phase, owner) == [0, 0, 1, 2, 4, 8, 16, 32, 60]


def test_members_that_have_succeeded_are_not_lost() -> None:
    assert World().pauses(4, "Succeeded") == [0, 0, 0, 0]


@pytest.mark.parametrize(("stayed", "pause"), [(59.0, 16.0), (60.0, 0.0)])
def test_members_that_have_stayed_for_a_minute_are_forgiven(stayed: float, pause: float) -> None:
    world = World()
    world.pauses(4)
    world.now += 4
    candidates = world.make(2)
    world.bind(candidates)
    world.now += stayed
    world.lose()
    world.bind(world.make(2))
    world.lose()
    assert world.seconds(world.make(2)) == pause


def test_losses_are_forgiven_only_after_twice_the_last_back_off() -> None:
    world = World()
    world.pauses(9)
    world.now += 60
    world.bind(world.make(2))
    world.now += 119
    world.lose()
    world.bind(world.make(2))
    assert world.seconds(world.make(1)) == 60
    world.now += 120
    world.lose()
    world.bind(world.make(2))
    assert world.seconds(world.make(1)) == 0


def test_a_run_that_starts_beside_others_has_lost_no_member() -> None:
    world = World()
    for number in range(8):
        candidates = world.make(2, Owner("batch/v1", "Job", f"j{number}", f"j{number}"))
        assert world.seconds(candidates) == 0
        world.bind(candidates)


def test_the_losses_of_one_job_delay_no_other_job() -> None:
    world = World()
    world.pauses(4, owner=JOB)
    assert world.seconds(world.make(2, JOB)) > 0
    assert world.seconds(world.make(2, Owner("batch/v1", "Job", "k", "k"))) == 0


@pytest.mark.parametrize("owner", [SET, STATEFUL])
def test_a_member_that_a_rolling_update_replaces_is_not_lost(owner: Owner) -> None:
    world = World(minimum=4)
    older = OLDER_SET if owner is SET else STATEFUL
    world.bind(world.make(4, older, labels=(("controller-revision-hash", "1"),)))
    for each in list(world.pods):
        world.lose(each, phase=None)
        candidates = world.make(1, owner, labels=(("controller-revision-hash", "2"),))
        assert world.seconds(candidates) == 0
        world.bind(candidates)
        world.now += 1


def test_a_surplus_member_is_lost_if_it_failed_and_not_if_it_was_deleted() -> None:
    world = World()
    world.bind(world.make(2))
    for phase, expected in (None, [0.0, 0.0, 0.0]), ("Failed", [0.0, 1.0, 2.0]):
        pauses = []
        for _ in range(3):
            world.bind(surplus := world.make(1))
            world.lose(*surplus, phase=phase)
            candidates = world.make(1)
            pauses.append(world.seconds(candidates))
            world.now += pauses[-1]
        assert pauses == expected, phase


def test_only_the_last_controllers_are_remembered() -> None:
    world = World()
    for number in range(100):
        world.bind(world.make(2, Owner("batch/v1", "Job", f"j{number}", f"j{number}")))
    last_binds = world.records.of(KEY).last_binds
    assert list(last_binds) == [f"j{number}/" for number in range(84, 100)]
