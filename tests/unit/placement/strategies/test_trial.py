"""Tests that a faulty strategy does no harm: whatever it raises, does or answers, a valid plan or a message about the failure results."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allaboard.model.gang import Objective
from allaboard.placement import Budget, Explanation, Plan, Problem, answer_of, build_problem
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from allaboard.placement.solvers.genetic import SearchSettings
from allaboard.placement.strategies import named
from allaboard.placement.strategies.shipped import FirstFit, Genetic
from allaboard.placement.strategies.trial import StrategyError, checked_plan
from tests.unit.placement.clusters import GPU, node, pods, snapshot

GANG = [*pods("ps", 1, {"cpu": 1000}), *pods("worker", 2, {GPU: 2})]
NODES = [node("a", {"cpu": 1000, GPU: 2}), node("b", {"cpu": 500, GPU: 4}, labels={"rack": "1"})]
PROBLEM = build_problem(GANG, 3, snapshot(NODES), objective=Objective.BINPACK)
GOOD = (("ps-0", "a"), ("worker-0", "a"), ("worker-1", "b"))

Place = Callable[[Problem], Any]


def plan_by(place: Place, problem: Problem = PROBLEM, *, accepts: object = True) -> Plan | None:
    """Return the checked plan of a strategy whose method ``place`` is the argument ``place``, and whose ``accepts`` returns ``accepts``."""

    class Plugin:
        def accepts(self, problem: Problem) -> object:
            return accepts

        def place(self, problem: Problem, budget: Budget) -> Any:
            return place(problem)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(named._SHIPPED, "plugin", Plugin)  # type: ignore[arg-type]  # a dict, and a plug-in may be anything
        return checked_plan("plugin", {}, problem, Budget())


def a_plan(assignments: Any = GOOD, **fields: Any) -> Plan:
    """Return a plan that claims to be feasible."""
    found = search()
    return replace(found, **{"assignments": assignments, "feasible": True, **fields})


def search(problem: Problem = PROBLEM) -> Plan:
    return Genetic(SearchSettings()).place(problem, Budget())


def raising(error: BaseException) -> Place:
    def place(problem: Problem) -> Any:
        raise error

    return place


class _Speechless(Exception):  # noqa: N818  # a name as another package might choose it
    def __str__(self) -> str:
        raise ValueError


class _Text(str):
    __slots__ = ()


def test_only_the_assignments_of_a_valid_plan_are_used() -> None:
    plan = plan_by(lambda problem: a_plan(unplaced="rubbish", explanation=object(), search=None))
    assert plan is not None
    assert dict(plan.assignments) == dict(GOOD)
    assert (plan.feasible, plan.unplaced, plan.explanation.placeable, plan.search.found_by) == (True, (), 3, "plugin")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("boom"), "it raised ValueError: boom"),
        (ValueError("one\n two" + 1000 * "x"), "it raised ValueError: one two"),
        (SystemExit(3), "it raised SystemExit: 3"),
        (GeneratorExit(), "it raised GeneratorExit"),
        (_Speechless(), "it raised _Speechless"),
        (StrategyError("y" * 1000), "yyy"),
    ],
)
def test_error_of_a_strategy_is_reported_in_a_short_message(error: BaseException, words: str) -> None:
    with pytest.raises(StrategyError) as caught:
        plan_by(raising(error))
    assert str(caught.value).startswith(words)
    assert len(str(caught.value)) <= 200
    assert "\n" not in str(caught.value)
    assert (f"({Path(__file__).name}:" in str(caught.value)) == ("it raised" in words)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("answer", [False, np.False_, None, 1, "yes"])
def test_strategy_that_does_not_accept_a_gang_does_not_place_it(answer: object) -> None:
    with pytest.raises(StrategyError, match="it does not accept the gang"):
        plan_by(raising(AssertionError()), accepts=answer)


@pytest.mark.parametrize("answer", [None, 0, "a", GOOD, dict(GOOD), np.ones((2, 2)), object(), Plan, [a_plan()]])
def test_answer_of_a_strategy_that_is_neither_plan_nor_explanation_is_refused(answer: object) -> None:
    with pytest.raises(StrategyError, match="neither a plan nor an explanation"):
        plan_by(lambda problem: answer)


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (None, "it raised TypeError"),
        (7, "it raised TypeError"),
        ("abc", "an assignment is not a pod's UID and a node's name"),
        (((1, 2),), "an assignment is not"),
        (((_Text("ps-0"), "a"),), "an assignment is not"),
        ((("ps-0", "a", "b"),), "an assignment is not"),
        ((*GOOD, ("worker-2", "b")), "pod 'worker-2' is no waiting member of the gang"),
        ((*GOOD, ("worker-1", "b")), "pod worker-1 is assigned twice"),
        ((("ps-0", "c"), *GOOD[1:]), "node 'c' does not exist, or can take no member"),
        ((("ps-0", ""), *GOOD[1:]), "node '' does not exist"),  # the toy scheduler bound pods that fit nowhere to such a node
        ((("ps-0", "b"), *GOOD[1:]), "node b has too little cpu for the pods assigned to it"),
        ((*GOOD[:2], ("worker-1", "a")), "node a has too little nvidia.com/gpu for the pods assigned to it"),
        (GOOD[:2], "it assigns 2 pods, but the gang needs 1 more"),
        ((), "it assigns 0 pods, but the gang needs 3 more"),
    ],
)
def test_invalid_plan_is_refused_with_the_cause(assignments: object, words: str) -> None:
    with pytest.raises(StrategyError) as caught:
        plan_by(lambda problem: a_plan(assignments))
    assert words in str(caught.value)


def test_plan_is_checked_against_the_original_problem() -> None:
    def place(problem: Problem) -> Plan:
        problem.free[:] = 1_000_000
        problem.admits[:] = True
        problem.lacking = lambda placed: 0  # type: ignore[method-assign, misc, assignment]
        return a_plan((*GOOD[:2], ("worker-1", "a")))

    with pytest.raises(StrategyError):
        plan_by(place)
    assert PROBLEM.free.max() < 1_000_000


def test_plan_that_breaks_a_rule_between_members_is_refused() -> None:
    racks = snapshot([node(name, {GPU: 2}, labels={"rack": name}) for name in "abc"])
    rules = Rules(parts=[({"worker-0"}, 1)], couplings=[TogetherRule("rack", {"worker-0", "worker-1"})])
    problem = build_problem(pods("worker", 3, {GPU: 1}), 2, racks, objective=Objective.BINPACK, rules=rules)
    with pytest.raises(StrategyError, match="members that must share a topology domain don't"):
        plan_by(lambda _: a_plan((("worker-0", "a"), ("worker-1", "b"))), problem)
    with pytest.raises(StrategyError, match="it assigns 2 pods, but the gang needs 1 more"):
        plan_by(lambda _: a_plan((("worker-1", "a"), ("worker-2", "b"))), problem)
    plan = plan_by(lambda _: a_plan((("worker-0", "b"), ("worker-1", "b"))), problem)
    assert plan is not None
    assert set(plan.assignments) == {("worker-0", "b"), ("worker-1", "b")}


def test_parts_of_gpus_must_fit_on_single_devices() -> None:
    cluster = replace(snapshot([node("a", {"cpu": 8000, GPU: 2})]), devices=np.array([[1000, 1000]]))
    gang = pods("worker", 3, {"cpu": 1000}, gpu_share=600)
    problem = build_problem(gang, 3, cluster, objective=Objective.BINPACK)
    with pytest.raises(StrategyError, match="parts of GPUs don't fit on their devices together"):
        plan_by(lambda _: a_plan(tuple((pod.uid, "a") for pod in gang)), problem)


def test_strategy_that_finds_no_plan_does_not_count_as_failed() -> None:
    def explaining(problem: Problem) -> Explanation:
        answer = answer_of(problem, np.zeros_like(problem.slots))
        assert isinstance(answer, Explanation)
        return answer

    assert plan_by(explaining) is None
    assert plan_by(lambda problem: a_plan((), feasible=False)) is None
    assert plan_by(lambda problem: a_plan((), feasible=None)) is None


def test_error_names_an_unknown_strategy() -> None:
    with pytest.raises(StrategyError, match="it raised UnknownStrategyError: there is no strategy 'none'; known are genetic, exact"):
        checked_plan("none", {}, PROBLEM, Budget())


def test_unknown_argument_of_a_strategy_is_reported() -> None:
    with pytest.raises(StrategyError, match=r"it raised TypeError: .*unexpected keyword argument 'fit'"):
        checked_plan("firstfit", {"fit": 2}, PROBLEM, Budget())


def test_keyboard_interrupt_during_a_strategy_is_raised_again() -> None:
    with pytest.raises(KeyboardInterrupt):
        plan_by(raising(KeyboardInterrupt()))


def test_endless_recursion_of_a_strategy_is_reported() -> None:
    def place(problem: Problem) -> Any:
        return place(problem)

    limit = sys.getrecursionlimit()
    with pytest.raises(StrategyError, match="it raised RecursionError"):
        plan_by(place)
    assert sys.getrecursionlimit() == limit


def test_strategy_may_call_another_strategy() -> None:
    plan = plan_by(lambda problem: FirstFit().place(problem, Budget()), accepts=np.True_)
    assert plan is not None
    assert dict(plan.assignments) == dict(GOOD)
