"""Reports on single pods: events, and the condition PodScheduled, to which autoscalers react."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from allaboard.kube.client import STRATEGIC_PATCH, ApiServer
from allaboard.kube.paths import PODS
from allaboard.model.pod import Pod
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.status import api_time, pod_unscheduled
from allaboard.report.writer import Writer

FAILED = "FailedScheduling"
_SLICE = 200  # pods that are reported on without a break: some milliseconds


class PodReporter:
    """Reports on the first pods at once, and on the others in the background, so that a gang of thousands holds nothing up."""

    def __init__(self, server: ApiServer, events: EventRecorder, writer: Writer, now: Callable[[], float] = time.time) -> None:
        self._server = server
        self._events = events
        self._writer = writer
        self._now = now
        self._unscheduled: dict[str, str] = {}
        self._queued: dict[
            tuple[str, str], Callable[[], None]
        ] = {}  # by pod UID and reason: reports of gangs of thousands, yet to be written

    def repeat(self) -> None:
        """Report again on each pod at its gang's next attempt."""
        self._unscheduled.clear()

    def forget(self, uid: str) -> None:
        """Drop the reports of a pod that is gone, or bound."""
        self._unscheduled.pop(uid, None)
        self._queued.pop((uid, FAILED), None)

    def wait(
        self,
        pods: Sequence[Pod],
        message_of: Callable[[Pod], str],
        reason: str = "Unschedulable",
        *,
        is_event: bool,
        is_low: bool = False,
    ) -> None:
        """Report that ``pods`` wait: PodScheduled=False, and ``FailedScheduling`` if it ``is_event``. Nothing is reported twice in a row.

        ``is_low``: after everything else. The reason of pods that wait for other pods isn't ``Unschedulable``: cluster-autoscaler and
        Karpenter add nodes for that, and no node helps such pods.
        """
        news = [pod for pod in pods if self._unscheduled.get(pod.uid) != message_of(pod)] if is_low else pods
        self._each(FAILED, news, lambda pod: self._wait(pod, message_of(pod), reason, is_event=is_event, is_low=is_low))

    def scheduled(self, pods: Sequence[Pod], node_of: Callable[[Pod], str]) -> None:
        """Report that ``pods`` are bound."""
        for pod in pods:
            self.forget(pod.uid)

        def tell(pod: Pod) -> None:
            self._events.normal(ObjectReference.of_pod(pod), "Scheduled", "Binding", f"Successfully assigned {pod.key} to {node_of(pod)}")

        self._each("Scheduled", pods, tell)

    def released(self, pods: Sequence[Pod], note: str) -> None:
        """Report that ``pods`` were bound, and are released."""
        self._each("GangUndone", pods, lambda pod: self._events.warning(ObjectReference.of_pod(pod), "GangUndone", "Binding", note))

    def _each(self, reason: str, pods: Sequence[Pod], tell: Callable[[Pod], None]) -> None:
        """Report on 200 pods now, and queue the rest. A new report replaces a queued one with the same reason."""
        for pod in pods[:_SLICE]:
            self._queued.pop((pod.uid, reason), None)
            tell(pod)
        if len(pods) > _SLICE:
            self._queued.update(((pod.uid, reason), partial(tell, pod)) for pod in pods[_SLICE:])
            self._writer.put("words of pods", self.tell_rest)

    async def tell_rest(self) -> None:
        """Write the queued reports, some without a break."""
        while self._queued:
            for key in list(islice(self._queued, _SLICE)):
                self._queued.pop(key)()
            await asyncio.sleep(0)

    def _wait(self, pod: Pod, message: str, reason: str, *, is_event: bool, is_low: bool = False) -> None:
        if is_event:
            self._events.warning(ObjectReference.of_pod(pod), FAILED, "Scheduling", message)
        if self._unscheduled.get(pod.uid) == message:
            return
        self._unscheduled[pod.uid] = message
        write = partial(self._write, pod, message, reason)
        if not self._writer.put(f"condition of pod {pod.key}", write, pod.namespace, is_low=is_low):
            del self._unscheduled[pod.uid]  # it is reported again at the next attempt

    async def _write(self, pod: Pod, message: str, reason: str) -> None:
        if self._unscheduled.get(pod.uid) != message:
            return  # bound or gone in the meantime
        body: dict[str, Any] = {
            "metadata": {"uid": pod.uid},  # never the condition of another pod of the same name
            "status": {"conditions": [pod_unscheduled(message, api_time(self._now()), reason)]},
        }
        try:
            await self._server.write(PODS.named(pod.namespace, pod.name, "status"), body, STRATEGIC_PATCH)
        except Exception:
            if self._unscheduled.get(pod.uid) == message:
                del self._unscheduled[pod.uid]  # it is reported again at the next attempt
            raise
