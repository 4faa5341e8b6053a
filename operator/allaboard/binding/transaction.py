"""Bind a planned gang as one transaction: all members or none.

A Kubernetes bind can't be undone; the pod can only be deleted. The plan is therefore checked against the live view and dry-run first. Every
bind is stamped with its transaction and the gang's minimum, so that this process or the next leader can finish or undo a partial bind.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal
from uuid import uuid4

from allaboard.binding.bind import Binder
from allaboard.binding.outcomes import Assignment, BindReply, Committed, NotAdmitted, Refused, Result, Undone, VolumesNotBound
from allaboard.binding.precheck import checked, spoilt
from allaboard.binding.volume_binding import VolumeBinder
from allaboard.cluster.view import ClusterView
from allaboard.kube.request_limits import in_slices
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang
from allaboard.model.gpu_sharing import annotations_of
from allaboard.model.pod import WALLTIME, Pod, stamp_of
from allaboard.model.walltime import NEVER, UNKNOWN
from allaboard.placement import Violation

logger = logging.getLogger(__name__)

DryRun = Literal["role", "all", "none"]


@dataclass(slots=True)
class Transaction:
    """Binds the assignments of one gang, whose capacity is assumed in the view until each is bound or forgotten.

    ``Transactions.begin`` makes a transaction, and explains the parameters.
    """

    gang: Gang
    assignments: Sequence[Assignment]
    view: ClusterView
    binder: Binder
    current_gang: Callable[[], Gang | None]
    dry_run: DryRun = "role"
    may_be_refused: Callable[[], bool] = lambda: True
    was_whole: bool = False
    volumes: VolumeBinder | None = None
    new_run: str = field(init=False, default_factory=lambda: uuid4().hex[:12])
    now: Callable[[], float] = time.time
    """Returns seconds since the epoch, for the annotations that GPU drivers read."""
    _valid_at: dict[str, tuple[object, int]] = field(default_factory=dict)
    """By pod UID, the version of the node for which the assignment was last found valid."""

    def __post_init__(self) -> None:
        self._note_valid(self.assignments)

    @property
    def stamp(self) -> str:
        """The stamp of every bind: the run's id (a new one if no member is bound), the gang's minimum, and whether the run was whole."""
        run = self.gang.run
        return stamp_of(run or self.new_run, self.gang.required, was_whole=bool(run) and self.was_whole)

    async def commit(self) -> Committed | Refused:
        """Dry-run the binds, bind volumes, check the plan again, bind, and return the outcome.

        Never raises for an answer of the API server. Members that weren't bound are forgotten in the view, except for members that an
        unanswered bind may still bind.
        """
        to_forget = {assignment.pod.uid: assignment for assignment in self.assignments}
        try:
            # Steps 1 and 2 came before: the plan was checked, and its capacity assumed.
            # 3. Dry-run the binds: admission and RBAC refuse kinds of pods. Members beyond the quorum may replace refused ones.
            sample = self._for_dry_run()
            tried = await self._dry_run(sample)
            if isinstance(tried, Refused):
                return tried
            refusals, assignments = tried
            # 4. Bind the volumes of claims that wait for the nodes of their pods. The capacity stays assumed for as long as that takes.
            volumes = self.volumes if self.volumes is not None and self.volumes.are_missing(assignments) else None
            if volumes is not None:
                problem = await volumes.bind(assignments, self._is_wanted)
                if problem is not None:
                    return Refused(VolumesNotBound(problem), _pause_after(refusals))
                # That may have taken minutes, in which admission may have changed.
                tried = await self._dry_run(self._for_dry_run())
                if isinstance(tried, Refused):
                    return tried
                refusals, assignments = tried
            # 5. All that took time: is the plan still valid? Nothing is awaited from here to the first bind.
            if sample or volumes is not None:
                rechecked = self._rechecked(assignments)
                if isinstance(rechecked, Refused):
                    return replace(rechecked, retry_after=_pause_after(refusals))
                assignments = rechecked
            # 6. Bind all members at once, each bind stamped.
            replies = await self._bind(assignments)
            bound = tuple(assignment for assignment, reply in replies if reply.is_bound)
            for assignment, reply in replies:
                if reply.is_bound or reply.in_doubt:
                    del to_forget[assignment.pod.uid]
            # 7. Count the missing members: members beyond the quorum aren't needed.
            failed = tuple((assignment, reply) for assignment, reply in replies if not reply.is_bound)
            missing = self.gang.missing_once_bound({assignment.pod.uid for assignment in bound})
            return Committed(bound, failed, tuple(refusals), missing)
        finally:
            for assignment in to_forget.values():
                self.view.forget(assignment.pod)

    async def _dry_run(self, sample: Sequence[Assignment]) -> tuple[list[tuple[Assignment, BindReply]], Sequence[Assignment]] | Refused:
        """Dry-run the binds of ``sample``. Return the refused ones with the replies, and the assignments that are left.

        Return ``Refused`` if the assignments that are left are too few for the gang.
        """
        dry_runs = await self._bind(sample, dry_run=True)
        refusals = [(assignment, reply) for assignment, reply in dry_runs if not reply.is_bound]
        left = self._without([assignment for assignment, _ in refusals])
        if refusals and (not left or self.gang.missing_once_bound({assignment.pod.uid for assignment in left})):
            return Refused(NotAdmitted(*refusals[0]), _pause_after(refusals))
        return refusals, left

    def _is_wanted(self) -> bool:
        """Return whether the members of the transaction still exist."""
        gang = self.current_gang()
        return gang is not None and {pod.uid for pod in gang.candidates} >= {assignment.pod.uid for assignment in self.assignments}

    def _for_dry_run(self) -> Sequence[Assignment]:
        """Return the assignments to dry-run: all if a bound member couldn't be released without cost, else one of each template.

        A single bind needs no dry run, and neither do binds that no webhook and no admission policy sees.
        """
        if self.dry_run == "none" or len(self.assignments) == 1 or (self.dry_run == "role" and not self.may_be_refused()):
            return ()
        if self._dry_runs_all:
            return self.assignments
        return list({_template(assignment.pod): assignment for assignment in self.assignments}.values())

    @property
    def _dry_runs_all(self) -> bool:
        return self.dry_run == "all" or not all(is_releasable(assignment.pod, at_no_cost=True) for assignment in self.assignments)

    def _without(self, refused: Sequence[Assignment]) -> Sequence[Assignment]:
        """Return the assignments that are left after the dry runs of ``refused`` failed.

        If only one pod of each template was dry-run, a refusal counts for all pods of its template.
        """
        if self._dry_runs_all:
            gone = {assignment.pod.uid for assignment in refused}
            return [assignment for assignment in self.assignments if assignment.pod.uid not in gone]
        templates = {_template(assignment.pod) for assignment in refused}
        return [assignment for assignment in self.assignments if _template(assignment.pod) not in templates]

    def _rechecked(self, assignments: Sequence[Assignment]) -> Sequence[Assignment] | Refused:
        """Check ``assignments`` again for the present gang and cluster. Assume and return those of members that still exist."""
        self.view.forget_all(assignment.pod for assignment in assignments)
        gang = self.current_gang()
        if gang is None or gang.hold:
            return Refused(gang.hold if gang and gang.hold else self.gang.key)
        valid = checked(gang, {assignment.pod.uid: assignment.node_name for assignment in assignments}, self.view.snapshot(gang.priority))
        if isinstance(valid, Refused):
            return valid
        assume(valid, self.view)
        self._note_valid(valid)
        self.gang = gang
        return valid

    def _note_valid(self, assignments: Sequence[Assignment]) -> None:
        """Record that ``assignments`` have just been checked and assumed."""
        self._valid_at = {assignment.pod.uid: self._version_for(assignment) for assignment in assignments}

    def _version_for(self, assignment: Assignment) -> tuple[object, int]:
        """Return the version of what may spoil an assignment: its node; for a member with anti-affinity also the labels of bound pods."""
        of_labels = self.view.labels.version if assignment.pod.spec.anti_affinity else 0
        return self.view.version_of(assignment.node_name), of_labels

    def _problem(self, assignment: Assignment) -> Violation | None:
        """Return the rule that an assignment violates now, after its bind has waited or failed; ``None`` if the assignment is valid."""
        if self._valid_at.get(assignment.pod.uid) == self._version_for(assignment):
            return None
        found = spoilt(assignment, self.gang, self.view)
        if found is None:
            self._valid_at[assignment.pod.uid] = self._version_for(assignment)
        return found

    async def _bind(self, assignments: Sequence[Assignment], *, dry_run: bool = False) -> list[tuple[Assignment, BindReply]]:
        stamp = self.stamp

        def bind(assignment: Assignment) -> Awaitable[BindReply]:
            check, annotations = partial(self._problem, assignment), self._annotations(assignment)
            return self.binder.bind(assignment.pod, assignment.node_name, stamp, dry_run=dry_run, check=check, annotations=annotations)

        # If one bind raises, the other binds go on, and their replies must be counted.
        replies = await in_slices(bind, assignments)
        return [(assignment, _reply(assignment, reply, dry_run)) for assignment, reply in zip(assignments, replies, strict=True)]

    def _annotations(self, assignment: Assignment) -> Mapping[str, str]:
        """Return the annotations of a bind beside the stamp.

        A member that states no walltime gets the gang's: a PodGroup or a Job may state it. So the pod alone says when its capacity will be
        free, also after its PodGroup is gone.
        """
        found = self._gpu_annotations(assignment)
        if assignment.pod.walltime == UNKNOWN and UNKNOWN < self.gang.walltime < NEVER:
            return {**found, WALLTIME: str(math.ceil(self.gang.walltime))}
        return found

    def _gpu_annotations(self, assignment: Assignment) -> Mapping[str, str]:
        """Return the annotations by which the driver of the node's shared GPUs gives the member its devices; empty without devices."""
        node, spec = self.view.node(assignment.node_name), assignment.pod.spec
        if not assignment.devices or node is None or node.shared is None:
            return {}
        return annotations_of(node.shared, spec.share, spec.device_container, assignment.devices, node.name, self.now())


