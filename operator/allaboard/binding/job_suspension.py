"""Make a batch Job recreate its pods without counting a failure: suspend the Job, and resume it when its pods are gone.

The Job controller doesn't count the pods that it deletes itself (kubernetes pkg/controller/job, deleteJobPods, 1.37). A Job that this
scheduler has suspended carries a label. The label is the only record of the suspension: the next leader resumes every Job that carries it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from allaboard.binding.eviction import evict
from allaboard.binding.job_policy import SUSPENDED, Job
from allaboard.cluster.view import ClusterView
from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError, TooLargeError, WrongAnswerError
from allaboard.kube.lists import pages
from allaboard.kube.paths import JOBS, PODS, ApiPath
from allaboard.kube.retry import Answer, Sleep, retried
from allaboard.leadership.lease import Fence, LeaseLostError, Unfenced, fenced
from allaboard.model.pod import Owner, Pod, pod_from

logger = logging.getLogger(__name__)

LEAVING_SECONDS = 60.0
"""Seconds that the pods of a suspended Job may take to go. The Job is resumed after that even if pods are left."""

_STALE_TRIES = 5
_RESUME_ATTEMPTS = 100  # enough, since a process that loses the lease ends
_RETRY_SECONDS = 5.0


@dataclass
class JobKeptError(Exception):
    """A Job isn't suspended, or its suspension had no effect. ``reason`` continues a sentence that begins with the Job's name."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"job {self.name} {self.reason}"


