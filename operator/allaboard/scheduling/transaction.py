"""Binds a planned gang as one transaction: everybody, or nobody.

A Kubernetes bind can't be taken back, only the pod deleted. So the plan is checked against the live view and tried without effect
first, and every bind carries a stamp: whoever looks at the pods sees which transaction bound them and what it promised.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import uuid4

from allaboard.cluster.bind import Binder, BindReply, Result
from allaboard.cluster.view import ClusterView
from allaboard.model.gang import Gang
from allaboard.model.pod import Pod
from allaboard.placement import verify
from allaboard.scheduling.problems import together_of

logger = logging.getLogger(__name__)

DryRun = Literal["role", "all", "none"]


@dataclass(frozen=True, slots=True)
class Seat:
    """One member and the node it is to have."""

    pod: Pod
    node_name: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was bound, and why."""

    message: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What was bound and what was not. ``missing`` is what the quorum still lacks: 0 means the gang is whole.

    ``dropped`` are members beyond the quorum that the rehearsal refused, so that they weren't tried.
    """

    bound: tuple[Seat, ...]
    failed: tuple[tuple[Seat, BindReply], ...] = ()
    dropped: tuple[tuple[Seat, BindReply], ...] = ()
    missing: int = 0

    @property
    def is_final(self) -> bool:
        """Whether a member was refused in a way that trying again won't change."""
        return any(reply.result in (Result.REFUSED, Result.GATED) for _, reply in self.failed)

    @property
    def is_uncertain(self) -> bool:
        """Whether a member may be bound although nobody has said so."""
        return any(reply.result in (Result.UNANSWERED, Result.DEPOSED) for _, reply in self.failed)

    @property
    def message(self) -> str:
        """Why the members that failed did."""
        return "; ".join(f"pod {seat.pod.name}: {reply.message or reply.result}" for seat, reply in self.failed[:3])


@dataclass(slots=True)
class Transaction:
    """Seats that are promised in the view until they are bound or given back. Made by ``begin``."""

    gang: Gang
    seats: Sequence[Seat]
    view: ClusterView
    binder: Binder
    dry_run: DryRun = "role"
    id: str = field(default_factory=lambda: uuid4().hex[:12])

    @property
    def stamp(self) -> str:
        """What every bind carries: the transaction and the minimum it promised."""
        return f"{self.id}/{self.gang.required}"

    async def commit(self) -> Committed | Refused:
        """Try, bind, decide. Never raises for an answer of the API server; seats that weren't taken are given back."""
        untaken = {seat.pod.uid: seat for seat in self.seats}
        try:
            # 3. Ask the API server without effect: admission and RBAC refuse kinds of pods. Spare members may step in for them.
            rehearsal = await self._bind(self._rehearsed(), dry_run=True)
            refusals = [(seat, reply) for seat, reply in rehearsal if not reply.is_bound]
            seats = self._without([seat for seat, _ in refusals])
            if refusals and (not seats or self.gang.missing_once_bound({seat.pod.uid for seat in seats})):
                seat, reply = refusals[0]
                return Refused(f"pod {seat.pod.name} can't be bound to {seat.node_name}: {reply.message or reply.result}")
            # 4. Bind everybody at once, each bind stamped.
            replies = await self._bind(seats)
            bound = tuple(seat for seat, reply in replies if reply.is_bound)
            for seat in bound:
                del untaken[seat.pod.uid]
            # 5. Decide: members beyond the quorum are welcome, not needed.
            failed = tuple((seat, reply) for seat, reply in replies if not reply.is_bound)
            missing = self.gang.missing_once_bound({seat.pod.uid for seat in bound})
            return Committed(bound, failed, tuple(refusals), missing)
        finally:
            for seat in untaken.values():
                self.view.forget(seat.pod)

    def _rehearsed(self) -> Sequence[Seat]:
        """The seats to try without effect. A single bind is its own rehearsal."""
        if self.dry_run == "none" or len(self.seats) == 1:
            return ()
        if self.dry_run == "all":
            return self.seats
        return list({seat.pod.spec: seat for seat in self.seats}.values())

    def _without(self, refused: Sequence[Seat]) -> Sequence[Seat]:
        """The seats that are left when some were refused, each for itself or for all of its kind."""
        if self.dry_run == "all":
            gone = {seat.pod.uid for seat in refused}
            return [seat for seat in self.seats if seat.pod.uid not in gone]
        kinds = {seat.pod.spec for seat in refused}
        return [seat for seat in self.seats if seat.pod.spec not in kinds]

    async def _bind(self, seats: Sequence[Seat], *, dry_run: bool = False) -> list[tuple[Seat, BindReply]]:
        binds = (self.binder.bind(seat.pod, seat.node_name, self.stamp, dry_run=dry_run) for seat in seats)
        # Whatever one bind raises, the others go on and must be counted.
        replies = await asyncio.gather(*binds, return_exceptions=True)
        return [(seat, _reply(reply)) for seat, reply in zip(seats, replies, strict=True)]


