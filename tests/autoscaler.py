"""A small autoscaler of tests: it answers ProvisioningRequests by conditions, as cluster-autoscaler does, and adds nodes for them."""

from pathlib import Path
from typing import Any

import yaml

from allaboard_sandbox import ApiError

from .cluster import Body, Cluster

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
RIGHTS = sorted((Path(__file__).parents[1] / "config" / "components" / "provisioning").glob("cluster-*.yaml"))

_TEXT: Body = {"type": "string"}
_CONDITION: Body = {
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "message": _TEXT,
        "reason": {"type": "string", "minLength": 1},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "type": _TEXT,
        "observedGeneration": {"type": "integer"},
    },
}
_POD_SET: Body = {
    "type": "object",
    "required": ["count", "podTemplateRef"],
    "properties": {
        "count": {"type": "integer", "minimum": 1},
        "podTemplateRef": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "maxLength": 253}}},
    },
}
CRD: Body = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "provisioningrequests.autoscaling.x-k8s.io"},
    "spec": {
        "group": "autoscaling.x-k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "ProvisioningRequest",
            "listKind": "ProvisioningRequestList",
            "plural": "provisioningrequests",
            "singular": "provisioningrequest",
            "shortNames": ["provreq", "provreqs"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["podSets", "provisioningClassName"],
                                "properties": {
                                    "parameters": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 255}},
                                    "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": _POD_SET},
                                    "provisioningClassName": {"type": "string", "maxLength": 253},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "conditions": {
                                        "type": "array",
                                        "items": _CONDITION,
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["type"],
                                    },
                                    "provisioningClassDetails": {"type": "object", "additionalProperties": _TEXT},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}
"""A CRD with the fields of the real one, for the sandbox. The end-to-end tests install the CRD of cluster-autoscaler."""


def grant(cluster: Cluster) -> None:
    """Grant the operator the rights of the component ``provisioning``."""
    for path in RIGHTS:
        cluster.apply(yaml.safe_load(path.read_text(encoding="utf-8")))


def revoke(cluster: Cluster) -> None:
    """Take the rights of the component ``provisioning`` from the operator."""
    for path in RIGHTS:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
        cluster.delete(f"{manifest['kind'].lower()}s", manifest["metadata"]["name"])


def requests(cluster: Cluster, namespace: str | None = None) -> list[Body]:
    """Return the ProvisioningRequests."""
    return cluster.list("provisioningrequests", namespace)


def consumed(cluster: Cluster, prefix: str = "") -> set[str]:
    """Return the names of the requests that pods name; "" stands for pods that name none."""
    pods = [pod for pod in cluster.list("pods") if pod["metadata"]["name"].startswith(prefix)]
    return {(pod["metadata"].get("annotations") or {}).get(CONSUMES, "") for pod in pods}


def answer(cluster: Cluster, request: Body, **conditions: Any) -> None:
    """Write conditions to the status of a request: the keys are types, and the values are messages, or a list of (status, message)."""
    written = [
        {
            "type": name,
            "status": status,
            "reason": f"{name}ByTest",
            "message": message,
            "lastTransitionTime": "2026-11-29T00:00:00Z",
        }
        for name, stated in conditions.items()
        for status, message in ([("True", stated)] if isinstance(stated, str) else stated)
    ]
    metadata = request["metadata"]
    cluster.patch("provisioningrequests", metadata["name"], {"status": {"conditions": written}}, metadata["namespace"], "status")


def provision(cluster: Cluster, request: Body, *, cpu: str = "4", prefix: str = "added") -> int:
    """Add a node for each pod of a request, and answer that it is provisioned. Return the number of nodes.

    The gang may start as soon as there are nodes, and then its request is deleted before the answer.
    """
    spec, namespace = request["spec"], request["metadata"]["namespace"]
    answer(cluster, request, Accepted="accepted")
    count = 0
    for pod_set in spec["podSets"]:
        template = cluster.get("podtemplates", pod_set["podTemplateRef"]["name"], namespace)
        assert template is not None, "a request refers only to PodTemplates that exist"
        count += pod_set["count"]
    for number in range(count):
        cluster.add_node(f"{prefix}-{number}", cpu=cpu)
    try:
        answer(cluster, request, Accepted="accepted", Provisioned="capacity is provisioned")
    except ApiError as error:
        if error.status != 404:
            raise
    return count
