"""The Deployment controller: one ReplicaSet per pod template, rolled out as in kubernetes pkg/controller/deployment (1.37).

``rolling.go``: the new ReplicaSet grows as far as ``maxSurge`` allows. The old ReplicaSets shrink as far as ``maxUnavailable`` allows, and
lose their unavailable pods first.
``recreate.go``: the new ReplicaSet is created when all old pods are gone.
Left out: ``minReadySeconds`` (a ready pod counts as available), proportional scaling during a rollout, and the progress deadline.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from allaboard_sandbox.admission import template_hash
from allaboard_sandbox.api import TERMINAL_PHASES, Api
from allaboard_sandbox.binding import with_condition
from allaboard_sandbox.controllers import workload
from allaboard_sandbox.controllers.ownership import Ownership, controlled_by, keys_of, reference_to
from allaboard_sandbox.store import DELETED, Body, Change, Key, Record

TABLE = "deployments.apps"
REPLICA_SETS = "replicasets.apps"
HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"


@dataclass(frozen=True, slots=True)
class Size:
    """The number of pods that a ReplicaSet should have, and the number of its available pods."""

    replicas: int
    available: int = 0


class DeploymentController:
    """The controller that creates, resizes and deletes the ReplicaSets of each Deployment."""

    def __init__(self, api: Api, ownership: Ownership) -> None:
        self._api = api
        self._ownership = ownership

    def keys(self, change: Change) -> Iterator[Key]:
        """Yield the Deployment that a changed object is or belongs to."""
        yield from keys_of(change, TABLE, "Deployment", (REPLICA_SETS,))
        if change.table == "pods" and change.type == DELETED:  # ``Recreate`` waits until the last pod is gone
            for key in controlled_by(change.record.body, "ReplicaSet"):
                if owner := self._api.store.table(REPLICA_SETS).get(key):
                    yield from controlled_by(owner.body, "Deployment")

    def reconcile(self, key: Key) -> None:
        """Take the next step of a Deployment's rollout or scaling, and write its status."""
        record = workload.living(self._api, TABLE, key)
        if record is None:
            return
        spec = record.body["spec"]
        name = f"{key[1]}-{template_hash(spec['template'])}"
        owned = self._owned(record)
        sizes = {each.key[1]: _size_of(each) for each in owned}
        current, old = sizes.pop(name, None), sizes
        if spec.get("paused"):
            wanted = paused_sizes(spec, name, current, old)
        elif spec["strategy"]["type"] == "Recreate":
            wanted = recreated_sizes(spec, name, old, old_pods_remain=any(self._has_pods(each) for each in owned if each.key[1] != name))
        else:
            wanted = rolled_sizes(spec, name, current, old)
        revision = self._mark_revision(record, name, owned) if name in wanted or current else ""
        for each in owned:
            if each.body["spec"]["replicas"] != (replicas := wanted.get(each.key[1], each.body["spec"]["replicas"])):
                self._api.patch(self._api.resource(REPLICA_SETS), *each.key, {"spec": {"replicas": replicas}})
        if name in wanted and self._api.store.table(REPLICA_SETS).get((key[0], name)) is None:
            self._api.create(self._api.resource(REPLICA_SETS), key[0], self._replica_set(record, name, wanted[name], revision))
        status = self._status(record, name)
        if status["availableReplicas"] == status["updatedReplicas"] == status["replicas"] == spec["replicas"]:
            self._forget_history(record, name)
        workload.set_status(self._api, self._api.resource(TABLE), record, status)

    def _owned(self, deployment: Record) -> list[Record]:
        """Return the ReplicaSets of a Deployment, the oldest revision first."""
        return sorted(self._ownership.owned(deployment, REPLICA_SETS), key=lambda each: (_revision_of(each), each.key))

    def _has_pods(self, replica_set: Record) -> bool:
        """Return whether a ReplicaSet has pods that have not ended, including terminating pods (recreate.go, oldPodsRunning)."""
        return any(pod.body["status"].get("phase") not in TERMINAL_PHASES for pod in self._ownership.owned(replica_set, "pods"))

    def _mark_revision(self, deployment: Record, name: str, owned: Sequence[Record]) -> str:
        """Write the revision of the current template to its ReplicaSet and to the Deployment, and return the revision.

        The revision is higher than those of all other ReplicaSets.
        """
        current = next((each for each in owned if each.key[1] == name), None)
        latest = max((_revision_of(each) for each in owned if each.key[1] != name), default=0)
        revision = str(max(latest + 1, _revision_of(current) if current else 0))
        mark = {"metadata": {"annotations": {REVISION: revision}}}
        for record, table in ((current, REPLICA_SETS), (deployment, TABLE)):
            if record is not None and (record.body["metadata"].get("annotations") or {}).get(REVISION) != revision:
                self._api.patch(self._api.resource(table), *record.key, mark)
        return revision

    def _forget_history(self, deployment: Record, current: str) -> None:
        """Delete the oldest ReplicaSets beyond ``revisionHistoryLimit``, unless they have pods (sync.go, cleanupDeployment)."""
        old = [each for each in self._owned(deployment) if each.key[1] != current]
        for each in old[: max(0, len(old) - int(deployment.body["spec"]["revisionHistoryLimit"]))]:
            if not each.body["spec"]["replicas"] and not (each.body.get("status") or {}).get("replicas"):
                self._api.delete(self._api.resource(REPLICA_SETS), *each.key)

    def _replica_set(self, deployment: Record, name: str, replicas: int, revision: str) -> Body:
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
                "annotations": {REVISION: revision},
                "ownerReferences": [reference_to(self._api.resource(TABLE), deployment)],
            },
            "spec": {
                "replicas": replicas,
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **label}},
                "template": {**template, "metadata": {**template.get("metadata", {}), "labels": labels}},
            },
        }

    def _status(self, deployment: Record, current: str) -> Body:
        spec = deployment.body["spec"]
        owned = {each.key[1]: each.body for each in self._ownership.owned(deployment, REPLICA_SETS)}
        reports = {name: body.get("status") or {} for name, body in owned.items()}
        ready, available, replicas = (
            sum(report.get(field, 0) for report in reports.values()) for field in ("readyReplicas", "availableReplicas", "replicas")
        )
        updated = reports.get(current, {}).get("replicas", 0)
        conditions = (deployment.body.get("status") or {}).get("conditions")
        _, unavailable = margins(spec)
        is_available = available >= spec["replicas"] - unavailable
        availability = ("True", "MinimumReplicasAvailable") if is_available else ("False", "MinimumReplicasUnavailable")
        is_complete = updated == replicas == available == spec["replicas"]
        progress = "NewReplicaSetAvailable" if is_complete else "ReplicaSetUpdated"
        for type, state, reason in (("Available", *availability), ("Progressing", "True", progress)):
            moment = {"lastTransitionTime": self._api.now()}
            conditions = with_condition(conditions, {"type": type, "status": state, "reason": reason, **moment})
        return {
            "replicas": replicas,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "availableReplicas": available,
            "unavailableReplicas": max(0, sum(body["spec"]["replicas"] for body in owned.values()) - available),
            "observedGeneration": deployment.body["metadata"]["generation"],
            "conditions": conditions,
        }


