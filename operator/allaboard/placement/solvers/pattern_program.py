"""Choose a pattern for each node by dynamic programming, so that the patterns hold exactly the pods of a gang at the least cost.

The program decides about one node after another. A cell of its table stands for the numbers of pods, by role, that the nodes so far hold.
The cell has the least cost of these pods (Kellerer, Pferschy and Pisinger, Knapsack Problems, 2004, chapters 9 and 11). Among equal costs a
node takes the first of its patterns, so that pods go to the nodes that come first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.placement.solvers.patterns import Kinds, Patterns

_TIE = 1e-12
_WORK_OF_NODE = 5_000  # The work of a node whatever the size of the table, in operations on single elements.


class Domain(NamedTuple):
    """A topology domain in which some patterns are possible.

    ``cost``: what the domain costs if it is used; a domain that isn't optional is used. ``fixed``: (kind, pattern) for each kind whose
    nodes all take that pattern if the domain is used. ``open``: (kind, patterns) for each kind whose nodes take one of several patterns.
    """

    is_optional: bool
    cost: float
    fixed: Sequence[tuple[int, int]]
    open: Sequence[tuple[int, Integers]]


class Chosen(NamedTuple):
    """The least cost, infinite if the patterns can't hold exactly all pods. ``patterns``: (kind, pattern) of nodes that take pods."""

    cost: float
    patterns: Sequence[tuple[int, int]] = ()


class PatternProgram:
    """A dynamic program for the ``domains`` of a gang. ``count``: int64[roles], the pods that the patterns must hold.

    Some things are the same in all choices, and are counted beforehand: the fixed patterns, and the pods that a node takes by each of its
    patterns. Nodes that no choice needs are left out. So the table and the number of decisions stay small.
    """

    def __init__(self, kinds: Kinds, patterns: Patterns, count: Integers, domains: Sequence[Domain]) -> None:
        self._kinds, self._patterns = kinds, patterns
        parts = [_Part.of(kinds, patterns, domain) for domain in domains]
        pods, self._cost = sum((part.pods for part in parts if not part.is_optional), np.zeros_like(count)), 0.0
        self._count = count - pods
        self._is_possible = bool((self._count >= 0).all())
        self._parts = [part.without_spare_nodes(int(self._count.sum())) for part in parts] if self._is_possible else []

    @property
    def states(self) -> float:
        """The number of cells of the table."""
        return float((self._count + 1.0).prod()) if self._is_possible else 0.0

    @property
    def work(self) -> float:
        """About how many operations on single elements ``run`` takes."""
        groups = [group for part in self._parts for group in part.groups]
        nodes = [len(group.nodes) for group in groups]
        return self.states * sum(n * len(group.costs) for n, group in zip(nodes, groups, strict=True)) + _WORK_OF_NODE * sum(nodes)

    def run(self) -> Chosen:
        """Return the best choice of patterns."""
        if not self._is_possible:
            return Chosen(np.inf)
        zero = np.zeros_like(self._count)
        steps = [part.pods for part in self._parts if part.is_optional]
        steps += [group.pods.max(axis=0) for part in self._parts for group in part.groups]
        table = _Table(self._count, np.minimum(np.max([zero, *steps], axis=0), self._count))
        choices, used = list[list[Integers]](), list[Mask | None]()
        for part in self._parts:
            before = table.costs if part.is_optional else None
            table.choose(part.pods[None] if part.is_optional else zero[None], np.array([part.cost]), 1)
            choices.append([chosen for group in part.groups for chosen in table.choose(group.pods, group.costs, len(group.nodes))])
            used.append(None if before is None else table.keep_cheaper(before))
        return self._traced(table, choices, used)

    def _traced(self, table: "_Table", choices: Sequence[Sequence[Integers]], used: Sequence[Mask | None]) -> Chosen:
        """Return the choices that led to the last cell of the table, which holds all pods."""
        cost, state, found = table.last_cost, self._count, list[tuple[int, int]]()
        if cost == np.inf:
            return Chosen(cost)
        for part, own, is_used in zip(reversed(self._parts), reversed(choices), reversed(used), strict=True):
            if is_used is not None and not is_used[table.cell(state)]:
                continue
            decided = iter(reversed(own))
            for group in reversed(part.groups):
                for kind in reversed(group.nodes):
                    choice = int(next(decided)[table.cell(state)])
                    state = state - group.pods[choice]
                    found.append((kind, group.pattern_of[kind][choice]))
            state = state - part.pods if part.is_optional else state
            found += part.always
        return Chosen(cost, [each for each in found if self._patterns.pods[each[1]].any()])


