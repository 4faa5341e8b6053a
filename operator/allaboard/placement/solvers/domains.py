"""In which domain each group of roles sits that must all sit within one: such as a job's workers in one rack."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.problem import Problem, Together
from allaboard.placement.problem.valuation import Valuation, one_each
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.greedy import greedy_seeds

NOWHERE = -2  # no node's domain
_MOST = 32  # domains of a group that are tried
_CELLS = 1_000_000  # roles times nodes of all trials together: a third of a second


def in_best_domains(problem: Problem, counts: Integers | None, budget: Budget) -> tuple[Problem, Integers | None]:
    """``problem`` with a domain chosen for each of ``together``, and the placement that is known there: int64[roles, nodes].

    ``counts``: int64[roles, nodes] is a placement of the minimum; ``None`` when none is known, and then none is given back. From its
    domains each group in turn moves to the one where most sit, at the least cost by greed, of those with the most room. Those whose turn
    hasn't come when the search must end stay where they are; or, if nothing is known, go where there is most room.
    """
    is_known = counts is not None
    if counts is None:
        counts = np.zeros_like(problem.slots)
    chosen = [_domain_of(group, counts) for group in problem.together]
    best = problem.confined(chosen)
    least = Valuation(best).objective_value(counts)
    rules = ("spread", "thrifty") if problem.weights.spreading else ("thrifty",)
    most = min(_MOST, max(2, _CELLS // max(1, problem.slots.size * len(problem.together) * len(rules))))
    for position, group in enumerate(problem.together):
        if budget.is_over:
            if not is_known:
                best = problem.confined([*chosen[:position], *_roomiest(problem, problem.together[position:])])
            break
        for domain in _promising(problem, group)[:most]:
            trial = problem.confined([*chosen[:position], domain, *chosen[position + 1 :]])
            valuation = Valuation(trial)
            for _, slots in greedy_seeds(trial, valuation, rules):
                if (worth := valuation.objective_value(slots)) < least:
                    best, least, counts, chosen[position] = trial, worth, slots, domain
    return best, counts if is_known else None


def _roomiest(problem: Problem, groups: Sequence[Together]) -> list[int]:
    """For each of ``groups`` the domain that has most room for it, less what those before it may take there."""
    taken: Counter[int] = Counter()
    found = []
    for group in groups:
        known, _, room = capacity_in_domains(problem, group)
        left = {domain: slots - taken[domain] for domain, slots in zip(known.tolist(), room.tolist(), strict=True) if domain >= 0}
        domain = max(left, key=left.__getitem__, default=NOWHERE)
        taken[domain] += int(problem.count[list(group.roles)].sum())
        found.append(domain)
    return found


def capacity_in_domains(problem: Problem, group: Together) -> tuple[Integers, Integers, Integers]:
    """The domains of a group: int64[domains]; which of these each node is in: int64[nodes]; and how many of the group each seats.

    The last, int64[domains], counts each role as if it were alone.
    """
    known, place = np.unique(group.domains, return_inverse=True)
    place = place.ravel()
    room = np.zeros(len(known), dtype=np.int64)
    for role in group.roles:
        slots = np.bincount(place, weights=np.minimum(problem.slots[role], problem.count[role]), minlength=len(known))
        room += np.minimum(slots.astype(np.int64), problem.count[role])
    return known, place, room


def _domain_of(group: Together, counts: Integers) -> int:
    used = group.domains[counts[list(group.roles)].any(axis=0)]
    return int(used[0]) if len(used) else NOWHERE


def _promising(problem: Problem, group: Together) -> list[int]:
    """The domains that seat most of the group when its roles are alone, and of those first where single pods cost least."""
    known, place, room = capacity_in_domains(problem, group)
    costs = np.zeros(len(known))
    everywhere, valuation = np.arange(len(place)), Valuation(problem)
    for role in group.roles:
        alone = valuation.node_costs(everywhere, one_each(len(problem.roles), role, everywhere))
        least = np.full(len(known), np.inf)
        np.minimum.at(least, place, np.where(problem.slots[role] > 0, alone, np.inf))
        costs += least
    order = np.lexsort((costs, -room))
    return [int(known[row]) for row in order if known[row] >= 0 and room[row] > 0]
