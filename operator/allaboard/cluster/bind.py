"""Binding and releasing single pods, with every reply of the API server understood.

A bind is not idempotent and its reply can be lost, so success is told from what the pod says: the planned node and our stamp.
Replies and texts: kube-apiserver 1.37, registry/core/pod/storage/storage.go.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from allaboard.cluster.client import ApiError, ApiServer
from allaboard.cluster.jobs import ignores_disruption
from allaboard.cluster.lease import Fence, LeaseLostError, Unfenced, fenced
from allaboard.cluster.paths import PODS, ApiPath
from allaboard.cluster.retry import Answer, Sleep, retried
from allaboard.model.pod import STAMP, Pod, pod_from

_STALE_TRIES = 3


class Result(StrEnum):
    """What became of one bind."""

    BOUND = "bound"
    GONE = "gone"  # deleted, being deleted, or replaced by a pod of the same name
    ELSEWHERE = "elsewhere"  # somebody else has bound it
    GATED = "gated"
    REFUSED = "refused"  # admission or RBAC forbids it
    UNANSWERED = "unanswered"  # transient errors to the last try
    DEPOSED = "deposed"  # another replica leads, or soon may: no request was sent, or none after one without an answer


@dataclass(frozen=True, slots=True)
class BindReply:
    """``message`` is the API server's text, for people."""

    result: Result
    message: str = ""

    @property
    def is_bound(self) -> bool:
        """Whether the pod now has the planned node."""
        return self.result is Result.BOUND


