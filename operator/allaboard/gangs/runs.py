"""Divide the members of a gang into runs, and choose the run to schedule next.

A *run* is one submission of a job, with all pods that replace its members. Pods of several runs can name one gang at the same time: a
CronJob whose Jobs overlap, a Job that is submitted again, the next pods of a Job with more completions than parallelism. Each run is
bound whole or not at all, and no pod of one run counts for another. The table of cases is in ``docs/reliability.md``.

1. Pods are divided into *lineages* by their controllers. Controllers whose pods were bound in one run are one lineage, and so are those
   that are needed to reach the minimum together, such as a ``ps`` and a ``worker`` Job.
2. A lineage is divided into runs by the stamps of its bound pods. A pod without a node replaces a lost member of its lineage, or is a
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
"""Suffixes of labels that a controller sets on its pods and that differ between two runs of one job."""

_SERVING = frozenset(
    {("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("apps/v1", "DaemonSet"), ("v1", "ReplicationController")},
)
_TOGETHER_SECONDS = 10.0
"""Seconds after the first controller's pods within which the pods of a controller submitted with it come."""
_MOST_RUNS = 16
"""The largest number of runs into which one lineage is divided."""


class Source(Enum):
    """The kind of a pod's controller, as far as it matters for the pod's run."""

    BARE = auto()
    """No controller: a bare pod."""
    SERVING = auto()
    """A controller that keeps a number of pods running, such as a ReplicaSet. All such controllers of a gang belong together, since a
    rollout replaces one by another."""
    JOB = auto()
    """A batch Job, which creates a pod for each completion and for each lost pod."""
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

    ``members`` are its pods, oldest first, including those that have ended. ``gone`` is the number of pods that must start together but
    that no Job will create, and ``deleted_successes`` the number of members that have succeeded and been deleted. ``replaces`` is true if
    pods of the members' controller have succeeded already: the members may then be replacements, and fewer than the minimum.
    """

    members: tuple[Pod, ...]
    gone: int = 0
    gone_of_role: Mapping[str, int] = field(default_factory=dict)
    deleted_successes: int = 0
    replaces: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether a member has a node and lives."""
        return any(pod.node_name and pod.is_alive for pod in self.members)

    @property
    def is_complete(self) -> bool:
        """Whether the run certainly needs nothing: no pod waits, and either none or at least the stamped minimum is alive."""
        living = [pod for pod in self.members if pod.is_alive]
        return all(pod.node_name and 0 < pod.stamped_min_member <= len(living) for pod in living)


DeletedSuccesses = Mapping[tuple[str, str], int]
"""The number of pods that have succeeded and been deleted, by their controller's UID (empty without one) and their stamped run."""


def runs_of(
    members: Sequence[Pod], minimum: int, jobs: Mapping[str, JobCounts], deleted_successes: DeletedSuccesses = MappingProxyType({})
) -> list[Run]:
    """Return the runs of a gang's ``members`` (oldest first), the oldest run first; pods of runs that have ended come before all others.

    ``minimum`` is how many members start together. ``jobs`` are the batch Jobs that are known, by UID.
    """
    census = _Census(members, minimum, jobs, deleted_successes)
    if census.is_one_run:
        return [census.run(members)]
    runs = [run for lineage in census.lineages() for run in census.divided(lineage)]
    placed = {pod.uid for run in runs for pod in run.members}
    past = tuple(pod for pod in members if pod.uid not in placed)
    return [Run(past), *runs] if past else runs


