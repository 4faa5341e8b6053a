"""Why a gang was refused, beside a solver that knows nothing of ours: all that is told is true, and mostly what says most."""

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
from allaboard.model.rules import Rules
from allaboard.placement import NodeFilters, SearchSettings, build_problem, search
from allaboard.placement.remedies.causes import Repaired, amounts_alone, cause_of

from .clusters import GI, GPU, Case, cases, node, pods, snapshot

GANGS = 200


def told(case: Case) -> Cause:
    """What is told of a gang: where rules may be in the way it is searched for without them."""
    cause = cause_of(case.gang, case.minimum, case.cluster, filters=NodeFilters(), repaired=Repaired())
    if cause.code is not Code.FRAGMENTED or not any(pod.spec.host_ports for pod in case.gang):
        return cause
    bare = build_problem(amounts_alone(case.gang), case.minimum, case.cluster, objective=Objective.BINPACK)
    return Cause(Code.CONSTRAINTS, rule=Reason(Kind.PORTS)) if search(bare, SearchSettings(), 0).feasible else cause


class Truth:
    """The same gang and cluster, looked at by linear programming over pods and nodes, and pair by pair."""

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
        repaired = [_at_its_best(each) for each in self.nodes]
        self.could = np.array([[_admits(pod.spec, each) for each in repaired] for pod in case.gang]).reshape(len(case.gang), -1)

    def fits(self, room: np.ndarray, admits: np.ndarray, *, ports: bool) -> bool:
        """Whether the minimum can be placed in ``room``: [nodes, resources]."""
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
                most.append(room[row, column])
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
        """Whether one pod has room on some node when that is empty."""
        return bool((self.could[index] & (self.empty >= self.demand[index]).all(axis=1)).any()) and not any(
            amount and name in self.foreign for name, amount in self.case.gang[index].spec.requests
        )

    def sums(self, resource: str) -> tuple[int, int]:
        """What the minimum asks for at least, and what is free where any pod that asks for it may go."""
        asked = sorted(dict(pod.spec.requests).get(resource, 0) for pod in self.case.gang)
        if resource not in self.names:
            return sum(asked[: self.case.minimum]), 0
        column = self.names.index(resource)
        where = [row for row in range(len(self.nodes)) if any(self.admits[index, row] for index in np.flatnonzero(self.demand[:, column]))]
        return sum(asked[: self.case.minimum]), int(self.free[where, column].sum())

    def word(self) -> Code:
        """The word that says most."""
        if int(self.admits.any(axis=1).sum()) < self.case.minimum:
            return Code.CONSTRAINTS
        if not self.fits(self.empty, self.could, ports=False):
            return Code.NEVER_FITS
        if self.fits(self.free, self.admits, ports=False):
            return Code.CONSTRAINTS
        asked = {name for pod in self.case.gang for name, amount in pod.spec.requests if amount}
        return Code.INSUFFICIENT if any(wanted > free for wanted, free in map(self.sums, asked)) else Code.FRAGMENTED


def check(case: Case, truth: Truth, cause: Cause) -> None:
    """Raise ``AssertionError`` for a word, or a number, that isn't true."""
    match cause.code:
        case Code.CONSTRAINTS:
            assert truth.word() is Code.CONSTRAINTS
        case Code.NEVER_FITS:
            assert not truth.fits(truth.empty, truth.could, ports=False)
            if cause.member:  # without those who fit nowhere, of whom it is one, there are too few
                assert not truth.fits_somewhere([pod.uid for pod in truth.case.gang].index(cause.member))
                assert sum(truth.fits_somewhere(index) for index in range(len(truth.case.gang))) < truth.case.minimum
        case Code.INSUFFICIENT:
            assert (cause.requested, cause.there) == truth.sums(cause.resource)
            assert cause.requested > cause.there
        case Code.FRAGMENTED:
            assert (cause.requested, cause.there) == truth.sums(cause.resource)
            assert cause.requested <= cause.there
            assert not truth.fits(truth.free, truth.admits, ports=False)
            if cause.resource:  # were there plenty of all else, this one would be in the way
                plenty = np.tile(truth.demand.sum(axis=0), (len(truth.nodes), 1))
                column = truth.names.index(cause.resource)
                plenty[:, column] = truth.free[:, column]
                assert not truth.fits(plenty, truth.admits, ports=False)
        case other:
            raise AssertionError(other)


