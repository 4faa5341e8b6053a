"""Test that unknown fields and unknown kinds are bad input and never ignored."""

import json
import re
from pathlib import Path
from typing import Any

import kubernetes.client.models as models
import pytest
import yaml

from allaboard.cli import bundled
from allaboard.whatif.kinds import _CLUSTER_SCOPED, _NAMESPACED
from allaboard.whatif.schemas import Schemas
from tests.unit.cli.plan_command import Plan, node, pod

TABLE = Path(__file__).parents[3] / "operator/allaboard/whatif/fields.json"
TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": {"schedulerName": "allaboard", "containers": [{"name": "m", "image": "i"}]}}


def workload(kind: str, api_version: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def job(**replicas: Any) -> dict[str, Any]:
    return workload("TFJob", "kubeflow.org/v1", tfReplicaSpecs={"Worker": {"template": TEMPLATE, **replicas}})


def custom(group: str, kind: str, properties: dict[str, Any], scope: str = "Namespaced", **served: bool) -> dict[str, Any]:
    """Return a CustomResourceDefinition of ``kind``. ``served`` has its versions, by default v1, and whether the API server serves each."""
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    versions = [{"name": name, "served": is_served, "schema": schema} for name, is_served in (served or {"v1": True}).items()]
    spec = {"group": group, "names": {"kind": kind, "plural": f"{kind.lower()}s"}, "scope": scope, "versions": versions}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize(
    ("manifest", "field", "problem"),
    [
        (job(repilcas=2), "spec.tfReplicaSpecs.Worker.repilcas", "no such field; did you mean replicas?"),
        (workload("TFJob", "kubeflow.org/v1", tfReplicaSpec={}), "spec.tfReplicaSpec", "no such field; did you mean tfReplicaSpecs?"),
        (workload("Job", "batch/v1", paralelism=2, template=TEMPLATE), "spec.paralelism", "did you mean parallelism?"),
        (workload("Deployment", "apps/v1", repilcas=3, template=TEMPLATE), "spec.repilcas", "did you mean replicas?"),
        (workload("Deployment", "apps/v1", Replicas=3, template=TEMPLATE), "spec.Replicas", "did you mean replicas?"),
        (workload("MPIJob", "kubeflow.org/v2beta1", tfReplicaSpecs={}), "spec.tfReplicaSpecs", "did you mean mpiReplicaSpecs?"),
        (workload("PodGroup", "scheduling.x-k8s.io/v1alpha1", minMembers=3), "spec.minMembers", "did you mean minMember?"),
        (workload("CronJob", "batch/v1", jobTemplate={"spec": {"template": TEMPLATE, "x": 1}}), "spec.jobTemplate.spec.x", "no such field"),
        (pod("a", containers=[{"name": "m", "resource": {}}]), "spec.containers[0].resource", "did you mean resources?"),
        (pod("a", node_selector={}), "spec.node_selector", "did you mean nodeSelector?"),
        (
            workload("Deployment", "apps/v1beta1", template=TEMPLATE),
            "apiVersion",
            "'apps/v1beta1' is not a version of Deployment; use apps/v1",
        ),
        (
            workload("TFJob", "kubeflow.org/v1", tfReplicaSpecs={"Wroker": {"template": TEMPLATE}}),
            "spec.tfReplicaSpecs.Wroker",
            "PS, Worker",
        ),
        (workload("Deployment", "apps/v1", template={"kind": "Pod", **TEMPLATE}), "spec.template.kind", "no such field"),
        (workload("Service", "v1", selctor={"app": "x"}), "spec.selctor", "did you mean selector?"),
        (workload("Service", "v1", ports=[{"port": 80, "tragetPort": 80}]), "spec.ports[0].tragetPort", "did you mean targetPort?"),
        ({**workload("ConfigMap", "v1"), "dta": {}}, "spec", "no such field"),
        (workload("Ingress", "networking.k8s.io/v1beta1"), "apiVersion", "use networking.k8s.io/v1"),
        (workload("ResourceQuota", "v1", hrad={}), "spec.hrad", "did you mean hard?"),
        ({**workload("PriorityClass", "scheduling.k8s.io/v1"), "valeu": 5}, "spec", "no such field"),
        (workload("TFJbo", "kubeflow.org/v1"), "kind", "did you mean TFJob?"),
        (workload("Servcie", "v1"), "kind", "did you mean Service?"),
        (workload("RayCluster", "ray.io/v1"), "kind", "a plan doesn't know which pods RayCluster (ray.io/v1) creates"),
        (workload("Job", "batch.volcano.sh/v1alpha1"), "kind", "--skip-unknown leaves it out"),
        (workload("DaemonSet", "apps/v1", template=TEMPLATE), "kind", "a plan doesn't know which pods"),
        (workload("Job", "batch/v1", managedBy="kueue.x-k8s.io/multikueue", template=TEMPLATE), "spec.managedBy", "a plan doesn't know"),
        (
            workload("Deployment", "apps/v1", selector={"matchLabels": {"app": "y"}}, template=TEMPLATE),
            "spec.selector.matchLabels[app]",
            "'y' is not among the labels of the template's pods",
        ),
    ],
)
def test_unknown_field_is_reported_with_its_path_and_a_suggestion(plan: Plan, manifest: Any, field: str, problem: str) -> None:
    result = plan.cluster(node("n1", cpu="8")).manifest(pod("fine"), manifest).run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"gangs.yaml: document 2: {field}: " in result.stderr
    assert problem in result.stderr


def test_unknown_kinds_are_left_out_with_the_option_skip_unknown(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(pod("fine"), workload("RayCluster", "ray.io/v1"))
    assert [gang["name"] for gang in plan.gangs("--skip-unknown")] == ["fine"]
    assert (
        "note: skipped RayCluster.ray.io default/w: it isn't known which pods objects of this kind create"
        in plan.run("--skip-unknown").stderr
    )


@pytest.mark.parametrize(
    ("manifest", "title"),
    [
        (custom("x.example", "Fleet", {}, scope="Cluster"), "CustomResourceDefinition.apiextensions.k8s.io x"),
        ({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "web"}}, "IngressClass.networking.k8s.io web"),
        ({"apiVersion": "x.example/v1", "kind": "Fleet", "metadata": {"name": "f"}}, "Fleet.x.example f"),
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}, "Secret default/s"),
    ],
)
def test_note_about_a_cluster_scoped_object_names_no_namespace(plan: Plan, manifest: Any, title: str) -> None:
    plan.cluster(node("n1", cpu="8"), custom("x.example", "Fleet", {}, scope="Cluster")).manifest(manifest)
    assert f"note: skipped {title}: " in plan.run("--skip-unknown").stderr


