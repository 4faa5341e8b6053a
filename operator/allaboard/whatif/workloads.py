"""Expands workloads into the pods that their controllers would create, so that a plan needs no running controllers.

Names, labels and owners are those that the controllers set, but an index replaces a random suffix: the same manifest gives the same pods
every time. Sources: training-operator 1.9 (kubeflow.org/v1), mpi-operator 0.8 (kubeflow.org/v2beta1), batch/v1
and apps/v1 of Kubernetes 1.37.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from allaboard.model.errors import MalformedError, shown
from allaboard.model.raw_fields import boolean, integer, items, mapping, text
from allaboard.whatif.documents import Document
from allaboard.whatif.podsets import MAX_PODS, Labels, PodSet, RawPod, at_once, count_of, made_up_uid, one_of, owner_of, pod_set
from allaboard.whatif.schedules import refuse_schedule

__all__ = ["MAX_PODS", "PodSet", "RawPod", "Workload", "count_of", "expanded_kinds", "expander", "made_up_uid"]

JOB = ("batch", "Job")
_ALWAYS = ("Always",)
"""The restart policies allowed for workloads whose pods run for ever."""

MPI_TRAINING_VERSION = "kubeflow.org/v1"
"""The API version of jobs that training-operator runs; mpi-operator's MPIJobs have another version."""


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """An object whose controller creates pods."""

    document: Document
    namespace: str
    name: str

    @property
    def title(self) -> str:
        """The kind, namespace and name: ``Job default/train``."""
        return f"{self.document.kind} {self.namespace}/{self.name}"

    @property
    def is_named_at_random(self) -> bool:
        """Return whether the pods' names end in a random suffix. Other workloads create a lost pod again under the same name."""
        return (self.document.group, self.document.kind) in _NAMED_AT_RANDOM


def expanded_kinds() -> Iterator[str]:
    """Return the names of the kinds that are expanded."""
    return (kind for _, kind in _EXPANDERS)


def expander(document: Document) -> Callable[[Document, str, str], Iterator[PodSet]] | None:
    """Return the function that expands ``document``, given its namespace and name; None for kinds that aren't expanded."""
    return _EXPANDERS.get((document.group, document.kind))


def _replica_set(document: Document, namespace: str, name: str) -> Iterator[PodSet]:
    spec = mapping(document.raw, "spec")
    # The pods of a Deployment belong to its ReplicaSet.
    owner = owner_of(document, namespace, name, kind="ReplicaSet" if document.kind == "Deployment" else "")
    count = count_of(spec, "replicas", 1, "spec.")
    count = 0 if boolean(spec, "paused", "spec.") else count
    _check_selector(document)
    yield pod_set(spec, count, owner, name=lambda index: f"{name}-{index}", restart=_ALWAYS)


def _check_selector(document: Document) -> None:
    """Refuse a workload of apps/v1 without a selector. Raises ``MalformedError``."""
    selector = mapping(mapping(document.raw, "spec"), "selector", "spec.")
    if document.group == "apps" and not (selector.get("matchLabels") or selector.get("matchExpressions")):
        raise MalformedError("spec.selector", "is empty" if selector else "is missing")


def _stateful_set(document: Document, namespace: str, name: str) -> Iterator[PodSet]:
    spec = mapping(document.raw, "spec")
    start = integer(mapping(spec, "ordinals", "spec."), "start", path="spec.ordinals.")
    if start < 0:
        raise MalformedError("spec.ordinals.start", f"{start} is negative")

    def pod_name(index: int) -> str:
        return f"{name}-{start + index}"

    policy = one_of(spec, "podManagementPolicy", "spec.", ("OrderedReady", "Parallel"), "OrderedReady")
    _check_selector(document)
    yield pod_set(
        spec,
        count_of(spec, "replicas", 1, "spec."),
        owner_of(document, namespace, name),
        name=pod_name,
        labels=lambda index: {
            "statefulset.kubernetes.io/pod-name": pod_name(index),
            "apps.kubernetes.io/pod-index": str(start + index),
        },
        claims=tuple(_claim_template(path, claim) for path, claim in items(spec, "volumeClaimTemplates", "spec.")),
        after=(lambda index: index) if policy == "OrderedReady" else at_once,
        restart=_ALWAYS,
    )


def _claim_template(path: str, claim: Mapping[str, object]) -> Mapping[str, Any]:
    name = text(mapping(claim, "metadata", path), "name", path=f"{path}metadata.")
    return {"metadata": {"name": name}, "spec": mapping(claim, "spec", path)}


