"""Pipelines on a cluster: stages are deployed in order, each whole or not at all, even when requests fail."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from allaboard.model.limits import Limit
from allaboard_sandbox.faults import Fault
from tests.cluster import Body, Cluster

from .conftest import StartApp

pytestmark = pytest.mark.usefixtures("pipeline_rights")

FUNCTIONS: Body = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "functions.openfaas.com"},
    "spec": {
        "group": "openfaas.com",
        "scope": "Namespaced",
        "names": {"kind": "Function", "listKind": "FunctionList", "plural": "functions", "singular": "function"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def mlflow(namespace: str = "default", **stages: Any) -> Body:
    metadata = {"name": "lstm", "namespace": namespace}
    return {"apiVersion": "kopf.dev/v1", "kind": "MLFlow", "metadata": metadata, "spec": {"pipeline": stages}}


def stage(*names: str, cpu: str = "1", **parts: Any) -> Body:
    return {"step": [{"name": name, "mlfun": "example/step:1", "requests": {"cpu": cpu}} for name in names], **parts}


def phases(cluster: Cluster, namespace: str = "default") -> list[str]:
    """Return the phases of the stages that the status reports."""
    status = (cluster.get("mlflows", "lstm", namespace) or {}).get("status") or {}
    return [each["phase"] for each in status.get("stages") or []]


def message(cluster: Cluster, number: int = 0) -> str:
    status = (cluster.get("mlflows", "lstm") or {}).get("status") or {}
    stages = status.get("stages") or []
    return str(stages[number]["message"]) if number < len(stages) else ""


def bound(cluster: Cluster) -> set[str]:
    """Return the steps whose pods have a node."""
    pods = (pod for pod in cluster.list("pods") if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"))
    return {pod["metadata"]["labels"]["pipelines.allaboard.dev/step"] for pod in pods}


def deployments(cluster: Cluster) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.list("deployments")}


async def test_pipeline_stage_that_does_not_fit_is_not_bound_in_part_and_its_status_says_why(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1", cpu="3")
    await start_app(pipelines=True)
    cluster.create(mlflow(stage1=stage("a"), stage2=stage("b", "c", cpu="2"), stage3=stage("d")))

    await cluster.wait_for(lambda s: "needs 4 cpu" in message(s, 1), message="the second stage reports why it waits")
    assert phases(cluster) == ["Ready", "Deploying", "Waiting"]
    assert bound(cluster) == {"a"}
    assert "lstm-d" not in deployments(cluster)

    cluster.add_node("node-2", cpu="4")
    await cluster.wait_for(lambda s: phases(s) == ["Ready"] * 3, message="all stages are ready")
    assert bound(cluster) == {"a", "b", "c", "d"}


async def test_next_operator_continues_a_pipeline_where_the_first_operator_stopped(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1", cpu="2")
    first = await start_app(pipelines=True)
    cluster.create(mlflow(stage1=stage("a"), stage2=stage("b", "c"), stage3=stage("d", cpu="100m")))
    await cluster.wait_for(lambda s: phases(s) == ["Ready", "Deploying", "Waiting"])
    await first.stop()
    cluster.delete("deployments", "lstm-c")
    cluster.add_node("node-2", cpu="2")

    await start_app(pipelines=True)
    await cluster.wait_for(lambda s: phases(s) == ["Ready"] * 3, message="all stages are ready")
    assert bound(cluster) == {"a", "b", "c", "d"}


async def test_pipelines_are_not_deployed_unless_the_setting_for_pipelines_is_on(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    await start_app()
    cluster.create(mlflow(stage1=stage("a")))
    cluster.create(mlflow(stage1=stage("a")) | {"metadata": {"name": "other", "namespace": "default"}})
    await cluster.wait_for(lambda s: len(s.list("mlflows")) == 2)
    assert (deployments(cluster), phases(cluster)) == (set(), [])


async def test_deployments_in_all_namespaces_are_deleted_with_their_pipeline(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openfaas-fn"}})
    await start_app(pipelines=True, pipeline_namespaces=("openfaas-fn",))
    cluster.create(mlflow(stage1=stage("a"), stage2=stage("b", namespace="openfaas-fn")))
    await cluster.wait_for(lambda s: phases(s) == ["Ready"] * 2)

    cluster.delete("mlflows", "lstm")
    await cluster.wait_for(lambda s: not s.list("deployments") and not s.list("pods"), message="all is gone")


async def test_pipeline_that_is_deleted_while_no_operator_runs_is_cleaned_up_by_the_next_operator(
    cluster: Cluster, start_app: StartApp
) -> None:
    cluster.add_node("node-1")
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openfaas-fn"}})
    first = await start_app(pipelines=True, pipeline_namespaces=("openfaas-fn",))
    cluster.create(mlflow(stage1=stage("b", namespace="openfaas-fn")))
    await cluster.wait_for(lambda s: phases(s) == ["Ready"])
    await first.stop()
    cluster.delete("mlflows", "lstm")

    await start_app(pipelines=True, pipeline_namespaces=("openfaas-fn",))
    await cluster.wait_for(lambda s: not s.list("deployments"), message="the next operator deletes what is left")


async def test_pipeline_may_not_deploy_into_a_namespace_that_the_settings_do_not_open(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openfaas-fn"}})
    await start_app(pipelines=True)
    cluster.create(mlflow(stage1=stage("a", namespace="openfaas-fn"), stage2=stage("b")))
    await cluster.wait_for(lambda s: phases(s) == ["Failed", "Waiting"])
    assert "may not deploy into openfaas-fn" in message(cluster)
    assert not deployments(cluster)


async def test_invalid_pipeline_is_reported_until_it_is_corrected(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    await start_app(pipelines=True)
    cluster.create(mlflow(stage1=stage("Not_A_Name"), stage2=stage("b")))
    await cluster.wait_for(lambda s: phases(s) == ["Failed", "Waiting"])
    assert "'Not_A_Name' must be lower-case letters" in message(cluster)

    cluster.patch("mlflows", "lstm", {"spec": {"pipeline": {"stage1": stage("a")}}})
    await cluster.wait_for(lambda s: phases(s) == ["Ready", "Ready"])


async def test_foreign_deployment_with_the_name_of_a_step_is_not_changed_and_the_stage_fails(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": "theirs"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    theirs = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "lstm-a", "namespace": "default"}, "spec": spec}
    cluster.create(theirs)
    await start_app(pipelines=True)
    cluster.create(mlflow(stage1=stage("a"), stage2=stage("b")))
    await cluster.wait_for(lambda s: phases(s) == ["Failed", "Waiting"])
    assert "which isn't this pipeline's" in message(cluster)
    found = cluster.get("deployments", "lstm-a")
    assert found is not None
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "theirs"

    cluster.delete("deployments", "lstm-a")
    await cluster.wait_for(lambda s: phases(s) == ["Ready", "Ready"], message="the stage is deployed when the name is free")


@pytest.mark.parametrize(
    "faults",
    [
        [Fault("create", "deployments", drop=True, after=True)],
        [Fault("create", "deployments", times=3, status=503)],
        [Fault("list", "deployments", status=500), Fault("patch", "mlflows/status", drop=True, after=True)],
        [Fault("patch", "mlflows/status", status=409)],
        [Fault("create", "deployments", nth=2, status=403, message="no such right")],
    ],
)
async def test_pipeline_becomes_ready_despite_lost_or_refused_requests(faults: list[Fault], cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    await start_app(pipelines=True)
    for fault in faults:
        cluster.faults.add(fault)
    cluster.create(mlflow(stage1=stage("a", "b"), stage2=stage("c")))
    await cluster.wait_for(lambda s: phases(s) == ["Ready", "Ready"])
    assert deployments(cluster) == {"lstm-a", "lstm-b", "lstm-c"}


async def test_pipelines_beyond_the_limit_of_a_namespace_are_not_deployed(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allaboard.pipelines.reconciler.PIPELINES", Limit("pipelines", 1, "pipelines of a namespace"))
    cluster.add_node("node-1")
    await start_app(pipelines=True)
    cluster.create(mlflow(stage1=stage("a")))
    await cluster.wait_for(lambda s: phases(s) == ["Ready"])
    cluster.create(mlflow(stage1=stage("a")) | {"metadata": {"name": "surplus", "namespace": "default"}})

    def is_refused(s: Cluster) -> bool:
        status = (s.get("mlflows", "surplus") or {}).get("status") or {}
        return "more than 1 pipelines of a namespace" in status.get("message", "")

    await cluster.wait_for(is_refused)
    assert deployments(cluster) == {"lstm-a"}


async def test_changed_step_of_a_pipeline_is_updated_and_a_removed_step_is_deleted(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    await start_app(pipelines=True)
    cluster.create(mlflow(stage1=stage("a", "b")))
    await cluster.wait_for(lambda s: phases(s) == ["Ready"])
    cluster.patch("mlflows", "lstm", {"spec": {"pipeline": {"stage1": {"step": [{"name": "a", "mlfun": "example/step:2"}]}}}})

    def is_changed(s: Cluster) -> bool:
        found = s.get("deployments", "lstm-a") or {}
        images = [each["image"] for each in found.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])]
        return images == ["example/step:2"] and deployments(s) == {"lstm-a"} and phases(s) == ["Ready"]

    await cluster.wait_for(is_changed)


@pytest.fixture
async def openfaas(cluster: Cluster) -> AsyncIterator[None]:
    """Serve OpenFaaS' kind Function until the test ends."""
    cluster.create(FUNCTIONS)
    await cluster.wait_for(lambda s: bool((s.get("customresourcedefinitions", FUNCTIONS["metadata"]["name"]) or {}).get("status")))
    yield
    cluster.delete("customresourcedefinitions", FUNCTIONS["metadata"]["name"])


