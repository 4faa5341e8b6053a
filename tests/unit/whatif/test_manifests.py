"""Test that manifests become the pods that their controllers would create, or an error that names file and field."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.cli import bundled
from allaboard.model.pod import PLAIN, pod_from
from allaboard.whatif.documents import Document, Origin, read_documents
from allaboard.whatif.manifests import Expanded, ManifestError, Manifests, read_manifests, refuse_mistakes
from allaboard.whatif.snapshots import read_cluster
from allaboard.whatif.workloads import MAX_PODS

CONTAINER = {"name": "main", "image": "busybox", "resources": {"limits": {"cpu": "1"}}}


def template(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": None, "labels": {"app": "x"}, "annotations": {"note": "y"}},
        "spec": {"schedulerName": "allaboard", "containers": [CONTAINER], **spec},
    }


def workload(kind: str, api_version: str, /, **spec: Any) -> dict[str, Any]:
    if api_version == "apps/v1":
        spec = {"selector": {"matchLabels": {"app": "x"}}, **spec}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w", "creationTimestamp": None}, "spec": spec}


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [CONTAINER], **spec}}


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(*objects: Any, namespace: str = "default") -> Manifests:
        file = tmp_path / "manifest.yaml"
        file.write_text("\n---\n".join(value if isinstance(value, str) else json.dumps(value) for value in objects))
        return read_manifests([str(file)], namespace)

    return read


def names(expanded: list[Expanded]) -> list[str]:
    return [found.raw["metadata"]["name"] for found in expanded]


def labels(expanded: Expanded) -> dict[str, str]:
    found: dict[str, str] = expanded.raw["metadata"]["labels"]
    return found


# Reading files


def test_documents_of_a_yaml_file_are_read_in_order_without_empty_ones(read: Any) -> None:
    assert names(read(pod("b"), "# nothing\n", pod("a")).pods) == ["b", "a"]


def test_items_of_a_list_are_read_like_objects_of_a_file(read: Any) -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [pod("c")]}
    assert names(read({"apiVersion": "v1", "kind": "List", "items": [pod("a"), pod("b"), inner]}).pods) == ["a", "b", "c"]


def test_items_of_a_typed_list_need_no_kind_of_their_own(read: Any) -> None:
    bare = {key: value for key, value in pod("a").items() if key not in ("kind", "apiVersion")}
    assert names(read({"apiVersion": "v1", "kind": "PodList", "items": [bare]}).pods) == ["a"]


@pytest.mark.parametrize("suffix", [".json", ".yaml", ""])
def test_json_is_read_from_a_file_of_any_name(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"pods{suffix}"
    file.write_text("\ufeff" + json.dumps(pod("a"), indent=2) + "\n" + json.dumps(pod("b")))
    assert names(read_manifests([str(file)]).pods) == ["a", "b"]


def test_yaml_that_begins_with_a_brace_is_read(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: i}]}}")
    assert names(read_manifests([str(file)]).pods) == ["a"]


def test_manifests_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps(pod("b")))
    (tmp_path / "a.yaml").write_text(json.dumps(pod("a")))
    (tmp_path / "README.md").write_text("# read me")
    assert names(read_manifests([str(tmp_path)]).pods) == ["a", "b"]


def stdin(monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))


def test_dash_means_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, json.dumps(pod("a")))
    assert names(read_manifests(["-"]).pods) == ["a"]


def test_standard_input_is_read_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, json.dumps(pod("a")))
    with pytest.raises(ManifestError, match="standard input: can be read only once"):
        read_manifests(["-", "-"])


def test_times_and_clock_like_values_stay_text(read: Any) -> None:
    text = """
    apiVersion: v1
    kind: Pod
    metadata:
      name: a
      creationTimestamp: 2026-01-02T03:04:05Z
      annotations: {at: 12:30, day: 2026-01-02}
    spec:
      containers: [{name: main, image: i, resources: {requests: {cpu: 0.1, memory: 1e3}}}]
    """
    [found] = read(text).pods
    assert found.raw["metadata"]["annotations"] == {"at": "12:30", "day": "2026-01-02"}
    assert dict(pod_from(found.raw).spec.requests) == {"cpu": 100, "memory": 1000, "pods": 1}


# Expanding workloads


def test_requests_default_to_limits(read: Any) -> None:
    [found] = read(pod()).pods
    assert dict(pod_from(found.raw).spec.requests) == {"cpu": 1000, "pods": 1}


def test_pods_of_manifests_get_a_namespace_a_stable_uid_and_creation_times_in_the_order_of_the_manifests(read: Any) -> None:
    first = [pod_from(found.raw) for found in read(pod("b"), pod("a"), namespace="ml").pods]
    again = [pod_from(found.raw) for found in read(pod("b"), pod("a"), namespace="ml").pods]
    assert first == again
    assert [found.key for found in first] == ["ml/b", "ml/a"]
    assert [found.uid for found in first] == ["manifest:ml/b", "manifest:ml/a"]
    assert first[0].created < first[1].created


def test_namespace_that_an_object_states_takes_precedence_over_the_given_one(read: Any) -> None:
    stated = pod() | {"metadata": {"name": "a", "namespace": "prod"}}
    assert read(stated, namespace="ml").pods[0].raw["metadata"]["namespace"] == "prod"


def test_pod_from_a_cluster_keeps_its_uid_node_and_status(read: Any) -> None:
    live = pod("a", nodeName="n1", priority=7) | {"status": {"phase": "Running"}}
    live["metadata"] |= {"uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "5"}
    found = pod_from(read(live).pods[0].raw)
    assert (found.uid, found.node_name, found.phase, found.priority, found.resource_version) == ("u1", "n1", "Running", 7, "5")
    assert found.created > 1e9


def test_generate_name_is_completed_by_a_number(read: Any) -> None:
    generated = [pod() | {"metadata": {"generateName": "run-"}} for _ in range(2)]
    assert names(read(*generated).pods) == ["run-0", "run-1"]


def test_null_fields_count_as_absent(read: Any) -> None:
    nulls = template(affinity=None, tolerations=None, nodeSelector=None, volumes=None, initContainers=None, overhead=None)
    nulls["metadata"] |= {"annotations": None, "labels": {"a": None, "app": "x"}}
    found = read(workload("Deployment", "apps/v1", replicas=None, template=nulls, strategy=None) | {"status": None}).pods
    assert names(found) == ["w-0"]


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_replicas_of_a_deployment_belong_to_a_replica_set(read: Any, kind: str) -> None:
    found = read(workload(kind, "apps/v1", replicas=3, template=template())).pods
    assert names(found) == ["w-0", "w-1", "w-2"]
    [owner] = found[0].raw["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ReplicaSet", "w", True)
    assert labels(found[0]) == {"app": "x"}
    assert found[0].raw["metadata"]["annotations"] == {"note": "y"}
    assert found[0].raw["spec"]["schedulerName"] == "allaboard"


def test_pods_of_a_stateful_set_have_ordinals_and_their_own_claims(read: Any) -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    spec = {"replicas": 2, "ordinals": {"start": 5}, "volumeClaimTemplates": claims, "template": template()}
    found = read(workload("StatefulSet", "apps/v1", **spec)).pods
    assert names(found) == ["w-5", "w-6"]
    assert labels(found[1]) == {"app": "x", "statefulset.kubernetes.io/pod-name": "w-6", "apps.kubernetes.io/pod-index": "6"}
    assert [pod_from(pod.raw).spec.claims for pod in found] == [("data-w-5",), ("data-w-6",)]


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 4}, 4),
        ({"completions": 3}, 1),
        ({"parallelism": 4, "completions": 3}, 3),
        ({"parallelism": 2, "completions": 1_000_000}, 2),
        ({"parallelism": 1_000_000, "suspend": True}, 0),
        ({"parallelism": None, "completions": None}, 1),
        ({"parallelism": 0}, 0),
        ({"parallelism": 4, "suspend": True}, 0),
    ],
)
def test_job_runs_its_parallelism_but_no_more_than_its_completions(read: Any, spec: dict[str, Any], count: int) -> None:
    found = read(workload("Job", "batch/v1", template=template(restartPolicy="Never"), **spec))
    assert len(found.pods) == count
    assert bool(found.notes) == (count == 0)


def test_pods_of_an_indexed_job_carry_the_labels_of_the_job_controller(read: Any) -> None:
    found = read(workload("Job", "batch/v1", parallelism=2, completionMode="Indexed", template=template(restartPolicy="Never"))).pods
    uid = found[0].raw["metadata"]["ownerReferences"][0]["uid"]
    assert labels(found[1]) == {
        "app": "x",
        "job-name": "w",
        "controller-uid": uid,
        "batch.kubernetes.io/job-name": "w",
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-completion-index": "1",
    }


def training_job(kind: str, key: str, /, **counts: int | None) -> dict[str, Any]:
    specs = {replica_type: {"replicas": count, "template": template()} for replica_type, count in counts.items()}
    return workload(kind, "kubeflow.org/v1", **{key: specs})


def test_tfjob_gets_the_pods_that_training_operator_creates(read: Any) -> None:
    found = read(training_job("TFJob", "tfReplicaSpecs", PS=1, Worker=2)).pods
    assert names(found) == ["w-ps-0", "w-worker-0", "w-worker-1"]
    assert labels(found[1]) == {
        "app": "x",
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": "w",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }
    assert "training.kubeflow.org/job-role" not in labels(found[2])
    owner = pod_from(found[2].raw).owner
    assert owner is not None
    assert (owner.api_version, owner.kind, owner.name) == ("kubeflow.org/v1", "TFJob", "w")
    assert owner == pod_from(found[0].raw).owner


def test_master_of_a_pytorchjob_has_the_role_label_master(read: Any) -> None:
    found = read(training_job("PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=None)).pods
    assert names(found) == ["w-master-0", "w-worker-0"]
    assert [labels(pod).get("training.kubeflow.org/job-role") for pod in found] == ["master", None]
    assert labels(found[0])["training.kubeflow.org/operator-name"] == "pytorchjob-controller"


def test_an_mpijob_has_one_launcher_without_an_index(read: Any) -> None:
    assert names(read(training_job("MPIJob", "mpiReplicaSpecs", Launcher=1, Worker=2)).pods) == ["w-launcher", "w-worker-0", "w-worker-1"]


def test_a_suspended_training_job_has_no_pods(read: Any) -> None:
    job = training_job("TFJob", "tfReplicaSpecs", Worker=2)
    job["spec"]["runPolicy"] = {"suspend": True}
    found = read(job)
    assert (found.pods, found.notes) == ([], ["TFJob default/w has no pods: it is suspended or scaled to zero"])


def test_pod_group_is_kept_and_gets_a_namespace(read: Any) -> None:
    group = workload("PodGroup", "scheduling.x-k8s.io/v1alpha1", minMember=3, unknown="kept")
    [found] = read(group, namespace="ml").pod_groups
    assert found.raw["spec"] == {"minMember": 3, "unknown": "kept"}
    assert (found.raw["metadata"]["namespace"], found.raw["metadata"]["uid"]) == ("ml", "manifest:ml/PodGroup/w")


@pytest.mark.parametrize(
    ("kind", "api_version", "title"),
    [
        ("Service", "v1", "Service"),
        ("PodDisruptionBudget", "policy/v1", "PodDisruptionBudget.policy"),
        ("LocalQueue", "kueue.x-k8s.io/v1beta1", "LocalQueue.kueue.x-k8s.io"),
    ],
)
def test_objects_that_create_no_pods_are_skipped_with_a_note(read: Any, kind: str, api_version: str, title: str) -> None:
    found = read(workload(kind, api_version))
    assert (found.pods, found.pod_groups) == ([], [])
    assert found.notes == [f"skipped {title} default/w: objects of this kind are not expanded into pods"]


def test_names_of_skipped_objects_are_not_checked(read: Any) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:node"}}
    assert len(read(role).notes) == 1


# Bad input


def refused(read: Any, *objects: Any) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        read(*objects)
    assert caught.value.file.endswith("manifest.yaml")
    assert str(caught.value).startswith(caught.value.file)
    return caught.value


def deployment(**spec: Any) -> dict[str, Any]:
    return workload("Deployment", "apps/v1", **{"template": template(), **spec})


def cron_job(schedule: str, **spec: Any) -> dict[str, Any]:
    return workload("CronJob", "batch/v1", schedule=schedule, jobTemplate={"spec": {"template": template()}}, **spec)


def container(**resources: Any) -> dict[str, Any]:
    return {**CONTAINER, "resources": resources}


@pytest.mark.parametrize(
    ("manifest", "field", "problem"),
    [
        ({"apiVersion": "v1", "metadata": {"name": "x"}}, "kind", "is missing"),
        ({"kind": "Pod", "metadata": {"name": "x"}}, "apiVersion", "is missing"),
        ({"apiVersion": 1, "kind": "Pod"}, "apiVersion", "1 is not a string"),
        (pod() | {"kind": ["Pod"]}, "kind", "['Pod'] is not a string"),
        (pod() | {"metadata": {}}, "metadata.name", "is missing"),
        (pod() | {"metadata": None}, "metadata.name", "is missing"),
        (pod() | {"metadata": "x"}, "metadata", "'x' is not an object"),
        (pod() | {"metadata": {"name": 5}}, "metadata.name", "5 is not a string"),
        (pod("Not A Name"), "metadata.name", "'Not A Name' is not a valid name: at most 253 characters of a-z, 0-9, '-' and '.'"),
        (pod() | {"metadata": {"name": "x", "namespace": "A"}}, "metadata.namespace", None),
        (pod() | {"metadata": {"name": "x", "labels": {"a": 1}}}, "metadata.labels[a]", "1 is not a string"),
        (pod() | {"metadata": {"name": "x", "annotations": []}}, "metadata.annotations", "[] is not an object"),
        (pod() | {"metadata": {"name": "x", "uid": 7}}, "metadata.uid", "7 is not a string"),
        (pod() | {"spec": None}, "spec.containers", "is missing; a pod needs at least one container"),
        (pod(containers=[]), "spec.containers", None),
        (pod(containers="main"), "spec.containers", "'main' is not a list"),
        (pod(containers=[container(limits={"cpu": "1 core"})]), "spec.containers[0].resources.limits[cpu]", None),
        (pod(containers=[container(requests={"memory": "-1Gi"})]), "spec.containers[0].resources.requests[memory]", None),
        (pod(priority="high"), "spec.priority", "'high' is not a whole number"),
        (pod(schedulerName=1), "spec.schedulerName", "1 is not a string"),
        (pod(hostNetwork="true"), "spec.hostNetwork", "'true' is not true or false"),
        (deployment(replicas=-1), "spec.replicas", "-1 is negative"),
        (deployment(replicas=float("nan")), "spec.replicas", "nan is not a whole number"),
        (deployment(replicas="3"), "spec.replicas", "'3' is not a whole number"),
        (deployment(replicas=2.5), "spec.replicas", "2.5 is not a whole number"),
        (deployment(replicas=True), "spec.replicas", "True is not a whole number"),
        (deployment(replicas=10_000_000), "spec", "10000000 pods of one workload are more than the 5000 that are supported"),
        (
            training_job("TFJob", "tfReplicaSpecs", PS=2000, Worker=3001),
            "spec.tfReplicaSpecs.Worker",
            "5001 pods of one workload are more than the 5000 that are supported",
        ),
        (deployment(template=None), "spec.template", "is missing"),
        (deployment(template=[]), "spec.template", "[] is not an object"),
        (deployment(template={"metadata": {"labels": {"app": "x"}}}), "spec.template.spec.containers", None),
        (deployment(template=template(nodeSelector={"zone": 1})), "spec.template.spec.nodeSelector[zone]", "1 is not a string"),
        (deployment(template={**template(), "metadata": {"labels": 5}}), "spec.template.metadata.labels", "5 is not an object"),
        (workload("Job", "batch/v1", parallelism="x", template=template()), "spec.parallelism", None),
        (workload("Job", "batch/v1", completions=-2, template=template()), "spec.completions", "-2 is negative"),
        (workload("StatefulSet", "apps/v1", ordinals={"start": -1}, template=template()), "spec.ordinals.start", "-1 is negative"),
        (workload("TFJob", "kubeflow.org/v1"), "spec.tfReplicaSpecs", "is missing"),
        (workload("TFJob", "kubeflow.org/v1", tfReplicaSpecs={"Worker": 4}), "spec.tfReplicaSpecs.Worker", "4 is not an object"),
        (training_job("TFJob", "tfReplicaSpecs", Worker=-4), "spec.tfReplicaSpecs.Worker.replicas", "-4 is negative"),
        (
            workload(
                "TFJob", "kubeflow.org/v1", tfReplicaSpecs={"PS": {"template": template(containers=[container(limits={"cpu": "x"})])}}
            ),
            "spec.tfReplicaSpecs.PS.template.spec.containers[0].resources.limits[cpu]",
            "'x' is not a quantity such as 500m, 2 or 16Gi",
        ),
        (pod(containers=[{"name": "main"}]), "spec.containers[0].image", "is missing"),
        (pod(containers=[{"image": "i"}]), "spec.containers[0].name", "is missing"),
        (
            pod(containers=[{**CONTAINER, "name": "A_b"}]),
            "spec.containers[0].name",
            "'A_b' is not a valid name: at most 63 characters of a-z, 0-9 and '-'",
        ),
        (pod(containers=[{**CONTAINER, "image": " i"}]), "spec.containers[0].image", "' i' must not begin or end with a blank"),
        (pod(initContainers=[CONTAINER]), "spec.initContainers[0].name", "'main' is the name of another container, too"),
        (pod(initContainers=[{"name": "i"}]), "spec.initContainers[0].image", "is missing"),
        (pod(restartPolicy="never"), "spec.restartPolicy", "'never' is not Always or OnFailure or Never"),
        (
            pod(containers=[container(requests={"cpu": "2"}, limits={"cpu": "1"})]),
            "spec.containers[0].resources.requests[cpu]",
            "'2' is more than the limit of '1'",
        ),
        (
            deployment(replicas=0, template=template(containers=[container(limits={"gpu": "1"})])),
            "spec.template.spec.containers[0].resources.limits['gpu']",
            "must be a standard resource type or fully qualified",
        ),
        (pod(tolerations=[{"operator": "exists"}]), "spec.tolerations[0].operator", "'exists' is not Equal or Exists"),
        (pod(tolerations=[{"key": "a", "effect": "no"}]), "spec.tolerations[0].effect", None),
        (pod(tolerations=[{"operator": "Exists", "value": "x"}]), "spec.tolerations[0].value", None),
        (pod() | {"metadata": {"name": "x", "labels": {"a b": "c"}}}, "metadata.labels", "'a b' is not a valid key"),
        (pod() | {"metadata": {"name": "x", "labels": {"a": "b c"}}}, "metadata.labels[a]", None),
        (workload("Job", "batch/v1") | {"metadata": {"name": "a" * 64}}, "metadata.name", None),
        (cron_job("@daily") | {"metadata": {"name": "a" * 53}}, "metadata.name", None),
        (deployment(selector=None), "spec.selector", "is missing"),
        (deployment(selector={"matchLabels": {}}), "spec.selector", "is empty"),
        (deployment(template=template(restartPolicy="Never")), "spec.template.spec.restartPolicy", "'Never' is not Always"),
        (workload("StatefulSet", "apps/v1", podManagementPolicy="parallel", template=template()), "spec.podManagementPolicy", None),
        (
            workload("Job", "batch/v1", template=template()),
            "spec.template.spec.restartPolicy",
            "'Always', the default, is not OnFailure or Never",
        ),
        (
            workload("Job", "batch/v1", suspend=True, template=template(restartPolicy="Always")),
            "spec.template.spec.restartPolicy",
            "'Always' is not OnFailure or Never",
        ),
        (workload("Job", "batch/v1", completionMode="indexed", template=template(restartPolicy="Never")), "spec.completionMode", None),
        (cron_job("@daily"), "spec.jobTemplate.spec.template.spec.restartPolicy", "'Always', the default, is not OnFailure or Never"),
        (cron_job("@daily", concurrencyPolicy="forbid"), "spec.concurrencyPolicy", None),
        (cron_job(""), "spec.schedule", "is missing"),
        ({"apiVersion": "v1", "kind": "List", "items": {"a": 1}}, "items", "{'a': 1} is not a list"),
        ({"apiVersion": "v1", "kind": "List", "items": [pod("a"), 5]}, "items[1]", "5 is not an object"),
        ({"apiVersion": "v1", "kind": "List", "items": [deployment(replicas=-1)]}, "items[0].spec.replicas", "-1 is negative"),
        ("just text", "", "'just text' is not an object"),
        ("[1, 2]", "", "[1, 2] is not an object"),
    ],
)
def test_invalid_field_is_reported_with_its_document_and_path(read: Any, manifest: Any, field: str, problem: str | None) -> None:
    found = refused(read, manifest)
    assert (found.document, found.field) == (1, field)
    assert problem is None or found.problem == problem


def test_error_message_names_file_document_and_field(read: Any) -> None:
    found = refused(read, pod("a"), pod("b"), pod("c", priority="x"))
    assert str(found) == f"{found.file}: document 3: spec.priority: 'x' is not a whole number"


def test_object_that_one_file_states_twice_is_refused(read: Any) -> None:
    found = refused(read, pod("a"), pod("a"))
    assert (found.document, found.field) == (2, "metadata.name")
    assert found.problem == f"Pod default/a is stated twice; first in {found.file}, document 1"


def test_workloads_together_may_not_exceed_the_limit_of_pods(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.whatif.manifests.MAX_PODS", 5)
    two = {"apiVersion": "v1", "kind": "List", "items": [deployment(replicas=3), {**deployment(replicas=3), "metadata": {"name": "v"}}]}
    assert refused(read, two).problem == "brings the plan to more than 5 pods"
    assert MAX_PODS == 20_000


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "holds no objects"),
        ("---\n# only a comment\n---\n", "holds no objects"),
        ("kind: Pod\n  bad: indent\n", "is not YAML: mapping values are not allowed in this context (line 2)"),
        ("a: [1, 2\n", "is not YAML"),
        ("{{ .Values.name }}\n", "is not YAML"),
        ("a: \x00", "is not YAML"),
        ("kind: !!python/object:os.system {}", "is not YAML: could not determine a constructor"),
        (f"replicas: {'9' * 5000}", "holds a number of more than 256 digits"),
        ("[" * 100_000, "is"),
    ],
)
def test_file_that_is_not_valid_yaml_is_refused(read: Any, content: str, problem: str) -> None:
    found = refused(read, content)
    assert (found.document, found.field) == (0, "")
    assert problem in found.problem


def test_error_in_a_json_file_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "pod.json"
    file.write_text('{"kind": "Pod",\n "metadata": }')
    with pytest.raises(ManifestError, match=r"is not JSON: Expecting value \(line 2\)"):
        read_manifests([str(file)])


def test_file_that_is_not_utf_8_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match="is not UTF-8 text"):
        read_manifests([str(file)])


def test_error_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"nowhere.yaml: can't be read: No such file or directory"):
        read_manifests([str(tmp_path / "nowhere.yaml")])


def test_folder_without_manifests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="is a folder without"):
        read_manifests([str(tmp_path)])


# Clusters


def node(name: str = "n1", **allocatable: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": allocatable or {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def cluster_file(tmp_path: Path, *items: Any) -> str:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}))
    return str(file)


def test_cluster_has_the_nodes_pods_and_pod_groups_of_its_files(tmp_path: Path) -> None:
    group = workload("PodGroup", "scheduling.x-k8s.io/v1alpha1", minMember=2)
    found = read_cluster([cluster_file(tmp_path, node("n1"), pod("a", nodeName="n1"), node("n2"), workload("Service", "v1"), group)], PLAIN)
    assert [known.name for known in found.nodes] == ["n1", "n2"]
    assert [(known.key, known.node_name) for known in found.pods] == [("default/a", "n1")]
    assert [known.raw["metadata"]["name"] for known in found.pod_groups] == ["w"]


def test_cluster_may_be_several_files_and_typed_lists(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.json", tmp_path / "pods.yaml"
    bare = {key: value for key, value in node().items() if key not in ("kind", "apiVersion")}
    nodes.write_text(json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": [bare]}))
    pods.write_text("kind: List\napiVersion: v1\nitems:\n- {kind: Pod, metadata: {name: a}}\n")
    found = read_cluster([str(nodes), str(pods)], PLAIN)
    assert (len(found.nodes), len(found.pods)) == (1, 1)


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (node(cpu="four"), "items[0].status.allocatable[cpu]"),
        (node("") | {"metadata": {}}, "items[0].metadata.name"),
        (pod("a", containers=[container(requests={"cpu": "x"})]), "items[0].spec.containers[0].resources.requests[cpu]"),
        ({"kind": "Pod", "spec": {}}, "items[0].metadata.name"),
        ({"metadata": {"name": "x"}}, "items[0].kind"),
    ],
)
def test_invalid_field_of_a_cluster_file_is_reported_with_its_path(tmp_path: Path, item: Any, field: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_cluster([cluster_file(tmp_path, item)], PLAIN)
    assert caught.value.field == field
    assert caught.value.file.endswith("cluster.json")


# Arbitrary input

KINDS = [("v1", "Pod"), ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job"), ("kubeflow.org/v1", "TFJob")]
KINDS += [("scheduling.x-k8s.io/v1alpha1", "PodGroup"), ("v1", "List")]
WORDS = ["name", "namespace", "labels", "spec", "template", "metadata", "containers", "resources", "limits", "replicas", "parallelism"]
WORDS += ["tfReplicaSpecs", "Worker", "volumeClaimTemplates", "ordinals", "cpu", "items", "uid", "priorityClassName", "status"]
keys = st.sampled_from(WORDS)
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.integers(0, 3), inner, max_size=5),
    max_leaves=20,
)


@given(st.sampled_from(KINDS), junk, st.dictionaries(keys, junk, max_size=4))
def test_arbitrary_objects_raise_nothing_but_manifest_error(kind: tuple[str, str], spec: Any, extra: dict[str, Any]) -> None:
    raw = {**extra, "apiVersion": kind[0], "kind": kind[1], "metadata": {**extra, "name": "x"}, "spec": spec}
    with pytest.MonkeyPatch.context() as patch:
        documents = [Document(raw, kind=kind[1], api_version=kind[0], origin=Origin("f", 1))]
        patch.setattr("allaboard.whatif.manifests.read_documents", lambda paths: documents)
        try:
            for found in read_manifests(["f"]).pods:
                pod_from(found.raw)
        except ManifestError as error:
            assert error.file == "f"


@pytest.mark.parametrize("content", ["- " * 60_000, "[" * 60_000, "{a: " * 60_000])
def test_deeply_nested_content_is_refused(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, content)
    with pytest.raises(ManifestError, match="standard input: is nested too deeply"):
        list(read_documents(["-"]))


@given(st.text(max_size=40) | st.text(alphabet="{}[]:-,&*!|>'\"%@ \n#a1", max_size=40))
def test_arbitrary_text_is_read_or_raises_manifest_error(content: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stdin(patch, content.encode(errors="ignore").decode())
        try:
            list(read_documents(["-"]))
        except ManifestError as error:
            assert error.file == "standard input"


def test_kind_that_the_cluster_does_not_serve_is_refused(read: Any) -> None:
    found = read(pod("a"), training_job("TFJob", "tfReplicaSpecs", Worker=1))
    refuse_mistakes(found, [], are_all=False, skip_unknown=False)
    with pytest.raises(ManifestError, match=r"document 2: kind: the cluster doesn't serve TFJob \(kubeflow.org/v1\)"):
        refuse_mistakes(found, bundled.crds(), are_all=True, skip_unknown=False)
    defined = {"spec": {"group": "kubeflow.org", "names": {"kind": "TFJob"}, "versions": [{"name": "v1"}]}}
    refuse_mistakes(found, [defined], are_all=True, skip_unknown=False)
