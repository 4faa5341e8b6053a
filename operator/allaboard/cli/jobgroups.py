"""What training-operator adds to jobs when it was started with ``--gang-scheduler-name``: a PodGroup for each, which its pods name.

As of v1.9 (pkg/controller.v1/common/job.go, control/podgroup_control.go). Nothing in a manifest tells whether the flag is set, but the
operator's own pod does.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

from allaboard.cli.manifests import Expanded, Manifests
from allaboard.cli.workloads import Workload, count_of, made_up_uid
from allaboard.gangs.dialects import POD_GROUP_LABEL
from allaboard.model.errors import MalformedError
from allaboard.model.fields import integer, items, labels, mapping, sequence
from allaboard.model.gang import Gang
from allaboard.model.requests import RawObject

FLAG = "--gang-scheduler-name"

_API_VERSION = "kubeflow.org/v1"
_MAKES_NO_SUCH_GROUPS = ("", "None", "volcano")  # of which the last has PodGroups of its own


def with_pod_groups(manifests: Manifests, scheduler: str) -> Manifests:
    """``manifests`` with what training-operator makes of its jobs when its flag names ``scheduler``. Raises ``ManifestError``."""
    if scheduler in _MAKES_NO_SUCH_GROUPS:
        return manifests
    found = replace(manifests, pods=[], pod_groups=list(manifests.pod_groups))
    for workload, expanded in groupby(manifests.pods, key=lambda each: each.workload):
        pods = list(expanded)
        if workload is None or workload.document.api_version != _API_VERSION:
            found.pods += pods
        else:
            found.pods += [replace(each, raw=_named(each.raw, workload.name, scheduler)) for each in pods]
            found.pod_groups.append(_group(workload, pods))
    return found


def hints(gangs: Iterable[Gang]) -> Sequence[str]:
    """What is to be said of jobs each pod of which is a gang of its own: that is seldom meant."""
    owners = dict.fromkeys((gang.key.namespace, pod.owner) for gang in gangs if gang.is_single for pod in gang.members)
    return [
        f"{owner.kind} {namespace}/{owner.name}: its pods name no gang; where training-operator runs with {FLAG}, say so"
        for namespace, owner in owners
        if owner is not None and owner.api_version == _API_VERSION
    ]


def flag_of(pod: RawObject) -> str:
    """What the flag is set to where a pod is training-operator's; empty for all others."""
    with suppress(MalformedError):  # of a pod that can't be read, nothing is known
        for _, container in items(mapping(pod, "spec"), "containers", "spec."):
            words = [str(word) for field in ("command", "args") for word in sequence(container, field)]
            for word, following in pairwise([*words, ""]):
                name, is_joined, value = word.partition("=")
                if name in (FLAG, FLAG.removeprefix("-")):  # Go takes one dash for two
                    return value if is_joined else following
    return ""


def _named(raw: Mapping[str, Any], group: str, scheduler: str) -> dict[str, Any]:
    """A pod that names its PodGroup, and the scheduler unless it names another."""
    metadata, spec = raw["metadata"], raw["spec"]
    named = {**metadata, "labels": {**labels(metadata, "labels"), POD_GROUP_LABEL: group}}
    return {**raw, "metadata": named, "spec": {**spec, "schedulerName": spec.get("schedulerName") or scheduler}}


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
    # Where the job doesn't state them, training-operator sums up what its members ask for, which says no more than they do.
    spec = {"minMember": minimum, "scheduleTimeoutSeconds": timeout, "minResources": policy.get("minResources")}
    raw = {"kind": "PodGroup", "metadata": metadata, "spec": spec}
    return Expanded(raw, document.origin, position=pods[0].position)
