"""The eviction subresource, and the arithmetic of PodDisruptionBudgets.

A real eviction reads a budget's state from its status, which the disruption controller writes. In the sandbox, each eviction counts the
budget's pods itself, by the same rules (kubernetes pkg/controller/disruption). The stand-in controller writes the same counts to the
status.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from allaboard_sandbox import errors
from allaboard_sandbox.api import TERMINAL_PHASES, Api, DeleteOptions, check_preconditions, key_of
from allaboard_sandbox.binding import with_condition
from allaboard_sandbox.selectors import object_label_selector
from allaboard_sandbox.store import Body, Record


@dataclass(frozen=True, slots=True)
class Budget:
    """The pod counts of a PodDisruptionBudget: ``expected``, ``healthy``, and ``needed`` (the least number of healthy pods)."""

    name: str
    expected: int
    healthy: int
    needed: int

    @property
    def allowed(self) -> int:
        """Number of healthy pods that may be evicted."""
        return max(0, self.healthy - self.needed) if self.expected else 0


def assess(api: Api, namespace: str, budget: Body) -> Budget:
    """Return the pod counts of a PodDisruptionBudget, for the pods of its namespace."""
    spec = budget.get("spec") or {}
    matches = object_label_selector(spec.get("selector"))
    counted = [
        pod.body
        for pod in api.store.table("pods").in_namespace(namespace)
        if matches(pod.body["metadata"].get("labels") or {}) and pod.body["status"].get("phase") not in TERMINAL_PHASES
    ]
    healthy = sum(1 for pod in counted if _is_ready(pod) and "deletionTimestamp" not in pod["metadata"])
    if "maxUnavailable" in spec:
        expected = _wanted_by_controllers(api, namespace, counted)
        needed = max(0, expected - _scaled(spec["maxUnavailable"], expected))
    else:
        least = spec.get("minAvailable", 1)
        expected = _wanted_by_controllers(api, namespace, counted) if isinstance(least, str) else len(counted)
        needed = _scaled(least, expected)
    return Budget(budget["metadata"]["name"], expected, healthy, needed)


def _wanted_by_controllers(api: Api, namespace: str, pods: Iterable[Body]) -> int:
    """Return how many replicas the topmost controllers of ``pods`` want in all; pods without a controller add none."""
    scales: dict[str, int] = {}
    for pod in pods:
        controller = _controller_of(api, namespace, pod)
        while controller is not None:
            found, controller = controller, _controller_of(api, namespace, controller.body)
            if controller is None:
                scales[found.uid] = int(found.body["spec"].get("replicas", 0))
    return sum(scales.values())


def _controller_of(api: Api, namespace: str, body: Body) -> Record | None:
    """Return the controller of an object, or None if there is none or it can't be scaled."""
    owner = next((each for each in body["metadata"].get("ownerReferences") or () if each.get("controller")), None)
    resource = api.registry.of_object(owner) if owner else None
    if owner is None or resource is None or resource.scale is None:
        return None
    return api.table(resource).get(key_of(resource, namespace, owner["name"]))


def evict(api: Api, namespace: str, name: str, eviction: Body, *, dry_run: bool = False) -> None:
    """Delete a pod unless a disruption budget needs it.

    Raises ``ApiError`` with the API server's answer if the eviction is refused.
    """
    pods = api.resource("pods")
    pod = api.read(pods, namespace, name)
    options = eviction.get("deleteOptions") or {}
    preconditions = options.get("preconditions") or {}
    if not _ignores_budgets(pod.body):
        _check_budgets(api, pod)
    check_preconditions(pods, pod, preconditions.get("uid"), preconditions.get("resourceVersion"))
    if dry_run or "All" in (options.get("dryRun") or ()):
        return
    marked = _marked(api, pod)
    api.delete(pods, namespace, name, DeleteOptions(grace_seconds=options.get("gracePeriodSeconds"), uid=marked.uid))


def _check_budgets(api: Api, pod: Record) -> None:
    namespace = pod.key[0]
    labels = pod.body["metadata"].get("labels") or {}
    budgets = [
        record.body
        for record in api.store.table("poddisruptionbudgets.policy").in_namespace(namespace)
        if object_label_selector((record.body.get("spec") or {}).get("selector"))(labels)
    ]
    if len(budgets) > 1:
        raise errors.ApiError(
            500, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    for body in budgets:
        budget = assess(api, namespace, body)
        if not _is_ready(pod.body) and budget.healthy >= budget.needed:
            # An unhealthy pod may be evicted while enough pods are healthy (unhealthyPodEvictionPolicy IfHealthyBudget).
            continue
        if budget.allowed < 1:
            cause = f"The disruption budget {budget.name} needs {budget.needed} healthy pods and has {budget.healthy} currently"
            raise errors.ApiError(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
                details={"causes": [{"reason": "DisruptionBudget", "message": cause}]},
            )


def _marked(api: Api, pod: Record) -> Record:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": None,
        "lastTransitionTime": api.now(),
    }
    status = {**pod.body["status"], "conditions": with_condition(pod.body["status"].get("conditions"), condition)}
    return api.store.put("pods", pod.key, {**pod.body, "status": status})


def _ignores_budgets(pod: Body) -> bool:
    return pod["status"].get("phase") in (*TERMINAL_PHASES, "Pending") or "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Body) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or ())


def _scaled(value: Any, total: int) -> int:
    """Return a number of pods that is given as a number or as a percentage of ``total``, rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return -(-int(value[:-1]) * total // 100)
    return int(value)
