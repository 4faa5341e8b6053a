"""The objectives of placements, and kube-scheduler's RequestedToCapacityRatio for a whole gang at once.

An objective is a set of ``Weights``: the cost of a placement is the weighted sum of several terms (``valuation``).

*Packing* scores how full a member's node is when the member is placed, as kube-scheduler does. The formula is that of
noderesources/requested_to_capacity_ratio.go (1.37), in floating point. kube-scheduler truncates scores to whole points, but a search must
see smaller improvements. *Spreading* scores how full the nodes are once all members are placed. The shape of spreading is always
(0,0)-(100,10), whatever the shape of packing is. A profile of kube-scheduler's configuration is scored in whole points instead
(``model.fit``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.fit import FitScoring
from allaboard.model.gang import Objective
from allaboard.model.gpus import is_gpu
from allaboard.model.packing import PACKING, Packing, mean_of_scores
from allaboard.model.requests import UNSTATED
from allaboard.model.snapshot import Snapshot

_WEIGHTS = {"cpu": 1, "memory": 1}


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each term of a placement's cost.

    Terms in GPUs:

    - ``fragmentation``: free GPUs that the cluster's workload is expected to be unable to use;
    - ``worth``: how much less the free GPUs are worth to the workload, beyond the GPUs that are taken.

    Term for each topology domain: ``domains``, which is 1 for a domain that the placement uses.

    Terms from 0 to 1 for each member:

    - ``packing``: how empty the member's node stays;
    - ``spreading``: how full the node gets;
    - ``affinity``: the preferred node affinity that the node doesn't meet;
    - ``taints``: the PreferNoSchedule taints of the node;
    - ``images``: the bytes of the member's images that must be pulled;
    - ``pods``: the preferred affinity and anti-affinity to other pods that the node doesn't meet;
    - ``spread``: the preferred topology spread that the node doesn't meet;
    - ``gpus``: how much worse the node's GPUs are than the best, for a member that asks for GPUs (``model.gpuscore``).
    """

    packing: float = 0.0
    spreading: float = 0.0
    fragmentation: float = 0.0
    worth: float = 0.0
    domains: float = 0.0
    affinity: float = 0.0
    taints: float = 0.0
    images: float = 0.0
    pods: float = 0.0
    spread: float = 0.0
    gpus: float = 0.0


WEIGHTS = {
    # In GPUs: a preference that isn't met costs half a GPU, a node that stays empty a hundredth.
    Objective.FRAGMENTATION: Weights(
        fragmentation=0.1, worth=1.0, packing=0.01, domains=0.2, affinity=0.5, taints=0.75, images=0.1, pods=0.5, spread=0.5, gpus=0.0005
    ),
    # kube-scheduler's own weights: NodeResourcesFit 1, NodeAffinity 2, TaintToleration 3, ImageLocality 1, InterPodAffinity 2,
    # PodTopologySpread 2.
    Objective.BINPACK: Weights(packing=1.0, domains=0.2, affinity=2.0, taints=3.0, images=1.0, pods=2.0, spread=2.0, gpus=0.05),
    Objective.SPREAD: Weights(spreading=1.0, affinity=2.0, taints=3.0, images=1.0, pods=2.0, spread=2.0, gpus=0.05),
}


def weights_of(objective: Objective, packing: Packing | FitScoring) -> Weights:
    """Return the weights by which a placement is scored.

    These are the weights of ``packing`` if it is a kube-scheduler profile, else those of ``objective``.
    """
    if not isinstance(packing, FitScoring):
        return WEIGHTS[objective]
    domains = WEIGHTS[objective].domains * max(1, packing.weight)
    return Weights(
        packing=packing.weight,
        domains=domains,
        affinity=packing.affinity,
        taints=packing.taints,
        images=packing.images,
        pods=packing.pods,
        spread=packing.spread,
        gpus=packing.gpus,
    )


# kube-scheduler scores a container without a request as if it requested these amounts (pkg/scheduler/util/pod_resources.go).
_ASSUMED_REQUESTS = {"cpu": 100, "memory": 200 * 1024 * 1024}


def requested_to_capacity_ratio(utilization: Floats, weights: Floats) -> Floats:
    """Return the score of each node for one pod, 0..100: float64[nodes].

    ``utilization``: float64[resources, nodes], the share in use once the pod is placed. ``weights``: float64[resources, nodes], 0 for a
    resource that the node doesn't have.
    """
    return mean_of_scores(np.minimum(utilization, 1.0), weights) * 100.0


