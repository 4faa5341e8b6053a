"""Tests that as few partially bound gangs as possible are released for another gang, and none in vain."""

from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import AsyncMock, Mock

import pytest

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective, Undo
from allaboard.model.pod import Owner, Pod
from allaboard.records.partial_bind import KeptOpen, Leaving, PartialBind, Releasing
from allaboard.records.record import GangRecords
from allaboard.scheduling.victims import NO_VICTIM_SECONDS, Victims, may_suspend

JOB, CONTROLLER = Owner("batch/v1", "Job", "j", "u"), Owner("apps/v1", "ReplicaSet", "r", "u")
NOW = 1000.0


def a_pod(name: str, owner: Owner, *, is_bound: bool = True) -> Pod:
    spec, node = SchedulingSpec((("pods", 1),)), "node-1" if is_bound else ""
    pod = Pod("default", name, f"uid-{name}", "1", 0.0, "allaboard", node, "Running" if is_bound else "Pending", 0, spec)
    return replace(pod, owner=owner, stamped_min_member=4 if is_bound else 0, transaction="run" if is_bound else "")


def a_gang(name: str, *, bound: int = 0, owner: Owner = CONTROLLER, created: float = 0.0, priority: int = 0) -> Gang:
    """Return a gang of four pods, the first ``bound`` of them bound."""
    pods = [a_pod(f"{name}-{number}", owner, is_bound=number < bound) for number in range(4)]
    return Gang(GangKey("default", name), 4, tuple(pods), priority, created, Objective.BINPACK, 60)


class Scene:
    """Partially bound gangs that are kept open and past their time-out, and a gang that needs their capacity."""

    def __init__(self, *blocking: Gang) -> None:
        gangs = {gang.key: gang for gang in blocking}
        self.records = GangRecords()
        for key in gangs:
            partial = self.records.partial_bind(key)
            partial.state, partial.expires = KeptOpen(), 0.0
        binder = Mock(would_go=AsyncMock(side_effect=lambda pod, *, is_suspended: is_suspended or not pod.is_of_job))
        self.in_doubt: Sequence[Pod] = ()
        known = Mock(registry=Mock(gang=gangs.get), records=self.records, clock=lambda: NOW)
        self.victims = Victims(known, binder, Mock(), Mock(pods=lambda: self.in_doubt))

    async def victims_of(self, gang: Gang, needs: int) -> list[str]:
        """Return the names of the victims of a gang that fits once ``needs`` bound pods are gone."""

        async def would_fit(without: Sequence[Pod]) -> bool:
            return len(without) >= needs

        return [other.key.name for other in await self.victims.of(gang, would_fit)]


FIRST, SECOND, THIRD = (a_gang(name, bound=2, created=float(age)) for age, name in enumerate(("first", "second", "third")))
LATE = a_gang("late", created=100.0)


@pytest.mark.parametrize(("doubtful", "victims"), [(1, ["third"]), (2, [])])
async def test_no_gang_is_released_for_capacity_that_unresolved_binds_may_return(doubtful: int, victims: list[str]) -> None:
    scene = Scene(FIRST, SECOND, THIRD)
    scene.in_doubt = FIRST.bound[:doubtful]
    assert await scene.victims_of(LATE, 2) == victims


@pytest.mark.parametrize(("needs", "victims"), [(0, []), (1, ["third"]), (2, ["third"]), (3, ["third", "second"]), (7, [])])
async def test_as_few_gangs_as_possible_are_victims_the_last_in_the_queue_first(needs: int, victims: list[str]) -> None:
    assert await Scene(FIRST, SECOND, THIRD).victims_of(LATE, needs) == victims


async def test_a_partially_bound_gang_has_only_victims_behind_it_in_the_queue() -> None:
    scene = Scene(FIRST, SECOND, THIRD)
    assert await scene.victims_of(SECOND, 2) == ["third"]
    assert await scene.victims_of(THIRD, 2) == []


async def test_a_gang_has_no_victims_of_a_higher_priority() -> None:
    assert await Scene(a_gang("high", bound=2, priority=1)).victims_of(LATE, 2) == []


async def test_no_gang_is_released_if_that_would_suffice_only_with_the_release_of_a_job_that_keeps_its_pods() -> None:
    """Capacity suffices only if two gangs are released.

    A Job owns the pods of one gang and keeps them, so releasing the other gang alone would be in vain.
    """
    scene = Scene(a_gang("job", bound=2, owner=JOB), SECOND)
    assert await scene.victims_of(LATE, 4) == []
    assert await scene.victims_of(LATE, 2) == ["second"]


async def test_capacity_of_a_gang_in_release_counts_as_free_only_once_the_release_has_succeeded() -> None:
    """Otherwise another gang could be released in vain, if the release fails, or needlessly, if the released capacity is enough."""
    scene = Scene(FIRST, SECOND)
    partial = scene.records.partial_bind(FIRST.key)
    partial.state = Releasing(KeptOpen(), NOW + 10)
    assert await scene.victims_of(LATE, 4) == []
    assert await scene.victims_of(LATE, 2) == []
    partial.state, partial.no_victim_until = KeptOpen(), NOW + NO_VICTIM_SECONDS  # the release has failed
    assert await scene.victims_of(LATE, 4) == []
    assert await scene.victims_of(LATE, 2) == ["second"]
    partial.leaving = Leaving(FIRST.bound, NOW + 40)  # the release has succeeded
    assert await scene.victims_of(LATE, 4) == ["second"]
    assert await scene.victims_of(LATE, 2) == []


async def test_a_gang_that_was_just_released_has_no_victims_and_the_gang_that_needs_the_release_is_no_victim() -> None:
    scene = Scene(FIRST, SECOND, THIRD)
    partial = scene.records.partial_bind(THIRD.key)
    partial.released_for, partial.leaving = SECOND.key, Leaving(THIRD.bound, NOW + 40)
    assert await scene.victims_of(THIRD, 5) == []
    assert await scene.victims_of(LATE, 4) == ["first"]


async def test_a_gang_that_was_whole_once_is_no_victim() -> None:
    scene = Scene(SECOND)
    scene.records.of(SECOND.key).whole_runs = {"run"}
    assert await scene.victims_of(LATE, 2) == []


async def test_two_gangs_are_not_released_for_each_other_in_turn() -> None:
    scene = Scene(FIRST, SECOND)
    scene.records.partial_bind(FIRST.key).released_for = SECOND.key
    assert await scene.victims_of(FIRST, 2) == []


async def test_one_member_of_each_owner_gets_a_dry_run_of_its_release() -> None:
    mixed = replace(THIRD, members=(*THIRD.members[:1], a_pod("third-1", JOB), *THIRD.members[2:]))
    assert await Scene(SECOND, mixed).victims_of(LATE, 2) == ["second"]


@pytest.mark.parametrize(("undo", "expires", "is_allowed"), [(Undo.SUSPEND, NOW, True), (Undo.SUSPEND, NOW + 1, False), (None, NOW, False)])
def test_jobs_of_a_gang_may_be_suspended_only_if_its_options_say_so_and_its_time_out_has_passed(
    undo: Undo | None, expires: float, is_allowed: bool
) -> None:
    assert may_suspend(replace(FIRST, undo=undo), PartialBind(expires=expires), NOW) is is_allowed
