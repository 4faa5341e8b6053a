"""Pipelines to test with."""

from typing import Any

from allaboard.kube.paths import Resource
from allaboard.pipelines.objects import DEPLOYMENTS, Body, object_of
from allaboard.pipelines.plan import Found, Place
from allaboard.pipelines.stages import Pipeline, Policy, pipeline_from


def step(name: str, **parts: Any) -> Body:
    return {"name": name, "mlfun": f"example/{name}:1", **parts}


def stage(*names: str, **parts: Any) -> Body:
    return {"step": [step(name) for name in names], **parts}


def mlflow(name: str = "lstm", namespace: str = "ml", **stages: Any) -> Body:
    """A raw MLFlow, of two stages of two steps and one when no other are given."""
    stages = stages or {"stage1": stage("load", "clean"), "stage2": stage("train")}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "generation": 3}
    return {"apiVersion": "kopf.dev/v1", "kind": "MLFlow", "metadata": metadata, "spec": {"pipeline": stages}}


def pipeline(name: str = "lstm", namespace: str = "ml", **stages: Any) -> Pipeline:
    return pipeline_from(mlflow(name, namespace, **stages))


def there(of: Pipeline, *names: str, ready: bool = True, kind: Resource = DEPLOYMENTS, policy: Policy | None = None) -> dict[Place, Body]:
    """The objects of the steps called ``names``, as the API server has them."""
    found: dict[Place, Body] = {}
    for each in of.stages:
        for one in each.steps:
            if one.name in names:
                body = object_of(of, each, one, kind, policy or Policy())
                name = body["metadata"]["name"]
                met = {"metadata": {**body["metadata"], "uid": f"uid-of-{name}", "resourceVersion": "7"}}
                found[kind, each.namespace, name] = body | met | status(ready)
    return found


def status(ready: bool) -> Body:
    """The status of a Deployment of one replica."""
    return {"status": {"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": int(ready)}}


def found(*parts: dict[Place, Body], **others: Any) -> Found:
    return Found({place: body for part in parts for place, body in part.items()}, **others)