def _job(document: Document, namespace: str, name: str) -> Iterator[PodSet]:
    spec = mapping(document.raw, "spec")
    is_suspended = boolean(spec, "suspend", "spec.")
    yield _batch_pods(spec, "spec.", owner_of(document, namespace, name), is_suspended=is_suspended)


def _cron_job(document: Document, namespace: str, name: str) -> Iterator[PodSet]:
    """Yield the pods of the CronJob's next Job, as if it were due."""
    spec = mapping(document.raw, "spec")
    is_suspended = boolean(spec, "suspend", "spec.")
    refuse_schedule(text(spec, "schedule", path="spec."), "spec.schedule")
    one_of(spec, "concurrencyPolicy", "spec.", ("Allow", "Forbid", "Replace"), "Allow")
    template, path = mapping(spec, "jobTemplate", "spec."), "spec.jobTemplate."
    job = mapping(template, "spec", path)
    if not job:
        raise MalformedError(f"{path}spec", "is missing")
    owner = {**owner_of(document, namespace, f"{name}-0", kind="Job"), "uid": made_up_uid(namespace, f"{name}-0", "Job")}
    yield _batch_pods(job, f"{path}spec.", owner, is_suspended=is_suspended or boolean(job, "suspend", f"{path}spec."))


def _batch_pods(spec: Mapping[str, object], path: str, owner: Mapping[str, Any], *, is_suspended: bool) -> PodSet:
    """Return the pods that a Job of ``spec`` creates when it starts: as many as may run at the same time."""
    _check_manager(spec, path, "kubernetes.io/job-controller")
    parallelism = count_of(spec, "parallelism", 1, path)
    count = min(parallelism, count_of(spec, "completions", parallelism, path))
    is_indexed = one_of(spec, "completionMode", path, ("NonIndexed", "Indexed"), "NonIndexed") == "Indexed"
    job = str(owner["name"])

    def job_labels(index: int) -> Labels:
        found = {"job-name": job, "controller-uid": str(owner["uid"])}
        found |= {f"batch.kubernetes.io/{key}": value for key, value in found.items()}
        return found | ({"batch.kubernetes.io/job-completion-index": str(index)} if is_indexed else {})

    return pod_set(
        spec,
        0 if is_suspended else count,
        owner,
        path=path,
        name=lambda index: f"{job}-{index}",
        labels=job_labels,
        restart=("OnFailure", "Never"),
    )


def _check_manager(spec: Mapping[str, object], path: str, expected: str) -> None:
    """Refuse a job whose pods another controller creates. Raises ``MalformedError``."""
    manager = text(spec, "managedBy", path=path)
    if manager not in ("", expected):
        raise MalformedError(f"{path}managedBy", f"a plan doesn't know which pods {shown(manager)} creates")


def _training_job(specs_key: str, types: tuple[str, ...], document: Document, namespace: str, name: str) -> Iterator[PodSet]:
    """Yield the pods of a TFJob or a similar job: one pod set per replica type."""
    policy = mapping(mapping(document.raw, "spec"), "runPolicy", "spec.")
    _check_manager(policy, "spec.runPolicy.", "kubeflow.org/training-operator")
    owner = owner_of(document, namespace, name)
    replicas = list(_replicas(document, specs_key, types, policy))
    present = {replica_type for _, replica_type, _, _ in replicas}
    for path, replica_type, replica_spec, count in replicas:
        yield pod_set(
            replica_spec,
            count,
            owner,
            path=path,
            name=partial(_replica_name, name, replica_type),
            labels=partial(_replica_labels, f"{document.kind.lower()}-controller", name, replica_type, present),
        )