class Binder:
    """Binds and releases pods, ``concurrency`` at a time over all transactions.

    Each request that changes something goes through ``fence``, also when it is made again: what it says of the pod was read before.
    """

    def __init__(
        self,
        server: ApiServer,
        fence: Fence | None = None,
        *,
        concurrency: int = 64,
        attempts: int = 4,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._fence = fence or Unfenced()
        self._turns = asyncio.Semaphore(concurrency)
        self._attempts = attempts
        self._sleep = sleep
        self._clock = clock
        self._under_way = 0
        self._busy_since = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    async def lull(self, patience: float) -> None:
        """Return when no bind is under way, or when there has been one all the time for ``patience`` seconds."""
        if not self._idle.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._busy_since + patience - self._clock())):
                    await self._idle.wait()

    async def bind(self, pod: Pod, node_name: str, stamp: str, *, dry_run: bool = False) -> BindReply:
        """Bind ``pod`` as it was last seen (UID and resourceVersion) to ``node_name``; never raises for an answer of the API server."""
        async with self._noted():
            return await self._bind(pod, node_name, stamp, dry_run)

    async def _bind(self, pod: Pod, node_name: str, stamp: str, dry_run: bool) -> BindReply:
        version = pod.resource_version
        try:
            for _ in range(_STALE_TRIES):
                try:
                    await self._retried(partial(self._post, pod, version, node_name, stamp, dry_run))
                    return BindReply(Result.BOUND)
                except ApiError as error:
                    if error.is_transient or (error.status != 409 and not dry_run):
                        return await self._look_up(pod, node_name, stamp, error)
                    if error.status != 409:
                        return _classified(error)
                    reply, version = await self._look_again(pod, node_name, stamp, error)
                    if reply:
                        return reply
            return BindReply(Result.UNANSWERED, f"pod {pod.key} changes faster than it can be bound")
        except LeaseLostError as error:
            return BindReply(Result.DEPOSED, str(error))
        except ApiError as error:
            return BindReply(Result.UNANSWERED, str(error))

    async def release(self, pod: Pod, *, even_running: bool = False) -> bool:
        """Give the seat of a bound ``pod`` back, for its controller to make it anew; returns whether it is going.

        One that runs is spared, unless ``even_running``: then it is evicted, which keeps its grace period and disruption budgets. So
        are the pods of a batch Job, and only if the Job doesn't count that as a failure. UID and resourceVersion are preconditions, so
        that a pod which has just started is spared, and so that a leader of the past comes too late.
        Raises ``ApiError``, where a budget that forbids it is a 429, and ``LeaseLostError`` without leadership.
        """
        of_job = pod.owner is not None and pod.owner.is_batch_job
        if of_job and not await self._retried(partial(ignores_disruption, self._server, pod)):
            return False
        send = self._evict if of_job or even_running else self._delete
        for _ in range(_STALE_TRIES):
            current = await self._retried(partial(self._current, pod))
            if current is None:
                return True
            if not even_running and (current.get("status") or {}).get("phase", "Pending") != "Pending":
                return False
            preconditions = {"uid": pod.uid, "resourceVersion": current["metadata"]["resourceVersion"]}
            try:
                async with self._turns:
                    await self._retried(partial(self._change, partial(send, pod, preconditions)))
                return True
            except ApiError as error:
                if error.status == 404:
                    return True
                if error.status != 409:
                    raise
        return False

    async def _delete(self, pod: Pod, preconditions: dict[str, str]) -> None:
        await self._server.delete(_path(pod), {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})

    async def _evict(self, pod: Pod, preconditions: dict[str, str]) -> None:
        metadata = {"name": pod.name, "namespace": pod.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": {"preconditions": preconditions}}
        await self._server.post(_path(pod, "eviction"), body)

    async def _post(self, pod: Pod, version: str, node_name: str, stamp: str, dry_run: bool) -> None:
        binding: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod.name,
                "namespace": pod.namespace,
                "uid": pod.uid,
                "resourceVersion": version,
                "annotations": {STAMP: stamp},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
        }
        async with self._turns:
            await self._change(partial(self._server.post, _path(pod, "binding"), binding, {"dryRun": "All"} if dry_run else None))

    async def _change(self, send: Callable[[], Awaitable[object]]) -> None:
        async with fenced(self._fence):
            await send()

    async def _look_again(self, pod: Pod, node_name: str, stamp: str, conflict: ApiError) -> tuple[BindReply | None, str]:
        """After a conflict: what the pod is now decides. Returns a final reply, or the version to try again with."""
        if "schedulingGates" in conflict.message:
            return BindReply(Result.GATED, conflict.message), ""
        current = await self._retried(partial(self._current, pod))
        if current is None or current["metadata"].get("deletionTimestamp"):
            return BindReply(Result.GONE, conflict.message), ""
        if current["spec"].get("nodeName"):
            return _bound_reply(current, node_name, stamp, conflict.message), ""
        if not _is_as_planned(pod, pod_from(current)):
            return BindReply(Result.GONE, f"pod {pod.key} has changed since it was planned"), ""
        return None, str(current["metadata"]["resourceVersion"])

    async def _look_up(self, pod: Pod, node_name: str, stamp: str, error: ApiError) -> BindReply:
        """After the last transient error, or a refusal: the bind may have happened all the same, at a try whose answer was lost."""
        current = await self._retried(partial(self._current, pod))
        if current is None:
            return BindReply(Result.GONE, f'pods "{pod.name}" not found')
        if current["spec"].get("nodeName"):
            return _bound_reply(current, node_name, stamp, str(error))
        return _classified(error)

    async def _current(self, pod: Pod) -> dict[str, Any] | None:
        """The pod as the API server has it, ``None`` when it is gone or another pod has its name."""
        try:
            current = await self._server.get(_path(pod))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return current if current["metadata"]["uid"] == pod.uid else None

    @asynccontextmanager
    async def _noted(self) -> AsyncIterator[None]:
        """Count a bind among those under way."""
        if not self._under_way:
            self._busy_since = self._clock()
            self._idle.clear()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def _retried(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        return await retried(call, self._attempts, self._sleep)


def _bound_reply(current: dict[str, Any], node_name: str, stamp: str, message: str) -> BindReply:
    annotations = current["metadata"].get("annotations") or {}
    if current["spec"]["nodeName"] == node_name and annotations.get(STAMP) == stamp:
        return BindReply(Result.BOUND)
    return BindReply(Result.ELSEWHERE, message)


def _is_as_planned(planned: Pod, now: Pod) -> bool:
    """Whether a pod that was touched is still what the plan was made for."""
    fields = ("labels", "scheduler_name", "phase", "is_gated", "malformed")
    return all(getattr(planned, field) == getattr(now, field) for field in fields) and planned.spec.requests == now.spec.requests


def _classified(error: ApiError) -> BindReply:
    if error.status in (400, 403, 422):
        return BindReply(Result.REFUSED, error.message)
    return BindReply(Result.GONE if error.status == 404 else Result.UNANSWERED, error.message)


def _path(pod: Pod, subresource: str = "") -> ApiPath:
    return PODS.named(pod.namespace, pod.name, subresource)
