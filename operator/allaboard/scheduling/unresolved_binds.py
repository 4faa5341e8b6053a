"""Members that a request may still bind without our knowledge: a request of an earlier leader, or one of ours that got no answer.

No search for a gang with such members begins until the watch has caught up with them. A pod that is fenced off (``leadership.fencing``)
can't be bound by a request that was sent before.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from allaboard.binding.reasons import NotFenced
from allaboard.cluster.view import ClusterView
from allaboard.kube.retry import Sleep
from allaboard.leadership.fencing import CARRIED_OUT_SECONDS, Term, is_newer
from allaboard.model.gang import Gang
from allaboard.model.pod import Pod

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


@dataclass(slots=True)
class UnresolvedBinds:
    """Keeps capacity assumed for members whose binds are unresolved, until it is known whether the members are bound."""

    view: ClusterView
    term: Term
    clock: Callable[[], float]
    sleep: Sleep = asyncio.sleep
    _awaited: dict[str, Pod] = field(default_factory=dict)  # by UID

    def is_behind(self, gang: Gang) -> bool:
        """Return whether members that we have just bound have yet to be delivered by the watch."""
        return any(self.view.is_assumed(pod) for pod in gang.candidates)

    def older(self, gang: Gang) -> Sequence[Pod]:
        """Return the members that an earlier leader may still bind or release."""
        releasable = [pod for pod in gang.bound if pod.phase == "Pending"] if gang.is_partially_bound else []
        return self.term.older([*gang.candidates, *releasable])

    async def fence_off(self, pods: Sequence[Pod]) -> NotFenced | None:
        """Make an earlier leader's requests for ``pods`` fail. Return a pod that can't be fenced off, and why; None if all can."""
        refusals = await asyncio.gather(*map(self.term.fence_off, pods))
        for pod, error in zip(pods, refusals, strict=True):
            if error is not None and error.status not in (404, 409):
                return NotFenced(pod.name, str(error))
        return None

    async def resolve(self, in_doubt: Iterable[tuple[Pod, str]]) -> None:
        """Wait until each unanswered bind is resolved, and return the capacity of pods that aren't bound.

        ``in_doubt``: each pod with the resourceVersion that its bind named. A bind is resolved when its pod is bound, fenced off or gone,
        or when so much time has passed that the API server can no longer carry it out.
        """
        members = [replace(pod, resource_version=version) for pod, version in in_doubt]
        self._awaited |= {pod.uid: pod for pod in members}
        await asyncio.gather(*map(self._await, members))

    def pods(self) -> Sequence[Pod]:
        """Return the pods with an assumed node whose bind result is unknown."""
        return list(filter(None, map(self.view.as_assumed, self._awaited.values())))

    async def _await(self, pod: Pod) -> None:
        """Wait until a bind that names this version of ``pod`` can no longer succeed. The view shows the result."""
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
