"""Builds the objects that ask an autoscaler for the nodes of a gang: PodTemplates, and the ProvisioningRequest that refers to them.

The name of an object follows from its content and its owner. So an object that is made twice, since the answer was lost or the operator was
killed, is one object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any

import orjson

from allaboard.kube.client import RawObject
from allaboard.kube.paths import POD_GROUPS, POD_TEMPLATES, PROVISIONING_REQUESTS, Resource
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.model.provisioning import MADE_FOR, MANAGED_BY, OURS, our_name

_OF_ONE_POD = ("-index", "/pod-name")  # endings of labels that differ among pods of one template
_SPEC_FIELDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
    "priority",
    "preemptionPolicy",
    "schedulerName",
    "runtimeClassName",
    "overhead",
    "hostNetwork",
    "os",
    "resources",
    "resourceClaims",
    "restartPolicy",
)
_CONTAINER_FIELDS = ("name", "image", "resources", "ports", "restartPolicy")
_ANYWHERE = frozenset({"configMap", "secret", "projected", "downwardAPI", "emptyDir", "hostPath", "gitRepo", "image"})
"""Kinds of volumes that don't decide on which nodes a pod fits."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Members that fit on the same nodes: ``sample`` is one of them, and ``count`` is their number."""

    sample: Pod
    count: int


def pod_template(gang: GangKey, uid: str, raw: RawObject) -> RawObject:
    """Return the PodTemplate for members like the raw pod: only what decides on which nodes they fit. ``uid`` is the PodGroup's.

    Names and numbers that controllers give to each pod are left out, and so are environment variables, which may be secret.
    """
    metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if not name.endswith(_OF_ONE_POD)}
    kept = {field: spec[field] for field in _SPEC_FIELDS if spec.get(field) is not None}
    if volumes := [each for each in spec.get("volumes") or () if not _ANYWHERE.intersection(each)]:
        kept["volumes"] = volumes
    for field in ("initContainers", "containers"):
        if containers := spec.get(field):
            kept[field] = [{name: each[name] for name in _CONTAINER_FIELDS if each.get(name) is not None} for each in containers]
    template = {"metadata": {"labels": labels}, "spec": kept}
    return {**_head(POD_TEMPLATES, gang, uid, template), "template": template}


def provisioning_request(
    gang: Gang, uid: str, class_name: str, parameters: Mapping[str, str], pod_sets: Sequence[tuple[str, int]]
) -> RawObject:
    """Return the ProvisioningRequest of a gang. ``pod_sets`` are names of PodTemplates, each with its number of members.

    ``uid`` is the UID of the gang's PodGroup, which owns the request.
    """
    spec: dict[str, Any] = {
        "provisioningClassName": class_name,
        "podSets": [{"podTemplateRef": {"name": name}, "count": count} for name, count in pod_sets],
    }
    if parameters:
        spec["parameters"] = dict(parameters)
    made = _head(PROVISIONING_REQUESTS, gang.key, uid, spec)
    made["metadata"]["annotations"] = {MADE_FOR: gang.scheduler_name}
    return {**made, "spec": spec}


def _head(resource: Resource, gang: GangKey, uid: str, content: object) -> RawObject:
    """Return apiVersion, kind and metadata of an object with ``content``, which the gang's PodGroup owns."""
    digest = blake2s(orjson.dumps([uid, content], option=orjson.OPT_SORT_KEYS), digest_size=5).hexdigest()
    metadata = {
        "name": our_name(gang.name, digest),
        "namespace": gang.namespace,
        "labels": {MANAGED_BY: OURS},
        "ownerReferences": [{"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "name": gang.name, "uid": uid}],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
