"""The gangs of this scheduler's pods, kept up to date from events of pods, PodGroups and Jobs.

An event only changes a few dictionary entries. A ``Gang`` is assembled when it is queried. Everything for which a gang is held, such as a
malformed label or members that disagree, is found during assembly, so that no other package has to check a gang.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from allaboard.gangs.deciding_members import (
    creatable_minimums,
    deciding_members,
    first_of_each_options,
    is_rollout,
    priority_of,
    topology_of,
    within_limit,
)
from allaboard.gangs.job_counts import JobCounts
from allaboard.gangs.membership import Membership, membership_of
from allaboard.gangs.namespace_priority import NamespacePriority
from allaboard.gangs.options import choice_of, meaningless_option, of_group, one_of, option_of, role_minimums, walltime_of
from allaboard.gangs.owner_walltimes import OwnerWalltime
from allaboard.gangs.owners import Owners
from allaboard.gangs.podgroup import PodGroup
from allaboard.gangs.runs import Run, can_act_now, next_run, runs_of
from allaboard.model.gang import Gang, GangKey, Hold, Objective, OnMemberLost, Outline, Undo
from allaboard.model.limits import DELETED_RUNS, MEMBERS, POD_GROUPS, Limit
from allaboard.model.pod import Pod, by_age
from allaboard.plugins import DEFAULT_STRATEGY, SHIPPED_STRATEGIES
from allaboard.settings.options import Settings

DirtyListener = Callable[[GangKey], None]

_AGREE = "; the pods that wait must agree: delete those of the older template"

OVER_LIMIT = "OverLimit"
"""The reason of a hold for a gang that is over a limit; the hold's field is the limit's name."""


def over_limit(key: GangKey, limit: Limit, found: int) -> Hold:
    """Return the hold of a gang that exceeds ``limit``; ``found`` is the number that exceeds the limit."""
    return Hold(OVER_LIMIT, f"podgroup {key}: {found} {limit.words} are more than the {limit.most} that are supported", field=limit.name)


@dataclass(frozen=True, slots=True)
class GangDefaults:
    """The values of options that a gang doesn't state. ``objectives`` has the scheduler names that have an objective of their own."""

    objective: Objective = Objective.FRAGMENTATION
    timeout_seconds: int = 60
    topology: str = ""
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    strategy: str = DEFAULT_STRATEGY
    strategies: tuple[str, ...] = SHIPPED_STRATEGIES
    """The strategies that a gang may choose, besides ``strategy``."""

    @classmethod
    def by(cls, settings: Settings) -> Self:
        """Return the defaults of the operator's settings."""
        objectives = {name: profile.objective for name, profile in settings.profiles.items()}
        timeout = settings.schedule_timeout_seconds
        return cls(settings.objective, timeout, settings.topology, objectives, settings.strategy, settings.strategies)

    def objective_of(self, pod: Pod | None) -> Objective:
        """Return the default objective of a gang whose first pod is ``pod``; the general default for a gang without pods."""
        return self.objectives.get(pod.scheduler_name, self.objective) if pod else self.objective