@dataclass(frozen=True, slots=True, eq=False)
class Scoring:
    """The amounts and weights that score the nodes for the roles of a gang, for the resources that are scored.

    - ``used``: float64[resources, nodes], the share of a node that is in use;
    - ``step``: float64[roles, resources, nodes], the share that one pod of the role adds;
    - ``weight``: float64[roles, resources, nodes], the weight of the resource in the mean for a member. The weights sum to 1 over the
      resources, or to 0 if the node has none of the resources;
    - ``packing``: how utilization is scored;
    - ``allocatable``: int64[resources, nodes]; ``None`` unless ``packing`` is a kube-scheduler profile;
    - ``counted``: bool[roles, resources], whether the profile counts the resource; ``None`` without a profile.
    """

    used: Floats
    step: Floats
    weight: Floats
    packing: Packing | FitScoring = PACKING
    allocatable: Integers | None = None
    counted: Mask | None = None

    @property
    def node_arrays(self) -> tuple[Integers | Floats, ...]:
        """The arrays by which a search distinguishes nodes; nodes are the last axis."""
        return (self.used, self.step, self.weight, *(() if self.allocatable is None else (self.allocatable,)))

    def restricted_to(self, rows: Integers) -> "Scoring":
        """Return the scoring of some of the nodes, given by position."""
        used, step, weight = (values.take(rows, axis=-1) for values in (self.used, self.step, self.weight))
        allocatable = None if self.allocatable is None else self.allocatable.take(rows, axis=-1)
        return replace(self, used=used, step=step, weight=weight, allocatable=allocatable)

    def of_roles(self, roles: Integers) -> "Scoring":
        """Return the scoring of some of the roles, given by position."""
        counted = None if self.counted is None else self.counted[roles]
        return replace(self, step=self.step[roles], weight=self.weight[roles], counted=counted)


def scoring_of(specs: Sequence[SchedulingSpec], snapshot: Snapshot, rows: Integers, packing: Packing | FitScoring = PACKING) -> Scoring:
    """Return the scoring of a gang on the nodes ``rows`` of ``snapshot``.

    A pod that doesn't request cpu or memory counts with the amounts that kube-scheduler assumes; otherwise the pod would add nothing to a
    node. With a kube-scheduler profile, each container that doesn't request cpu or memory counts with these amounts, also each container
    that runs on the nodes already.
    """
    requests = [dict(spec.requests) for spec in specs]
    gpus = sorted({name for amounts in requests for name in amounts if is_gpu(name)})
    fit = packing if isinstance(packing, FitScoring) else None
    weights = dict(packing.resources) if isinstance(packing, FitScoring) else _weights(packing, gpus)
    names = list(weights)
    position = {resource: column for column, resource in enumerate(snapshot.resources)}
    allocatable = np.zeros((len(names), len(rows)), dtype=np.float64)
    taken, reference = np.zeros_like(allocatable), np.zeros_like(allocatable)
    for row, name in enumerate(names):
        if name in position:
            offered = snapshot.allocatable[:, position[name]]
            allocatable[row] = offered[rows]
            reference[row] = offered.max(initial=0) if isinstance(packing, Packing) and packing.of_largest else offered[rows]
            taken[row] = snapshot.used[rows, position[name]] + (reference[row] - allocatable[row])
            if fit and snapshot.unstated is not None and name in UNSTATED:
                taken[row] += snapshot.unstated[rows, UNSTATED.index(name)]
    is_offered = allocatable > 0
    per_unit = np.divide(1.0, reference, out=np.zeros_like(reference), where=is_offered)
    if fit:
        scored = [
            requests_of | {name: requests_of.get(name, 0) + more for name, more in spec.unstated}
            for spec, requests_of in zip(specs, requests, strict=True)
        ]
        demand = np.array([[float(amounts.get(name, 0)) for name in names] for amounts in scored])
    else:
        demand = np.array([[float(amounts.get(name) or _ASSUMED_REQUESTS.get(name, 0)) for name in names] for amounts in requests])
    demand = demand.reshape(len(specs), len(names))
    asked = np.array([[float(weights[name]) * (name in amounts or name in _WEIGHTS) for name in names] for amounts in requests])
    weight = asked.reshape(len(specs), len(names))[:, :, None] * is_offered
    total = weight.sum(axis=1, keepdims=True)
    return Scoring(
        used=taken * per_unit,
        step=demand[:, :, None] * per_unit,
        weight=np.divide(weight, total, out=np.zeros_like(weight), where=total > 0),
        packing=packing,
        allocatable=allocatable.astype(np.int64) if fit else None,
        counted=np.array([[fit.counts(name, name in amounts) for name in names] for amounts in requests]).reshape(demand.shape)
        if fit
        else None,
    )


def _weights(packing: Packing, gpus: Sequence[str]) -> Mapping[str, int]:
    return dict(packing.resources) or {**_WEIGHTS, **dict.fromkeys(gpus, packing.gpu)}


def fullness_with_one(scoring: Scoring, role: int, used: Floats) -> Floats:
    """Return how full each node is once one more pod of ``role`` is placed on it, 0..100: float64[nodes].

    ``used``: float64[resources, nodes], the share in use without this pod.
    """
    return requested_to_capacity_ratio(used + scoring.step[role], scoring.weight[role])
