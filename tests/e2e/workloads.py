"""Workloads of built-in controllers whose pods form a gang, and checks of gangs and nodes."""

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from allaboard_sandbox.quantities import parse
from tests.cluster import Body, Cluster
from tests.stories import MINIMUM, NAME, pods


def template(name: str, minimum: int, requests: Mapping[str, str], *, scheduler: str = "allaboard", **spec: Any) -> Body:
    """Return a pod template whose pods are members of the gang ``name``; ``duration`` is how long they run, such as ``2s``."""
    duration = spec.pop("duration", "")
    resources = {"requests": dict(requests), "limits": {key: value for key, value in requests.items() if "/" in key}}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    return {
        "metadata": {
            "labels": {"app": name, NAME: name, MINIMUM: str(minimum)},
            "annotations": {"sandbox.allaboard.dev/duration": duration} if duration else {},
        },
        "spec": {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def deployment(name: str, replicas: int, requests: Mapping[str, str], minimum: int | None = None, **options: Any) -> Body:
    """Return a Deployment that needs all of its replicas, or ``minimum`` of them; ``strategy`` is its rollout strategy."""
    strategy = options.pop("strategy", None)
    made = deployment_of(name, replicas, template(name, minimum or replicas, requests, **options))
    made["spec"] |= {"strategy": strategy} if strategy else {}
    return made


def deployment_of(name: str, replicas: int, template: Body) -> Body:
    """Return a Deployment of ``replicas`` pods of ``template``, whose label ``app`` must be ``name``."""
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return _object("apps/v1", "Deployment", name, spec)


def stateful_set(name: str, replicas: int, requests: Mapping[str, str]) -> Body:
    """Return a StatefulSet whose pods are created in parallel, as the members of a gang must be."""
    pod = template(name, replicas, requests)
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel", "selector": selector, "template": pod}
    return _object("apps/v1", "StatefulSet", name, spec)


def job(name: str, size: int, requests: Mapping[str, str], duration: str) -> Body:
    """Return a Job of ``size`` parallel pods, all of which are needed."""
    pod = template(name, size, requests, duration=duration, restartPolicy="Never")
    return _object("batch/v1", "Job", name, {"parallelism": size, "completions": size, "backoffLimit": 0, "template": pod})


def gangs(cluster: Cluster, scheduler: str = "allaboard") -> dict[str, list[Body]]:
    """Return the live members of each gang of a scheduler, by the gang's name."""
    found: dict[str, list[Body]] = defaultdict(list)
    for pod in pods(cluster):
        name = pod["metadata"].get("labels", {}).get(NAME)
        if name and pod["spec"]["schedulerName"] == scheduler and pod["status"]["phase"] in ("Pending", "Running"):
            found[name].append(pod)
    return dict(found)


def partially_bound(cluster: Cluster) -> dict[str, str]:
    """Return the partially bound gangs by name, each with its numbers of bound and needed members, such as ``2 of 3``."""
    found = {}
    for name, members in gangs(cluster).items():
        bound = sum(1 for pod in members if pod["spec"].get("nodeName"))
        needed = int(members[0]["metadata"]["labels"][MINIMUM])
        if 0 < bound < needed:
            found[name] = f"{bound} of {needed}"
    return found


def overcommitted(cluster: Cluster) -> list[str]:
    """Return the nodes whose pods request more than is allocatable, each with the resource and both amounts."""
    requested: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for pod in cluster.list("pods"):
        node = pod["spec"].get("nodeName")
        if node and pod["status"]["phase"] in ("Pending", "Running"):
            for resource, quantity in requests_of(pod).items():
                requested[node, resource] += quantity
    has = {node["metadata"]["name"]: node["status"]["allocatable"] for node in cluster.list("nodes")}
    return [
        f"{node}: {float(total):g} {resource} of {has[node].get(resource, '0')}"
        for (node, resource), total in sorted(requested.items())
        if total > parse(has[node].get(resource, "0"))
    ]


def requests_of(pod: Body) -> dict[str, Fraction]:
    """Return the resources that a pod takes from its node: the requests of its containers, and 1 of the resource ``pods``."""
    requested: dict[str, Fraction] = defaultdict(Fraction, pods=Fraction(1))
    for container in pod["spec"]["containers"]:
        for resource, quantity in (container.get("resources") or {}).get("requests", {}).items():
            requested[resource] += parse(quantity)
    return requested


def _object(version: str, kind: str, name: str, spec: Body) -> Body:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
