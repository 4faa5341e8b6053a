"""Evicts the victims of a preemption: all of them, or none as far as the API server allows to know that before.

1. Each eviction is dry-run. If one is refused, no pod is evicted.
2. Each victim gets the condition ``DisruptionTarget`` with the mark of the gang that needs the capacity, so that a later leader
   finishes the evictions and evicts no other pods.
3. All victims are evicted, which respects their grace periods and disruption budgets.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from allaboard.binding.bind import Binder
from allaboard.kube.request_limits import in_slices
from allaboard.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Evicted:
    """The result of a preemption: the pods that were evicted, and the pods that stay although they were to be evicted."""

    gone: Sequence[Pod] = ()
    kept: Sequence[Pod] = ()


@dataclass(frozen=True, slots=True)
class Evictions:
    """Evicts victims. With ``despite_budgets`` also those that a disruption budget protects: these are deleted."""

    binder: Binder
    despite_budgets: bool = False

    async def carry_out(self, pods: Sequence[Pod], mark: str, is_wanted: Callable[[], bool]) -> Evicted:
        """Evict ``pods`` for the gang with ``mark``; none of them unless all may go, and the gang still needs their capacity then."""
        # 1. May all of them go?
        _, refused = await _split(partial(self.binder.would_go, despite_budgets=self.despite_budgets), pods)
        if refused:
            return Evicted(kept=refused)
        if not is_wanted():
            return Evicted()
        # 2. Mark all of them.
        _, failed = await _split(partial(self.binder.mark, mark=mark), pods)
        if failed or not is_wanted():
            await self._unmark(pods)  # the write of a mark that has failed may have been carried out
            return Evicted(kept=failed)
        # 3. Evict all of them.
        gone, kept = await _split(partial(self.binder.release, even_running=True, despite_budgets=self.despite_budgets), pods)
        await self._unmark(kept)
        return Evicted(gone, kept)

    async def _unmark(self, pods: Sequence[Pod]) -> None:
        """Write to pods that stay that they are no longer to be ended; as far as the API server answers."""
        await in_slices(partial(self.binder.mark, mark=""), pods)


async def _split(call: Callable[[Pod], Awaitable[bool]], pods: Sequence[Pod]) -> tuple[Sequence[Pod], Sequence[Pod]]:
    """Call ``call`` for all ``pods``. Return the pods for which the answer was true, and the other pods."""
    answers = await in_slices(call, pods)
    found: tuple[list[Pod], list[Pod]] = [], []
    for pod, answer in zip(pods, answers, strict=True):
        found[answer is not True].append(pod)
    return found
