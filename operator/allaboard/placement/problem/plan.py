"""What a search answers: where every pod goes, or why that can't be, and how the answer was found.

Plain records of names and numbers: they cross process borders, and only ``report/`` turns them into sentences.
"""

from dataclasses import dataclass

from allaboard.model.reasons import Counted


@dataclass(frozen=True, slots=True)
class Shortage:
    """One resource of which the nodes that could serve have less than the minimum takes, in the units of ``model.requests``."""

    resource: str
    requested: int
    free: int


@dataclass(frozen=True, slots=True)
class RoleExplanation:
    """How one role fared.

    ``most`` bounds from above how many of its pods the cluster could take if they were alone. ``reasons`` counts nodes by
    why they can't take one more, after the plan's own pods; empty when nobody is left out. ``is_spare``: they fit nowhere, and the
    minimum is no less without them.
    """

    pods: tuple[str, ...]
    unplaced: int
    most: int
    reasons: Counted
    is_spare: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """``placeable`` is how many members the plan seats, of which ``minimum`` are needed; ``lacking`` of those who are have no seat."""

    total_nodes: int
    minimum: int
    placeable: int
    roles: tuple[RoleExplanation, ...]
    shortage: Shortage | None
    lacking: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What had been reached when one step of a search ended: members placed and the score of the best plan so far.

    ``name``: exact, greedy, polish, evolution, solver, or joint. ``generations``: those of an evolution.
    """

    name: str
    placed: int
    score: float
    generations: int = 0


@dataclass(frozen=True, slots=True)
class SearchReport:
    """How the search went.

    Scores are in points (``points.Scale``): 100 where the placement costs nothing, 0 where each member costs as much as it can; above 100
    where it leaves the cluster's GPUs of more use than they were. ``stopped_by`` is one of

    - ``exact``: the best is known without a search (one pod, interchangeable pods); ``optimal``: nothing can be better than what was found;
    - ``domain``: as one of these two, but within the domains that were chosen for members who must share one;
    - ``joint``: it was placed together with others, by their search; ``strategy``: by one that isn't a search of ours;
    - ``patience``: another generation doesn't pay; ``generations``: there were as many as there may be;
    - ``bound``, ``proof``, ``no-nodes``: it can't be placed;
    - ``effort``, ``time``: all was spent that this search may take; ``greedy-only``: no evolution was wanted, or there are too many roles.

    ``history`` has, for each generation, the members placed and the score of the best plan so far. ``best_seed`` is the greedy rule
    that did best, and ``seed_score`` its score. ``found_by`` is the first step after which all that
    are needed had a seat (those that are bound may be a later one's), ``joint`` where it was placed with others, empty if none did.
    ``wanted`` is how many generations the settings want at least, where effort or time ended the search before; else 0.
    """

    seed_score: float
    score: float
    generations: int
    stopped_by: str
    history: tuple[tuple[int, float], ...]
    best_seed: str
    steps: tuple[Step, ...] = ()
    found_by: str = ""
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the pods go, as (pod uid, node name).

    ``feasible``: True when the minimum is placed, False when that is proved impossible, None when it was not found.
    Unless feasible, ``assignments`` are the best partial placement, for diagnosis only. ``warning``: what failed on the way to the plan
    and concerns the gang's user, such as its own strategy; empty if nothing did.
    """

    feasible: bool | None
    assignments: tuple[tuple[str, str], ...]
    unplaced: tuple[str, ...]
    explanation: Explanation
    search: SearchReport
    warning: str = ""

    @property
    def is_bindable(self) -> bool:
        """Whether there are members to bind: the minimum is placed, or bound already, and at least one member is placed."""
        return bool(self.feasible and self.assignments)
