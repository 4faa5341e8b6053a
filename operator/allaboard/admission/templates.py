"""Where workloads keep the templates of their pods, so that a mistake in one is found when the workload is applied.

A path is read step by step; ``*`` stands for every entry of a map or list. What isn't of the form that a path takes for granted is passed
over: to refuse it is the business of whoever serves the kind.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

TEMPLATES = 64
"""Templates of one object that are looked at, and entries that are stepped over where a path has ``*``, templates or not; pods of those
beyond are told what is wrong with them by the scheduler."""

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
    # Kubeflow Trainer v2; a ClusterTrainingRuntime is of no namespace, so that none can opt in for it
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
"""By API group and kind."""

Template = Mapping[str, Any]


def templates_in(group: str, kind: str, raw: Mapping[str, Any]) -> Iterator[tuple[str, Template]]:
    """The pod templates of a workload, each with its path; a pod is its own, at no path. Nothing of kinds that aren't known."""
    if (group, kind) == ("", "Pod"):
        yield "", raw
        return
    found = (each for path in PATHS.get((group, kind), ()) for each in _at(raw, path.split("."), ""))
    yield from islice(found, TEMPLATES)


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
        for key, each in islice(value.items(), TEMPLATES):
            yield from _at(each, rest, f"{path}.{key}")
    elif isinstance(value, list):
        for index, each in islice(enumerate(value), TEMPLATES):
            yield from _at(each, rest, f"{path}[{index}]")
