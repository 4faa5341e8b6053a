"""The search as a whole: its guarantees, and gangs that earlier schedulers got wrong."""

import pickle
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings

from allaboard.model.arrays import Integers
from allaboard.model.gang import Objective
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Plan, SearchSettings, build_problem, greedy_seeds, search, verify
from allaboard.placement.problem.points import Scale
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from allaboard.placement.solvers.improve import STEPS
from allaboard.placement.solvers.milp import holds
from allaboard.settings.placement import SearchOptions
from tests.unit.placement.clusters import GI, GPU, Case, cases, in_words, node, pods, snapshot
from tests.unit.placement.tight_gang import GENETIC, tight_cluster, tight_gang

BINPACK, SPREAD = Objective.BINPACK, Objective.SPREAD
DEFAULT = SearchSettings()
QUICK = SearchSettings(generations=8, min_generations=2, patience=3, population_size=12)


def place(
    gang: list[Pod],
    cluster: Snapshot,
    minimum: int | None = None,
    *,
    objective: Objective = BINPACK,
    settings: SearchSettings = DEFAULT,
    seed: int = 0,
    steps: Collection[str] = STEPS,
) -> Plan:
    """Return the plan for a gang. All its members are needed unless ``minimum`` is given."""
    problem = build_problem(gang, len(gang) if minimum is None else minimum, cluster, objective=objective)
    return search(problem, settings, seed, steps=steps)


def points_of(problem: Problem, counts: Integers) -> float:
    return Scale.of(problem).points(float(Valuation(problem).scores(counts[None])[0]), int(counts.sum()))


def gpu_nodes(number: int, gpus: int = 4) -> list:
    """Return ``number`` equal nodes, each with 16 cpu and ``gpus`` GPUs."""
    return [node(f"node-{index}", {"cpu": 16_000, "memory": 64 * GI, GPU: gpus}) for index in range(1, number + 1)]


def tf_job() -> list[Pod]:
    """Return one parameter server and four workers, as arena's tf-smoke-gpu requests them."""
    return [*pods("ps", 1, {"cpu": 1000}), *pods("worker", 4, {GPU: 1})]


# Usual gangs


def test_binpack_puts_a_tf_job_on_one_node() -> None:
    plan = place(tf_job(), snapshot(gpu_nodes(2)))

    assert plan.feasible
    assert {name for _, name in plan.assignments} == {"node-1"}


def test_objective_spread_uses_both_nodes() -> None:
    plan = place(tf_job(), snapshot(gpu_nodes(2)), objective=SPREAD)

    assert Counter(name for uid, name in plan.assignments if uid.startswith("worker")) == {"node-1": 2, "node-2": 2}


def test_binpack_of_gangs_placed_one_by_one_fills_a_node_before_the_next() -> None:
    used: dict[str, dict[str, int]] = {"node-1": {}, "node-2": {}}
    chosen = []
    for _ in range(6):
        (assignment,) = place(pods("notebook", 1, {GPU: 1}), snapshot(gpu_nodes(2), used)).assignments
        chosen.append(assignment[1])
        used[assignment[1]] = {GPU: chosen.count(assignment[1]), "pods": chosen.count(assignment[1])}

    assert chosen == ["node-1"] * 4 + ["node-2"] * 2
    assert place(pods("trainer", 1, {GPU: 2}), snapshot(gpu_nodes(2), used)).feasible


def test_first_of_equal_nodes_by_name_is_taken() -> None:
    assert place(pods("w", 1, {"cpu": 1000}), snapshot(gpu_nodes(5))).assignments == (("w-0", "node-1"),)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("objective", list(Objective))
def test_order_of_roles_does_not_decide_whether_a_gang_fits(order: int, objective: Objective) -> None:
    # volcano#1297: with X on the large node, no node has capacity for Y.
    cluster = snapshot([node("large", {"cpu": 53_000, "memory": 476 * GI}), node("small", {"cpu": 31_000, "memory": 96 * GI})])
    gang = [*pods("x", 1, {"cpu": 30_000}), *pods("y", 1, {"cpu": 50_000})][::order]

    assert dict(place(gang, cluster, objective=objective).assignments) == {"x-0": "small", "y-0": "large"}


def test_surplus_members_are_placed_if_they_fit() -> None:
    plan = place(pods("w", 6, {GPU: 1}), snapshot(gpu_nodes(1)), minimum=3)

    assert (plan.feasible, len(plan.assignments), len(plan.unplaced)) == (True, 4, 2)


# The demo of the first genetic scheduler: twenty functions on three nodes of 8 cpu and 16 GiB