def _mpi_job(document: Document, namespace: str, name: str) -> Iterator[PodSet]:
    """Yield the pods of an MPIJob, as training-operator (v1) or mpi-operator creates them.

    training-operator creates launcher and workers at once, as pods. mpi-operator creates the workers first, and then a Job for the launcher
    (pkg/controller/mpi_job_controller.go).
    """
    types = ("Launcher", "Worker")
    if document.api_version == MPI_TRAINING_VERSION:
        yield from _training_job("mpiReplicaSpecs", types, document, namespace, name)
        return
    spec = mapping(document.raw, "spec")
    policy = mapping(spec, "runPolicy", "spec.")
    _check_manager(policy, "spec.runPolicy.", "kubeflow.org/mpi-operator")
    creation = text(spec, "launcherCreationPolicy", path="spec.")
    if creation not in ("", "AtStartup", "WaitForWorkersReady"):
        raise MalformedError("spec.launcherCreationPolicy", f"{shown(creation)} is neither AtStartup nor WaitForWorkersReady")
    replicas = {each[1]: each for each in _replicas(document, "mpiReplicaSpecs", types, policy, defaults={"worker": 0})}
    workers = replicas["worker"][3] if "worker" in replicas else 0
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{name}-launcher", "uid": made_up_uid(namespace, f"{name}-launcher", "Job")}
    for replica_type in ("worker", "launcher"):  # in order of creation
        if replica_type in replicas:
            path, _, replica_spec, count = replicas[replica_type]
            yield pod_set(
                replica_spec,
                count,
                owner_of(document, namespace, name)
                if replica_type == "worker"
                else {**job, "controller": True, "blockOwnerDeletion": True},
                path=path,
                name=partial(_replica_name, name, replica_type),
                labels=partial(_mpi_labels, name, replica_type),
                after=(lambda index: workers) if (replica_type, creation) == ("launcher", "WaitForWorkersReady") else at_once,
            )


def _replicas(
    document: Document, specs_key: str, types: tuple[str, ...], policy: Mapping[str, object], defaults: Mapping[str, int] | None = None
) -> Iterator[tuple[str, str, Mapping[str, object], int]]:
    """Yield each replica type of a job: its path, its name in lower case, its spec, and the number of its pods."""
    specs = mapping(mapping(document.raw, "spec"), specs_key, "spec.")
    if not specs:
        raise MalformedError(f"spec.{specs_key}", "is missing")
    is_suspended = boolean(policy, "suspend", "spec.runPolicy.")
    names = {name.lower() for name in types}
    for key in specs:
        replica_type = str(key).lower()
        replica_spec = mapping(specs, key, f"spec.{specs_key}.")
        if replica_type not in names:
            raise MalformedError(f"spec.{specs_key}.{key}", f"{document.kind} has no such replica type; there are {', '.join(types)}")
        path = f"spec.{specs_key}.{key}."
        count = count_of(replica_spec, "replicas", (defaults or {}).get(replica_type, 1), path)
        yield path, replica_type, replica_spec, 0 if is_suspended else count


def _replica_name(job: str, replica_type: str, index: int) -> str:
    return f"{job}-launcher" if replica_type == "launcher" else f"{job}-{replica_type}-{index}"


def _replica_labels(operator: str, job: str, replica_type: str, types: set[str], index: int) -> Labels:
    found = {"operator-name": operator, "job-name": job, "replica-type": replica_type, "replica-index": str(index)}
    has_master = bool(types & {"chief", "master"})
    if replica_type in ("chief", "master") or (replica_type == "worker" and index == 0 and not has_master):
        found["job-role"] = "master"
    return {f"training.kubeflow.org/{key}": value for key, value in found.items()}


def _mpi_labels(job: str, replica_type: str, index: int) -> Labels:
    found = {"operator-name": "mpi-operator", "job-name": job, "job-role": replica_type}
    if replica_type == "worker":
        found["replica-index"] = str(index)
    return {f"training.kubeflow.org/{key}": value for key, value in found.items()}


_NAMED_AT_RANDOM = (("", "ReplicationController"), ("apps", "Deployment"), ("apps", "ReplicaSet"), JOB, ("batch", "CronJob"))

_EXPANDERS: dict[tuple[str, str], Callable[[Document, str, str], Iterator[PodSet]]] = {
    ("", "ReplicationController"): _replica_set,
    ("apps", "Deployment"): _replica_set,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    JOB: _job,
    ("batch", "CronJob"): _cron_job,
    ("kubeflow.org", "TFJob"): partial(_training_job, "tfReplicaSpecs", ("PS", "Worker", "Chief", "Master", "Evaluator")),
    ("kubeflow.org", "PyTorchJob"): partial(_training_job, "pytorchReplicaSpecs", ("Master", "Worker")),
    ("kubeflow.org", "XGBoostJob"): partial(_training_job, "xgbReplicaSpecs", ("Master", "Worker")),
    ("kubeflow.org", "PaddleJob"): partial(_training_job, "paddleReplicaSpecs", ("Master", "Worker")),
    ("kubeflow.org", "JAXJob"): partial(_training_job, "jaxReplicaSpecs", ("Worker",)),
    ("kubeflow.org", "MPIJob"): _mpi_job,
}
