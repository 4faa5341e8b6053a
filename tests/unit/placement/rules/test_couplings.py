"""Tests that members with pod affinity, anti-affinity and topology spread are placed whenever that is possible."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.node import HOSTNAME, Node
from allaboard.model.pod import Pod
from allaboard.model.podterms import SpreadConstraint
from allaboard.model.snapshot import Snapshot
from allaboard.placement import build_problem, search, verify
from allaboard.placement.rules.apart import ApartRule
from allaboard.placement.rules.coupling import CouplingRule
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.near import NearRule
from allaboard.placement.rules.spread import SpreadRule
from allaboard.placement.solvers.milp import Finding, solve
from tests.unit.placement.clusters import pods
from tests.unit.placement.rules.couplings import QUICK, cluster_of, fits

VALUES = {"zone": ("a", "b", "c"), HOSTNAME: ("n0", "n1", "n2")}


_ROLES = st.frozensets(st.integers(0, 1), min_size=1)
_LABELS = st.sampled_from(["zone", HOSTNAME])


@st.composite
def a_rule(draw: st.DrawFn, of_role: Sequence[set[str]], spec: object) -> CouplingRule:
    label, kind = draw(_LABELS), draw(st.sampled_from(["apart", "near", "spread"]))
    holders, matched = ({uid for number in draw(_ROLES) for uid in of_role[number % len(of_role)]} for _ in range(2))
    if kind == "apart":
        return ApartRule(label, holders, matched)
    if kind == "near":
        some = draw(st.sampled_from([matched, set()]))
        return NearRule(label, holders, some, tuple(draw(st.sets(st.sampled_from(VALUES[label]), max_size=1))), draw(st.booleans()))
    constraint = SpreadConstraint(label, (), draw(st.integers(1, 2)), draw(st.integers(1, 3)))
    bound = draw(st.dictionaries(st.sampled_from(VALUES[label]), st.integers(1, 3), max_size=2))
    return SpreadRule(constraint, (label,), holders, draw(st.sampled_from([matched, holders])), tuple(sorted(bound.items())), spec)  # type: ignore[arg-type]


@st.composite
def a_case(draw: st.DrawFn) -> tuple[list[Pod], Snapshot, Rules, int]:
    cpus = draw(st.lists(st.tuples(st.sampled_from(["a", "b", "c", ""]), st.integers(1, 3)), min_size=1, max_size=4))
    roles = draw(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2)), min_size=1, max_size=2))
    gang = [pod for number, (count, cpu) in enumerate(roles) for pod in pods(f"r{number}", count, {"cpu": cpu * 1000})]
    of_role = [{pod.uid for pod in gang if pod.uid.startswith(f"r{number}")} for number in range(len(roles))]
    rules = draw(st.lists(a_rule(of_role, gang[0].spec), min_size=1, max_size=2))
    return gang, cluster_of(cpus), Rules(couplings=rules), max(1, len(gang) - draw(st.integers(0, 4)))


@settings(max_examples=500, deadline=None)
@given(a_case())
def test_gang_is_placed_whenever_its_rules_allow_that(case) -> None:
    gang, cluster, rules, minimum = case
    problem = build_problem(gang, minimum, cluster, objective=Objective.BINPACK, rules=rules)
    expected = fits(gang, cluster, rules, minimum)
    event(f"{'+'.join(sorted({type(rule).__name__ for rule in rules.couplings}))} fits: {expected}")
    answer = solve(problem)
    assert answer.finding is (Finding.FITS if expected else Finding.CANNOT_FIT)
    plan = search(problem, QUICK, 1)
    assert plan.feasible is expected
    if plan.feasible:
        assert verify(dict(plan.assignments), gang, cluster, rules) == ()


def kube_admits(rule: CouplingRule, uid: str, where: Node, placed: Mapping[str, Node], nodes: Sequence[Node]) -> bool:
    """Return whether kube-scheduler's filter lets a pod onto a node beside the pods ``placed``, one pod after another."""
    value = where.labels.get(rule.label)
    there = [other for other, node in placed.items() if value is not None and node.labels.get(rule.label) == value]
    match rule:
        case ApartRule():
            return not (
                (uid in rule.holders and any(other in rule.matched for other in there))
                or (uid in rule.matched and any(other in rule.holders for other in there))
            )
        case NearRule() if uid in rule.holders:
            if value is None:
                return False
            exists = (
                bool(rule.values)
                or rule.others_are_bound
                or any(other in rule.matched and rule.label in placed[other].labels for other in placed)
            )
            is_there = value in rule.values or any(other in rule.matched for other in there)
            return is_there or (not exists and uid in rule.matched)
        case SpreadRule() if uid in rule.holders:
            if value is None:
                return False
            totals = {node.labels[rule.label]: 0 for node in nodes if rule.label in node.labels}
            totals |= {known: number for known, number in rule.bound if known in totals}
            for other, node in placed.items():
                if other in rule.matched and rule.label in node.labels:
                    totals[node.labels[rule.label]] += 1
            least = min(totals.values()) if len(totals) >= rule.constraint.min_domains else 0
            return totals[value] + (uid in rule.matched) - least <= rule.constraint.max_skew
    return True


@settings(max_examples=500, deadline=None)
@given(a_case(), st.data())
def test_rules_hold_for_the_nodes_that_kube_scheduler_can_choose_in_some_order(case, data) -> None:
    """A spread is compared for pods that count themselves: a gang's rules hold at once, and not only at the time of each bind."""
    gang, cluster, rules, _ = case
    couplings = [replace(rule, matched=rule.holders) if isinstance(rule, SpreadRule) else rule for rule in rules.couplings[:1]]
    assigned = {pod.uid: data.draw(st.sampled_from(cluster.nodes)) for pod in gang}
    is_reachable = False
    for order in itertools.permutations(assigned):
        placed: dict[str, Node] = {}
        for uid in order:
            if not all(kube_admits(rule, uid, assigned[uid], placed, cluster.nodes) for rule in couplings):
                break
            placed[uid] = assigned[uid]
        is_reachable = is_reachable or len(placed) == len(assigned)
    event(f"{type(couplings[0]).__name__} holds: {is_reachable}")
    assert (not list(Rules(couplings=couplings).broken(assigned, cluster.nodes))) is is_reachable
