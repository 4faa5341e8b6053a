"""A gang: pods that start together or not at all. The words are those of the whole project.

*quorum* = minMember less the members that have succeeded; *bound* = members with a node, neither terminating nor terminal;
*missing* = what the quorum lacks. A gang is *whole* when nothing is missing, *absent* when nobody is bound, else *open*.

A *run* is one submission of a job, with everything that replaces its members; all its binds carry one id. Pods of several runs can name
one gang: a ``Gang`` is the run whose turn it is, and the pods of the other runs are kept apart (``gangs.runs``).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from allaboard.model.constraints import GpuRequest
from allaboard.model.pod import Pod
from allaboard.model.requests import Requests
from allaboard.plugins import DEFAULT_STRATEGY


class OnMemberLost(StrEnum):
    """What becomes of a gang that was whole and has lost a member."""

    HEAL = "heal"
    """The lost member's replacement is placed before other gangs of the same priority; the others keep running."""
    RELEASE = "release"
    """As heal, but once the gang's time-out has passed all its members are released."""
    IGNORE = "ignore"
    """The replacement is placed when its turn comes."""


class Undo(StrEnum):
    """How members that must give their seats back do so where deleting them would count against their batch Job."""

    SUSPEND = "suspend"
    """The Job is suspended, which deletes its pods without counting them, and resumed."""


class Objective(StrEnum):
    """What a placement should look like when several are possible."""

    BINPACK = "binpack"
    """As full nodes as possible."""
    SPREAD = "spread"
    """As empty nodes as possible."""
    FRAGMENTATION = "fragmentation"
    """As few free GPUs as possible that the cluster's workload can't use, in few topology domains; then as binpack."""


class GangKey(NamedTuple):  # hashed at each look into a map, which a tuple does fast
    """A gang's identity. Gangs never span namespaces. ``kind`` tells a PodGroup from a single pod of the same name."""

    namespace: str
    name: str
    kind: str = "PodGroup"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a gang must not be scheduled until somebody mends an object.

    ``reason`` is a CamelCase word for events; ``pod`` is the pod to mend, ``None`` when it is the PodGroup or the gang as a whole;
    ``field`` is the path of what to mend in it, empty when nothing in it is wrong by itself.
    """

    reason: str
    message: str
    pod: Pod | None = None
    field: str = ""


RoleMinimums = tuple[tuple[str, int], ...]
"""How many members of a role must start together, by the role's name."""


class Outline(NamedTuple):
    """As much of a gang of which somebody is alive as tells its place among others; fields as in ``Gang``.

    ``is_open`` is whether anybody is bound: then it may be open, and go before others. If it isn't, its place is further behind.
    """

    key: GangKey
    priority: int
    created: float
    is_open: bool = False
    on_member_lost: OnMemberLost = OnMemberLost.HEAL

    @property
    def missing_of_stamped(self) -> int:
        """1 if a member is bound, else 0: how many are missing isn't known."""
        return int(self.is_open)


