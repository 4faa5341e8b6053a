"""The gangs of the schedules: who makes their pods, who makes them anew, and how they say what they are."""

from dataclasses import dataclass
from typing import Any, Literal

from tests.stories import MINIMUM, NAME

Body = dict[str, Any]
Kind = Literal["controlled", "bare", "recreated", "job"]

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
POD_GROUP_API = "scheduling.x-k8s.io/v1alpha1"
RECREATE = "allaboard.dev/recreate"
STAMP = "allaboard.dev/transaction"
EPOCH = "allaboard.dev/epoch"
LIVING = "deletionTimestamp"


@dataclass(frozen=True, slots=True)
class GangSpec:
    """``has_group`` tells a gang with a PodGroup of its own from one that is made by a pair of labels."""

    name: str
    kind: Kind = "controlled"
    size: int = 3
    minimum: int = 3
    cpu: int = 1
    namespace: str = "default"
    has_group: bool = False

    @property
    def is_bare(self) -> bool:
        """Whether no controller owns its pods."""
        return self.kind in ("bare", "recreated")

    @property
    def is_releasable(self) -> bool:
        """Whether its members may be deleted before they run."""
        return self.kind in ("controlled", "recreated")


def pod_of(spec: GangSpec, name: str) -> Body:
    """A member by itself."""
    template = _template(spec)
    metadata = {**template["metadata"], "name": name, "namespace": spec.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def manifests(spec: GangSpec) -> list[Body]:
    """What is created so that the gang exists."""
    found: list[Body] = []
    metadata = {"name": spec.name, "namespace": spec.namespace}
    if spec.has_group:
        found.append({"apiVersion": POD_GROUP_API, "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": spec.minimum}})
    template = _template(spec)
    if spec.kind == "controlled":
        selector = {"matchLabels": {"app": spec.name}}
        body = {"replicas": spec.size, "selector": selector, "template": template}
        return [*found, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": body}]
    if spec.kind == "job":
        template["spec"]["restartPolicy"] = "Never"
        body = {"parallelism": spec.size, "completions": spec.size, "backoffLimit": 1000, "template": template}
        return [*found, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}]
    return [*found, *(pod_of(spec, f"{spec.name}-{number}") for number in range(spec.size))]


def _template(spec: GangSpec) -> Body:
    labels = {POD_GROUP_LABEL: spec.name} if spec.has_group else {NAME: spec.name, MINIMUM: str(spec.minimum)}
    metadata: Body = {"labels": {**labels, "app": spec.name}}
    if spec.kind == "recreated":
        metadata["annotations"] = {RECREATE: "true"}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": str(spec.cpu)}}}
    return {"metadata": metadata, "spec": {"schedulerName": "allaboard", "containers": [container]}}
