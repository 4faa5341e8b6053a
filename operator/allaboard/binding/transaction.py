"""Binds a planned gang as one transaction: everybody, or nobody.

A Kubernetes bind can't be taken back, only the pod deleted. So the plan is checked against the live view and tried without effect
first, and every bind carries a stamp: whoever looks at the pods sees which transaction bound them and what it promised.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal
from uuid import uuid4

from allaboard.binding.bind import Binder
from allaboard.binding.outcomes import Assignment, BindReply, Committed, NotAdmitted, Refused, Result, Undone
from allaboard.binding.precheck import checked, spoilt
from allaboard.cluster.view import ClusterView
from allaboard.kube.request_limits import in_slices
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang
from allaboard.model.gpu_sharing import annotations_of
from allaboard.model.pod import Pod, stamp_of
from allaboard.placement import Violation

logger = logging.getLogger(__name__)

DryRun = Literal["role", "all", "none"]


@dataclass(slots=True)
class Transaction:
    """Seats that are promised in the view until they are bound or given back. Made by ``begin``, where its parts are told."""

    gang: Gang
    assignments: Sequence[Assignment]
    view: ClusterView
    binder: Binder
    look: Callable[[], Gang | None]
    dry_run: DryRun = "role"
    was_whole: bool = False
    new_run: str = field(default_factory=lambda: uuid4().hex[:12])
    now: Callable[[], float] = time.time
    """Seconds since the epoch, as drivers are told."""
    _good_at: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By pod UID, the state of its node at which its seat was last found to be good."""

    def __post_init__(self) -> None:
        self._note_valid(self.assignments)

    @property
    def stamp(self) -> str:
        """What every bind carries: the run, which is a new one when nobody is bound, the minimum it promises, and what has been."""
        run = self.gang.run
        return stamp_of(run or self.new_run, self.gang.required, was_whole=bool(run) and self.was_whole)

    async def commit(self) -> Committed | Refused:
        """Try, look again, bind, decide. Never raises for an answer of the API server.

        Seats that weren't taken are given back, but for those that a bind without an answer may still take.
        """
        free = {assignment.pod.uid: assignment for assignment in self.assignments}
        try:
            # 3. Ask the API server without effect: admission and RBAC refuse kinds of pods. Spare members may step in for them.
            sample = self._for_dry_run()
            dry_runs = await self._bind(sample, dry_run=True)
            refusals = [(assignment, reply) for assignment, reply in dry_runs if not reply.is_bound]
            asked = max((reply.retry_after for _, reply in refusals), default=0.0)
            assignments = self._without([assignment for assignment, _ in refusals])
            if refusals and (not assignments or self.gang.missing_once_bound({assignment.pod.uid for assignment in assignments})):
                return Refused(NotAdmitted(*refusals[0]), asked)
            # 4. That took time: what has become of the plan? Nothing is awaited from here to the first bind.
            if sample:
                still = self._still(assignments)
                if isinstance(still, Refused):
                    return replace(still, retry_after=asked)
                assignments = still
            # 5. Bind everybody at once, each bind stamped.
            replies = await self._bind(assignments)
            bound = tuple(assignment for assignment, reply in replies if reply.is_bound)
            for assignment, reply in replies:
                if reply.is_bound or reply.in_doubt:
                    del free[assignment.pod.uid]
            # 6. Decide: members beyond the quorum are welcome, not needed.
            failed = tuple((assignment, reply) for assignment, reply in replies if not reply.is_bound)
            missing = self.gang.missing_once_bound({assignment.pod.uid for assignment in bound})
            return Committed(bound, failed, tuple(refusals), missing)
        finally:
            for assignment in free.values():
                self.view.forget(assignment.pod)

    def _for_dry_run(self) -> Sequence[Assignment]:
        """The seats to try without effect: everybody where nobody could be released again, else one of each template.

        A single bind is its own rehearsal.
        """
        if self.dry_run == "none" or len(self.assignments) == 1:
            return ()
        if self._tries_all:
            return self.assignments
        return list({_template(assignment.pod): assignment for assignment in self.assignments}.values())

    @property
    def _tries_all(self) -> bool:
        return self.dry_run == "all" or not all(is_releasable(assignment.pod, at_no_cost=True) for assignment in self.assignments)

    def _without(self, refused: Sequence[Assignment]) -> Sequence[Assignment]:
        """The seats that are left when some were refused, each for itself or for all of its template."""
        if self._tries_all:
            gone = {assignment.pod.uid for assignment in refused}
            return [assignment for assignment in self.assignments if assignment.pod.uid not in gone]
        templates = {_template(assignment.pod) for assignment in refused}
        return [assignment for assignment in self.assignments if _template(assignment.pod) not in templates]

    def _still(self, assignments: Sequence[Assignment]) -> Sequence[Assignment] | Refused:
        """The seats of members that are still there, if the plan is still good for the gang and the cluster as they are now."""
        self.view.forget_all(assignment.pod for assignment in assignments)
        gang = self.look()
        if gang is None or gang.hold:
            return Refused(gang.hold if gang and gang.hold else self.gang.key)
        still = checked(gang, {assignment.pod.uid: assignment.node_name for assignment in assignments}, self.view)
        if isinstance(still, Refused):
            return still
        assume(still, self.view)
        self._note_valid(still)
        self.gang = gang
        return still

    def _note_valid(self, assignments: Sequence[Assignment]) -> None:
        """Record that ``assignments`` have just been checked and assumed."""
        self._good_at = {assignment.pod.uid: self.view.version_of(assignment.node_name) for assignment in assignments}

    def _problem(self, assignment: Assignment) -> Violation | None:
        """Return what is wrong with one seat now. A bind may have waited for its turn, or be a second try."""
        if self._good_at.get(assignment.pod.uid) == self.view.version_of(assignment.node_name):
            return None
        found = spoilt(assignment, self.gang, self.view)
        if found is None:
            self._good_at[assignment.pod.uid] = self.view.version_of(assignment.node_name)
        return found

    async def _bind(self, assignments: Sequence[Assignment], *, dry_run: bool = False) -> list[tuple[Assignment, BindReply]]:
        stamp = self.stamp

        def bind(assignment: Assignment) -> Awaitable[BindReply]:
            look, told = partial(self._problem, assignment), self._told(assignment)
            return self.binder.bind(assignment.pod, assignment.node_name, stamp, dry_run=dry_run, look=look, annotations=told)

        # Whatever one bind raises, the others go on and must be counted.
        replies = await in_slices(bind, assignments)
        return [(assignment, _reply(assignment, reply, dry_run)) for assignment, reply in zip(assignments, replies, strict=True)]

    def _told(self, assignment: Assignment) -> Mapping[str, str]:
        """What is written for the driver that hands out the GPUs of the seat's node."""
        node, spec = self.view.node(assignment.node_name), assignment.pod.spec
        if not assignment.devices or node is None or node.shared is None:
            return {}
        return annotations_of(node.shared, spec.share, spec.device_container, assignment.devices, node.name, self.now())


