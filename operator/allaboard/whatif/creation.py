"""Pods that don't exist when a workload is applied: made one after another, or refused by the API server.

A StatefulSet makes a pod once those before it are Ready, and an MPIJob may make its launcher once its workers are. Such pods don't count
towards a gang's minimum before that, so a gang that needs them never starts.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allaboard.cluster.view import ClusterView
from allaboard.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Awaited:
    """The pods of which ``count`` must be Ready before a pod is made: the first of ``keys``, each ``namespace/name``."""

    keys: Sequence[str]
    count: int


class Creation:
    """The pods of a plan that don't exist yet. A pod that has a node counts as Ready."""

    def __init__(self, view: ClusterView, pods: Iterable[Pod], awaited: Mapping[str, Awaited], refused: Mapping[str, str]) -> None:
        """Take those of ``pods`` (by ``namespace/name``) that are ``refused`` or for which others are ``awaited``."""
        self._view = view
        self._awaited, self._refused = awaited, refused
        self._absent = {pod.key: pod for pod in pods if pod.key in refused or pod.key in awaited}
        self._next: dict[int, deque[Pod]] = {}  # pods that are made in this order, by the identity of the sequence
        self._ready: dict[int, int] = {}  # how many of a sequence are known to be Ready
        for pod in self._absent.values():
            if pod.key not in refused:
                self._next.setdefault(id(awaited[pod.key].keys), deque()).append(pod)

    @property
    def absent(self) -> Iterable[Pod]:
        """The pods that don't exist."""
        return self._absent.values()

    def is_refused(self, pod: Pod) -> bool:
        """Return whether the API server refuses a pod."""
        return pod.key in self._refused

    def next(self) -> Sequence[Pod]:
        """Take out the pods that their controllers make now."""
        made: list[Pod] = []
        for waiting in self._next.values():
            while waiting and self._lacks(self._awaited[waiting[0].key]) is None:
                made.append(waiting.popleft())
                del self._absent[made[-1].key]
        return made

    def why_absent(self, pod: Pod) -> str:
        """Return why a pod doesn't exist."""
        if refusal := self._refused.get(pod.key):
            return f"pod {pod.name} would be refused: {refusal}"
        lacking = self._lacks(self._awaited[pod.key])
        return f"pod {pod.name} is made only once pod {(lacking or '').rpartition('/')[2]} is Ready"

    def _lacks(self, awaited: Awaited) -> str | None:
        """Return the first pod that isn't Ready of those that must be."""
        ready = self._ready.get(id(awaited.keys), 0)
        while ready < awaited.count and (pod := self._view.pod(awaited.keys[ready])) and pod.node_name:
            ready += 1
        self._ready[id(awaited.keys)] = ready
        return awaited.keys[ready] if ready < awaited.count else None