@dataclass(frozen=True)  # without slots, for what is found out once: a gang of thousands is asked the same many times
class Gang:
    """One gang as it stands at one moment.

    ``members`` are the pods of the run whose turn it is, terminal ones included, oldest first; ``others`` are the pods of other runs.
    ``created`` is seconds since the epoch, of the PodGroup or of the oldest pod, whichever came first. ``gone`` is how many pods of the
    minimum no Job will make any more, since its completions have succeeded, and ``deleted_successes`` how many members of the run have
    succeeded and been deleted. ``may_replace`` tells that the pods come from a controller
    that has had members succeed: they may be replacements, and fewer than the minimum. ``settles`` tells that no more of them are waited
    for. ``uid`` is the PodGroup's, or the pod's for a gang of one; empty
    without either. ``topology`` is the node label of whose values few are to be used, empty when that doesn't matter.
    ``strategy`` is the name of who places it. ``gpus`` is what its PodGroup asks of the GPUs of members that ask for any. ``levels`` are
    the labels that members mean who ask for a level of the topology by a name, by that name. ``min_resources`` is what its PodGroup wants
    to be free before the gang starts.
    """

    key: GangKey
    min_member: int
    members: tuple[Pod, ...]
    priority: int
    created: float
    objective: Objective
    timeout_seconds: int
    uid: str = ""
    strategy: str = DEFAULT_STRATEGY
    on_member_lost: OnMemberLost = OnMemberLost.HEAL
    undo: Undo | None = None
    topology: str = ""
    required_topology: str = ""
    role_minimums: RoleMinimums = ()
    gpus: GpuRequest | None = None
    levels: tuple[tuple[str, str], ...] = ()
    min_resources: Requests = ()
    hold: Hold | None = None
    others: tuple[Pod, ...] = ()
    gone: int = 0
    deleted_successes: int = 0
    may_replace: bool = False
    settles: bool = False

    @property
    def all_pods(self) -> tuple[Pod, ...]:
        """The pods of all runs."""
        return (*self.members, *self.others) if self.others else self.members

    @property
    def bound_in_all_runs(self) -> tuple[Pod, ...]:
        """Pods of any run that have a node and keep it."""
        return (*self.bound, *(pod for pod in self.others if pod.is_bound and not pod.is_terminating)) if self.others else self.bound

    @property
    def alive_in_all_runs(self) -> tuple[Pod, ...]:
        """Pods of any run that have not ended and aren't ending."""
        return (*self.alive, *(pod for pod in self.others if pod.is_alive)) if self.others else self.alive

    @cached_property
    def alive(self) -> tuple[Pod, ...]:
        """Members that have not ended and aren't ending."""
        return tuple(pod for pod in self.members if pod.is_alive)

    @property
    def scheduler_name(self) -> str:
        """Whose pods they are: of the first that lives; empty without any."""
        first = next(iter(self.alive or self.members), None)
        return first.scheduler_name if first else ""

    @cached_property
    def bound(self) -> tuple[Pod, ...]:
        """Members that have a node and keep it."""
        return tuple(pod for pod in self.alive if pod.node_name)

    @cached_property
    def candidates(self) -> tuple[Pod, ...]:
        """Members that may be bound now."""
        return tuple(pod for pod in self.members if pod.is_candidate)

    @property
    def run(self) -> str:
        """The id that the binds of the run carry; empty when none of its members was bound by us."""
        return next((pod.transaction for pod in (*self.bound, *self.members) if pod.transaction and pod.node_name), "")

    def of_this_run(self) -> tuple[Pod, ...]:
        """Members that were bound in the run, the ended and ending ones that can still be seen among them."""
        return tuple(pod for pod in self.members if pod.node_name and pod.transaction)

    @property
    def succeeded(self) -> int:
        """Members that have succeeded in the run."""
        return len(self._successes) + self.deleted_successes

    def in_phase(self, phase: str) -> int:
        """How many pods are in ``phase``, in whatever run."""
        return sum(pod.phase == phase for pod in self.all_pods)

    @cached_property
    def _successes(self) -> tuple[Pod, ...]:
        if not any(pod.phase == "Succeeded" for pod in self.members):
            return ()  # the rule
        return tuple(pod for pod in self.of_this_run() if pod.has_succeeded)

    @property
    def quorum(self) -> int:
        """Members that must be bound for the gang to be whole."""
        return max(0, self.min_member - max(self.succeeded, self.gone))

    @property
    def missing(self) -> int:
        """Members the quorum lacks, or the roles if they lack more."""
        return max(0, self.quorum - len(self.bound), sum(self.lacking.values()))

    def missing_once_bound(self, uids: Collection[str]) -> int:
        """Members that are missing once candidates, by uid, have got a node; of a gang that ``settles``, those of them that haven't."""
        missing = max(0, self.quorum - len(self.bound) - len(uids), sum(self._lacking(uids).values()))
        return min(missing, max(0, self.least - len(uids))) if self.settles else missing

    @property
    def lacking(self) -> Mapping[str, int]:
        """Members that roles lack of their own minimums."""
        return self._lacking()

    def _lacking(self, soon_bound: Collection[str] = ()) -> Mapping[str, int]:
        if not self.role_minimums:
            return {}
        here = Counter(pod.role for pod in self._successes)
        here.update(pod.role for pod in self.alive if pod.node_name or pod.uid in soon_bound)
        return {role: minimum - here[role] for role, minimum in self.role_minimums if minimum > here[role]}

    @property
    def least(self) -> int:
        """How many candidates the next commit must bind at least. Members beyond the quorum ride along one by one."""
        return max(1, min(self.missing, len(self.candidates)) if self.settles else self.missing)

    @property
    def together(self) -> Mapping[tuple[str, str], tuple[Pod, ...]]:
        """Living members that must share the value of a node label, by that label and by role; the role is empty for all of a gang."""
        if not self.required_topology and not any(pod.options for pod in self.alive):
            return {}  # the rule
        meant = dict(self.levels)
        found: dict[tuple[str, str], list[Pod]] = {}
        for pod in self.alive:
            own = pod.option("required-topology")
            key = (meant.get(own, own), pod.role) if own else (self.required_topology, "")
            if key[0]:
                found.setdefault(key, []).append(pod)
        return {key: tuple(members) for key, members in found.items()}

    @property
    def awaits_pods(self) -> bool:
        """Whether pods that it needs don't exist yet."""
        return len(self.candidates) < self.least or bool(self.roles_without_pods and not self.settles)

    @property
    def can_act(self) -> bool:
        """Whether seats are to be found for members: somebody may be bound, and neither a hold nor missing pods are in the way."""
        return bool(self.candidates) and not self.awaits_pods and self.hold is None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return self.missing == 0

    @property
    def missing_of_stamped(self) -> int:
        """Members missing of the minimum that was stamped when the bound members were bound. A minimum raised later doesn't count."""
        stamped = max((pod.stamped_min_member for pod in self.bound), default=0)
        missing = max(0, min(stamped, self.required) - self.succeeded - len(self.bound))
        # A stamped minimum that covers the minimums of roles includes these.
        return max(missing, sum(self.lacking.values())) if 0 < sum(least for _, least in self.role_minimums) <= stamped else missing

    @property
    def required(self) -> int:
        """Members that must start together: the minimum, or those of the roles if they are more, but for pods that will never exist."""
        return max(1, self.min_member - max(0, self.gone - self.succeeded), sum(least for _, least in self.role_minimums))

    @property
    def roles_without_pods(self) -> Mapping[str, int]:
        """Members that roles lack and for which there are no pods."""
        if not self.role_minimums:
            return {}
        here = Counter(pod.role for pod in self.candidates)
        return {role: number - here[role] for role, number in self.lacking.items() if number > here[role]}

    @property
    def is_single(self) -> bool:
        """Whether it is one pod that named no group."""
        return self.key.kind == "Pod"

    @property
    def is_open(self) -> bool:
        """Whether some members are bound and others, that it needs, are not."""
        return bool(self.bound) and self.missing > 0
