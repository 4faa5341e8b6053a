"""Gangs that are half bound: finished forward while there is hope, undone when there is none, healed when they were whole before.

Only gangs that a transaction of ours left half bound are undone, and by whom that was doesn't matter: the pods say so. One that was
whole and has lost a member since is healed, however long that takes, unless it has asked for less.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import chain

from allaboard.cluster.bind import Binder
from allaboard.cluster.client import ApiError
from allaboard.cluster.lease import LeaseLostError
from allaboard.cluster.restart import JobKeptError, JobRestarter
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import Gang, GangKey, OnMemberLost, Undo
from allaboard.model.pod import Pod
from allaboard.report import words
from allaboard.report.metrics import Metrics
from allaboard.scheduling.announcer import Announcer
from allaboard.scheduling.order import ANYTHING, order_of
from allaboard.scheduling.past import was_cut_off, was_whole
from allaboard.scheduling.queue import GangQueue
from allaboard.scheduling.transaction import Committed, Undone, is_releasable, undo

logger = logging.getLogger(__name__)

FORWARD_SECONDS = 5.0
"""How long the missing members may take to be bound around the bound ones."""

_RETRY_SECONDS = 0.5
_LEAVING_SECONDS = 40.0
"""How long seats that were given up may take to be free before others are asked for theirs."""
_ASKED_SECONDS = 10.0
"""How long it is waited for whether a half gang can be released, before others are asked."""
_UNASKED_SECONDS = 10.0
"""How long a half gang that can't be released isn't asked again: others are."""
_MOST_ASKED = 32
"""Of so many half gangs at most it is found out whether their seats would help: each costs a search."""


@dataclass(slots=True)
class OpenGangs:
    """What we left half bound, and how far each has come: being finished, undone, or kept open because nobody may be released."""

    registry: GangRegistry
    queue: GangQueue
    binder: Binder
    restarter: JobRestarter
    announcer: Announcer
    metrics: Metrics
    clock: Callable[[], float] = time.monotonic
    _deadlines: dict[GangKey, float] = field(default_factory=dict)
    _renewed: set[GangKey] = field(default_factory=set)  # whose deadline was put off once
    _kept_open: set[GangKey] = field(default_factory=set)
    _expires: dict[GangKey, float] = field(default_factory=dict)
    _restarts: dict[GangKey, float] = field(default_factory=dict)
    _undone: set[GangKey] = field(default_factory=set)
    _made_way: dict[GangKey, GangKey] = field(default_factory=dict)
    _released: dict[GangKey, tuple[Sequence[Pod], float]] = field(default_factory=dict)  # who of it was, and until when they may be leaving
    _asked: dict[GangKey, float] = field(default_factory=dict)  # who is being released, and until when it is waited for what comes of that
    _unasked: dict[GangKey, float] = field(default_factory=dict)  # who could not be released, and until when others are asked
    _inherited: set[GangKey] = field(default_factory=set)
    _whole: dict[GangKey, str] = field(default_factory=dict)

    def __contains__(self, key: GangKey) -> bool:
        """Whether the gang is being finished."""
        return key in self._deadlines

    def inherit(self) -> None:
        """See what a scheduler before us left half done: it goes first."""
        for gang in self.registry.gangs():
            self._inherited.add(gang.key)
            if was_cut_off(gang, self.registry.group(gang.key)):
                self.add(gang)
            self.queue.mark(gang.key)

    def take_over(self, gang: Gang) -> None:
        """At the first look at a gang that was there before us, when no earlier leader can bind its members any more: is it half done?"""
        if gang.key in self._inherited:
            self._inherited.discard(gang.key)
            if was_cut_off(gang, self.registry.group(gang.key)):
                logger.info("gang %s: a transaction was cut off, %d members are missing", gang.key, gang.owed)
                self.add(gang)

    def was_undone(self, key: GangKey) -> bool:
        """Whether the gang was undone before, so that every member is to be tried beforehand."""
        return key in self._undone

    def was_whole(self, gang: Gang) -> bool:
        """Whether the run that is going on has been whole, so that all later binds are to say so."""
        return bool(gang.run) and (self._whole.get(gang.key) == gang.run or was_whole(gang))

    def add(self, gang: Gang) -> None:
        """The gang was left half bound just now; its time runs from the first time that is said."""
        self._deadlines.setdefault(gang.key, self.clock() + FORWARD_SECONDS)
        self._expires.setdefault(gang.key, self.clock() + gang.timeout_seconds)

    def renew(self, key: GangKey) -> None:
        """What has become of the gang's binds is known only now: so its time runs from now, if it is half bound.

        Once: where no bind is answered for long, each attempt would renew it, and the gang would stay half bound for as long.
        """
        if key in self._deadlines and key not in self._renewed:
            self._renewed.add(key)
            self._deadlines[key] = self.clock() + FORWARD_SECONDS

    def close(self, key: GangKey) -> None:
        """The gang is whole or absent."""
        self._deadlines.pop(key, None)
        self._renewed.discard(key)
        self._kept_open.discard(key)
        self._expires.pop(key, None)
        self._restarts.pop(key, None)
        self._made_way = {gang: other for gang, other in self._made_way.items() if key not in (gang, other)}

    def observe(self, gang: Gang) -> None:
        """Note which run has been whole, and since when a gang is half bound: its time-out runs from then."""
        if gang.run and gang.key not in self._deadlines and gang.key not in self._kept_open:
            self._whole[gang.key] = gang.run  # or it can't be told, and must not be by whoever comes after us either
        if gang.is_open and gang.owed:
            self._expires.setdefault(gang.key, self.clock() + gang.timeout_seconds)
        else:
            self._expires.pop(gang.key, None)

    def forget(self, key: GangKey) -> None:
        """The gang is gone."""
        self.close(key)
        self._undone.discard(key)
        self._whole.pop(key, None)
        self._released.pop(key, None)
        self._unasked.pop(key, None)

    def undoing(self, gang: Gang) -> Coroutine[None, None, None] | None:
        """What must be done with the gang before anything else, if its time is over."""
        if self.is_overdue(gang):
            return self.undo_overdue(gang)
        if self.is_given_up(gang):
            return self.give_up(gang)
        return self.restart_jobs(gang) if self.is_restartable(gang) else None

    def is_overdue(self, gang: Gang) -> bool:
        """Whether the gang is half bound still, although finishing it has had its time."""
        deadline = self._deadlines.get(gang.key)
        if deadline is None:
            return False
        if not gang.is_open:
            del self._deadlines[gang.key]
            return False
        return self.clock() >= deadline

    def is_given_up(self, gang: Gang) -> bool:
        """Whether the gang has lost members, could not be healed in its time, and wants to be released then, by now (again)."""
        is_wanted = gang.on_member_lost is OnMemberLost.RELEASE and gang.key not in self._deadlines and self._has_timed_out(gang)
        return is_wanted and self.clock() >= self._restarts.get(gang.key, -math.inf)

    def is_restartable(self, gang: Gang) -> bool:
        """Whether the gang is kept open by its Jobs, its time is over, and it is time to have them suspended (again)."""
        return gang.key in self._kept_open and self._may_suspend(gang) and self.clock() >= self._restarts.get(gang.key, -math.inf)

    def _may_suspend(self, gang: Gang) -> bool:
        return gang.undo is Undo.SUSPEND and self._has_timed_out(gang)

    async def who_yields(self, gang: Gang, would_fit: Callable[[Sequence[Pod]], Awaitable[bool]]) -> Sequence[Gang]:
        """The half gangs that must yield to ``gang``, as few as it takes; none unless it ``would_fit`` without their bound pods.

        None either if it would fit by now, or when those have gone that are leaving. They have never been whole and their time-out has
        passed: half a gang that blocks others is the deadlock that gang scheduling is there to prevent. Of two half gangs the later in
        the queue yields; to one that is absent those of no higher priority do, but not to one that has just made way itself, nor ever the
        one that it has made way for; and nobody for whom another has just made way, who would have done so in vain. Nobody makes way
        beside one of a Job that doesn't let it go.
        """
        for _ in range(_MOST_ASKED):
            going = self._going()
            needed = await self._needed_by(gang, would_fit)
            staying = [other.key for other in needed if not await self._may_go(other)]
            self._unasked |= dict.fromkeys(staying, self.clock() + _UNASKED_SECONDS)
            if not staying and going == self._going():
                # One that has become whole meanwhile is no half gang any more.
                still = {other.key: other for other in self._in_the_way(gang)}
                return [still[other.key] for other in needed] if all(other.key in still for other in needed) else ()
        return ()

    async def _needed_by(self, gang: Gang, would_fit: Callable[[Sequence[Pod]], Awaitable[bool]]) -> Sequence[Gang]:
        """The half gangs without which ``gang`` would fit, as few of the last in the queue as it takes."""

        async def fits_without(others: Sequence[Gang]) -> bool:
            # Some of theirs may be leaving already.
            pods = {pod.uid: pod for pod in chain(self._leaving(), *(other.bound for other in others))}
            return await would_fit(list(pods.values()))

        blocking = self._in_the_way(gang)
        if not blocking or self._makes_way(gang) or await fits_without(()):
            return ()
        if not await fits_without(blocking):
            return ()
        # 1. The last few of the queue that are enough: with more of them it fits as well.
        too_few, enough = 0, len(blocking)
        while enough - too_few > 1:
            count = (too_few + enough) // 2
            too_few, enough = (too_few, count) if await fits_without(blocking[:count]) else (count, enough)
        # 2. Without those of them that aren't needed.
        needed = blocking[:enough]
        for other in blocking[: enough - 1]:
            rest = [each for each in needed if each is not other]
            if await fits_without(rest):
                needed = rest
        # 3. Each of these looks took a while, in which seats that others were promised may have come free.
        if await fits_without(()):
            return ()
        # 4. Who is being asked just now may go, and then fewer are enough.
        asked = list(filter(None, map(self.registry.gang, self._asked_now())))
        for other in needed if asked else ():
            if await fits_without([*asked, *(each for each in needed if each is not other)]):
                return ()
        return needed

    async def _may_go(self, gang: Gang) -> bool:
        """Whether the bound members of a half gang can be released, as far as their Jobs are concerned."""
        if self._may_suspend(gang):
            return True
        try:
            return all([await self.binder.may_go(pod) for pod in {pod.owner: pod for pod in gang.bound}.values()])
        except ApiError:
            return False

    def _in_the_way(self, gang: Gang) -> Sequence[Gang]:
        """The half gangs that may have to yield to ``gang``, the last in the queue first; no more than may be asked."""
        now = self.clock()
        self._unasked = {key: until for key, until in self._unasked.items() if until > now}
        served = {other for key, other in self._made_way.items() if key in self._going()}
        candidates = self._kept_open - {gang.key} - served - self._asked_now() - self._unasked.keys()
        asked = sorted(
            (
                other
                for other in filter(None, map(self.registry.gang, candidates))
                if self._has_timed_out(other)
                and not self.was_whole(other)
                and self._made_way.get(gang.key) != other.key
                and all(is_releasable(pod) for pod in other.bound)
                and (order_of(gang) < order_of(other) if gang.bound else other.priority <= gang.priority)
            ),
            key=order_of,
            reverse=True,
        )
        return asked[:_MOST_ASKED]

    def _makes_way(self, gang: Gang) -> bool:
        """Whether the seats that the gang has given up are still to be taken by the other, and not to be added to by a third one's."""
        return gang.key in self._made_way and gang.key in self._going()

    def _going(self) -> dict[GangKey, float]:
        """Who is being released or was, and until when that counts."""
        released = {key: until for key, (_pods, until) in self._recently_released().items()}
        return released | {key: self._asked[key] for key in self._asked_now()}

    def _asked_now(self) -> set[GangKey]:
        return {key for key, until in self._asked.items() if until > self.clock()}

    def _recently_released(self) -> dict[GangKey, tuple[Sequence[Pod], float]]:
        self._released = {key: (pods, until) for key, (pods, until) in self._released.items() if until > self.clock()}
        return self._released

    def _leaving(self) -> Sequence[Pod]:
        """Who was released and is there still, for no longer than may be waited for."""
        gangs = filter(None, map(self.registry.gang, self._recently_released()))
        return [pod for gang in gangs for pod in self._leaving_of(gang)]

    def _leaving_of(self, gang: Gang) -> Sequence[Pod]:
        pods, until = self._released.get(gang.key, ((), 0.0))
        here = {pod.uid for pod in gang.members}
        return [pod for pod in pods if pod.uid in here and until > self.clock()]

    def next_look(self, gang: Gang) -> float | None:
        """When the gang must be looked at even if nothing happens: its time is over then, or that of a half gang it may wait for.

        Or seats that were given up are waited for no longer: meanwhile fewer are asked for theirs.
        """
        times = [
            self._deadlines.get(gang.key),
            self._restarts.get(gang.key),
            *self._unasked.values(),
            *self._asked.values(),
            *(until for _pods, until in self._released.values()),
            *(self._expires.get(key) for key in {gang.key, *self._deadlines, *self._kept_open}),
        ]
        return min((when for when in times if when is not None and when > self.clock()), default=None)

    def deadline(self, gang: Gang) -> float | None:
        """When the time of a gang that was refused is over, or that of one that may make way for it; ``None`` without such a time."""
        if gang.is_whole:
            return None
        next_look = self.next_look(gang)
        if self.announcer.has_timed_out(gang):
            return next_look
        timeout = self.clock() + self.announcer.seconds_left(gang)
        return timeout if next_look is None else min(timeout, next_look)

    def _has_timed_out(self, gang: Gang) -> bool:
        return self._expires.get(gang.key, math.inf) <= self.clock()

    async def finish_forward(self, gang: Gang, outcome: Committed, changes: int) -> None:
        """Have the missing placed around the bound, before anybody else; undo at once when a member was refused for good."""
        key = gang.key
        if key in self._kept_open:
            self.queue.fail(key, ANYTHING, seen=changes, retry_by=self.clock(), at_least=outcome.retry_after)
            return
        self.add(gang)
        if outcome.is_final:
            pods = [*gang.bound, *(seat.pod for seat in outcome.bound)]
            await self.undo(gang, pods, outcome.message, at_least=outcome.retry_after)
        else:
            pause = min(max(_RETRY_SECONDS, outcome.retry_after), FORWARD_SECONDS)
            self.queue.retry(key, pause, is_firm=outcome.retry_after > 0)

    async def undo_overdue(self, gang: Gang) -> None:
        """Undo a gang whose time is over."""
        text = f"{gang.missing} missing members could not be bound within {FORWARD_SECONDS:g} s"
        await self.undo(gang, gang.bound, text)

    async def give_up(self, gang: Gang) -> None:
        """Release all members of a gang that has lost some and wants that; who is kept is healed as others are, in between."""
        self._restarts[gang.key] = self.clock() + gang.timeout_seconds
        text = f"{gang.missing} lost members could not be replaced within {gang.timeout_seconds} s"
        await self._undo_in_turn(gang, text, even_running=True)

    async def restart_jobs(self, gang: Gang) -> None:
        """Release all members of a half gang that its Jobs have kept open; in between it is looked for seats as others are."""
        self._restarts[gang.key] = self.clock() + gang.timeout_seconds
        await self._undo_in_turn(gang, f"{gang.missing} missing members could not be bound within {gang.timeout_seconds} s")

    async def yield_to(self, other: Gang, gang: Gang) -> None:
        """Release all members of the half ``gang``, whose seats ``other`` needs."""
        # Names of other namespaces are nobody's business.
        who = f"podgroup {other.key}" if other.key.namespace == gang.key.namespace else "a podgroup of another namespace"
        text = f"not whole within {gang.timeout_seconds} s, and {who} needs the seats of its {len(gang.bound)} bound members"
        # One that is kept open all the same is looked at when it would have been: those who ask for its seats must not hold up its turn.
        self._made_way[gang.key] = other.key
        undone = await self._release(gang, gang.bound, text, even_running=True)
        if undone.released:
            self.queue.fail(gang.key, ANYTHING, seen=self.queue.changes, retry_by=self.clock())
        else:
            self._made_way.pop(gang.key, None)
            self._unasked[gang.key] = self.clock() + _UNASKED_SECONDS
        if undone.is_unfinished or not undone.released:
            self.queue.retry(other.key, FORWARD_SECONDS)

    async def undo(self, gang: Gang, pods: Sequence[Pod], message: str, *, at_least: float = 0.0) -> None:
        """Release the bound ``pods`` that may be released; the gang is placed anew after a pause, of ``at_least`` so many seconds."""
        self._again(gang, await self._release(gang, pods, message), at_least=at_least)

    async def _undo_in_turn(self, gang: Gang, message: str, *, even_running: bool = False) -> None:
        """As ``undo``, of all that are bound. If nobody may be released that was no attempt, and it is looked for seats."""
        undone = await self._release(gang, gang.bound, message, even_running=even_running)
        if undone.released or undone.is_unfinished:
            self._again(gang, undone, even_running=even_running)
        else:
            self.queue.retry(gang.key, _RETRY_SECONDS)

    def _again(self, gang: Gang, undone: Undone, *, even_running: bool = False, at_least: float = 0.0) -> None:
        if undone.is_unfinished and not even_running:
            self._deadlines[gang.key] = self.clock()
            self.queue.retry(gang.key, _RETRY_SECONDS)
        else:
            self.queue.fail(gang.key, ANYTHING, seen=self.queue.changes, retry_by=self.clock(), at_least=at_least)

    async def _release(self, gang: Gang, pods: Sequence[Pod], message: str, *, even_running: bool = False) -> Undone:
        """Release ``pods``, and note and tell what has become of them."""
        may_leave_until = self.clock() + min(gang.timeout_seconds, _LEAVING_SECONDS)
        before = self._leaving_of(gang)
        self._asked[gang.key] = self.clock() + _ASKED_SECONDS
        try:
            undone, problem = await undo(pods, self.binder, even_running=even_running), ""
            if not undone.is_unfinished and self._may_suspend(gang):
                undone, problem = await self._suspended(gang, pods, undone, even_running)
        finally:
            self._asked.pop(gang.key, None)
        self._released[gang.key] = (*before, *undone.released), may_leave_until
        if undone.released:
            self._undone.add(gang.key)
            self.metrics.transactions.labels("undone").inc()
            self.announcer.undone(gang, undone.released, message)
        if undone.is_unfinished and not even_running:
            return undone
        if len(undone.released) < len(pods):
            self._deadlines.pop(gang.key, None)
            self._kept_open.add(gang.key)
            self.announcer.kept_open(gang, words.kept_open(gang, pods, message, problem))
        else:
            # Should the next look find one that was said to be gone, it is undone again.
            self._deadlines[gang.key] = self.clock()
            self._kept_open.discard(gang.key)
        return undone

    async def _suspended(self, gang: Gang, pods: Sequence[Pod], undone: Undone, even_running: bool) -> tuple[Undone, str]:
        """What is undone once the Jobs of the other ``pods`` were suspended and resumed, if those are all Jobs' pods; else why not."""
        kept = [pod for pod in pods if pod not in undone.released]
        if not kept or not all(pod.is_of_job for pod in kept):
            return undone, ""
        self._restarts[gang.key] = self.clock() + gang.timeout_seconds
        try:
            await self.restarter.restart(kept, even_running=even_running)
        except JobKeptError as error:
            return undone, str(error)
        except (ApiError, LeaseLostError) as error:
            logger.warning("gang %s: its jobs could not be suspended: %s; trying again", gang.key, error)
            return Undone(undone.released, is_unfinished=True), str(error)
        return Undone(tuple(pods)), ""
