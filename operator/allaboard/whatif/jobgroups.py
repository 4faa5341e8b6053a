"""Adds the PodGroups that job operators create for their jobs, and labels the jobs' pods with the names of these PodGroups.

training-operator (kubeflow.org/v1) creates PodGroups if it was started with ``--gang-scheduler-name``, mpi-operator (v2beta1) if it was
started with ``--gang-scheduling``. A manifest doesn't say whether the flag is set, but the operator's own pod does. Sources:
training-operator 1.9 (pkg/controller.v1/common/job.go, control/podgroup_control.go), mpi-operator 0.8 (pkg/controller/podgroup.go).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

from allaboard.gangs.membership import POD_GROUP_LABEL
from allaboard.model.errors import MalformedError
from allaboard.model.gang import Gang
from allaboard.model.raw_fields import integer, items, labels, mapping, sequence
from allaboard.model.requests import RawObject
from allaboard.whatif.manifests import Expanded, Manifests
from allaboard.whatif.workloads import Workload, count_of, made_up_uid

FLAG = "--gang-scheduler-name"
MPI_FLAG = "--gang-scheduling"

TRAINING, MPI = "kubeflow.org/v1", "kubeflow.org/v2beta1"
"""API versions of the jobs that training-operator and mpi-operator run."""

_OPERATORS = {TRAINING: ("training-operator", FLAG), MPI: ("mpi-operator", MPI_FLAG)}
_WITHOUT_POD_GROUPS = ("", "None", "volcano")  # values of a flag; volcano has PodGroups of another kind

_DOUBT = (
    "the launcher is created only after the workers are Ready (launcherCreationPolicy); "
    f"if mpi-operator runs with {MPI_FLAG}, its PodGroup counts the launcher, and the job never starts: "
    f"state {MPI_FLAG} NAME, or {MPI_FLAG} None if mpi-operator creates no PodGroups"
)


def with_pod_groups(manifests: Manifests, schedulers: Mapping[str, str]) -> Manifests:
    """Return ``manifests`` with the PodGroups and labels that job operators add.

    ``schedulers`` has the values of the operators' flags, by API version of their jobs. Raises ``ManifestError``.
    """
    found = replace(manifests, pods=[], pod_groups=list(manifests.pod_groups))
    for workload, expanded in groupby(manifests.pods, key=lambda each: each.workload):
        pods = list(expanded)
        version = workload.document.api_version if workload else ""
        scheduler = schedulers.get(version)
        if workload and version == MPI and scheduler is None:
            found.pods += [replace(each, doubt=_DOUBT) if each.after else each for each in pods]
        elif workload is None or version not in _OPERATORS or scheduler in (None, *_WITHOUT_POD_GROUPS):
            found.pods += pods
        else:
            found.pods += [replace(each, raw=_named(each.raw, workload.name, str(scheduler), overwrites=version == MPI)) for each in pods]
            found.pod_groups.append(_group(workload, pods))
    return found


def hints(gangs: Iterable[Gang]) -> Sequence[str]:
    """Return a note for each job of which every pod is a gang of its own, since that is seldom intended."""
    owners = dict.fromkeys((gang.key.namespace, pod.owner) for gang in gangs if gang.is_single for pod in gang.members)
    return [
        f"{owner.kind} {namespace}/{owner.name}: its pods name no gang; "
        f"if {' runs with '.join(_OPERATORS[owner.api_version])}, pass this option to plan, too"
        for namespace, owner in owners
        if owner is not None and owner.api_version in _OPERATORS
    ]


def flags_of(pod: RawObject) -> Mapping[str, str]:
    """Return the values of a job operator's flags, by API version of its jobs; empty if the pod isn't a job operator's."""
    found: dict[str, str] = {}
    with suppress(MalformedError):  # a pod that can't be read shows no flags
        for _, container in items(mapping(pod, "spec"), "containers", "spec."):
            if container.get("name") == "mpi-operator":
                found.setdefault(MPI, "")
            words = [str(word) for field in ("command", "args") for word in sequence(container, field)]
            for word, following in pairwise([*words, ""]):
                name, is_joined, value = word.partition("=")
                for version, (_, flag) in _OPERATORS.items():
                    if name in (flag, flag.removeprefix("-")):  # Go accepts one dash instead of two
                        found[version] = value if is_joined else following
    return found


def _named(raw: Mapping[str, Any], group: str, scheduler: str, *, overwrites: bool) -> dict[str, Any]:
    """Return a pod with the label of its PodGroup and the name of a scheduler.

    A scheduler that the pod names itself is kept, unless the operator ``overwrites`` it, as mpi-operator does.
    """
    metadata, spec = raw["metadata"], raw["spec"]
    named = {**metadata, "labels": {**labels(metadata, "labels"), POD_GROUP_LABEL: group}}
    stated = "" if overwrites else spec.get("schedulerName")
    return {**raw, "metadata": named, "spec": {**spec, "schedulerName": stated or scheduler}}


def _group(workload: Workload, pods: list[Expanded]) -> Expanded:
    document = workload.document
    try:
        policy = mapping(mapping(mapping(document.raw, "spec"), "runPolicy", "spec."), "schedulingPolicy", "spec.runPolicy.")
        path = "spec.runPolicy.schedulingPolicy."
        minimum = count_of(policy, "minAvailable", len(pods), path)
        timeout = integer(policy, "scheduleTimeoutSeconds", path=path)
        if timeout < 0:
            raise MalformedError(f"{path}scheduleTimeoutSeconds", f"{timeout} is negative")
    except MalformedError as error:
        raise document.origin.blame(error) from error
    metadata = {
        "name": workload.name,
        "namespace": workload.namespace,
        "uid": made_up_uid(workload.namespace, workload.name, "PodGroup"),
        "annotations": labels(mapping(document.raw, "metadata"), "annotations", "metadata."),
    }
    # If the job doesn't state minResources, training-operator adds up the requests of its members, which a plan has anyway.
    spec = {"minMember": minimum, "scheduleTimeoutSeconds": timeout, "minResources": policy.get("minResources")}
    raw = {"kind": "PodGroup", "metadata": metadata, "spec": spec}
    return Expanded(raw, document.origin, position=pods[0].position)
