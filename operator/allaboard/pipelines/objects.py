"""Builds the objects that run a pipeline's steps: a Deployment for each step, or a Function if OpenFaaS is installed.

The functions do no I/O. Each object has the UID of its pipeline as a label. The leader finds the objects by this label, and never changes
or deletes an object without it. An owner must be in the same namespace as its objects, so objects in another namespace have only the label.
Pods have the UID under another label: OpenFaaS copies labels of pods to the Deployments that it makes for Functions, and those aren't ours.
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
"""Label of an object with the UID of its pipeline."""
MEMBER_OF = f"{_PREFIX}member-of"
"""Label of a pod with the UID of its pipeline."""
HOME, NAME = f"{_PREFIX}namespace", f"{_PREFIX}name"
"""Labels with the pipeline's namespace and name."""
STAGE, STEP = f"{_PREFIX}stage", f"{_PREFIX}step"
RULE = f"{_PREFIX}rule"
"""Annotation that names the users who may use a stage, separated by commas. Allaboard shows the list, and doesn't enforce it."""
_REVISION = f"{_PREFIX}revision"

Body = dict[str, Any]


def object_of(pipeline: Pipeline, stage: Stage, step: Step, resource: Resource, policy: Policy) -> Body:
    """Return the object that runs a step: a Deployment or a Function, as ``resource`` says."""
    step_labels = {STAGE: stage.key, STEP: step.name}
    gang = {GANG_NAME_LABEL: pipeline.gang_of(stage).name, MIN_AVAILABLE_LABEL: str(len(stage.steps))}
    rule = {RULE: ",".join(stage.rule)}
    make = _function_spec if resource is FUNCTIONS else _deployment_spec
    spec = make(pipeline.object_name(step), step, policy.scheduler_of(stage), {MEMBER_OF: pipeline.uid, **step_labels, **gang}, rule)
    metadata: Body = {
        "name": pipeline.object_name(step),
        "namespace": stage.namespace,
        "labels": {UID: pipeline.uid, HOME: pipeline.namespace, NAME: pipeline.name, **step_labels},
        "annotations": {**rule, _REVISION: digest([spec, rule])},
    }
    if stage.namespace == pipeline.namespace:
        owner = {"apiVersion": MLFLOWS.api_version, "kind": MLFLOWS.kind, "name": pipeline.name, "uid": pipeline.uid}
        metadata["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": False}]
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _deployment_spec(name: str, step: Step, scheduler: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Body:
    # The right to create a pipeline doesn't include the right to use the namespace's service account.
    pod = {
        "schedulerName": scheduler,
        "automountServiceAccountToken": False,
        "containers": [{"name": step.name, "image": step.image, "resources": step.amounts}],
    }
    return {
        "replicas": 1,
        # A new pod beside the old one would need more capacity than the gang has, and might wait for it for ever.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {key: labels[key] for key in (MEMBER_OF, STEP)}},
        "template": {"metadata": {"labels": dict(labels), "annotations": dict(annotations)}, "spec": pod},
    }


def _function_spec(name: str, step: Step, scheduler: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Body:
    """Return the spec of a Function. It has no field for the scheduler, so a webhook must set our scheduler on its pods."""
    return {"name": name, "image": step.image, "labels": dict(labels), "annotations": dict(annotations), **step.amounts}


def change_to(wanted: Body, raw: Mapping[str, Any]) -> Body:
    """Return the merge patch that changes the object ``raw`` to ``wanted``, and removes requests and limits that a Function no longer has.

    The API server refuses the patch (409) if the object was changed or replaced since it was read.
    """
    precondition = {key: raw["metadata"][key] for key in ("uid", "resourceVersion")}
    spec = {"requests": None, "limits": None, **wanted["spec"]} if wanted["kind"] == FUNCTIONS.kind else wanted["spec"]
    return {**wanted, "metadata": {**wanted["metadata"], **precondition}, "spec": spec}


def is_of(pipeline: Pipeline, raw: Mapping[str, Any]) -> bool:
    """Return whether an object belongs to the pipeline, by its label."""
    return bool((raw["metadata"].get("labels") or {}).get(UID) == pipeline.uid)


def is_current(raw: Mapping[str, Any], wanted: Body) -> bool:
    """Return whether an object has the same revision as ``wanted``. The revision is an annotation: a digest of the spec and of ``RULE``."""
    return bool((raw["metadata"].get("annotations") or {}).get(_REVISION) == wanted["metadata"]["annotations"][_REVISION])


def is_ready(deployment: Mapping[str, Any]) -> bool:
    """Return whether all replicas of a Deployment are ready with its newest template; True for 0 replicas.

    Raises ``MalformedError`` for an object that no API server would return.
    """
    spec, status = mapping(deployment, "spec"), mapping(deployment, "status")
    wanted = integer(spec, "replicas", 1)
    is_observed = integer(status, "observedGeneration") >= integer(mapping(deployment, "metadata"), "generation")
    return is_observed and min(integer(status, "updatedReplicas"), integer(status, "readyReplicas")) >= wanted


def replica_failure_of(deployment: Mapping[str, Any]) -> str:
    """Return why a Deployment's controller can't create pods, in its words; empty if it can."""
    for condition in mapping(deployment, "status").get("conditions") or ():  # type: ignore[attr-defined]
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message") or "")
    return ""
