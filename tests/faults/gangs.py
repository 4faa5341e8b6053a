"""Defines the gangs of the schedules: what creates and recreates their pods, and how they state their options."""

from dataclasses import dataclass
from typing import Any, Literal

from tests.stories import MINIMUM, NAME

Body = dict[str, Any]
Kind = Literal["controlled", "bare", "recreated", "job", "deployed", "operated"]
"""The creator of a gang's pods.

``controlled``: a ReplicaSet. ``bare``: none. ``recreated``: none, but lost pods are recreated. ``job``: a batch Job. ``deployed``: a
Deployment. ``operated``: a job operator.
"""

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
POD_GROUP_API = "scheduling.x-k8s.io/v1alpha1"
RECREATE = "allaboard.dev/recreate"
STAMP = "allaboard.dev/transaction"
EPOCH = "allaboard.dev/epoch"
ROLE = "allaboard.dev/role"
SUSPENDED = "allaboard.dev/suspended"
TOGETHER = "allaboard.dev/required-topology"
RACK = "topology.kubernetes.io/rack"
PERCENT = "nvidia.com/gpumem-percentage"
"""The resource by which pods ask HAMi for a part of a GPU."""
DEVICES_OF_NODE, DEVICES_OF_POD = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated"
"""Annotations that list the GPUs of a node, and those that a pod was given."""
LIVING = "deletionTimestamp"


OWNER = {"apiVersion": "v1", "kind": "ConfigMap"}
"""The kind of object that plays the part of a job operator's job, as the owner of pods."""
HIGH = "high"
"""The PriorityClass of gangs whose priority isn't 0; its value is ``HIGH_PRIORITY``."""
HIGH_PRIORITY = 1000


@dataclass(frozen=True, slots=True)
class Role:
    """Members of a gang that are alike."""

    name: str
    size: int
    cpu: int = 1
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class GangSpec:
    """One submission of a gang.

    - ``size``, ``cpu`` and ``gpus`` are those of the first role; ``others`` are the other roles.
    - ``has_group``: the gang has a PodGroup; otherwise a pair of labels names it and its minimum.
    - ``completions`` are those of its Jobs; 0 for as many as a Job has pods at once.
    - ``forgives``: its Jobs don't count evicted pods as failures.
    - ``suspends``: its Jobs may be suspended to release the gang.
    - ``is_gated``: a scheduling gate is set on its first bare member.
    - ``is_single``: it is a bare pod that names no gang.
    - ``least`` is the minimum of its last role; 0 for none.
    - ``gives_up``: it asks to be released when lost members can't be replaced in time.
    - ``shares_rack``: its members must share a rack: all of them if a PodGroup says so, otherwise those of each role.
    - ``segment``: of a gang that shares racks, so many members must share one, in the order of their names; 0 for all of them.
    - ``percent`` is the part of one GPU that each member of the first role requests; 0 for whole GPUs.
    - ``submission`` numbers the submissions under one gang's name; the names of controllers and pods contain it.
    - ``owner`` is the UID of the job operator's object that controls its pods; empty without one.
    - ``walltime`` is the time in seconds for which its pods state that they run at most; 0 for none.
    - ``storage_class`` is the class of the claims that its bare members have, one each; empty for none.
    """

    name: str
    kind: Kind = "controlled"
    size: int = 3
    minimum: int = 3
    cpu: int = 1
    namespace: str = "default"
    has_group: bool = False
    gpus: int = 0
    others: tuple[Role, ...] = ()
    priority: int = 0
    pool: str = ""
    forgives: bool = False
    completions: int = 0
    suspends: bool = False
    is_gated: bool = False
    is_single: bool = False
    least: int = 0
    gives_up: bool = False
    shares_rack: bool = False
    segment: int = 0
    percent: int = 0
    submission: int = 0
    owner: str = ""
    walltime: int = 0
    storage_class: str = ""

    @property
    def base(self) -> str:
        """The prefix of the names of its controllers and pods."""
        return f"{self.name}-r{self.submission}" if self.submission else self.name

    @property
    def key(self) -> tuple[str, str]:
        """The namespace, and the prefix of the names of its controllers and pods."""
        return self.namespace, self.base

    def has_made(self, pod: Body) -> bool:
        """Return whether a pod belongs to this submission, by its controller, or by its name if it has none."""
        owners = pod["metadata"].get("ownerReferences") or ()
        name = str(owners[0]["name"]) if owners and not self.is_named else str(pod["metadata"].get("name")).rpartition("-")[0]
        if self.kind == "deployed":
            name = name.rpartition("-")[0]  # without the hash of its ReplicaSet
        return name in ([self.base] if self.is_named else [workload_name(self, role) for role in self.roles])

    @property
    def roles(self) -> tuple[Role, ...]:
        """All roles; the first has no name."""
        return (Role("", self.size, self.cpu, self.gpus), *self.others)

    @property
    def whole_size(self) -> int:
        """The number of members of all roles."""
        return sum(role.size for role in self.roles)

    @property
    def bare_names(self) -> dict[str, Role]:
        """The names of bare members, and their roles."""
        members = [role for role in self.roles for _ in range(role.size)]
        return {f"{self.base}-{number}": role for number, role in enumerate(members)}

    @property
    def is_bare(self) -> bool:
        """True if its pods have no controller."""
        return self.kind in ("bare", "recreated")

    @property
    def is_named(self) -> bool:
        """True if its pods are created one by one, with names that are known beforehand."""
        return self.is_bare or self.kind == "operated"

    @property
    def is_releasable(self) -> bool:
        """True if its members may be deleted before they run."""
        return self.kind in ("controlled", "recreated", "deployed", "operated")

    @property
    def may_be_undone(self) -> bool:
        """True if members that haven't started may be released, at least by an eviction, so that their controller recreates them."""
        return self.is_releasable or (self.kind == "job" and self.forgives)


