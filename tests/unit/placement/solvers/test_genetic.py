"""Tests the genetic search alone: which plan it prefers, when it ends, and that its plans are valid."""

from dataclasses import replace

import numpy as np
import pytest

from allaboard.model.gang import Objective
from allaboard.placement import Problem, SearchSettings, build_problem
from allaboard.placement.rules.members import Rules
from allaboard.placement.solvers.genetic import Limits, Target, evolve
from allaboard.placement.solvers.milp import holds
from tests.unit.placement.clusters import GPU, node, pods, snapshot

OUT_OF_REACH = float("inf")


def one_way_only(topology: str = "") -> Problem:
    """Return the problem of two pods that must share the only node, so that nothing can be gained."""
    gang = [*pods("a", 1, {"cpu": 1000}), *pods("b", 1, {"cpu": 2000})]
    cluster = snapshot([node("n", {"cpu": 3000}, labels={"rack": "r"})])
    return build_problem(gang, 2, cluster, objective=Objective.FRAGMENTATION, topology=topology)


@pytest.mark.parametrize(("topology", "patience", "expected"), [("rack", 1, 1), ("rack", 4, 4), ("", 4, 1), ("", 5, 1), ("", 15, 3)])
def test_search_ends_when_as_many_generations_as_its_patience_bring_no_gain(topology: str, patience: int, expected: int) -> None:
    """A search without a gain ends after ``patience`` generations if racks count, and otherwise after a fifth of that number."""
    problem = one_way_only(topology)
    evolution = evolve(problem, [problem.count[:, None].copy()], SearchSettings(patience=patience), 1, Target(2, OUT_OF_REACH))
    assert (evolution.stopped_by, evolution.generations) == ("patience", expected)


def test_plan_with_the_needed_member_beats_a_plan_with_more_pods() -> None:
    gang = [*pods("chief", 1, {"cpu": 3000}), *pods("worker", 4, {"cpu": 1000})]
    rules = Rules([(["chief-0"], 1)])
    problem = build_problem(gang, 2, snapshot([node("n", {"cpu": 4000})]), objective=Objective.BINPACK, rules=rules)
    crowded = np.array([[0], [4]])
    evolution = evolve(problem, [crowded], SearchSettings(), 1, Target(5, OUT_OF_REACH))
    assert evolution.counts.tolist() == [[1], [1]]


@pytest.mark.parametrize("seed", range(5))
def test_no_plan_exceeds_what_a_device_has(seed: int) -> None:
    """Two shares of 500 and two of 275 fit on the node in total, but the last share of 275 fits on neither device."""
    cluster = replace(snapshot([node("n", {"cpu": 64_000})]), devices=np.array([[800, 750]], dtype=np.int64))
    gang = [*pods("a", 2, {"cpu": 1000}, gpu_share=500), *pods("b", 2, {"cpu": 2000}, gpu_share=275)]
    problem = build_problem(gang, 1, cluster, objective=Objective.BINPACK)
    evolution = evolve(problem, [np.zeros_like(problem.slots)], SearchSettings(), seed, Target(4, OUT_OF_REACH))
    assert holds(problem, evolution.counts)
    assert evolution.counts.sum() == 3


def test_search_without_time_ends_after_one_generation_without_local_search() -> None:
    gang = [*pods("a", 6, {"cpu": 1000, GPU: 1}), *pods("b", 6, {"cpu": 2000})]
    cluster = snapshot([node(f"n{number}", {"cpu": 3000 + 500 * number, GPU: 2}) for number in range(8)])
    problem = build_problem(gang, 12, cluster, objective=Objective.SPREAD)
    asked = []
    limits = Limits(50, 50, lambda: bool(asked.append(1)) or True)
    evolution = evolve(problem, [np.zeros_like(problem.slots)], SearchSettings(), 1, Target(12, OUT_OF_REACH), limits)
    assert (evolution.stopped_by, evolution.generations) == ("time", 1)
    assert len(asked) == 2  # before the first local search, and after the generation
