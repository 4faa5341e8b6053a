"""A gang: pods that start together or not at all. The words are those of the whole project.

*quorum* = minMember less the members that have succeeded; *bound* = members with a node, neither terminating nor terminal;
*missing* = what the quorum lacks. A gang is *whole* when nothing is missing, *absent* when nobody is bound, else *open*.

A *run* lasts from the first bind until nobody is bound; all its binds carry one id. Only who has succeeded in the run that is going on
counts: when nobody is bound, the next run needs its whole minimum.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from allaboard.model.constraints import GpuAsk
from allaboard.model.pod import Pod
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
    def owed(self) -> int:
        """Some, if anybody is bound."""
        return int(self.is_open)


@dataclass(frozen=True)  # without slots, for what is found out once: a gang of thousands is asked the same many times
class Gang:
    """One gang as it stands at one moment.

    ``members`` are the pods of ours that name it, terminal ones included, oldest first. ``created`` is seconds since the epoch, of
    the PodGroup or of the oldest member, whichever came first. ``uid`` is the PodGroup's, or the pod's for a gang of one; empty
    without either. ``topology`` is the node label of whose values few are to be used, empty when that doesn't matter.
    ``strategy`` is the name of who places it. ``gpus`` is what its PodGroup asks of the GPUs of members that ask for any. ``levels`` are
    the labels that members mean who ask for a level of the topology by a name, by that name.
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
    gpus: GpuAsk | None = None
    levels: tuple[tuple[str, str], ...] = ()
    hold: Hold | None = None

    @cached_property
    def alive(self) -> tuple[Pod, ...]:
        """Members that have not ended and aren't ending."""
        return tuple(pod for pod in self.members if not (pod.is_terminal or pod.is_terminating))

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
        """The id of the run that is going on, which whoever joins it is given; empty when nobody is bound, or not by us."""
        return next((pod.transaction for pod in self.bound if pod.transaction), "")

    def of_this_run(self) -> tuple[Pod, ...]:
        """Members that were bound in the run that is going on, the ended and ending ones that can still be seen among them."""
        runs = {pod.transaction for pod in self.bound if pod.transaction}
        return tuple(pod for pod in self.members if pod.node_name and pod.transaction in runs) if runs else ()

    @property
    def succeeded(self) -> int:
        """Members that have succeeded in the run that is going on."""
        return len(self._successes)

    def in_phase(self, phase: str) -> int:
        """How many members are in ``phase``, in whatever run."""
        return sum(pod.phase == phase for pod in self.members)

    @cached_property
    def _successes(self) -> tuple[Pod, ...]:
        if not any(pod.phase == "Succeeded" for pod in self.members):
            return ()  # the rule
        return tuple(pod for pod in self.of_this_run() if pod.phase == "Succeeded")

    @property
    def quorum(self) -> int:
        """Members that must be bound for the gang to be whole."""
        return max(0, self.min_member - self.succeeded)

    @property
    def missing(self) -> int:
        """Members the quorum lacks, or the roles if they lack more."""
        return max(0, self.quorum - len(self.bound), sum(self.lacking.values()))

    def missing_once_bound(self, uids: Collection[str]) -> int:
        """Members that are missing once candidates, by uid, have got a node."""
        return max(0, self.quorum - len(self.bound) - len(uids), sum(self._lacking(uids).values()))

    @property
    def lacking(self) -> Mapping[str, int]:
        """Members that roles lack of their own minimums."""
        return self._lacking()

    def _lacking(self, soon_bound: Collection[str] = ()) -> Mapping[str, int]:
        if not self.role_minimums:
            return {}
        here = self._here(soon_bound)
        return {role: minimum - here[role] for role, minimum in self.role_minimums if minimum > here[role]}

    def _here(self, soon_bound: Collection[str]) -> Counter[str]:
        """How many count of each role."""
        here = Counter(pod.role for pod in self._successes)
        here.update(pod.role for pod in self.alive if pod.node_name or pod.uid in soon_bound)
        return here

    @property
    def least(self) -> int:
        """How many candidates the next commit must bind at least. Members beyond the quorum ride along one by one, a next wave doesn't."""
        if self.missing:
            return self.missing
        wave = self.next_wave
        return max(1, self.required - len(self.bound)) if wave and len(wave) == len(self.candidates) else 1

    @cached_property
    def next_wave(self) -> frozenset[str]:
        """Candidates, by uid, that were made after the run had begun and are there when members of it have succeeded.

        A Job with more completions than parallelism makes them: they are not the others' leftovers, but start with a minimum of their own.
        """
        if not self._successes:
            return frozenset()
        # Times are whole seconds: who was made in the same one may have come after it.
        began = min(pod.bound_at for pod in self.of_this_run())
        return frozenset(pod.uid for pod in self.candidates if pod.created >= began)

    def startable(self, uids: Collection[str]) -> frozenset[str]:
        """Those of candidates, by uid, that may be bound in one commit.

        Of the next wave nobody but for a missing member's sake, unless with all of them the whole minimum is bound and alive.
        """
        chosen = frozenset(uids)
        wave = self.next_wave & chosen
        if not wave or len(self.bound) + len(chosen) >= self.required or self.missing_once_bound(chosen):
            return chosen
        minimums, here = dict(self.role_minimums), self._here(chosen)
        spare, left = len(self.bound) + len(chosen) - self.quorum, set(chosen)
        for pod in sorted((pod for pod in self.candidates if pod.uid in wave), key=lambda pod: pod.uid):
            if spare > 0 and here[pod.role] > minimums.get(pod.role, 0):
                spare, here[pod.role] = spare - 1, here[pod.role] - 1
                left.remove(pod.uid)
        return frozenset(left)

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
        return len(self.candidates) < self.least or bool(self.roles_without_pods)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return self.missing == 0

    @property
    def owed(self) -> int:
        """Members missing of what a transaction of ours has promised those that are bound: raising the minimum owes nobody anything."""
        promised = max((pod.promise for pod in self.bound), default=0)
        owed = max(0, min(promised, self.required) - self.succeeded - len(self.bound))
        # A promise that covers the minimums of roles promised them, too.
        return max(owed, sum(self.lacking.values())) if 0 < sum(least for _, least in self.role_minimums) <= promised else owed

    @property
    def required(self) -> int:
        """Members that must start together: the minimum, or those of the roles if they are more."""
        return max(self.min_member, sum(least for _, least in self.role_minimums))

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