def next_in_turn(
    runs: Sequence[Run],
    gang_of: Callable[[Run], Gang],
    is_known_whole: Callable[[str], bool] = lambda run: False,
    passed: Collection[str] = (),
) -> Gang:
    """Return the run to schedule next as a gang made by ``gang_of``; ``runs`` are those of one gang, the oldest first.

    A partially bound run goes before a run that hasn't started, unless it was whole and waits for pods. A run doesn't delay others while
    it waits for pods, is held, or the UID of its first candidate is in ``passed``. Surplus members come last. If no run needs anything,
    the newest is returned. Of very many runs only the first are considered.
    """
    begun_first = sorted((run for run in runs if not run.is_complete), key=lambda run: not run.has_begun)
    best, best_turn = None, _RESTS
    for run in begun_first[:_MOST_LOOKED_AT]:
        gang = gang_of(run)
        turn = _turn(gang, is_known_whole, passed)
        if turn < best_turn:
            best, best_turn = gang, turn
        if best_turn == _FINISHES or (best_turn <= _STARTS and not run.has_begun):
            break
    return best or gang_of(runs[-1])


_FINISHES, _MAY_BE_CUT_OFF, _STARTS, _GROWS, _WAITS, _IS_SHORT, _RESTS = range(7)
"""The possible next steps of a run; a lower one goes first."""
_MOST_LOOKED_AT = 64
"""The number of runs of one gang whose next step is computed each time."""


def may_act(gang: Gang, passed: Collection[str]) -> bool:
    """Return whether the run needs nodes for members, and the UID of its first candidate isn't in ``passed``."""
    return gang.can_act and gang.candidates[0].uid not in passed


def _turn(gang: Gang, is_known_whole: Callable[[str], bool], passed: Collection[str]) -> int:
    can_act = may_act(gang, passed)
    if gang.is_partially_bound and can_act:
        return _FINISHES
    is_cut = (
        gang.is_partially_bound
        and not gang.succeeded
        and len(gang.members_bound_in_run()) < max((pod.stamped_min_member for pod in gang.bound), default=0)
    )
    if is_cut and not is_known_whole(gang.run):
        return _MAY_BE_CUT_OFF  # its deadlines must be kept
    if can_act:
        return _STARTS if gang.missing else _GROWS
    if gang.is_partially_bound or gang.candidates:
        return _WAITS
    return _IS_SHORT if gang.alive and not gang.is_whole else _RESTS


class _Lineage:
    """The living pods of controllers that belong together, and their sorts; ``size`` is how many pods the controllers run at once."""

    def __init__(self, roots: Iterable[str], pods: Iterable[Pod], size: int) -> None:
        self.roots, self.pods, self.size = list(roots), list(pods), size
        self.sorts = {_sort_of(pod) for pod in self.pods}

    def add(self, other: "_Lineage") -> None:
        """Add the controllers and pods of ``other``."""
        self.roots += other.roots
        self.pods += other.pods
        self.sorts |= other.sorts
        self.size += other.size


class _Going:
    """A run with members that are bound or were bound, while its other members are assigned."""

    def __init__(self, members: Sequence[Pod], minimum: int, deleted_successes: int, unseen_successes: int) -> None:
        self.members = list(members)
        self.owners = {pod.owner.uid for pod in members if pod.owner}
        self.began = min((pod.bound_at for pod in members if pod.transaction), default=0.0)
        self.succeeded = sum(pod.has_succeeded for pod in members) + deleted_successes + unseen_successes
        self._stamped_min_member = max((pod.stamped_min_member for pod in members), default=0) or minimum
        self._alive = sum(pod.is_alive for pod in members)
        self._failed = {_index_of(pod) for pod in members if pod.phase != "Succeeded" and not pod.is_alive} - {None}

    def take(self, pods: Sequence[Pod]) -> None:
        """Add living pods to the run."""
        self.members += pods
        self._alive += len(pods)

    @property
    def lost(self) -> int:
        """The number of members missing of the stamped minimum: neither alive nor succeeded."""
        return max(0, self._stamped_min_member - self.succeeded - self._alive)

    def has_failed_at(self, pod: Pod) -> bool:
        """Return whether ``pod`` is an indexed Job's pod for an index that a member of the run has failed at."""
        return bool(self._failed) and _index_of(pod) in self._failed

    def is_of(self, pod: Pod) -> bool:
        """Return whether the controller of ``pod`` has made members of the run."""
        return not self.owners or (pod.owner is not None and pod.owner.uid in self.owners)


