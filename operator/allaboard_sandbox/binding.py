"""The binding subresource, which assigns a pod to a node (kubernetes pkg/registry/core/pod/storage).

The API server checks neither that the node exists nor that its capacity suffices. The write that sets the pod's node also copies the
Binding's annotations and labels onto the pod. A scheduler can therefore stamp each bind with the transaction that the bind belongs to.
"""

from typing import Any

from allaboard_sandbox import errors
from allaboard_sandbox.api import Api, WriteOptions
from allaboard_sandbox.store import Body, Record

TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
BINDING_FIELDS = frozenset({"kind", "apiVersion", "metadata", "target"})


def bind(api: Api, namespace: str, name: str, binding: Body, options: WriteOptions) -> Record:
    """Assign a pod to the node that its Binding names.

    Raises ``ApiError`` with the API server's answer if the Binding is refused.
    """
    _check(binding, name, options)
    pods = api.resource("pods")
    pod = api.read(pods, namespace, name)
    metadata = binding.get("metadata") or {}
    _check_preconditions(api, pod, metadata, options)
    if "deletionTimestamp" in pod.body["metadata"]:
        raise _refused(api, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if assigned := pod.body["spec"].get("nodeName"):
        raise _refused(api, name, f'pod {name} is already assigned to node "{assigned}"')
    if pod.body["spec"].get("schedulingGates"):
        raise _refused(api, name, f"pod {name} has non-empty .spec.schedulingGates")
    bound = _bound(api, pod.body, binding["target"], metadata)
    return Record(pod.key, bound, pod.revision) if options.dry_run else api.store.put(pods.table, pod.key, bound)


def _check(binding: Body, name: str, options: WriteOptions) -> None:
    unknown = sorted(binding.keys() - BINDING_FIELDS)
    if unknown and options.strict:
        listed = ", ".join(f'unknown field "{field}"' for field in unknown)
        raise errors.bad_request(f'Binding in version "v1" cannot be handled as a Binding: strict decoding error: {listed}')
    given = (binding.get("metadata") or {}).get("name")
    if given != name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if target.get("kind", "Node") not in ("Node", ""):
        message = f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise errors.ApiError(500, "", message)
    if not target.get("name"):
        raise errors.ApiError(500, "", "target.name: Required value")


def _check_preconditions(api: Api, pod: Record, metadata: Body, options: WriteOptions) -> None:
    revision = pod.body["metadata"]["resourceVersion"]
    for word, wanted, actual in (("UID", metadata.get("uid"), pod.uid), ("ResourceVersion", metadata.get("resourceVersion"), revision)):
        if wanted and wanted != actual:
            raise errors.storage_conflict(api.resource("pods"), pod.key, word, wanted, actual, dry_run=options.dry_run)


def _bound(api: Api, pod: Body, target: Body, binding: Body) -> Body:
    node = target["name"]
    # The admission plug-in PodTopologyLabels ignores Bindings whose target doesn't state the kind Node.
    found = api.store.table("nodes").get(("", node)) if target.get("kind") == "Node" else None
    node_labels = (found.body["metadata"].get("labels") or {}) if found else {}
    merged = {
        "labels": {label: node_labels[label] for label in TOPOLOGY_LABELS if label in node_labels} | (binding.get("labels") or {}),
        "annotations": binding.get("annotations") or {},
    }
    metadata = {**pod["metadata"]}
    for field, added in merged.items():
        if added:
            metadata[field] = {**(metadata.get(field) or {}), **added}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": api.now()}
    status = {**pod["status"], "conditions": with_condition(pod["status"].get("conditions"), scheduled)}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def with_condition(conditions: list[dict[str, Any]] | None, condition: dict[str, Any]) -> list[dict[str, Any]]:
    """Return ``conditions`` with ``condition`` added, or put in place of the condition of the same type.

    If the condition's status is unchanged, the old ``lastTransitionTime`` is kept.
    """
    updated, found = [], False
    for each in conditions or ():
        if each["type"] != condition["type"]:
            updated.append(each)
            continue
        found = True
        same = each["status"] == condition["status"] and each.get("lastTransitionTime")
        updated.append({**condition, "lastTransitionTime": each["lastTransitionTime"]} if same else condition)
    return updated if found else [*updated, condition]


def _refused(api: Api, name: str, message: str) -> errors.ApiError:
    return errors.conflict(api.resource("pods"), name, message, subresource="binding")
