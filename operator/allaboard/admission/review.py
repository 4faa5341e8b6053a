"""Answers admission reviews of pods, and of workloads with pod templates.

A new pod that names its gang but no scheduler gets our scheduler. Gang labels and annotations for which the scheduler would hold the gang
are refused; the scheduler's own registry decides that, so that webhook and scheduler agree. Everything else, however malformed, is allowed
unchanged, since the scheduler can handle it.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from allaboard.admission.templates import Template, templates_in
from allaboard.gangs.membership import GANG_LABELS, membership_of
from allaboard.gangs.podgroup import PodGroup
from allaboard.gangs.registry import GangRegistry
from allaboard.model.errors import MalformedError
from allaboard.model.gang import Hold
from allaboard.model.limits import CHARACTERS
from allaboard.model.pod import pod_from

FUNCTION_LABEL = "faas_function"
"""Label that OpenFaaS sets on the pods of a function."""

_NO_SCHEDULER = (None, "", "default-scheduler")
"""Values of ``schedulerName`` if the author named no scheduler: absent in a template, or the default that the API server sets in a pod."""

_MOST_PROBLEMS = 5
_MOST_CHARACTERS = 2048


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decide which pods are ours.

    ``scheduler_names``: names of our scheduler; the first one is set on pods. ``namespaces``: namespaces whose pods are scheduled; empty
    for all. ``openfaas``: pods of functions are ours as well.
    """

    scheduler_names: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    openfaas: bool = False


def answer(payload: bytes, rules: Rules) -> dict[str, Any]:
    """Return the AdmissionReview that answers the one in ``payload``. A malformed review is allowed."""
    try:
        review = orjson.loads(payload)
    except ValueError:
        review = None
    request = _object(review, "request")
    uid = request.get("uid")
    response = {"uid": uid if isinstance(uid, str) else "", "allowed": True, **_verdict(request, rules)}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def is_claimed(pod: Template, rules: Rules) -> bool:
    """Return whether the webhook makes a pod name our scheduler: the pod has a gang label and names no scheduler itself."""
    labels, spec = _object(_object(pod, "metadata"), "labels"), _object(pod, "spec")
    if spec.get("schedulerName") not in _NO_SCHEDULER or spec.get("nodeName") or spec.get("schedulingGroup"):
        return False
    claiming_labels = (*GANG_LABELS, FUNCTION_LABEL) if rules.openfaas else GANG_LABELS
    return any(labels.get(label) is not None for label in claiming_labels)


def _verdict(request: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    namespace, kind, raw = _text(request, "namespace"), _object(request, "kind"), _object(request, "object")
    if rules.namespaces and namespace not in rules.namespaces:
        return {}
    of = (_text(kind, "group"), _text(kind, "kind"))
    problems = _problems(templates_in(*of, raw), namespace, rules)
    if problems and (old := _object(request, "oldObject")):
        # An object that was stored with a mistake can still be changed otherwise, and deleted: finalizers are removed by updates.
        known = set(_problems(templates_in(*of, old), namespace, rules))
        problems = [problem for problem in problems if problem not in known]
    if problems:
        message = "; ".join(problems[:_MOST_PROBLEMS])[:_MOST_CHARACTERS]
        return {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": message}}
    is_new_pod = of == ("", "Pod") and request.get("operation") == "CREATE"
    name = rules.scheduler_names[0]
    if not is_new_pod or not isinstance(raw.get("spec"), dict) or raw["spec"].get("schedulerName") in rules.scheduler_names:
        return {}
    return _patch(name) if is_claimed(raw, rules) else {}


def _patch(scheduler_name: str) -> dict[str, str]:
    patch = [{"op": "add", "path": "/spec/schedulerName", "value": scheduler_name}]
    return {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}


def _problems(templates: Iterable[tuple[str, Template]], namespace: str, rules: Rules) -> list[str]:
    """Return the mistakes for which the scheduler would hold the gangs of ``templates``. Each begins with the path of its field."""
    registry = GangRegistry(rules.scheduler_names[:1])
    found: list[str] = []
    paths: dict[str, str] = {}
    keys: dict[Any, bool] = {}  # by gang: whether a template states the minimum
    for path, template in templates:
        if not _is_ours(template, rules):
            continue
        uid = str(len(paths))
        paths[uid] = f"{path}." if path else ""
        try:
            pod = pod_from(_bare(template, path, uid, namespace, rules.scheduler_names[0]))
        except MalformedError as error:
            found.append(f"{paths[uid]}{error}")
            continue
        registry.observe_pod(None, pod)
        membership = membership_of(pod)
        keys[membership.key] = keys.get(membership.key, False) or membership.min_member is not None
    for key, is_stated in keys.items():
        if not is_stated:  # the minimum is in a PodGroup, which may be created later; assume one
            registry.observe_group(PodGroup(key, uid="", version=0, min_member=1, timeout_seconds=0, created=0.0, options={}))
        gang = registry.gang(key)
        hold = gang.hold if gang else None
        if hold is not None and hold.reason != "PodGroupNotFound":
            found.append(_message_of(hold, paths))
    return found


def _is_ours(template: Template, rules: Rules) -> bool:
    return _object(template, "spec").get("schedulerName") in rules.scheduler_names or is_claimed(template, rules)


def _bare(template: Template, path: str, uid: str, namespace: str, scheduler_name: str) -> dict[str, Any]:
    """Return a pod with only those fields of the template that say to which gang it belongs, and what the gang needs."""
    metadata, spec = _object(template, "metadata"), _object(template, "spec")
    name = path or _text(metadata, "name") or _text(metadata, "generateName") or "new"
    return {
        "metadata": {
            "name": name[: CHARACTERS.most],
            "namespace": namespace[: CHARACTERS.most],
            "uid": uid,
            "labels": metadata.get("labels"),
            "annotations": metadata.get("annotations"),
        },
        "spec": {"schedulerName": scheduler_name, "schedulingGroup": spec.get("schedulingGroup")},
    }


def _message_of(hold: Hold, paths: Mapping[str, str]) -> str:
    if hold.pod is None:
        return f"{hold.field}: {hold.message}" if hold.field else hold.message
    text = hold.message.removeprefix(f"pod {hold.pod.name}: ").removeprefix(f"{hold.field}: ")
    # The path already names the label or annotation: metadata.labels[example.com/name], label example.com/name
    text = text.removeprefix(f"{hold.field.removeprefix('metadata.').removesuffix(']').replace('s[', ' ', 1)}: ")
    return f"{paths[hold.pod.uid]}{hold.field}: {text}"


def _object(parent: object, key: str) -> Mapping[str, Any]:
    """Return the object under ``key``; empty if there is none."""
    value = parent.get(key) if isinstance(parent, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _text(parent: Mapping[str, Any], key: str) -> str:
    value = parent.get(key)
    return value if isinstance(value, str) else ""