class _Census:
    """The members of a gang, counted once. All work here is linear in their number, except for sorting."""

    def __init__(self, members: Sequence[Pod], minimum: int, jobs: Mapping[str, JobCounts], deleted: DeletedSuccesses) -> None:
        self.minimum, self.jobs = minimum, jobs
        self.alive: dict[str, list[Pod]] = {}  # by root, the root of the oldest pod first
        self.by_stamp: dict[str, list[Pod]] = {}
        self._roots: dict[int, str] = {}  # by the identity of the owner's record
        self.bound_of: Counter[str] = Counter()  # living pods, by the UID of the controller
        self.succeeded_of: Counter[str] = Counter()
        self.deleted_of_run: Counter[str] = Counter()
        self.has_ended = bool(deleted)  # whether a member has ended or is terminating
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
        """Whether all members are certainly one run: of one root, with at most one stamp, and none has ended."""
        has_successes = any(self.jobs[uid].done for uid in self.bound_of if uid in self.jobs)
        return len(self.alive) == 1 and len(self.by_stamp) <= 1 and not (self.has_ended or has_successes)

    def root(self, pod: Pod) -> str:
        """Return the UID of the pod's root object; all bare pods share one root, as do all pods of serving controllers."""
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

    def lineages(self) -> list[_Lineage]:
        """Return the lineages with living pods: first those that have started, then the others, each from old to new."""
        begun = self._begun()
        placed = {root for lineage in begun for root in lineage.roots}
        fresh: list[_Lineage] = []
        for root in self.alive:
            if root in placed:
                continue
            lineage = self._lineage([root])
            if root in (Source.BARE.name, Source.SERVING.name) and (begun or fresh):
                (begun or fresh)[0].add(lineage)
            elif fresh and (fresh[-1].size < self.minimum or lineage.sorts.isdisjoint(fresh[-1].sorts)):
                fresh[-1].add(lineage)
            else:
                fresh.append(lineage)
        # Late pods are part of the started lineage, unless they are the same job again or enough for a run of their own.
        running = set[tuple[object, ...]]().union(*(lineage.sorts for lineage in begun))
        apart: list[_Lineage] = []
        for lineage in fresh:
            if not begun or self._is_unknown(lineage) or self._is_apart(lineage, begun[-1], running):
                apart.append(lineage)
            else:
                begun[-1].add(lineage)
        return [*begun, *apart]

    def divided(self, lineage: _Lineage) -> list[Run]:
        """Return the runs of one lineage, the oldest first."""
        bound = sorted((pod for pod in lineage.pods if pod.node_name), key=_bound_at)
        waiting = [pod for pod in lineage.pods if not pod.node_name]
        stamps = list(dict.fromkeys(pod.transaction for pod in bound if pod.transaction))
        # Any tenant can write a stamp: beyond a limit the oldest count as one run.
        together = (
            [stamps[: -_MOST_RUNS + 1], *([stamp] for stamp in stamps[-_MOST_RUNS + 1 :])]
            if len(stamps) > _MOST_RUNS
            else [[each] for each in stamps]
        )
        going = [self._going([pod for stamp in some for pod in self.by_stamp[stamp]]) for some in together]
        if unstamped := [pod for pod in bound if not pod.transaction]:
            if going:
                going[0].take(unstamped)
            else:
                going = [self._going(unstamped)]
        replaces = False
        if not going and (ended := self._last_ended(waiting)):
            replaces = True
            going = [run] if (run := self._going(ended)).lost else []
        rest = self._assigned(waiting, going)
        return [self.run(each, replaces=replaces) for each in (*(run.members for run in going), rest) if each]

    def _begun(self) -> list[_Lineage]:
        """Return the lineages with bound pods: controllers whose pods were bound in one run belong together."""
        leaders = {root: root for root in self.alive}

        def leader(root: str) -> str:
            while leaders.setdefault(root, root) != root:
                leaders[root] = root = leaders[leaders[root]]
            return root

        begun: set[str] = set()
        for stamp in {pod.transaction: None for pods in self.alive.values() for pod in pods if pod.node_name}:
            first, *others = dict.fromkeys(self.root(pod) for pod in self.by_stamp[stamp])
            for other in others:
                leaders[leader(other)] = leader(first)
            begun.add(first)
        led = {leader(root) for root in begun}
        lineages: dict[str, list[str]] = {}
        for root in self.alive:
            if leader(root) in led:
                lineages.setdefault(leader(root), []).append(root)
        return [self._lineage(roots) for roots in lineages.values()]

    def _lineage(self, roots: Iterable[str]) -> _Lineage:
        found = list(roots)
        pods = [pod for root in found for pod in self.alive[root]]
        owners = {pod.owner.uid for pod in pods if pod.owner} & self.jobs.keys()
        size = sum(self.jobs[uid].initial for uid in owners) + sum(1 for pod in pods if not (pod.owner and pod.owner.uid in owners))
        return _Lineage(found, pods, size)

    def _is_apart(self, lineage: _Lineage, last: _Lineage, running: Set[tuple[object, ...]]) -> bool:
        """Return whether a lineage that hasn't started is a run of its own.

        ``last`` is the last lineage that has started, and ``running`` are the sorts of pods of all lineages that have.
        """
        has_roles = any(pod.role for pod in lineage.pods)
        is_later = lineage.pods[0].created - last.pods[0].created > _TOGETHER_SECONDS
        return not lineage.sorts.isdisjoint(running) or (lineage.size >= self.minimum and is_later and not has_roles)

    def _is_unknown(self, lineage: _Lineage) -> bool:
        """Return whether any pod is of a batch Job that isn't known yet."""
        return any(pod.owner is not None and pod.is_of_job and pod.owner.uid not in self.jobs for pod in lineage.pods)

    def _last_ended(self, waiting: Sequence[Pod]) -> Sequence[Pod]:
        """Return the members of the last ended run, if some have succeeded and its controllers made the ``waiting`` pods; else empty."""
        owners = {pod.owner.uid for pod in waiting if pod.owner and Source.of(pod.owner) in (Source.JOB, Source.OPERATOR)}
        runs = [pods for stamp, pods in self.by_stamp.items() if stamp and any(pod.owner and pod.owner.uid in owners for pod in pods)]
        last = max(runs, key=lambda pods: max(map(_bound_at, pods)), default=())
        return last if any(pod.has_succeeded for pod in last) or (last and self.deleted_of_run[last[0].transaction]) else ()

    def _going(self, members: Sequence[Pod]) -> "_Going":
        """Return the started run of ``members``, some of which are bound or were bound."""
        deleted = sum(self.deleted_of_run[stamp] for stamp in {pod.transaction for pod in members})
        # Successes that only a Job's status shows may be of this run, and then no member is lost.
        jobs = {pod.owner.uid for pod in members if pod.owner} & self.jobs.keys()
        unseen = sum(max(0, self.jobs[uid].done - self.succeeded_of[uid]) for uid in jobs)
        return _Going(members, self.minimum, deleted, unseen)

    def _assigned(self, waiting: Sequence[Pod], going: Sequence[_Going]) -> list[Pod]:
        """Add the ``waiting`` pods to the started runs that they belong to, and return the others: they are the next run."""
        if not going:
            return list(waiting)
        rest: list[Pod] = []
        # 1. Controllers that keep a number of pods running have one run at a time.
        for pod in waiting:
            if Source.of(pod.owner) in (Source.SERVING, Source.OPERATOR):
                own = [run for run in going if run.is_of(pod)] or going
                next((run for run in own if run.lost), own[0]).take([pod])
            else:
                rest.append(pod)
        # 2. A pod for a failed index replaces the failed pod.
        for run in going:
            rest = _promoted(rest, [pod for pod in rest if run.has_failed_at(pod)], run)
        # 3. Other pods replace lost members. Bare pods that are enough for a run of their own are the next run instead.
        rest.sort(key=_by_index)
        for run in going:
            is_next = run.succeeded and len(rest) >= self.minimum and all(pod.owner is None for pod in rest)
            rest = rest if is_next else _promoted(rest, [pod for pod in rest if run.is_of(pod)][: run.lost], run)
        # 4. Pods from before a run's start are left over from it. Pods that come while no member has succeeded enlarge the run.
        is_first = not any(run.succeeded for run in going)
        for run in going:
            rest = _promoted(rest, [pod for pod in rest if is_first or pod.created < run.began], run)
        return rest

    def run(self, members: Sequence[Pod], *, replaces: bool = False) -> Run:
        """Return the run of ``members``, with the number of pods that its Jobs will not create."""
        own = sorted(members, key=by_age)
        deleted = sum(self.deleted_of_run[stamp] for stamp in {pod.transaction for pod in own if pod.transaction})
        living = [pod for pod in own if pod.is_alive]
        owners = {id(pod.owner): pod.owner for pod in living}.values()  # mostly one object for all pods of a controller
        is_operators = replaces and all(Source.of(owner) is Source.OPERATOR for owner in owners)
        if not any(owner is not None and owner.uid in self.jobs for owner in owners):
            return Run(tuple(own), deleted_successes=deleted, replaces=is_operators)
        here = Counter(pod.owner.uid for pod in living if pod.owner and pod.owner.uid in self.jobs)
        has_node = Counter(pod.owner.uid for pod in living if pod.owner and pod.node_name)
        some_of = {pod.owner.uid: pod for pod in {id(pod.owner): pod for pod in living}.values() if pod.owner}
        gone: Counter[str] = Counter()
        for uid, number in here.items():
            seen = SeenPods(number, has_node[uid], self.bound_of[uid] - has_node[uid], self.succeeded_of[uid])
            if (fewer := self.jobs[uid].initial - self.jobs[uid].left(seen)) > 0:
                gone[some_of[uid].role] += fewer
        spare = sum(self.jobs[uid].initial for uid in here) + len(living) - here.total() - self.minimum
        return Run(tuple(own), max(0, gone.total() - max(0, spare)), dict(+gone), deleted, is_operators)


