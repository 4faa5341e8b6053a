"""The ReplicaSet controller: it keeps the wanted number of pods, and replaces lost pods."""

from collections.abc import Iterator

from allaboard_sandbox.api import Api
from allaboard_sandbox.controllers import workload
from allaboard_sandbox.controllers.ownership import Ownership, keys_of, reference_to
from allaboard_sandbox.store import Change, Key

TABLE = "replicasets.apps"


class ReplicaSetController:
    """The controller that keeps the number of pods of each ReplicaSet."""

    def __init__(self, api: Api, ownership: Ownership) -> None:
        self._api = api
        self._ownership = ownership

    def keys(self, change: Change) -> Iterator[Key]:
        """Return the ReplicaSet that a changed object is or belongs to."""
        return keys_of(change, TABLE, "ReplicaSet")

    def reconcile(self, key: Key) -> None:
        """Create missing pods of a ReplicaSet or delete surplus ones, and write its status."""
        record = workload.living(self._api, TABLE, key)
        if record is None:
            return
        resource, spec = self._api.resource(TABLE), record.body["spec"]
        active = [pod for pod in self._ownership.owned(record, "pods") if workload.is_active(pod)]
        missing = spec["replicas"] - len(active)
        for _ in range(missing):
            body = workload.pod_from(spec["template"], reference_to(resource, record), generateName=f"{key[1]}-")
            self._api.create(self._api.resource("pods"), key[0], body)
        for pod in workload.least_useful_first(active)[: max(0, -missing)]:
            self._api.delete(self._api.resource("pods"), *pod.key)
        active = [pod for pod in self._ownership.owned(record, "pods") if workload.is_active(pod)]
        status = {**workload.replica_counts(record, active), "fullyLabeledReplicas": len(active)}
        workload.set_status(self._api, resource, record, status)
