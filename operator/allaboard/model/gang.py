"""A gang: pods that start together or not at all. This module defines the words that the whole project uses.

*Quorum* is minMember minus the members that have succeeded. *Bound* members have a node, and are neither terminating nor terminal.
*Missing* members are those that the quorum lacks. A gang is *whole* if no member is missing. A gang with missing members is *partially
bound* if some members are bound, and *absent* if none are.

A *run* is one submission of a job, with all pods that replace its members; all binds of a run carry one id. Pods of several runs can name
one gang (``gangs.runs``). The ``members`` of a ``Gang`` are the pods of its current run, and ``others`` are the pods of its other runs. The
numbers of a ``Gang``, such as ``missing``, count members only, unless their docstrings name all runs.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from allaboard.model.constraints import GpuRequest
from allaboard.model.pod import Pod
from allaboard.model.ranks import segments_of
from allaboard.model.requests import Requests
from allaboard.model.topologies import TopologyWish, topology_wish
from allaboard.model.walltime import UNKNOWN
from allaboard.plugins import DEFAULT_STRATEGY


class OnMemberLost(StrEnum):
    """The reaction to the loss of a member, if the gang was whole before."""

    HEAL = "heal"
    """The lost member's replacement is placed before other gangs of the same priority; the other members keep running."""
    RELEASE = "release"
    """As with ``heal``, the replacement is placed first. Once the gang's time-out has passed, all members of the gang are released."""
    IGNORE = "ignore"
    """The lost member's replacement is placed at the gang's normal place in the queue."""


class Undo(StrEnum):
    """The way in which members of a batch Job are released without counting a failure of the Job for each deleted pod."""

    SUSPEND = "suspend"
    """The Job is suspended and later resumed: a suspended Job deletes its pods without counting failures."""


class Objective(StrEnum):
    """The preference if several placements are possible."""

    BINPACK = "binpack"
    """Nodes as full as possible."""
    SPREAD = "spread"
    """Nodes as empty as possible."""
    FRAGMENTATION = "fragmentation"
    """As few free GPUs as possible that the cluster's workload can't use, and few topology domains; among equals, as ``binpack``."""


class GangKey(NamedTuple):  # a tuple, since keys are hashed often and tuples hash fast
    """A gang's identity. A gang never spans namespaces. ``kind`` distinguishes a PodGroup from a single pod of the same name."""

    namespace: str
    name: str
    kind: str = "PodGroup"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Hold:
    """The reason why a gang isn't attempted until a user corrects an object.

    ``reason`` is a CamelCase word for events. ``pod`` is the pod to correct; ``None`` if the PodGroup or the gang as a whole has to be
    corrected. ``field`` is the path of the field to correct; empty if no single field is wrong.
    """

    reason: str
    message: str
    pod: Pod | None = None
    field: str = ""


RoleMinimums = tuple[tuple[str, int], ...]
"""The number of members of each role that must start together, as (role, number)."""


class Outline(NamedTuple):
    """The part of a gang that decides its place in the queue. At least one member of the gang is alive.

    The fields are those of ``Gang``. ``is_partially_bound`` is true if any member is bound. Such a gang is queued before other gangs, since
    it may be partially bound. If its ``Gang`` then shows that it is whole, it is moved further back.
    """

    key: GangKey
    priority: int
    created: float
    is_partially_bound: bool = False
    on_member_lost: OnMemberLost = OnMemberLost.HEAL

    @property
    def missing_of_stamped(self) -> int:
        """1 if a member is bound, else 0; an outline doesn't know how many members are missing."""
        return int(self.is_partially_bound)


