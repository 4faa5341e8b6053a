"""What is told of single pods: events, and the condition PodScheduled, to which autoscalers react."""

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
_SLICE = 200  # pods that are told of at a stretch: some milliseconds


class PodReporter:
    """Tells of the first pods at once and of the others beside, or a gang of thousands would hold everybody up."""

    def __init__(self, server: ApiServer, events: EventRecorder, writer: Writer, now: Callable[[], float] = time.time) -> None:
        self._server = server
        self._events = events
        self._writer = writer
        self._now = now
        self._unscheduled: dict[str, str] = {}
        self._untold: dict[tuple[str, str], Callable[[], None]] = {}  # by pod UID and reason: what gangs of thousands are yet to be told

    def repeat(self) -> None:
        """Say again of each pod why it waits, at its gang's next attempt."""
        self._unscheduled.clear()

    def forget(self, uid: str) -> None:
        """The pod is gone, or bound."""
        self._unscheduled.pop(uid, None)
        self._untold.pop((uid, FAILED), None)

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

        ``is_low``: behind all else. The reason of pods that wait for others isn't ``Unschedulable``: cluster-autoscaler and Karpenter add
        nodes for that, and no node helps them.
        """
        news = [pod for pod in pods if self._unscheduled.get(pod.uid) != message_of(pod)] if is_low else pods
        self._each(FAILED, news, lambda pod: self._wait(pod, message_of(pod), reason, is_event=is_event, is_low=is_low))

    def scheduled(self, pods: Sequence[Pod], node_of: Callable[[Pod], str]) -> None:
        """``pods`` are bound."""
        for pod in pods:
            self.forget(pod.uid)

        def tell(pod: Pod) -> None:
            self._events.normal(ObjectReference.of_pod(pod), "Scheduled", "Binding", f"Successfully assigned {pod.key} to {node_of(pod)}")

        self._each("Scheduled", pods, tell)

    def released(self, pods: Sequence[Pod], note: str) -> None:
        """``pods`` were bound, and have given their seats back."""
        self._each("GangUndone", pods, lambda pod: self._events.warning(ObjectReference.of_pod(pod), "GangUndone", "Binding", note))

    def _each(self, reason: str, pods: Sequence[Pod], tell: Callable[[Pod], None]) -> None:
        """What was to be told of a pod for the same reason, and hasn't been, is not so any more."""
        for pod in pods[:_SLICE]:
            self._untold.pop((pod.uid, reason), None)
            tell(pod)
        if len(pods) > _SLICE:
            self._untold.update(((pod.uid, reason), partial(tell, pod)) for pod in pods[_SLICE:])
            self._writer.put("words of pods", self.tell_rest)

    async def tell_rest(self) -> None:
        """Tell of those of whom nothing has been told yet, some at a stretch."""
        while self._untold:
            for key in list(islice(self._untold, _SLICE)):
                self._untold.pop(key)()
            await asyncio.sleep(0)

    def _wait(self, pod: Pod, message: str, reason: str, *, is_event: bool, is_low: bool = False) -> None:
        if is_event:
            self._events.warning(ObjectReference.of_pod(pod), FAILED, "Scheduling", message)
        if self._unscheduled.get(pod.uid) == message:
            return
        self._unscheduled[pod.uid] = message
        write = partial(self._write, pod, message, reason)
        if not self._writer.put(f"condition of pod {pod.key}", write, pod.namespace, is_low=is_low):
            del self._unscheduled[pod.uid]  # it is said again at the next attempt

    async def _write(self, pod: Pod, message: str, reason: str) -> None:
        if self._unscheduled.get(pod.uid) != message:
            return  # bound or gone in the meantime
        body: dict[str, Any] = {
            "metadata": {"uid": pod.uid},  # never the condition of a pod that has only the name in common
            "status": {"conditions": [pod_unscheduled(message, api_time(self._now()), reason)]},
        }
        try:
            await self._server.write(PODS.named(pod.namespace, pod.name, "status"), body, STRATEGIC_PATCH)
        except Exception:
            if self._unscheduled.get(pod.uid) == message:
                del self._unscheduled[pod.uid]  # it is said again at the next attempt
            raise
