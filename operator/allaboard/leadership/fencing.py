"""Keeps late binds from succeeding: an earlier leader's, which no lease can, and our own whose answers never came.

Every bind, and every release, names the version of the pod that it was decided on. Whoever writes to the pod makes it newer, and whatever
may still arrive answers 409: the pod is *sealed*. A new leader notes how far the pods had come when its term began, and seals each older
one before it considers it; it plans with a pod only when its own watch has told of the write, and by then the watch has also told of all
that earlier leaders did. What the annotation says is never read: a tenant can write it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from uuid import uuid4

from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.errors import answered_within
from allaboard.kube.paths import PODS
from allaboard.kube.request_limits import RequestLimits
from allaboard.kube.retry import Patience, retried
from allaboard.leadership.lease import Fence, LeaseLostError, Unfenced, fenced
from allaboard.model.pod import OPTION_PREFIX, Pod

logger = logging.getLogger(__name__)

EPOCH = f"{OPTION_PREFIX}epoch"
"""Annotation that seals a pod: ``<leaseTransitions>/<random>``, random so that it is always a change."""

CARRIED_OUT_SECONDS = 90.0
"""After this long the API server has ended a request, whether it has answered or not: kube-apiserver --request-timeout is 60 s."""

_EACH = 8  # requests at once in one namespace
_AGAIN_SECONDS = 0.1
_BEGIN_ATTEMPTS = 100  # whoever loses the lease meanwhile is ended by that
_ANSWER_SECONDS = 1.0  # for one try: a webhook of one namespace must not keep the others waiting
_PATIENCE = Patience(pauses=_ANSWER_SECONDS)
_SECONDS, _SECONDS_EACH, _MOST_SECONDS = 2.0, 0.005, 10.0  # for all pods at the beginning of a term, by how many they are


class Term:
    """The term of one leader. Without a beginning, as without leader election, every pod is new enough."""

    def __init__(
        self,
        server: ApiServer,
        fence: Fence | None = None,
        *,
        concurrency: int = 64,
        attempts: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._fence = fence or Unfenced()
        self._turns = RequestLimits(concurrency, _EACH)
        self._attempts = attempts
        self._clock = clock
        self._begins_at = -1
        self._term = 0
        self.carried_out_at = 0.0
        """From when on, on the clock, nothing that an earlier leader had sent is under way."""

    async def begin(self, term: int) -> None:
        """Note how far the pods have come. Call it after the lease was acquired. Raises ``ApiError``."""
        # Without a resourceVersion the answer is no older than the question. One etcd revision counts the changes of all pods.
        page = await retried(partial(self._server.get, PODS.everywhere, {"limit": "1"}), _BEGIN_ATTEMPTS)
        version = str((page.get("metadata") or {}).get("resourceVersion"))
        if not version.isdecimal():
            raise ApiError(0, "Malformed", f"{PODS.everywhere}: resourceVersion {version!r} can't be compared")
        self._begins_at = int(version)
        self._term = term
        self.carried_out_at = self._clock() + CARRIED_OUT_SECONDS

    def older(self, pods: Iterable[Pod]) -> list[Pod]:
        """Those of ``pods`` that an earlier leader may still bind or release."""
        if self._begins_at < 0:
            return []
        return [pod for pod in pods if not is_newer(pod, self._begins_at)]

    async def seal_all(self, pods: Callable[[], Iterable[Pod]]) -> Sequence[Pod]:
        """Seal whatever is older of ``pods()``, and return those that could not be in a few seconds.

        Before this nothing may be bound: an earlier leader's late bind of a pod that isn't sealed would meet a seat given to another.
        """
        sealed: set[str] = set()
        tried: set[str] = set()
        with suppress(TimeoutError):
            older = self.older(pods())
            async with asyncio.timeout(min(_SECONDS + len(older) * _SECONDS_EACH, _MOST_SECONDS)):
                while older := [pod for pod in self.older(pods()) if pod.uid not in tried]:
                    logger.info("taking %d pending pods out of an earlier leader's reach", len(older))
                    refusals = await asyncio.gather(*(self._seal_one(pod, sealed) for pod in older))
                    # Of a pod that has changed meanwhile the watch is about to tell.
                    tried.update(pod.uid for pod, refusal in zip(older, refusals, strict=True) if not (refusal and refusal.status == 409))
                    if any(pod.uid not in tried for pod in older):
                        await asyncio.sleep(_AGAIN_SECONDS)
        return [pod for pod in self.older(pods()) if pod.uid not in sealed]

    async def _seal_one(self, pod: Pod, sealed: set[str]) -> ApiError | None:
        refusal = await self.seal(pod)
        if refusal is None or refusal.status == 404:
            sealed.add(pod.uid)
        return refusal

    async def seal(self, pod: Pod) -> ApiError | None:
        """Write to ``pod``, so that whatever names this version of it, or an older one, is refused. Returns why that can't be.

        A pod that isn't what it was meanwhile answers 404 or 409: the watch is about to tell what it is now.
        """
        # A write that changes nothing makes no version: each says something new.
        mark = f"{self._term}/{uuid4().hex[:12]}"
        metadata = {"resourceVersion": pod.resource_version, "annotations": {EPOCH: mark}}
        # By way of the status, which takes annotations too: the right to patch pods would be one to replace their images.
        path = PODS.named(pod.namespace, pod.name, "status")

        async def patch() -> None:
            with suppress(LeaseLostError):  # which ends this process
                async with answered_within(_ANSWER_SECONDS, f"no answer within {_ANSWER_SECONDS:g} s"), fenced(self._fence):
                    await self._server.patch(path, {"metadata": metadata})

        try:
            await retried(patch, self._attempts, patience=_PATIENCE, turn=partial(self._turns.of, pod.namespace))
        except ApiError as error:
            if error.status not in (404, 409):
                logger.warning("pod %s could not be marked as this leader's: %s; trying again", pod.key, error)
            return error
        return None


def is_newer(pod: Pod, version: int) -> bool:
    """Whether a pod's version is newer; one that can't be compared isn't."""
    return pod.resource_version.isdecimal() and int(pod.resource_version) > version
