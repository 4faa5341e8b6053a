"""Reports on single pods by events, and by the condition PodScheduled, to which autoscalers react."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from allaboard.kube.client import STRATEGIC_PATCH, ApiServer
from allaboard.kube.paths import PODS
from allaboard.model.pod import Pod
from allaboard.model.times import api_time
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.status import pod_unscheduled
from allaboard.report.writer import Writer

FAILED = "FailedScheduling"
_SLICE = 200  # pods that are reported on before other tasks run again: some milliseconds


class PodReporter:
    """Reports on the first pods of a gang at once, and on its other pods in the background, so that a gang of thousands delays nothing."""

    def __init__(self, server: ApiServer, events: EventRecorder, writer: Writer, now: Callable[[], float] = time.time) -> None:
        self._server = server
        self._events = events
        self._writer = writer
        self._now = now
        self._unscheduled: dict[str, tuple[str, str]] = {}  # the last reason and message, by pod UID
        self._nominated: set[str] = set()  # the UIDs of nominated pods
        self._queued: dict[tuple[str, str], Callable[[], None]] = {}  # the reports that aren't written yet, by pod UID and reason

    def repeat(self) -> None:
        """Forget the written conditions, so that each pod is reported on again at its gang's next attempt."""
        self._unscheduled.clear()

    def forget(self, uid: str) -> None:
        """Drop the reports on a pod that is deleted or bound."""
        self._unscheduled.pop(uid, None)
        self._nominated.discard(uid)
        self._queued.pop((uid, FAILED), None)

    def report_wait(
        self,
        pods: Sequence[Pod],
        message_of: Callable[[Pod], str],
        reason: str = "Unschedulable",
        *,
        is_event: bool,
        is_low: bool = False,
    ) -> None:
        """Report that ``pods`` wait: by PodScheduled=False, and by the event ``FailedScheduling`` if it ``is_event``.

        A condition with the same reason and message isn't written twice in a row. If it ``is_low``, other reports are written first.
        Pods that wait for other pods get another ``reason`` than ``Unschedulable``: cluster-autoscaler and Karpenter add nodes for
        ``Unschedulable``, and no node helps such pods.
        """
        changed = [pod for pod in pods if self._unscheduled.get(pod.uid) != (reason, message_of(pod))] if is_low else pods
        self._each(FAILED, changed, lambda pod: self._wait(pod, message_of(pod), reason, is_event=is_event, is_low=is_low))

    def report_bound(self, pods: Sequence[Pod], node_of: Callable[[Pod], str]) -> None:
        """Report by events that ``pods`` are bound."""
        for pod in pods:
            self.forget(pod.uid)

        def report(pod: Pod) -> None:
            self._events.normal(ObjectReference.of_pod(pod), "Scheduled", "Binding", f"Successfully assigned {pod.key} to {node_of(pod)}")

        self._each("Scheduled", pods, report)

    def nominate(self, pods: Sequence[Pod], node_of: Callable[[Pod], str]) -> None:
        """Write to the status of waiting ``pods`` for which node capacity is kept, while evicted pods leave it; empty for none.

        Autoscalers add no nodes for nominated pods.
        """
        chosen = [pod for pod in pods if node_of(pod) or pod.uid in self._nominated]
        for pod in chosen:
            (self._nominated.add if node_of(pod) else self._nominated.discard)(pod.uid)

        def report(pod: Pod) -> None:
            self._writer.put(f"nomination of pod {pod.key}", partial(self._write_nomination, pod, node_of(pod)), pod.namespace)

        self._each("Nominated", chosen, report)

    def report_released(self, pods: Sequence[Pod], note: str) -> None:
        """Report by events that ``pods`` were bound and are released."""
        self._each("GangUndone", pods, lambda pod: self._events.warning(ObjectReference.of_pod(pod), "GangUndone", "Binding", note))

    def report_preempted(self, pods: Sequence[Pod], note: str) -> None:
        """Report by events that ``pods`` are evicted for a gang of higher priority, with kube-scheduler's reason."""
        self._each("Preempted", pods, lambda pod: self._events.warning(ObjectReference.of_pod(pod), "Preempted", "Preempting", note))

    def _each(self, reason: str, pods: Sequence[Pod], report: Callable[[Pod], None]) -> None:
        """Report on 200 pods now, and queue the rest. A new report replaces a queued one with the same pod and reason."""
        for pod in pods[:_SLICE]:
            self._queued.pop((pod.uid, reason), None)
            report(pod)
        if len(pods) > _SLICE:
            self._queued.update(((pod.uid, reason), partial(report, pod)) for pod in pods[_SLICE:])
            self._writer.put("reports on pods", self.report_rest)

    async def report_rest(self) -> None:
        """Make the queued reports, 200 at a time, so that other tasks run in between."""
        while self._queued:
            for key in list(islice(self._queued, _SLICE)):
                self._queued.pop(key)()
            await asyncio.sleep(0)

    def _wait(self, pod: Pod, message: str, reason: str, *, is_event: bool, is_low: bool = False) -> None:
        if is_event:
            self._events.warning(ObjectReference.of_pod(pod), FAILED, "Scheduling", message)
        if self._unscheduled.get(pod.uid) == (reason, message):
            return
        self._unscheduled[pod.uid] = (reason, message)
        write = partial(self._write, pod, message, reason)
        if not self._writer.put(f"condition of pod {pod.key}", write, pod.namespace, is_low=is_low):
            del self._unscheduled[pod.uid]  # so that the next attempt reports it again

    async def _write_nomination(self, pod: Pod, node_name: str) -> None:
        if bool(node_name) == (pod.uid in self._nominated):  # otherwise it was bound, deleted or reported on again since
            body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node_name or None}}
            await self._server.write(PODS.named(pod.namespace, pod.name, "status"), body, STRATEGIC_PATCH)

    async def _write(self, pod: Pod, message: str, reason: str) -> None:
        if self._unscheduled.get(pod.uid) != (reason, message):
            return  # bound, deleted or reported on again since
        body: dict[str, Any] = {
            "metadata": {"uid": pod.uid},  # never the condition of another pod of the same name
            "status": {"conditions": [pod_unscheduled(message, api_time(self._now()), reason)]},
        }
        try:
            await self._server.write(PODS.named(pod.namespace, pod.name, "status"), body, STRATEGIC_PATCH)
        except Exception:
            if self._unscheduled.get(pod.uid) == (reason, message):
                del self._unscheduled[pod.uid]  # so that the next attempt reports it again
            raise
