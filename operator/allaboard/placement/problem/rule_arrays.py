"""The rules between the members of a gang as arrays: which pods are interchangeable, and how many pods of each role are needed where."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from allaboard.model.arrays import Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.reasons import Counted, Kind, Reason
from allaboard.model.rules import Rules
from allaboard.placement.problem.problem import Candidate, Problem, Together


class RuleArrays(NamedTuple):
    """The rules between the members of a gang, by role. The fields are those of ``Problem``."""

    least: Integers
    sums: tuple[tuple[tuple[int, ...], int], ...]
    together: tuple[Together, ...]

    def restricted_to(self, rows: Integers) -> "RuleArrays":
        """Return the rules on some of the nodes, given by position."""
        return self._replace(together=tuple(replace(group, domains=group.domains[rows]) for group in self.together))

    @property
    def has_couplings(self) -> bool:
        """Return whether the node of one member restricts the nodes of other members."""
        return bool(self.together)

    @property
    def is_plain(self) -> bool:
        """Return whether the rules only require a number of pods of each role."""
        return not (self.sums or self.has_couplings)


def rule_arrays_of(rules: Rules, members: Sequence[str], domains: Callable[[str], Integers]) -> RuleArrays:
    """Return ``rules`` by role.

    ``members``: the UID of one pod of each role. ``domains``: returns the domain of each node by a label: int64[nodes], -1 for a node
    without the label.
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
        together=tuple(Together(label, of_group, domains(label)) for label, uids in rules.together if (of_group := roles(uids))),
    )


def exclude_unlabelled(rule_arrays: RuleArrays, admits: Mask) -> list[Counted]:
    """Exclude nodes without a domain for the roles that must share one: clear the nodes in ``admits``: bool[roles, nodes].

    Return how many nodes are excluded for each role, by reason.
    """
    refusals: list[Counted] = [()] * len(admits)
    for group in rule_arrays.together:
        has_none = group.domains < 0
        for role in group.roles:
            if nodes := int(np.count_nonzero(admits[role] & has_none)):
                refusals[role] = (*refusals[role], (Reason(Kind.UNLABELLED, group.label), nodes))
                admits[role] &= ~has_none
    return refusals


def with_rules(problem: Problem, rule_arrays: RuleArrays) -> Problem:
    """Return ``problem`` with the rules between its members."""
    problem = replace(problem, least=rule_arrays.least, sums=rule_arrays.sums, together=rule_arrays.together)
    if not rule_arrays.together:
        return problem
    admits = problem.admits.copy()
    unlabelled = exclude_unlabelled(rule_arrays, admits)
    roles = tuple(
        replace(role, refusals=tuple(sorted((*role.refusals, *more)))) if more else role
        for role, more in zip(problem.roles, unlabelled, strict=True)
    )
    return replace(problem, roles=roles, admits=admits, slots=np.where(admits, problem.slots, 0))


def roles_of(pods: Sequence[Candidate], rules: Rules) -> list[tuple[SchedulingSpec, list[str]]]:
    """Return the roles of ``pods``: the spec and the UIDs of pods that are interchangeable."""
    return _by_spec(pods) if rules.is_plain else _by_spec_and_class(pods, rules)


def class_of(pod: Candidate, rules: Rules) -> tuple[bool, ...]:
    """Return the pod's class: for each set of pods that ``rules`` name, whether the pod is in the set.

    Only pods of one class are interchangeable.
    """
    return (*(pod.uid in part for part, _ in rules.parts), *(pod.uid in group for _, group in rules.together))


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
