"""The rules between the members of a gang as arrays: which pods are interchangeable, and how many pods of each role are needed where."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from allaboard.model.arrays import Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.reasons import Counted, Kind, Reason
from allaboard.placement.problem.problem import Candidate, Problem
from allaboard.placement.rules.apart import Apart
from allaboard.placement.rules.attraction import Attraction, NeighbourDislikes
from allaboard.placement.rules.coupling import Coupling
from allaboard.placement.rules.filters import NodeFilters
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import Together


class RuleArrays(NamedTuple):
    """The rules between the members of a gang, by role. The fields are those of ``Problem``."""

    least: Integers
    sums: tuple[tuple[tuple[int, ...], int], ...]
    couplings: tuple[Coupling, ...]
    attractions: tuple[Attraction, ...] = ()

    def restricted_to(self, rows: Integers) -> "RuleArrays":
        """Return the rules on some of the nodes, given by position."""
        couplings = tuple(each.restricted_to(rows) for each in self.couplings)
        return self._replace(couplings=couplings, attractions=tuple(each.restricted_to(rows) for each in self.attractions))

    @property
    def together(self) -> tuple[Together, ...]:
        """The couplings that are sets of roles, each of which must be placed within one domain."""
        return tuple(each for each in self.couplings if isinstance(each, Together))

    @property
    def has_couplings(self) -> bool:
        """Return whether the node of one member restricts the nodes of other members."""
        return bool(self.couplings)

    @property
    def is_plain(self) -> bool:
        """Return whether the rules only require a number of pods of each role."""
        return not (self.sums or self.has_couplings or self.attractions)


@dataclass(frozen=True, slots=True)
class NodePlaces:
    """The ``nodes`` of a snapshot as rules between members see them."""

    filters: NodeFilters
    nodes: tuple[Node, ...]

    def domains(self, label: str) -> Integers:
        """Return the domain of each node by a node label: int64[nodes], -1 for a node without the label."""
        return self.filters.domains(label, self.nodes, -1)

    def domain(self, label: str, value: str) -> int:
        """Return the domain of the nodes with a value of a label; -2 if no node has it."""
        return self.filters.domain(label, value, self.nodes)

    def amounts(self, label: str, amounts: Mapping[str, int]) -> tuple[Integers, Integers]:
        """Return the domain of each node by a label, -1 without it, and the amount for the label's value: int64[nodes] each."""
        return self.filters.amounts(label, amounts, self.nodes)

    def neighbour_dislikes(self, spec: SchedulingSpec) -> NeighbourDislikes | None:
        """Return what the preferences of ``spec`` about other pods cost on each node; None without any."""
        return self.filters.preference(spec, self.nodes).neighbours

    def eligible(self, spec: SchedulingSpec, *, by_affinity: bool, by_taints: bool) -> Mask:
        """Return the nodes that the node affinity of ``spec``, and its tolerations, admit: bool[nodes]."""
        return self.filters.eligible(spec, self.nodes, by_affinity=by_affinity, by_taints=by_taints)


def rule_arrays_of(rules: Rules, members: Sequence[str], places: NodePlaces) -> RuleArrays:
    """Return ``rules`` by role.

    ``members``: the UID of one pod of each role.
    """

    def roles(uids: Collection[str]) -> tuple[int, ...]:
        return tuple(role for role, uid in enumerate(members) if uid in uids)

    needs = [(roles(uids), number) for uids, number in rules.parts]
    least = np.zeros(len(members), dtype=np.int64)
    for of_part, number in needs:
        if len(of_part) == 1:
            least[of_part[0]] = number
    return RuleArrays(
        least=least,
        sums=tuple(need for need in needs if len(need[0]) != 1),
        couplings=tuple(found for rule in rules.couplings if (found := rule.arrays(roles, places)) is not None),
        attractions=tuple(each for rule in rules.attractions if (each := rule.arrays(roles, len(members), places)) is not None),
    )


def exclude_nodes(rule_arrays: RuleArrays, admits: Mask) -> list[list[tuple[Reason, Mask]]]:
    """Exclude the nodes that couplings exclude for some roles, such as nodes without a domain.

    These nodes are cleared in ``admits``: bool[roles, nodes]. Return for each role which nodes are excluded, bool[nodes], by reason.
    """
    refusals: list[list[tuple[Reason, Mask]]] = [[] for _ in admits]
    for coupling in rule_arrays.couplings:
        for role, (excluded, reason) in coupling.excluded.items():
            if (refused := admits[role] & excluded).any():
                refusals[role].append((reason, refused))
                admits[role] &= ~excluded
    return refusals


