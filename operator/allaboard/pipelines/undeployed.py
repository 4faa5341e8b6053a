"""Tells pipelines that nobody deploys so, while the setting ``pipelines`` is off: without that they would wait in silence.

Another operator of the cluster may deploy pipelines. So a pipeline is told only when nobody has written a status for its generation for a
while, which that operator does at once; and what is told here is overwritten by whoever deploys the pipeline later.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.paths import ApiPath
from allaboard.kube.retry import Sleep
from allaboard.model.raw_fields import integer, mapping
from allaboard.model.requests import RawObject
from allaboard.pipelines.objects import MLFLOWS
from allaboard.pipelines.plan import status_of
from allaboard.pipelines.stages import Pipeline, pipeline_from
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.status import api_time
from allaboard.report.writer import Writer

logger = logging.getLogger(__name__)

PIPELINES_ARE_OFF = (
    "nothing is deployed: the operator's setting pipelines is off; it takes pipelines: true, and the rights of config/components/pipelines"
)
GRACE_SECONDS = 5.0
"""In which an operator that deploys pipelines writes a status."""

_LOOK_SECONDS = 2.5
_MOST_AT_ONCE = 64
_MOST_WAITING = 10_000
_ASK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Undeployed:
    """A pipeline, and the generation that its status was written for; -1 without a status."""

    pipeline: Pipeline
    observed: int

    @property
    def is_told(self) -> bool:
        """Whether somebody has written a status for what the pipeline asks for now."""
        return self.observed >= self.pipeline.generation


def undeployed_from(raw: RawObject) -> Undeployed:
    """Return the record of a raw MLFlow. Raises ``MalformedError`` when it can't be told which it is."""
    return Undeployed(
        replace(pipeline_from(raw), stages=(), problem=PIPELINES_ARE_OFF), integer(mapping(raw, "status"), "observedGeneration", -1)
    )


async def until_readable(server: ApiServer, path: ApiPath, sleep: Sleep = asyncio.sleep) -> None:
    """Wait until objects can be listed: their CRD may not be installed, or the operator may lack the right, which is no fault here."""
    while True:
        try:
            await server.get(path, {"limit": "1"})
        except ApiError as error:
            logger.debug("%s: %s", path, error)
            await sleep(_ASK_SECONDS)
        else:
            return


class UndeployedPipelines:
    """Remembers pipelines that were told nothing. It is the ``Store`` of a reflector of MLFlows.

    ``leads`` tells whether this replica may write; pipelines of other ``namespaces``, if there are any, are other operators'.
    """

    def __init__(
        self,
        server: ApiServer,
        writer: Writer,
        events: EventRecorder,
        *,
        leads: Callable[[], bool],
        namespaces: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._server = server
        self._writer = writer
        self._events = events
        self._leads = leads
        self._namespaces = namespaces
        self._clock = clock
        self._now = now
        self._keys: set[str] = set()
        self._waiting: dict[str, tuple[Pipeline, float]] = {}  # and when it was first seen without a status

    def upsert(self, key: str, record: Undeployed) -> None:
        """Take the newest state of a pipeline."""
        self._keys.add(key)
        pipeline = record.pipeline
        is_theirs = bool(self._namespaces) and pipeline.namespace not in self._namespaces
        if record.is_told or is_theirs or pipeline.is_terminating:
            self._waiting.pop(key, None)
        elif key in self._waiting or len(self._waiting) < _MOST_WAITING:
            _, since = self._waiting.get(key, (pipeline, self._clock()))
            self._waiting[key] = pipeline, since

    def remove(self, key: str) -> None:
        """Forget a pipeline."""
        self._keys.discard(key)
        self._waiting.pop(key, None)

    def known(self) -> Collection[str]:
        """The keys of all pipelines."""
        return self._keys

    async def run(self) -> None:
        """Look every few seconds, until cancelled, which pipelines are to be told."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Have those told that have waited long enough, some at a time."""
        if not self._leads():
            return
        due = self._clock() - GRACE_SECONDS
        for key in list(islice((key for key, (_, since) in self._waiting.items() if since <= due), _MOST_AT_ONCE)):
            pipeline, _ = self._waiting.pop(key)
            self._writer.put(f"pipeline {key}", partial(self._tell, pipeline), pipeline.namespace)

    async def _tell(self, pipeline: Pipeline) -> None:
        about = ObjectReference(MLFLOWS.api_version, MLFLOWS.kind, pipeline.namespace, pipeline.name, pipeline.uid)
        self._events.warning(about, "PipelinesOff", "Deploying", PIPELINES_ARE_OFF)
        status = status_of(pipeline, (), "", api_time(self._now()))
        await self._server.patch(MLFLOWS.named(pipeline.namespace, pipeline.name, "status"), {"status": status})
