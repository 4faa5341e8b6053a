"""Who gives seats up for whom: as few half gangs as it takes, and none in vain."""

from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import AsyncMock, Mock

import pytest

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective, Undo
from allaboard.model.pod import Owner, Pod
from allaboard.records.partial_bind import KeptOpen, Leaving, PartialBind, Releasing
from allaboard.records.record import GangRecords
from allaboard.scheduling.victims import UNASKED_SECONDS, Victims, may_suspend

JOB, CONTROLLER = Owner("batch/v1", "Job", "j", "u"), Owner("apps/v1", "ReplicaSet", "r", "u")
NOW = 1000.0


def a_pod(name: str, owner: Owner, *, is_bound: bool = True) -> Pod:
    spec, node = SchedulingSpec((("pods", 1),)), "node-1" if is_bound else ""
    pod = Pod("default", name, f"uid-{name}", "1", 0.0, "allaboard", node, "Running" if is_bound else "Pending", 0, spec)
    return replace(pod, owner=owner, stamped_min_member=4 if is_bound else 0, transaction="run" if is_bound else "")


def a_gang(name: str, *, bound: int = 0, owner: Owner = CONTROLLER, created: float = 0.0, priority: int = 0) -> Gang:
    """Of four, of which so many are bound."""
    pods = [a_pod(f"{name}-{number}", owner, is_bound=number < bound) for number in range(4)]
    return Gang(GangKey("default", name), 4, tuple(pods), priority, created, Objective.BINPACK, 60)


class Scene:
    """Half gangs that are kept open and whose time is over, and one that asks for their seats."""

    def __init__(self, *halves: Gang) -> None:
        gangs = {gang.key: gang for gang in halves}
        self.records = GangRecords()
        for key in gangs:
            half = self.records.partial_bind(key)
            half.state, half.expires = KeptOpen(), 0.0
        binder = Mock(would_go=AsyncMock(side_effect=lambda pod, *, is_suspended: is_suspended or not pod.is_of_job))
        self.in_doubt: Sequence[Pod] = ()
        known = Mock(registry=Mock(gang=gangs.get), records=self.records, clock=lambda: NOW)
        self.victims = Victims(known, binder, Mock(), Mock(pods=lambda: self.in_doubt))

    async def asked_by(self, gang: Gang, needs: int) -> list[str]:
        """Who yields to a gang that needs so many seats."""

        async def would_fit(without: Sequence[Pod]) -> bool:
            return len(without) >= needs

        return [other.key.name for other in await self.victims.of(gang, would_fit)]


FIRST, SECOND, THIRD = (a_gang(name, bound=2, created=float(age)) for age, name in enumerate(("first", "second", "third")))
LATE = a_gang("late", created=100.0)


@pytest.mark.parametrize(("doubtful", "who"), [(1, ["third"]), (2, [])])
async def test_nobody_yields_for_seats_that_may_be_free_as_soon_as_unanswered_binds_are_known_of(doubtful: int, who: list[str]) -> None:
    scene = Scene(FIRST, SECOND, THIRD)
    scene.in_doubt = FIRST.bound[:doubtful]
    assert await scene.asked_by(LATE, 2) == who


@pytest.mark.parametrize(("needs", "who"), [(0, []), (1, ["third"]), (2, ["third"]), (3, ["third", "second"]), (7, [])])
async def test_as_few_as_it_takes_yield_the_last_in_the_queue_first(needs: int, who: list[str]) -> None:
    assert await Scene(FIRST, SECOND, THIRD).asked_by(LATE, needs) == who


async def test_a_half_gang_asks_only_those_behind_it() -> None:
    scene = Scene(FIRST, SECOND, THIRD)
    assert await scene.asked_by(SECOND, 2) == ["third"]
    assert await scene.asked_by(THIRD, 2) == []


async def test_nobody_yields_to_a_lower_priority() -> None:
    assert await Scene(a_gang("high", bound=2, priority=1)).asked_by(LATE, 2) == []


async def test_nobody_makes_way_beside_a_job_that_keeps_its_pods() -> None:
    """Two half gangs would have to go: the one would be evicted for nothing."""
    scene = Scene(a_gang("job", bound=2, owner=JOB), SECOND)
    assert await scene.asked_by(LATE, 4) == []
    assert await scene.asked_by(LATE, 2) == ["second"]


async def test_who_is_asked_counts_as_leaving_only_when_it_goes() -> None:
    """Else another would be evicted beside one that stays, or beside one whose seats are enough."""
    scene = Scene(FIRST, SECOND)
    half = scene.records.partial_bind(FIRST.key)
    half.state = Releasing(KeptOpen(), NOW + 10)
    assert await scene.asked_by(LATE, 4) == []
    assert await scene.asked_by(LATE, 2) == []
    half.state, half.unasked_until = KeptOpen(), NOW + UNASKED_SECONDS  # it stays
    assert await scene.asked_by(LATE, 4) == []
    assert await scene.asked_by(LATE, 2) == ["second"]
    half.leaving = Leaving(FIRST.bound, NOW + 40)  # it goes
    assert await scene.asked_by(LATE, 4) == ["second"]
    assert await scene.asked_by(LATE, 2) == []


async def test_who_has_just_made_way_asks_nobody_and_who_was_made_way_for_is_not_asked() -> None:
    scene = Scene(FIRST, SECOND, THIRD)
    half = scene.records.partial_bind(THIRD.key)
    half.released_for, half.leaving = SECOND.key, Leaving(THIRD.bound, NOW + 40)
    assert await scene.asked_by(THIRD, 5) == []
    assert await scene.asked_by(LATE, 4) == ["first"]


async def test_one_that_has_been_whole_is_not_asked() -> None:
    scene = Scene(SECOND)
    scene.records.of(SECOND.key).whole_runs = {"run"}
    assert await scene.asked_by(LATE, 2) == []


async def test_who_has_made_way_for_a_gang_never_has_that_one_make_way_for_it() -> None:
    scene = Scene(FIRST, SECOND)
    scene.records.partial_bind(FIRST.key).released_for = SECOND.key
    assert await scene.asked_by(FIRST, 2) == []


async def test_one_member_of_each_owner_is_asked_whether_it_may_go() -> None:
    mixed = replace(THIRD, members=(*THIRD.members[:1], a_pod("third-1", JOB), *THIRD.members[2:]))
    assert await Scene(SECOND, mixed).asked_by(LATE, 2) == ["second"]


@pytest.mark.parametrize(("undo", "expires", "may"), [(Undo.SUSPEND, NOW, True), (Undo.SUSPEND, NOW + 1, False), (None, NOW, False)])
def test_jobs_are_suspended_only_where_that_is_asked_for_and_when_the_gang_s_time_is_over(
    undo: Undo | None, expires: float, may: bool
) -> None:
    assert may_suspend(replace(FIRST, undo=undo), PartialBind(expires=expires), NOW) is may
