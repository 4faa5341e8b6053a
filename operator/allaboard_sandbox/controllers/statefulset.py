"""The StatefulSet controller: it keeps the pods of each ordinal, and the claims of its templates.

With ``podManagementPolicy: Parallel`` all pods are created at once; otherwise each once the pods before it are ready. Claims are kept when
pods go, and used again by the pods that replace them (kubernetes pkg/controller/statefulset, 1.37).
"""

from collections.abc import Iterator
from typing import Any

from allaboard_sandbox.api import Api
from allaboard_sandbox.controllers import workload
from allaboard_sandbox.controllers.ownership import Ownership, keys_of, reference_to
from allaboard_sandbox.store import Body, Change, Key

TABLE = "statefulsets.apps"
CLAIMS = "persistentvolumeclaims"
_INDEX = "apps.kubernetes.io/pod-index"


class StatefulSetController:
    """The controller that keeps the pods of each StatefulSet."""

    def __init__(self, api: Api, ownership: Ownership) -> None:
        self._api = api
        self._ownership = ownership

    def keys(self, change: Change) -> Iterator[Key]:
        """Return the StatefulSet that a changed object is or belongs to."""
        return keys_of(change, TABLE, "StatefulSet")

    def reconcile(self, key: Key) -> None:
        """Create missing pods of a StatefulSet or delete surplus ones, and write its status."""
        record = workload.living(self._api, TABLE, key)
        if record is None:
            return
        resource, spec = self._api.resource(TABLE), record.body["spec"]
        pods = {pod.key[1]: pod for pod in self._ownership.owned(record, "pods")}
        wanted = [f"{key[1]}-{number}" for number in range(spec.get("replicas", 1))]
        for name in wanted:
            if name not in pods:
                self._create(key, name, spec, reference_to(resource, record))
            if spec.get("podManagementPolicy") != "Parallel" and not (name in pods and workload.is_ready(pods[name])):
                break
        for name in sorted(pods.keys() - set(wanted), reverse=True):
            if not workload.is_terminating(pods[name]):
                self._api.delete(self._api.resource("pods"), *pods[name].key)
        active = [pod for pod in self._ownership.owned(record, "pods") if workload.is_active(pod)]
        status = {**workload.replica_counts(record, active), "currentReplicas": len(active)}
        workload.set_status(self._api, resource, record, status)

    def _create(self, key: Key, name: str, spec: Body, owner: Body) -> None:
        """Create a pod and its claims; a claim that exists is used again."""
        body = workload.pod_from(spec["template"], owner, labels={_INDEX: name.rpartition("-")[2]}, name=name)
        volumes: list[dict[str, Any]] = list(body["spec"].get("volumes") or ())
        for template in spec.get("volumeClaimTemplates") or ():
            metadata = template.get("metadata") or {}
            claim = f"{metadata.get('name')}-{name}"
            if self._api.store.table(CLAIMS).get((key[0], claim)) is None:
                made = {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": claim, "labels": metadata.get("labels") or {}},
                }
                self._api.create(self._api.resource(CLAIMS), key[0], {**made, "spec": template.get("spec") or {}})
            volumes.append({"name": metadata.get("name"), "persistentVolumeClaim": {"claimName": claim}})
        body["spec"] = {**body["spec"], "hostname": name, "subdomain": spec.get("serviceName", ""), "volumes": volumes}
        self._api.create(self._api.resource("pods"), key[0], body)
