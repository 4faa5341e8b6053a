"""Tests the causes of refusals against an independent solver: each cause is true, and most are the most specific cause that is true."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from allaboard.model.constraints import HostPort, NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.node import Node, Taint
from allaboard.model.reasons import Cause, Code, Kind, Reason
from allaboard.placement import NodeFilters, SearchSettings, build_problem, search
from allaboard.placement.remedies.causes import Repaired, amounts_alone, can_not_fit, cause_of, on_empty_nodes
from allaboard.placement.rules.members import NO_RULES, Rules
from allaboard.placement.rules.together import TogetherRule

from .clusters import GI, GPU, Case, cases, node, pods, snapshot

GANGS = 200


def reported_cause(case: Case) -> Cause:
    """Return the cause that is reported for a gang.

    If rules between pods may prevent the placement, a second search without these rules decides, as in ``cause_of``'s caller.
    """
    cause = cause_of(case.gang, case.minimum, case.cluster, filters=NodeFilters(), repaired=Repaired())
    if cause.code is not Code.FRAGMENTED or not any(pod.spec.host_ports for pod in case.gang):
        return cause
    bare = build_problem(amounts_alone(case.gang), case.minimum, case.cluster, objective=Objective.BINPACK)
    return Cause(Code.CONSTRAINTS, rule=Reason(Kind.PORTS)) if search(bare, SearchSettings(), 0).feasible else cause


class Truth:
    """Computes what is true of one gang and cluster, by an integer program over single pods and nodes, and by pairs of pods."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.cluster = case.cluster
        self.nodes = case.cluster.nodes
        self.names = case.cluster.resources
        self.demand = np.array([[dict(pod.spec.requests).get(name, 0) for name in self.names] for pod in case.gang], dtype=float)
        self.foreign = {name for pod in case.gang for name, amount in pod.spec.requests if amount and name not in self.names}
        self.free = np.maximum(case.cluster.allocatable - case.cluster.used, 0).astype(float)
        self.empty = case.cluster.allocatable.astype(float)
        self.admits = np.array([[_admits(pod.spec, each) for each in self.nodes] for pod in case.gang]).reshape(len(case.gang), -1)
        repaired = [_repaired(each) for each in self.nodes]
        self.admits_repaired = np.array([[_admits(pod.spec, each) for each in repaired] for pod in case.gang]).reshape(len(case.gang), -1)

    def fits(self, capacity: np.ndarray, admits: np.ndarray, *, ports: bool) -> bool:
        """Return whether the minimum can be placed on nodes with ``capacity``: [nodes, resources]."""
        count, wide = len(self.case.gang), len(self.nodes)
        if not wide:
            return self.case.minimum <= 0
        upper = admits.astype(float)
        rows, most = [], []
        for row in range(wide):
            for column in range(len(self.names)):
                line = np.zeros((count, wide))
                line[:, row] = self.demand[:, column]
                rows.append(line.ravel())
                most.append(capacity[row, column])
        for index, pod in enumerate(self.case.gang):
            line = np.zeros((count, wide))
            line[index] = 1
            rows.append(line.ravel())
            most.append(1)
            if any(amount and name in self.foreign for name, amount in pod.spec.requests):
                upper[index] = 0
            for row in range(wide) if ports else ():
                taken = self.cluster.host_ports.get(row, frozenset())
                if any(_conflict(mine, other) for mine in pod.spec.host_ports for other in taken):
                    upper[index, row] = 0
                for other_index, other in enumerate(self.case.gang[:index]):
                    if any(_conflict(a, b) for a in pod.spec.host_ports for b in other.spec.host_ports):
                        line = np.zeros((count, wide))
                        line[index, row] = line[other_index, row] = 1
                        rows.append(line.ravel())
                        most.append(1)
        found = milp(
            -np.ones(count * wide),
            integrality=np.ones(count * wide),
            bounds=Bounds(0, upper.ravel()),
            constraints=LinearConstraint(np.array(rows), -np.inf, np.array(most)),
        )
        return round(-found.fun) >= self.case.minimum

    def fits_somewhere(self, index: int) -> bool:
        """Return whether the pod at ``index`` fits on some node if the node is empty."""
        return bool((self.admits_repaired[index] & (self.empty >= self.demand[index]).all(axis=1)).any()) and not any(
            amount and name in self.foreign for name, amount in self.case.gang[index].spec.requests
        )

    def sums(self, resource: str) -> tuple[int, int]:
        """Return the least that the minimum requests of ``resource``, and how much is free.

        What is free is counted on nodes that admit any pod which requests the resource.
        """
        asked = sorted(dict(pod.spec.requests).get(resource, 0) for pod in self.case.gang)
        if resource not in self.names:
            return sum(asked[: self.case.minimum]), 0
        column = self.names.index(resource)
        where = [row for row in range(len(self.nodes)) if any(self.admits[index, row] for index in np.flatnonzero(self.demand[:, column]))]
        return sum(asked[: self.case.minimum]), int(self.free[where, column].sum())

    def best_code(self) -> Code:
        """Return the most specific cause that is true, as its code."""
        if int(self.admits.any(axis=1).sum()) < self.case.minimum:
            return Code.CONSTRAINTS
        if not self.fits(self.empty, self.admits_repaired, ports=False):
            return Code.NEVER_FITS
        if self.fits(self.free, self.admits, ports=False):
            return Code.CONSTRAINTS
        asked = {name for pod in self.case.gang for name, amount in pod.spec.requests if amount}
        return Code.INSUFFICIENT if any(wanted > free for wanted, free in map(self.sums, asked)) else Code.FRAGMENTED


