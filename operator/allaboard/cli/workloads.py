"""Expands workloads into the pods that their controllers would make, so that a plan needs no cluster to make them.

Names, labels and owners are those of the controllers, except that an index stands where they would put a random suffix: the same
manifest gives the same pods every time. Labels of job operators: training-operator v1.9, batch/v1 and apps/v1 of Kubernetes 1.37.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from allaboard.cli.documents import Document
from allaboard.model.errors import MalformedError, shown
from allaboard.model.fields import boolean, integer, items, labels, mapping, sequence, text
from allaboard.model.quantities import parse_quantity
from allaboard.model.requests import default_requests

MAX_PODS = 100_000
"""Pods that a plan may hold; a typing mistake in ``replicas`` shouldn't end in a machine without memory."""

RawPod = dict[str, Any]
_Labels = dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """An object whose controller makes pods."""

    document: Document
    namespace: str
    name: str

    @property
    def title(self) -> str:
        """``Job default/train``."""
        return f"{self.document.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodSet:
    """``count`` pods of one template. ``path`` leads to the template inside the workload, with a dot at the end."""

    path: str
    template: Mapping[str, Any]
    count: int
    owner: Mapping[str, Any] | None
    name: Callable[[int], str]
    labels: Callable[[int], _Labels]
    claims: tuple[str, ...] = ()

    def pods(self, namespace: str) -> Iterator[RawPod]:
        """The raw pods, with requests defaulted from limits as the API server would. Raises ``MalformedError``, paths within a pod."""
        spec = default_requests(mapping(self.template, "spec"))
        if not sequence(spec, "containers", "spec."):
            raise MalformedError("spec.containers", "is missing; a pod needs at least one container")
        _check_resources(spec)
        metadata = mapping(self.template, "metadata")
        template_labels = labels(metadata, "labels", "metadata.")
        annotations = labels(metadata, "annotations", "metadata.")
        for index in range(self.count):
            name = self.name(index)
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": made_up_uid(namespace, name),
                    "labels": {**template_labels, **self.labels(index)},
                    "annotations": annotations,
                    "ownerReferences": [self.owner] if self.owner else [],
                },
                "spec": self._with_claims(spec, name),
                "status": {"phase": "Pending"},
            }

    def _with_claims(self, spec: dict[str, Any], pod_name: str) -> dict[str, Any]:
        if not self.claims:
            return spec
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{pod_name}"}} for claim in self.claims]
        return {**spec, "volumes": [*sequence(spec, "volumes", "spec."), *volumes]}


def _check_resources(spec: Mapping[str, object]) -> None:
    """What the API server refuses of containers' resources, beyond their form. Raises ``MalformedError``."""
    for key in ("containers", "initContainers"):
        for path, container in items(spec, key, "spec."):
            resources, inside = mapping(container, "resources", path), f"{path}resources."
            limits = mapping(resources, "limits", inside)
            for resource, value in mapping(resources, "requests", inside).items():
                field = f"{inside}requests[{resource}]"
                requested = parse_quantity(value, field)
                # Names with a domain are extended resources: whole pieces, and never more than one may use.
                if "/" in resource and requested.denominator != 1:
                    raise MalformedError(field, f"{shown(value)} is not a whole number; an extended resource comes in whole pieces")
                limit = limits.get(resource)
                if limit is not None and requested > parse_quantity(limit, f"{inside}limits[{resource}]"):
                    raise MalformedError(field, f"{shown(value)} is more than the limit of {shown(limit)}")


def made_up_uid(namespace: str, name: str, kind: str = "") -> str:
    """A UID that is the same every time; no real one looks like it."""
    return f"manifest:{namespace}/{kind}/{name}" if kind else f"manifest:{namespace}/{name}"


def expander(document: Document) -> Callable[[Document, str, str], Iterator[PodSet]] | None:
    """What expands ``document``: a function of it, its namespace and its name; ``None`` for kinds that aren't expanded."""
    return _EXPANDERS.get((document.group, document.kind))


def _replica_set(document: Document, namespace: str, name: str) -> Iterator[PodSet]:
    spec = mapping(document.raw, "spec")
    # The pods of a Deployment belong to its ReplicaSet.
    owner = _owner(document, namespace, name, kind="ReplicaSet")
    yield _pod_set(spec, count_of(spec, "replicas", 1, "spec."), owner, name=lambda index: f"{name}-{index}")


def _stateful_set(document: Document, namespace: str, name: str) -> Iterator[PodSet]:
    spec = mapping(document.raw, "spec")
    start = integer(mapping(spec, "ordinals", "spec."), "start", path="spec.ordinals.")
    if start < 0:
        raise MalformedError("spec.ordinals.start", f"{start} is negative")

    def pod_name(index: int) -> str:
        return f"{name}-{start + index}"

    yield _pod_set(
        spec,
        count_of(spec, "replicas", 1, "spec."),
        _owner(document, namespace, name),
        name=pod_name,
        labels=lambda index: {
            "statefulset.kubernetes.io/pod-name": pod_name(index),
            "apps.kubernetes.io/pod-index": str(start + index),
        },
        claims=tuple(
            text(mapping(claim, "metadata", path), "name", path=f"{path}metadata.")
            for path, claim in items(spec, "volumeClaimTemplates", "spec.")
        ),
    )