def test_what_is_told_of_refused_gangs_is_true_and_the_word_that_says_most_is_mostly_found() -> None:
    """Bounds can't see that nodes are too small in a way that only putting pods together shows; all else is found."""
    words: Counter[tuple[Code, Code]] = Counter()

    @settings(max_examples=4 * GANGS, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @given(st.one_of(*(cases(most_nodes=4, most_roles=3, most_pods=3, plain=plain) for plain in (True, True, False))))
    def draw(case: Case) -> None:
        truth = Truth(case)
        if words.total() >= GANGS or not 0 < case.minimum <= len(case.gang) or truth.fits(truth.free, truth.admits, ports=True):
            return
        cause = told(case)
        check(case, truth, cause)
        words[cause.code, truth.word()] += 1

    draw()
    assert words.total() >= GANGS // 2
    assert sum(number for (said, best), number in words.items() if said is best) >= 0.85 * words.total(), words
    assert len({said for said, _ in words}) == 4


def a_case(gang: Sequence[object], minimum: int, nodes: Sequence[Node], **cluster: object) -> Case:
    return Case(tuple(gang), minimum, snapshot(nodes, **cluster), Objective.BINPACK, 0)  # type: ignore[arg-type]


def test_a_pod_larger_than_every_node_never_fits_and_the_largest_is_named() -> None:
    nodes = [node("a", {GPU: 4}), node("b", {GPU: 2})]
    assert told(a_case(pods("w", 1, {GPU: 64}), 1, nodes)) == Cause(Code.NEVER_FITS, GPU, 64, 4, member="w-0")


def test_a_gang_larger_than_the_cluster_never_fits() -> None:
    nodes = [node(name, {GPU: 4}) for name in "ab"]
    assert told(a_case(pods("w", 9, {GPU: 1}), 9, nodes, used={"a": {GPU: 4}})) == Cause(Code.NEVER_FITS, GPU, 9, 8)


def test_a_pod_larger_than_every_node_isnt_blamed_where_enough_others_are_there() -> None:
    gang = [*pods("big", 1, {GPU: 9}), *pods("w", 3, {GPU: 7})]
    nodes = [node(name, {GPU: 8}) for name in "ab"]
    assert told(a_case(gang, 3, nodes)) == Cause(Code.NEVER_FITS, GPU, 21, 16)
    assert told(a_case(gang, 4, nodes)) == Cause(Code.NEVER_FITS, GPU, 9, 8, member="big-0")


def test_what_is_too_large_only_while_a_node_is_cordoned_may_fit_again() -> None:
    nodes = [node("a", {GPU: 8}, is_unschedulable=True), node("b", {GPU: 4})]
    assert told(a_case(pods("w", 1, {GPU: 8}), 1, nodes)) == Cause(Code.INSUFFICIENT, GPU, 8, 4)


def test_what_is_too_large_only_while_a_node_is_not_ready_may_fit_again() -> None:
    taint = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
    nodes = [node("a", {GPU: 8}, is_ready=False, taints=(taint,)), node("b", {GPU: 4})]
    assert told(a_case(pods("w", 1, {GPU: 8}), 1, nodes)) == Cause(Code.INSUFFICIENT, GPU, 8, 4)
    for_good = [node("a", {GPU: 8}, taints=(Taint("dedicated", "", "NoSchedule"),)), node("b", {GPU: 4})]
    assert told(a_case(pods("w", 1, {GPU: 8}), 1, for_good)) == Cause(Code.NEVER_FITS, GPU, 8, 4, member="w-0")


def test_the_minimum_of_a_role_is_part_of_the_minimum_of_the_gang() -> None:
    gang = [*pods("ps", 2, {"cpu": 4}), *pods("w", 2, {"cpu": 1})]
    rules = Rules(parts=[({pod.uid for pod in gang[:2]}, 1)])
    cluster = snapshot([node("a", {"cpu": 100})], used={"a": {"cpu": 96}})
    assert cause_of(gang, 2, cluster, rules=rules, filters=NodeFilters(), repaired=Repaired()) == Cause(Code.INSUFFICIENT, "cpu", 5, 4)


def test_what_is_free_in_pieces_is_told_from_what_is_not_free() -> None:
    nodes = [node(name, {GPU: 8}) for name in "abc"]
    used = {name: {GPU: 4} for name in "abc"}
    assert told(a_case(pods("w", 2, {GPU: 8}), 2, nodes, used=used)) == Cause(Code.INSUFFICIENT, GPU, 16, 12)
    assert told(a_case(pods("w", 1, {GPU: 8}), 1, nodes, used=used)) == Cause(Code.FRAGMENTED, GPU, 8, 12)


def test_where_no_node_admits_them_it_is_not_room_that_lacks() -> None:
    nodes = [node("a", {"cpu": 8000}, taints=(Taint("dedicated", "ml", "NoSchedule"),))]
    assert told(a_case(pods("w", 1, {"cpu": 1000}), 1, nodes)) == Cause(Code.CONSTRAINTS)


def test_a_port_that_is_in_the_way_is_told() -> None:
    port = HostPort("", "TCP", 80)
    case = a_case(pods("w", 2, {"cpu": 1000}, host_ports=(port,)), 2, [node("a", {"cpu": 8000})])
    assert told(case) == Cause(Code.CONSTRAINTS, rule=Reason(Kind.PORTS))


def test_members_who_must_share_a_domain_that_is_too_small_never_fit() -> None:
    nodes = [node(name, {"cpu": 2 * GI}, labels={"rack": name}) for name in "ab"]
    gang = pods("w", 4, {"cpu": GI})
    rules = Rules(together=[("rack", {pod.uid for pod in gang})])
    cause = cause_of(gang, 4, snapshot(nodes), rules=rules, filters=NodeFilters(), repaired=Repaired())
    assert cause == Cause(Code.NEVER_FITS, rule=Reason(Kind.TOPOLOGY, "rack"))
    assert cause_of(gang, 4, snapshot(nodes), filters=NodeFilters(), repaired=Repaired()).code is Code.FRAGMENTED  # it fits


def test_members_who_must_share_a_domain_where_no_node_has_one_are_kept_off_by_that_and_not_by_room() -> None:
    gang = pods("w", 2, {"cpu": GI})
    rules = Rules(together=[("rack", {pod.uid for pod in gang})])
    for labels in ({}, {"rack": "a"}):
        cluster = snapshot([node("a", {"cpu": 8 * GI}), node("b", {"cpu": GI // 2}, labels=labels)])
        cause = cause_of(gang, 2, cluster, rules=rules, filters=NodeFilters(), repaired=Repaired())
        assert cause == (Cause(Code.NEVER_FITS, "cpu", GI, GI // 2, member="w-0") if labels else Cause(Code.CONSTRAINTS))


def test_the_resource_that_is_in_pieces_is_named_and_not_one_that_is_merely_used_up() -> None:
    nodes = [node("a", {GPU: 4, "memory": 16 * GI}), node("b", {"memory": 2 * GI - 1})]
    gang = pods("w", 4, {GPU: 1, "memory": 2 * GI})
    assert told(a_case(gang, 4, nodes, used={"a": {"memory": 9 * GI}})) == Cause(Code.FRAGMENTED, "memory", 8 * GI, 9 * GI - 1)
    two_kinds = [*pods("w", 2, {"cpu": 2}), *pods("x", 1, {"cpu": 1})]
    cause = told(a_case(two_kinds, 3, [node("a", {"cpu": 3}), node("b", {"cpu": 3})], used={"a": {"cpu": 1}}))
    assert cause.code is not Code.FRAGMENTED or not cause.resource


def test_whoever_is_kept_away_by_bound_pods_may_fit_when_those_end() -> None:
    elsewhere = ((NodeSelectorTerm((Requirement("zone", "NotIn", ("a",)),)),),)
    nodes = [node("a", {GPU: 4}, labels={"zone": "a"}), node("b", {GPU: 1}, labels={"zone": "b"})]
    assert told(a_case(pods("w", 1, {GPU: 4}, forbidden_domains=elsewhere), 1, nodes)) == Cause(Code.INSUFFICIENT, GPU, 4, 1)


def test_a_role_that_must_start_is_counted_where_it_may_go() -> None:
    gang = [*pods("ps", 1, {GPU: 1}, node_selector=(("pool", "b"),)), *pods("w", 1, {GPU: 1})]
    nodes = [node("a", {GPU: 8}), node("b", {GPU: 1}, labels={"pool": "b"})]
    rules = Rules(parts=[({gang[0].uid}, 1)])
    cluster = snapshot(nodes, used={"b": {GPU: 1}})
    cause = cause_of(gang, 1, cluster, rules=rules, filters=NodeFilters(), repaired=Repaired())
    assert cause == Cause(Code.INSUFFICIENT, GPU, 1, 0)


def _at_its_best(each: Node) -> Node:
    return Node(each.name, each.uid, each.allocatable, each.labels, tuple(t for t in each.taints if "node.kubernetes.io/" not in t.key))


def _admits(spec: SchedulingSpec, each: Node) -> bool:
    """Of the few constraints that are drawn."""
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


def test_of_several_resources_the_one_is_named_of_which_most_is_asked() -> None:
    """Whichever comes first by name; beside what a node has, or beside what is free."""
    nodes = [node("n", {"cpu": 4000, "memory": 4 * GI, GPU: 4})]
    for most in ("cpu", "memory", GPU):
        times = {name: 3 if name == most else 2 for name in ("cpu", "memory", GPU)}
        large = {"cpu": 4000 * times["cpu"], "memory": 4 * GI * times["memory"], GPU: 4 * times[GPU]}
        assert told(a_case(pods("w", 1, large), 1, nodes)).resource == most
        some = {name: amount // 4 for name, amount in large.items()}
        used = {"n": {"cpu": 3000, "memory": 3 * GI, GPU: 3}}
        cause = told(a_case(pods("w", 1, some), 1, nodes, used=used))
        assert (cause.code, cause.resource) == (Code.INSUFFICIENT, most)


def test_a_resource_that_a_role_does_not_ask_for_is_not_in_pieces_for_it() -> None:
    nodes = [node(f"n{number}", {"cpu": 16_000, "memory": 64 * GI, GPU: 4}) for number in range(3)]
    cluster = snapshot([*nodes, node("n4", {"cpu": 24_000, "memory": 48 * GI, GPU: 4})])
    gang = [*pods("ps", 5, {"cpu": 4000, "memory": 8 * GI}), *pods("worker", 16, {"cpu": 3000, "memory": 10 * GI, GPU: 1})]
    assert cause_of(gang, len(gang), cluster, filters=NodeFilters(), repaired=Repaired()) == Cause(Code.FRAGMENTED)


def test_a_role_that_lacks_members_is_not_made_up_for_by_the_surplus_of_others() -> None:
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
