"""Turns cases of kube-scheduler's unit tests into questions about objects, and asks this scheduler the same questions."""

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from allaboard.model.reasons import Kind
from allaboard.placement import NodeFilters
from allaboard.placement.rules.verify import Violation

from ..differential.ours import Ours
from .tables import Printed

Body = dict[str, Any]

_AMPLE = {"cpu": "100", "memory": "100Gi", "pods": "110", "ephemeral-storage": "100Gi"}
_LARGE = {"cpu": "10m", "memory": "20", "pods": "32", "example.com/aaa": "5", "ephemeral-storage": "20", "hugepages-2Mi": "5"}
"""The amounts of the node of these tests, which isn't part of their cases."""
_FOR_ONE_POD = {"cpu": "10m", "memory": "20", "pods": "1"}
_STORAGE = "storage.k8s.io/v1"
_HONOURED = ("nodeAffinityPolicy", "nodeTaintsPolicy")


@dataclass(frozen=True, slots=True)
class Question:
    """Objects and a pod, and kube-scheduler's answer: the reasons by node (empty: the pod fits), or the points by node if ``is_score``.

    ``refusal`` is the reason why no node is asked at all; empty if nodes are asked.
    """

    name: str
    nodes: Sequence[Body]
    bound: Sequence[Body]
    pod: Body
    wanted: Mapping[str, Any]
    is_score: bool = False
    refusal: str = ""
    storage: Sequence[Body] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def exempt(case: Printed) -> str:
    """Return why a case can't be asked of this scheduler; empty if it can."""
    fields, pod = case.fields, case.fields["pod"]
    constraints = pod["spec"].get("topologySpreadConstraints") or ()
    if (fields.get("args") or {}).get("IgnoredResources") or (fields.get("args") or {}).get("IgnoredResourceGroups"):
        return "the plugin is configured to ignore resources"
    if fields.get("draExtendedResourceEnabled"):
        return "device classes for extended resources: devices aren't allocated"
    if "podLevelResourcesEnabled" in fields and not fields["podLevelResourcesEnabled"] and pod["spec"].get("resources"):
        return "a feature is switched off that is on in all supported releases: requests of pods"
    if fields.get("enableNodeInclusionPolicy") is False and any(key in each for each in constraints for key in _HONOURED):
        return "a feature is switched off that is on in all supported releases: policies of topology spread"
    if fields.get("enableMatchLabelKeys") is False and any(each.get("matchLabelKeys") for each in constraints):
        return "a feature is switched off that is on in all supported releases: matchLabelKeys"
    if case.test.endswith("TestPreferredAffinity") and "invalid" in case.name:
        return "the API server refuses the pod"
    if fields.get("ignorePreferredTermsOfExistingPods"):
        return "the plugin is configured to ignore the preferences of bound pods"
    if case.test.endswith("TestPodTopologySpreadScore") and not constraints:
        return "default constraints have no influence"
    if "pvcs" in fields and "non-existent" in str(fields["wantFilterStatus"]):
        return "a pod whose volume is missing is held, and nodes aren't asked"
    if "interpodaffinity/TestRequired" in case.test and "invalid" in str(fields["wantPreFilterStatus"]).lower():
        return "the API server refuses the pod"
    return ""


def question_of(case: Printed) -> Question:
    """Return a case as a question."""
    return _READERS[case.test.rpartition("/")[0]](case)


def _of_affinity(case: Printed) -> Question:
    fields = case.fields
    nodes = fields["nodes"] if "nodes" in fields else [fields["node"]]
    namespaces = {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in chain.from_iterable(case.shared)}
    if "expectedList" in fields:
        points = {each["Name"]: each["Score"] for each in fields["expectedList"] or ()}
        return Question(case.name, nodes, fields["pods"], fields["pod"], points, is_score=True, namespaces=namespaces)
    statuses = fields["wantFilterStatuses"] if "nodes" in fields else [fields["wantFilterStatus"]]
    wanted = {node["metadata"]["name"]: _reasons(status) for node, status in zip(nodes, _padded(statuses, nodes), strict=True)}
    return Question(case.name, nodes, fields["pods"] or (), fields["pod"], wanted, refusal=_refusal(fields), namespaces=namespaces)