@dataclass(frozen=True)  # without slots, so that properties are cached: a gang may have thousands of members
class Gang:
    """The state of one gang at one moment.

    ``members`` are the pods of the current run, oldest first, terminal pods included; ``others`` are the pods of other runs.
    ``created`` is the creation time of the PodGroup or of the oldest pod, whichever is earlier, in seconds since the epoch.
    ``uid`` is the UID of the PodGroup, or of the pod of a single-pod gang; empty without either.
    ``strategy`` is the name of the placement strategy. ``gpus`` is what the PodGroup asks of the GPUs of members that request GPUs.
    ``topology`` is the node label of which few values should be used; empty if none. ``required_topology`` is the node label whose value
    all members must share; empty if none. ``segment``: (number, node label): every so many members, by rank, must share a value of the
    label; 0 if none. ``levels`` has (name, node label) of each topology level that members ask for by name.
    A gang that asks for a topology gets neighbouring nodes by the ranks of its members. ``ordered_by`` are the node labels of all levels
    that the cluster has, the farthest level first.
    ``min_resources`` are the amounts that the PodGroup requires to be free before the gang starts. ``walltime`` is the longest time in
    seconds that the gang will run, as its owner states it (``model.walltime``).

    ``gone`` is the number of pods of the minimum that no Job will create, since their completions have succeeded. ``deleted_successes`` is
    the number of members of the run that have succeeded and were deleted. ``may_replace`` says that members of the pods' controller have
    succeeded. So the present pods may be replacements, of which fewer than the minimum are enough. ``settles`` says that the gang waits for
    no more pods, and is placed with the pods that exist.
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
    segment: tuple[int, str] = (0, "")
    role_minimums: RoleMinimums = ()
    gpus: GpuRequest | None = None
    levels: tuple[tuple[str, str], ...] = ()
    ordered_by: tuple[str, ...] = ()
    min_resources: Requests = ()
    walltime: float = UNKNOWN
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
        """Pods of all runs that have a node and are neither terminal nor terminating."""
        return (*self.bound, *(pod for pod in self.others if pod.is_bound and not pod.is_terminating)) if self.others else self.bound

    @property
    def alive_in_all_runs(self) -> tuple[Pod, ...]:
        """Pods of all runs that are neither terminal nor terminating."""
        return (*self.alive, *(pod for pod in self.others if pod.is_alive)) if self.others else self.alive

    @cached_property
    def alive(self) -> tuple[Pod, ...]:
        """Members that are neither terminal nor terminating."""
        return tuple(pod for pod in self.members if pod.is_alive)

    @property
    def scheduler_name(self) -> str:
        """The scheduler of the oldest living member; of the oldest member if none is alive; empty without members."""
        first = next(iter(self.alive or self.members), None)
        return first.scheduler_name if first else ""

    @cached_property
    def bound(self) -> tuple[Pod, ...]:
        """Members that have a node and are neither terminal nor terminating."""
        return tuple(pod for pod in self.alive if pod.node_name)

    @cached_property
    def candidates(self) -> tuple[Pod, ...]:
        """Members that may be bound now."""
        return tuple(pod for pod in self.members if pod.is_candidate)

    @property
    def run(self) -> str:
        """The id that the binds of the current run carry; empty if this scheduler has bound none of its members."""
        return next((pod.transaction for pod in (*self.bound, *self.members) if pod.transaction and pod.node_name), "")

    def members_bound_in_run(self) -> tuple[Pod, ...]:
        """Return the members that were bound in the run. Terminal and terminating members are included as long as they exist."""
        return tuple(pod for pod in self.members if pod.node_name and pod.transaction)

    @property
    def succeeded(self) -> int:
        """The number of members that have succeeded in the run, deleted members included."""
        return len(self._successes) + self.deleted_successes

    def in_phase(self, phase: str) -> int:
        """Return how many pods are in ``phase``: members and the pods of other runs together."""
        return sum(pod.phase == phase for pod in self.all_pods)

    @cached_property
    def _successes(self) -> tuple[Pod, ...]:
        if not any(pod.phase == "Succeeded" for pod in self.members):
            return ()  # the usual case
        return tuple(pod for pod in self.members_bound_in_run() if pod.has_succeeded)

    @property
    def quorum(self) -> int:
        """The number of members that must be bound for the gang to be whole."""
        return max(0, self.min_member - max(self.succeeded, self.gone))

    @property
    def missing(self) -> int:
        """The number of members that the quorum lacks, or that the roles lack of their own minimums if that is more."""
        return max(0, self.quorum - len(self.bound), sum(self.lacking.values()))

    def missing_once_bound(self, uids: Collection[str]) -> int:
        """Return how many members will be missing once the candidates ``uids`` are bound.

        A gang that ``settles`` waits for no further pods. So it lacks at most ``least`` candidates, less the candidates ``uids``.
        """
        missing = max(0, self.quorum - len(self.bound) - len(uids), sum(self._lacking(uids).values()))
        return min(missing, max(0, self.least - len(uids))) if self.settles else missing

    @property
    def lacking(self) -> Mapping[str, int]:
        """The number of members that each role lacks of its own minimum, by role; only roles that lack members."""
        return self._lacking()

    def _lacking(self, soon_bound: Collection[str] = ()) -> Mapping[str, int]:
        if not self.role_minimums:
            return {}
        here = Counter(pod.role for pod in self._successes)
        here.update(pod.role for pod in self.alive if pod.node_name or pod.uid in soon_bound)
        return {role: minimum - here[role] for role, minimum in self.role_minimums if minimum > here[role]}

    @property
    def least(self) -> int:
        """The least number of candidates that the next transaction must bind.

        Members beyond the quorum are surplus. They may be placed one by one.
        """
        return max(1, min(self.missing, len(self.candidates)) if self.settles else self.missing)

    @property
    def together(self) -> Mapping[tuple[str, str], tuple[Pod, ...]]:
        """Living members that must be on nodes with one value of a node label, by (label, role).

        The role is empty if the rule is for the whole gang, whatever its pods state beside.
        """
        if not self.required_topology and not any(pod.options for pod in self.alive):
            return {}  # the usual case
        meant = dict(self.levels)
        found: dict[tuple[str, str], list[Pod]] = {(self.required_topology, ""): list(self.alive)} if self.required_topology else {}
        for pod in self.alive:
            if own := required_by(pod):
                found.setdefault((meant.get(own, own), pod.role), []).append(pod)
        return {key: tuple(members) for key, members in found.items()}

    @cached_property
    def segments(self) -> Mapping[tuple[int, str, str], Sequence[Sequence[Pod]]]:
        """The segments of the living members, by (size, node label, role): the members of a segment must share a value of the label.

        The role is empty if the whole gang is divided. Members are divided by rank. Members that have ended keep their places, unless
        others have their ranks.
        """
        if not self.segment[0] and not any(pod.options for pod in self.alive):
            return {}  # the usual case
        meant = dict(self.levels)
        found: dict[tuple[int, str, str], list[Pod]] = {}
        for pod in self.members:
            wish = wish_of(pod)
            key = (wish.segment, meant.get(wish.segment_level, wish.segment_level), pod.role) if wish.segment else (*self.segment, "")
            if key[0]:
                found.setdefault(key, []).append(pod)
        return {key: segments_of(members, key[0]) for key, members in found.items()}

    @property
    def awaits_pods(self) -> bool:
        """Return whether the gang needs pods that don't exist yet."""
        return len(self.candidates) < self.least or bool(self.roles_without_pods and not self.settles)

    @property
    def can_act(self) -> bool:
        """Return whether the gang can be placed: it has candidates, and neither a hold nor missing pods prevent its placement."""
        return bool(self.candidates) and not self.awaits_pods and self.hold is None

    @property
    def is_whole(self) -> bool:
        """Return whether no member is missing."""
        return self.missing == 0

    @property
    def missing_of_stamped(self) -> int:
        """The number of members that are missing of the stamped minimum: the one that the binds of the bound members state.

        A minimum that was raised after these binds doesn't count.
        """
        stamped = max((pod.stamped_min_member for pod in self.bound), default=0)
        missing = max(0, min(stamped, self.required) - self.succeeded - len(self.bound))
        # A stamped minimum of at least the sum of the roles' minimums includes these.
        return max(missing, sum(self.lacking.values())) if 0 < sum(least for _, least in self.role_minimums) <= stamped else missing

    @property
    def required(self) -> int:
        """The number of members that must start together, at least 1.

        This is the minimum less the pods that will never exist, or the sum of the roles' minimums if that is more.
        """
        return max(1, self.min_member - max(0, self.gone - self.succeeded), sum(least for _, least in self.role_minimums))

    @property
    def roles_without_pods(self) -> Mapping[str, int]:
        """The number of members that each role lacks beyond its candidates, by role; only roles with too few candidates."""
        if not self.role_minimums:
            return {}
        here = Counter(pod.role for pod in self.candidates)
        return {role: number - here[role] for role, number in self.lacking.items() if number > here[role]}

    @property
    def is_single(self) -> bool:
        """Return whether the gang is a single pod that names no gang."""
        return self.key.kind == "Pod"

    @property
    def is_partially_bound(self) -> bool:
        """Return whether the gang is partially bound: some members are bound, and members that it needs are missing."""
        return bool(self.bound) and self.missing > 0


def required_by(pod: Pod) -> str:
    """Return the topology level or label of which all members of a pod's role must share a domain, as the pod states it; empty if none."""
    return (pod.option("required-topology") or wish_of(pod).required) if pod.options else ""


def wish_of(pod: Pod) -> TopologyWish:
    """Return the topology that a pod asks for; that of a malformed option is empty, since it holds the gang."""
    stated = pod.option("topology")
    try:
        return topology_wish(stated) if stated else TopologyWish()
    except ValueError:
        return TopologyWish()
