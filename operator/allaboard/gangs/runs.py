"""Divide the members of a gang into runs, and choose the run to schedule next.

A *run* is one submission of a job, with all pods that replace its members. Pods of several runs can name one gang at the same time. For
example the Jobs of a CronJob overlap, a Job is submitted again, or a Job has more completions than parallelism. Each run is bound whole or
not at all, and no pod of one run counts for another. ``docs/reliability.md`` has the table of cases.

1. Controllers are grouped into *controller sets*; the pods of one set form the runs of one job. Controllers are in one set if some of their
   pods were bound in one run. Controllers are also in one set if only their pods together reach the minimum, such as the pods of a ``ps``
   Job and a ``worker`` Job.
2. The pods of a controller set are divided into runs by the stamps of the bound pods. A pod without a node replaces a lost member, or is a
   surplus member, or belongs to the next run.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType

from allaboard.gangs.job_counts import JobCounts, SeenPods
from allaboard.model.gang import Gang
from allaboard.model.pod import Owner, Pod, by_age

_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_OWN_LABELS = ("-index", "/pod-name", "job-name", "controller-uid", "pod-template-hash", "restart-attempt", "job-key", "/jobset-uid")
"""Suffixes of the labels that controllers set on their pods, and that differ between two runs of one job."""

_SERVING = frozenset(
    {("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("apps/v1", "DaemonSet"), ("v1", "ReplicationController")},
)
_SUBMITTED_TOGETHER_SECONDS = 10.0
"""Controllers whose first pods are created at most this many seconds apart count as submitted together."""
_MOST_RUNS = 16
"""The most runs into which the pods of one controller set (the controllers of one job) are divided."""


class Source(Enum):
    """The kind of a pod's controller, which decides how the pod's run is found."""

    BARE = auto()
    """No controller: a bare pod."""
    SERVING = auto()
    """A controller that keeps a number of pods running, such as a ReplicaSet. A gang's pods of such controllers count as one controller's
    pods, since a rollout replaces one controller by another."""
    JOB = auto()
    """A batch Job, which creates a pod for each completion, and another for each lost pod."""
    OPERATOR = auto()
    """A job operator's object, such as a TFJob, which recreates a lost pod."""

    @classmethod
    def of(cls, owner: Owner | None) -> "Source":
        """Return the kind of the controller ``owner``."""
        if owner is None:
            return cls.BARE
        if owner.is_batch_job:
            return cls.JOB
        return cls.SERVING if (owner.api_version, owner.kind) in _SERVING else cls.OPERATOR


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a gang.

    ``members`` are the run's pods, oldest first, including those that have ended.
    """

    members: tuple[Pod, ...]
    gone: int = 0
    """The number of pods that the minimum counts, but that no Job will create, since their completions are done."""
    gone_of_role: Mapping[str, int] = field(default_factory=dict)
    """The number of pods that no Job will create, by role; roles without such pods are left out."""
    deleted_successes: int = 0
    """The number of members that have succeeded and were deleted afterwards."""
    replaces: bool = False
    """True if the members may replace lost members of an ended run; then they may be fewer than the minimum."""

    @property
    def has_bound_member(self) -> bool:
        """True if a living member has a node."""
        return any(pod.node_name and pod.is_alive for pod in self.members)

    @property
    def is_complete(self) -> bool:
        """True if the run certainly needs nothing: all living members are bound, and they are at least as many as their stamps require."""
        living = [pod for pod in self.members if pod.is_alive]
        return all(pod.node_name and 0 < pod.stamped_min_member <= len(living) for pod in living)


DeletedSuccesses = Mapping[tuple[str, str], int]
"""The numbers of pods that have succeeded and were deleted afterwards.