def counted(refusals: Sequence[tuple[Reason, Mask]]) -> Counted:
    """Return how many nodes are refused for each reason."""
    return tuple((reason, int(np.count_nonzero(refused))) for reason, refused in refusals)


def with_rules(problem: Problem, rule_arrays: RuleArrays) -> Problem:
    """Return ``problem`` with the rules between its members."""
    of_nodes = [each for each in rule_arrays.couplings if isinstance(each, Apart) and each.is_one_per_node]
    couplings = tuple(each for each in rule_arrays.couplings if each not in of_nodes)
    weights = problem.weights
    attractions = tuple(each.times(weights.spread if each.is_spread else weights.pods) for each in rule_arrays.attractions)
    problem = replace(problem, least=rule_arrays.least, sums=rule_arrays.sums, couplings=couplings, attractions=attractions)
    for each in of_nodes:
        problem = _with_one_per_node(problem, each)
    if not couplings:
        return problem
    admits = problem.admits.copy()
    excluded = exclude_nodes(rule_arrays, admits)
    roles = tuple(
        replace(role, refusals=tuple(sorted((*role.refusals, *counted(more))))) if more else role
        for role, more in zip(problem.roles, excluded, strict=True)
    )
    return replace(problem, roles=roles, admits=admits, slots=np.where(admits, problem.slots, 0))


def _with_one_per_node(problem: Problem, apart: Apart) -> Problem:
    """Return ``problem`` with a capacity of which each node in a domain has one, and which the roles of ``apart`` take."""
    demand = np.zeros((len(problem.roles), 1), dtype=np.int64)
    demand[list(apart.roles)] = 1
    free = np.where(apart.domains >= 0, 1, problem.count.sum())[None]
    slots = problem.slots.copy()
    slots[list(apart.roles)] = np.minimum(slots[list(apart.roles)], free)
    return replace(
        problem,
        columns=(*problem.columns, f"one per {apart.label}"),
        reasons=(*problem.reasons, Reason(Kind.ANTI_AFFINITY, apart.label)),
        demand=np.concatenate([problem.demand, demand], axis=1),
        free=np.concatenate([problem.free, free]),
        taken=np.concatenate([problem.taken, np.zeros_like(free)]),
        slots=slots,
    )


def roles_of(pods: Sequence[Candidate], rules: Rules) -> list[tuple[SchedulingSpec, list[str]]]:
    """Return the roles of ``pods``: the spec and the UIDs of pods that are interchangeable."""
    return _by_spec(pods) if rules.is_plain else _by_spec_and_class(pods, rules)


def class_of(pod: Candidate, rules: Rules) -> tuple[bool, ...]:
    """Return the pod's class: for each set of pods that ``rules`` name, whether the pod is in the set.

    Only pods of one class are interchangeable.
    """
    return tuple(pod.uid in members for members in rules.sets)


def _by_spec(pods: Sequence[Candidate]) -> list[tuple[SchedulingSpec, list[str]]]:
    """Return the UIDs of the pods that have each spec.

    Equal specs are mostly one object, and looking up the object's identity is faster than hashing the spec.
    """
    members: dict[SchedulingSpec, list[str]] = {}
    seen: dict[int, list[str]] = {}
    for pod in pods:
        uids = seen.get(id(pod.spec))
        if uids is None:
            uids = seen[id(pod.spec)] = members.setdefault(pod.spec, [])
        uids.append(pod.uid)
    return list(members.items())


def _by_spec_and_class(pods: Sequence[Candidate], rules: Rules) -> list[tuple[SchedulingSpec, list[str]]]:
    """Return the UIDs of the pods that have each spec and class (``class_of``)."""
    members: dict[tuple[SchedulingSpec, tuple[bool, ...]], list[str]] = {}
    for pod in pods:
        members.setdefault((pod.spec, class_of(pod, rules)), []).append(pod.uid)
    return [(spec, uids) for (spec, _), uids in members.items()]