def begin(gang: Gang, assignments: Mapping[str, str], view: ClusterView, binder: Binder, dry_run: DryRun = "role") -> Transaction | Refused:
    """Check ``assignments`` (node name by pod UID) against the live view and promise the seats.

    Nothing is awaited between the check and the promise, so no other gang can be given a seat in between. ``gang`` must be as fresh
    as the view: members that have gone since the plan was made are left out, and the rest must still make a quorum.
    """
    # 1. Who is still there to be seated?
    pods = {pod.uid: pod for pod in gang.candidates}
    seats = [Seat(pods[uid], node_name) for uid, node_name in assignments.items() if uid in pods]
    if not seats or gang.missing_once_bound({seat.pod.uid for seat in seats}):
        return Refused(f"members changed while the gang was being placed: {len(seats)} of {gang.missing} missing ones are still there")
    # 2. Does everybody still fit? Plain integers against the view as it is now.
    seated = {seat.pod.uid: seat.node_name for seat in seats}
    violations = verify(seated, [seat.pod for seat in seats], view.snapshot(), together_of(gang))
    if violations:
        return Refused(f"the cluster changed while the gang was being placed: {violations[0]}")
    view.assume_all((seat.pod, seat.node_name) for seat in seats)
    return Transaction(gang, seats, view, binder, dry_run)


def is_releasable(pod: Pod) -> bool:
    """Whether deleting ``pod`` gives its seat back without losing it: its controller makes it anew.

    A bare pod would be gone, so it is kept unless its owner has said that it is recreated. A batch Job is asked when it comes to it.
    """
    return pod.owner is not None or pod.option("recreate") == "true"


@dataclass(frozen=True, slots=True)
class Undone:
    """``released`` are gone; ``is_unfinished`` when some should be, and the API server didn't let us."""

    released: tuple[Pod, ...] = ()
    is_unfinished: bool = False


async def undo(pods: Sequence[Pod], binder: Binder, *, even_running: bool = False) -> Undone:
    """Release the bound ``pods`` of an open gang that have not started; ``even_running`` evicts those that have.

    Otherwise nobody is released once any of them runs: the gang would stay open all the same, with less.
    """
    if not even_running and any(pod.phase == "Running" for pod in pods):
        return Undone()
    releasable = [pod for pod in pods if is_releasable(pod)]
    releases = (binder.release(pod, even_running=even_running) for pod in releasable)
    outcomes = await asyncio.gather(*releases, return_exceptions=True)
    return Undone(
        released=tuple(pod for pod, outcome in zip(releasable, outcomes, strict=True) if outcome is True),
        is_unfinished=any(isinstance(outcome, Exception) for outcome in outcomes),
    )


def _reply(outcome: BindReply | BaseException) -> BindReply:
    if isinstance(outcome, BindReply):
        return outcome
    if not isinstance(outcome, Exception):
        raise outcome
    logger.error("a bind failed by a defect", exc_info=outcome)
    return BindReply(Result.UNANSWERED, str(outcome) or type(outcome).__name__)
