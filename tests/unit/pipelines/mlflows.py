"""Builds pipelines, and their existing objects, for tests."""

from typing import Any

from allaboard.kube.paths import Resource
from allaboard.pipelines.objects import DEPLOYMENTS, Body, object_of
from allaboard.pipelines.plan import Found, ObjectKey
from allaboard.pipelines.stages import Pipeline, Policy, pipeline_from


def step(name: str, **parts: Any) -> Body:
    return {"name": name, "mlfun": f"example/{name}:1", **parts}


def stage(*names: str, **parts: Any) -> Body:
    return {"step": [step(name) for name in names], **parts}


def mlflow(name: str = "lstm", namespace: str = "ml", **stages: Any) -> Body:
    """Return a raw MLFlow with the given stages; by default one stage of two steps and one stage of one step."""
    stages = stages or {"stage1": stage("load", "clean"), "stage2": stage("train")}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "generation": 3}
    return {"apiVersion": "kopf.dev/v1", "kind": "MLFlow", "metadata": metadata, "spec": {"pipeline": stages}}


def pipeline(name: str = "lstm", namespace: str = "ml", **stages: Any) -> Pipeline:
    return pipeline_from(mlflow(name, namespace, **stages))


def existing(
    flow: Pipeline, *names: str, ready: bool = True, kind: Resource = DEPLOYMENTS, policy: Policy | None = None
) -> dict[ObjectKey, Body]:
    """Return the objects of the steps called ``names``, as the API server has them."""
    found: dict[ObjectKey, Body] = {}
    for each in flow.stages:
        for one in each.steps:
            if one.name in names:
                body = object_of(flow, each, one, kind, policy or Policy())
                name = body["metadata"]["name"]
                stored = {"metadata": {**body["metadata"], "uid": f"uid-of-{name}", "resourceVersion": "7"}}
                found[kind, each.namespace, name] = body | stored | status(ready)
    return found


def status(ready: bool) -> Body:
    """Return the status of a Deployment of one replica."""
    return {"status": {"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": int(ready)}}


def found(*parts: dict[ObjectKey, Body], **others: Any) -> Found:
    return Found({object_key: body for part in parts for object_key, body in part.items()}, **others)
