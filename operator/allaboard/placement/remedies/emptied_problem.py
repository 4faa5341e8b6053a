"""Every node that could take a member of a gang if it were empty, and what would have to come free there.

What a search works on leaves such nodes out; what would help a gang is found from them (``remedies``).
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.rules import NO_RULES, Rules
from allaboard.model.snapshot import Snapshot
from allaboard.placement.problem.build import build_problem
from allaboard.placement.problem.problem import Problem, Together
from allaboard.placement.rules.capacity import slots_for
from allaboard.placement.rules.filters import NodeFilters
from allaboard.placement.solvers.domains import NOWHERE, capacity_in_domains


@dataclass(frozen=True, slots=True, eq=False)
class Blocker:
    """A gang that could leave: ``rows``: int64[some nodes] within reach, and ``frees``: int64[columns, some nodes] there."""

    key: str
    rows: Integers
    frees: Integers


@dataclass(frozen=True, slots=True, eq=False)
class EmptiedProblem:
    """A problem on every node that could take a member if it were empty.

    ``slack``: int64[columns, nodes] is what is free, negative where a node is over-committed; ``empty`` what is when the node is
    empty; ``ceiling`` what may be asked to be free: the same, but of an over-committed node nothing is asked. ``names`` are those of the
    domains, as ``label=value``, for each group of roles that must share one; ``where`` those of the ones that were chosen.
    """

    problem: Problem
    slack: Integers
    empty: Integers
    ceiling: Integers
    blockers: tuple[Blocker, ...]
    names: tuple[Mapping[int, str], ...] = ()
    where: str = ""


def emptied_problem_of(
    problem: Problem,
    pods: Sequence[Pod],
    snapshot: Snapshot,
    others: Sequence[tuple[str, Sequence[Pod]]] = (),
    rules: Rules = NO_RULES,
    filters: NodeFilters | None = None,
) -> EmptiedProblem:
    """What is within reach of ``problem``, which was built of ``pods`` and ``rules`` on ``snapshot``.

    ``others`` are bound gangs by any key, the one that should leave first comes first.
    """
    if snapshot.devices is not None:  # what would help where GPUs are shared is more than an amount
        nothing = problem.free[:, :0]
        return EmptiedProblem(problem.restricted_to(np.arange(0)), nothing, nothing, nothing, ())
    empty = replace(snapshot, used=np.zeros_like(snapshot.used))
    roomy = build_problem(pods, problem.minimum, empty, objective=problem.objective, rules=rules, filters=filters)
    row_of = {node.name: row for row, node in enumerate(snapshot.nodes)}
    kept = np.array([row_of[name] for name in roomy.nodes], dtype=np.int64)
    slack = roomy.free.copy()  # what rules leave is what it is now
    for column, resource in enumerate(roomy.columns[: roomy.resources]):
        if (source := snapshot.column_of(resource)) is not None:
            slack[column] -= snapshot.used[kept, source]
    now = freed(roomy, slack)
    place = {name: row for row, name in enumerate(roomy.nodes)}
    blockers = tuple(_blocker(roomy, key, bound, place) for key, bound in others)
    ceiling = np.where(slack < 0, slack, roomy.free)
    nodes = [snapshot.nodes[row] for row in kept.tolist()] if roomy.together else []
    names = tuple(_names(group, nodes) for group in roomy.together)
    return EmptiedProblem(now, slack, roomy.free, ceiling, tuple(blocker for blocker in blockers if len(blocker.rows)), names)


def with_domains(around: EmptiedProblem, most: int) -> tuple[Sequence[EmptiedProblem], bool]:
    """The same with a domain chosen for each group of roles that must share one, in up to ``most`` ways, and whether these are all.

    What is outside of the domains is out of reach. Those that need least to take the gang come first.
    """
    if not around.problem.together:
        return (around,), True
    choices = _choices(around)
    tried = itertools.islice(itertools.product(*choices), most)
    found = [each for choice in tried if (each := _confined(around, choice)).problem.nodes]
    return found, math.prod(map(len, choices)) <= most


def _choices(around: EmptiedProblem) -> list[list[int]]:
    """The domains that each group of roles could share, those first that take it when they are empty, and of these the roomiest."""
    problem = around.problem
    empty = freed(problem, around.ceiling)

    def ordered(group: Together) -> list[int]:
        known, _, now = capacity_in_domains(problem, group)
        _, _, most = capacity_in_domains(empty, group)
        takes_all = most >= problem.count[list(group.roles)].sum()
        order = np.lexsort((-most, -now, ~takes_all))
        return [int(known[row]) for row in order if known[row] >= 0 and most[row] > 0] or [NOWHERE]

    return [ordered(group) for group in problem.together]


def _confined(around: EmptiedProblem, domains: Sequence[int]) -> EmptiedProblem:
    problem = around.problem.confined(domains)
    rows = np.flatnonzero(problem.admits.any(axis=0))
    place = np.full(len(problem.nodes), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    blockers = []
    for blocker in around.blockers:
        there = place[blocker.rows] >= 0
        if there.any():
            blockers.append(Blocker(blocker.key, place[blocker.rows[there]], blocker.frees[:, there]))
    where = ",".join(dict.fromkeys(names[domain] for names, domain in zip(around.names, domains, strict=True) if domain in names))
    slack, empty, ceiling = (each[:, rows] for each in (around.slack, around.empty, around.ceiling))
    return EmptiedProblem(problem.restricted_to(rows), slack, empty, ceiling, tuple(blockers), where=where)


def _names(group: Together, nodes: Sequence[Node]) -> dict[int, str]:
    known, first = np.unique(group.domains, return_index=True)
    of_domains = zip(known.tolist(), first.tolist(), strict=True)
    return {domain: f"{group.label}={nodes[row].labels[group.label]}" for domain, row in of_domains if domain >= 0}


def freed(problem: Problem, slack: Integers) -> Problem:
    """``problem`` with so much free: int64[columns, nodes]."""
    free = np.maximum(slack, 0)
    slots = np.stack([slots_for(demand, free, problem.admits[role]) for role, demand in enumerate(problem.demand)])
    return replace(problem, free=free, slots=slots)


def _blocker(problem: Problem, key: str, bound: Sequence[Pod], place: dict[str, int]) -> Blocker:
    # Pods of one gang share a few specs, which mostly are one object each.
    specs = {id(pod.spec): pod.spec for pod in bound}
    alike = Counter((place[pod.node_name], id(pod.spec)) for pod in bound if pod.node_name in place)
    rows, at = np.unique(np.array([row for row, _ in alike], dtype=np.int64), return_inverse=True)
    frees = np.zeros((len(problem.columns), len(rows)), dtype=np.int64)
    for ((_, spec), number), position in zip(alike.items(), at.ravel().tolist(), strict=True):
        requests = dict(specs[spec].requests)
        frees[: problem.resources, position] += [number * requests.get(resource, 0) for resource in problem.columns[: problem.resources]]
    return Blocker(key, rows, frees)
