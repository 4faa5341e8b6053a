"""Reports, while the setting ``pipelines`` is off, on each pipeline that no operator deploys it. Otherwise it would wait without a reason.

Another operator of the cluster may deploy pipelines, and writes a status at once. So a pipeline gets this report only if it has no status
for its generation after 5 s. An operator that deploys the pipeline later overwrites the report.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from allaboard.kube.client import ApiServer
from allaboard.model.raw_fields import integer, mapping
from allaboard.model.requests import RawObject
from allaboard.model.times import api_time
from allaboard.pipelines.objects import MLFLOWS
from allaboard.pipelines.plan import status_of
from allaboard.pipelines.stages import Pipeline, pipeline_from
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.writer import Writer

logger = logging.getLogger(__name__)

PIPELINES_ARE_OFF = (
    "nothing is deployed: the operator's setting pipelines is off; set pipelines: true, and grant the rights of config/components/pipelines"
)
GRACE_SECONDS = 5.0
"""Seconds within which an operator that deploys pipelines writes a status."""

_REPORT_SECONDS = 2.5  # pause between two searches for pipelines that are due
_MOST_AT_ONCE = 64
_MOST_WAITING = 10_000


@dataclass(frozen=True, slots=True)
class Undeployed:
    """A pipeline, and the generation that its status was written for; -1 without a status."""

    pipeline: Pipeline
    observed: int

    @property
    def has_status(self) -> bool:
        """True if the pipeline has a status for its present generation."""
        return self.observed >= self.pipeline.generation


def undeployed_from(raw: RawObject) -> Undeployed:
    """Return the record of a raw MLFlow. Raises ``MalformedError`` if name or UID are missing."""
    return Undeployed(
        replace(pipeline_from(raw), stages=(), problem=PIPELINES_ARE_OFF), integer(mapping(raw, "status"), "observedGeneration", -1)
    )


class UndeployedPipelines:
    """Reports on pipelines that no operator deploys; the ``Store`` of a reflector of MLFlows.

    ``leads`` returns whether this replica may write. ``namespaces``: the namespaces of our pipelines; empty for all.
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
        self._waiting: dict[str, tuple[Pipeline, float]] = {}  # with the time since when it has no status, on the clock

    def upsert(self, key: str, record: Undeployed) -> None:
        """Record the newest state of a pipeline."""
        self._keys.add(key)
        pipeline = record.pipeline
        is_foreign = bool(self._namespaces) and pipeline.namespace not in self._namespaces
        if record.has_status or is_foreign or pipeline.is_terminating:
            self._waiting.pop(key, None)
        elif key in self._waiting or len(self._waiting) < _MOST_WAITING:
            _, since = self._waiting.get(key, (pipeline, self._clock()))
            self._waiting[key] = pipeline, since

    def remove(self, key: str) -> None:
        """Forget a pipeline."""
        self._keys.discard(key)
        self._waiting.pop(key, None)

    def known(self) -> Collection[str]:
        """Return the keys of all pipelines."""
        return self._keys

    async def run(self) -> None:
        """Report every few seconds on the pipelines that are due, until cancelled."""
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            self.report_due()

    def report_due(self) -> None:
        """Queue reports on pipelines that had no status for 5 s, at most 64 at a time."""
        if not self._leads():
            return
        due = self._clock() - GRACE_SECONDS
        for key in list(islice((key for key, (_, since) in self._waiting.items() if since <= due), _MOST_AT_ONCE)):
            pipeline, _ = self._waiting.pop(key)
            self._writer.put(f"pipeline {key}", partial(self._report, pipeline), pipeline.namespace)

    async def _report(self, pipeline: Pipeline) -> None:
        about = ObjectReference(MLFLOWS.api_version, MLFLOWS.kind, pipeline.namespace, pipeline.name, pipeline.uid)
        self._events.warning(about, "PipelinesOff", "Deploying", PIPELINES_ARE_OFF)
        status = status_of(pipeline, (), "", api_time(self._now()))
        await self._server.patch(MLFLOWS.named(pipeline.namespace, pipeline.name, "status"), {"status": status})