class GangRegistry:
    """All gangs of this scheduler's pods. Used in the event loop's thread only."""

    def __init__(
        self,
        scheduler_names: Collection[str],
        namespaces: Collection[str] = (),
        defaults: GangDefaults | None = None,
        knows_whole: Callable[[GangKey, str], bool] = lambda key, run: False,
    ) -> None:
        """Create an empty registry.

        ``scheduler_names`` are the names that this scheduler's pods state. ``namespaces`` are the watched namespaces, empty for all.
        ``knows_whole`` returns whether a run of a gang is known to have been whole.
        """
        self._scheduler_names = frozenset(scheduler_names)
        self._namespaces = frozenset(namespaces)
        self._defaults = defaults or GangDefaults()
        self._members: dict[GangKey, dict[str, Pod]] = {}
        self._memberships: dict[str, Membership] = {}
        self._groups: dict[GangKey, PodGroup] = {}
        self._groups_of: Counter[str] = Counter()  # the number of PodGroups, by namespace
        self._assembled: dict[GangKey, Gang] = {}
        self._bound: dict[GangKey, set[str]] = {}  # UIDs of living members that have a node.
        self._started: dict[GangKey, set[str]] = {}  # UIDs of members that have a node, are terminating or have ended.
        self._first: dict[GangKey, Pod] = {}  # The oldest living member, where it is known.
        self._owners = Owners()
        self._deleted_successes: dict[GangKey, Counter[tuple[str, str]]] = {}
        self._deferred: dict[GangKey, set[str]] = {}  # deferred runs, each named by the UID of its first candidate
        self._listeners: list[DirtyListener] = []
        self.on_excess: Callable[[str], None] = lambda limit: None
        self.knows_whole = knows_whole
        self.namespace_priority = NamespacePriority(self.outline)
        self.arrivals = 0  # the number of this scheduler's pods that have come without a node

    def listen(self, on_dirty: DirtyListener) -> None:
        """Call ``on_dirty(key)`` after each change of a gang."""
        self._listeners.append(on_dirty)

    def apply(self, defaults: GangDefaults) -> None:
        """Replace the defaults. All gangs are assembled again when they are queried next."""
        self._defaults = defaults
        self._assembled.clear()

    def is_ours(self, pod: Pod) -> bool:
        """Return whether ``pod`` names this scheduler and is in a namespace that this scheduler covers."""
        return self.answers_to(pod.scheduler_name) and self._covers(pod.namespace)

    def answers_to(self, scheduler_name: object) -> bool:
        """Return whether ``scheduler_name`` is one of this scheduler's names."""
        return isinstance(scheduler_name, str) and scheduler_name in self._scheduler_names

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Apply a change of a pod from ``old`` to ``new``; None stands for a pod that doesn't exist."""
        if old is not None and new is not None and replace(old, resource_version=new.resource_version) == new:
            # Only the resourceVersion has changed, for instance because this scheduler wrote a condition.
            if membership := self._memberships.get(new.uid):
                self._members[membership.key][new.uid] = new
                self._assembled.pop(membership.key, None)
            return
        changed: dict[GangKey, None] = {}
        if old is not None and (membership := self._memberships.pop(old.uid, None)):
            members = self._members[membership.key]
            self._remove_member(membership.key, members.pop(old.uid))
            if old.phase == "Succeeded" and old.transaction and (new is None or new.uid != old.uid):
                deleted = self._deleted_successes.setdefault(membership.key, Counter())
                run = (old.owner.uid if old.owner else "", old.transaction)
                if run in deleted or len(deleted) < DELETED_RUNS.most:
                    deleted[run] += 1
            self._assembled.pop(membership.key, None)
            if not members:
                del self._members[membership.key]
            changed[membership.key] = None
        if new is not None and self.is_ours(new):
            self.arrivals += old is None and not new.is_bound
            membership = membership_of(new)
            self._memberships[new.uid] = membership
            self._members.setdefault(membership.key, {})[new.uid] = new
            self._add_member(membership.key, new)
            self._assembled.pop(membership.key, None)
            changed[membership.key] = None
        for key in changed:  # only at the end: otherwise a gang of one would seem to be gone in between
            if key not in self._members:
                self._deleted_successes.pop(key, None)
                self._deferred.pop(key, None)
            self._notify(key)

    def observe_group(self, group: PodGroup) -> None:
        """Apply a state of a PodGroup, unless a newer state is known."""
        old = self._groups.get(group.key)
        if (old and group.version < old.version) or not self._covers(group.key.namespace):
            return
        if old is None:
            if self._groups_of[group.key.namespace] >= POD_GROUPS.most:
                self.on_excess(POD_GROUPS.name)  # pods that name this PodGroup are held, as if it didn't exist
                return
            self._groups_of[group.key.namespace] += 1
        if group.over and (old is None or old.over != group.over):
            self.on_excess(group.over)
        self._groups[group.key] = group
        self._assembled.pop(group.key, None)
        if old is None or (old.uid, old.min_member, old.timeout_seconds, old.options, old.malformed, old.min_resources) != (
            group.uid,
            group.min_member,
            group.timeout_seconds,
            group.options,
            group.malformed,
            group.min_resources,
        ):
            self._notify(group.key)

    def observe_job(self, old: JobCounts | None, new: JobCounts | None) -> None:
        """Apply a change of a batch Job's counts from ``old`` to ``new``; None stands for a Job that doesn't exist."""
        self._observe_owners(self._owners.observe_job(old, new))

    def observe_owner(self, old: OwnerWalltime | None, new: OwnerWalltime | None) -> None:
        """Apply a change of the walltime that an owner of pods states; None stands for an owner that doesn't exist."""
        self._observe_owners(self._owners.observe_walltime(old, new))

    def forget_group(self, key: GangKey, version: int) -> None:
        """Remove a PodGroup that no longer existed at resourceVersion ``version``.

        A PodGroup with a newer version was created later, and is kept.
        """
        group = self._groups.get(key)
        if group is not None and group.version <= version:
            del self._groups[key]
            self._groups_of[key.namespace] -= 1
            if not self._groups_of[key.namespace]:
                del self._groups_of[key.namespace]
            self._assembled.pop(key, None)
            self._notify(key)

    def group(self, key: GangKey) -> PodGroup | None:
        """Return the PodGroup of a gang; None if there is none."""
        return self._groups.get(key)

    def groups(self) -> Collection[GangKey]:
        """Return the keys of all PodGroups, including PodGroups that no pod names."""
        return self._groups.keys()

    def bound_gangs(self) -> list[Gang]:
        """Return the gangs that have bound members, even if their PodGroup isn't known yet."""
        return [gang for key in self._bound if (gang := self.gang(key))]

    def known(self) -> Collection[GangKey]:
        """Return the keys of all gangs that have members or a PodGroup."""
        return self._members.keys() | self._groups.keys()

    def gangs(self) -> Iterator[Gang]:
        """Return an iterator over all gangs that have members or a PodGroup."""
        return filter(None, map(self.gang, self.known()))

    def knows(self, key: GangKey) -> bool:
        """Return whether the gang has a member or a PodGroup."""
        return key in self._members or key in self._groups

    def key_of(self, pod: Pod) -> GangKey | None:
        """Return the key of a known pod's gang; None if the pod isn't known as one of this scheduler's pods."""
        membership = self._memberships.get(pod.uid)
        return membership.key if membership else None

    def has_started(self, pod: Pod) -> bool:
        """Return whether the pod's gang has started: a member has a node, is terminating or has ended.

        For a pod of another scheduler the answer is always True.
        """
        return not self.is_ours(pod) or membership_of(pod).key in self._started

    def known_members(self, pod: Pod) -> Collection[Pod]:
        """Return the known members of the gang that ``pod`` names. ``pod`` itself may be unknown."""
        return self._members.get(membership_of(pod).key, {}).values()

    def needs_group(self, key: GangKey) -> bool:
        """Return whether only labels declare the gang, and its PodGroup is still to be created."""
        if key.kind != "PodGroup" or key in self._groups:
            return False
        return any(self._memberships[uid].min_member for uid in self._members.get(key, ()))

    def defer_run(self, gang: Gang) -> bool:
        """Let the gang's other runs go before the run of ``gang``, which can't be bound now. Return whether another run can be bound now.

        If no other run can be bound now, no run stays deferred, and the runs go in their usual order again.
        """
        key = gang.key
        if not gang.others or not gang.candidates:
            return False
        self._deferred.setdefault(key, set()).add(gang.candidates[0].uid)
        self.choose_again(key)
        following = self.gang(key)
        can_act = following is not None and can_act_now(following, self._deferred[key])
        if not can_act:
            self.defer_no_run(key)
        return can_act

    def defer_no_run(self, key: GangKey) -> None:
        """End the deferral of all runs of a gang: they go in their usual order again."""
        if self._deferred.pop(key, None):
            self.choose_again(key)

    def choose_again(self, key: GangKey) -> None:
        """Choose the gang's current run again when the gang is queried next, since facts about one of its runs have changed."""
        self._assembled.pop(key, None)

    def tolerates_eviction(self, pod: Pod) -> bool:
        """Return whether the owner of a pod makes the pod again without counting a failure: a batch Job counts one by default."""
        job = self._owners.jobs.get(pod.owner.uid) if pod.owner is not None and pod.is_of_job else None
        return job.tolerates_eviction if job is not None else not pod.is_of_job

    def root_of(self, pod: Pod) -> str:
        """Return the UID of the object that the pod's run belongs to (``Owners.root_of``); empty for a bare pod."""
        return self._owners.root_of(pod)

    def gang(self, key: GangKey) -> Gang | None:
        """Return the gang as it is now; None if it has neither members nor a PodGroup. It is assembled once after each change."""
        if key not in self._assembled:
            gang = self._assemble(key)
            if gang is None:
                return None
            self._assembled[key] = gang
        return self._assembled[key]

    def outline(self, key: GangKey) -> Outline | None:
        """Return the facts that decide a gang's queue position, without assembling the gang; None if no member is alive."""
        first = self.first_member(key)
        if first is None:
            return None
        group = self._groups.get(key)
        return Outline(key, first.priority, _created(group, first), is_partially_bound=key in self._bound)

    def first_member(self, key: GangKey) -> Pod | None:
        """Return the oldest living member of a gang; None if no member is alive."""
        first = self._first.get(key)
        if first is None:
            first = min((pod for pod in self._members.get(key, {}).values() if pod.is_alive), key=by_age, default=None)
            if first is not None:
                self._first[key] = first
        return first

    def since(self, gang: Gang | Outline) -> float:
        """Return the creation time that counts for a gang's queue position, in seconds since the epoch (``genius/priority``)."""
        return self.namespace_priority.since(gang)

    def _add_member(self, key: GangKey, pod: Pod) -> None:
        is_alive = pod.is_alive
        self.namespace_priority.add_member(key, pod)
        self._owners.add_pod(key, pod)
        if pod.node_name or not is_alive:
            self._started.setdefault(key, set()).add(pod.uid)
        if not is_alive:
            return
        if pod.node_name:
            self._bound.setdefault(key, set()).add(pod.uid)
        first = self._first.get(key)
        if first is not None and by_age(pod) < by_age(first):
            self._first[key] = pod

    def _remove_member(self, key: GangKey, pod: Pod) -> None:
        self.namespace_priority.remove_member(key, pod)
        self._owners.remove_pod(key, pod)
        for index in (self._bound, self._started):
            uids = index.get(key, set())
            uids.discard(pod.uid)
            if not uids:
                index.pop(key, None)
        first = self._first.get(key)
        if first is not None and first.uid == pod.uid:
            del self._first[key]

    def _assemble(self, key: GangKey) -> Gang | None:
        group = self._groups.get(key)
        members = sorted(within_limit(self._members.get(key, {}).values()), key=by_age)
        if group is None and not members:
            return None
        alive = [pod for pod in members if pod.is_alive]
        if len(alive) > MEMBERS.most:
            return self._over_limit_gang(key, group, members, alive)
        first = alive[0] if alive else (members[0] if members else None)
        runs = (
            [Run(tuple(members))]
            if key.kind == "Pod"
            else runs_of(members, self._required(group, alive), self._owners.jobs, self._deleted_successes.get(key, {}))
        )
        gang_of = partial(self._gang_of, key, group, created=_created(group, first))
        if len(runs) <= 1:
            return gang_of(runs[0] if runs else Run(()))
        gang = next_run(runs, gang_of, partial(self.knows_whole, key), self._deferred.get(key, ()))
        return replace(gang, others=tuple(pod for run in runs if run.members is not gang.members for pod in run.members))

    def _gang_of(self, key: GangKey, group: PodGroup | None, run: Run, *, created: float) -> Gang:
        """Return the gang with the members of ``run``, one of the gang's runs."""
        alive = [pod for pod in run.members if pod.is_alive]
        first = next((pod for pod in alive if pod.node_name), next(iter(alive or run.members), None))
        deciding = deciding_members(alive)
        minimum = self._min_member(group, deciding, alive)
        distinct = first_of_each_options(deciding)
        objective, objective_hold = choice_of("objective", Objective, group, distinct, self._defaults.objective_of(first))
        allowed = dict.fromkeys((self._defaults.strategy, *self._defaults.strategies))
        strategy, strategy_hold = option_of("strategy", one_of(allowed, "strategies"), group, distinct, self._defaults.strategy)
        undo, undo_hold = choice_of("undo", Undo, group, distinct, None)
        on_member_lost, lost_hold = choice_of("on-member-lost", OnMemberLost, group, distinct, OnMemberLost.HEAL)
        topology, topology_hold = topology_of(group, distinct, self._defaults.topology)
        minimums, minimums_hold = option_of("min-members", role_minimums, group, distinct, ())
        gpus, gpus_hold = of_group(group)
        walltime, walltime_hold = walltime_of(group, alive, distinct, self._owners.walltime_of)
        holds = (walltime_hold, gpus_hold, objective_hold, strategy_hold, lost_hold, undo_hold, topology_hold, minimums_hold)
        return Gang(
            key=key,
            min_member=minimum,
            members=run.members,
            priority=priority_of(alive) if alive else (first.priority if first else 0),
            created=created,
            objective=objective,
            timeout_seconds=(group.timeout_seconds if group else 0) or self._defaults.timeout_seconds,
            uid=group.uid if group else (first.uid if first and key.kind == "Pod" else ""),
            strategy=strategy,
            on_member_lost=on_member_lost,
            undo=undo,
            topology=topology.preferred,
            required_topology=topology.required,
            segment=(topology.segment, topology.segment_level),
            role_minimums=creatable_minimums(minimums, run),
            gpus=gpus,
            walltime=walltime,
            # minResources is for all members, and no longer applies if a Job creates fewer.
            min_resources=group.min_resources if group and not run.gone else (),
            hold=self._hold(key, group, alive, deciding, minimum) or next(filter(None, holds), None) or meaningless_option(group, distinct),
            gone=run.gone,
            deleted_successes=run.deleted_successes,
            may_replace=run.replaces,
        )

    def _required(self, group: PodGroup | None, alive: Sequence[Pod]) -> int:
        """Return how many members must start together, as the deciding members state it. Members are divided into runs by this number."""
        deciding = deciding_members(alive)
        minimums, _ = option_of("min-members", role_minimums, group, first_of_each_options(deciding), ())
        return max(self._min_member(group, deciding, alive), sum(least for _, least in minimums))

    def _over_limit_gang(self, key: GangKey, group: PodGroup | None, members: Sequence[Pod], alive: Sequence[Pod]) -> Gang:
        """Return a held gang with ``members``, whose number exceeds the limit. Their labels and annotations aren't read."""
        return Gang(
            key=key,
            min_member=self._min_member(group, alive[:1], alive),
            members=tuple(members),
            priority=alive[0].priority,
            created=_created(group, alive[0]),
            objective=self._defaults.objective_of(alive[0]),
            timeout_seconds=(group.timeout_seconds if group else 0) or self._defaults.timeout_seconds,
            uid=group.uid if group else "",
            hold=over_limit(key, MEMBERS, len(alive)),
        )

    def _min_member(self, group: PodGroup | None, deciding: Sequence[Pod], alive: Sequence[Pod]) -> int:
        """Return the gang's minimum.

        It is the labels' minimum if there is no PodGroup, or if the PodGroup was made from the labels. Otherwise it is the PodGroup's.
        Without labels and PodGroup it is the minimum that bound members are stamped with, at least 1.
        """
        stated = self._memberships[deciding[0].uid].min_member if deciding else None
        if stated is not None and (group is None or group.is_ours):
            return stated
        # A stamp may be forged. So the stamped minimum is at most the number of living members.
        return (
            group.min_member if group else min(len(alive), max((pod.stamped_min_member for pod in alive if pod.node_name), default=0)) or 1
        )

    def _hold(self, key: GangKey, group: PodGroup | None, alive: Sequence[Pod], deciding: Sequence[Pod], minimum: int) -> Hold | None:
        """Return a hold with the first reason why the members must not be scheduled; None if there is no reason.

        While pods wait, only their labels and annotations are checked: a running member doesn't hold the gang.
        """
        waiting = [pod for pod in alive if not pod.node_name]
        for pod in waiting or deciding:
            membership = self._memberships[pod.uid]
            if membership.error:
                return Hold(membership.reason, f"pod {pod.name}: {membership.error}", pod, membership.field)
            if pod.malformed:
                return Hold("InvalidPod", f"pod {pod.name}: {pod.malformed}", pod, pod.malformed.partition(": ")[0])
        if group is not None and group.malformed:
            return Hold("InvalidPodGroup", f"podgroup {key}: {group.malformed}", field=group.malformed.partition(": ")[0])
        # A partially bound gang isn't held when its PodGroup is deleted: its transaction may be in progress.
        if group is None and not 0 < len(alive) - len(waiting) < minimum:
            unstated = [pod for pod in (*waiting, *alive) if self._memberships[pod.uid].min_member is None]
            if unstated:
                pod = unstated[0]
                return Hold("PodGroupNotFound", f"PodGroup not found: pod {pod.name} names podgroup {key}", pod)
        for pod in deciding:
            stated = self._memberships[pod.uid].min_member
            if stated is not None and stated != minimum:
                text = f"PodGroupMinAvailables do not match: pod {pod.name} says {stated}, podgroup {key} has {minimum}{_AGREE}"
                return Hold("MinAvailableMismatch", text, pod, "metadata.labels[pod-group.scheduling.sigs.k8s.io/min-available]")
        for pod in () if is_rollout(waiting) else waiting:
            if pod.priority != waiting[0].priority:
                text = (
                    f"Priorities do not match: pod {pod.name} has {pod.priority}, pod {waiting[0].name} has {waiting[0].priority}{_AGREE}"
                )
                return Hold("PriorityMismatch", text, pod, "spec.priority")
        for pod in waiting:
            if pod.spec.unsupported:
                return Hold("Unsupported", f"pod {pod.name}: {'; '.join(pod.spec.unsupported)}", pod)
        return None

    def _observe_owners(self, concerned: Collection[GangKey]) -> None:
        """Let the gangs be assembled again whose owners have changed."""
        for key in concerned:
            self._assembled.pop(key, None)
            self._notify(key)

    def _covers(self, namespace: str) -> bool:
        return not self._namespaces or namespace in self._namespaces

    def _notify(self, key: GangKey) -> None:
        self.namespace_priority.update(key)
        for listener in self._listeners:
            listener(key)


def _created(group: PodGroup | None, first: Pod | None) -> float:
    """Return the creation time of a gang: that of its PodGroup or its oldest pod, whichever is older.

    The PodGroup of a gang that labels declare is created after the pods.
    """
    if group is None or first is None:
        return first.created if first else group.created if group else 0.0
    return min(group.created, first.created)