async def test_where_openfaas_is_installed_steps_are_functions_that_are_ready_when_their_deployments_are(
    openfaas: None, cluster: Cluster, start_app: StartApp
) -> None:
    cluster.add_node("node-1")
    await start_app(pipelines=True)
    cluster.create(mlflow(stage1=stage("a", "b"), stage2=stage("c")))
    await cluster.wait_for(lambda s: {each["metadata"]["name"] for each in s.list("functions")} == {"lstm-a", "lstm-b"})
    assert not deployments(cluster)

    for function in cluster.list("functions"):
        cluster.create(made_by_openfaas(function))
    await cluster.wait_for(lambda s: phases(s)[:1] == ["Ready"] and len(s.list("functions")) == 3, message="the second stage begins")
    assert bound(cluster) == {"a", "b"}

    cluster.delete("mlflows", "lstm")
    await cluster.wait_for(lambda s: not s.list("functions") and not s.list("deployments"), message="all is gone")


def made_by_openfaas(function: Body) -> Body:
    """Return the Deployment that OpenFaaS creates for a function, with pods to which a webhook has given our scheduler's name."""
    spec, metadata = function["spec"], function["metadata"]
    labels = {"faas_function": spec["name"], "app": spec["name"], "controller": metadata["name"], **spec["labels"]}
    owner = {"apiVersion": "openfaas.com/v1", "kind": "Function", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    container = {"name": spec["name"], "image": spec["image"], "resources": {"requests": spec["requests"]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": spec["name"], "namespace": metadata["namespace"], "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": spec["name"]}},
            "template": {"metadata": {"labels": labels}, "spec": {"schedulerName": "allaboard", "containers": [container]}},
        },
    }


async def test_operator_schedules_pods_if_pipelines_are_on_and_the_pipeline_crd_is_missing(
    home: Any, cluster: Cluster, start_app: StartApp
) -> None:
    cluster.delete("customresourcedefinitions", "mlflows.kopf.dev")
    cluster.add_node("node-1")
    await start_app(pipelines=True)
    pod = {"schedulerName": "allaboard", "containers": [{"name": "main", "image": "pause"}]}
    cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": pod})
    await cluster.wait_for(lambda s: any(each["spec"].get("nodeName") for each in s.list("pods")))


@pytest.mark.parametrize("memory", ["512Mi", "512"])
async def test_openfaas_pod_is_charged_the_requests_in_its_annotation_as_soon_as_the_pod_is_bound(
    memory: str, cluster: Cluster, start_app: StartApp
) -> None:
    cluster.add_node("node-1", cpu="3")
    await start_app(openfaas=True)
    for name in ("first", "second"):
        cluster.create(function_pod(name, f'{{"requests": {{"cpu": "2", "memory": "{memory}"}}}}'))
        await cluster.wait_for(lambda s, name=name: is_settled(s, name))  # type: ignore[misc]
    assert [bool(pod["spec"].get("nodeName")) for pod in cluster.list("pods")] == [True, False]
    assert "Insufficient cpu" in refusal(cluster, "second")
    doubts = [event for event in cluster.list("events") if event.get("reason") == "DoubtfulDemand"]
    assert bool(doubts) is (memory == "512")


async def test_openfaas_function_that_changes_during_its_bind_is_bound_as_planned(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1", cpu="3")
    await start_app(openfaas=True)
    cluster.faults.add(Fault("bind", "pods", status=409, dry_run=None))
    cluster.create(function_pod("fn", '{"requests": {"cpu": "2"}}'))
    await cluster.wait_for(lambda s: is_settled(s, "fn"))
    assert [bool(pod["spec"].get("nodeName")) for pod in cluster.list("pods")] == [True]


async def test_openfaas_function_is_held_with_a_warning_if_its_annotation_is_not_json(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1", cpu="3")
    await start_app(openfaas=True)
    cluster.create(function_pod("broken", "{"))
    cluster.create(function_pod("sound", "{}"))
    await cluster.wait_for(lambda s: is_settled(s, "sound") and is_settled(s, "broken"))
    (warning,) = [event for event in cluster.list("events") if event.get("reason") == "InvalidPod"]
    assert warning["type"] == "Warning"
    assert "com.openfaas.function.spec" in (warning.get("message") or warning.get("note"))
    assert [bool(pod["spec"].get("nodeName")) for pod in cluster.list("pods")] == [False, True]


def function_pod(name: str, annotation: str) -> Body:
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": {"faas_function": name},
        "annotations": {"com.openfaas.function.spec": annotation},
    }
    container = {"name": name, "image": "example/function:1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"schedulerName": "allaboard", "containers": [container]}}


def refusal(cluster: Cluster, name: str) -> str:
    conditions = ((cluster.get("pods", name) or {}).get("status") or {}).get("conditions") or []
    return "".join(each.get("message") or "" for each in conditions if (each["type"], each["status"]) == ("PodScheduled", "False"))


def is_settled(cluster: Cluster, name: str) -> bool:
    """Return whether a pod has a node, or a condition that says why it has none."""
    pod = cluster.get("pods", name)
    return pod is not None and bool(pod["spec"].get("nodeName") or refusal(cluster, name))


async def test_pipeline_is_reported_as_not_deployed_while_pipelines_are_off(cluster: Cluster, start_app: StartApp) -> None:
    await start_app()
    cluster.create(mlflow(stage1=stage("a")))
    await cluster.wait_for(lambda s: ((s.get("mlflows", "lstm") or {}).get("status") or {}).get("phase") == "Failed")
    await cluster.wait_for(lambda s: any(event.get("reason") == "PipelinesOff" for event in s.list("events")))
    status = (cluster.get("mlflows", "lstm") or {})["status"]
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "False")
    assert "setting pipelines is off" in condition["message"]
    (event,) = [event for event in cluster.list("events") if event.get("reason") == "PipelinesOff"]
    assert event["type"] == "Warning"
    assert deployments(cluster) == set()
