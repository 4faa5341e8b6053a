"""Workloads of the built-in controllers whose pods form a gang, and what must hold of every gang and node at rest."""

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from allaboard_sandbox.quantities import parse
from tests.cluster import Body, Cluster
from tests.stories import MINIMUM, NAME, pods


def template(name: str, minimum: int, requests: Mapping[str, str], *, scheduler: str = "allaboard", **spec: Any) -> Body:
    """A pod template whose pods are members of the gang ``name``; ``duration`` is how long they run."""
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
    """A Deployment that needs all of its replicas, or ``minimum`` of them; ``strategy`` is how it is rolled out."""
    strategy = options.pop("strategy", None)
    made = deployment_of(name, replicas, template(name, minimum or replicas, requests, **options))
    made["spec"] |= {"strategy": strategy} if strategy else {}
    return made


def deployment_of(name: str, replicas: int, template: Body) -> Body:
    """A Deployment of as many pods as ``template`` describes, which has the name for its label ``app``."""
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return _object("apps/v1", "Deployment", name, spec)


def stateful_set(name: str, replicas: int, requests: Mapping[str, str]) -> Body:
    """A StatefulSet whose pods start together, as those of a gang must."""
    pod = template(name, replicas, requests)
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel", "selector": selector, "template": pod}
    return _object("apps/v1", "StatefulSet", name, spec)


def job(name: str, size: int, requests: Mapping[str, str], duration: str) -> Body:
    """A Job whose pods run side by side, and all must."""
    pod = template(name, size, requests, duration=duration, restartPolicy="Never")
    return _object("batch/v1", "Job", name, {"parallelism": size, "completions": size, "backoffLimit": 0, "template": pod})


def gangs(cluster: Cluster, scheduler: str = "allaboard") -> dict[str, list[Body]]:
    """The live members of each gang of a scheduler."""
    found: dict[str, list[Body]] = defaultdict(list)
    for pod in pods(cluster):
        name = pod["metadata"].get("labels", {}).get(NAME)
        if name and pod["spec"]["schedulerName"] == scheduler and pod["status"]["phase"] in ("Pending", "Running"):
            found[name].append(pod)
    return dict(found)


def in_part(cluster: Cluster) -> dict[str, str]:
    """The gangs that are neither whole nor absent, with how many members are bound and needed; at rest there are none."""
    found = {}
    for name, members in gangs(cluster).items():
        seated = sum(1 for pod in members if pod["spec"].get("nodeName"))
        needed = int(members[0]["metadata"]["labels"][MINIMUM])
        if 0 < seated < needed:
            found[name] = f"{seated} of {needed}"
    return found


def over_committed(cluster: Cluster) -> list[str]:
    """The nodes of which more is requested than they have, each with what."""
    asked: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for pod in cluster.list("pods"):
        node = pod["spec"].get("nodeName")
        if node and pod["status"]["phase"] in ("Pending", "Running"):
            for resource, quantity in requests_of(pod).items():
                asked[node, resource] += quantity
    has = {node["metadata"]["name"]: node["status"]["allocatable"] for node in cluster.list("nodes")}
    return [
        f"{node}: {float(total):g} {resource} of {has[node].get(resource, '0')}"
        for (node, resource), total in sorted(asked.items())
        if total > parse(has[node].get(resource, "0"))
    ]


def requests_of(pod: Body) -> dict[str, Fraction]:
    """What a pod takes of its node: itself, and what its containers ask for."""
    asked: dict[str, Fraction] = defaultdict(Fraction, pods=Fraction(1))
    for container in pod["spec"]["containers"]:
        for resource, quantity in (container.get("resources") or {}).get("requests", {}).items():
            asked[resource] += parse(quantity)
    return asked


def _object(version: str, kind: str, name: str, spec: Body) -> Body:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
