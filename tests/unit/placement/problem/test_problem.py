"""Problems are built from pods and nodes, and allow the placements that the filters and the last check allow."""

import pickle

import numpy as np
from hypothesis import given

from allaboard.model.constraints import HostPort, NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.node import Node
from allaboard.placement import NodeFilters, build_problem
from allaboard.placement.rules.matching import affinity_matches, all_match
from allaboard.placement.rules.verify import verify
from tests.unit.placement.clusters import GI, GPU, Case, cases, in_words, node, pods, random_counts, snapshot

BINPACK = Objective.BINPACK
ANY = "0.0.0.0"  # noqa: S104


def test_pods_with_equal_specs_are_one_role() -> None:
    gang = [*pods("ps", 1, {"cpu": 1000}), *pods("worker", 3, {GPU: 1}), *pods("late-ps", 1, {"cpu": 1000})]

    problem = build_problem(gang, 5, snapshot([node("n", {"cpu": 8000, GPU: 8})]), objective=BINPACK)

    assert [role.pods for role in problem.roles] == [("ps-0", "late-ps-0"), ("worker-0", "worker-1", "worker-2")]
    assert problem.count.tolist() == [2, 3]


def test_nodes_that_fit_no_role_are_left_out() -> None:
    cluster = snapshot([node("big", {"cpu": 8000}), node("small", {"cpu": 500}), node("other", {"cpu": 8000}, is_unschedulable=True)])

    problem = build_problem(pods("worker", 2, {"cpu": 1000}), 2, cluster, objective=BINPACK)

    assert problem.nodes == ("big",)
    assert problem.total_nodes == 3
    assert in_words(problem.roles[0].refusals) == (("Insufficient cpu", 1), ("node(s) were unschedulable", 1))


def test_over_committed_node_takes_pods_that_request_other_resources() -> None:
    cluster = snapshot([node("n", {"cpu": 1000, "memory": GI})], {"n": {"cpu": 1500}})

    problem = build_problem([*pods("cpu", 1, {"cpu": 1}), *pods("memory", 1, {"memory": GI})], 1, cluster, objective=BINPACK)

    assert problem.slots.tolist() == [[0], [1]]


def test_pod_that_requests_a_resource_no_node_has_fits_nowhere() -> None:
    problem = build_problem(pods("w", 1, {"example.com/fpga": 1}), 1, snapshot([node("n", {"cpu": 1000})]), objective=BINPACK)

    assert problem.nodes == ()
    assert in_words(problem.roles[0].refusals) == (("Insufficient example.com/fpga", 1),)


def test_huge_amounts_do_not_overflow() -> None:
    gang = [*pods("absurd", 3, {"memory": 10**40}), *pods("large", 100, {"memory": 2**55})]
    cluster = snapshot([node("n", {"memory": 2**62, "cpu": 1000}), node("m", {"memory": 2**62, "cpu": 1000})])

    problem = build_problem(gang, 1, cluster, objective=BINPACK)

    assert problem.slots.tolist() == [[0, 0], [110, 110]]


def test_pickled_problem_takes_less_than_200_bytes_per_node() -> None:
    cluster = snapshot([node(f"node-{index:04}", {"cpu": 8000, GPU: 4}, labels={"rack": str(index)}) for index in range(2000)])
    gang = [*pods("ps", 4, {"cpu": 1000}), *pods("worker", 60, {"cpu": 1000, GPU: 1})]

    problem = build_problem(gang, 64, cluster, objective=BINPACK)

    assert len(pickle.dumps(problem)) < 200 * len(cluster.nodes)
    assert pickle.loads(pickle.dumps(problem)).nodes == problem.nodes


@given(cases())
def test_problem_allows_a_placement_exactly_if_the_check_before_the_bind_does(case: Case) -> None:
    problem = case.problem()
    rng = np.random.default_rng(case.seed)
    # A random placement on nodes of the problem, valid or not.
    names = {
        uid: problem.nodes[rng.integers(len(problem.nodes))]
        for role in problem.roles
        for uid in role.pods
        if problem.nodes and rng.random() < 0.5
    }
    counts = np.zeros_like(problem.slots)
    for position, role in enumerate(problem.roles):
        for uid in role.pods:
            if uid in names:
                counts[position, problem.nodes.index(names[uid])] += 1

    load = np.einsum("rc,rn->cn", problem.demand, counts)
    holds = bool((load <= problem.free).all() and not counts[~problem.admits].any())

    assert holds is (verify(names, case.gang, case.cluster) == ())


