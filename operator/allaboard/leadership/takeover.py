"""Reserve capacity for pods that a new leader couldn't fence off: an earlier leader may still bind them, to nodes that aren't known.

The earlier leader sends a limited number of binds at once, so no more binds can be in flight. Each node where such pods could land reserves
capacity for that number of the largest pods. The reservation ends when the pods are fenced off or gone, or when no request can be in flight
any longer.
"""

import asyncio
import heapq
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from allaboard.cluster.view import ClusterView
from allaboard.kube.retry import Sleep
from allaboard.leadership.fencing import Term
from allaboard.model.constraints import HostPort, SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.placement.rules.matching import affinity_matches

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0
_MOST_KINDS = 64  # kinds of pods
_AT_ONCE = 50  # nodes between two pauses for the event loop's other tasks

Kinds = Sequence[tuple[SchedulingSpec, int]]


@dataclass(slots=True)
class TakeoverReservation:
    """The capacity that is reserved in ``view`` for pods that an earlier leader may still bind, ``most`` of them at most.

    ``freed`` is called when capacity is given back.
    """

    view: ClusterView
    term: Term
    most: int
    freed: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Sleep = asyncio.sleep
    _pods: dict[str, Pod] = field(default_factory=dict)

    async def begin(self, pods: Sequence[Pod]) -> None:
        """Reserve capacity for ``pods``. Call this before any pod is assumed on a node."""
        self._pods = {pod.uid: pod for pod in pods}
        if pods:
            logger.warning("%d pods can't be fenced off; capacity is reserved for an earlier leader's binds of them", len(pods))
            await self._reserve()

    async def run(self) -> None:
        """Give capacity back as pods are fenced off or gone, and all of it once no bind can be in flight; then return."""
        nodes: object = None
        while self._pods:
            await self.sleep(_CHECK_SECONDS)
            is_over = self.clock() >= self.term.carried_out_at
            left = {} if is_over else {uid: pod for uid, pod in self._pods.items() if self._may_be_bound(pod)}
            now = self.view.snapshot().nodes
            if len(left) != len(self._pods) or nodes is not now:
                self._pods, nodes = left, now
                await self._reserve()
                self.freed()

    def _may_be_bound(self, pod: Pod) -> bool:
        now = self.view.pod(pod.key)
        return now is not None and now.uid == pod.uid and now.is_candidate and bool(self.term.older([now]))

    async def _reserve(self) -> None:
        kinds = _kinds(self._pods.values())
        claims = {}
        for number, node in enumerate(self.view.snapshot().nodes if kinds else ()):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            if claim := claim_on(node, kinds, self.most):
                claims[node.name] = claim
        self.view.reserve(claims)


def claim_on(node: Node, kinds: Kinds, most: int) -> SchedulingSpec | None:
    """Return the most of each resource, and all host ports, that ``most`` pods could take on ``node``; ``None`` if no pod fits there.

    ``kinds`` are the specs of the pods, each with its number of pods.
    """
    offered = dict(node.allocatable)
    amounts: dict[str, list[int]] = {}
    ports: set[HostPort] = set()
    for spec, number in kinds:
        if all(amount <= offered.get(resource, 0) for resource, amount in spec.requests) and affinity_matches(spec, node):
            ports.update(spec.host_ports)
            for resource, amount in spec.requests:
                amounts.setdefault(resource, []).extend([amount] * min(number, most))
    if not amounts:
        return None
    requests = tuple(sorted((resource, sum(heapq.nlargest(most, each))) for resource, each in amounts.items()))
    return SchedulingSpec(requests, host_ports=tuple(sorted(ports)))


def _kinds(pods: Iterable[Pod]) -> Kinds:
    """Return each spec of ``pods`` with its number of pods; only the 64 largest specs if there are more.

    The size of a spec is its largest share, over the resources, of what all specs together request.
    """
    counted = Counter(pod.spec for pod in pods)
    if len(counted) <= _MOST_KINDS:
        return list(counted.items())
    total: Counter[str] = Counter()
    for spec in counted:
        total.update(dict(spec.requests))

    def size(kind: tuple[SchedulingSpec, int]) -> float:
        return max((amount / total[name] for name, amount in kind[0].requests if amount), default=0.0)

    return heapq.nlargest(_MOST_KINDS, counted.items(), key=size)
