"""The gangs of the schedules: who makes their pods, who makes them anew, and how they say what they are."""

from dataclasses import dataclass
from typing import Any, Literal

from tests.stories import MINIMUM, NAME

Body = dict[str, Any]
Kind = Literal["controlled", "bare", "recreated", "job", "deployed", "operated"]
"""Who makes the pods: a ReplicaSet, nobody, nobody and they are made again, a batch Job, a Deployment, a job operator."""

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
"""Annotations that list the GPUs of a node, and those that a pod has."""
LIVING = "deletionTimestamp"


OWNER = {"apiVersion": "v1", "kind": "ConfigMap"}
"""What stands for a job operator's object."""
HIGH = "high"
"""The PriorityClass of gangs whose priority isn't 0; its value is theirs."""
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
    """``has_group`` tells a gang with a PodGroup of its own from one that is made by a pair of labels.

    ``others`` are roles beside the ``size`` members of ``cpu`` each. ``forgives`` tells a Job that doesn't count evicted pods as failures;
    ``completions`` are those of a Job, 0 for as many as it has pods at once;
    ``suspends`` tells one that may be suspended to undo its gang; ``is_gated`` a gang whose first
    bare member is behind a gate. ``is_single`` tells a bare pod that names no gang. Of the last role ``least`` members must start, whatever
    the others are; ``gives_up`` tells a gang that wants to be released when it can't be healed in time. Members of a gang that
    ``shares_rack`` go to one rack: all of them if its PodGroup says so, else all of a role. ``percent`` is the part of one GPU that each
    member of the first role asks for, 0 for whole GPUs. ``submission`` numbers what is submitted under one gang's name: its controllers, or
    its pods, have names of their own. ``owner`` is the UID of the job operator's object whose pods the members are.
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
    percent: int = 0
    submission: int = 0
    owner: str = ""

    @property
    def base(self) -> str:
        """Return what the names of its controllers and pods begin with."""
        return f"{self.name}-r{self.submission}" if self.submission else self.name

    @property
    def key(self) -> tuple[str, str]:
        """Return the namespace, and what the names of its controllers and pods begin with."""
        return self.namespace, self.base

    def has_made(self, pod: Body) -> bool:
        """Return whether a pod is of this submission, by its controller, or by its name if nobody controls it."""
        owners = pod["metadata"].get("ownerReferences") or ()
        name = str(owners[0]["name"]) if owners and not self.is_named else str(pod["metadata"].get("name")).rpartition("-")[0]
        if self.kind == "deployed":
            name = name.rpartition("-")[0]  # of its ReplicaSet
        return name in ([self.base] if self.is_named else [workload_name(self, role) for role in self.roles])

    @property
    def roles(self) -> tuple[Role, ...]:
        """All roles; the first has no name."""
        return (Role("", self.size, self.cpu, self.gpus), *self.others)

    @property
    def whole_size(self) -> int:
        """Members of all roles."""
        return sum(role.size for role in self.roles)

    @property
    def bare_names(self) -> dict[str, Role]:
        """The names of bare members, and their roles."""
        members = [role for role in self.roles for _ in range(role.size)]
        return {f"{self.base}-{number}": role for number, role in enumerate(members)}

    @property
    def is_bare(self) -> bool:
        """Whether no controller owns its pods."""
        return self.kind in ("bare", "recreated")

    @property
    def is_named(self) -> bool:
        """Return whether its pods have names that are known before, and are made one by one."""
        return self.is_bare or self.kind == "operated"

    @property
    def is_releasable(self) -> bool:
        """Whether its members may be deleted before they run."""
        return self.kind in ("controlled", "recreated", "deployed", "operated")

    @property
    def may_be_undone(self) -> bool:
        """Whether members that haven't started may be released, by an eviction if not else, so that others are made in their place."""
        return self.is_releasable or (self.kind == "job" and self.forgives)


def pod_of(spec: GangSpec, name: str) -> Body:
    """A bare member by itself."""
    template = _template(spec, spec.bare_names.get(name, spec.roles[0]))
    metadata = {**template["metadata"], "name": name, "namespace": spec.namespace}
    if spec.owner:
        metadata["ownerReferences"] = [{**OWNER, "name": spec.base, "uid": spec.owner, "controller": True}]
    gates = {"schedulingGates": [{"name": "example.com/wait"}]} if spec.is_gated and name == f"{spec.base}-0" else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], **gates}}


def manifests(spec: GangSpec) -> list[Body]:
    """What is created so that the gang exists."""
    found: list[Body] = []
    if spec.has_group:
        metadata: Body = {"name": spec.name, "namespace": spec.namespace}
        if spec.shares_rack:
            metadata["annotations"] = {TOGETHER: RACK}
        found.append({"apiVersion": POD_GROUP_API, "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": spec.minimum}})
    if spec.is_named:
        return [*found, *(pod_of(spec, name) for name in spec.bare_names)]
    return [*found, *(_workload(spec, role) for role in spec.roles)]


def workload_name(spec: GangSpec, role: Role) -> str:
    """The name of the controller of a role's pods."""
    return f"{spec.base}-{role.name}" if role.name else spec.base


def app_of(spec: GangSpec, role: Role) -> str:
    """Return the label of a role's pods, which is the same whenever a job is submitted."""
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


def _template(spec: GangSpec, role: Role) -> Body:
    labels = {POD_GROUP_LABEL: spec.name} if spec.has_group else {NAME: spec.name, MINIMUM: str(spec.minimum)}
    if spec.is_single:
        labels = {}
    options = {RECREATE: "true"} if spec.kind == "recreated" else {}
    if spec.suspends:
        options["allaboard.dev/undo"] = "suspend"
    if spec.gives_up:
        options["allaboard.dev/on-member-lost"] = "release"
    if spec.least:
        options |= {ROLE: role.name or "first", "allaboard.dev/min-members": f"{spec.roles[-1].name}={spec.least}"}
    if spec.shares_rack and not spec.has_group:
        options[TOGETHER] = RACK
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
