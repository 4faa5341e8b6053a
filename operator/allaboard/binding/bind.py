"""Bind and release single pods, and classify every reply of the API server.

A bind is not idempotent, and its reply can be lost. A bind has therefore succeeded if the pod has the planned node and our stamp.
The replies and their texts are those of kube-apiserver 1.37, registry/core/pod/storage/storage.go.
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
from allaboard.kube.client import STRATEGIC_PATCH, ApiError, ApiServer
from allaboard.kube.errors import answered_within
from allaboard.kube.paths import PODS, ApiPath
from allaboard.kube.request_limits import RequestLimits
from allaboard.kube.retry import Answer, Patience, Sleep, Turn, retried
from allaboard.leadership.lease import Fence, LeaseLostError, Unfenced, fenced
from allaboard.model.disruption import disrupted_for
from allaboard.model.pod import STAMP, Pod, pod_from
from allaboard.model.requests import RawObject
from allaboard.placement import Violation

_STALE_TRIES = 3
_ANSWER_SECONDS = 5.0
# Capacity stays assumed while answers are awaited, and other gangs need it. So a dry run is awaited for 5 s at most, and a bind isn't tried
# again after 5 s of waiting. A request of a bind is awaited to its time limit, since it may still be carried out.
_DRY_RUN_PATIENCE, _BIND_PATIENCE = Patience(0.3, _ANSWER_SECONDS), Patience(1.0, _ANSWER_SECONDS)
_RELEASES, _RELEASES_EACH = 32, 4

AssignmentCheck = Callable[[], Violation | None]
"""Returns the rule that an assignment violates now; ``None`` if the assignment is still valid."""


class Binder:
    """Binds and releases pods: at most ``concurrency`` binds at once over all transactions, and three quarters of that in one namespace.

    Before each request that changes something, also before a retry, ``fence`` is asked whether this replica may send it. The request names
    a version of the pod that was read before that. ``read`` makes a record of a raw pod, as for planning.
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
        each = max(1, concurrency * 3 // 4)  # a quarter is left for other namespaces
        self._dry_run_limits = RequestLimits(concurrency, each)
        self._bind_limits = RequestLimits(concurrency, each, self._dry_run_limits)
        self._release_limits = RequestLimits(_RELEASES, _RELEASES_EACH)
        self._attempts = attempts
        self._read_pod = read
        self._sleep = sleep
        self._clock = clock
        self._tasks = 0
        self._busy_since = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_until_idle(self, patience: float) -> None:
        """Wait until no bind is in flight, or until binds have been in flight for ``patience`` seconds without a pause."""
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
        check: AssignmentCheck = lambda: None,
        annotations: Mapping[str, str] | None = None,
    ) -> BindReply:
        """Bind ``pod``, at its last seen UID and resourceVersion, to ``node_name``. Never raises for an answer of the API server.

        Before each request ``check`` is called. Nothing is awaited between this check and the request, so that a valid assignment stays
        valid. ``annotations`` are written to the pod together with the stamp.
        """
        bind = _Bind(pod, node_name, stamp, pod.resource_version, dry_run, check, annotations or {})
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
        turn = partial((self._dry_run_limits if bind.dry_run else self._bind_limits).turn, bind.pod.namespace)
        for _ in range(_STALE_TRIES):
            try:
                await retried(partial(self._post, bind), attempts, self._sleep, patience=patience, turn=turn)
                return BindReply(Result.BOUND)
            except _AssignmentSpoiltError as error:
                return await self._after_failure(bind, BindReply(Result.SPOILT, violation=error.violation))
            except ApiError as error:
                if error.status != 409:
                    return _classified(error) if bind.dry_run else await self._after_failure(bind, _classified(error))
                reply = await self._after_conflict(bind, error)
                if reply:
                    return reply
        return BindReply(Result.UNANSWERED, f"pod {bind.pod.key} changes faster than it can be bound")

    async def mark(self, pod: Pod, mark: str) -> bool:
        """Write to a bound ``pod`` that it is evicted for the gang with ``mark``; or, if that is empty, that the pod stays.

        Return whether the pod exists. Raises ``ApiError``, and ``LeaseLostError`` without leadership.
        """
        condition = disrupted_for(mark, time.time())
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        send = partial(self._server.write, _path(pod, "status"), body, STRATEGIC_PATCH)
        try:
            await self._retried(partial(self._change, send), partial(self._release_limits.turn, pod.namespace))
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    async def release(self, pod: Pod, *, even_running: bool = False, despite_budgets: bool = False) -> bool:
        """Delete or evict a bound ``pod``, so that its controller recreates it; return whether the pod is gone or being deleted.

        A running pod is kept, unless ``even_running``: then it is evicted, which respects its grace period and disruption budgets. The pod
        of a batch Job is always evicted, and only if the Job doesn't count that as a failure. UID and resourceVersion are preconditions:
        they make the request fail if the pod has just started, or if the request is an earlier leader's. With ``despite_budgets`` a pod is
        deleted if a disruption budget forbids its eviction.
        Raises ``ApiError`` (429 if a disruption budget forbids the eviction), and ``LeaseLostError`` without leadership.
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
                await self._retried(send_it, partial(self._release_limits.turn, pod.namespace))
                return True
            except ApiError as error:
                if error.status == 404:
                    return True
                if error.status == 429 and despite_budgets and send != self._delete:
                    send = self._delete
                    continue
                tries += 1
                if error.status != 409 or tries == _STALE_TRIES:  # the pod changes faster than it can be released
                    raise

    async def may_go(self, pod: Pod) -> bool:
        """Return whether the controller of ``pod`` tolerates its loss: a batch Job must not count it as failed. Raises ``ApiError``."""
        return not pod.is_of_job or await self._retried(partial(ignores_disruption, self._server, pod))

    async def would_go(self, pod: Pod, *, is_suspended: bool = False, despite_budgets: bool = False) -> bool:
        """Return whether a bound ``pod`` could be evicted now: its disruption budgets, by a dry run, and its batch Job allow that.

        With ``is_suspended`` the Job's policy isn't read, since the Job would be suspended first. With ``despite_budgets`` a disruption
        budget forbids nothing. Raises ``ApiError``, and ``LeaseLostError`` without leadership.
        """
        if not is_suspended and not await self.may_go(pod):
            return False
        try:
            send_it = partial(self._change, partial(evict, self._server, pod, {"uid": pod.uid}, dry_run=True))
            await self._retried(send_it, partial(self._release_limits.turn, pod.namespace))
        except ApiError as error:
            if error.status == 429 and despite_budgets:
                return True
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
        if problem := bind.check():
            raise _AssignmentSpoiltError(problem)
        send = partial(self._server.post, _path(pod, "binding"), body, {"dryRun": "All"} if bind.dry_run else None)
        with bind.sending():
            await (self._send_dry_run(send) if bind.dry_run else self._change(send))

    async def _send_dry_run(self, send: Callable[[], Awaitable[object]]) -> None:
        """Send a dry run, limited to 5 s: capacity stays assumed while a slow webhook answers."""
        async with answered_within(_ANSWER_SECONDS, f"no answer to the dry run within {_ANSWER_SECONDS:g} s"):
            await self._change(send)

    async def _change(self, send: Callable[[], Awaitable[object]]) -> None:
        async with fenced(self._fence):
            await send()

    async def _after_conflict(self, bind: "_Bind", conflict: ApiError) -> BindReply | None:
        """Read the pod after a conflict and return the reply; ``None`` if the bind may be tried again with the pod's new version."""
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

    async def _after_failure(self, bind: "_Bind", otherwise: BindReply) -> BindReply:
        """Read the pod after the last error and return the reply: ``otherwise``, unless an unanswered try has bound the pod."""
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
        # The pod exists, so a webhook has answered 404. That doesn't show whether an earlier try has bound the pod.
        return replace(otherwise, result=Result.UNANSWERED) if otherwise.result is Result.GONE else otherwise

    async def _read(self, bind: "_Bind") -> dict[str, Any] | None:
        return await retried(partial(self._current, bind.pod), self._attempts, self._sleep, patience=_BIND_PATIENCE)

    async def _current(self, pod: Pod) -> dict[str, Any] | None:
        """Return the API server's state of the pod; ``None`` if the pod is gone or another pod has its name."""
        try:
            current = await self._server.get(_path(pod))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return current if current["metadata"]["uid"] == pod.uid else None

    @asynccontextmanager
    async def _noted(self) -> AsyncIterator[None]:
        """Count one more bind in flight for as long as the ``with`` block runs."""
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
    """An assignment is no longer valid, because of ``violation``."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation)
        self.violation = violation


@dataclass(slots=True)
class _Bind:
    """One bind and the state of its requests.

    ``version`` is the resourceVersion that the last request named. ``is_in_doubt`` is true if an unanswered request with this version may
    still be carried out, or has been.
    """

    pod: Pod
    node_name: str
    stamp: str
    version: str
    dry_run: bool
    check: AssignmentCheck
    annotations: Mapping[str, str]
    is_in_doubt: bool = False

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Mark the bind as in doubt while a request is sent. Without a definite answer it stays in doubt."""
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
        """Record the version that was read after a conflict. If it is new, requests that named an older version fail, so no doubt is left.

        It isn't new if a webhook has answered 409.
        """
        self.is_in_doubt = self.is_in_doubt and version == self.version
        self.version = version


def _bound_reply(current: dict[str, Any], bind: _Bind, message: str) -> BindReply:
    annotations = current["metadata"].get("annotations") or {}
    if current["spec"]["nodeName"] == bind.node_name and annotations.get(STAMP) == bind.stamp:
        return BindReply(Result.BOUND)
    return BindReply(Result.ELSEWHERE, message)


def _is_as_planned(planned: Pod, now: Pod) -> bool:
    """Return whether a changed pod still equals the planned one in all fields that the plan depends on."""
    fields = ("labels", "scheduler_name", "phase", "is_gated", "malformed")
    is_same = all(getattr(planned, field) == getattr(now, field) for field in fields)
    return is_same and (planned.spec.requests, planned.spec.share) == (now.spec.requests, now.spec.share)


def _classified(error: ApiError) -> BindReply:
    if error.status in (400, 403, 422):
        return BindReply(Result.REFUSED, error.message)
    return BindReply(Result.GONE if error.status == 404 else Result.UNANSWERED, error.message, retry_after=error.retry_after or 0.0)


def _path(pod: Pod, subresource: str = "") -> ApiPath:
    return PODS.named(pod.namespace, pod.name, subresource)
