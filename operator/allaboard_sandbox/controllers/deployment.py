"""The Deployment controller: one ReplicaSet per pod template, and only the newest has replicas.

A change of the template replaces all pods at once, whatever the strategy says: rolling updates aren't what the sandbox is for.
"""

from collections.abc import Iterator

from allaboard_sandbox.admission import template_hash
from allaboard_sandbox.api import Api
from allaboard_sandbox.binding import with_condition
from allaboard_sandbox.controllers import workload
from allaboard_sandbox.controllers.ownership import Ownership, controlled_by, reference_to
from allaboard_sandbox.store import Body, Change, Key, Record

TABLE = "deployments.apps"
HASH_LABEL = "pod-template-hash"


class DeploymentController:
    """Keeps the ReplicaSets of each Deployment."""

    def __init__(self, api: Api, ownership: Ownership) -> None:
        self._api = api
        self._ownership = ownership

    def keys(self, change: Change) -> Iterator[Key]:
        if change.table == TABLE:
            yield change.record.key
        elif change.table == "replicasets.apps":
            yield from controlled_by(change, "Deployment")

    def reconcile(self, key: Key) -> None:
        record = workload.living(self._api, TABLE, key)
        if record is None:
            return
        spec = record.body["spec"]
        name = f"{key[1]}-{template_hash(spec['template'])}"
        resource = self._api.resource("replicasets.apps")
        for owned in list(self._ownership.owned(record, resource.table)):
            wanted = spec["replicas"] if owned.key[1] == name else 0
            if owned.body["spec"]["replicas"] != wanted:
                self._api.patch(resource, *owned.key, {"spec": {"replicas": wanted}})
        if self._api.store.table(resource.table).get((key[0], name)) is None:
            self._api.create(resource, key[0], self._replica_set(record, name))
        workload.set_status(self._api, self._api.resource(TABLE), record, self._status(record, name))

    def _replica_set(self, deployment: Record, name: str) -> Body:
        spec = deployment.body["spec"]
        label = {HASH_LABEL: name.rpartition("-")[2]}
        template, selector = spec["template"], spec["selector"]
        labels = {**(template.get("metadata", {}).get("labels") or {}), **label}
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "labels": labels,
                "ownerReferences": [reference_to(self._api.resource(TABLE), deployment)],
            },
            "spec": {
                "replicas": spec["replicas"],
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **label}},
                "template": {**template, "metadata": {**template.get("metadata", {}), "labels": labels}},
            },
        }

    def _status(self, deployment: Record, current: str) -> Body:
        wanted = deployment.body["spec"]["replicas"]
        owned = {each.key[1]: each.body.get("status") or {} for each in self._ownership.owned(deployment, "replicasets.apps")}
        ready = sum(status.get("readyReplicas", 0) for status in owned.values())
        conditions = (deployment.body.get("status") or {}).get("conditions")
        words = ("True", "MinimumReplicasAvailable") if ready >= wanted else ("False", "MinimumReplicasUnavailable")
        progress = "NewReplicaSetAvailable" if ready >= wanted else "ReplicaSetUpdated"
        for type, state, reason in (("Available", *words), ("Progressing", "True", progress)):
            moment = {"lastTransitionTime": self._api.now()}
            conditions = with_condition(conditions, {"type": type, "status": state, "reason": reason, **moment})
        return {
            "replicas": sum(status.get("replicas", 0) for status in owned.values()),
            "updatedReplicas": owned.get(current, {}).get("replicas", 0),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(0, wanted - ready),
            "observedGeneration": deployment.body["metadata"]["generation"],
            "conditions": conditions,
        }
