"""Tests that advice is found when no gang is due, once for equal refusals, and that a failure to find it affects no gang."""

import asyncio

import pytest

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Pod
from allaboard.planning.advice import Advisor, blockers
from allaboard.planning.search_processes import SearchError
from allaboard.records.advice import Advice, Advised
from allaboard.records.record import GangRecords
from allaboard.report.messages import with_advice
from tests.unit.scheduling.clocks import Clock

A, B = GangKey("ns", "a"), GangKey("ns", "b")


class AdvisedGangs:
    """An advisor; ``asked`` lists the gangs for which it searched, and ``reported`` what it reported."""

    def __init__(self, advice: str = "Would fit with luck.") -> None:
        self.asked: list[GangKey] = []
        self.reported: list[tuple[GangKey, str, str]] = []
        self._advice = advice
        self.records = GangRecords()
        self.advisor = Advisor(self.records, self._find, lambda *reported: self.reported.append(reported))

    def refused(self, key: GangKey, message: str) -> str:
        """Request advice for a refusal, and return the refusal with its advice, if that is known."""
        advice = self.records.of(key).advice.of(message)
        self.advisor.want(key, message)
        return with_advice(message, advice)

    async def _find(self, key: GangKey) -> Advised:
        self.asked.append(key)
        await asyncio.sleep(0)
        if not self._advice:
            raise RuntimeError("no luck")
        return Advised(self._advice)

    async def find_advice(self) -> None:
        """Find the requested advice, as at the end of a cycle."""
        self.advisor.work()
        for _ in range(5):
            await asyncio.sleep(0)


def a_gang(name: str, bound: int, priority: int = 0, kind: str = "PodGroup") -> Gang:
    members = tuple(
        Pod("ns", f"{name}{index}", f"{name}{index}", "1", 0.0, "allaboard", "node", "Running", priority, SchedulingSpec(()))
        for index in range(bound)
    )
    return Gang(GangKey("ns", name, kind), bound, members, priority, 0.0, Objective.BINPACK, 60)


async def test_a_refusal_is_reported_at_once_and_its_advice_later() -> None:
    advised = AdvisedGangs()
    assert advised.refused(A, "no capacity.") == "no capacity."
    assert advised.asked == []
    await advised.find_advice()
    assert advised.reported == [(A, "no capacity.", "no capacity. Would fit with luck.")]


async def test_an_equal_refusal_keeps_its_advice_and_a_different_refusal_gets_new_advice() -> None:
    advised = AdvisedGangs()
    advised.refused(A, "no capacity.")
    await advised.find_advice()
    assert advised.refused(A, "no capacity.") == "no capacity. Would fit with luck."
    await advised.find_advice()
    assert advised.asked == [A]
    assert advised.refused(A, "less capacity.") == "less capacity."
    await advised.find_advice()
    assert advised.asked == [A, A]


async def test_a_gang_that_is_no_longer_refused_gets_no_advice() -> None:
    advised = AdvisedGangs()
    advised.refused(A, "no capacity.")
    advised.advisor.forget(A)
    await advised.find_advice()
    assert advised.asked == []


async def test_advice_that_can_not_be_found_is_not_searched_for_again() -> None:
    advised = AdvisedGangs(advice="")
    advised.refused(A, "no capacity.")
    advised.refused(B, "no capacity.")
    await advised.find_advice()
    assert sorted(advised.asked) == [A, B]
    assert advised.reported == []
    assert advised.refused(A, "no capacity.") == "no capacity."


async def test_a_search_process_that_dies_while_it_finds_advice_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """When a service manager stops the operator, its SIGTERM ends the search processes, too."""

    async def dies(key: GangKey) -> Advised:
        raise SearchError("the search process died")

    advised = AdvisedGangs()
    advised.advisor = Advisor(GangRecords(), dies, lambda *_: None)
    advised.refused(A, "no capacity.")
    await advised.find_advice()
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info) == ("gang ns/a: advice can't be found: the search process died", None)


async def test_an_advisor_that_is_stopped_reports_no_more_advice() -> None:
    advised = AdvisedGangs()
    advised.refused(A, "no capacity.")
    advised.advisor.work()
    await advised.advisor.stop()
    assert advised.reported == []


def test_blockers_of_low_priority_and_with_few_members_come_first() -> None:
    gangs = [a_gang("large", 5), a_gang("vip", 1, priority=9), a_gang("small", 2), a_gang("waiting", 0), a_gang("lone", 1, kind="Pod")]
    assert list(blockers(a_gang("a", 1), [*gangs, a_gang("a", 1)])) == ["ns/small", "ns/large", "ns/vip"]


async def test_advice_is_dropped_if_its_gang_is_forgotten_during_the_search() -> None:
    advised = AdvisedGangs()
    advised.refused(A, "no capacity.")
    advised.advisor.work()
    await asyncio.sleep(0)
    advised.advisor.forget(A)
    await advised.find_advice()
    assert advised.reported == []
    assert advised.records.of(A).advice == Advice()


async def test_advice_that_can_not_be_reported_affects_no_other_gang() -> None:
    advised = AdvisedGangs()

    def report(*_: object) -> None:
        raise RuntimeError("no paper")

    advised.advisor = Advisor(GangRecords(), advised._find, report)
    advised.refused(A, "no capacity.")
    await advised.find_advice()
    await advised.advisor.stop()


async def test_known_advice_is_renewed_after_a_while_and_replaced_if_it_differs() -> None:
    advised, clock = AdvisedGangs(), Clock(1000.0)
    advised.advisor = Advisor(advised.records, advised._find, lambda *reported: advised.reported.append(reported), clock)
    advised.refused(A, "no capacity.")
    await advised.find_advice()
    advised._advice = "Would fit without b."
    for _ in range(3):
        clock.now += 1.0
        assert advised.refused(A, "no capacity.") == "no capacity. Would fit with luck."
    await advised.find_advice()
    assert advised.asked == [A, A]
    assert advised.reported[1:] == [(A, "no capacity. Would fit with luck.", "no capacity. Would fit without b.")]
    clock.now += 2.0
    advised.refused(A, "no capacity.")
    await advised.find_advice()
    assert (len(advised.asked), len(advised.reported)) == (3, 2)


async def test_renewing_advice_takes_at_most_a_quarter_of_the_time_that_has_passed() -> None:
    advised, clock = AdvisedGangs(), Clock(1000.0)

    async def find(key: GangKey) -> Advised:
        advised.asked.append(key)
        clock.now += 1.0
        return Advised("Would fit with luck.")

    advised.advisor = Advisor(advised.records, find, lambda *_: None, clock)
    keys = [GangKey("ns", str(number)) for number in range(30)]
    for key in keys:
        advised.refused(key, "no capacity.")
    await advised.find_advice()
    advised.asked.clear()
    began = clock.now
    while clock.now < began + 40.0:
        for key in keys:
            advised.refused(key, "no capacity.")
            await advised.find_advice()
        clock.now += 0.5
    assert 5 <= len(advised.asked) <= 11