def check(case: Case, truth: Truth, cause: Cause) -> None:
    """Raise ``AssertionError`` if the code or a number of ``cause`` isn't true."""
    match cause.code:
        case Code.CONSTRAINTS:
            assert truth.best_code() is Code.CONSTRAINTS
        case Code.NEVER_FITS:
            assert not truth.fits(truth.empty, truth.admits_repaired, ports=False)
            if cause.member:  # this member fits nowhere, and there are too few members that fit somewhere
                assert not truth.fits_somewhere([pod.uid for pod in truth.case.gang].index(cause.member))
                assert sum(truth.fits_somewhere(index) for index in range(len(truth.case.gang))) < truth.case.minimum
        case Code.INSUFFICIENT:
            assert (cause.requested, cause.there) == truth.sums(cause.resource)
            assert cause.requested > cause.there
        case Code.FRAGMENTED:
            assert (cause.requested, cause.there) == truth.sums(cause.resource)
            assert cause.requested <= cause.there
            assert not truth.fits(truth.free, truth.admits, ports=False)
            if cause.resource:  # this resource would prevent the placement even with plenty of all others
                plenty = np.tile(truth.demand.sum(axis=0), (len(truth.nodes), 1))
                column = truth.names.index(cause.resource)
                plenty[:, column] = truth.free[:, column]
                assert not truth.fits(plenty, truth.admits, ports=False)
        case other:
            raise AssertionError(other)


