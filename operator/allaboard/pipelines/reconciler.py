"""Reconciles pipelines: lists the objects of a pipeline, carries out its plan, and writes its status. Nothing is decided here.

A pipeline is reconciled when it or one of its pods has changed, after a growing pause while it isn't ready, and periodically. Each time
begins with the present objects, so it may happen at any time and any number of times. Only the leader reconciles.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial

from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.lists import pages
from allaboard.kube.paths import ApiPath, Resource
from allaboard.model.gang import GangKey
from allaboard.model.limits import PIPELINES
from allaboard.model.pod import Pod
from allaboard.model.times import api_time
from allaboard.pipelines.objects import DEPLOYMENTS, FUNCTIONS, HOME, MEMBER_OF, MLFLOWS, NAME, UID, Body, is_of
from allaboard.pipelines.plan import Failure, Found, ObjectKey, Phase, Plan, failures_of, is_stored, plan_of, status_of, with_failures
from allaboard.pipelines.stages import Pipeline, Policy, pipeline_from
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.writer import Writer

logger = logging.getLogger(__name__)

_SOON_SECONDS = 0.5  # pause after a change of a pod, for its Deployment's status to follow
_FIRST_PAUSE_SECONDS = 1.0


class PipelineReconciler:
    """Keeps the objects of every pipeline (an ``MLFlow`` object) as its spec wants them. The reflector of MLFlows writes into it.

    ``leads`` returns whether this replica may write; ``why`` returns the reason for which a gang waits.
    """

    def __init__(
        self,
        server: ApiServer,
        writer: Writer,
        events: EventRecorder,
        policy: Policy,
        *,
        leads: Callable[[], bool],
        why: Callable[[GangKey], str],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._server = server
        self._writer = writer
        self._events = events
        self._policy = policy
        self._leads = leads
        self._why = why
        self._now = now
        self._pipelines: dict[str, Pipeline] = {}
        self._keys: dict[str, str] = {}  # keys of pipelines by UID
        self._within: defaultdict[str, set[str]] = defaultdict(set)  # keys of the pipelines within the limit, by namespace
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pauses: dict[str, float] = {}
        self._failures: dict[str, Collection[Failure]] = {}  # those that were last reported, by key
        self._longest_pause = _FIRST_PAUSE_SECONDS

    def upsert(self, key: str, record: Pipeline) -> None:
        """Record the newest state of a pipeline, and reconcile it if spec or status have changed."""
        old = self._pipelines.get(key)
        if old is not None and old.uid != record.uid:
            self.remove(key)
            old = None
        record = self._within_limit(key, record)
        self._pipelines[key], self._keys[record.uid] = record, key
        if old is None or old.generation != record.generation or old.status_digest != record.status_digest:
            self._pauses.pop(key, None)
            self._queue(key)

    def remove(self, key: str) -> None:
        """Forget a pipeline, and delete its objects in other namespaces. The garbage collector deletes those in its own namespace."""
        pipeline = self._pipelines.pop(key, None)
        if pipeline is None:
            return
        self._keys.pop(pipeline.uid, None)
        self._failures.pop(key, None)
        self._within[pipeline.namespace].discard(key)
        if not self._within[pipeline.namespace]:
            del self._within[pipeline.namespace]
        self._pauses.pop(key, None)
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if self._policy.namespaces and self._leads():
            self._writer.put("remains of pipelines", self.sweep)

    def known(self) -> Collection[str]:
        """Return the keys of all pipelines."""
        return self._pipelines.keys()

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Reconcile the pipeline of a pod that was created, changed or deleted, after 0.5 s; ignore other pods."""
        pod = new or old
        uid = pod.label(MEMBER_OF) if pod is not None and pod.labels else None
        if uid is not None and (key := self._keys.get(uid)) is not None:
            self._pauses.pop(key, None)
            self._queue_after(_SOON_SECONDS, key)

    async def run(self, every_seconds: float) -> None:
        """Reconcile all pipelines now and every ``every_seconds``, until cancelled."""
        self._longest_pause = every_seconds
        try:
            while True:
                for key in list(self._pipelines):
                    self._queue(key)
                if self._policy.namespaces:
                    self._writer.put("remains of pipelines", self.sweep)
                await asyncio.sleep(every_seconds)
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def sweep(self) -> None:
        """Delete objects of deleted pipelines in namespaces other than their own. Raises ``ApiError``."""
        exists: dict[str, bool] = {}
        for namespace in self._policy.namespaces:
            for resource in (DEPLOYMENTS, FUNCTIONS):
                for raw in await self._list(resource, namespace, UID) or ():
                    labels = raw["metadata"]["labels"]
                    uid = str(labels[UID])
                    if uid not in exists:
                        exists[uid] = uid in self._keys or await self._exists(str(labels.get(HOME)), str(labels.get(NAME)), uid)
                    if not exists[uid] and self._leads():
                        await self._delete(resource, raw)

    def _within_limit(self, key: str, pipeline: Pipeline) -> Pipeline:
        """Return ``pipeline``; without stages and with a problem if its namespace has too many pipelines."""
        within = self._within[pipeline.namespace]
        if key not in within and len(within) >= PIPELINES.most:
            problem = f"is one of more than {PIPELINES.most} {PIPELINES.words}; it is tried again when it is changed"
            return replace(pipeline, stages=(), problem=f"metadata.namespace: {problem}")
        within.add(key)
        return pipeline

    def _queue(self, key: str) -> None:
        """Queue a pipeline for reconciliation, after more urgent work."""
        if self._leads() and (pipeline := self._pipelines.get(key)) is not None:
            self._writer.put(f"pipeline {key}", partial(self._reconcile, key), pipeline.namespace)

    def _queue_after(self, seconds: float, key: str) -> None:
        """Queue a pipeline after ``seconds``, unless it will be queued sooner anyway."""
        if not self._leads():
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + seconds:
            return
        if timer is not None:
            timer.cancel()

        def queue() -> None:
            self._timers.pop(key, None)
            self._queue(key)

        self._timers[key] = loop.call_later(seconds, queue)

    async def _reconcile(self, key: str) -> None:
        pipeline = self._pipelines.get(key)
        if pipeline is None or pipeline.is_terminating or not self._leads():
            return
        problem, plan, problems = "", Plan(), dict[str, str]()
        try:
            if not pipeline.problem:
                plan = plan_of(pipeline, await self._find(pipeline), self._policy, self._why)
                problems = await self._carry_out(pipeline, plan)
        except ApiError as error:
            if error.is_transient:
                raise
            problem = str(error)
        states = with_failures(plan.states, problems)
        status = status_of(pipeline, states, problem, api_time(self._now()))
        if self._pipelines.get(key) == pipeline:
            self._report_failures(key, pipeline, failures_of(pipeline, states, problem))
        if not is_stored(pipeline, status) and self._pipelines.get(key) == pipeline:
            raw = await self._server.patch(MLFLOWS.named(pipeline.namespace, pipeline.name, "status"), {"status": status})
            if self._pipelines.get(key) == pipeline:
                newest = pipeline_from(raw)
                if (newest.uid, newest.generation) == (pipeline.uid, pipeline.generation):
                    self._pipelines[key] = self._within_limit(key, newest)
                else:  # record it now: its watch event will look unchanged
                    self.upsert(key, newest)
        if problem or any(each.phase in (Phase.DEPLOYING, Phase.FAILED) and not each.stage.problem for each in states):
            pause = self._pauses.get(key, _FIRST_PAUSE_SECONDS)
            self._pauses[key] = min(2 * pause, self._longest_pause)
            self._queue_after(pause, key)

    def _report_failures(self, key: str, pipeline: Pipeline, failures: Collection[Failure]) -> None:
        """Report each failure by an event and in the log, unless it was reported at the last reconciliation."""
        about = ObjectReference(MLFLOWS.api_version, MLFLOWS.kind, pipeline.namespace, pipeline.name, pipeline.uid)
        for failure in failures:
            if failure not in self._failures.get(key, ()):
                self._events.warning(about, failure.reason, "Deploying", failure.message)
                logger.warning("pipeline %s: %s", key, failure.message)
        self._failures[key] = failures

    async def _find(self, pipeline: Pipeline) -> Found:
        """Return the existing objects of a pipeline. Raises ``ApiError``."""
        own: dict[ObjectKey, Body] = {}
        behind: dict[tuple[str, str], Body] = {}
        has_functions = True
        for namespace in dict.fromkeys((pipeline.namespace, *self._policy.namespaces)):
            for resource in (DEPLOYMENTS, FUNCTIONS) if has_functions else (DEPLOYMENTS,):
                listed = await self._list(resource, namespace, f"{UID}={pipeline.uid}")
                has_functions = has_functions and (listed is not None or resource is not FUNCTIONS)
                own |= {(resource, namespace, str(raw["metadata"]["name"])): raw for raw in listed or ()}
        for resource, namespace, name in own:
            if resource is FUNCTIONS and (raw_behind := await self._get(DEPLOYMENTS.named(namespace, name))) is not None:
                behind[namespace, name] = raw_behind
        return Found(own, behind, has_functions)

    async def _carry_out(self, pipeline: Pipeline, plan: Plan) -> dict[str, str]:
        """Carry out a plan. Return the API server's refusals by stage. Raises ``ApiError`` if a retry may succeed."""
        problems: dict[str, str] = {}

        async def tried(stage: str, work: Awaitable[object]) -> None:
            try:
                await work
            except ApiError as error:
                if error.is_transient:
                    raise
                problems.setdefault(stage, str(error))

        for stage, (resource, namespace, name), body in plan.create:
            await tried(stage, self._create(pipeline, resource.named(namespace, name), body))
        for stage, (resource, namespace, name), body in plan.repair:
            await tried(stage, self._repair(resource.named(namespace, name), body))
        for resource, namespace, name in plan.remove:
            raw = await self._get(resource.named(namespace, name))
            if raw is not None and is_of(pipeline, raw):
                await self._delete(resource, raw)
        return problems

    async def _create(self, pipeline: Pipeline, path: ApiPath, body: Body) -> None:
        try:
            await self._server.post(path.resource.within(path.namespace), body)
        except ApiError as error:
            if error.status != 409:
                raise
            raw = await self._get(path)
            if raw is None or not is_of(pipeline, raw):
                kind, taken = path.resource.kind, f"{path.namespace}/{path.name}"
                raise ApiError(409, "AlreadyExists", f"there is a {kind} {taken} already, which isn't this pipeline's") from error

    async def _repair(self, path: ApiPath, body: Body) -> None:
        """Patch an object. If it was changed, replaced or deleted since it was read, leave it to the next reconciliation."""
        try:
            await self._server.patch(path, body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def _delete(self, resource: Resource, raw: Body) -> None:
        """Delete an object, unless another object has replaced it."""
        metadata = raw["metadata"]
        options = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        try:
            await self._server.delete(resource.named(str(metadata["namespace"]), str(metadata["name"])), options)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def _list(self, resource: Resource, namespace: str, selector: str) -> list[Body] | None:
        """Return the objects with a label; None if their kind isn't served. Raises ``ApiError``."""
        found: list[Body] = []
        try:
            async for page in pages(self._server, resource.within(namespace), query={"labelSelector": selector}):
                if page.begins:
                    found.clear()
                found += page.items
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return found

    async def _get(self, path: ApiPath) -> Body | None:
        try:
            return await self._server.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def _exists(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether a pipeline with this UID exists; True also if that is unknown, e.g. because a 404 isn't about the object."""
        try:
            raw = await self._server.get(MLFLOWS.named(namespace, name))
        except ApiError as error:
            if error.is_transient:
                raise
            return error.status != 404 or error.details.get("name") != name
        return bool(raw["metadata"]["uid"] == uid)
