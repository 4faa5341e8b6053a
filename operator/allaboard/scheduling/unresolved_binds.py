"""Skip gangs until the watch has caught up: members just bound by us, or members that a previous leader may still bind."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from allaboard.cluster.view import ClusterView
from allaboard.kube.retry import Sleep
from allaboard.leadership.fencing import CARRIED_OUT_SECONDS, EPOCH, Term, is_newer
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.queueing.queue import GangQueue
from allaboard.scheduling.tasks import GangTasks

_SEALED_SECONDS = 1.0  # the watch tells of what was sealed long before
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


@dataclass(frozen=True, slots=True)
class Fencing:
    """Takes members out of reach of an earlier leader; ``fail`` hears why a gang's can't be."""

    view: ClusterView
    queue: GangQueue
    term: Term
    tasks: GangTasks
    fail: Callable[[Gang, str], None]

    def awaits_news(self, gang: Gang) -> bool:
        """Whether the watch is yet to tell of members that are bound just now, or that must be taken out of an earlier leader's reach."""
        if any(self.view.is_assumed(pod) for pod in gang.candidates):
            return True
        undoable = [pod for pod in gang.bound if pod.phase == "Pending"] if gang.is_open else []
        older = self.term.older([*gang.candidates, *undoable])
        if older:
            self.tasks.start(gang.key, self._seal(gang, older))
        return bool(older)

    async def _seal(self, gang: Gang, older: Sequence[Pod]) -> None:
        """Have an earlier leader's requests come too late; the watch tells of it, and rings again."""
        refusals = await asyncio.gather(*map(self.term.fence_off, older))
        for pod, error in zip(older, refusals, strict=True):
            if error is not None and error.status not in (404, 409):
                text = f"pod {pod.name} can't be taken out of an earlier leader's reach: writing its annotation {EPOCH} fails: {error}"
                self.fail(gang, text)
                return
        self.queue.retry(gang.key, _SEALED_SECONDS)


@dataclass(slots=True)
class UnresolvedBinds:
    """Members that a bind of ours may still give a node, although nobody has said so: they keep their seats until that is known.

    ``settled`` hears of a gang when it is of all of them: they are bound, sealed or gone, or so late nothing is carried out any more.
    """

    view: ClusterView
    term: Term
    settled: Callable[[GangKey], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Sleep = asyncio.sleep
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _awaited: dict[str, Pod] = field(default_factory=dict)  # by UID

    def expect(self, key: GangKey, in_doubt: Iterable[tuple[Pod, str]]) -> None:
        """Of each pod an unanswered bind has named a version. The seats stay promised, and are given back in time."""
        members = [replace(pod, resource_version=version) for pod, version in in_doubt]
        if members:
            task = asyncio.create_task(self._settle(key, members), name=f"late binds of {key}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def pods(self) -> Sequence[Pod]:
        """Those of whom it isn't known yet whether they take their seats, with these."""
        return list(filter(None, map(self.view.as_assumed, self._awaited.values())))

    def stop(self) -> None:
        """Look after nobody any more."""
        for task in self._tasks:
            task.cancel()

    async def _settle(self, key: GangKey, members: Sequence[Pod]) -> None:
        self._awaited |= {pod.uid: pod for pod in members}
        await asyncio.gather(*map(self._await, members))
        self.settled(key)

    async def _await(self, pod: Pod) -> None:
        """Wait until ``pod`` can't be bound any more by what named its version. What becomes of it, the view tells."""
        pause, until = _FIRST_PAUSE, self.clock() + CARRIED_OUT_SECONDS
        while self.view.is_assumed(pod) and self.clock() < until:
            now = self.view.pod(pod.key)
            if now is None or not pod.resource_version.isdecimal() or is_newer(now, int(pod.resource_version)):
                break
            if await self.term.fence_off(pod) is None:
                break
            await self.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._awaited.pop(pod.uid, None)
        self.view.forget(pod)
