"""The fair order: among gangs of equal priority, the tenant that has used less of the cluster goes first.

A tenant is a namespace, or the pods with one value of a label. The *share* of a tenant is its dominant share (Ghodsi et al., NSDI 2011).
For each resource, that is the use of its pods as a part of what all nodes offer. The largest of these parts, divided by the weight of the
tenant, is the share.

What a tenant used earlier counts for half after each half-life. The larger one of the present use and of the decayed use counts. So a
tenant falls behind at once when its gangs start, and comes forward slowly when they end.

Nothing is stored. After a restart, pods that run count for the time for which they have run.
"""

import math
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from itertools import islice

from allaboard.cluster.view import ClusterView
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.requests import Requests
from allaboard.settings.fair_share import FairShareOptions

_LEAST = 1e-6  # A tenant with a smaller share and without pods is forgotten.
_AT_ONCE = 200  # Tenants whose levels are looked at in one call of ``fallen``: a millisecond or two.
_STEPS = 20.0  # Levels for each doubling of a share: so shares are compared to 3.5 %, and the order doesn't change all the time.


@dataclass(slots=True)
class _Use:
    """The use of one tenant by resource: ``now``, and ``decayed`` as of the time ``at``. ``pods`` is the number of its pods."""

    now: dict[str, float] = field(default_factory=dict)
    decayed: dict[str, float] = field(default_factory=dict)
    at: float = 0.0
    pods: int = 0

    def advance(self, at: float, half_life: float) -> None:
        """Bring ``decayed`` up to the time ``at``, in seconds since the epoch."""
        kept = 0.5 ** (max(0.0, at - self.at) / half_life) if half_life else 0.0
        for resource in {*self.now, *self.decayed}:
            self.decayed[resource] = kept * self.decayed.get(resource, 0.0) + (1.0 - kept) * self.now.get(resource, 0.0)
        self.at = max(self.at, at)


class FairShare:
    """The shares of all tenants, by the settings ``options``. ``now`` returns seconds since the epoch."""

    def __init__(self, options: FairShareOptions, now: Callable[[], float]) -> None:
        self.options = options
        self._now = now
        self._capacity: Counter[str] = Counter()  # what all nodes offer, by resource
        self._uses: dict[str, _Use] = {}
        self._pods: dict[str, tuple[str, Requests]] = {}  # the tenant and the requests of each pod that has a node
        self._namespaces: dict[str, set[str]] = {}  # with gangs in the queue, by tenant
        self._levels: dict[str, int] = {}  # By tenant, the next one to look at first.
        self._fewer: set[str] = set()  # The tenants that have lost pods since ``fallen`` was called.

    def __len__(self) -> int:
        """Return the number of tenants that are kept."""
        return len(self._uses)

    def follow(self, view: ClusterView) -> None:
        """Count the nodes and pods of ``view`` from now on, if the fair order is on."""
        if self.options.enabled:
            for node in view.snapshot().nodes:
                self.observe_node(None, node)
            for pod in view.pods():
                self.observe_pod(None, pod)
            view.listen(self.observe_pod, self.observe_node)

    def observe_node(self, old: Node | None, new: Node | None) -> None:
        """Count what a node offers."""
        if old is not None:
            self._capacity.subtract(dict(old.allocatable))
        if new is not None:
            self._capacity.update(dict(new.allocatable))

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Count a pod that has a node, or no longer count one that has ended or gone."""
        if not self.options.enabled:
            return
        if old is not None and (new is None or new.uid != old.uid):
            self.remove(old.uid)
        if new is not None and new.is_bound:
            self.put(new.uid, self._tenant_of(new.namespace, new), new.spec.requests, new.started or new.bound_at)
        elif new is not None:
            self.remove(new.uid)

    def put(self, uid: str, tenant: str, requests: Requests, started: float) -> None:
        """Count a pod of ``tenant`` that has a node since ``started``, in seconds since the epoch; 0 if it has just got one."""
        if uid in self._pods:
            return
        now, half_life = self._now(), self.options.half_life_seconds
        use = self._uses.setdefault(tenant, _Use(at=now))
        use.advance(now, half_life)
        counted = 1.0 - 0.5 ** (max(0.0, now - started) / half_life) if started and half_life else 0.0
        for resource, amount in requests:
            use.now[resource] = use.now.get(resource, 0.0) + amount
            use.decayed[resource] = use.decayed.get(resource, 0.0) + counted * amount
        use.pods += 1
        self._pods[uid] = tenant, requests

    def remove(self, uid: str) -> None:
        """Stop counting a pod, if it is counted."""
        tenant, requests = self._pods.pop(uid, ("", ()))
        if (use := self._uses.get(tenant)) is None:
            return
        self._fewer.add(tenant)
        use.advance(self._now(), self.options.half_life_seconds)
        for resource, amount in requests:
            use.now[resource] -= amount
        use.pods -= 1

    def share(self, tenant: str) -> float:
        """Return the share of a tenant, divided by its weight; 0 if it has used nothing."""
        use = self._uses.get(tenant)
        if use is None:
            return 0.0
        use.advance(self._now(), self.options.half_life_seconds)
        used = ((resource, max(use.now.get(resource, 0.0), amount)) for resource, amount in use.decayed.items())
        share = max((amount / self._capacity[resource] for resource, amount in used if self._capacity[resource] > 0), default=0.0)
        if not use.pods and share < _LEAST:
            del self._uses[tenant]
            return 0.0
        return share / self.options.weights.get(tenant, 1.0)

    def place(self, namespace: str, first: Pod | None) -> tuple[int, str]:
        """Return the level of a gang's tenant, and the tenant if it isn't the namespace. ``first`` is a pod of the gang, None for any pod.

        While the fair order is off, all gangs are equal. The level is 0 for a share below a millionth of the cluster, and rises by 20
        with each doubling of the share.
        """
        if not self.options.enabled:
            return 0, ""
        tenant = self._tenant_of(namespace, first)
        self._namespaces.setdefault(tenant, set()).add(namespace)
        level = self._level(tenant)
        self._levels[tenant] = max(level, self._levels.get(tenant, 0))
        return level, "" if tenant == namespace else tenant

    def _tenant_of(self, namespace: str, pod: Pod | None) -> str:
        """Return the tenant of a pod in ``namespace``: by its label, or the namespace if tenants or the pod have no label."""
        return (self.options.by and pod is not None and pod.label(self.options.by)) or namespace

    def _level(self, tenant: str) -> int:
        share = self.share(tenant)
        return 0 if share < _LEAST else 1 + math.floor(_STEPS * math.log2(share / _LEAST))

    def fallen(self) -> Set[str]:
        """Return the namespaces with gangs of tenants whose level was found to have fallen since the last call.

        Tenants that have lost pods are looked at in each call, and 200 of the others, in turn: their levels fall slowly.
        """
        found: set[str] = set()
        looked_at = [*self._fewer, *islice(self._levels, _AT_ONCE)]
        self._fewer.clear()
        for tenant in looked_at:
            if (before := self._levels.pop(tenant, None)) is None:
                continue
            level = self._level(tenant)
            if level < before:
                found |= self._namespaces.get(tenant, set())
            if level or tenant in self._uses:
                self._levels[tenant] = min(level, before)  # the last one that is looked at again
            else:
                self._namespaces.pop(tenant, None)
        return found
