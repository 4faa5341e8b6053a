"""A problem that is built from a draft equals the problem that is built directly."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from allaboard.model.constraints import GpuRequest, SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.gpu_inventory import gpus_of
from allaboard.model.gpus import NO_CARDS
from allaboard.model.node import Taint
from allaboard.model.packing import PACKING
from allaboard.placement import NodeFilters, Problem, SearchSettings, search
from allaboard.placement.problem.draft import Draft, Packer
from allaboard.planning.gang_problem import draft_of, problem_of
from allaboard.planning.search_processes import Searcher
from tests.unit.placement.clusters import node, pods, snapshot

CLUSTER = snapshot(
    [
        node("a", {"cpu": 8000, "nvidia.com/gpu": 4}, labels={"zone": "x"}, images=(("train:1", 900),)),
        node("b", {"cpu": 8000, "nvidia.com/gpu": 4}, labels={"zone": "y"}, taints=(Taint("k", "v", "NoSchedule"),)),
        node("c", {"cpu": 4000}, labels={"zone": "y"}),
        node("d", {"cpu": 4000}, is_unschedulable=True),
        node("e", {"cpu": 4000}, is_ready=False),
    ],
    {"a": {"cpu": 1000, "pods": 1}},
)
MEMBERS = (
    *pods("ps", 2, {"cpu": 1000}, node_selector=(("zone", "y"),)),
    *pods("worker", 3, {"cpu": 1000, "nvidia.com/gpu": 1}, images=("train:1",)),
)


def a_gang(objective: Objective) -> Gang:
    return Gang(GangKey("default", "g"), 5, MEMBERS, 0, 0.0, objective, 60, topology="zone", role_minimums=(("", 5),))


def drafted(gang: Gang) -> Draft:
    draft: Draft = pickle.loads(pickle.dumps(draft_of(gang, 5, CLUSTER, Packer(), PACKING)))  # pickled here
    return draft


@pytest.mark.parametrize("objective", list(Objective))
def test_problem_built_from_a_draft_equals_the_problem_built_directly_for_each_objective(objective: Objective) -> None:
    gang = a_gang(objective)
    here, there = problem_of(gang, 5, CLUSTER, NodeFilters(), PACKING), drafted(gang).built()
    for name in ("minimum", "roles", "nodes", "total_nodes", "columns", "sums", "weights"):
        assert getattr(here, name) == getattr(there, name)
    for name in ("least", "count", "demand", "free", "admits", "slots", "shares", "dislike", "domains"):
        assert np.array_equal(getattr(here, name), getattr(there, name)), name


async def test_draft_and_problem_get_the_same_plan() -> None:
    gang = a_gang(Objective.BINPACK)
    with Searcher(SearchSettings(), timeout_seconds=100) as searcher:
        found = await searcher.search(drafted(gang), 7)
    assert found == search(problem_of(gang, 5, CLUSTER, NodeFilters(), PACKING), SearchSettings(), 7)


def test_packed_form_of_all_nodes_is_made_again_only_after_a_node_has_changed() -> None:
    packer = Packer()
    packed = packer.packed(CLUSTER.nodes)
    assert packer.packed(CLUSTER.nodes) is packed
    assert packer.packed((*CLUSTER.nodes[1:], replace(CLUSTER.nodes[0], is_ready=False))) != packed


def test_scheduling_spec_counts_its_rules_about_nodes() -> None:
    assert SchedulingSpec((("cpu", 1),)).rules == 0
    assert MEMBERS[0].spec.rules == 1
    assert MEMBERS[2].spec.rules == 1
    assert isinstance(drafted(a_gang(Objective.SPREAD)).built(), Problem)


def test_draft_of_a_problem_contains_the_gpu_inventory() -> None:
    cards = gpus_of(CLUSTER.nodes, NO_CARDS)
    cluster = replace(CLUSTER, gpus=cards)
    members = pods("worker", 2, {"nvidia.com/gpu": 1}, gpus=GpuRequest(model="A100"))
    gang = replace(a_gang(Objective.BINPACK), members=tuple(members), role_minimums=())
    draft: Draft = pickle.loads(pickle.dumps(draft_of(gang, 2, cluster, Packer(), PACKING)))  # pickled here
    here = problem_of(gang, 2, cluster, NodeFilters(), PACKING)
    assert draft.built().roles == here.roles
    assert not here.nodes