DEMO_CPU = (9.0, 2.0, 0.5, 1.5, 3.0, 1.0, 2.5, 0.7, 1.2, 2.2, 0.8, 1.5, 2.0, 1.0, 0.6, 2.7, 1.8, 1.2, 3.2, 1.3)
DEMO_MEMORY = (
    512, 1024, 256, 2048, 4096, 1024, 2048, 512, 1536, 2048, 768, 2048, 1024, 1024, 512, 3072, 2048, 1280, 4096, 1536,
)  # fmt: skip


def demo() -> tuple[list[Pod], Snapshot]:
    """Return the twenty pods and the three nodes of the demo.

    At most sixteen pods fit, and the first pod fits on no node.
    """
    gang = [
        pod
        for number, (cpu, memory) in enumerate(zip(DEMO_CPU, DEMO_MEMORY, strict=True), start=1)
        for pod in pods(f"pod{number}", 1, {"cpu": round(cpu * 1000), "memory": memory * 1024**2})
    ]
    return gang, snapshot([node(f"node{index}", {"cpu": 8000, "memory": 16 * GI}) for index in (1, 2, 3)])


def test_demo_gang_of_twenty_is_proved_impossible_and_the_pod_that_fits_nowhere_is_named() -> None:
    plan = place(*demo())

    assert (plan.feasible, plan.search.stopped_by) == (False, "bound")
    hopeless = [role for role in plan.explanation.roles if role.most == 0]
    assert [(role.pods, in_words(role.reasons)) for role in hopeless] == [(("pod1-0",), (("Insufficient cpu", 3),))]


@pytest.mark.parametrize("seed", range(5))
def test_sixteen_members_of_the_demo_gang_are_placed(seed: int) -> None:
    plan = place(*demo(), minimum=16, seed=seed)

    assert (plan.feasible, len(plan.assignments)) == (True, 16)
    assert "pod1-0" in plan.unplaced


def test_seventeen_members_of_the_demo_gang_are_proved_impossible_by_their_cpu() -> None:
    plan = place(*demo(), minimum=17)

    assert (plan.feasible, plan.search.stopped_by) == (False, "bound")
    assert plan.explanation.shortage is not None
    assert (plan.explanation.shortage.resource, plan.explanation.shortage.free) == ("cpu", 24_000)
    assert plan.explanation.placeable == 16


# Small and odd clusters


def test_gang_of_one_is_placed_on_the_best_of_all_nodes_without_a_search() -> None:
    used = {f"node-{index}": {GPU: index % 4, "cpu": 1000 * index} for index in range(1, 8)}

    plan = place(pods("w", 1, {"cpu": 1000, GPU: 1}), snapshot(gpu_nodes(8), used))

    assert plan.assignments == (("w-0", "node-7"),)
    assert (plan.search.stopped_by, plan.search.generations) == ("exact", 0)


@pytest.mark.parametrize("objective", list(Objective))
def test_gang_is_placed_completely_on_a_cluster_of_one_node(objective: Objective) -> None:
    plan = place(tf_job(), snapshot(gpu_nodes(1)), objective=objective)

    assert (plan.feasible, plan.search.stopped_by, len(plan.assignments)) == (True, "exact", 5)


@pytest.mark.parametrize("size", [1, 5])
def test_gang_on_a_cluster_without_nodes_is_refused(size: int) -> None:
    plan = place(pods("w", size, {"cpu": 1000}), snapshot([]))

    assert (plan.feasible, plan.search.stopped_by, plan.assignments) == (False, "no-nodes", ())
    assert len(plan.unplaced) == size
    assert plan.explanation.total_nodes == 0


def test_empty_gang_is_placed() -> None:
    assert place([], snapshot(gpu_nodes(1))).feasible
    assert place([], snapshot([])).feasible


def test_minimum_above_the_number_of_pods_is_impossible() -> None:
    plan = place(pods("w", 2, {"cpu": 1000}), snapshot(gpu_nodes(1)), minimum=3)

    assert (plan.feasible, plan.search.stopped_by, plan.explanation.shortage) == (False, "bound", None)


@pytest.mark.parametrize("objective", list(Objective))
def test_search_on_equal_nodes_places_a_gang_that_greedy_rules_miss(objective: Objective) -> None:
    # All pods fit only if each node takes one pod of 9 cpu, one of 5 and one of 2.
    cluster = snapshot([node(f"node-{index}", {"cpu": 16_000}) for index in range(4)])
    gang = [pod for size in (5, 9, 2) for pod in pods(f"cpu-{size}", 4, {"cpu": size * 1000})]

    plan = place(gang, cluster, objective=objective)

    assert plan.feasible


def test_no_pod_is_placed_if_every_pod_is_infeasible() -> None:
    plan = place(pods("w", 4, {"cpu": 99_000}), snapshot(gpu_nodes(3)), minimum=1)

    assert (plan.feasible, plan.assignments, plan.search.score) == (False, (), 0.0)


