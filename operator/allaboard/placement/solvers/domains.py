"""Choose a topology domain for each set of roles that must share one, such as a rack for the workers of a job."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation, one_each
from allaboard.placement.rules.together import Together
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.greedy import greedy_seeds

NOWHERE = -2  # No node is in this domain.
_MOST_TRIED = 32  # Domains tried for each group.
_MOST_CELLS = 1_000_000  # Roles times nodes of all trials together: a third of a second.


def in_best_domains(problem: Problem, counts: Integers | None, budget: Budget) -> tuple[Problem, Integers | None]:
    """Return ``problem`` with each set of roles of ``together`` confined to one domain, and the placement there: int64[roles, nodes].

    ``counts``: int64[roles, nodes], a placement of the minimum; None if none is known. Without it, None is returned for the placement.

    Each set of roles begins in its domain in ``counts``. One set after another moves to the domain that a greedy rule fills with the best
    objective value; the domains with the most capacity for the set are tried. If the end of ``budget`` comes first, the remaining sets stay
    in their domains in ``counts``. If no placement is known, the remaining sets get the domains with the most capacity.
    """
    is_known = counts is not None
    if counts is None:
        counts = np.zeros_like(problem.slots)
    chosen = [_domain_of(group, counts) for group in problem.together]
    best = problem.confined(chosen)
    least = Valuation(best).objective_value(counts)
    rules = ("spread", "thrifty") if problem.weights.spreading else ("thrifty",)
    most = min(_MOST_TRIED, max(2, _MOST_CELLS // max(1, problem.slots.size * len(problem.together) * len(rules))))
    for position, group in enumerate(problem.together):
        if budget.is_over:
            if not is_known:
                best = problem.confined([*chosen[:position], *_domains_with_most_capacity(problem, problem.together[position:])])
            break
        for domain in _domains_to_try(problem, group)[:most]:
            trial = problem.confined([*chosen[:position], domain, *chosen[position + 1 :]])
            valuation = Valuation(trial)
            for _, placed in greedy_seeds(trial, valuation, rules):
                if (value := valuation.objective_value(placed)) < least:
                    best, least, counts, chosen[position] = trial, value, placed, domain
    return best, counts if is_known else None


def _domains_with_most_capacity(problem: Problem, groups: Sequence[Together]) -> list[int]:
    """Return a domain for each of ``groups``: the one with the most capacity after the groups before it have taken theirs."""
    taken: Counter[int] = Counter()
    found = []
    for group in groups:
        domains, _, capacity = capacity_in_domains(problem, group)
        left = {domain: slots - taken[domain] for domain, slots in zip(domains.tolist(), capacity.tolist(), strict=True) if domain >= 0}
        domain = max(left, key=left.__getitem__, default=NOWHERE)
        taken[domain] += int(problem.count[list(group.roles)].sum())
        found.append(domain)
    return found


def capacity_in_domains(problem: Problem, group: Together) -> tuple[Integers, Integers, Integers]:
    """Return the domains of ``group``, the domain of each node, and how many members of the group each domain can take.

    The first array is int64[domains]. The second, int64[nodes], has positions in the first. In the third, int64[domains], each role is
    counted as if it were alone.
    """
    domains, domain_of_node = np.unique(group.domains, return_inverse=True)
    domain_of_node = domain_of_node.ravel()
    capacity = np.zeros(len(domains), dtype=np.int64)
    for role in group.roles:
        slots = np.bincount(domain_of_node, weights=np.minimum(problem.slots[role], problem.count[role]), minlength=len(domains))
        capacity += np.minimum(slots.astype(np.int64), problem.count[role])
    return domains, domain_of_node, capacity


def _domain_of(group: Together, counts: Integers) -> int:
    """Return the domain in which ``counts`` places members of ``group``; ``NOWHERE`` if no member is placed."""
    used = group.domains[counts[list(group.roles)].any(axis=0)]
    return int(used[0]) if len(used) else NOWHERE


def _domains_to_try(problem: Problem, group: Together) -> list[int]:
    """Return the domains that can take members of ``group``.

    The domains with the most capacity come first, and among equals those in which pods cost least.
    """
    domains, domain_of_node, capacity = capacity_in_domains(problem, group)
    costs = np.zeros(len(domains))
    everywhere, valuation = np.arange(len(domain_of_node)), Valuation(problem)
    for role in group.roles:
        alone = valuation.node_costs(everywhere, one_each(len(problem.roles), role, everywhere))
        least = np.full(len(domains), np.inf)
        np.minimum.at(least, domain_of_node, np.where(problem.slots[role] > 0, alone, np.inf))
        costs += least
    order = np.lexsort((costs, -capacity))
    return [int(domains[row]) for row in order if domains[row] >= 0 and capacity[row] > 0]
