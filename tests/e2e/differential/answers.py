"""The answers of the two schedulers to one case: a node, or the reasons why no node will do."""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from allaboard.cluster.view import ClusterView
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.node import node_from
from allaboard.model.pod import pod_from
from allaboard.placement import NodeFilters, SearchSettings, search, verify
from allaboard.placement.rules.members import rules_of
from allaboard.planning.gang_problem import Packings, problem_of
from allaboard.planning.resolve import resolve
from allaboard.report.reason_words import reason

from ..controlplane.client import Api
from . import storage
from .cases import NAMESPACES, NODES, Body, Case

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


def of_ours(state: State) -> tuple[Answer, "Ours | None"]:
    """Return the answer of this scheduler about the last pod, beside the others; and None if the pod isn't placed at all."""
    view = ClusterView()
    for name, labels in NAMESPACES.items():
        view.namespaces.upsert(name, {**labels, "kubernetes.io/metadata.name": name})
    for node in state.nodes:
        view.upsert_node(node_from(node))
    *bound, waiting = map(pod_from, state.pods)
    for pod in bound:
        view.upsert_pod(pod)
    view.upsert_pod(waiting)
    storage.show(view, state.storage)
    gang = resolve(Gang(GangKey("default", waiting.name, "Pod"), 1, (waiting,), 0, 0.0, Objective.BINPACK, 60), view.volumes, view)
    assert not waiting.spec.unsupported, waiting.spec.unsupported
    if gang.hold is not None:
        return Answer(), None
    plan = search(
        problem_of(gang, 1, view.snapshot(), NodeFilters(), Packings().of(gang)), SearchSettings(generations=1, min_generations=1), 1
    )
    ours = Ours(gang, view)
    if plan.feasible:
        return Answer(dict(plan.assignments)[waiting.uid]), ours
    (role,) = plan.explanation.roles
    found: Counter[str] = Counter()
    for why, number in role.reasons:
        found[re.sub(r"untolerated taint \{.*\}", "untolerated taint(s)", reason(why))] += number
    return Answer("", dict(found)), ours


@dataclass(frozen=True, slots=True)
class Ours:
    """The gang of the pod and the view, to ask about further nodes."""

    gang: Gang
    view: ClusterView

    def admits(self, node: str) -> bool:
        """Return whether the last check before a bind finds nothing wrong with the pod on a node."""
        (pod,) = self.gang.candidates
        return not verify({pod.uid: node}, [pod], self.view.snapshot(), rules_of(self.gang))
