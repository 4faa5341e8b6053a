"""What is wanted of a placement, and kube-scheduler's RequestedToCapacityRatio for a whole gang at once.

An objective is a set of ``Weights``: the cost of a placement is their weighted sum (``valuation``). *Packing* asks how full each member's
node is when it is its turn, as kube-scheduler does. The formula is that of noderesources/requested_to_capacity_ratio.go (1.37), but in
floating point: upstream truncates to whole points, and a search needs to see that a plan is better by less than one. *Spreading* asks how
full the nodes are once everybody sits, by the plain shape (0,0)-(100,10), whatever packing's is. A profile of kube-scheduler's
configuration is scored in its whole points instead (``model.fit``).
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
    """What each term of a placement's cost weighs.

    ``fragmentation``: per GPU that the cluster's workload is expected not to be able to use any more; ``worth``: per GPU that the free
    GPUs lose of their worth to it, beyond those that are taken. ``domains``: per topology domain.
    Per member: ``packing`` of what its node stays empty (0..1), ``spreading`` of what it gets full, ``affinity`` of the preferences that
    its node doesn't meet, ``taints`` of the PreferNoSchedule taints there, ``images`` of the bytes of its images that must be pulled,
    and, of one that asks for GPUs, ``gpus`` of what those of its node are worse than the best (``model.gpuscore``).
    """

    packing: float = 0.0
    spreading: float = 0.0
    fragmentation: float = 0.0
    worth: float = 0.0
    domains: float = 0.0
    affinity: float = 0.0
    taints: float = 0.0
    images: float = 0.0
    gpus: float = 0.0


WEIGHTS = {
    # In GPUs. A preference that isn't met is worth as much as half a GPU, a fuller node a hundredth of one.
    Objective.FRAGMENTATION: Weights(
        fragmentation=0.1, worth=1.0, packing=0.01, domains=0.2, affinity=0.5, taints=0.75, images=0.1, gpus=0.0005
    ),
    # kube-scheduler's own weights: NodeResourcesFit 1, NodeAffinity 2, TaintToleration 3, ImageLocality 1.
    Objective.BINPACK: Weights(packing=1.0, domains=0.2, affinity=2.0, taints=3.0, images=1.0, gpus=0.05),
    Objective.SPREAD: Weights(spreading=1.0, affinity=2.0, taints=3.0, images=1.0, gpus=0.05),
}


def weights_of(objective: Objective, packing: Packing | FitScoring) -> Weights:
    """What weighs what: by the profile of a kube-scheduler that is to be imitated, else by the objective."""
    if not isinstance(packing, FitScoring):
        return WEIGHTS[objective]
    domains = WEIGHTS[objective].domains * max(1, packing.weight)
    return Weights(
        packing=packing.weight, domains=domains, affinity=packing.affinity, taints=packing.taints, images=packing.images, gpus=packing.gpus
    )


# kube-scheduler scores a container without a request as if it had these (pkg/scheduler/util/pod_resources.go).
_ASSUMED_REQUESTS = {"cpu": 100, "memory": 200 * 1024 * 1024}


def requested_to_capacity_ratio(utilization: Floats, weights: Floats) -> Floats:
    """Score 0..100 of each node for one pod: float64[nodes], from the share in use once it sits, and weights: float64[resources, nodes].

    A resource a node doesn't have must have no weight there.
    """
    return mean_of_scores(np.minimum(utilization, 1.0), weights) * 100.0


@dataclass(frozen=True, slots=True, eq=False)
class Scoring:
    """What scores need to know of the gang and the nodes; resources are those that are scored.

    ``used``: float64[resources, nodes], the share of a node that is taken already. ``step``: float64[roles, resources, nodes], the share
    that one pod of a role adds. ``weight``: float64[roles, resources, nodes], of each resource in a member's mean: they sum to 1 over
    the resources unless the node has none of them. ``packing``: how utilization is scored. For a profile of kube-scheduler's there are
    ``allocatable``: int64[resources, nodes], and ``counted``: bool[roles, resources], those that count.
    """

    used: Floats
    step: Floats
    weight: Floats
    packing: Packing | FitScoring = PACKING
    allocatable: Integers | None = None
    counted: Mask | None = None

    @property
    def node_arrays(self) -> tuple[Integers | Floats, ...]:
        """All that tells nodes apart, nodes last."""
        return (self.used, self.step, self.weight, *(() if self.allocatable is None else (self.allocatable,)))

    def restricted_to(self, rows: Integers) -> "Scoring":
        """The same on some of the nodes."""
        used, step, weight = (values.take(rows, axis=-1) for values in (self.used, self.step, self.weight))
        allocatable = None if self.allocatable is None else self.allocatable.take(rows, axis=-1)
        return replace(self, used=used, step=step, weight=weight, allocatable=allocatable)

    def of_roles(self, roles: Integers) -> "Scoring":
        """The same for some of the roles."""
        counted = None if self.counted is None else self.counted[roles]
        return replace(self, step=self.step[roles], weight=self.weight[roles], counted=counted)


def scoring_of(specs: Sequence[SchedulingSpec], snapshot: Snapshot, rows: Integers, packing: Packing | FitScoring = PACKING) -> Scoring:
    """The scoring of a gang on the nodes ``rows`` of ``snapshot``.

    A pod without cpu or memory request counts with the assumed amounts, so that it weighs at all. By a profile of kube-scheduler's each
    container does that lacks one, and those of the node's pods too.
    """
    requests = [dict(spec.requests) for spec in specs]
    gpus = sorted({name for amounts in requests for name in amounts if is_gpu(name)})
    fit = packing if isinstance(packing, FitScoring) else None
    weights = dict(packing.resources) if isinstance(packing, FitScoring) else _weights(packing, gpus)
    names = list(weights)
    position = {resource: column for column, resource in enumerate(snapshot.resources)}
    allocatable = np.zeros((len(names), len(rows)), dtype=np.float64)
    taken, whole = np.zeros_like(allocatable), np.zeros_like(allocatable)
    for row, name in enumerate(names):
        if name in position:
            offered = snapshot.allocatable[:, position[name]]
            allocatable[row] = offered[rows]
            whole[row] = offered.max(initial=0) if isinstance(packing, Packing) and packing.of_largest else offered[rows]
            taken[row] = snapshot.used[rows, position[name]] + (whole[row] - allocatable[row])
            if fit and snapshot.unstated is not None and name in UNSTATED:
                taken[row] += snapshot.unstated[rows, UNSTATED.index(name)]
    has = allocatable > 0
    per_unit = np.divide(1.0, whole, out=np.zeros_like(whole), where=has)
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
    weight = asked.reshape(len(specs), len(names))[:, :, None] * has
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
    """How full each node is for one more pod of ``role``, 0..100: float64[nodes]; ``used``: float64[resources, nodes] so far."""
    return requested_to_capacity_ratio(used + scoring.step[role], scoring.weight[role])
