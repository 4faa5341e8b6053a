"""Evicts the victims of a preemption: all of them, or none as far as the API server allows to know that before.

1. Each eviction is dry-run. If one is refused, no pod is evicted.
2. Each victim gets the condition ``DisruptionTarget`` with the mark of the gang that needs the capacity, so that a later leader finishes
the
   evictions and evicts no other pods.
3. All victims are evicted, which respects their grace periods and disruption budgets.
"""

from collections.abc import Callable, Sequence
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
        answers = await in_slices(partial(self.binder.would_go, despite_budgets=self.despite_budgets), pods)
        if refused := [pod for pod, answer in zip(pods, answers, strict=True) if answer is not True]:
            return Evicted(kept=refused)
        if not is_wanted():
            return Evicted()
        # 2. Mark all of them.
        marked = await in_slices(partial(self.binder.mark, mark=mark), pods)
        failed = [pod for pod, answer in zip(pods, marked, strict=True) if answer is not True]
        if failed or not is_wanted():
            await self._unmark([pod for pod in pods if pod not in failed])
            return Evicted(kept=failed)
        # 3. Evict all of them.
        released = await in_slices(partial(self.binder.release, even_running=True, despite_budgets=self.despite_budgets), pods)
        gone = [pod for pod, answer in zip(pods, released, strict=True) if answer is True]
        kept = [pod for pod, answer in zip(pods, released, strict=True) if answer is not True]
        await self._unmark(kept)
        return Evicted(gone, kept)

    async def _unmark(self, pods: Sequence[Pod]) -> None:
        """Write to pods that stay that they are no longer to be ended; as far as the API server answers."""
        await in_slices(partial(self.binder.mark, mark=""), pods)