class _Group(NamedTuple):
    """Open nodes whose choices have equal pods and costs. ``nodes``: the kind of each node.

    ``pods``: int64[choices, roles], beyond what each of the nodes takes in any case. ``costs``: float64[choices]. ``pattern_of``: the
    pattern of each choice, by kind.
    """

    nodes: list[int]
    pods: Integers
    costs: Floats
    pattern_of: dict[int, list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The decisions in one domain. ``pods``, ``cost``: what the domain holds and costs in any case, if it is used.

    ``always``: the (kind, pattern) of each node that isn't decided about.
    """

    is_optional: bool
    pods: Integers
    cost: float
    always: Sequence[tuple[int, int]]
    groups: Sequence[_Group]

    @classmethod
    def of(cls, kinds: Kinds, patterns: Patterns, domain: Domain) -> Self:
        """Return the decisions in ``domain``."""
        always = [each for each in domain.fixed for _ in range(int(kinds.sizes[each[0]]))]
        own = [pattern for _, pattern in always]
        pods, cost = patterns.pods[own].sum(axis=0), domain.cost + float(patterns.costs[own].sum())
        groups: dict[bytes, _Group] = {}
        for kind, choices in domain.open:
            least, size = patterns.pods[choices].min(axis=0), int(kinds.sizes[kind])
            beyond, costs = patterns.pods[choices] - least, patterns.costs[choices]
            pods = pods + size * least
            group = groups.setdefault(beyond.tobytes() + costs.tobytes(), _Group([], beyond, costs, {}))
            group.nodes.extend([kind] * size)
            group.pattern_of[kind] = choices.tolist()
        return cls(domain.is_optional, pods, cost, always, list(groups.values()))

    def without_spare_nodes(self, pods: int) -> Self:
        """Return the decisions without the nodes of each group that take no more pods in any case: at most ``pods`` nodes do."""
        cost, always, groups = self.cost, list(self.always), list[_Group]()
        for group in self.groups:
            idle = np.flatnonzero(~group.pods.any(axis=1))
            if len(idle) and len(group.nodes) > pods:
                always += [(kind, group.pattern_of[kind][idle[0]]) for kind in group.nodes[pods:]]
                cost += float(group.costs[idle[0]]) * (len(group.nodes) - pods)
                group = group._replace(nodes=group.nodes[:pods])
            groups.append(group)
        return replace(self, cost=cost, always=always, groups=groups)


class _Table:
    """The least cost by numbers of pods. The cells lie in a larger array, so that cells of negative numbers exist and are infinite.

    ``count``: int64[roles], the largest numbers. ``largest``: int64[roles], the most pods of one choice; no more than ``count``.
    """

    def __init__(self, count: Integers, largest: Integers) -> None:
        sides = count + 1 + largest
        self._strides = np.append(np.cumprod(sides[:0:-1])[::-1], 1)
        self._shape = tuple((count + 1).tolist())
        grid = np.indices(self._shape).reshape(len(count), -1)
        self._cells = (grid + largest[:, None]).T @ self._strides
        self._count, self._costs = count, np.full(int(sides.prod()), np.inf)
        self._costs[self._cells[0]] = 0.0

    @property
    def costs(self) -> Floats:
        """A copy of the costs: float64[cells]."""
        costs: Floats = self._costs[self._cells]
        return costs

    @property
    def last_cost(self) -> float:
        """The cost of the cell that holds all pods."""
        return float(self._costs[self._cells[-1]])

    def cell(self, state: Integers) -> int:
        """Return the position of the cell for the numbers ``state``."""
        return int(np.ravel_multi_index(tuple(state.tolist()), self._shape))

    def choose(self, pods: Integers, costs: Floats, nodes: int) -> list[Integers]:
        """Let each of some nodes take one of some patterns. Return for each node which pattern leads to each cell: int64[cells].

        ``pods``: int64[patterns, roles]. ``costs``: float64[patterns].
        """
        possible = np.flatnonzero((pods <= self._count).all(axis=1))
        if not len(possible):
            self._costs[self._cells] = np.inf
            return [np.zeros(len(self._cells), dtype=np.int64)] * nodes
        sources, added, chosen = self._cells - (pods[possible] @ self._strides)[:, None], costs[possible, None], list[Integers]()
        for _ in range(nodes):
            ways = self._costs[sources]
            ways += added
            least = ways.min(axis=0)
            self._costs[self._cells] = least
            chosen.append(possible[(ways <= least + _TIE).argmax(axis=0)])
        return chosen

    def keep_cheaper(self, before: Floats) -> Mask:
        """Keep the costs ``before`` where they are no higher than now; return where they aren't: bool[cells]."""
        now = self.costs
        is_cheaper: Mask = now < before - _TIE
        self._costs[self._cells] = np.where(is_cheaper, now, before)
        return is_cheaper
