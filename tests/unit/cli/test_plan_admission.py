"""Tests that a plan refuses pods that the API server would refuse for their resources, or for a quota or limit of their namespace."""

import json
from typing import Any

import pytest

from tests.unit.cli.plan_command import Plan, gpu_node, pod

GPU = "nvidia.com/gpu"


def pod_with(**resources: dict[str, str]) -> dict[str, Any]:
    return pod("a", containers=[{"name": "main", "image": "i", "resources": resources}])


def of_namespace(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "own", "namespace": "default"}, "spec": spec}


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"requests": {GPU: "1"}}, f"spec.containers[0].resources.limits['{GPU}']: a limit must be set"),
        ({"requests": {GPU: "1"}, "limits": {GPU: "2"}}, f"spec.containers[0].resources.requests['{GPU}']: must be equal to the limit"),
        ({"requests": {"hugepages-2Mi": "2Mi", "cpu": "1"}}, "a limit must be set"),
        ({"limits": {"hugepages-2Mi": "2Mi"}}, "spec.containers[0].resources: huge pages require cpu or memory as well"),
        ({"limits": {"gpu": "1"}}, "spec.containers[0].resources.limits['gpu']: must be a standard resource type"),
    ],
)
def test_error_names_the_field_of_resources_that_the_api_server_refuses(plan: Plan, resources: dict[str, Any], words: str) -> None:
    answer = plan.cluster(gpu_node("n1")).manifest(pod_with(**resources)).run()
    assert answer.exit_code == 2
    assert words in answer.output


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"requests": {"cpu": "1"}}, "spec.resources.requests[cpu]: '1' is less than the 2 that its containers request"),
        ({"limits": {"cpu": "1"}}, "spec.resources.limits[cpu]: '1' is less than the 2 that its containers request"),
        ({"limits": {"cpu": "3"}}, "spec.containers[0].resources.limits[cpu]: '4' is more than the pod's limit of '3'"),
        ({"requests": {"cpu": "6"}, "limits": {"cpu": "5"}}, "spec.resources.requests[cpu]: '6' is more than the limit of '5'"),
        ({"limits": {GPU: "1"}}, f"spec.resources.limits['{GPU}']: is not one of cpu, memory and hugepages-"),
    ],
)
def test_resources_of_a_pod_must_not_be_less_than_those_of_its_containers(plan: Plan, resources: dict[str, Any], words: str) -> None:
    asked = {**pod_with(requests={"cpu": "2"}, limits={"cpu": "4"})}
    asked["spec"]["resources"] = resources
    answer = plan.cluster(gpu_node("n1")).manifest(asked).run()
    assert answer.exit_code == 2
    assert words in answer.output
    asked["spec"]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    assert plan.manifest(asked).run().exit_code == 0


def test_equal_request_and_limit_in_different_notations_are_admitted(plan: Plan) -> None:
    resources = {"requests": {GPU: "1", "cpu": "1"}, "limits": {GPU: "1000m"}}
    assert plan.cluster(gpu_node("n1")).manifest(pod_with(**resources)).run().exit_code == 0


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        (of_namespace("ResourceQuota", hard={"pods": "0"}), "exceeded quota: own"),
        (of_namespace("LimitRange", limits=[{"type": "Container", "max": {"cpu": "500m"}}]), "is more than the limit of 500m"),
    ],
)
def test_quota_and_limit_range_of_the_manifests_apply(plan: Plan, beside: dict[str, Any], words: str) -> None:
    answer = plan.cluster(gpu_node("n1")).manifest(beside, pod_with(requests={"cpu": "1"})).run()
    assert answer.exit_code == 1
    assert words in answer.output


def test_invalid_quota_of_the_manifests_is_bad_input(plan: Plan) -> None:
    answer = plan.cluster(gpu_node("n1")).manifest(of_namespace("ResourceQuota", hard={"cpu": "abc"}), pod_with()).run()
    assert answer.exit_code == 2
    assert "spec.hard" in answer.output


def test_last_of_several_quotas_of_one_name_applies(plan: Plan) -> None:
    """A later quota replaces an earlier one of the same file or of another file. A quota of the manifests replaces that of the cluster."""
    quota, pods = of_namespace("ResourceQuota", hard={"pods": "1"}), [pod("a"), pod("b")]
    more = of_namespace("ResourceQuota", hard={"pods": "2"})
    plan.cluster(gpu_node("n1"), quota).manifest(quota, more, *pods)
    (plan.folder / "again.yaml").write_text(json.dumps(more))
    assert plan.run().exit_code == 0
    assert plan.run(files=("gangs.yaml", "again.yaml")).exit_code == 0
    assert "exceeded quota: own" in plan.manifest(more, quota, *pods).run().output


def test_quota_with_scopes_replaces_the_quota_of_its_name_without_scopes(plan: Plan) -> None:
    scoped = of_namespace("ResourceQuota", hard={"pods": "0"}, scopes=["BestEffort"])
    plan.cluster(gpu_node("n1"), of_namespace("ResourceQuota", hard={"pods": "0"})).manifest(scoped, pod("a"))
    assert plan.run().exit_code == 0


def test_last_of_several_limit_ranges_of_one_name_applies(plan: Plan) -> None:
    low, high = (of_namespace("LimitRange", limits=[{"type": "Container", "max": {"cpu": cpu}}]) for cpu in ("500m", "2"))
    (plan.folder / "again.yaml").write_text(json.dumps(high))
    plan.cluster(gpu_node("n1"), low).manifest(low, pod("a"))
    assert "maximum cpu usage per Container is 500m" in plan.run().output
    assert plan.run(files=("gangs.yaml", "again.yaml")).exit_code == 0
    assert plan.manifest(high, pod("a")).run().exit_code == 0


def test_last_of_several_priority_classes_of_one_name_applies(plan: Plan) -> None:
    named = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    (plan.folder / "again.yaml").write_text(json.dumps({**named, "value": 1}))
    plan.cluster(gpu_node("n1")).manifest({**named, "value": 5, "globalDefault": True}, pod("a"), pod("b", priority=2))
    assert [gang["name"] for gang in plan.gangs()] == ["a", "b"]
    assert [gang["name"] for gang in plan.gangs(files=("gangs.yaml", "again.yaml"))] == ["b", "a"]
