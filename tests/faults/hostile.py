"""Objects that a hostile tenant may write: pods, PodGroups and Jobs that are malformed, huge or forged, or point to foreign objects."""

from typing import Any

from tests.stories import MINIMUM, NAME

from .gangs import EPOCH, POD_GROUP_API, STAMP, SUSPENDED, Body

NAMESPACE = "evil"
_CLIMBS = (
    "../../team/jobs/train",
    "..",
    ".",
    "a/b",
    "%2e%2e%2fteam",
    "../../../../../../api/v1/pods",
    "x" * 5000,
    "",
    "a?dryRun=All",
    "a#b",
)


def objects(number: int, name: str) -> list[Body]:
    """Return one of a few dozen kinds of hostile objects, by number."""
    return _KINDS[number % len(_KINDS)](number // len(_KINDS), name)


def _pod(name: str, *, gang: str = "", minimum: str = "2", **spec: Any) -> Body:
    labels = {NAME: gang, MINIMUM: minimum} if gang else {}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}
    metadata: Body = {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": {}}
    body = {"schedulerName": "allaboard", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def _owned(pod: Body, kind: str, owner: str, uid: str = "11111111-1111-1111-1111-111111111111", version: str = "batch/v1") -> Body:
    pod["metadata"]["ownerReferences"] = [{"apiVersion": version, "kind": kind, "name": owner, "uid": uid, "controller": True}]
    return pod


def _climbing(number: int, name: str) -> list[Body]:
    """Return pods whose owner's name tries to leave the namespace, of a gang that asks to be released and suspended."""
    found = [_owned(_pod(f"{name}-{index}", gang=name), "Job", _CLIMBS[number % len(_CLIMBS)]) for index in range(2)]
    for pod in found:
        pod["metadata"]["annotations"] = {"allaboard.dev/on-member-lost": "release", "allaboard.dev/undo": "suspend"}
    return found


def _forged(number: int, name: str) -> list[Body]:
    """Return pods with forged stamps and epochs, one bound and one waiting."""
    stamp = ("deadbeef/9", "deadbeef/2/whole", "deadbeef/999999999", "x/2", "1/2/3")[number % 5]
    found = [_pod(f"{name}-{index}", gang=name) for index in range(2)]
    for pod in found:
        pod["metadata"]["annotations"] = {STAMP: stamp, EPOCH: "9" * 18}
    found[0]["spec"]["nodeName"] = "node-0"
    found[0]["spec"]["containers"][0]["resources"] = {}
    return found


def _huge(number: int, name: str) -> list[Body]:
    pod = _pod(name, gang=name, minimum="1")
    if number % 3 == 0:
        pod["metadata"]["labels"] |= {f"l{index}": "" for index in range(3000)}
    elif number % 3 == 1:
        pod["metadata"]["annotations"] = {"allaboard.dev/x": "x" * 200_000}
    else:
        pod["spec"]["tolerations"] = [{"key": f"k{index}", "operator": "Exists"} for index in range(3000)]
    return [pod]


def _odd(number: int, name: str) -> list[Body]:
    amount = ("9223372036854775807", "1E", "1n", "0.1", "100Ei")[number % 5]
    pod = _pod(name)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": amount}}
    return [pod]


def _gated(number: int, name: str) -> list[Body]:
    return [_pod(f"{name}-0", gang=name), _pod(f"{name}-1", gang=name, schedulingGates=[{"name": "wait"}])]


def _repelling(number: int, name: str) -> list[Body]:
    terms = [
        {
            "topologyKey": "kubernetes.io/hostname",
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": [{"key": f"k{index}", "operator": "Exists"}]},
        }
        for index in range(300)
    ]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return [_pod(name, schedulerName="default-scheduler", nodeName="node-0", affinity=affinity)]


def _mismatched(number: int, name: str) -> list[Body]:
    return [_pod(f"{name}-0", gang=name, minimum="2"), _pod(f"{name}-1", gang=name, minimum="3")]


def _zero(number: int, name: str) -> list[Body]:
    pod = _pod(name)
    pod["spec"]["containers"][0]["resources"] = {}
    return [pod]


def _foreign_owner(number: int, name: str) -> list[Body]:
    kind, version = (("Node", "v1"), ("Namespace", "v1"), ("Job", "batch/v2"), ("Job", "batch/../v1"))[number % 4]
    return [_owned(_pod(f"{name}-{index}", gang=name), kind, "node-0", version=version) for index in range(2)]


def _group(number: int, name: str) -> list[Body]:
    annotations = ({"allaboard.dev/objective": "nonsense"}, {"allaboard.dev/min-members": "x" * 1000}, {})[number % 3]
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations}
    return [
        {"apiVersion": POD_GROUP_API, "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": 2_000_000_000}},
        _pod(name, gang=name),
    ]


def _managed_job(number: int, name: str) -> list[Body]:
    """Return a Job that another controller has suspended, with our label of a suspended Job."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "pause"}]}}
    metadata: Body = {"name": name, "namespace": NAMESPACE, "labels": {SUSPENDED: "true"}}
    spec = {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue", "template": template}
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}]


_KINDS = (_climbing, _forged, _huge, _odd, _gated, _repelling, _mismatched, _zero, _foreign_owner, _group, _managed_job)
MANAGED_JOB = _KINDS.index(_managed_job)
