"""States the problem of a refused gang on every node that could take a member if the node were empty.

The problem that a search works on leaves out nodes that can take no member now. Freed capacity on such nodes may let the gang fit, so
remedies (``remedies``) are looked for on these nodes, too.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.node import HOSTNAME, Node
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.placement.problem.build import build_problem
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.capacity import slots_for
from allaboard.placement.rules.coupling import Coupling
from allaboard.placement.rules.filters import NodeFilters
from allaboard.placement.rules.members import NO_RULES, Rules
from allaboard.placement.rules.together import Together
from allaboard.placement.solvers.domains import NOWHERE, capacity_in_domains


@dataclass(frozen=True, slots=True, eq=False)
class Blocker:
    """A bound gang whose release might let the refused gang fit.

    ``rows``: int64[k], positions of the bound gang's nodes in the problem. ``frees``: int64[capacities, k], amounts that the release frees
    on these nodes.
    """

    key: str
    rows: Integers
    frees: Integers


@dataclass(frozen=True, slots=True, eq=False)
class EmptiedProblem:
    """The problem of a refused gang on every node that could take a member if the node were empty, with what could be freed there.

    The capacities are those of ``Problem.columns``.
    ``slack``: int64[capacities, nodes], what is free now, negative where a node is over-committed.
    ``empty``: int64[capacities, nodes], what is free if the node is empty.
    ``ceiling``: int64[capacities, nodes], what may be free at most after a remedy: ``empty``, or ``slack`` where a node is over-committed.
    ``names``: for each set of roles that must share a domain, the name of each domain, as ``label=value``.
    ``where``: names of the domains to which these sets of roles are confined, separated by commas; empty before they are confined.
    ``places``: for each node, the names of its domains by the other rules between members, except its host.
    """

    problem: Problem
    slack: Integers
    empty: Integers
    ceiling: Integers
    blockers: tuple[Blocker, ...]
    names: tuple[Mapping[int, str], ...] = ()
    where: str = ""
    places: tuple[tuple[str, ...], ...] = ()

    def domain_of(self, row: int) -> str:
        """Return the names of the domains that matter for a node like the one at ``row``, separated by commas."""
        return ",".join(dict.fromkeys(self.places[row] if self.places else ()))


def emptied_problem_of(
    problem: Problem,
    pods: Sequence[Pod],
    snapshot: Snapshot,
    gangs: Sequence[tuple[str, Sequence[Pod]]] = (),
    rules: Rules = NO_RULES,
    filters: NodeFilters | None = None,
) -> EmptiedProblem:
    """Return the emptied problem for ``problem``, which was built from ``pods`` and ``rules`` on ``snapshot``.

    ``gangs``: (key, pods) of each bound gang that might be released, in the order in which the gangs should be released.
    """
    if snapshot.devices is not None:  # with shared GPUs, an amount of a resource doesn't decide whether a pod fits
        nothing = problem.free[:, :0]
        return EmptiedProblem(problem.restricted_to(np.arange(0)), nothing, nothing, nothing, ())
    empty = replace(snapshot, used=np.zeros_like(snapshot.used))
    on_empty_nodes = build_problem(pods, problem.minimum, empty, objective=problem.objective, rules=rules, filters=filters)
    row_of = {node.name: row for row, node in enumerate(snapshot.nodes)}
    kept = np.array([row_of[name] for name in on_empty_nodes.nodes], dtype=np.int64)
    slack = on_empty_nodes.free.copy()  # columns of rules, such as host ports, count bound pods already
    for column, resource in enumerate(on_empty_nodes.columns[: on_empty_nodes.resources]):
        if (source := snapshot.column_of(resource)) is not None:
            slack[column] -= snapshot.used[kept, source]
    now = with_free(on_empty_nodes, slack)
    place = {name: row for row, name in enumerate(on_empty_nodes.nodes)}
    blockers = tuple(_blocker(on_empty_nodes, key, bound, place) for key, bound in gangs)
    ceiling = np.where(slack < 0, slack, on_empty_nodes.free)
    nodes = [snapshot.nodes[row] for row in kept.tolist()] if on_empty_nodes.together else []
    names = tuple(_names(group, nodes) for group in on_empty_nodes.together)
    others = [each for each in on_empty_nodes.couplings if not isinstance(each, Together)]
    places = tuple(_places(others, [snapshot.nodes[row] for row in kept.tolist()])) if others else ()
    near = tuple(blocker for blocker in blockers if len(blocker.rows))
    return EmptiedProblem(now, slack, on_empty_nodes.free, ceiling, near, names, places=places)


def with_chosen_domains(emptied: EmptiedProblem, most: int) -> tuple[Sequence[EmptiedProblem], bool]:
    """Return variants of ``emptied``, each with one choice of domains for the roles that must share a domain.

    At most ``most`` variants are returned. Choices of domains that would take all members of the roles if they were empty come first, and
    among these, choices with more free slots now. Nodes outside the chosen domains are left out. The second result is whether all choices
    are returned.
    """
    if not emptied.problem.together:
        return (emptied,), True
    domain_choices = _domain_choices(emptied)
    tried = itertools.islice(itertools.product(*domain_choices), most)
    found = [each for domains in tried if (each := _confined(emptied, domains)).problem.nodes]
    return found, math.prod(map(len, domain_choices)) <= most


def _domain_choices(emptied: EmptiedProblem) -> list[list[int]]:
    """Return the possible domains of each set of roles that must share a domain.

    Domains that could take all roles of the set when empty come first, and among equals those with the most free slots.
    """
    problem = emptied.problem
    empty = with_free(problem, emptied.ceiling)

    def ordered(group: Together) -> list[int]:
        known, _, now = capacity_in_domains(problem, group)
        _, _, most = capacity_in_domains(empty, group)
        takes_all = most >= problem.count[list(group.roles)].sum()
        order = np.lexsort((-most, -now, ~takes_all))
        return [int(known[row]) for row in order if known[row] >= 0 and most[row] > 0] or [NOWHERE]

    return [ordered(group) for group in problem.together]


def _confined(emptied: EmptiedProblem, domains: Sequence[int]) -> EmptiedProblem:
    problem = emptied.problem.confined(domains)
    rows = np.flatnonzero(problem.admits.any(axis=0))
    place = np.full(len(problem.nodes), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    blockers = []
    for blocker in emptied.blockers:
        there = place[blocker.rows] >= 0
        if there.any():
            blockers.append(Blocker(blocker.key, place[blocker.rows[there]], blocker.frees[:, there]))
    chosen = [
        (group.domains == domain, names[domain])
        for group, names, domain in zip(emptied.problem.together, emptied.names, domains, strict=True)
        if domain in names
    ]
    where = ",".join(dict.fromkeys(name for _, name in chosen))
    slack, empty, ceiling = (each[:, rows] for each in (emptied.slack, emptied.empty, emptied.ceiling))
    places = tuple(
        (*(name for is_here, name in chosen if is_here[row]), *(emptied.places[row] if emptied.places else ())) for row in rows.tolist()
    )
    return EmptiedProblem(problem.restricted_to(rows), slack, empty, ceiling, tuple(blockers), where=where, places=places)


def _names(group: Together, nodes: Sequence[Node]) -> dict[int, str]:
    known, first = np.unique(group.domains, return_index=True)
    of_domains = zip(known.tolist(), first.tolist(), strict=True)
    return {domain: f"{group.label}={nodes[row].labels[group.label]}" for domain, row in of_domains if domain >= 0}


def _places(couplings: Sequence[Coupling], nodes: Sequence[Node]) -> Iterator[tuple[str, ...]]:
    """Yield the names of each node's domains, except its host."""
    shared = {each.label: each.domains for each in couplings if each.label != HOSTNAME}
    for row, node in enumerate(nodes):
        yield tuple(f"{label}={node.labels[label]}" for label, domains in shared.items() if domains[row] >= 0)


def with_free(problem: Problem, slack: Integers) -> Problem:
    """Return ``problem`` with the amounts ``slack`` free; negative amounts count as 0. ``slack``: int64[capacities, nodes]."""
    free = np.maximum(slack, 0)
    slots = np.stack([slots_for(demand, free, problem.admits[role]) for role, demand in enumerate(problem.demand)])
    return replace(problem, free=free, slots=slots)


def _blocker(problem: Problem, key: str, bound: Sequence[Pod], place: dict[str, int]) -> Blocker:
    # Pods of one gang have few different specs, and equal specs are mostly one object.
    specs = {id(pod.spec): pod.spec for pod in bound}
    alike = Counter((place[pod.node_name], id(pod.spec)) for pod in bound if pod.node_name in place)
    rows, at = np.unique(np.array([row for row, _ in alike], dtype=np.int64), return_inverse=True)
    frees = np.zeros((len(problem.columns), len(rows)), dtype=np.int64)
    for ((_, spec), number), position in zip(alike.items(), at.ravel().tolist(), strict=True):
        requests = dict(specs[spec].requests)
        frees[: problem.resources, position] += [number * requests.get(resource, 0) for resource in problem.columns[: problem.resources]]
    return Blocker(key, rows, frees)