def _of_spread(case: Printed) -> Question:
    fields = case.fields
    nodes, bound = fields["nodes"], fields["existingPods"] or ()
    if "want" in fields:
        cordoned = [{**node, "spec": {**(node.get("spec") or {}), "unschedulable": True}} for node in fields["failedNodes"] or ()]
        points = {each["Name"]: each["Score"] for each in fields["want"]}
        return Question(case.name, [*nodes, *cordoned], bound, fields["pod"], points, is_score=True)
    codes = fields["wantStatusCode"] or {}
    wanted = {node["metadata"]["name"]: () if codes.get(node["metadata"]["name"], "Success") == "Success" else None for node in nodes}
    return Question(case.name, nodes, bound, fields["pod"], wanted)


def _of_ports(case: Printed) -> Question:
    return _on_one_node(case, _AMPLE, case.fields["wantFilterStatus"])


def _of_resources(case: Printed) -> Question:
    return _on_one_node(case, _FOR_ONE_POD if "fits" in case.fields else _LARGE, case.fields["wantStatus"])


def _on_one_node(case: Printed, amounts: Mapping[str, str], status: Body | None) -> Question:
    node = {"metadata": {"name": "node"}, "status": {"allocatable": amounts}}
    bound = [{**each, "spec": {**each["spec"], "nodeName": "node"}} for each in case.fields["nodeInfo"]["pods"]]
    return Question(case.name, [node], bound, case.fields["pod"], {"node": _reasons(status)})


def _of_volumes(case: Printed) -> Question:
    fields, nodes = case.fields, case.fields["nodes"]
    storage = [_typed(_STORAGE, "CSIDriver" if "spec" in each else "StorageClass", each) for each in case.shared]
    kinds = (("v1", "PersistentVolumeClaim", "pvcs"), ("v1", "PersistentVolume", "pvs"), (_STORAGE, "CSIStorageCapacity", "capacities"))
    for version, kind, name in kinds:
        storage += [_typed(version, kind, each) for each in fields[name] or ()]
    statuses = _padded(fields["wantFilterStatus"], nodes)
    wanted = {node["metadata"]["name"]: _reasons(status) for node, status in zip(nodes, statuses, strict=True)}
    return Question(case.name, nodes, (), fields["pod"], wanted, refusal=_refusal(fields), storage=storage)


def _typed(version: str, kind: str, raw: Body) -> Body:
    return {"apiVersion": version, "kind": kind, **raw}


_READERS: Mapping[str, Callable[[Printed], Question]] = {
    "interpodaffinity": _of_affinity,
    "podtopologyspread": _of_spread,
    "nodeports": _of_ports,
    "noderesources": _of_resources,
    "volumebinding": _of_volumes,
}


def _padded(statuses: Sequence[Body | None] | None, nodes: Sequence[Body]) -> Sequence[Body | None]:
    return [*(statuses or ()), *[None] * (len(nodes) - len(statuses or ()))]


def _reasons(status: Body | None) -> tuple[str, ...]:
    return tuple(status["reasons"] or ()) if status and status["code"] not in ("Success", "Skip") else ()


def _refusal(fields: Mapping[str, Any]) -> str:
    return ", ".join(_reasons(fields["wantPreFilterStatus"]))


