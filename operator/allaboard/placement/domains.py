"""In which domain each group of roles sits that must all sit within one: such as a job's workers in one rack."""

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.greedy import greedy_seeds
from allaboard.placement.problem import Problem, Together
from allaboard.placement.valuation import Valuation

_NOWHERE = -2
_MOST = 32  # domains of a group that are tried, those with the most room first


def in_best_domains(problem: Problem, counts: Integers | None) -> Problem:
    """``problem`` with a domain chosen for each of ``together``.

    ``counts``: int64[roles, nodes] is a placement of the minimum; ``None`` when there is none, and then nobody of the groups may sit.
    From its domains each group in turn moves to the one where most sit, at the least cost.
    """
    if counts is None:
        return problem.confined([_NOWHERE] * len(problem.together))
    chosen = [_domain_of(group, counts) for group in problem.together]
    best = problem.confined(chosen)
    least = Valuation(best).worth(counts)
    for position, group in enumerate(problem.together):
        for domain in _roomy(problem, group):
            trial = problem.confined([*chosen[:position], domain, *chosen[position + 1 :]])
            valuation = Valuation(trial)
            worth = min(valuation.worth(seats) for _, seats in greedy_seeds(trial, valuation, ("thrifty",)))
            if worth < least:
                best, least, chosen[position] = trial, worth, domain
    return best


def _domain_of(group: Together, counts: Integers) -> int:
    used = group.domains[counts[list(group.roles)].any(axis=0)]
    return int(used[0]) if len(used) else _NOWHERE


def _roomy(problem: Problem, group: Together) -> list[int]:
    """The domains that seat most of the group when its roles are alone."""
    known, place = np.unique(group.domains, return_inverse=True)
    room = np.zeros(len(known), dtype=np.int64)
    for role in group.roles:
        seats = np.bincount(place.ravel(), weights=np.minimum(problem.seats[role], problem.count[role]), minlength=len(known))
        room += np.minimum(seats.astype(np.int64), problem.count[role])
    order = np.argsort(-room, kind="stable")
    return [int(known[row]) for row in order if known[row] >= 0 and room[row] > 0][:_MOST]
