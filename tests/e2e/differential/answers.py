"""The answers of the two schedulers to one case: a node, or the reasons why no node will do."""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..controlplane.client import Api
from . import storage
from .cases import NAMESPACES, NODES, Body, Case
from .ours import Ours

_SECONDS = 5.0  # for one answer of kube-scheduler
_REASON = re.compile(r"(\d+) (.+)")


@dataclass(frozen=True, slots=True)
class Answer:
    """The ``node`` that a pod gets; empty if none will do, and then how many nodes refuse the pod for each reason."""

    node: str = ""
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """The objects of a case as the API server has them. The last of ``pods`` is the pod in question."""

    nodes: Sequence[Body]
    pods: Sequence[Body]
    storage: Sequence[Body]


def of_kube_scheduler(api: Api, case: Case, seconds: float) -> tuple[Answer, State]:
    """Create the objects of ``case``, and return the answer of kube-scheduler and the objects; then delete all but the nodes.

    The pod in question is the last one. It is created ``seconds`` after the other objects: kube-scheduler reads them by several watches.
    """
    for name, facts in case.nodes.items():
        path = f"/api/v1/nodes/{name}"
        node = api.request("GET", path)
        kept = {key: value for key, value in node["metadata"]["labels"].items() if key.startswith("kubernetes.io/")}
        node["metadata"]["labels"] = kept | facts["labels"]
        node["spec"] = {**node["spec"], "taints": facts["taints"], "unschedulable": facts["unschedulable"]}
        api.request("PUT", path, node)
    made = storage.create(api, case.storage)
    bound = [api.request("POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod) for pod in case.bound]
    time.sleep(seconds)
    waiting = api.request("POST", "/api/v1/namespaces/default/pods", case.pod)
    try:
        nodes = [api.request("GET", f"/api/v1/nodes/{name}") for name in NODES]
        return _decision(api, waiting), State(nodes, [*bound, waiting], made)
    finally:
        for pod in (waiting, *bound):
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            api.request("DELETE", path, {"gracePeriodSeconds": 0})
        _wait_until_gone(api)
        storage.remove(api, made)


def _wait_until_gone(api: Api) -> None:
    ends = time.monotonic() + _SECONDS
    while list(api.items("/api/v1/pods")) and time.monotonic() < ends:
        time.sleep(0.02)


def _decision(api: Api, pod: Body) -> Answer:
    path, ends = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", time.monotonic() + _SECONDS
    while time.monotonic() < ends:
        now = api.request("GET", path)
        status = now.get("status") or {}
        # While volumes are bound, kube-scheduler nominates the pod to its node. No controller binds volumes here.
        if node := now["spec"].get("nodeName") or status.get("nominatedNodeName"):
            return Answer(node)
        conditions = status.get("conditions") or ()
        refused = [each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"]
        if refused:
            return Answer("", _reasons_in(refused[0]["message"]))
        time.sleep(0.02)
    raise TimeoutError("kube-scheduler doesn't decide")


def _reasons_in(message: str) -> Mapping[str, int]:
    """Return the reasons in kube-scheduler's message, without what it says on preemption."""
    text = message.partition(": ")[2].partition(" preemption:")[0].removesuffix(".").removesuffix(". no new claims to deallocate,")
    found: Counter[str] = Counter()
    for part in text.split(", "):
        if match := _REASON.fullmatch(part.strip().removesuffix(".")):
            found[match[2]] += int(match[1])
    return dict(found)


def of_ours(state: State) -> tuple[Answer, Ours | None]:
    """Return the answer of this scheduler about the last pod, beside the others; and None if the pod isn't placed at all."""
    *bound, waiting = state.pods
    ours = Ours.of(waiting, state.nodes, bound, state.storage, NAMESPACES)
    if ours.gang.hold is not None:
        return Answer(), None
    if ours.plan.feasible:
        return Answer(dict(ours.plan.assignments)[ours.pod.uid]), ours
    return Answer("", ours.reasons), ours