@given(cases())
def test_placement_that_the_problem_allows_passes_the_check_before_the_bind(case: Case) -> None:
    problem = case.problem()
    counts = random_counts(problem, case.seed)
    names = {}
    for role, slots in zip(problem.roles, counts, strict=True):
        names.update(zip(role.pods, np.repeat(problem.nodes, slots).tolist(), strict=False))

    assert verify(names, case.gang, case.cluster) == ()


def test_wildcard_port_conflicts_with_an_address_that_another_pod_uses() -> None:
    cluster = snapshot([node("n", {"cpu": 1000})], host_ports={"n": [HostPort("10.0.0.9", "TCP", 80)]})

    def slots(*ports: HostPort) -> list[list[int]]:
        return build_problem(pods("w", 2, {}, host_ports=ports), 1, cluster, objective=BINPACK).slots.tolist()

    assert slots(HostPort(ANY, "TCP", 80)) == [[]]
    assert slots(HostPort("10.0.0.1", "TCP", 80)) == [[1]]
    assert slots(HostPort("10.0.0.1", "TCP", 80), HostPort(ANY, "UDP", 80)) == [[1]]


def test_host_port_on_any_address_conflicts_with_the_same_port_on_each_address_of_other_members() -> None:
    everywhere, here, there = (HostPort(ip, "TCP", 80) for ip in (ANY, "10.0.0.1", "10.0.0.2"))
    gang = [pod for port in (everywhere, here, there) for pod in pods(port.ip, 1, {}, host_ports=(port,))]

    problem = build_problem(gang, 1, snapshot([node("n", {"cpu": 1000})]), objective=BINPACK)

    def fit(*roles: int) -> bool:
        return bool((problem.demand[list(roles)].sum(axis=0) <= problem.free[:, 0]).all())

    assert fit(1, 2)
    assert not fit(0, 1)
    assert not fit(0, 2)


def test_filter_results_are_cached_until_the_nodes_change() -> None:
    filters = NodeFilters()
    spec = SchedulingSpec(requests=(), node_selector=(("zone", "a"),))
    before: tuple[Node, ...] = (node("n", {}, labels={"zone": "a"}),)
    after: tuple[Node, ...] = (node("n", {}, labels={"zone": "b"}),)

    first = filters.usable(spec, before)

    assert filters.usable(spec, before) is first
    assert first.admitted.tolist() == [True]
    assert filters.usable(spec, after).admitted.tolist() == [False]


def test_cache_of_filter_results_is_limited() -> None:
    filters = NodeFilters(limit=4)
    nodes = (node("n", {}, labels={"zone": "a"}),)

    for number in range(300):
        usable = filters.usable(SchedulingSpec(requests=(), node_selector=((f"label-{number}", "a"),)), nodes)
        assert usable.admitted.tolist() == [False]

    assert len(filters._known) <= 4
    assert len(filters._columns) <= 128


@given(cases())
def test_array_filters_agree_with_the_rules_node_by_node(case: Case) -> None:
    filters = NodeFilters()
    for spec in {pod.spec for pod in case.gang}:
        usable = filters.usable(spec, case.cluster.nodes)
        for row, one in enumerate(case.cluster.nodes):
            if usable.admitted[row]:
                assert affinity_matches(spec, one)
                assert all_match(spec.volumes, one)
        refused = len(case.cluster.nodes) - int(usable.admitted.sum())
        assert sum(nodes for _, nodes in usable.reasons) == refused


def test_a_node_without_capacity_is_not_counted_for_volumes_and_other_pods() -> None:
    zone = (NodeSelectorTerm(expressions=(Requirement("zone", "In", ("a",)),)),)
    gang = pods("w", 1, {"cpu": 1000}, volumes=(zone,), forbidden_domains=(zone,))
    small, far = node("small", {"cpu": 500}, labels={"zone": "b"}), node("far", {"cpu": 8000}, labels={"zone": "b"})

    problem = build_problem(gang, 1, snapshot([small, far]), objective=BINPACK)

    assert in_words(problem.roles[0].refusals) == (
        ("Insufficient cpu", 1),
        ("node(s) didn't match PersistentVolume's node affinity", 1),
    )
