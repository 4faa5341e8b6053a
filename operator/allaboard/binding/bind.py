"""Binding and releasing single pods, with every reply of the API server understood.

A bind is not idempotent and its reply can be lost, so success is told from what the pod says: the planned node and our stamp.
Replies and texts: kube-apiserver 1.37, registry/core/pod/storage/storage.go.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from allaboard.binding.eviction import evict
from allaboard.binding.job_policy import ignores_disruption
from allaboard.binding.outcomes import BindReply, Result
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.errors import answered_within
from allaboard.kube.paths import PODS, ApiPath
from allaboard.kube.request_limits import RequestLimits
from allaboard.kube.retry import Answer, Patience, Sleep, Turn, retried
from allaboard.leadership.lease import Fence, LeaseLostError, Unfenced, fenced
from allaboard.model.pod import STAMP, Pod, pod_from
from allaboard.model.requests import RawObject
from allaboard.placement import Violation

_STALE_TRIES = 3
_ANSWER_SECONDS = 5.0
# Others want the seats that are promised meanwhile. A rehearsal is waited for no longer; a bind is, once: it may be carried out still.
_DRY_RUN_PATIENCE, _BIND_PATIENCE = Patience(0.3, _ANSWER_SECONDS), Patience(1.0, _ANSWER_SECONDS)
_RELEASES, _RELEASES_EACH = 32, 4

Look = Callable[[], Violation | None]
"""Tells what is wrong with a seat by now, ``None`` when it is good still."""


class Binder:
    """Binds and releases pods, ``concurrency`` binds at a time over all transactions, and three quarters of them in one namespace.

    Each request that changes something goes through ``fence``, also when it is made again: what it says of the pod was read before.
    ``read`` makes of a raw pod what it was planned as.
    """

    def __init__(
        self,
        server: ApiServer,
        fence: Fence | None = None,
        *,
        concurrency: int = 64,
        attempts: int = 4,
        read: Callable[[RawObject], Pod] = pod_from,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._fence = fence or Unfenced()
        each = max(1, concurrency * 3 // 4)  # a namespace leaves some to the others
        self._dry_run_turns = RequestLimits(concurrency, each)
        self._turns = RequestLimits(concurrency, each, self._dry_run_turns)
        self._release_turns = RequestLimits(_RELEASES, _RELEASES_EACH)
        self._attempts = attempts
        self._read_pod = read
        self._sleep = sleep
        self._clock = clock
        self._tasks = 0
        self._busy_since = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_until_idle(self, patience: float) -> None:
        """Return when no bind is under way, or when there has been one all the time for ``patience`` seconds."""
        if not self._idle.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._busy_since + patience - self._clock())):
                    await self._idle.wait()

    async def bind(
        self,
        pod: Pod,
        node_name: str,
        stamp: str,
        *,
        dry_run: bool = False,
        look: Look = lambda: None,
        annotations: Mapping[str, str] | None = None,
    ) -> BindReply:
        """Bind ``pod`` as it was last seen (UID and resourceVersion) to ``node_name``; never raises for an answer of the API server.

        Before each request ``look`` says whether the seat is still good, with nothing awaited in between but the request itself.
        ``annotations`` are written beside the stamp, with the seat.
        """
        bind = _Bind(pod, node_name, stamp, pod.resource_version, dry_run, look, annotations or {})
        async with self._noted():
            try:
                reply = await self._bind(bind)
            except LeaseLostError as error:
                reply = BindReply(Result.DEPOSED, str(error))
            except ApiError as error:
                reply = BindReply(Result.UNANSWERED, str(error), retry_after=error.retry_after or 0.0)
        certain = reply.result in (Result.BOUND, Result.GONE, Result.ELSEWHERE)
        return replace(reply, in_doubt=bind.version) if bind.is_in_doubt and not certain else reply

    async def _bind(self, bind: "_Bind") -> BindReply:
        patience = _DRY_RUN_PATIENCE if bind.dry_run else _BIND_PATIENCE
        attempts = min(2, self._attempts) if bind.dry_run else self._attempts
        turn = partial((self._dry_run_turns if bind.dry_run else self._turns).of, bind.pod.namespace)
        for _ in range(_STALE_TRIES):
            try:
                await retried(partial(self._post, bind), attempts, self._sleep, patience=patience, turn=turn)
                return BindReply(Result.BOUND)
            except _AssignmentSpoiltError as error:
                return await self._look_up(bind, BindReply(Result.SPOILT, violation=error.violation))
            except ApiError as error:
                if error.status != 409:
                    return _classified(error) if bind.dry_run else await self._look_up(bind, _classified(error))
                reply = await self._look_again(bind, error)
                if reply:
                    return reply
        return BindReply(Result.UNANSWERED, f"pod {bind.pod.key} changes faster than it can be bound")

    async def release(self, pod: Pod, *, even_running: bool = False) -> bool:
        """Give the seat of a bound ``pod`` back, for its controller to make it anew; returns whether it is going.

        One that runs is spared, unless ``even_running``: then it is evicted, which keeps its grace period and disruption budgets. So
        are the pods of a batch Job, and only if the Job doesn't count that as a failure. UID and resourceVersion are preconditions, so
        that a pod which has just started is spared, and so that a leader of the past comes too late.
        Raises ``ApiError``, where a budget that forbids it is a 429, and ``LeaseLostError`` without leadership.
        """
        if not await self.may_go(pod):
            return False
        send = self._evict if pod.is_of_job or even_running else self._delete
        tries = 0
        while True:
            current = await self._retried(partial(self._current, pod))
            if current is None:
                return True
            if not even_running and (current.get("status") or {}).get("phase", "Pending") != "Pending":
                return False
            preconditions = {"uid": pod.uid, "resourceVersion": current["metadata"]["resourceVersion"]}
            try:
                send_it = partial(self._change, partial(send, pod, preconditions))
                await self._retried(send_it, partial(self._release_turns.of, pod.namespace))
                return True
            except ApiError as error:
                if error.status == 404:
                    return True
                tries += 1
                if error.status != 409 or tries == _STALE_TRIES:  # one that changes faster than it can be released is no one to spare
                    raise

    async def may_go(self, pod: Pod) -> bool:
        """Whether whoever has made ``pod`` lets it go: a batch Job must not count it as failed. Raises ``ApiError``."""
        return not pod.is_of_job or await self._retried(partial(ignores_disruption, self._server, pod))

    async def would_go(self, pod: Pod, *, is_suspended: bool = False) -> bool:
        """Whether a bound ``pod`` could be evicted now, by its disruption budgets and, unless that is suspended for it, by its batch Job.

        That is tried without effect. Raises ``ApiError``, and ``LeaseLostError`` without leadership.
        """
        if not is_suspended and not await self.may_go(pod):
            return False
        try:
            send_it = partial(self._change, partial(evict, self._server, pod, {"uid": pod.uid}, dry_run=True))
            await self._retried(send_it, partial(self._release_turns.of, pod.namespace))
        except ApiError as error:
            if error.status in (403, 429):
                return False
            if error.status != 404:
                raise
        return True

    async def _delete(self, pod: Pod, preconditions: dict[str, str]) -> None:
        await self._server.delete(_path(pod), {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})

    async def _evict(self, pod: Pod, preconditions: dict[str, str]) -> None:
        await evict(self._server, pod, preconditions)

    async def _post(self, bind: "_Bind") -> None:
        pod = bind.pod
        body: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod.name,
                "namespace": pod.namespace,
                "uid": pod.uid,
                "resourceVersion": bind.version,
                "annotations": {**bind.annotations, STAMP: bind.stamp},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": bind.node_name},
        }
        if problem := bind.look():
            raise _AssignmentSpoiltError(problem)
        send = partial(self._server.post, _path(pod, "binding"), body, {"dryRun": "All"} if bind.dry_run else None)
        with bind.sending():
            await (self._send_dry_run(send) if bind.dry_run else self._change(send))

    async def _send_dry_run(self, send: Callable[[], Awaitable[object]]) -> None:
        """As ``_change``, for so long as seats may be kept for whoever has a slow webhook."""
        async with answered_within(_ANSWER_SECONDS, f"no answer to the rehearsal within {_ANSWER_SECONDS:g} s"):
            await self._change(send)

    async def _change(self, send: Callable[[], Awaitable[object]]) -> None:
        async with fenced(self._fence):
            await send()

    async def _look_again(self, bind: "_Bind", conflict: ApiError) -> BindReply | None:
        """After a conflict: what the pod is now decides. ``None`` when it is still ours to bind, by its present version."""
        if "schedulingGates" in conflict.message:
            return BindReply(Result.GATED, conflict.message)
        current = await self._read(bind)
        if current is None or current["metadata"].get("deletionTimestamp"):
            return BindReply(Result.GONE, conflict.message)
        if current["spec"].get("nodeName"):
            return _bound_reply(current, bind, conflict.message)
        bind.renew(str(current["metadata"]["resourceVersion"]))
        if not _is_as_planned(bind.pod, self._read_pod(current)):
            return BindReply(Result.GONE, f"pod {bind.pod.key} has changed since it was planned")
        return None

    async def _look_up(self, bind: "_Bind", otherwise: BindReply) -> BindReply:
        """After the last transient error, or a refusal: the bind may have happened all the same, at a try whose answer was lost."""
        if otherwise.result is Result.SPOILT and not bind.is_in_doubt:
            return otherwise
        try:
            current = await self._read(bind)
        except ApiError as error:
            return BindReply(Result.UNANSWERED, str(error), retry_after=max(error.retry_after or 0.0, otherwise.retry_after))
        if current is None:
            return BindReply(Result.GONE, f'pods "{bind.pod.name}" not found')
        if current["spec"].get("nodeName"):
            return _bound_reply(current, bind, otherwise.message)
        # It is there: that it isn't was a webhook's word, which says nothing of the tries before.
        return replace(otherwise, result=Result.UNANSWERED) if otherwise.result is Result.GONE else otherwise

    async def _read(self, bind: "_Bind") -> dict[str, Any] | None:
        return await retried(partial(self._current, bind.pod), self._attempts, self._sleep, patience=_BIND_PATIENCE)

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
        if not self._tasks:
            self._busy_since = self._clock()
            self._idle.clear()
        self._tasks += 1
        try:
            yield
        finally:
            self._tasks -= 1
            if not self._tasks:
                self._idle.set()

    async def _retried(self, call: Callable[[], Awaitable[Answer]], turn: Turn = nullcontext) -> Answer:
        return await retried(call, self._attempts, self._sleep, turn=turn)


class _AssignmentSpoiltError(Exception):
    """The seat isn't good any more."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation)
        self.violation = violation


