"""Keeps an earlier leader's late binds from succeeding, which no lease can: a process may be paused between its check and its request.

Every bind, and every release, names the version of the pod that it was decided on. So a new leader notes how far the pods had come
when its term began, and writes to each older pod before it considers it: whatever an earlier leader may still send names an older
version, and answers 409. The leader plans with a pod only when its own watch has told of the write; by then the watch has also told
of all that earlier leaders did. What the annotation says is never read: a tenant can write it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from uuid import uuid4

from allaboard.cluster.client import ApiError, ApiServer
from allaboard.cluster.lease import Fence, LeaseLostError, Unfenced, fenced
from allaboard.cluster.paths import PODS
from allaboard.cluster.retry import retried
from allaboard.model.pod import OPTION_PREFIX, Pod

logger = logging.getLogger(__name__)

EPOCH = f"{OPTION_PREFIX}epoch"
"""Annotation that makes a pod newer than a leader's term: ``<leaseTransitions>/<random>``, random so that it is always a change."""

_AGAIN_SECONDS = 0.1
_BEGIN_ATTEMPTS = 100  # whoever loses the lease meanwhile is ended by that


class Epoch:
    """The term of one leader. Without a beginning, as without leader election, every pod is new enough."""

    def __init__(self, server: ApiServer, fence: Fence | None = None, *, concurrency: int = 64, attempts: int = 4) -> None:
        self._server = server
        self._fence = fence or Unfenced()
        self._turns = asyncio.Semaphore(concurrency)
        self._attempts = attempts
        self._begins_at = -1
        self._mark = ""

    async def begin(self, term: int) -> None:
        """Note how far the pods have come. Call it after the lease was acquired. Raises ``ApiError``."""
        # Without a resourceVersion the answer is no older than the question. One etcd revision counts the changes of all pods.
        page = await retried(partial(self._server.get, PODS.everywhere, {"limit": "1"}), _BEGIN_ATTEMPTS)
        version = str((page.get("metadata") or {}).get("resourceVersion"))
        if not version.isdecimal():
            raise ApiError(0, "Malformed", f"{PODS.everywhere}: resourceVersion {version!r} can't be compared")
        self._begins_at = int(version)
        self._mark = f"{term}/{uuid4().hex[:12]}"

    def older(self, pods: Iterable[Pod]) -> list[Pod]:
        """Those of ``pods`` that an earlier leader may still bind or release."""
        if self._begins_at < 0:
            return []
        return [pod for pod in pods if not _is_after(pod.resource_version, self._begins_at)]

    async def seal_all(self, pods: Callable[[], Iterable[Pod]]) -> None:
        """Seal whatever is older of ``pods()``, until nothing is but what can't be written to.

        Before this nothing may be bound: an earlier leader's late bind of a pod that isn't sealed would meet a seat given to another.
        """
        done: set[str] = set()
        while older := [pod for pod in self.older(pods()) if pod.uid not in done]:
            logger.info("taking %d pending pods out of an earlier leader's reach", len(older))
            refusals = await self.seal(older)
            # Of those that failed for now some may be written to later; of a pod that has changed meanwhile the watch is about to tell.
            again = {uid for uid, error in refusals.items() if error.is_transient or error.status == 409}
            done.update(pod.uid for pod in older if pod.uid not in again)
            if again:
                await asyncio.sleep(_AGAIN_SECONDS)

    async def seal(self, pods: Sequence[Pod]) -> dict[str, ApiError]:
        """Write to ``pods``, so that their watch events make them newer than the term. Returns the refusals, by the pods' UIDs.

        A pod that isn't what it was meanwhile answers 404 or 409: the watch is about to tell what it is now.
        """
        refusals = {}
        for pod, refusal in zip(pods, await asyncio.gather(*map(self._seal, pods)), strict=True):
            if refusal is not None:
                refusals[pod.uid] = refusal
                if refusal.status not in (404, 409):
                    logger.warning("pod %s could not be marked as this leader's: %s; trying again", pod.key, refusal)
        return refusals

    async def _seal(self, pod: Pod) -> ApiError | None:
        metadata = {"resourceVersion": pod.resource_version, "annotations": {EPOCH: self._mark}}

        async def patch() -> None:
            # By way of the status, which takes annotations too: the right to patch pods would be one to replace their images.
            async with fenced(self._fence):
                await self._server.patch(PODS.named(pod.namespace, pod.name, "status"), {"metadata": metadata})

        async with self._turns:
            try:
                await retried(patch, self._attempts)
            except ApiError as error:
                return error
            except LeaseLostError:
                pass  # which ends this process
        return None


def _is_after(version: str, begins_at: int) -> bool:
    """Whether a pod's version is newer; one that can't be compared isn't."""
    return version.isdecimal() and int(version) > begins_at
