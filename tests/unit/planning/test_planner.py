"""Tests of the planner: where problems are built, which gangs are placed together, and whose search time is charged."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import HostPort
from allaboard.model.fit import FitScoring, Strategy
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.packing import PACKING
from allaboard.model.reasons import Code, Kind, Reason
from allaboard.placement import Plan, Problem, SearchSettings, search
from allaboard.placement.contest.contest import Contest
from allaboard.placement.contest.joint import Joint, place_together
from allaboard.placement.problem.draft import Draft
from allaboard.planning import planner
from allaboard.planning.gang_problem import Packings
from allaboard.planning.planner import Planner
from allaboard.planning.prepared import prepared
from allaboard.planning.search_costs import SearchCosts
from allaboard.planning.search_processes import Searcher
from allaboard.queueing.search_time import SearchTime
from allaboard.records.advice import Advised
from allaboard.records.record import GangRecords
from allaboard.report.metrics import Metrics
from tests.unit.placement.clusters import node, pods
from tests.unit.planning.ledgers import a_ledger


class RecordedSearcher(Searcher):
    """A searcher that works in this process; ``asked`` lists the problems of its searches."""

    def __init__(self) -> None:
        self.asked: list[Problem | Draft] = []

    async def search_briefly(self, problem: Problem | Draft, seed: int) -> Plan:
        self.asked.append(problem)
        return search(problem.built() if isinstance(problem, Draft) else problem, SearchSettings(), seed)

    async def run_briefly(self, work: Callable[..., Any], *arguments: object) -> Any:
        return work(*arguments)


def a_planner(searcher: RecordedSearcher, clock: Callable[[], float] = lambda: 0.0) -> Planner:
    view = ClusterView()
    for name in "abc":
        view.upsert_node(node(name, {"cpu": 4000}))
    return Planner(view, GangRecords(), searcher, SearchCosts(Metrics(), SearchTime(clock), clock), Packings(), a_ledger(view))


GANG = Gang(GangKey("default", "g"), 4, (*pods("a", 2, {"cpu": 1000}), *pods("b", 2, {"cpu": 2000})), 0, 0.0, Objective.SPREAD, 60)


async def test_a_problem_that_takes_long_to_build_is_built_in_the_search_process(monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = RecordedSearcher()
    built_here = await a_planner(searcher).plan(GANG)
    monkeypatch.setattr(planner, "MOST_CELLS", 5)  # two kinds of pods on three nodes are six cells
    built_there = await a_planner(searcher).plan(GANG)
    assert [type(problem) for problem in searcher.asked] == [Problem, Draft]
    assert built_here == built_there
    assert built_here.feasible


async def test_a_gang_whose_problem_takes_long_to_build_gets_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MOST_CELLS", 5)
    assert await a_planner(RecordedSearcher()).advice(GANG, []) == Advised()


@pytest.mark.parametrize(("taken", "expected"), [("a", Reason(Kind.PORTS)), ("", Reason(Kind.TOPOLOGY, "zone"))])
async def test_refusal_names_the_rule_between_members_that_prevents_a_placement(taken: str, expected: Reason) -> None:
    port = HostPort("", "TCP", 80)
    planner = a_planner(RecordedSearcher())
    view = planner.cluster
    # With ``taken`` both nodes are in one zone, and the port is taken on one node. Otherwise each node is a zone of its own.
    for name in "abc":
        view.remove_node(name)
    for name in "ab":
        view.upsert_node(node(name, {"cpu": 4000}, labels={"zone": "z" if taken else name}))
    if taken:
        [busy] = pods("busy", 1, {"cpu": 1000}, host_ports=(port,))
        view.upsert_pod(replace(busy, node_name=taken))
    members = pods("w", 2, {"cpu": 1000}, host_ports=(port,))
    gang = replace(GANG, min_member=2, members=tuple(members), required_topology="zone")
    cause = await planner.cause(gang)
    assert (cause.code, cause.rule) == (Code.CONSTRAINTS, expected)


@pytest.mark.parametrize(("nodes", "expected"), [("ab", (Code.NEVER_FITS, Reason(Kind.PORTS))), ("abc", (Code.INSUFFICIENT, None))])
async def test_a_gang_never_fits_if_its_host_ports_need_more_nodes_than_there_are(nodes: str, expected: tuple[Code, Reason | None]) -> None:
    """On the cluster as it is, the members lack cpu. On empty nodes, they need one node each."""
    planner = a_planner(RecordedSearcher())
    for name in "abc":
        planner.cluster.remove_node(name)
    for name in nodes:
        planner.cluster.upsert_node(node(name, {"cpu": 4000}))
        [busy] = pods(f"busy-{name}", 1, {"cpu": 3000})
        planner.cluster.upsert_pod(replace(busy, node_name=name))
    members = pods("w", 3, {"cpu": 2000}, host_ports=(HostPort("", "TCP", 80),))
    cause = await planner.cause(replace(GANG, min_member=3, members=tuple(members)))
    assert (cause.code, cause.rule) == expected


async def test_the_time_of_a_joint_search_is_charged_by_each_gangs_number_of_kinds_of_pods() -> None:
    now = 0.0

    class Slow(RecordedSearcher):
        async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
            nonlocal now
            now += 12.0
            return place_together(contest, SearchSettings(generations=6, min_generations=2))

    planner = a_planner(Slow(), lambda: now)
    plain = replace(GANG, key=GangKey("plain", "g"), min_member=10, members=tuple(pods("p", 10, {"cpu": 1000})))
    many = tuple(pod for kind in range(3) for pod in pods(f"m{kind}", 3, {"cpu": 1000 + kind}))
    mixed = replace(GANG, key=GangKey("mixed", "g"), min_member=9, members=many)
    await planner.plan_together([plain, mixed])
    assert (planner.costs.by_namespace.used("plain"), planner.costs.by_namespace.used("mixed")) == (3.0, 9.0)


async def test_the_seed_of_a_search_depends_only_on_the_gang_its_attempts_and_the_seed_of_the_planner() -> None:
    class Seeds(RecordedSearcher):
        def __init__(self) -> None:
            super().__init__()
            self.seeds: list[int] = []

        async def search_briefly(self, problem: Problem | Draft, seed: int) -> Plan:
            self.seeds.append(seed)
            return await super().search_briefly(problem, seed)

    searcher = Seeds()
    planner = a_planner(searcher)
    await planner.plan(GANG)
    planner.records.of(GANG.key).queue.attempts = 1
    await planner.plan(GANG)
    await planner.plan(prepared(replace(GANG, key=GangKey("default", "h"))))
    planner.seed = 7
    await planner.plan(GANG)
    names = (b"42/default/g/0", b"42/default/g/1", b"42/default/h/0", b"7/default/g/1")
    assert searcher.seeds == [zlib.crc32(name) for name in names]


async def test_only_gangs_whose_nodes_are_scored_alike_are_placed_together() -> None:
    class Together(RecordedSearcher):
        async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
            self.contests.append(contest)
            return place_together(contest, SearchSettings(generations=2))

        def __init__(self) -> None:
            super().__init__()
            self.contests: list[Contest] = []

    searcher = Together()
    planner = a_planner(searcher)
    fit = FitScoring(Strategy.LEAST)
    planner.packings = Packings(profiles={"spread": (Objective.SPREAD, fit)})

    def gang(name: str, scheduler: str, objective: Objective = Objective.SPREAD) -> Gang:
        members = tuple(replace(pod, scheduler_name=scheduler) for pod in pods(name, 7, {"cpu": 1000}))
        return replace(GANG, key=GangKey("default", name), min_member=7, members=members, objective=objective)

    gangs = [gang("a", "spread"), gang("b", "allaboard"), gang("c", "spread"), gang("d", "spread", Objective.BINPACK)]
    assert [planner.packings.of(each) for each in gangs] == [fit, PACKING, fit, PACKING]
    plans = await planner.plan_together(gangs)

    [contest] = searcher.contests
    assert contest.problem.scoring.packing == fit
    assert [key.name for key in plans] == ["a"]  # only one of the two gangs fits
