"""The disruption controller: it writes the status of PodDisruptionBudgets, which schedulers read before they preempt."""

from collections.abc import Iterator

from allaboard_sandbox.api import Api
from allaboard_sandbox.controllers.workload import set_status
from allaboard_sandbox.eviction import assess
from allaboard_sandbox.selectors import object_label_selector
from allaboard_sandbox.store import DELETED, Body, Change, Key

TABLE = "poddisruptionbudgets.policy"


class DisruptionController:
    """The controller that counts the pods of each budget when the budget or one of its pods changes."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def keys(self, change: Change) -> Iterator[Key]:
        """Yield a changed budget, or the budgets that select a changed pod."""
        if change.table == TABLE and change.type != DELETED:
            yield change.record.key
        elif change.table == "pods":
            labels = change.record.body["metadata"].get("labels") or {}
            for budget in self._api.store.table(TABLE).in_namespace(change.record.key[0]):
                if object_label_selector((budget.body.get("spec") or {}).get("selector"))(labels):
                    yield budget.key

    def reconcile(self, key: Key) -> None:
        """Count the pods of a budget and write the budget's status."""
        record = self._api.store.table(TABLE).get(key)
        if record is None:
            return
        budget = assess(self._api, key[0], record.body)
        allowed = {"type": "DisruptionAllowed", "status": "True" if budget.allowed else "False", "observedGeneration": 1}
        reason = "SufficientPods" if budget.allowed else "InsufficientPods"
        before: Body = next(iter((record.body.get("status") or {}).get("conditions") or ()), {})
        moment = before.get("lastTransitionTime") if before.get("status") == allowed["status"] else None
        status = {
            "currentHealthy": budget.healthy,
            "desiredHealthy": budget.needed,
            "expectedPods": budget.expected,
            "disruptionsAllowed": budget.allowed,
            "observedGeneration": record.body["metadata"]["generation"],
            "conditions": [{**allowed, "reason": reason, "message": "", "lastTransitionTime": moment or self._api.now()}],
        }
        set_status(self._api, self._api.resource(TABLE), record, status)