@dataclass(frozen=True, slots=True)
class Transactions:
    """Begins transactions. ``dry_run`` selects the binds that are dry-run first: one of each template (``role``), all, or none.

    Without ``volumes`` no volumes are bound. ``may_refuse`` returns whether admission may refuse binds in a namespace.
    """

    view: ClusterView
    binder: Binder
    dry_run: DryRun
    volumes: VolumeBinder | None = None
    may_refuse: Callable[[str], bool] = lambda namespace: True

    def begin(
        self, gang: Gang, assignments: Sequence[Assignment], current_gang: Callable[[], Gang | None], *, tries_all: bool, was_whole: bool
    ) -> Transaction:
        """Assume the capacity of ``assignments``, which ``precheck.checked`` has just found valid; return the transaction that binds them.

        Await nothing between that check and this call, so that no other gang gets the capacity in between. ``current_gang`` returns the
        gang's newest state, ``None`` if the gang is gone. With ``tries_all`` every bind is dry-run, whatever ``dry_run`` selects. With
        ``was_whole`` the binds record that the run was whole before.
        """
        assume(assignments, self.view)
        dry_run: DryRun = "all" if tries_all else self.dry_run
        may_be_refused = partial(self.may_refuse, gang.key.namespace)
        return Transaction(gang, assignments, self.view, self.binder, current_gang, dry_run, may_be_refused, was_whole, self.volumes)


