"""Fix how many pods of each role are in each domain, so that every placement of the pods keeps the rules between members.

A rule such as anti-affinity by zone restricts how many pods of which roles are in each zone. A placement that keeps the rules says how many
there are. By these numbers each role is divided into *parts*: a part has the pods of the role in one domain, and may use the nodes of this
domain only. Searches that know no such rule then improve on the placement within the domains.
"""

from dataclasses import dataclass, replace

import numpy as np

from allaboard.model.arrays import Integers, Mask
from allaboard.placement.problem.problem import Problem, Role
from allaboard.placement.rules.capacity import slots_for

_MOST_PARTS = 64  # With more parts a search takes longer than it is worth.


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A problem whose roles are parts of the roles of another problem. ``origin``: int64[parts], the role of each part."""

    problem: Problem
    origin: Integers

    def divided(self, counts: Integers) -> Integers:
        """Return the placement ``counts`` of the roles, int64[roles, nodes], as one of the parts: int64[parts, nodes]."""
        return np.where(self.problem.admits, counts[self.origin], 0)

    def merged(self, counts: Integers, roles: int) -> Integers:
        """Return the placement ``counts`` of the parts, int64[parts, nodes], as one of the roles: int64[roles, nodes]."""
        found = np.zeros((roles, counts.shape[1]), dtype=np.int64)
        np.add.at(found, self.origin, counts)
        return found


def parts_of(problem: Problem, counts: Integers) -> Parts | None:
    """Return ``problem`` with its roles divided by the domains that the placement ``counts`` uses: int64[roles, nodes].

    All pods that ``counts`` places must be placed. The pods that it doesn't place are parts that no node admits. None if there would be too
    many parts.
    """
    numbers = problem.coupled_classes()
    used = [np.unique(numbers[role][counts[role] > 0]).tolist() for role in range(len(counts))]
    if sum(map(len, used)) > _MOST_PARTS:
        return None
    origin, least = list[int](), list[int]()
    roles, admits = list[Role](), list[Mask]()
    for role, known in enumerate(used):
        pods = list(problem.roles[role].pods)
        for here in (numbers[role] == domain for domain in known):
            number = int(counts[role][here].sum())
            roles.append(replace(problem.roles[role], pods=tuple(pods[:number])))
            del pods[:number]
            origin.append(role)
            least.append(number)
            admits.append(problem.admits[role] & here)
        if pods:
            roles.append(replace(problem.roles[role], pods=tuple(pods)))
            origin.append(role)
            least.append(0)
            admits.append(np.zeros(counts.shape[1], dtype=np.bool_))
    order = np.array(origin, dtype=np.int64)
    mask = np.array(admits, dtype=np.bool_).reshape(len(order), counts.shape[1])
    divided = replace(
        problem,
        minimum=sum(least),
        least=np.array(least, dtype=np.int64),
        roles=tuple(roles),
        count=np.array([len(role.pods) for role in roles], dtype=np.int64),
        demand=problem.demand[order],
        admits=mask,
        slots=np.where(mask, problem.slots[order], 0),
        shares=problem.shares[order],
        scoring=problem.scoring.of_roles(order),
        dislike=None if problem.dislike is None else problem.dislike[order],
        fragmentation=problem.fragmentation.of_roles(order) if problem.fragmentation else None,
        sums=(),
        couplings=(),
        attractions=tuple(each.of_roles(order) for each in problem.attractions),
    )
    return Parts(divided, order)


def placed_in_turn(problem: Problem) -> Integers:
    """Return a placement that keeps all couplings: one pod after another, on the nodes that take the fewest pods: int64[roles, nodes].

    The roles that fit least often go first. Pods for which no node is left aren't placed.
    """
    counts, left = np.zeros_like(problem.slots), problem.free.copy()
    for role in np.argsort(problem.slots.sum(axis=1), kind="stable").tolist():
        for _ in range(int(problem.count[role])):
            slots = slots_for(problem.demand[role], left, problem.admits[role] & problem.allowed(counts, role))
            rows = np.flatnonzero(slots)
            if not len(rows):
                break
            row = int(rows[slots[rows].argmin()])
            counts[role, row] += 1
            left[:, row] -= problem.demand[role]
    trimmed: Integers = problem.trimmed(counts[None])[0]
    return trimmed