def _promoted(rest: Sequence[Pod], taken: Sequence[Pod], run: _Going) -> list[Pod]:
    """Move pods ``taken`` from the ``rest`` into a run; return the remaining ones."""
    run.take(taken)
    uids = {pod.uid for pod in taken}
    return [pod for pod in rest if pod.uid not in uids]


def _sort_of(pod: Pod) -> tuple[object, ...]:
    """Return a key that pods of two runs of a job share: the kind of controller, and the role or the labels that users write."""
    kind = (pod.owner.api_version, pod.owner.kind) if pod.owner else ()
    return (*kind, pod.role or tuple(pair for pair in pod.labels if not pair[0].endswith(_OWN_LABELS)))


def _index_of(pod: Pod) -> tuple[str, str] | None:
    """Return the Job and the completion index of an indexed Job's pod."""
    index = pod.label(_INDEX_LABEL)
    return (pod.owner.uid, index) if index is not None and pod.owner else None


def _by_index(pod: Pod) -> tuple[int, float, str]:
    """Order pods by completion index, since a Job creates the lowest missing one first, and by age."""
    index = pod.label(_INDEX_LABEL) or ""
    return int(index) if index.isdecimal() else 0, pod.created, pod.name


def _bound_at(pod: Pod) -> float:
    return pod.bound_at
