"""Posts events on users' objects in kube-scheduler's words. Equal messages on one object become one event with a count."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.paths import EVENTS
from allaboard.model.pod import Pod
from allaboard.report.messages import event_note
from allaboard.report.writer import Writer

_Key = tuple[str, str, str]

_REMEMBERED = 10_000  # most series; the least recently used one is dropped
_REPEAT_SECONDS = 60.0  # least time between two writes of one count


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an event is on."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of_pod(cls, pod: Pod) -> "ObjectReference":
        """Return the reference to a pod."""
        return cls("v1", "Pod", pod.namespace, pod.name, pod.uid)


@dataclass(slots=True)
class _Series:
    """Equal events on one object: the name of the Event object, their number, and when the Event was last written (on the clock)."""

    name: str
    count: int
    posted: float


class EventRecorder:
    """Posts events.k8s.io/v1 events through a ``Writer``."""

    def __init__(
        self,
        server: ApiServer,
        writer: Writer,
        controller: str,
        instance: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._server = server
        self._writer = writer
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._now = now
        self._series: OrderedDict[_Key, _Series] = OrderedDict()

    def normal(self, about: ObjectReference, reason: str, action: str, note: str) -> None:
        """Post an event of type Normal: something succeeded."""
        self._record("Normal", about, reason, action, note)

    def warning(self, about: ObjectReference, reason: str, action: str, note: str, *, is_low: bool = False) -> None:
        """Post an event of type Warning: something that the user should know or fix. If it ``is_low``, other reports are written first."""
        self._record("Warning", about, reason, action, note, is_low=is_low)

    def _record(self, kind: str, about: ObjectReference, reason: str, action: str, note: str, *, is_low: bool = False) -> None:
        note = event_note(note)
        key = (about.uid or f"{about.kind}/{about.namespace}/{about.name}", reason, note)
        stamp = self._now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        series = self._series.get(key)
        if series is not None:
            self._series.move_to_end(key)
            series.count += 1
            if self._clock() - series.posted < _REPEAT_SECONDS:
                return
            series.posted = self._clock()
            body: dict[str, object] = {"series": {"count": series.count, "lastObservedTime": stamp}}
            repeat = partial(self._repeat, key, about.namespace, series.name, body)
            self._writer.put(f"event {series.name} again", repeat, about.namespace, is_low=is_low)
            return
        name = f"{about.name[:230].rstrip('.-')}.{uuid4().hex[:16]}"
        self._series[key] = _Series(name, 1, self._clock())
        if len(self._series) > _REMEMBERED:
            self._series.popitem(last=False)
        event: dict[str, object] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about.namespace},
            "eventTime": stamp,
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
        }
        if not self._writer.put(f"event {name}", partial(self._create, key, about.namespace, event), about.namespace, is_low=is_low):
            self._series.pop(key, None)

    async def _create(self, key: _Key, namespace: str, event: dict[str, object]) -> None:
        try:
            await self._server.post(EVENTS.within(namespace), event)
        except ApiError as error:
            if not error.is_transient:
                self._series.pop(key, None)
            raise

    async def _repeat(self, key: _Key, namespace: str, name: str, body: dict[str, object]) -> None:
        """Write the count of a repeated event. If the Event doesn't exist (not created, or expired), the next repeat creates one."""
        try:
            await self._server.patch(EVENTS.named(namespace, name), body)
        except ApiError as error:
            if error.status == 404:
                self._series.pop(key, None)
            raise