def pod_of(spec: GangSpec, name: str) -> Body:
    """Return the manifest of one bare member."""
    template = _template(spec, spec.bare_names.get(name, spec.roles[0]))
    metadata = {**template["metadata"], "name": name, "namespace": spec.namespace}
    if spec.owner:
        metadata["ownerReferences"] = [{**OWNER, "name": spec.base, "uid": spec.owner, "controller": True}]
    gates = {"schedulingGates": [{"name": "example.com/wait"}]} if spec.is_gated and name == f"{spec.base}-0" else {}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}
    volumes = {"volumes": [claim]} if spec.storage_class else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], **gates, **volumes}}


def claim_of(spec: GangSpec, name: str) -> Body:
    """Return the manifest of the claim of one bare member."""
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": f"data-{name}", "namespace": spec.namespace}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {"storageClassName": spec.storage_class, **size},
    }


def manifests(spec: GangSpec) -> list[Body]:
    """Return the manifests that create the gang."""
    found: list[Body] = []
    if spec.has_group:
        metadata: Body = {"name": spec.name, "namespace": spec.namespace}
        if spec.shares_rack:
            metadata["annotations"] = _near(spec)
        found.append({"apiVersion": POD_GROUP_API, "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": spec.minimum}})
    if spec.is_named:
        found += [claim_of(spec, name) for name in spec.bare_names if spec.storage_class]
        return [*found, *(pod_of(spec, name) for name in spec.bare_names)]
    return [*found, *(_workload(spec, role) for role in spec.roles)]


def workload_name(spec: GangSpec, role: Role) -> str:
    """Return the name of the controller of a role's pods."""
    return f"{spec.base}-{role.name}" if role.name else spec.base


def app_of(spec: GangSpec, role: Role) -> str:
    """Return the ``app`` label of a role's pods, which is the same in each submission."""
    return f"{spec.name}-{role.name}" if role.name else spec.name


def _workload(spec: GangSpec, role: Role) -> Body:
    metadata, template = {"name": workload_name(spec, role), "namespace": spec.namespace}, _template(spec, role)
    if spec.kind in ("controlled", "deployed"):
        body = {"replicas": role.size, "selector": {"matchLabels": {"app": app_of(spec, role)}}, "template": template}
        kind = "ReplicaSet" if spec.kind == "controlled" else "Deployment"
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": body}
    template["spec"]["restartPolicy"] = "Never"
    completions = spec.completions or role.size
    body = {"parallelism": role.size, "completions": completions, "backoffLimit": 1000, "template": template}
    if spec.forgives:
        rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        body["podFailurePolicy"] = {"rules": [rule]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


def _near(spec: GangSpec) -> dict[str, str]:
    """Return the option that asks for members in one rack."""
    return {"allaboard.dev/topology": f"segment={spec.segment}@{RACK}"} if spec.segment else {TOGETHER: RACK}


def _template(spec: GangSpec, role: Role) -> Body:
    labels = {POD_GROUP_LABEL: spec.name} if spec.has_group else {NAME: spec.name, MINIMUM: str(spec.minimum)}
    if spec.is_single:
        labels = {}
    options = {RECREATE: "true"} if spec.kind == "recreated" else {}
    if spec.suspends:
        options["allaboard.dev/undo"] = "suspend"
    if spec.walltime:
        options["allaboard.dev/walltime"] = str(spec.walltime)
    if spec.gives_up:
        options["allaboard.dev/on-member-lost"] = "release"
    if spec.least:
        options |= {ROLE: role.name or "first", "allaboard.dev/min-members": f"{spec.roles[-1].name}={spec.least}"}
    if spec.shares_rack and not spec.has_group:
        options |= _near(spec)
    metadata: Body = {"labels": {**labels, "app": app_of(spec, role)}, "annotations": options}
    gpus = {"nvidia.com/gpu": str(role.gpus)} if role.gpus else {}
    if spec.percent and not role.name:
        gpus = {"nvidia.com/gpu": "1", PERCENT: str(spec.percent)}
    resources = {"requests": {"cpu": str(role.cpu), **gpus}, **({"limits": gpus} if gpus else {})}
    container = {"name": "main", "image": "pause", "resources": resources}
    body: Body = {"schedulerName": "allaboard", "containers": [container]}
    if spec.priority:
        body["priorityClassName"] = HIGH
    if spec.pool:
        body["nodeSelector"] = {"pool": spec.pool}
    return {"metadata": metadata, "spec": body}