def test_causes_of_refused_gangs_are_true_and_mostly_the_most_specific() -> None:
    """Causes come from bounds. A bound doesn't show that nodes are too small if that shows only when several pods are placed together."""
    codes: Counter[tuple[Code, Code]] = Counter()

    @settings(max_examples=4 * GANGS, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @given(st.one_of(*(cases(most_nodes=4, most_roles=3, most_pods=3, plain=plain) for plain in (True, True, False))))
    def draw(case: Case) -> None:
        truth = Truth(case)
        if codes.total() >= GANGS or not 0 < case.minimum <= len(case.gang) or truth.fits(truth.free, truth.admits, ports=True):
            return
        cause = reported_cause(case)
        check(case, truth, cause)
        codes[cause.code, truth.best_code()] += 1

    draw()
    assert codes.total() >= GANGS // 2
    assert sum(number for (reported, best), number in codes.items() if reported is best) >= 0.85 * codes.total(), codes
    assert len({reported for reported, _ in codes}) == 4


def case_of(gang: Sequence[object], minimum: int, nodes: Sequence[Node], **cluster: object) -> Case:
    return Case(tuple(gang), minimum, snapshot(nodes, **cluster), Objective.BINPACK, 0)  # type: ignore[arg-type]


def test_pod_larger_than_every_node_never_fits_and_the_largest_amount_of_a_node_is_named() -> None:
    nodes = [node("a", {GPU: 4}), node("b", {GPU: 2})]
    assert reported_cause(case_of(pods("w", 1, {GPU: 64}), 1, nodes)) == Cause(Code.NEVER_FITS, GPU, 64, 4, member="w-0")


def test_gang_larger_than_the_cluster_never_fits() -> None:
    nodes = [node(name, {GPU: 4}) for name in "ab"]
    assert reported_cause(case_of(pods("w", 9, {GPU: 1}), 9, nodes, used={"a": {GPU: 4}})) == Cause(Code.NEVER_FITS, GPU, 9, 8)


def test_cause_does_not_name_a_pod_larger_than_every_node_when_the_minimum_is_met_without_it() -> None:
    gang = [*pods("big", 1, {GPU: 9}), *pods("w", 3, {GPU: 7})]
    nodes = [node(name, {GPU: 8}) for name in "ab"]
    assert reported_cause(case_of(gang, 3, nodes)) == Cause(Code.NEVER_FITS, GPU, 21, 16)
    assert reported_cause(case_of(gang, 4, nodes)) == Cause(Code.NEVER_FITS, GPU, 9, 8, member="big-0")


def test_pod_that_would_fit_on_a_cordoned_node_may_fit_later() -> None:
    nodes = [node("a", {GPU: 8}, is_unschedulable=True), node("b", {GPU: 4})]
    assert reported_cause(case_of(pods("w", 1, {GPU: 8}), 1, nodes)) == Cause(Code.INSUFFICIENT, GPU, 8, 4)


def test_pod_that_would_fit_on_a_node_that_is_not_ready_may_fit_later() -> None:
    taint = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
    nodes = [node("a", {GPU: 8}, is_ready=False, taints=(taint,)), node("b", {GPU: 4})]
    assert reported_cause(case_of(pods("w", 1, {GPU: 8}), 1, nodes)) == Cause(Code.INSUFFICIENT, GPU, 8, 4)
    for_good = [node("a", {GPU: 8}, taints=(Taint("dedicated", "", "NoSchedule"),)), node("b", {GPU: 4})]
    assert reported_cause(case_of(pods("w", 1, {GPU: 8}), 1, for_good)) == Cause(Code.NEVER_FITS, GPU, 8, 4, member="w-0")


def test_required_pods_of_a_role_count_towards_the_minimum_of_the_gang() -> None:
    gang = [*pods("ps", 2, {"cpu": 4}), *pods("w", 2, {"cpu": 1})]
    rules = Rules(parts=[({pod.uid for pod in gang[:2]}, 1)])
    cluster = snapshot([node("a", {"cpu": 100})], used={"a": {"cpu": 96}})
    assert cause_of(gang, 2, cluster, rules=rules, filters=NodeFilters(), repaired=Repaired()) == Cause(Code.INSUFFICIENT, "cpu", 5, 4)


def test_gpus_free_in_pieces_are_distinguished_from_gpus_in_use() -> None:
    nodes = [node(name, {GPU: 8}) for name in "abc"]
    used = {name: {GPU: 4} for name in "abc"}
    assert reported_cause(case_of(pods("w", 2, {GPU: 8}), 2, nodes, used=used)) == Cause(Code.INSUFFICIENT, GPU, 16, 12)
    assert reported_cause(case_of(pods("w", 1, {GPU: 8}), 1, nodes, used=used)) == Cause(Code.FRAGMENTED, GPU, 8, 12)


def test_constraints_are_the_cause_when_no_node_admits_the_members() -> None:
    nodes = [node("a", {"cpu": 8000}, taints=(Taint("dedicated", "ml", "NoSchedule"),))]
    assert reported_cause(case_of(pods("w", 1, {"cpu": 1000}), 1, nodes)) == Cause(Code.CONSTRAINTS)


def test_host_port_that_prevents_a_placement_is_the_cause() -> None:
    port = HostPort("", "TCP", 80)
    case = case_of(pods("w", 2, {"cpu": 1000}, host_ports=(port,)), 2, [node("a", {"cpu": 8000})])
    assert reported_cause(case) == Cause(Code.CONSTRAINTS, rule=Reason(Kind.PORTS))


def test_members_that_must_share_a_domain_never_fit_when_every_domain_is_too_small() -> None:
    nodes = [node(name, {"cpu": 2 * GI}, labels={"rack": name}) for name in "ab"]
    gang = pods("w", 4, {"cpu": GI})
    rules = Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
    cause = cause_of(gang, 4, snapshot(nodes), rules=rules, filters=NodeFilters(), repaired=Repaired())
    assert cause == Cause(Code.NEVER_FITS, rule=Reason(Kind.TOPOLOGY, "rack"))
    assert cause_of(gang, 4, snapshot(nodes), filters=NodeFilters(), repaired=Repaired()).code is Code.FRAGMENTED  # it fits


def test_members_that_must_share_a_domain_fit_only_on_nodes_that_are_in_a_domain() -> None:
    gang = pods("w", 2, {"cpu": GI})
    rules = Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
    for labels in ({}, {"rack": "a"}):
        cluster = snapshot([node("a", {"cpu": 8 * GI}), node("b", {"cpu": GI // 2}, labels=labels)])
        cause = cause_of(gang, 2, cluster, rules=rules, filters=NodeFilters(), repaired=Repaired())
        assert cause == (Cause(Code.NEVER_FITS, "cpu", GI, GI // 2, member="w-0") if labels else Cause(Code.CONSTRAINTS))


def test_cause_names_the_fragmented_resource_and_not_a_resource_that_the_gang_uses_up() -> None:
    nodes = [node("a", {GPU: 4, "memory": 16 * GI}), node("b", {"memory": 2 * GI - 1})]
    gang = pods("w", 4, {GPU: 1, "memory": 2 * GI})
    assert reported_cause(case_of(gang, 4, nodes, used={"a": {"memory": 9 * GI}})) == Cause(Code.FRAGMENTED, "memory", 8 * GI, 9 * GI - 1)
    two_kinds = [*pods("w", 2, {"cpu": 2}), *pods("x", 1, {"cpu": 1})]
    cause = reported_cause(case_of(two_kinds, 3, [node("a", {"cpu": 3}), node("b", {"cpu": 3})], used={"a": {"cpu": 1}}))
    assert cause.code is not Code.FRAGMENTED or not cause.resource


def test_pod_kept_off_nodes_by_bound_pods_may_fit_when_those_pods_end() -> None:
    elsewhere = ((NodeSelectorTerm((Requirement("zone", "NotIn", ("a",)),)),),)
    nodes = [node("a", {GPU: 4}, labels={"zone": "a"}), node("b", {GPU: 1}, labels={"zone": "b"})]
    assert reported_cause(case_of(pods("w", 1, {GPU: 4}, forbidden_domains=elsewhere), 1, nodes)) == Cause(Code.INSUFFICIENT, GPU, 4, 1)


def test_required_role_is_counted_only_on_nodes_that_admit_it() -> None:
    gang = [*pods("ps", 1, {GPU: 1}, node_selector=(("pool", "b"),)), *pods("w", 1, {GPU: 1})]
    nodes = [node("a", {GPU: 8}), node("b", {GPU: 1}, labels={"pool": "b"})]
    rules = Rules(parts=[({gang[0].uid}, 1)])
    cluster = snapshot(nodes, used={"b": {GPU: 1}})
    cause = cause_of(gang, 1, cluster, rules=rules, filters=NodeFilters(), repaired=Repaired())
    assert cause == Cause(Code.INSUFFICIENT, GPU, 1, 0, members=1)


def _repaired(each: Node) -> Node:
    return Node(each.name, each.uid, each.allocatable, each.labels, tuple(t for t in each.taints if "node.kubernetes.io/" not in t.key))


def _admits(spec: SchedulingSpec, each: Node) -> bool:
    """Return whether a node admits ``spec``, by the few kinds of constraints that the test draws."""
    tolerated = {toleration.key for toleration in spec.tolerations}
    if each.is_unschedulable or not each.is_ready:
        return False
    if any(taint.effect == "NoSchedule" and taint.key not in tolerated for taint in each.taints):
        return False
    if any(each.labels.get(key) != value for key, value in spec.node_selector):
        return False
    return spec.affinity is None or any(
        all(each.labels.get(need.key) in need.values for need in term.expressions) for term in spec.affinity
    )


def _conflict(one: HostPort, other: HostPort) -> bool:
    everywhere = ("", "0.0.0.0")  # noqa: S104
    same = (one.protocol or "TCP", one.port) == (other.protocol or "TCP", other.port)
    return same and (one.ip == other.ip or one.ip in everywhere or other.ip in everywhere)


def test_cause_names_the_resource_with_the_highest_ratio_of_requested_to_available() -> None:
    """The order of the resource names doesn't matter. What is available is the allocatable for pods that never fit, else what is free."""
    nodes = [node("n", {"cpu": 4000, "memory": 4 * GI, GPU: 4})]
    for most in ("cpu", "memory", GPU):
        times = {name: 3 if name == most else 2 for name in ("cpu", "memory", GPU)}
        large = {"cpu": 4000 * times["cpu"], "memory": 4 * GI * times["memory"], GPU: 4 * times[GPU]}
        assert reported_cause(case_of(pods("w", 1, large), 1, nodes)).resource == most
        some = {name: amount // 4 for name, amount in large.items()}
        used = {"n": {"cpu": 3000, "memory": 3 * GI, GPU: 3}}
        cause = reported_cause(case_of(pods("w", 1, some), 1, nodes, used=used))
        assert (cause.code, cause.resource) == (Code.INSUFFICIENT, most)


def test_resource_is_not_fragmented_for_a_role_that_requests_none_of_it() -> None:
    nodes = [node(f"n{number}", {"cpu": 16_000, "memory": 64 * GI, GPU: 4}) for number in range(3)]
    cluster = snapshot([*nodes, node("n4", {"cpu": 24_000, "memory": 48 * GI, GPU: 4})])
    gang = [*pods("ps", 5, {"cpu": 4000, "memory": 8 * GI}), *pods("worker", 16, {"cpu": 3000, "memory": 10 * GI, GPU: 1})]
    assert cause_of(gang, len(gang), cluster, filters=NodeFilters(), repaired=Repaired()) == Cause(Code.FRAGMENTED)


def test_missing_members_of_one_role_are_not_made_up_for_by_surplus_members_of_another_role() -> None:
    problem = replace(
        build_problem(
            [*pods("ps", 4, {"cpu": 1000}), *pods("worker", 2, {"cpu": 1000, GPU: 1})],
            3,
            snapshot([node("n", {"cpu": 16_000, GPU: 1})]),
            objective=Objective.BINPACK,
        ),
        least=np.array([0, 2]),
    )
    explanation = search(problem, SearchSettings(), 0).explanation
    assert (explanation.placeable, explanation.lacking) == (5, 1)


def test_members_of_two_roles_that_share_empty_nodes_are_too_large_although_each_role_alone_fits() -> None:
    gang = [*pods("ps", 1, {"cpu": 3000}), *pods("w", 1, {"cpu": 2500})]
    nodes = [node("a", {"cpu": 4000}), node("b", {"cpu": 2000})]
    problem = on_empty_nodes(gang, 2, snapshot(nodes, used={"a": {"cpu": 1000}}), NO_RULES, Repaired())
    assert problem is not None and can_not_fit(problem)


def test_members_with_one_host_port_are_too_many_for_few_nodes_even_if_these_are_empty() -> None:
    gang = pods("w", 3, {"cpu": 1000}, host_ports=(HostPort("", "TCP", 7000),))
    cluster = snapshot([node(name, {"cpu": 4000}) for name in "ab"], used={"a": {"cpu": 4000}})
    problem = on_empty_nodes(gang, 3, cluster, NO_RULES, Repaired())
    assert problem is not None and can_not_fit(problem)
    fewer = on_empty_nodes(gang[:2], 2, cluster, NO_RULES, Repaired())
    assert fewer is not None and not can_not_fit(fewer)


def test_cordoned_nodes_in_use_count_as_empty_and_schedulable() -> None:
    gang = [*pods("ps", 1, {"cpu": 3000}), *pods("w", 1, {"cpu": 1000})]
    cluster = snapshot([node("a", {"cpu": 4000}, is_unschedulable=True)], used={"a": {"cpu": 4000}})
    problem = on_empty_nodes(gang, 2, cluster, NO_RULES, Repaired())
    assert problem is not None and not can_not_fit(problem)