@dataclass(slots=True)
class _Bind:
    """One bind, and what is known of the requests that were sent for it: ``version`` is what the last of them named."""

    pod: Pod
    node_name: str
    stamp: str
    version: str
    dry_run: bool
    look: Look
    annotations: Mapping[str, str]
    is_in_doubt: bool = False

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Around a request: without a definite answer it may still be carried out, or have been."""
        was_in_doubt, self.is_in_doubt = self.is_in_doubt, not self.dry_run
        try:
            yield
            self.is_in_doubt = False
        except LeaseLostError:
            self.is_in_doubt = was_in_doubt  # nothing was sent
            raise
        except ApiError as error:
            if 400 <= error.status < 500 and error.status != 408:
                self.is_in_doubt = was_in_doubt
            raise

    def renew(self, version: str) -> None:
        """The pod has a newer version now: whatever named an older one is refused. A webhook may say 409 of one that hasn't."""
        self.is_in_doubt = self.is_in_doubt and version == self.version
        self.version = version


def _bound_reply(current: dict[str, Any], bind: _Bind, message: str) -> BindReply:
    annotations = current["metadata"].get("annotations") or {}
    if current["spec"]["nodeName"] == bind.node_name and annotations.get(STAMP) == bind.stamp:
        return BindReply(Result.BOUND)
    return BindReply(Result.ELSEWHERE, message)


def _is_as_planned(planned: Pod, now: Pod) -> bool:
    """Whether a pod that was touched is still what the plan was made for."""
    fields = ("labels", "scheduler_name", "phase", "is_gated", "malformed")
    is_same = all(getattr(planned, field) == getattr(now, field) for field in fields)
    return is_same and (planned.spec.requests, planned.spec.share) == (now.spec.requests, now.spec.share)


def _classified(error: ApiError) -> BindReply:
    if error.status in (400, 403, 422):
        return BindReply(Result.REFUSED, error.message)
    return BindReply(Result.GONE if error.status == 404 else Result.UNANSWERED, error.message, retry_after=error.retry_after or 0.0)


def _path(pod: Pod, subresource: str = "") -> ApiPath:
    return PODS.named(pod.namespace, pod.name, subresource)
