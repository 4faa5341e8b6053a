"""Keeps the pods that don't exist right after a workload is applied: they are created later, or refused by the API server.

A StatefulSet creates a pod once the pods before it are Ready, and an MPIJob may create its launcher once its workers are Ready. A pod
doesn't count towards its gang's minimum before the pod exists, so a gang that needs such a pod never starts.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allaboard.cluster.view import ClusterView
from allaboard.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Awaited:
    """The pods that must be Ready before another pod is created: the first ``count`` of ``keys``, each ``namespace/name``."""

    keys: Sequence[str]
    count: int


class Creation:
    """Keeps the pods of a plan that don't exist yet, and finds the pods that are created next. A pod that has a node counts as Ready."""

    def __init__(self, view: ClusterView, pods: Iterable[Pod], awaited: Mapping[str, Awaited], refused: Mapping[str, str]) -> None:
        """Keep those of ``pods`` that don't exist yet: their ``namespace/name`` is a key of ``awaited`` or ``refused``."""
        self._view = view
        self._awaited, self._refused = awaited, refused
        self._absent = {pod.key: pod for pod in pods if pod.key in refused or pod.key in awaited}
        self._next: dict[int, deque[Pod]] = {}  # pods in order of creation, by the identity of ``Awaited.keys``
        self._ready: dict[int, int] = {}  # how many of the first pods are known to be Ready, by the identity of ``Awaited.keys``
        for pod in self._absent.values():
            if pod.key not in refused:
                self._next.setdefault(id(awaited[pod.key].keys), deque()).append(pod)

    @property
    def absent(self) -> Iterable[Pod]:
        """The pods that don't exist yet."""
        return self._absent.values()

    def is_refused(self, pod: Pod) -> bool:
        """Return whether the API server refuses a pod."""
        return pod.key in self._refused

    def next(self) -> Sequence[Pod]:
        """Return the absent pods that their controllers create now. These pods are no longer absent."""
        created: list[Pod] = []
        for waiting in self._next.values():
            while waiting and self._first_unready(self._awaited[waiting[0].key]) is None:
                created.append(waiting.popleft())
                del self._absent[created[-1].key]
        return created

    def why_absent(self, pod: Pod) -> str:
        """Return why a pod doesn't exist."""
        if refusal := self._refused.get(pod.key):
            return f"pod {pod.name} would be refused: {refusal}"
        unready = self._first_unready(self._awaited[pod.key])
        return f"pod {pod.name} is created only after pod {(unready or '').rpartition('/')[2]} is Ready"

    def _first_unready(self, awaited: Awaited) -> str | None:
        """Return the key of the first pod that must be Ready and isn't; None if all are Ready."""
        ready = self._ready.get(id(awaited.keys), 0)
        while ready < awaited.count and (pod := self._view.pod(awaited.keys[ready])) and pod.node_name:
            ready += 1
        self._ready[id(awaited.keys)] = ready
        return awaited.keys[ready] if ready < awaited.count else None
