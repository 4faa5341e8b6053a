"""Finds the pod templates of workloads, so that a mistake in one is reported when the workload is applied.

A path is followed step by step; ``*`` stands for every entry of a map or list. Objects that don't have the form of the path are skipped:
refusing them is up to the server of their kind.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

MOST_TEMPLATES = 64
"""The most templates of one object that are checked, and the most entries of a map or list that a ``*`` visits.

Mistakes in further templates are reported by the scheduler when their pods are created.
"""

_RAY = ("headGroupSpec.template", "workerGroupSpecs.*.template")
_JOBS = "replicatedJobs.*.template.spec.template"

PATHS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "ReplicationController"): ("spec.template",),
    ("apps", "Deployment"): ("spec.template",),
    ("apps", "ReplicaSet"): ("spec.template",),
    ("apps", "StatefulSet"): ("spec.template",),
    ("apps", "DaemonSet"): ("spec.template",),
    ("batch", "Job"): ("spec.template",),
    ("batch", "CronJob"): ("spec.jobTemplate.spec.template",),
    # training-operator v1.9
    ("kubeflow.org", "TFJob"): ("spec.tfReplicaSpecs.*.template",),
    ("kubeflow.org", "PyTorchJob"): ("spec.pytorchReplicaSpecs.*.template",),
    ("kubeflow.org", "MPIJob"): ("spec.mpiReplicaSpecs.*.template",),  # mpi-operator's v2beta1 too
    ("kubeflow.org", "XGBoostJob"): ("spec.xgbReplicaSpecs.*.template",),
    ("kubeflow.org", "PaddleJob"): ("spec.paddleReplicaSpecs.*.template",),
    ("kubeflow.org", "JAXJob"): ("spec.jaxReplicaSpecs.*.template",),
    # Kubeflow Trainer v2; a ClusterTrainingRuntime has no namespace that could opt in
    ("trainer.kubeflow.org", "TrainingRuntime"): (f"spec.template.spec.{_JOBS}",),
    ("jobset.x-k8s.io", "JobSet"): (f"spec.{_JOBS}",),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        "spec.leaderWorkerTemplate.leaderTemplate",
        "spec.leaderWorkerTemplate.workerTemplate",
    ),
    ("ray.io", "RayCluster"): tuple(f"spec.{path}" for path in _RAY),
    ("ray.io", "RayJob"): (*(f"spec.rayClusterSpec.{path}" for path in _RAY), "spec.submitterPodTemplate"),
    ("ray.io", "RayService"): tuple(f"spec.rayClusterConfig.{path}" for path in _RAY),
}
"""Paths of pod templates by API group and kind."""

Template = Mapping[str, Any]


def templates_in(group: str, kind: str, raw: Mapping[str, Any]) -> Iterator[tuple[str, Template]]:
    """Yield the pod templates of a workload with their paths. A pod is its own template, at the empty path. Unknown kinds have none."""
    if (group, kind) == ("", "Pod"):
        yield "", raw
        return
    found = (each for path in PATHS.get((group, kind), ()) for each in _at(raw, path.split("."), ""))
    yield from islice(found, MOST_TEMPLATES)


def _at(value: object, steps: list[str], path: str) -> Iterator[tuple[str, Template]]:
    if not steps:
        if isinstance(value, Mapping):
            yield path, value
        return
    step, rest = steps[0], steps[1:]
    if step != "*":
        if isinstance(value, Mapping):
            yield from _at(value.get(step), rest, f"{path}.{step}" if path else step)
    elif isinstance(value, Mapping):
        for key, each in islice(value.items(), MOST_TEMPLATES):
            yield from _at(each, rest, f"{path}.{key}")
    elif isinstance(value, list):
        for index, each in islice(enumerate(value), MOST_TEMPLATES):
            yield from _at(each, rest, f"{path}[{index}]")