@pytest.mark.parametrize(("minimum", "feasible"), [(1, True), (2, False)])
def test_pod_that_fits_is_placed_beside_four_that_do_not_fit(minimum: int, feasible: bool) -> None:
    gang = [*pods("large", 4, {"cpu": 99_000}), *pods("small", 1, {"cpu": 1000})]

    plan = place(gang, snapshot(gpu_nodes(3)), minimum=minimum)

    assert plan.feasible is feasible
    assert plan.assignments == (("small-0", "node-1"),)


def test_hundreds_of_roles_are_placed_without_the_genetic_search() -> None:
    gang = [pod for index in range(300) for pod in pods(f"role-{index}", 1, {"cpu": 100 + index})]

    plan = place(gang, snapshot([node(f"node-{index}", {"cpu": 64_000}) for index in range(3)]))

    assert (plan.feasible, plan.search.stopped_by) == (True, "greedy-only")


# Guarantees for every gang


@settings(max_examples=60)
@given(cases())
def test_no_plan_breaks_a_filter_or_over_commits_a_node(case: Case) -> None:
    plan = search(case.problem(), QUICK, case.seed)

    assert verify(dict(plan.assignments), case.gang, case.cluster) == ()


@settings(max_examples=60)
@given(cases())
def test_every_pod_is_either_placed_or_left_out(case: Case) -> None:
    plan = search(case.problem(), QUICK, case.seed)

    assert sorted([*(uid for uid, _ in plan.assignments), *plan.unplaced]) == sorted(pod.uid for pod in case.gang)
    assert plan.explanation.placeable == len(plan.assignments)
    assert sum(role.unplaced for role in plan.explanation.roles) == len(plan.unplaced)
    assert (plan.feasible is True) is (len(plan.assignments) >= case.minimum)


@settings(max_examples=40)
@given(cases())
def test_repeated_search_gives_an_equal_plan(case: Case) -> None:
    problem = case.problem()

    assert search(problem, QUICK, case.seed) == search(pickle.loads(pickle.dumps(problem)), QUICK, case.seed)


@settings(max_examples=60)
@given(cases())
def test_no_plan_is_worse_than_the_best_greedy_seed(case: Case) -> None:
    problem = case.problem()

    plan = search(problem, QUICK, case.seed)

    def quality(placed: int, value: float) -> tuple[int, int, float]:
        return (min(placed, case.minimum), placed, value)

    if problem.total > 1:
        best = max(quality(int(counts.sum()), points_of(problem, counts)) for _, counts in greedy_seeds(problem))
        mine = quality(len(plan.assignments), plan.search.score)
        assert mine[:2] > best[:2] or (mine[:2] == best[:2] and mine[2] >= best[2] - 1e-9)


@settings(max_examples=40)
@given(cases())
def test_reported_score_is_the_score_of_the_plan(case: Case) -> None:
    problem = case.problem()

    plan = search(problem, QUICK, case.seed)

    counts = np.zeros_like(problem.slots)
    role_of = {uid: position for position, role in enumerate(problem.roles) for uid in role.pods}
    for uid, name in plan.assignments:
        counts[role_of[uid], problem.nodes.index(name)] += 1
    assert holds(problem, counts)
    assert plan.search.score == pytest.approx(points_of(problem, counts), abs=1e-9)
    if plan.search.history:
        assert plan.search.history[-1] == (len(plan.assignments), pytest.approx(plan.search.score))
        assert list(plan.search.history) == sorted(plan.search.history, key=lambda entry: min(entry[0], case.minimum))


# The end of a search


def tight_problem() -> tuple:
    """Return the problem of a gang for which several generations find better placements."""
    gang = [*pods("ps", 8, {"cpu": 3000, "memory": 8 * GI}), *pods("worker", 24, {"cpu": 2000, "memory": 4 * GI, GPU: 1})]
    used = {f"node-{index}": {"cpu": 500 * index, "memory": index * GI, GPU: index % 3} for index in range(1, 31)}
    return gang, snapshot(gpu_nodes(30), used)


def test_search_runs_its_least_number_of_generations_and_then_ends_by_patience() -> None:
    gang, cluster = tight_problem()

    plan = place(gang, cluster, objective=SPREAD, settings=SearchSettings(min_generations=25, patience=5), steps=GENETIC)

    assert 25 <= plan.search.generations == len(plan.search.history) <= 60
    assert plan.search.score >= plan.search.seed_score


def test_search_ends_after_its_largest_number_of_generations() -> None:
    gang, cluster = tight_problem()

    plan = place(gang, cluster, settings=SearchSettings(generations=7, min_generations=7, patience=50), steps=GENETIC)

    assert (plan.search.generations, plan.search.stopped_by) == (7, "generations")