@pytest.mark.parametrize("place", ["manifests", "snapshot"])
def test_fields_of_a_crd_in_the_cluster_replace_the_shipped_fields_of_that_crd(plan: Plan, place: str) -> None:
    worker = {"type": "object", "additionalProperties": {"type": "object", "properties": {"template": {}, "replicas": {}, "newField": {}}}}
    newer = custom("kubeflow.org", "TFJob", {"spec": {"type": "object", "properties": {"tfReplicaSpecs": worker}}})
    plan.cluster(node("n1", cpu="8"), *([newer] if place == "snapshot" else []))
    before = [newer] if place == "manifests" else []
    assert len(plan.manifest(*before, job(newField=1, replicas=2)).gangs()) == 2
    assert "spec.tfReplicaSpecs.Worker.restartPolicy: no such field" in plan.manifest(*before, job(restartPolicy="Never")).run().stderr


@pytest.mark.parametrize("served", [{"v2": True}, {"v1": False, "v2": True}])
def test_version_that_a_crd_in_the_cluster_does_not_serve_is_refused(plan: Plan, served: dict[str, bool]) -> None:
    newer = custom("kubeflow.org", "TFJob", {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}, **served)
    answer = plan.cluster(node("n1", cpu="8"), newer).manifest(job()).run()
    assert answer.exit_code == 2
    assert "apiVersion: 'kubeflow.org/v1' is not a version of TFJob; use kubeflow.org/v2" in answer.stderr


def test_metadata_of_a_custom_resource_is_checked(plan: Plan) -> None:
    newer = custom("kubeflow.org", "TFJob", {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}})
    answer = plan.cluster(node("n1", cpu="8"), newer).manifest(job() | {"metadata": {"name": "w", "lables": {}}}).run()
    assert answer.exit_code == 2
    assert "metadata.lables: no such field; did you mean labels?" in answer.stderr


def test_crd_that_preserves_unknown_fields_allows_any_field(plan: Plan) -> None:
    open_ended = custom("kubeflow.org", "TFJob", {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}})
    plan.cluster(node("n1", cpu="8"), open_ended).manifest(job(anything=1))
    assert len(plan.gangs()) == 1


