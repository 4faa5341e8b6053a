"""The answer of a search: the node of every pod, or why there is none, and how the answer was found.

The records hold only names and numbers, since they are sent between processes. Only the package ``report`` turns the records into
sentences.
"""

from dataclasses import dataclass

from allaboard.model.reasons import Counted


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource of which all usable nodes together have less free than the minimum requests, in the units of ``model.requests``."""

    resource: str
    requested: int
    free: int


@dataclass(frozen=True, slots=True)
class RoleExplanation:
    """The number of unplaced pods of one role, and the reasons.

    ``most`` is an upper bound on the pods of the role that the cluster could take if it took no other role. ``reasons`` counts the nodes by
    why they can't take one more pod, with the plan's pods in place; empty if no pod of the role is left out. ``is_spare``: no pod of the
    role fits on any node, and the other roles are enough for the minimum.
    """

    pods: tuple[str, ...]
    unplaced: int
    most: int
    reasons: Counted
    is_spare: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """The number of members that the plan assigns, and the reasons why it doesn't assign all members.

    ``placeable`` is the number of members that the plan assigns; ``minimum`` members are needed. ``lacking`` is how many more members would
    have to be assigned to satisfy the minimum and the rules between members.
    """

    total_nodes: int
    minimum: int
    placeable: int
    roles: tuple[RoleExplanation, ...]
    shortage: Shortage | None
    lacking: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The best plan so far at the end of one step of a search: the number of members placed, and the score in points.

    ``name`` is exact, greedy, polish, evolution, solver, or joint. If a strategy other than ``genetic`` placed the gang, ``name`` is the
    strategy's name. ``generations`` is the number of generations if the step is an evolution, else 0.
    """

    name: str
    placed: int
    score: float
    generations: int = 0


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The course of a search and the reason for its end.

    Scores are in points (``points.Scale``): 100 where the placement costs nothing, 0 where each member costs as much as it can. A score
    above 100 means that the cluster's GPUs are of more use than before. ``stopped_by`` is one of

    - ``exact``: the placement was found without a search, and is proved to be the best;
    - ``optimal``: no placement can be better than the one found;
    - ``domain``: as ``exact`` or ``optimal``, but only within the domains that were chosen for members that must share one;
    - ``joint``: the gang was placed together with other gangs, by a joint search;
    - ``strategy``: a strategy other than ``genetic`` placed the gang;
    - ``patience``: another generation isn't worth its time;
    - ``generations``: the limit of generations is reached;
    - ``bound``, ``proof``, ``no-nodes``: the gang can't be placed;
    - ``effort``, ``time``: the effort or the time that this search may take is spent;
    - ``greedy-only``: evolution is switched off, or the gang has too many roles for it.

    ``history`` has the number of members placed and the score of the best plan so far, for each generation.
    ``best_seed`` is the name of the best greedy rule, and ``seed_score`` the score of that rule's placement.
    ``found_by`` is the first step after which all needed members had a node: ``joint`` for a joint search, empty if no step achieved this.
    A later step may have found the plan that is returned.
    ``wanted`` is the least number of generations by the settings, if effort or time ended the search before that number; else 0.
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
    """The node of each pod that is placed, as (pod UID, node name), and how the search went.

    ``feasible``: True if the minimum is placed, False if that is proved impossible, None if no placement of the minimum was found. Unless
    ``feasible`` is True, ``assignments`` are the best partial placement, for diagnosis only. ``warning``: a failure that the gang's user
    should know of, such as the failure of the strategy that the user chose; empty if there was none.
    """

    feasible: bool | None
    assignments: tuple[tuple[str, str], ...]
    unplaced: tuple[str, ...]
    explanation: Explanation
    search: SearchReport
    warning: str = ""

    @property
    def is_bindable(self) -> bool:
        """Return whether there are members to bind: at least one is assigned, and the minimum is assigned or bound already."""
        return bool(self.feasible and self.assignments)