The key is the pods' controller UID (empty for bare pods), and the run that they are stamped with.
"""


def runs_of(
    members: Sequence[Pod], minimum: int, jobs: Mapping[str, JobCounts], deleted_successes: DeletedSuccesses = MappingProxyType({})
) -> list[Run]:
    """Return the runs of a gang, the oldest first. All pods of ended runs are one run, which is the first.

    ``members`` are the gang's pods, oldest first. ``minimum`` is how many members must start together. ``jobs`` are the known batch Jobs
    by UID.
    """
    census = _Census(members, minimum, jobs, deleted_successes)
    if census.is_one_run:
        return [census.run(members)]
    runs = [run for controllers in census.controller_sets() for run in census.runs_in(controllers)]
    assigned = {pod.uid for run in runs for pod in run.members}
    past = tuple(pod for pod in members if pod.uid not in assigned)
    return [Run(past), *runs] if past else runs


def next_run(
    runs: Sequence[Run],
    gang_of: Callable[[Run], Gang],
    is_known_whole: Callable[[str], bool] = lambda run: False,
    deferred: Collection[str] = (),
) -> Gang:
    """Return the run to schedule next, as the gang that ``gang_of`` makes of it. ``runs`` are the runs of one gang, the oldest first.

    Partially bound runs go first, then runs that haven't started, then surplus members of whole runs. Some runs don't delay later runs:
    runs that wait for pods, held runs, and deferred runs (``deferred`` has the UID of the run's first waiting member). A partially bound
    run that may never have been whole is an exception: it delays later runs even while it waits for pods. If no run needs anything, the
    newest run is returned. At most 64 runs are considered.
    """
    started_first = sorted((run for run in runs if not run.is_complete), key=lambda run: not run.has_bound_member)
    best, best_step = None, _IS_DONE
    for run in started_first[:_MOST_CONSIDERED]:
        gang = gang_of(run)
        step = _next_step(gang, is_known_whole, deferred)
        if step < best_step:
            best, best_step = gang, step
        if best_step == _FINISHES or (best_step <= _STARTS and not run.has_bound_member):
            break
    return best or gang_of(runs[-1])


_FINISHES, _MAY_BE_CUT_OFF, _STARTS, _GROWS, _WAITS, _LACKS_PODS, _IS_DONE = range(7)
"""The possible next steps of a run. The run with the lowest step is scheduled first."""
_MOST_CONSIDERED = 64
"""The most runs of one gang that are considered when the next run is chosen."""


def can_act_now(gang: Gang, deferred: Collection[str]) -> bool:
    """Return whether the run has members to bind now and isn't deferred: the UID of its first waiting member isn't in ``deferred``."""
    return gang.can_act and gang.candidates[0].uid not in deferred


def _next_step(gang: Gang, is_known_whole: Callable[[str], bool], deferred: Collection[str]) -> int:
    can_act = can_act_now(gang, deferred)
    if gang.is_partially_bound and can_act:
        return _FINISHES
    is_cut_off = (
        gang.is_partially_bound
        and not gang.succeeded
        and len(gang.members_bound_in_run()) < max((pod.stamped_min_member for pod in gang.bound), default=0)
    )
    if is_cut_off and not is_known_whole(gang.run):
        return _MAY_BE_CUT_OFF  # it goes before other runs, so that its deadlines are kept
    if can_act:
        return _STARTS if gang.missing else _GROWS
    if gang.is_partially_bound or gang.candidates:
        return _WAITS
    return _LACKS_PODS if gang.alive and not gang.is_whole else _IS_DONE


class _ControllerSet:
    """The controllers of one job, and their living pods.

    ``roots`` are the UIDs of the controllers' root objects. ``size`` is how many pods the controllers create when they start. ``templates``
    are the kinds of pods (``_template_of``).
    """

    def __init__(self, roots: Iterable[str], pods: Iterable[Pod], size: int) -> None:
        self.roots, self.pods, self.size = list(roots), list(pods), size
        self.templates = {_template_of(pod) for pod in self.pods}

    def add(self, other: "_ControllerSet") -> None:
        """Add the controllers and pods of another controller set."""
        self.roots += other.roots
        self.pods += other.pods
        self.templates |= other.templates
        self.size += other.size


class _StartedRun:
    """A run of which some members are or were bound, while waiting pods are added to it.

    ``owners`` are the UIDs of the members' controllers. ``began`` is when the first member was bound. ``succeeded`` is the number of
    successes, also of deleted pods and of pods whose success only a Job's status shows.
    """

    def __init__(self, members: Sequence[Pod], minimum: int, deleted_successes: int, unseen_successes: int) -> None:
        self.members = list(members)
        self.owners = {pod.owner.uid for pod in members if pod.owner}
        self.began = min((pod.bound_at for pod in members if pod.transaction), default=0.0)
        self.succeeded = sum(pod.has_succeeded for pod in members) + deleted_successes + unseen_successes
        self._stamped_min_member = max((pod.stamped_min_member for pod in members), default=0) or minimum
        self._alive = sum(pod.is_alive for pod in members)
        self._failed = {_index_of(pod) for pod in members if pod.phase != "Succeeded" and not pod.is_alive} - {None}

    def take(self, pods: Sequence[Pod]) -> None:
        """Add waiting pods to the run."""
        self.members += pods
        self._alive += len(pods)
        self._failed -= {_index_of(pod) for pod in pods}

    @property
    def lost(self) -> int:
        """The number of lost members: members of the stamped minimum that are neither alive nor have succeeded."""
        return max(0, self._stamped_min_member - self.succeeded - self._alive)

    @property
    def lost_at_any_index(self) -> int:
        """The number of lost members that any waiting pod may replace.

        A Job replaces the pod of a failed index by a pod of the same index. A pod of another index doesn't replace it.
        """
        return max(0, self.lost - len(self._failed))

    def has_failed_at(self, pod: Pod) -> bool:
        """Return whether a member of the run has failed that had the same Job and completion index as ``pod``."""
        return bool(self._failed) and _index_of(pod) in self._failed

    def shares_controller(self, pod: Pod) -> bool:
        """Return whether ``pod`` has the controller of a member of the run; always true for a run of bare pods."""
        return not self.owners or (pod.owner is not None and pod.owner.uid in self.owners)


class _Census:
    """The members of a gang, counted by controller and by stamp.

    The work is linear in the number of members, except for sorting.
    """

    def __init__(self, members: Sequence[Pod], minimum: int, jobs: Mapping[str, JobCounts], deleted: DeletedSuccesses) -> None:
        self.minimum, self.jobs = minimum, jobs
        self.alive: dict[str, list[Pod]] = {}  # Living pods by root object, the root of the oldest pod first.
        self.by_stamp: dict[str, list[Pod]] = {}  # Pods that have a node, by the run that they are stamped with.
        self._roots: dict[int, str] = {}  # The UID of the root object, by the identity of the owner's record.
        self.bound_of: Counter[str] = Counter()  # The number of living pods that have a node, by the UID of the controller.
        self.succeeded_of: Counter[str] = Counter()  # The number of successes, by the UID of the controller.
        self.deleted_of_run: Counter[str] = Counter()  # The number of successes whose pods were deleted, by run.
        self.has_ended = bool(deleted)  # True if a member has ended or is terminating.
        for (owner, stamp), number in deleted.items():
            self.succeeded_of[owner] += number
            self.deleted_of_run[stamp] += number
        for pod in members:
            owner = pod.owner.uid if pod.owner else ""
            is_alive = pod.is_alive
            if is_alive:
                self.alive.setdefault(self.root(pod), []).append(pod)
                if not pod.node_name:
                    continue
            self.has_ended |= not is_alive
            self.bound_of[owner] += is_alive
            self.succeeded_of[owner] += pod.has_succeeded
            if pod.node_name:
                self.by_stamp.setdefault(pod.transaction, []).append(pod)

    @property
    def is_one_run(self) -> bool:
        """True if all members are certainly one run: they have one root object and at most one stamp, and none has ended."""
        has_successes = any(self.jobs[uid].done for uid in self.bound_of if uid in self.jobs)
        return len(self.alive) == 1 and len(self.by_stamp) <= 1 and not (self.has_ended or has_successes)

    def root(self, pod: Pod) -> str:
        """Return the UID of the pod's root object. All bare pods share one root, and all pods of serving controllers share another."""
        root = self._roots.get(id(pod.owner))
        if root is None:
            source = Source.of(pod.owner)
            if pod.owner is None or source is Source.SERVING:
                root = source.name
            else:
                job = self.jobs.get(pod.owner.uid)
                root = job.root if job else pod.owner.uid
            self._roots[id(pod.owner)] = root
        return root

    def controller_sets(self) -> list[_ControllerSet]:
        """Return the controller sets that have living pods: first the sets with bound pods, then all other sets; both from old to new."""
        started = self._started_sets()
        assigned = {root for controllers in started for root in controllers.roots}
        new: list[_ControllerSet] = []
        for root in self.alive:
            if root in assigned:
                continue
            controllers = self._set_of([root])
            if root in (Source.BARE.name, Source.SERVING.name) and (started or new):
                (started or new)[0].add(controllers)
            elif new and (new[-1].size < self.minimum or controllers.templates.isdisjoint(new[-1].templates)):
                new[-1].add(controllers)
            else:
                new.append(controllers)
        # A set without bound pods is part of the last set with bound pods, unless it is the same job again or is enough for a run of its
        # own.
        running = set[tuple[object, ...]]().union(*(controllers.templates for controllers in started))
        separate: list[_ControllerSet] = []
        for controllers in new:
            if not started or self._is_unknown(controllers) or self._is_separate(controllers, started[-1], running):
                separate.append(controllers)
            else:
                started[-1].add(controllers)
        return [*started, *separate]

    def runs_in(self, controllers: _ControllerSet) -> list[Run]:
        """Divide the pods of one controller set into runs, and return the runs, the oldest first."""
        bound = sorted((pod for pod in controllers.pods if pod.node_name), key=_bound_at)
        waiting = [pod for pod in controllers.pods if not pod.node_name]
        stamps = list(dict.fromkeys(pod.transaction for pod in bound if pod.transaction))
        # Any tenant can write a stamp. So the number of runs is limited: the pods of the oldest stamps count as one run.
        groups = (
            [stamps[: -_MOST_RUNS + 1], *([stamp] for stamp in stamps[-_MOST_RUNS + 1 :])]
            if len(stamps) > _MOST_RUNS
            else [[each] for each in stamps]
        )
        started = [self._started_run([pod for stamp in group for pod in self.by_stamp[stamp]]) for group in groups]
        if unstamped := [pod for pod in bound if not pod.transaction]:
            if started:
                started[0].take(unstamped)
            else:
                started = [self._started_run(unstamped)]
        replaces = False
        if not started and (ended := self._last_ended(waiting)):
            replaces = True
            started = [run] if (run := self._started_run(ended)).lost else []
        left = self._assign(waiting, started)
        return [self.run(each, replaces=replaces) for each in (*(run.members for run in started), left) if each]

    def _started_sets(self) -> list[_ControllerSet]:
        """Return the controller sets that have bound pods. Controllers whose pods were bound in one run are in one set."""
        leaders = {root: root for root in self.alive}

        def leader(root: str) -> str:
            while leaders.setdefault(root, root) != root:
                leaders[root] = root = leaders[leaders[root]]
            return root

        started: set[str] = set()
        for stamp in {pod.transaction: None for pods in self.alive.values() for pod in pods if pod.node_name}:
            first, *others = dict.fromkeys(self.root(pod) for pod in self.by_stamp[stamp])
            for other in others:
                leaders[leader(other)] = leader(first)
            started.add(first)
        led = {leader(root) for root in started}
        sets: dict[str, list[str]] = {}
        for root in self.alive:
            if leader(root) in led:
                sets.setdefault(leader(root), []).append(root)
        return [self._set_of(roots) for roots in sets.values()]

    def _set_of(self, roots: Iterable[str]) -> _ControllerSet:
        found = list(roots)
        pods = [pod for root in found for pod in self.alive[root]]
        owners = {pod.owner.uid for pod in pods if pod.owner} & self.jobs.keys()
        size = sum(self.jobs[uid].initial for uid in owners) + sum(1 for pod in pods if not (pod.owner and pod.owner.uid in owners))
        return _ControllerSet(found, pods, size)

    def _is_separate(self, controllers: _ControllerSet, last: _ControllerSet, running: Set[tuple[object, ...]]) -> bool:
        """Return whether controllers without bound pods begin a run of their own, and don't belong to ``last``, the last started set.

        ``running`` has the templates of bound pods. If one of these is a template of the controllers, they are the same job again, and so
        a run of their own. They are also a run of their own if they reach the minimum by themselves, were created later than ``last``, and
        their pods have no roles.
        """
        has_roles = any(pod.role for pod in controllers.pods)
        is_later = controllers.pods[0].created - last.pods[0].created > _SUBMITTED_TOGETHER_SECONDS
        return not controllers.templates.isdisjoint(running) or (controllers.size >= self.minimum and is_later and not has_roles)

    def _is_unknown(self, controllers: _ControllerSet) -> bool:
        """Return whether a pod of the controller set belongs to a batch Job that isn't known yet."""
        return any(pod.owner is not None and pod.is_of_job and pod.owner.uid not in self.jobs for pod in controllers.pods)

    def _last_ended(self, waiting: Sequence[Pod]) -> Sequence[Pod]:
        """Return the members of the last ended run if the ``waiting`` pods may replace some of them, else none.

        They may if a member has succeeded, and a Job or a job operator's object has created both members and waiting pods.
        """
        owners = {pod.owner.uid for pod in waiting if pod.owner and Source.of(pod.owner) in (Source.JOB, Source.OPERATOR)}
        runs = [pods for stamp, pods in self.by_stamp.items() if stamp and any(pod.owner and pod.owner.uid in owners for pod in pods)]
        last = max(runs, key=lambda pods: max(map(_bound_at, pods)), default=())
        return last if any(pod.has_succeeded for pod in last) or (last and self.deleted_of_run[last[0].transaction]) else ()

    def _started_run(self, members: Sequence[Pod]) -> "_StartedRun":
        """Return the run of ``members``, which are or were bound."""
        deleted = sum(self.deleted_of_run[stamp] for stamp in {pod.transaction for pod in members})
        # A success that only a Job's status shows may be a success of this run; then a missing member isn't lost.
        jobs = {pod.owner.uid for pod in members if pod.owner} & self.jobs.keys()
        unseen = sum(max(0, self.jobs[uid].done - self.succeeded_of[uid]) for uid in jobs)
        return _StartedRun(members, self.minimum, deleted, unseen)

    def _assign(self, waiting: Sequence[Pod], started: Sequence[_StartedRun]) -> list[Pod]:
        """Add each of the ``waiting`` pods to the started run that it belongs to. Return the pods that belong to none: the next run."""
        if not started:
            return list(waiting)
        left: list[Pod] = []
        # 1. Serving controllers and job operators have one run at a time: each of their pods belongs to it.
        for pod in waiting:
            if Source.of(pod.owner) in (Source.SERVING, Source.OPERATOR):
                own = [run for run in started if run.shares_controller(pod)] or started
                next((run for run in own if run.lost), own[0]).take([pod])
            else:
                left.append(pod)
        # 2. A pod for a failed index replaces the failed pod.
        for run in started:
            left = _move(left, [pod for pod in left if run.has_failed_at(pod)], run)
        # 3. Other pods replace lost members. Exception: bare pods that reach the minimum by themselves are the next run.
        left.sort(key=_by_index)
        for run in started:
            is_next = run.succeeded and len(left) >= self.minimum and all(pod.owner is None for pod in left)
            left = left if is_next else _move(left, [pod for pod in left if run.shares_controller(pod)][: run.lost_at_any_index], run)
        # 4. A pod that was created before a run's first bind is surplus of this run. So is any pod while no member has succeeded.
        is_first = not any(run.succeeded for run in started)
        for run in started:
            left = _move(left, [pod for pod in left if is_first or pod.created < run.began], run)
        return left

    def run(self, members: Sequence[Pod], *, replaces: bool = False) -> Run:
        """Return the run of ``members``, with the number of pods that its Jobs will not create (``Run.gone``).

        ``replaces``: the members may replace lost members of an ended run.
        """
        own = sorted(members, key=by_age)
        deleted = sum(self.deleted_of_run[stamp] for stamp in {pod.transaction for pod in own if pod.transaction})
        living = [pod for pod in own if pod.is_alive]
        owners = {id(pod.owner): pod.owner for pod in living}.values()  # mostly one record for all pods of a controller
        is_operators = replaces and all(Source.of(owner) is Source.OPERATOR for owner in owners)
        if not any(owner is not None and owner.uid in self.jobs for owner in owners):
            return Run(tuple(own), deleted_successes=deleted, replaces=is_operators)
        alive = Counter(pod.owner.uid for pod in living if pod.owner and pod.owner.uid in self.jobs)
        has_node = Counter(pod.owner.uid for pod in living if pod.owner and pod.node_name)
        sample = {pod.owner.uid: pod for pod in {id(pod.owner): pod for pod in living}.values() if pod.owner}
        gone: Counter[str] = Counter()
        for uid, number in alive.items():
            seen = SeenPods(number, has_node[uid], self.bound_of[uid] - has_node[uid], self.succeeded_of[uid])
            if (fewer := self.jobs[uid].initial - self.jobs[uid].left(seen)) > 0:
                gone[sample[uid].role] += fewer
        spare = sum(self.jobs[uid].initial for uid in alive) + len(living) - alive.total() - self.minimum
        return Run(tuple(own), max(0, gone.total() - max(0, spare)), dict(+gone), deleted, is_operators)


def _move(left: Sequence[Pod], taken: Sequence[Pod], run: _StartedRun) -> list[Pod]:
    """Add the pods ``taken`` to a run, and return ``left`` without them."""
    run.take(taken)
    uids = {pod.uid for pod in taken}
    return [pod for pod in left if pod.uid not in uids]


def _template_of(pod: Pod) -> tuple[object, ...]:
    """Return a key that equal pods of two runs of one job share.

    It consists of the kind of controller, and the pod's role. For a pod without a role, the key has the pod's labels that users write,
    instead of the role.
    """
    kind = (pod.owner.api_version, pod.owner.kind) if pod.owner else ()
    return (*kind, pod.role or tuple(pair for pair in pod.labels if not pair[0].endswith(_OWN_LABELS)))


def _index_of(pod: Pod) -> tuple[str, str] | None:
    """Return the UID of the Job and the completion index of an indexed Job's pod; None for any other pod."""
    index = pod.label(_INDEX_LABEL)
    return (pod.owner.uid, index) if index is not None and pod.owner else None


def _by_index(pod: Pod) -> tuple[int, float, str]:
    """Return a sort key: the completion index, since a Job creates the lowest missing index first, then the age."""
    index = pod.label(_INDEX_LABEL) or ""
    return int(index) if index.isdecimal() else 0, pod.created, pod.name


def _bound_at(pod: Pod) -> float:
    return pod.bound_at