def assume(assignments: Sequence[Assignment], view: ClusterView) -> None:
    """Assume ``assignments`` in ``view``, so that their capacity counts as used."""
    view.assume_all(
        ((assignment.pod, assignment.node_name) for assignment in assignments),
        {assignment.pod.uid: assignment.devices for assignment in assignments if assignment.devices},
    )


def _pause_after(refusals: Iterable[tuple[Assignment, BindReply]]) -> float:
    """Return the longest pause, in seconds, that the replies to refused dry runs ask for."""
    return max((reply.retry_after for _, reply in refusals), default=0.0)


def _template(pod: Pod) -> tuple[SchedulingSpec, int]:
    """Return a key that is equal for pods that admission treats alike: they differ only by names and numbers."""
    return pod.spec, pod.template


def is_releasable(pod: Pod, *, at_no_cost: bool = False) -> bool:
    """Return whether ``pod`` may be deleted to free its capacity, since its controller recreates it.

    A bare pod would be lost, so it is kept unless its annotation ``recreate`` is ``true``. A batch Job may count the deletion as a failure,
    which isn't known before its policy is read. With ``at_no_cost`` the pods of batch Jobs therefore aren't releasable.
    """
    if pod.owner is None:
        return pod.option("recreate") == "true"
    return not (at_no_cost and pod.is_of_job)


async def undo(pods: Sequence[Pod], binder: Binder, *, even_running: bool = False) -> Undone:
    """Release the bound ``pods`` of a partially bound gang. With ``even_running`` running pods are evicted, too.

    Without ``even_running`` no pod is released if one of them runs: the gang would stay partially bound, with fewer members.
    """
    if not even_running and any(pod.phase == "Running" for pod in pods):
        return Undone()
    releasable = [pod for pod in pods if is_releasable(pod)]
    release = partial(binder.release, even_running=even_running)
    outcomes = await in_slices(release, releasable)
    return Undone(
        released=tuple(pod for pod, outcome in zip(releasable, outcomes, strict=True) if outcome is True),
        is_unfinished=any(isinstance(outcome, Exception) for outcome in outcomes),
    )


def _reply(assignment: Assignment, outcome: BindReply | BaseException, dry_run: bool) -> BindReply:
    if isinstance(outcome, BindReply):
        return outcome
    if not isinstance(outcome, Exception):
        raise outcome
    logger.error("a bind failed by a defect", exc_info=outcome)
    in_doubt = "" if dry_run else assignment.pod.resource_version
    return BindReply(Result.UNANSWERED, str(outcome) or type(outcome).__name__, in_doubt)
