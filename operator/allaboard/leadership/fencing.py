"""Fence off pods, so that late binds of them fail: binds of an earlier leader, and our own binds that got no answer.

Every bind and every release names the resourceVersion of the pod that it was decided on. A write to the pod makes a newer version. A bind
or release that arrives after the write is answered with 409: the pod is *fenced off*. ``lease.fenced`` does something else: it keeps a
process that has lost the lease from sending requests. Fencing off makes requests fail that were sent before.

A new leader notes the newest resourceVersion at the beginning of its term. Before it considers a pod whose version isn't newer, it fences
off the pod. It plans with the pod only when its own watch has reported that write. The watch has then also reported everything that
earlier leaders did. The write sets an annotation, whose value is never read, since a tenant can write it.
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
"""Annotation whose write fences off a pod: ``<leaseTransitions>/<random>``. The random part makes every write a change."""

CARRIED_OUT_SECONDS = 90.0
"""Seconds after its sending from which on a request is no longer carried out: kube-apiserver gives it up after 60 s by default."""

_EACH = 8  # concurrent requests in one namespace
_AGAIN_SECONDS = 0.1
_BEGIN_ATTEMPTS = 100  # enough, since a process that loses the lease ends
_ANSWER_SECONDS = 1.0  # for one try: the webhook of one namespace must not delay other namespaces
_PATIENCE = Patience(pauses=_ANSWER_SECONDS)
_SECONDS, _SECONDS_EACH, _MOST_SECONDS = 2.0, 0.005, 10.0  # for all pods at the beginning of a term: base, for each pod, limit


class Term:
    """The term of one leader. Until ``begin``, and without leader election, no pod counts as older than the term."""

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
        self._limits = RequestLimits(concurrency, _EACH)
        self._attempts = attempts
        self._clock = clock
        self._first_version = -1
        self._term = 0
        self.carried_out_at = 0.0
        """Seconds on ``clock`` after which no request of an earlier leader is in flight."""

    async def begin(self, term: int) -> None:
        """Begin the term of number ``term``: note the newest resourceVersion of all pods. Raises ``ApiError``.

        Call this after the lease was acquired.
        """
        # A request without a resourceVersion is answered with the newest state. One etcd revision counts the changes of all pods.
        page = await retried(partial(self._server.get, PODS.everywhere, {"limit": "1"}), _BEGIN_ATTEMPTS)
        version = str((page.get("metadata") or {}).get("resourceVersion"))
        if not version.isdecimal():
            raise ApiError(0, "Malformed", f"{PODS.everywhere}: resourceVersion {version!r} can't be compared")
        self._first_version = int(version)
        self._term = term
        self.carried_out_at = self._clock() + CARRIED_OUT_SECONDS

    def older(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return the pods among ``pods`` that an earlier leader may still bind or release."""
        if self._first_version < 0:
            return []
        return [pod for pod in pods if not is_newer(pod, self._first_version)]

    async def fence_off_all(self, pods: Callable[[], Iterable[Pod]]) -> Sequence[Pod]:
        """Fence off those of ``pods()`` that are older than the term; return the pods that could not be fenced off within a few seconds.

        Bind no pod before this returns: an earlier leader's late bind could land on capacity that was given to another pod.
        """
        fenced_off: set[str] = set()
        tried: set[str] = set()
        with suppress(TimeoutError):
            older = self.older(pods())
            async with asyncio.timeout(min(_SECONDS + len(older) * _SECONDS_EACH, _MOST_SECONDS)):
                while older := [pod for pod in self.older(pods()) if pod.uid not in tried]:
                    logger.info("fencing off %d pending pods from an earlier leader", len(older))
                    refusals = await asyncio.gather(*(self._fence_off_one(pod, fenced_off) for pod in older))
                    # A pod that has changed (409) is tried again with the version that the watch is about to report.
                    tried.update(pod.uid for pod, refusal in zip(older, refusals, strict=True) if not (refusal and refusal.status == 409))
                    if any(pod.uid not in tried for pod in older):
                        await asyncio.sleep(_AGAIN_SECONDS)
        return [pod for pod in self.older(pods()) if pod.uid not in fenced_off]

    async def _fence_off_one(self, pod: Pod, fenced_off: set[str]) -> ApiError | None:
        refusal = await self.fence_off(pod)
        if refusal is None or refusal.status == 404:
            fenced_off.add(pod.uid)
        return refusal

    async def fence_off(self, pod: Pod) -> ApiError | None:
        """Write to ``pod``, so that requests that name its version or an older version are refused; return the error if the write fails.

        The error is 404 if the pod is gone and 409 if it has changed: the watch is about to report its present state.
        """
        # A write that changes nothing makes no new version, so each mark is unique.
        mark = f"{self._term}/{uuid4().hex[:12]}"
        metadata = {"resourceVersion": pod.resource_version, "annotations": {EPOCH: mark}}
        # The status subresource accepts annotations, too. The permission to patch pods would include replacing their images.
        path = PODS.named(pod.namespace, pod.name, "status")

        async def patch() -> None:
            with suppress(LeaseLostError):  # a process that has lost the lease ends
                async with answered_within(_ANSWER_SECONDS, f"no answer within {_ANSWER_SECONDS:g} s"), fenced(self._fence):
                    await self._server.patch(path, {"metadata": metadata})

        try:
            await retried(patch, self._attempts, patience=_PATIENCE, turn=partial(self._limits.turn, pod.namespace))
        except ApiError as error:
            if error.status not in (404, 409):
                logger.warning("pod %s could not be fenced off: %s; trying again", pod.key, error)
            return error
        return None


def is_newer(pod: Pod, version: int) -> bool:
    """Return whether a pod's resourceVersion is newer than ``version``; a resourceVersion that isn't a number counts as older."""
    return pod.resource_version.isdecimal() and int(pod.resource_version) > version