def test_shipped_fields_equal_those_of_the_kubernetes_client() -> None:
    """Test ``fields.json`` against its source, the models of the client; the status of an object may have any fields."""
    [part, *_] = json.loads(TABLE.read_text())
    reached = set(part["kinds"].values())
    for name, fields in part["types"].items():
        model = getattr(models, f"V1{name}", None) or getattr(models, name)
        types = {field: _reference(model.openapi_types[attribute]) for attribute, field in model.attribute_map.items()}
        if {"kind", "metadata"} <= types.keys():
            types |= {"status": ""} if "status" in types else {}
        reached |= {of.lstrip("[]{}") for of in types.values()}
        assert fields == " ".join(sorted(f"{field}:{of}" if of else field for field, of in types.items())), name
    assert reached == {"", *part["types"]}


def _reference(of: str) -> str:
    """Return the name that ``fields.json`` has for a type of the client."""
    if inner := re.fullmatch(r"(List\[|Dict\[str, )(.+)\]", of):
        below = _reference(inner[2])
        return below and ("[]" if inner[1] == "List[" else "{}") + below
    return re.sub("^V1(?!alpha|beta)", "", of) if hasattr(getattr(models, of, None), "openapi_types") else ""


def test_shipped_fields_include_every_built_in_kind_that_creates_no_pods() -> None:
    [part, *_] = json.loads(TABLE.read_text())
    known = {(api_version.rpartition("/")[0], kind) for api_version, kind in map(str.split, part["kinds"])}
    podless = {(group, kind) for kinds in (_NAMESPACED, _CLUSTER_SCOPED) for group in kinds for kind in kinds[group].split()}
    assert {group for group, _ in podless - known} == {
        "cert-manager.io",
        "gateway.networking.k8s.io",
        "kueue.x-k8s.io",
        "monitoring.coreos.com",
        "trainer.kubeflow.org",
    }


def test_shipped_fields_of_custom_resources_equal_those_of_the_shipped_crds() -> None:
    shipped, learned = Schemas(), Schemas()
    for definition in bundled.crds():
        learned.learn(definition)

    def shape(schemas: Schemas, of: str) -> Any:
        fields = schemas._types.get(of.lstrip("[]{}"))
        return fields and {name: shape(schemas, each) for name, each in fields.items() if name not in ("metadata", "status")}

    for kind in (("kopf.dev", "v1", "MLFlow"), ("scheduling.x-k8s.io", "v1alpha1", "PodGroup")):
        assert shape(shipped, shipped._kinds[kind]) == shape(learned, learned._kinds[kind])


@pytest.mark.parametrize("path", bundled.examples(), ids=lambda path: path.stem)
def test_examples_have_no_unknown_fields(path: Path, plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8"))
    result = plan.run(files=(str(path),))
    assert result.exit_code in (0, 1), result.stderr


def test_all_examples_can_be_planned_together(plan: Plan) -> None:
    result = plan.cluster(node("n1", cpu="1")).run("-o", "json", files=tuple(map(str, bundled.examples())))
    assert result.exit_code == 1, result.stderr
    assert "note: Deployment default/nginx is stated in " in result.stderr
    [nginx] = [gang for gang in json.loads(result.stdout)["gangs"] if gang["name"] == "nginx"]
    assert nginx["minMember"] == 4


def test_pods_with_equal_made_up_names_are_renamed(plan: Plan) -> None:
    deployment = workload("Deployment", "apps/v1", replicas=2, selector={"matchLabels": {"app": "x"}}, template=TEMPLATE)
    ending = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    plan.cluster(node("n1", cpu="8")).manifest(deployment, pod("w-0"), workload("Job", "batch/v1", template=ending))
    assert sorted(gang["name"] for gang in plan.gangs()) == ["w-0", "w-0-1", "w-0-2", "w-1"]


def test_workload_that_is_stated_twice_in_a_file_is_bad_input(plan: Plan) -> None:
    deployment = workload("Deployment", "apps/v1", template=TEMPLATE)
    result = plan.cluster(node("n1", cpu="8")).manifest(deployment, deployment).run()
    assert "document 2: metadata.name: Deployment default/w is stated twice" in result.stderr


def test_schema_that_contains_itself_is_bad_input(tmp_path: Path) -> None:
    properties: dict[str, Any] = {"spec": {"type": "object"}}
    properties["spec"]["properties"] = properties
    plan = Plan(tmp_path).cluster(node("n1")).manifest(pod("a"))
    (tmp_path / "crd.yaml").write_text(yaml.safe_dump(custom("x.io", "Odd", properties)))
    answer = plan.run(files=("gangs.yaml", "crd.yaml"))
    assert answer.exit_code == 2
    assert "openAPIV3Schema: is nested too deeply" in answer.output
