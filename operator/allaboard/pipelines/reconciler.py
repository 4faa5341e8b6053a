"""Brings pipelines about: looks at what there is of one, does what its plan says, and writes its status. Nothing is decided here.

A look may come at any time and any number of times, and begins from the facts. It is due when the pipeline or one of its pods has
changed, some time after one that left something unfinished, and every so often. Only the leader looks.
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
from allaboard.pipelines.objects import DEPLOYMENTS, FUNCTIONS, HOME, MEMBER_OF, MLFLOWS, NAME, UID, Body, is_of
from allaboard.pipelines.plan import Failure, Found, Phase, Place, Plan, failed, failures_of, is_told, plan_of, status_of
from allaboard.pipelines.stages import Pipeline, Policy, pipeline_from
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.status import api_time
from allaboard.report.writer import Writer

logger = logging.getLogger(__name__)

_SOON_SECONDS = 0.5  # after a pod has changed its Deployment does
_FIRST_PAUSE_SECONDS = 1.0


class PipelineReconciler:
    """Keeps the objects of every pipeline as it asks for. It is the ``Store`` of the reflector of MLFlows.

    ``leads`` tells whether this replica may write, ``why`` what a gang waits for.
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
        self._keys: dict[str, str] = {}  # by UID
        self._taken: defaultdict[str, set[str]] = defaultdict(set)  # keys, by namespace
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pauses: dict[str, float] = {}
        self._failures: dict[str, Collection[Failure]] = {}  # as they were last told
        self._longest_pause = _FIRST_PAUSE_SECONDS

    def upsert(self, key: str, record: Pipeline) -> None:
        """Take the newest state of a pipeline."""
        old = self._pipelines.get(key)
        if old is not None and old.uid != record.uid:
            self.remove(key)
            old = None
        record = self._within_limit(key, record)
        self._pipelines[key], self._keys[record.uid] = record, key
        if old is None or old.generation != record.generation or old.told != record.told:
            self._pauses.pop(key, None)
            self._look(key)

    def remove(self, key: str) -> None:
        """Forget a pipeline, and have what it leaves in other namespaces deleted; in its own the garbage collector does that."""
        pipeline = self._pipelines.pop(key, None)
        if pipeline is None:
            return
        self._keys.pop(pipeline.uid, None)
        self._failures.pop(key, None)
        self._taken[pipeline.namespace].discard(key)
        if not self._taken[pipeline.namespace]:
            del self._taken[pipeline.namespace]
        self._pauses.pop(key, None)
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if self._policy.namespaces and self._leads():
            self._writer.put("remains of pipelines", self.sweep)

    def known(self) -> Collection[str]:
        """The keys of all pipelines."""
        return self._pipelines.keys()

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod has come, changed or gone; if it is one of a pipeline's, that is looked at soon."""
        pod = new or old
        uid = pod.label(MEMBER_OF) if pod is not None and pod.labels else None
        if uid is not None and (key := self._keys.get(uid)) is not None:
            self._pauses.pop(key, None)
            self._look_in(_SOON_SECONDS, key)

    async def run(self, every_seconds: float) -> None:
        """Look at all pipelines now and every so often, until cancelled."""
        self._longest_pause = every_seconds
        try:
            while True:
                for key in list(self._pipelines):
                    self._look(key)
                if self._policy.namespaces:
                    self._writer.put("remains of pipelines", self.sweep)
                await asyncio.sleep(every_seconds)
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def sweep(self) -> None:
        """Delete what pipelines that are gone have left in namespaces other than their own. Raises ``ApiError``."""
        lives: dict[str, bool] = {}
        for namespace in self._policy.namespaces:
            for resource in (DEPLOYMENTS, FUNCTIONS):
                for raw in await self._list(resource, namespace, UID) or ():
                    labels = raw["metadata"]["labels"]
                    uid = str(labels[UID])
                    if uid not in lives:
                        lives[uid] = uid in self._keys or await self._lives(str(labels.get(HOME)), str(labels.get(NAME)), uid)
                    if not lives[uid] and self._leads():
                        await self._delete(resource, raw)

    def _within_limit(self, key: str, pipeline: Pipeline) -> Pipeline:
        """``pipeline``, but without its stages when there are too many of its namespace."""
        taken = self._taken[pipeline.namespace]
        if key not in taken and len(taken) >= PIPELINES.most:
            words = f"is one of more than {PIPELINES.most} {PIPELINES.words}; it is looked at again when it is changed"
            return replace(pipeline, stages=(), problem=f"metadata.namespace: {words}")
        taken.add(key)
        return pipeline

    def _look(self, key: str) -> None:
        """Have a pipeline looked at when there is nothing more urgent."""
        if self._leads() and (pipeline := self._pipelines.get(key)) is not None:
            self._writer.put(f"pipeline {key}", partial(self._bring_about, key), pipeline.namespace)

    def _look_in(self, seconds: float, key: str) -> None:
        """Have it looked at after ``seconds``, or when that is due anyway, whichever is sooner."""
        if not self._leads():
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + seconds:
            return
        if timer is not None:
            timer.cancel()

        def look() -> None:
            self._timers.pop(key, None)
            self._look(key)

        self._timers[key] = loop.call_later(seconds, look)

    async def _bring_about(self, key: str) -> None:
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
        states = failed(plan.states, problems)
        status = status_of(pipeline, states, problem, api_time(self._now()))
        if self._pipelines.get(key) == pipeline:
            self._tell(key, pipeline, failures_of(pipeline, states, problem))
        if not is_told(pipeline, status) and self._pipelines.get(key) == pipeline:
            raw = await self._server.patch(MLFLOWS.named(pipeline.namespace, pipeline.name, "status"), {"status": status})
            if self._pipelines.get(key) == pipeline:
                newest = pipeline_from(raw)
                if (newest.uid, newest.generation) == (pipeline.uid, pipeline.generation):
                    self._pipelines[key] = self._within_limit(key, newest)
                else:  # its event may come too late to bring news
                    self.upsert(key, newest)
        if problem or any(each.phase in (Phase.DEPLOYING, Phase.FAILED) and not each.stage.problem for each in states):
            pause = self._pauses.get(key, _FIRST_PAUSE_SECONDS)
            self._pauses[key] = min(2 * pause, self._longest_pause)
            self._look_in(pause, key)

    def _tell(self, key: str, pipeline: Pipeline, failures: Collection[Failure]) -> None:
        """Tell of failures, with an event and in the log, unless that was done when the pipeline was last looked at."""
        about = ObjectReference(MLFLOWS.api_version, MLFLOWS.kind, pipeline.namespace, pipeline.name, pipeline.uid)
        for failure in failures:
            if failure not in self._failures.get(key, ()):
                self._events.warning(about, failure.reason, "Deploying", failure.message)
                logger.warning("pipeline %s: %s", key, failure.message)
        self._failures[key] = failures

    async def _find(self, pipeline: Pipeline) -> Found:
        """What there is of a pipeline. Raises ``ApiError``."""
        own: dict[Place, Body] = {}
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
        """Do what a plan says; returns what was refused, by stage. Raises ``ApiError`` for what may succeed when it is tried again."""
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
        for stage, (resource, namespace, name), body in plan.mend:
            await tried(stage, self._mend(resource.named(namespace, name), body))
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

    async def _mend(self, path: ApiPath, body: Body) -> None:
        """Change the object that was found, as it was then; whatever has its name since is looked at anew."""
        try:
            await self._server.patch(path, body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def _delete(self, resource: Resource, raw: Body) -> None:
        """Delete that object and none that has its name since."""
        metadata = raw["metadata"]
        options = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        try:
            await self._server.delete(resource.named(str(metadata["namespace"]), str(metadata["name"])), options)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def _list(self, resource: Resource, namespace: str, selector: str) -> list[Body] | None:
        """The objects with a label; ``None`` where their kind isn't served. Raises ``ApiError``."""
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

    async def _lives(self, namespace: str, name: str, uid: str) -> bool:
        """Whether there is such a pipeline; also when that can't be told, as by a 404 which isn't about the object."""
        try:
            raw = await self._server.get(MLFLOWS.named(namespace, name))
        except ApiError as error:
            if error.is_transient:
                raise
            return error.status != 404 or error.details.get("name") != name
        return bool(raw["metadata"]["uid"] == uid)
