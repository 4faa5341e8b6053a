"""Steps that the workload controllers share: create a pod from a template, count active pods, write a status."""

from collections.abc import Collection, Iterable
from typing import Any

from allaboard_sandbox.api import TERMINAL_PHASES, Api
from allaboard_sandbox.clock import micro_stamp
from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.store import Body, Key, Record


def pod_from(template: Body, owner: Body, *, labels: Body | None = None, **naming: str) -> Body:
    """Return a pod made from a template, with a reference to its owner; ``naming`` is ``name`` or ``generateName``."""
    metadata: dict[str, Any] = {
        field: template["metadata"][field] for field in ("labels", "annotations") if field in template.get("metadata", {})
    }
    metadata["labels"] = {**(metadata.get("labels") or {}), **(labels or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **naming, "ownerReferences": [owner]},
        "spec": template.get("spec") or {},
    }


def living(api: Api, table: str, key: Key) -> Record | None:
    """Return the record of an object, or None if the object doesn't exist or is being deleted."""
    record = api.store.table(table).get(key)
    return None if record is None or "deletionTimestamp" in record.body["metadata"] else record


def is_active(pod: Record) -> bool:
    """Return whether a pod has neither ended nor begun to terminate."""
    return pod.body["status"].get("phase") not in TERMINAL_PHASES and not is_terminating(pod)


def is_terminating(pod: Record) -> bool:
    """Return whether a pod is being deleted."""
    return "deletionTimestamp" in pod.body["metadata"]


def is_ready(pod: Record) -> bool:
    """Return whether a pod has the condition Ready."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod.body["status"].get("conditions") or ())


def has_condition(body: Body, type: str) -> bool:
    """Return whether an object has a condition of the given type with status True."""
    return any(each["type"] == type and each["status"] == "True" for each in (body.get("status") or {}).get("conditions") or ())


def replica_counts(workload: Record, active: Collection[Record]) -> Body:
    """Return the fields that the status of a ReplicaSet shares with that of a StatefulSet. A ready pod counts as available."""
    ready = sum(1 for pod in active if is_ready(pod))
    return {
        "replicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": workload.body["metadata"]["generation"],
    }


def least_useful_first(pods: Iterable[Record]) -> list[Record]:
    """Return pods in the order in which a controller with surplus pods deletes them (kubernetes pkg/controller ActivePodsWithRanks).

    Unbound pods come first, then pending pods, pods that aren't ready, pods with a lower deletion cost, and the youngest pods. The number
    of pods on the same node is left out.
    """
    newest_first = sorted(pods, key=lambda pod: (str(pod.body["metadata"]["creationTimestamp"]), pod.revision), reverse=True)
    return sorted(
        newest_first,
        key=lambda pod: (
            bool(pod.body["spec"].get("nodeName")),
            pod.body["status"].get("phase") != "Pending",
            is_ready(pod),
            _deletion_cost(pod),
        ),
    )


def _deletion_cost(pod: Record) -> int:
    text = str((pod.body["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", ""))
    return int(text) if text.removeprefix("-").isdecimal() else 0


def set_status(api: Api, resource: Resource, record: Record, status: Body) -> None:
    """Write the status of an object."""
    current = api.read(resource, *record.key)
    api.update(resource, *record.key, {**current.body, "status": status}, subresource="status")


def emit(api: Api, involved: Record, component: str, type: str, reason: str, message: str) -> None:
    """Write an Event about an object."""
    body, now = involved.body, api.now()
    fields = ("kind", "apiVersion", "name", "namespace", "uid", "resourceVersion")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{involved.key[1]}."},
        "involvedObject": {field: value for field, value in (body | body["metadata"]).items() if field in fields},
        "type": type,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "eventTime": micro_stamp(api.clock()),
        "count": 1,
    }
    api.create(api.resource("events"), involved.key[0] or "default", event)