class JobRestarter:
    """Suspends and resumes Jobs, so that all their pods are recreated. The only cost is that ``activeDeadlineSeconds`` starts again.

    Each write passes ``fence`` and names the version of the Job that it was decided on. Jobs that an earlier process has suspended are
    listed in ``namespaces``; empty for all namespaces.
    """

    def __init__(
        self,
        server: ApiServer,
        view: ClusterView,
        fence: Fence | None = None,
        *,
        namespaces: Collection[str] = (),
        attempts: int = 4,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._server = server
        self._view = view
        self._fence = fence or Unfenced()
        self._lists = [JOBS.within(name) for name in sorted(namespaces)] or [JOBS.everywhere]
        self._attempts = attempts
        self._sleep = sleep
        self._tasks: set[str] = set()
        self._awaited: dict[str, asyncio.Event] = {}
        self._is_hurried = False
        view.listen(self._observe_pod)

    async def restart(self, pods: Iterable[Pod], *, even_running: bool = False, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Suspend and resume the Jobs that own ``pods``, so that all pods of these Jobs are recreated. Return when the Jobs are resumed.

        The checks may take long, so ``is_wanted`` is called before each attempt to suspend a Job. If it returns false, the Job is kept. The
        Job is then also resumed, in case an attempt without an answer has suspended it. Once one Job is suspended, all others are, too.

        A Job with running pods is kept, unless ``even_running`` is true, the running pods are among ``pods``, and the disruption budgets
        allow the eviction of each. A pod that starts between this check and the suspension is lost. This is rare, since the start mostly
        changes the Job's version.

        Raises ``JobKeptError`` if a Job must be left alone: before any Job is suspended, unless a Job changes at that moment. Raises
        ``ApiError``, and ``LeaseLostError`` without leadership.
        """
        ours = [(pod, pod.owner) for pod in pods if pod.owner is not None and pod.is_of_job]
        losable = {pod.uid for pod, _ in ours} if even_running else set()
        if not ours:
            return
        owners = {owner.uid: (pod.namespace, owner) for pod, owner in ours}
        conditions = _Conditions(losable, is_wanted)
        examined = [await self._examine(namespace, owner, losable) for namespace, owner in owners.values()]
        # The next leader must be able to find the suspended Jobs.
        await _permitted("list jobs", ours[0][1].name, self._labelled_jobs())
        outcomes = await asyncio.gather(
            *(self._restart(*owner, conditions, found) for owner, found in zip(owners.values(), examined, strict=True) if found),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def hurry(self) -> None:
        """Stop waiting for pods to terminate, and resume the suspended Jobs: the process is shutting down."""
        self._is_hurried = True
        for event in self._awaited.values():
            event.set()

    async def resume_left(self) -> bool:
        """Resume the Jobs that carry our label and that this process isn't restarting; return whether all of them are resumed.

        The pods of such a Job may still exist. A Job that is resumed before its controller has deleted them continues unchanged, and its
        gang stays partially bound.
        """
        try:
            left = [job for job in await retried(self._labelled_jobs, self._attempts, self._sleep) if job.uid not in self._tasks]
        except ApiError as error:
            if error.status == 403:
                return True  # a scheduler that can't list Jobs doesn't suspend any
            logger.warning("jobs that an earlier process may have suspended can't be looked for: %s; trying again", error)
            return False
        outcomes = await asyncio.gather(*(self._resume(job.path, job.uid, self._attempts) for job in left), return_exceptions=True)
        for job, outcome in zip(left, outcomes, strict=True):
            if isinstance(outcome, ApiError | LeaseLostError):
                logger.warning("job %s, which is suspended by us, could not be resumed: %s; trying again", job.path, outcome)
            elif outcome is not None:
                raise outcome
            else:
                logger.info("job %s, which an earlier process left suspended, is resumed", job.path)
        return not any(outcomes)

    async def run(self, pause_seconds: float) -> None:
        """Resume Jobs that were left suspended, again and again: an earlier leader's request may arrive late, and one of ours may fail."""
        is_done = False
        while True:
            await asyncio.sleep(pause_seconds if is_done else min(_RETRY_SECONDS, pause_seconds))
            is_done = await self.resume_left()

    def _observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and old.uid in self._awaited and (new is None or new.uid != old.uid or new.is_terminal):
            self._awaited[old.uid].set()

    async def _restart(self, namespace: str, owner: Owner, conditions: "_Conditions", found: "_Found | None") -> None:
        """Suspend one Job, wait until its pods are gone, and resume it."""
        if owner.uid in self._tasks:
            raise JobKeptError(owner.name, "is being suspended for another gang")
        self._tasks.add(owner.uid)
        try:
            found = await self._suspend(namespace, owner, conditions, found)
            if found is None:
                return
            conditions.is_begun = True
            await self._until_gone(found.pods)
            await self._resume(found.job.path, owner.uid, _RESUME_ATTEMPTS)
            logger.info("job %s is resumed", found.job.path)
        finally:
            self._tasks.discard(owner.uid)
        if any(self._is_alive(pod) for pod in found.pods):
            raise JobKeptError(owner.name, f"was suspended for {LEAVING_SECONDS:g} s at most, and its pods are still there")

    async def _suspend(self, namespace: str, owner: Owner, conditions: "_Conditions", found: "_Found | None") -> "_Found | None":
        """Suspend a Job, and return the Job and its pods as they were then; ``None`` if the Job is gone.

        ``found`` is the Job when it was examined. A Job that has changed since is examined again.
        """
        for _ in range(_STALE_TRIES):
            if found is None or found.job.is_suspended:
                return found
            job, was_tried = found.job, False

            async def suspend(job: Job = job) -> None:
                nonlocal was_tried
                if not conditions.is_wanted():
                    raise _NotWantedError
                was_tried = True
                await self._patch(job, {SUSPENDED: "true"}, {"suspend": True})

            try:
                await _permitted("patch jobs", owner.name, retried(suspend, self._attempts, self._sleep))
                logger.info("job %s is suspended, so that its %d pods release their capacity", job.path, len(found.pods))
                return found
            except _NotWantedError:
                if was_tried:
                    await self._resume(job.path, owner.uid, _RESUME_ATTEMPTS)
                raise JobKeptError(owner.name, "isn't suspended: no gang waits for the capacity of its pods") from None
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
            found = await self._examine(namespace, owner, conditions.losable)
        raise JobKeptError(owner.name, "changes faster than it can be suspended")

    async def _examine(self, namespace: str, owner: Owner, losable: Collection[str]) -> "_Found | None":
        """Return a Job that may be suspended, with its pods that haven't ended; ``None`` if it is gone. Raises ``JobKeptError``."""
        job = await _permitted("get jobs", owner.name, self._owner_job(namespace, owner))
        if job is None or job.is_ending:
            return None
        if job.manager:
            raise JobKeptError(owner.name, f"can't be suspended by us, since {job.manager} controls it")
        if job.is_suspended and not job.is_labelled:
            raise JobKeptError(owner.name, "was suspended by another client")
        pods = await retried(partial(self._pods_of, job), self._attempts, self._sleep)
        for pod in pods:
            if pod.phase != "Pending" and not (pod.is_terminating or job.is_suspended):
                if pod.uid not in losable:
                    raise JobKeptError(owner.name, f"can't be suspended while its pod {pod.name} runs")
                await self._check_budgets(owner, pod)
        return _Found(job, pods)

    async def _check_budgets(self, owner: Owner, pod: Pod) -> None:
        """Dry-run the eviction of a running pod, since a suspended Job ignores disruption budgets. Raises ``JobKeptError``.

        The error means that a budget forbids the eviction.
        """
        try:
            async with fenced(self._fence):
                await evict(self._server, pod, dry_run=True)
        except ApiError as error:
            if error.status == 429:
                raise JobKeptError(owner.name, f"can't be suspended while its pod {pod.name} runs: {error.message}") from error
            if error.status != 404:
                raise

    async def _until_gone(self, pods: Sequence[Pod]) -> None:
        """Wait until the view shows that ``pods`` are gone or have ended, for at most ``LEAVING_SECONDS``."""
        self._awaited |= {pod.uid: asyncio.Event() for pod in pods}
        events = [self._awaited[pod.uid] for pod in pods if not self._is_hurried and self._in_view(pod) is not None]
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVING_SECONDS):
                    for event in events:
                        await event.wait()
        finally:
            for pod in pods:
                self._awaited.pop(pod.uid, None)

    def _in_view(self, pod: Pod) -> Pod | None:
        """Return the view's state of ``pod``; ``None`` if the pod is gone or has ended."""
        now = self._view.pod(pod.key)
        return now if now is not None and now.uid == pod.uid and not now.is_terminal else None

    def _is_alive(self, pod: Pod) -> bool:
        now = self._in_view(pod)
        return now is not None and not now.is_terminating

    async def _resume(self, path: ApiPath, uid: str, attempts: int) -> None:
        """Resume a Job if it carries our label. If the Job is resumed already or has another manager, only the label is removed."""
        for _ in range(_STALE_TRIES):
            job = await self._get(path, uid, attempts)
            if job is None or not job.is_labelled:
                return
            change = {"suspend": False} if job.is_suspended and not job.manager else {}
            try:
                await retried(partial(self._patch, job, {SUSPENDED: None}, change), attempts, self._sleep)
                return
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
        raise ApiError(409, "Conflict", f"{path} changes faster than it can be resumed")

    async def _patch(self, job: Job, labels: Mapping[str, str | None], spec: Mapping[str, bool]) -> None:
        async with fenced(self._fence):
            metadata = {"resourceVersion": job.version, "labels": labels}
            await self._server.patch(job.path, {"metadata": metadata, "spec": spec})

    async def _get(self, path: ApiPath, uid: str, attempts: int) -> Job | None:
        try:
            raw = await retried(partial(self._server.get, path), attempts, self._sleep)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return Job.of(raw) if raw["metadata"]["uid"] == uid else None

    async def _owner_job(self, namespace: str, owner: Owner) -> Job | None:
        """Return the Job that a pod's owner reference names; ``None`` if it is gone or has another UID. Raises ``ApiError``."""
        return await self._get(JOBS.named(namespace, owner.name), owner.uid, self._attempts)

    async def _labelled_jobs(self) -> list[Job]:
        """Return all Jobs that carry our label."""
        query = {"labelSelector": f"{SUSPENDED}=true"}
        left: dict[str, Job] = {}
        for path in self._lists:
            async for page in pages(self._server, path, query=query):
                left |= {job.uid: job for job in map(Job.of, page.items)}
        return list(left.values())

    async def _pods_of(self, job: Job) -> list[Pod]:
        """Return the pods of a Job that haven't ended, as the API server has them now."""
        found: list[Pod] = []
        async for page in pages(self._server, PODS.within(job.path.namespace), query={"labelSelector": job.selector}):
            pods = map(pod_from, page.items)
            found = [
                *(() if page.begins else found),
                *(pod for pod in pods if pod.owner is not None and pod.owner.uid == job.uid and not pod.is_terminal),
            ]
        return found


class _NotWantedError(Exception):
    """No gang waits for the capacity of the Job's pods."""


@dataclass(slots=True)
class _Conditions:
    """The conditions for suspending several Jobs together.

    ``losable`` are the UIDs of running pods that may be lost. ``waits`` returns whether a gang waits for the capacity. ``is_begun`` is true
    once one Job is suspended; the other Jobs follow then, since a part of the capacity helps no gang.
    """

    losable: Collection[str]
    waits: Callable[[], bool]
    is_begun: bool = False

    def is_wanted(self) -> bool:
        """Return whether a Job that isn't suspended yet is to be suspended."""
        return self.is_begun or self.waits()


@dataclass(frozen=True, slots=True)
class _Found:
    """A Job with its pods that haven't ended."""

    job: Job
    pods: Sequence[Pod]


async def _permitted(permission: str, name: str, work: Awaitable[Answer]) -> Answer:
    """Return the result of ``work`` on the Job ``name``. Raises ``JobKeptError`` if the API server refuses ``work`` for good.

    ``permission`` is named in the message if it is missing.
    """
    try:
        return await work
    except ApiError as error:
        if error.status == 403:
            raise JobKeptError(name, f"can't be suspended without the permission to {permission}.batch: {error.message}") from error
        if error.status in (400, 422) or isinstance(error, WrongAnswerError | TooLargeError):
            raise JobKeptError(name, f"can't be suspended: {error.message}") from error
        raise
