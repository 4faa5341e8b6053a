"""Helpers for pods that real kubelets run, on nodes that are cordoned for all other pods."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from allaboard_sandbox.quantities import parse
from tests.cluster import Body, Cluster
from tests.e2e import workloads
from tests.e2e.workloads import requests_of

from .load import TAG

ROOT = Path(__file__).parents[3]
PATIENCE = 40
"""The timeout in seconds with which ``wait_for`` waits for real kubelets, which start containers and pause before they retry.

``wait_for`` waits up to three times as long.
"""
ANYWHERE = [{"operator": "Exists"}]
HOST = "kubernetes.io/hostname"
TINY = {"cpu": "100m"}
NAMESPACES = ("default", "kube-system", "allaboard-system")
"""The namespaces of all pods that real kubelets run.

Each namespace is listed by itself, since a list over all namespaces shows only the pods of the tests.
"""


def template(
    name: str, size: int, command: Sequence[str], nodes: Sequence[str], requests: Mapping[str, str], image: str = TAG, **spec: Any
) -> Body:
    """Return a pod template of the gang ``name``, for ``nodes`` only; ``command`` are the arguments of the image's program."""
    within = {"matchExpressions": [{"key": HOST, "operator": "In", "values": list(nodes)}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [within]}}}
    made = workloads.template(name, size, requests, tolerations=ANYWHERE, affinity=affinity, **spec)
    made["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": "IfNotPresent", "args": list(command)}
    return made


def only_one(template: Body, port: int) -> None:
    """Let each node run at most one pod of ``template``, by a port of the node that the pod takes."""
    template["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]


def create_pod(cluster: Cluster, name: str, template: Body) -> None:
    """Create a pod without a controller that would recreate it."""
    metadata = {"name": name, "namespace": "default", **template["metadata"]}
    cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})


def status(cluster: Cluster, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
    """Return the status of an object; empty if there is none."""
    return (cluster.get(kind, name, namespace) or {}).get("status") or {}


def is_deployed_whole(cluster: Cluster) -> bool:
    """Return whether the operator has exactly two replicas, and both are ready."""
    found = status(cluster, "deployments", "allaboard", "allaboard-system")
    return bool(found.get("replicas") == found.get("readyReplicas") == 2)


def free_cpu(cluster: Cluster, node: str) -> Fraction:
    """Return the processors of a node that no pod requests."""
    found = cluster.get("nodes", node)
    assert found is not None
    pods = (pod for namespace in NAMESPACES for pod in cluster.list("pods", namespace))
    here = [pod for pod in pods if pod["spec"].get("nodeName") == node and pod["status"]["phase"] in ("Pending", "Running")]
    return parse(found["status"]["allocatable"]["cpu"]) - sum((requests_of(pod)["cpu"] for pod in here), Fraction(0))


def play(command: str, path: Path | None = None, stdin: str = "") -> str:
    """Run a shell command in the project's folder with an administrator's kubeconfig, and return its output; ``path`` extends PATH."""
    found = os.pathsep.join((*([str(path)] if path else ()), os.environ["PATH"]))
    environment = {**os.environ, "KUBECONFIG": os.environ["E2E_KIND_KUBECONFIG"], "PATH": found}
    done = subprocess.run(
        ["bash", "-euc", command], input=stdin, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, f"{command}{done.stdout}{done.stderr}"
    return done.stdout
