"""The node lifecycle controller: it taints nodes by their conditions and ``spec.unschedulable``, so that no pods are placed there.

The rules are those of kubernetes pkg/controller/nodelifecycle (doNoScheduleTaintingPass, 1.37). There are no ``NoExecute`` taints: the
sandbox evicts no pods from nodes.
"""

from collections.abc import Iterator, Mapping

from allaboard_sandbox.api import Api
from allaboard_sandbox.store import DELETED, Body, Change

TABLE = "nodes"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
TAINT_OF_CONDITION: Mapping[tuple[str, str], str] = {
    ("Ready", "False"): "node.kubernetes.io/not-ready",
    ("Ready", "Unknown"): "node.kubernetes.io/unreachable",
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_OWN = frozenset({UNSCHEDULABLE, *TAINT_OF_CONDITION.values()})


class NodeController:
    """The controller that sets the taints of each node."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def keys(self, change: Change) -> Iterator[str]:
        """Yield a changed node that lacks a required taint or has a taint that no longer applies."""
        if change.table == TABLE and change.type != DELETED and not _has_wanted_taints(change.record.body):
            yield change.record.key[1]

    def reconcile(self, name: str) -> None:
        """Set the taints of a node."""
        set_taints(self._api, name)


def set_taints(api: Api, name: str) -> None:
    """Add the taints that a node's conditions and spec require, and remove those that no longer apply."""
    record = api.store.table(TABLE).get(("", name))
    if record is None or _has_wanted_taints(record.body):
        return
    spec, wanted = dict(record.body.get("spec") or {}), _wanted(record.body)
    kept = [taint for taint in spec.pop("taints", None) or () if not _is_own(taint) or taint["key"] in wanted]
    present = {taint["key"] for taint in kept if _is_own(taint)}
    added = [{"key": key, "effect": "NoSchedule", "timeAdded": api.now()} for key in wanted if key not in present]
    if taints := [*kept, *added]:
        spec["taints"] = taints
    api.store.put(TABLE, record.key, {**record.body, "spec": spec})


def _has_wanted_taints(node: Body) -> bool:
    present = {taint["key"] for taint in (node.get("spec") or {}).get("taints") or () if _is_own(taint)}
    return present == set(_wanted(node))


def _wanted(node: Body) -> list[str]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    wanted = [TAINT_OF_CONDITION.get((each.get("type"), each.get("status")), "") for each in conditions]
    wanted.append(UNSCHEDULABLE if (node.get("spec") or {}).get("unschedulable") else "")
    return [key for key in wanted if key]


def _is_own(taint: Body) -> bool:
    return taint.get("effect") == "NoSchedule" and taint.get("key") in _OWN
