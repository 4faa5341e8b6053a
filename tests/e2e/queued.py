"""A queue of Kueue, and gangs that are submitted to it: as a Job, as a TFJob, and as a group of plain pods."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.cluster import Body, Cluster

from .workloads import job, template

GANG = 3
"""The number of pods of a gang that is submitted to the queue."""
REQUESTS = {"cpu": "2"}
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
HOSTNAME = "kubernetes.io/hostname"
RACK = "example.com/rack"
_QUEUE = {"kueue.x-k8s.io/queue-name": "queue"}
_POOL = {"example.com/pool": "shared"}
_VERSION = "kueue.x-k8s.io/v1beta2"

Make = Callable[..., list[Body]]


def add_nodes(cluster: Cluster, *names: str, cpu: str = "8", rack: str = "") -> None:
    """Add nodes of the pool that the queue hands out."""
    for name in names:
        cluster.add_node(name, cpu=cpu, labels={**_POOL, HOSTNAME: name, **({RACK: rack} if rack else {})})


def add_queue(cluster: Cluster, cpu: str, *, with_topology: bool = False, **spec: Any) -> None:
    """Create a queue with a quota of processors; ``with_topology``, Kueue chooses a node for each pod."""
    flavor: Body = {"nodeLabels": _POOL}
    if with_topology:
        cluster.create(_object("Topology", "racks", {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME}]}))
        flavor["topologyName"] = "racks"
    cluster.create(_object("ResourceFlavor", "shared", flavor))
    quota = {"name": "shared", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    cluster.create(_object("ClusterQueue", "queue", {"namespaceSelector": {}, "resourceGroups": groups, **spec}))
    cluster.create(_object("LocalQueue", "queue", {"clusterQueue": "queue"}))


def as_job(name: str, *, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None, **spec: Any) -> list[Body]:
    """Return a gang as a Job. ``labels`` are the Job's, ``annotations`` its pods', and ``spec`` is merged into their spec."""
    made = job(name, GANG, REQUESTS, duration="")
    made["metadata"]["labels"] = {**_QUEUE, **(labels or {})}
    made["spec"]["template"]["metadata"]["annotations"] = dict(annotations or {})
    made["spec"]["template"]["spec"] |= spec
    return [made]


def as_tfjob(name: str, *, annotations: Mapping[str, str] | None = None) -> list[Body]:
    """Return a gang as a TFJob."""
    pod = template(name, GANG, REQUESTS)
    pod["metadata"]["annotations"] = dict(annotations or {})
    pod["spec"]["containers"][0]["name"] = "tensorflow"
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": GANG, "restartPolicy": "Never", "template": pod}}}
    metadata = {"name": name, "namespace": "default", "labels": _QUEUE}
    return [{"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, "spec": spec}]


def as_pods(name: str, *, annotations: Mapping[str, str] | None = None, first: int = 0) -> list[Body]:
    """Return a gang as a group of plain pods that only Kueue's annotations make a gang; ``first`` is the number of the first pod."""
    spec = template(name, GANG, REQUESTS, restartPolicy="Never")["spec"]
    stated = {GROUP: name, TOTAL: str(GANG), **(annotations or {})}
    metadata = {"namespace": "default", "labels": _QUEUE, "annotations": stated}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": f"{name}-{number}"}, "spec": spec}
        for number in range(first, first + GANG)
    ]


def workload_of(cluster: Cluster, gang: str) -> Body:
    """Return Kueue's Workload of a gang; empty if there is none."""
    beginnings = (f"job-{gang}-", f"tfjob-{gang}-")
    found = (
        each for each in cluster.list("workloads") if each["metadata"]["name"] == gang or each["metadata"]["name"].startswith(beginnings)
    )
    return next(found, {})


def condition_of(cluster: Cluster, gang: str, type: str) -> tuple[str, str]:
    """Return the status and the reason of a condition of a gang's Workload; empty texts without it."""
    conditions = (workload_of(cluster, gang).get("status") or {}).get("conditions") or ()
    return next(((each["status"], each["reason"]) for each in conditions if each["type"] == type), ("", ""))


def _object(kind: str, name: str, spec: Body) -> Body:
    return {"apiVersion": _VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
