"""Which gangs must be left alone until the watch has told of them: those whose facts are about to change, or not yet ours alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from allaboard.cluster.epoch import EPOCH, Epoch
from allaboard.cluster.view import ClusterView
from allaboard.model.gang import Gang
from allaboard.model.pod import Pod
from allaboard.scheduling.queue import GangQueue
from allaboard.scheduling.underway import UnderWay

_SEALED_SECONDS = 1.0  # the watch tells of what was sealed long before


@dataclass(frozen=True, slots=True)
class Sealing:
    """Takes members out of an earlier leader's reach; ``fail`` hears why a gang's can't be."""

    view: ClusterView
    queue: GangQueue
    epoch: Epoch
    under_way: UnderWay
    fail: Callable[[Gang, str], None]

    def awaits_news(self, gang: Gang) -> bool:
        """Whether the watch is yet to tell of members that are bound just now, or that must be taken out of an earlier leader's reach."""
        if any(self.view.is_assumed(pod) for pod in gang.candidates):
            return True
        undoable = [pod for pod in gang.bound if pod.phase == "Pending"] if gang.is_open else []
        older = self.epoch.older([*gang.candidates, *undoable])
        if older:
            self.under_way.start(gang.key, self._seal(gang, older))
        return bool(older)

    async def _seal(self, gang: Gang, older: Sequence[Pod]) -> None:
        """Have an earlier leader's requests come too late; the watch tells of it, and rings again."""
        refusals = await self.epoch.seal(older)
        lasting = {uid: error for uid, error in refusals.items() if not error.is_transient and error.status not in (404, 409)}
        if not lasting:
            self.queue.retry(gang.key, _SEALED_SECONDS)
            return
        pod = next(pod for pod in older if pod.uid in lasting)
        self.fail(
            gang,
            f"pod {pod.name} can't be taken out of an earlier leader's reach: writing its annotation {EPOCH} fails: {lasting[pod.uid]}",
        )