def margins(spec: Body) -> tuple[int, int]:
    """Return how many pods a rollout may have above and below the wanted number (util/deployment_util.go, ResolveFenceposts)."""
    if spec["strategy"]["type"] == "Recreate":
        return 0, 0
    rolling, replicas = spec["strategy"]["rollingUpdate"], spec["replicas"]
    surge, unavailable = _share(rolling["maxSurge"], replicas, is_up=True), _share(rolling["maxUnavailable"], replicas, is_up=False)
    if not surge and not unavailable:
        unavailable = 1  # both round to 0 (such as 0 and "10%" of one replica), and the rollout could not progress
    return surge, min(unavailable, replicas)


def rolled_sizes(spec: Body, name: str, current: Size | None, old: Mapping[str, Size]) -> dict[str, int]:
    """Return the sizes to set in the next step of a rolling update, by ReplicaSet.

    The new ReplicaSet grows if it can; otherwise the old ReplicaSets shrink. ``old`` is ordered by age, the oldest first.

    Example: 4 replicas, ``maxSurge`` and ``maxUnavailable`` at their default of 25 %. One new pod is created beside the 4 old pods. One old
    pod is deleted at once, since only 3 pods must be available. Then the new ReplicaSet grows to 2 pods, and each new pod that becomes
    available allows an old pod to be deleted.
    """
    wanted, (surge, unavailable) = spec["replicas"], margins(spec)
    before = current.replicas if current else 0
    total = before + sum(each.replicas for each in old.values())
    grown = wanted if before > wanted else before + max(0, min(wanted + surge - total, wanted - before))
    if current is None or grown != before:
        return {name: grown}
    least = wanted - unavailable
    available = current.available + sum(each.available for each in old.values())
    spare = total - least - (before - current.available)
    if spare <= 0:
        return {}
    left = {}
    for each, size in old.items():  # deleting unavailable pods costs no availability (cleanupUnhealthyReplicas)
        gone = max(0, min(spare, size.replicas - size.available))
        left[each], spare = size.replicas - gone, spare - gone
    spare = available - least
    for each in old:
        gone = max(0, min(left[each], spare))
        left[each], spare = left[each] - gone, spare - gone
    return left


def recreated_sizes(spec: Body, name: str, old: Mapping[str, Size], *, old_pods_remain: bool) -> dict[str, int]:
    """Return the sizes to set in the next step of ``Recreate``, by ReplicaSet.

    First all old ReplicaSets get size 0. The new ReplicaSet gets its size when no old pod is left.
    """
    if any(each.replicas for each in old.values()):
        return dict.fromkeys(old, 0)
    return {} if old_pods_remain else {name: spec["replicas"]}


def paused_sizes(spec: Body, name: str, current: Size | None, old: Mapping[str, Size]) -> dict[str, int]:
    """Return the size to set while a Deployment is paused, by ReplicaSet: it is scaled, but nothing is rolled out.

    The size is for the only ReplicaSet that should have pods; for the newest if none should, and for no ReplicaSet if several should.
    """
    sizes = old if current is None else {**old, name: current}
    active = [each for each, size in sizes.items() if size.replicas] or list(sizes)[-1:]
    return {active[0]: spec["replicas"]} if len(active) == 1 else {}


def _share(value: int | str, total: int, *, is_up: bool) -> int:
    """Return a number of pods that is given as a number or as a percentage of ``total``; ``is_up`` rounds up."""
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-total * percent // 100) if is_up else total * percent // 100


def _size_of(replica_set: Record) -> Size:
    return Size(replica_set.body["spec"]["replicas"], (replica_set.body.get("status") or {}).get("availableReplicas", 0))


def _revision_of(replica_set: Record) -> int:
    text = str((replica_set.body["metadata"].get("annotations") or {}).get(REVISION, ""))
    return int(text) if text.isdecimal() else 0
