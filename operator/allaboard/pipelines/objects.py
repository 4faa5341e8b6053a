"""The objects that run a pipeline's steps: a Deployment each, or a Function where OpenFaaS is installed. Values only.

Each carries the UID of its pipeline as a label: by it they are found again, by whoever leads then, and nothing else is ever changed or
deleted. An owner must be in the namespace of what it owns, so where a stage names another one the label alone has to do. Pods have the UID
under another name: OpenFaaS gives their labels to the Deployments that it makes of Functions, which aren't ours.
"""

from collections.abc import Mapping
from typing import Any

from allaboard.gangs.membership import GANG_NAME_LABEL, MIN_AVAILABLE_LABEL
from allaboard.kube.paths import Resource
from allaboard.model.raw_fields import integer, mapping
from allaboard.pipelines.stages import Pipeline, Policy, Stage, Step, digest

MLFLOWS = Resource("kopf.dev/v1", "MLFlow", "mlflows")
DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments")
FUNCTIONS = Resource("openfaas.com/v1", "Function", "functions")

_PREFIX = "pipelines.allaboard.dev/"
UID = f"{_PREFIX}uid"
"""Label with the UID of the pipeline that an object is of."""
MEMBER_OF = f"{_PREFIX}member-of"
"""Label with the UID of the pipeline that a pod is of."""
HOME, NAME = f"{_PREFIX}namespace", f"{_PREFIX}name"
"""Labels with the pipeline's namespace and name."""
STAGE, STEP = f"{_PREFIX}stage", f"{_PREFIX}step"
RULE = f"{_PREFIX}rule"
"""Annotation with who may use a stage, separated by commas. Nobody enforces it here."""
_REVISION = f"{_PREFIX}revision"

Body = dict[str, Any]


def object_of(pipeline: Pipeline, stage: Stage, step: Step, resource: Resource, policy: Policy) -> Body:
    """The object that runs a step, a Deployment or a Function as ``resource`` says."""
    place = {STAGE: stage.key, STEP: step.name}
    gang = {GANG_NAME_LABEL: pipeline.gang_of(stage).name, MIN_AVAILABLE_LABEL: str(len(stage.steps))}
    rule = {RULE: ",".join(stage.rule)}
    make = _function_spec if resource is FUNCTIONS else _deployment_spec
    spec = make(pipeline.object_name(step), step, policy.scheduler_of(stage), {MEMBER_OF: pipeline.uid, **place, **gang}, rule)
    metadata: Body = {
        "name": pipeline.object_name(step),
        "namespace": stage.namespace,
        "labels": {UID: pipeline.uid, HOME: pipeline.namespace, NAME: pipeline.name, **place},
        "annotations": {**rule, _REVISION: digest([spec, rule])},
    }
    if stage.namespace == pipeline.namespace:
        owner = {"apiVersion": MLFLOWS.api_version, "kind": MLFLOWS.kind, "name": pipeline.name, "uid": pipeline.uid}
        metadata["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": False}]
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _deployment_spec(name: str, step: Step, scheduler: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Body:
    # Whoever may make a pipeline may not thereby use the service account of the namespace.
    pod = {
        "schedulerName": scheduler,
        "automountServiceAccountToken": False,
        "containers": [{"name": step.name, "image": step.image, "resources": step.amounts}],
    }
    return {
        "replicas": 1,
        # A new pod before the old one has gone would need a seat beyond the gang's, and might wait for it for ever.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {key: labels[key] for key in (MEMBER_OF, STEP)}},
        "template": {"metadata": {"labels": dict(labels), "annotations": dict(annotations)}, "spec": pod},
    }


def _function_spec(name: str, step: Step, scheduler: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Body:
    """A Function has no field for the scheduler: a webhook has to see to it that its pods are ours."""
    return {"name": name, "image": step.image, "labels": dict(labels), "annotations": dict(annotations), **step.amounts}


def change_to(wanted: Body, raw: Mapping[str, Any]) -> Body:
    """The merge patch that makes the object ``raw`` what is wanted: what a Function doesn't ask for any more is taken away.

    The API server refuses it (409) when the object has changed since, or another one has its name.
    """
    met = {key: raw["metadata"][key] for key in ("uid", "resourceVersion")}
    spec = {"requests": None, "limits": None, **wanted["spec"]} if wanted["kind"] == FUNCTIONS.kind else wanted["spec"]
    return {**wanted, "metadata": {**wanted["metadata"], **met}, "spec": spec}


def is_of(pipeline: Pipeline, raw: Mapping[str, Any]) -> bool:
    """Whether an object is one of the pipeline's."""
    return bool((raw["metadata"].get("labels") or {}).get(UID) == pipeline.uid)


def is_current(raw: Mapping[str, Any], wanted: Body) -> bool:
    """Whether an object is as it is wanted, by the revision that it was last given."""
    return bool((raw["metadata"].get("annotations") or {}).get(_REVISION) == wanted["metadata"]["annotations"][_REVISION])


def is_ready(deployment: Mapping[str, Any]) -> bool:
    """Whether as many pods of a Deployment's newest template are ready as it asks for; who asks for none has them.

    Raises ``MalformedError`` for what no API server says.
    """
    spec, status = mapping(deployment, "spec"), mapping(deployment, "status")
    wanted = integer(spec, "replicas", 1)
    is_observed = integer(status, "observedGeneration") >= integer(mapping(deployment, "metadata"), "generation")
    return is_observed and min(integer(status, "updatedReplicas"), integer(status, "readyReplicas")) >= wanted


def complaint_of(deployment: Mapping[str, Any]) -> str:
    """Why a Deployment makes no pods, in its controller's words; empty when it does."""
    for condition in mapping(deployment, "status").get("conditions") or ():  # type: ignore[attr-defined]
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message") or "")
    return ""