def begin(
    gang: Gang,
    node_names: Mapping[str, str],
    view: ClusterView,
    binder: Binder,
    look: Callable[[], Gang | None],
    dry_run: DryRun = "role",
    *,
    was_whole: bool = False,
) -> Transaction | Refused:
    """Check ``node_names`` (node name by pod UID) against the live view and promise the seats.

    Nothing is awaited between the check and the promise, so no other gang can be given a seat in between. ``gang`` must be as fresh
    as the view: members that have gone since the plan was made are left out, and the rest must still make a quorum. ``look`` says how
    the gang is later on, and ``was_whole`` what the binds are to say of the run.
    """
    assignments = checked(gang, node_names, view)
    if isinstance(assignments, Refused):
        return assignments
    assume(assignments, view)
    return Transaction(gang, assignments, view, binder, look, dry_run, was_whole)


def assume(assignments: Sequence[Assignment], view: ClusterView) -> None:
    """Have ``view`` count ``assignments`` as taken."""
    view.assume_all(
        ((assignment.pod, assignment.node_name) for assignment in assignments),
        {assignment.pod.uid: assignment.devices for assignment in assignments if assignment.devices},
    )


def _template(pod: Pod) -> tuple[SchedulingSpec, int]:
    """What is the same for all pods that admission can't tell apart but by their names and numbers."""
    return pod.spec, pod.template


def is_releasable(pod: Pod, *, at_no_cost: bool = False) -> bool:
    """Whether deleting ``pod`` gives its seat back without losing it: its controller makes it anew.

    A bare pod would be gone, so it is kept unless its owner has said that it is recreated. A batch Job may count a failure, and is asked
    when it comes to it: that it is ``at_no_cost`` isn't known before.
    """
    if pod.owner is None:
        return pod.option("recreate") == "true"
    return not (at_no_cost and pod.is_of_job)


async def undo(pods: Sequence[Pod], binder: Binder, *, even_running: bool = False) -> Undone:
    """Release the bound ``pods`` of an open gang that have not started; ``even_running`` evicts those that have.

    Otherwise nobody is released once any of them runs: the gang would stay open all the same, with less.
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