def difference(question: Question) -> str:
    """Return how this scheduler's answer to a question differs from kube-scheduler's; empty if it doesn't."""
    bound = [_pod(raw, f"bound-{number}", "Running") for number, raw in enumerate(question.bound)]
    nodes, waiting = [_node(raw) for raw in question.nodes], _pod(question.pod, "pod", "Pending")
    ours = Ours.of(waiting, nodes, bound, question.storage, question.namespaces)
    if question.refusal or ours.gang.hold is not None:
        message = ours.gang.hold.message if ours.gang.hold else ""
        return "" if question.refusal and question.refusal in message else f"held: {message!r} instead of {question.refusal!r}"
    if question.is_score:
        return _difference_of_points(question, ours)
    found_wrong = {name: ours.wrong_on(name) for name in question.wanted}
    # The tests ask one plugin about nodes that other plugins refuse.
    asked = {name: wrong for name, wrong in found_wrong.items() if not any(_is_of_another_plugin(each) for each in wrong)}
    admitted = {name: not wrong for name, wrong in asked.items()}
    if admitted != {name: question.wanted[name] == () for name in asked}:
        return f"nodes that take the pod: {admitted} instead of {question.wanted}"
    if any(admitted.values()) or None in question.wanted.values():
        return ""
    expected = Counter(each for reasons in question.wanted.values() for each in reasons)
    return "" if ours.reasons == expected else f"reasons: {ours.reasons} instead of {dict(expected)}"


def _is_of_another_plugin(violation: Violation) -> bool:
    return violation.reason is not None and violation.reason.kind in (Kind.AFFINITY, Kind.TAINT)


def _difference_of_points(question: Question, ours: Ours) -> str:
    """Return how the points differ. kube-scheduler gives no points at all if no other pod matters, and ours then costs nothing.

    kube-scheduler rounds the sum of the constraints of a spread before it relates it to the largest sum, so only the order of nodes with
    different points is compared there.
    """
    (candidate,), nodes = ours.gang.candidates, ours.snapshot.nodes
    neighbours = NodeFilters().preference(candidate.spec, nodes).neighbours
    if neighbours is None:
        return "" if len(set(question.wanted.values())) <= 1 else "no preferences are known"
    is_spread = "topologyspread" in question.name
    costs = dict(zip((node.name for node in nodes), (neighbours.spread if is_spread else neighbours.pods).tolist(), strict=True))
    points, wanted = {name: 100 * (1 - costs[name]) for name in question.wanted}, question.wanted
    if is_spread:
        agree = all(points[one] >= points[other] - 1e-9 for one in points for other in points if wanted[one] > wanted[other])
    elif len(set(points.values())) == 1:
        agree = len(set(wanted.values())) == 1
    else:
        agree = {name: int(value + 1e-9) for name, value in points.items()} == dict(wanted)
    return "" if agree else f"points: {points} instead of {dict(wanted)}"


def _node(raw: Body) -> Body:
    node = copy.deepcopy(raw)
    node.setdefault("metadata", {}).setdefault("uid", node["metadata"]["name"])
    status = node.setdefault("status", {})
    status["allocatable"] = status.get("allocatable") or _AMPLE
    status["conditions"] = [{"type": "Ready", "status": "True"}]
    return node


def _pod(raw: Body, name: str, phase: str) -> Body:
    """Return a pod as the API server would have it: tests leave out most fields."""
    pod = copy.deepcopy(raw)
    metadata, spec = pod["metadata"], pod["spec"]
    metadata.setdefault("name", name)
    metadata["name"], metadata["uid"] = f"{name}-{metadata['name']}", name
    metadata.setdefault("namespace", "")
    metadata["resourceVersion"] = "1"
    spec["containers"] = spec.get("containers") or [{"name": "main"}]
    for containers in (spec["containers"], spec.get("initContainers") or ()):
        for number, container in enumerate(containers):
            container["name"] = container.get("name") or f"container-{number}"
            requests = (container.get("resources") or {}).get("requests") or {}
            requests.pop("pods", None)  # the API server refuses a request for pods
    if phase == "Pending":
        spec.pop("nodeName", None)
        spec["schedulerName"] = "allaboard"
    pod["status"] = {**(pod.get("status") or {}), "phase": phase}
    return pod