def _job(document: Document, namespace: str, name: str) -> Iterator[PodSet]:
    spec = mapping(document.raw, "spec")
    parallelism = count_of(spec, "parallelism", 1, "spec.")
    count = min(parallelism, count_of(spec, "completions", parallelism, "spec."))
    owner = _owner(document, namespace, name)
    is_indexed = text(spec, "completionMode", path="spec.") == "Indexed"

    def job_labels(index: int) -> _Labels:
        found = {"job-name": name, "controller-uid": str(owner["uid"])}
        found |= {f"batch.kubernetes.io/{key}": value for key, value in found.items()}
        return found | ({"batch.kubernetes.io/job-completion-index": str(index)} if is_indexed else {})

    is_suspended = boolean(spec, "suspend", "spec.")
    yield _pod_set(spec, 0 if is_suspended else count, owner, name=lambda index: f"{name}-{index}", labels=job_labels)


def _training_job(specs_key: str, document: Document, namespace: str, name: str) -> Iterator[PodSet]:
    """TFJob and its like: one pod set per replica type."""
    spec = mapping(document.raw, "spec")
    owner = _owner(document, namespace, name)
    is_suspended = boolean(mapping(spec, "runPolicy", "spec."), "suspend", "spec.runPolicy.")
    replica_specs = mapping(spec, specs_key, "spec.")
    if not replica_specs:
        raise MalformedError(f"spec.{specs_key}", "is missing")
    types = {str(replica_type).lower() for replica_type in replica_specs}
    for key in replica_specs:
        path = f"spec.{specs_key}."
        replica_spec = mapping(replica_specs, key, path)
        path = f"{path}{key}."
        count = count_of(replica_spec, "replicas", 1, path)
        replica_type = str(key).lower()
        yield _pod_set(
            replica_spec,
            0 if is_suspended else count,
            owner,
            path=path,
            name=partial(_replica_name, name, replica_type),
            labels=partial(_replica_labels, f"{document.kind.lower()}-controller", name, replica_type, types),
        )


def _replica_name(job: str, replica_type: str, index: int) -> str:
    return f"{job}-launcher" if replica_type == "launcher" else f"{job}-{replica_type}-{index}"


def _replica_labels(operator: str, job: str, replica_type: str, types: set[str], index: int) -> _Labels:
    found = {"operator-name": operator, "job-name": job, "replica-type": replica_type, "replica-index": str(index)}
    has_master = bool(types & {"chief", "master"})
    if replica_type in ("chief", "master") or (replica_type == "worker" and index == 0 and not has_master):
        found["job-role"] = "master"
    return {f"training.kubeflow.org/{key}": value for key, value in found.items()}


def count_of(parent: Mapping[str, object], key: str, default: int, path: str) -> int:
    """A number of pods. Raises ``MalformedError`` for negative and absurd ones too."""
    count = integer(parent, key, default, path)
    if count < 0:
        raise MalformedError(f"{path}{key}", f"{count} is negative")
    if count > MAX_PODS:
        raise MalformedError(f"{path}{key}", f"{count} is more than the {MAX_PODS} pods that a plan may hold")
    return count


def _pod_set(
    parent: Mapping[str, object],
    count: int,
    owner: Mapping[str, Any],
    *,
    name: Callable[[int], str],
    labels: Callable[[int], _Labels] = lambda index: {},
    path: str = "spec.",
    claims: tuple[str, ...] = (),
) -> PodSet:
    template = mapping(parent, "template", path)
    if not template:
        raise MalformedError(f"{path}template", "is missing")
    return PodSet(f"{path}template.", template, count, owner, name, labels, claims)


def _owner(document: Document, namespace: str, name: str, kind: str = "") -> dict[str, Any]:
    kind = kind or document.kind
    return {
        "apiVersion": document.api_version,
        "kind": kind,
        "name": name,
        "uid": text(mapping(document.raw, "metadata"), "uid", path="metadata.") or made_up_uid(namespace, name, kind),
        "controller": True,
        "blockOwnerDeletion": True,
    }


_EXPANDERS: dict[tuple[str, str], Callable[[Document, str, str], Iterator[PodSet]]] = {
    ("apps", "Deployment"): _replica_set,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("kubeflow.org", "TFJob"): partial(_training_job, "tfReplicaSpecs"),
    ("kubeflow.org", "PyTorchJob"): partial(_training_job, "pytorchReplicaSpecs"),
    ("kubeflow.org", "MPIJob"): partial(_training_job, "mpiReplicaSpecs"),
}
