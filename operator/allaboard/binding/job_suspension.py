"""Let a batch Job recreate its pods without counting a failure: suspend the Job, and resume it when its pods are gone.

The Job controller doesn't count the pods that it deletes itself (kubernetes pkg/controller/job, deleteJobPods, 1.37). A Job that this
scheduler has suspended carries a label. The label is the only journal: the next leader resumes every Job that carries it.
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
"""Seconds that the pods of a suspended Job may take to go; then the Job is resumed all the same."""

_STALE_TRIES = 5
_RESUME_ATTEMPTS = 100  # a process that loses the lease meanwhile ends
_RETRY_SECONDS = 5.0


@dataclass
class JobKeptError(Exception):
    """A Job is left as it is. ``reason`` continues a sentence that begins with the Job's name."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"job {self.name} {self.reason}"


class JobRestarter:
    """Suspends and resumes Jobs, so that all their pods are recreated. The only cost is that ``activeDeadlineSeconds`` starts again.

    Each write goes through ``fence`` and names the version of the Job that it was decided on. Jobs that an earlier process has suspended
    are looked for in ``namespaces``; empty for all namespaces.
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
        """Let the Jobs that own ``pods`` delete and recreate all their pods. Returns when the Jobs are resumed.

        The checks may take long, so ``is_wanted`` is asked before each attempt to suspend a Job. If it is false, that Job is kept, and
        resumed in case an attempt without an answer has suspended it. Once one Job is suspended, the others are, too.

        A Job with running pods is kept, unless ``even_running``, the running pods are among ``pods``, and no disruption budget forbids any
        of them. A pod that starts between this check and the suspension is lost, but then the Job's version has mostly changed.
        Raises ``JobKeptError`` if a Job must be left alone: before any Job is suspended, unless the Job has changed in that moment. Raises
        ``ApiError``, and ``LeaseLostError`` without leadership.
        """
        ours = [(pod, pod.owner) for pod in pods if pod.owner is not None and pod.is_of_job]
        losable = {pod.uid for pod, _ in ours} if even_running else set()
        if not ours:
            return
        owners = {owner.uid: (pod.namespace, owner) for pod, owner in ours}
        asked = _Asked(losable, is_wanted)
        examined = [await self._examine(namespace, owner, losable) for namespace, owner in owners.values()]
        # The next leader must be able to find the suspended Jobs.
        await _permitted("list jobs", ours[0][1].name, self._left())
        outcomes = await asyncio.gather(
            *(self._restart(*owner, asked, found) for owner, found in zip(owners.values(), examined, strict=True) if found),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def hurry(self) -> None:
        """Stop waiting for pods to terminate and resume the suspended Jobs: the process is shutting down."""
        self._is_hurried = True
        for event in self._awaited.values():
            event.set()

    async def resume_left(self) -> bool:
        """Resume the Jobs that carry our label and aren't being restarted by this process; return whether none is left.

        The Jobs' pods may still be there. A Job that is resumed before its controller has acted continues unchanged, and its gang is
        partially bound as before.
        """
        try:
            left = [job for job in await retried(self._left, self._attempts, self._sleep) if job.uid not in self._tasks]
        except ApiError as error:
            if error.status == 403:
                return True  # then this scheduler suspends no Job either
            logger.warning("jobs that an earlier process may have suspended can't be looked for: %s; trying again", error)
            return False
        outcomes = await asyncio.gather(*(self._resume(job.path, job.uid, self._attempts) for job in left), return_exceptions=True)
        for job, outcome in zip(left, outcomes, strict=True):
            if isinstance(outcome, ApiError | LeaseLostError):
                logger.warning("job %s, which is suspended by us, could not be resumed: %s; trying again", job.path, outcome)
            elif outcome is not None:
                raise outcome
            else:
                logger.info("job %s was left suspended by us, and goes on", job.path)
        return not any(outcomes)

    async def run(self, pause_seconds: float) -> None:
        """Resume Jobs that were left suspended, for ever: an earlier leader's request may arrive late, and one of ours may fail."""
        is_done = False
        while True:
            await asyncio.sleep(pause_seconds if is_done else min(_RETRY_SECONDS, pause_seconds))
            is_done = await self.resume_left()

    def _observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and old.uid in self._awaited and (new is None or new.uid != old.uid or new.is_terminal):
            self._awaited[old.uid].set()

    async def _restart(self, namespace: str, owner: Owner, asked: "_Asked", found: "_Found | None") -> None:
        """Suspend one Job, wait until its pods are gone, and resume it."""
        if owner.uid in self._tasks:
            raise JobKeptError(owner.name, "is being suspended for another gang")
        self._tasks.add(owner.uid)
        try:
            found = await self._suspend(namespace, owner, asked, found)
            if found is None:
                return
            asked.is_begun = True
            await self._until_gone(found.pods)
            await self._resume(found.job.path, owner.uid, _RESUME_ATTEMPTS)
            logger.info("job %s goes on", found.job.path)
        finally:
            self._tasks.discard(owner.uid)
        if any(self._is_alive(pod) for pod in found.pods):
            raise JobKeptError(owner.name, f"was suspended for {LEAVING_SECONDS:g} s at most, and its pods are still there")

    async def _suspend(self, namespace: str, owner: Owner, asked: "_Asked", found: "_Found | None") -> "_Found | None":
        """Suspend a Job as it was ``found``, or in its newer state if it has changed; return ``None`` if the Job is gone."""
        for _ in range(_STALE_TRIES):
            if found is None or found.job.is_suspended:
                return found
            job, was_tried = found.job, False

            async def suspend(job: Job = job) -> None:
                nonlocal was_tried
                if not asked.is_wanted():
                    raise _NotWantedError
                was_tried = True
                await self._patch(job, {SUSPENDED: "true"}, {"suspend": True})

            try:
                await _permitted("patch jobs", owner.name, retried(suspend, self._attempts, self._sleep))
                logger.info("job %s is suspended, so that its %d pods give their seats back", job.path, len(found.pods))
                return found
            except _NotWantedError:
                if was_tried:
                    await self._resume(job.path, owner.uid, _RESUME_ATTEMPTS)
                raise JobKeptError(owner.name, "isn't suspended: whoever needed its seats waits for them no more") from None
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
            found = await self._examine(namespace, owner, asked.losable)
        raise JobKeptError(owner.name, "changes faster than it can be suspended")

    async def _examine(self, namespace: str, owner: Owner, losable: Collection[str]) -> "_Found | None":
        """Return a Job that may be suspended and its pods that haven't ended; ``None`` if the Job is gone. Raises ``JobKeptError``."""
        job = await _permitted("get jobs", owner.name, self._owner_job(namespace, owner))
        if job is None or job.is_ending:
            return None
        if job.manager:
            raise JobKeptError(owner.name, f"can't be suspended by us, since {job.manager} controls it")
        if job.is_suspended and not job.is_labelled:
            raise JobKeptError(owner.name, "was suspended by somebody else")
        pods = await retried(partial(self._pods_of, job), self._attempts, self._sleep)
        for pod in pods:
            if pod.phase != "Pending" and not (pod.is_terminating or job.is_suspended):
                if pod.uid not in losable:
                    raise JobKeptError(owner.name, f"can't be suspended while its pod {pod.name} runs")
                await self._ask_budgets(owner, pod)
        return _Found(job, pods)

    async def _ask_budgets(self, owner: Owner, pod: Pod) -> None:
        """Dry-run the eviction of a running pod, since a suspended Job ignores disruption budgets. Raises ``JobKeptError``."""
        try:
            async with fenced(self._fence):
                await evict(self._server, pod, dry_run=True)
        except ApiError as error:
            if error.status == 429:
                raise JobKeptError(owner.name, f"can't be suspended while its pod {pod.name} runs: {error.message}") from error
            if error.status != 404:
                raise

    async def _until_gone(self, pods: Sequence[Pod]) -> None:
        """Wait until ``pods`` are gone or have ended according to the view, for at most ``LEAVING_SECONDS``."""
        self._awaited |= {pod.uid: asyncio.Event() for pod in pods}
        events = [self._awaited[pod.uid] for pod in pods if not self._is_hurried and self._now(pod) is not None]
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVING_SECONDS):
                    for event in events:
                        await event.wait()
        finally:
            for pod in pods:
                self._awaited.pop(pod.uid, None)

    def _now(self, pod: Pod) -> Pod | None:
        """Return the view's state of ``pod``; ``None`` if the pod is gone or has ended."""
        now = self._view.pod(pod.key)
        return now if now is not None and now.uid == pod.uid and not now.is_terminal else None

    def _is_alive(self, pod: Pod) -> bool:
        now = self._now(pod)
        return now is not None and not now.is_terminating

    async def _resume(self, path: ApiPath, uid: str, attempts: int) -> None:
        """Resume a Job that carries our label. A Job that is resumed already, or has another manager, only loses the label."""
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
        """Return the Job that a pod's owner reference names, ``None`` if it has another UID or is gone. Raises ``ApiError``."""
        return await self._get(JOBS.named(namespace, owner.name), owner.uid, self._attempts)

    async def _left(self) -> list[Job]:
        """Return all Jobs that carry our label."""
        query = {"labelSelector": f"{SUSPENDED}=true"}
        left: dict[str, Job] = {}
        for path in self._lists:
            async for page in pages(self._server, path, query=query):
                left |= {job.uid: job for job in map(Job.of, page.items)}
        return list(left.values())

    async def _pods_of(self, job: Job) -> list[Pod]:
        """Return the present state of a Job's pods that haven't ended."""
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
class _Asked:
    """The conditions for suspending several Jobs together.

    ``losable`` are the UIDs of running pods that may be lost. ``waits`` tells whether a gang waits for the capacity. Once the first Job
    ``is_begun`` the others follow: a part of the capacity helps no gang.
    """

    losable: Collection[str]
    waits: Callable[[], bool]
    is_begun: bool = False

    def is_wanted(self) -> bool:
        """Return whether the Jobs are still to be suspended."""
        return self.is_begun or self.waits()


@dataclass(frozen=True, slots=True)
class _Found:
    """A Job with its pods that haven't ended."""

    job: Job
    pods: Sequence[Pod]


async def _permitted(permission: str, name: str, work: Awaitable[Answer]) -> Answer:
    """Return the result of ``work``. Raises ``JobKeptError`` if the API server refuses it for good."""
    try:
        return await work
    except ApiError as error:
        if error.status == 403:
            raise JobKeptError(name, f"can't be suspended without the permission to {permission}.batch: {error.message}") from error
        if error.status in (400, 422) or isinstance(error, WrongAnswerError | TooLargeError):
            raise JobKeptError(name, f"can't be suspended: {error.message}") from error
        raise