def test_search_with_the_preset_named_seed_runs_all_generations_of_the_preset() -> None:
    gang = [*pods("ps", 2, {"cpu": 3000}), *pods("worker", 3, {"cpu": 2000, GPU: 1})]
    cluster = snapshot(gpu_nodes(3), {"node-1": {"cpu": 9000, GPU: 3}, "node-2": {"cpu": 5000, GPU: 2}})

    settings = SearchSettings(**SearchOptions(preset="seed").model_dump())
    plan = place(gang, cluster, objective=SPREAD, settings=settings, steps=GENETIC)

    assert (plan.search.generations, len(plan.search.history), plan.search.wanted) == (1000, 1000, 0)


def test_short_search_with_the_seed_preset_reports_how_many_generations_were_wanted() -> None:
    gang, cluster = tight_problem()
    settings = SearchSettings(**SearchOptions(preset="seed").model_dump(), effort=100_000)

    plan = place(gang, cluster, objective=SPREAD, settings=settings, steps=GENETIC)

    assert plan.search.stopped_by == "effort"
    assert 0 < plan.search.generations < plan.search.wanted == 1000


def test_search_stops_at_a_placement_that_cannot_be_beaten() -> None:
    gang = tight_gang()

    plan = place(gang, tight_cluster(), settings=SearchSettings(branches=0), steps=GENETIC)

    assert plan.search.stopped_by == "optimal"
    # On a full node each member counts one half, and half of its own share of the node; the shares add up to one.
    assert plan.search.history[-1] == (len(gang), pytest.approx(100.0 * (len(gang) + len(tight_cluster().nodes)) / 2 / len(gang)))


def test_random_seeds_change_the_plan_but_not_its_feasibility() -> None:
    plans = [place(tight_gang(), tight_cluster(), seed=seed, steps=GENETIC) for seed in range(4)]

    assert all(plan.feasible for plan in plans)
    assert len({plan.assignments for plan in plans}) > 1


def test_state_of_the_global_random_generator_is_restored() -> None:
    gang, cluster = tight_problem()
    random.seed(7)
    expected = random.random()
    random.seed(7)

    place(gang, cluster, settings=QUICK, steps=GENETIC)

    assert random.random() == expected


@pytest.mark.parametrize("factor", [50, 0], ids=["too many", "none"])
def test_result_of_a_genetic_search_that_breaks_a_rule_or_is_worse_than_greedy_rules_is_discarded(
    monkeypatch: pytest.MonkeyPatch, factor: int
) -> None:
    module = import_module("allaboard.placement.solvers.improve")
    honest = module.evolve
    monkeypatch.setattr(module, "evolve", lambda problem, *rest: replace(honest(problem, *rest), counts=problem.slots * factor))
    gang, cluster = tight_problem()

    plan = place(gang, cluster, settings=QUICK, steps=GENETIC)

    assert verify(dict(plan.assignments), gang, cluster) == ()
    assert plan.search.score == plan.search.steps[-2].score >= plan.search.seed_score
    assert [step.name for step in plan.search.steps[-2:]] == ["polish", "evolution"]
    assert plan.feasible


def test_search_on_thousands_of_nodes_is_no_worse_than_greedy_rules() -> None:
    cluster = snapshot(
        [node(f"node-{index:04}", {"cpu": 32_000, "memory": 128 * GI, GPU: 4}) for index in range(3000)],
        {f"node-{index:04}": {"cpu": index % 30 * 1000, GPU: index % 5} for index in range(3000)},
    )
    gang = [*pods("ps", 4, {"cpu": 3000}), *pods("worker", 60, {"cpu": 2500, GPU: 1})]

    plan = place(gang, cluster)

    assert plan.feasible
    assert plan.search.score >= plan.search.seed_score
    assert verify(dict(plan.assignments), gang, cluster) == ()


def test_objective_spread_chooses_the_rack_in_which_spreading_costs_least() -> None:
    """Rack a would look as good if racks were filled node after node: its first node is as empty as the nodes of rack b."""
    free = {"a0": 9, "a1": 8, "a2": 4, "b0": 9, "b1": 9, "b2": 8}
    nodes = [node(name, {"cpu": 16_000}, labels={"rack": name[0]}) for name in free]
    used = {name: {"cpu": 16_000 - 1000 * cpu} for name, cpu in free.items()}
    gang = pods("w", 6, {"cpu": 1000})
    rules = Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
    plan = search(build_problem(gang, 6, snapshot(nodes, used), objective=SPREAD, rules=rules), DEFAULT, 1)
    assert Counter(name for _, name in plan.assignments) == {"b0": 2, "b1": 2, "b2": 2}
