"""Admission of pods: defaults are filled in, and invalid pods are refused."""

from typing import Any

import pytest

from allaboard_sandbox import ApiError
from tests.cluster import Cluster

from .conftest import pod


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "main", "image": "busybox:1", "resources": resources}


async def test_defaults_of_a_pod_are_filled_in(cluster: Cluster) -> None:
    created = cluster.create(pod())
    spec = created["spec"]
    assert (spec["schedulerName"], spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("default-scheduler", "Always", 30)
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert (created["status"]["phase"], created["status"]["qosClass"]) == ("Pending", "BestEffort")
    assert created["metadata"]["generation"] == 1


async def test_requests_default_to_limits_per_resource(cluster: Cluster) -> None:
    both = container(limits={"cpu": "2", "nvidia.com/gpu": 4}, requests={"cpu": "500m"})
    created = cluster.create(pod(containers=[both], initContainers=[{**container(limits={"cpu": 1}), "name": "init"}]))
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "nvidia.com/gpu": "4"}
    assert created["spec"]["initContainers"][0]["resources"]["requests"] == {"cpu": "1"}


async def test_default_tolerations_are_added_unless_the_pod_has_its_own(cluster: Cluster) -> None:
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    tolerations = cluster.create(pod(tolerations=[own]))["spec"]["tolerations"]
    assert [(each["key"], each["tolerationSeconds"]) for each in tolerations] == [
        ("node.kubernetes.io/not-ready", 5),
        ("node.kubernetes.io/unreachable", 300),
    ]


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1000m", "memory": "1Gi"}, "requests": {"cpu": "1"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
    ],
)
async def test_the_quality_of_service_follows_from_requests_and_limits(resources: dict[str, Any], quality: str, cluster: Cluster) -> None:
    assert cluster.create(pod(containers=[container(**resources)]))["status"]["qosClass"] == quality


async def test_a_priority_class_sets_priority_and_preemption(cluster: Cluster) -> None:
    cluster.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "low"},
            "value": 7,
            "preemptionPolicy": "Never",
        }
    )
    spec = await created_when_the_class_is_known(cluster, "low", priorityClassName="low")
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")


async def test_the_global_default_priority_class_applies_to_pods_without_a_class(cluster: Cluster) -> None:
    cluster.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "usual"},
            "value": 3,
            "globalDefault": True,
        }
    )
    spec = await created_when_the_class_is_known(cluster, "usual")
    assert spec["priority"] == 3


async def created_when_the_class_is_known(cluster: Cluster, name: str, **spec: Any) -> dict[str, Any]:
    """Create pods until admission knows the priority class, and return the spec of the pod that has the class.

    Admission learns of a class through a watch, a moment after the class is created.
    """
    found: list[dict[str, Any]] = []

    def is_known(home: Cluster) -> bool:
        try:
            found.append(home.create({**pod(**spec), "metadata": {"generateName": "p-"}})["spec"])
        except ApiError as error:
            assert error.status == 403
            return False
        return found[-1].get("priorityClassName") == name

    await cluster.wait_for(is_known)
    return found[-1]


async def test_an_unknown_priority_class_is_forbidden(cluster: Cluster) -> None:
    with pytest.raises(ApiError) as refused:
        cluster.create(pod("x", priorityClassName="foo"))
    assert refused.value.status == 403
    assert refused.value.message == 'pods "x" is forbidden: no PriorityClass with name foo was found'


async def test_a_gated_pod_has_the_condition_scheduling_gated(cluster: Cluster) -> None:
    (condition,) = cluster.create(pod(schedulingGates=[{"name": "wait"}]))["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


async def test_scheduling_gates_can_be_removed_but_not_added(cluster: Cluster) -> None:
    cluster.create(pod(schedulingGates=[{"name": "a"}, {"name": "b"}]))
    cluster.patch("pods", "p", {"spec": {"schedulingGates": [{"name": "b"}]}})
    with pytest.raises(ApiError, match="only deletion is allowed, but found new scheduling gate"):
        cluster.patch("pods", "p", {"spec": {"schedulingGates": [{"name": "b"}, {"name": "c"}]}})


async def test_a_pods_node_cannot_be_patched(cluster: Cluster) -> None:
    cluster.create(pod())
    with pytest.raises(ApiError, match="spec: Forbidden: pod updates may not change fields other than") as refused:
        cluster.patch("pods", "p", {"spec": {"nodeName": "node-1"}})
    assert (refused.value.status, refused.value.reason) == (422, "Invalid")


async def test_the_image_of_a_pod_may_change(cluster: Cluster) -> None:
    created = cluster.create(pod())
    changed = [{**created["spec"]["containers"][0], "image": "busybox:2"}]
    patched = cluster.patch("pods", "p", {"spec": {"containers": changed}})
    assert patched["spec"]["containers"][0]["image"] == "busybox:2"
    assert patched["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"metadata": {"name": "My_Pod"}}, 422, 'metadata.name: Invalid value: "My_Pod": a lowercase RFC 1123 subdomain'),
        ({"metadata": {"name": "p", "labels": {"a": "no spaces"}}}, 422, 'metadata.labels: Invalid value: "no spaces"'),
        ({"metadata": {"name": "p", "labels": {"a": "x" * 64}}}, 422, "must be no more than 63 (bytes|characters)"),  # bytes since 1.36
        ({"spec": "x"}, 400, r"unmarshal string into Go struct field Pod.spec of type v1.PodSpec"),
        (
            {"spec": {"containers": ["x"]}},
            400,
            r"cannot unmarshal string into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            {"metadata": {"name": "p", "labels": ["a"]}},
            400,
            r"array into Go struct field ObjectMeta.metadata.labels of type map\[string\]string",
        ),
        ({"metadata": {}}, 422, "name or generateName is required"),
        ({"spec": {"containers": []}}, 422, "spec.containers: Required value"),
        ({"spec": {"containers": [{"name": "main"}]}}, 422, r"spec.containers\[0\].image: Required value"),
        ({"spec": {"containers": [container(requests={"cpu": "1 core"})]}}, 400, "quantities must match the regular expression"),
        ({"spec": {"containers": [container(requests={"nvidia.com/gpu": 1})]}}, 422, "Limit must be set for non overcommitable"),
        ({"spec": {"containers": [container(requests={"cpu": 2}, limits={"cpu": 1})]}}, 422, "must be less than or equal to cpu limit"),
        ({"metadata": {"name": "p", "namespace": "nowhere"}}, 404, 'namespaces "nowhere" not found'),
    ],
)
async def test_invalid_pods_are_refused_as_by_a_real_api_server(
    change: dict[str, Any], status: int, message: str, cluster: Cluster
) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        cluster.create({**pod(), **change})
    assert refused.value.status == status


async def test_null_fields_are_treated_as_absent(cluster: Cluster) -> None:
    body = pod(nodeSelector=None, affinity=None)
    body["metadata"]["creationTimestamp"] = None
    created = cluster.create(body)
    assert not {"nodeSelector", "affinity"} & created["spec"].keys()
    assert created["metadata"]["creationTimestamp"]


async def test_a_generated_name_starts_with_its_prefix(cluster: Cluster) -> None:
    body = {**pod(), "metadata": {"generateName": "job-"}}
    names = {cluster.create(body)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("job-") and len(name) == 9 for name in names)
