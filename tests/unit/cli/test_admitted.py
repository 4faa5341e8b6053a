"""A plan refuses the pods that the API server would refuse, by the resources that they name and by what their namespace allows."""

import json
from typing import Any

import pytest

from tests.unit.cli.asking import Plan, gpu_node, pod

GPU = "nvidia.com/gpu"


def asking(**resources: dict[str, str]) -> dict[str, Any]:
    return pod("a", containers=[{"name": "main", "image": "i", "resources": resources}])


def of_namespace(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "own", "namespace": "default"}, "spec": spec}


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"requests": {GPU: "1"}}, f"spec.containers[0].resources.limits['{GPU}']: a limit must be set"),
        ({"requests": {GPU: "1"}, "limits": {GPU: "2"}}, f"spec.containers[0].resources.requests['{GPU}']: must be equal to the limit"),
        ({"requests": {"hugepages-2Mi": "2Mi", "cpu": "1"}}, "a limit must be set"),
        ({"limits": {"hugepages-2Mi": "2Mi"}}, "spec.containers[0].resources: huge pages need cpu or memory beside them"),
        ({"limits": {"gpu": "1"}}, "spec.containers[0].resources.limits['gpu']: must be a standard resource type"),
    ],
)
def test_resources_that_the_api_server_refuses_are_a_mistake_with_a_path(plan: Plan, resources: dict[str, Any], words: str) -> None:
    answer = plan.cluster(gpu_node("n1")).manifest(asking(**resources)).run()
    assert answer.exit_code == 2
    assert words in answer.output


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"requests": {"cpu": "1"}}, "spec.resources.requests[cpu]: '1' is less than the 2 of its containers"),
        ({"limits": {"cpu": "1"}}, "spec.resources.limits[cpu]: '1' is less than the 2 of its containers"),
        ({"limits": {"cpu": "3"}}, "spec.containers[0].resources.limits[cpu]: '4' is more than the pod's limit of '3'"),
        ({"requests": {"cpu": "6"}, "limits": {"cpu": "5"}}, "spec.resources.requests[cpu]: '6' is more than the limit of '5'"),
        ({"limits": {GPU: "1"}}, f"spec.resources.limits['{GPU}']: is none of cpu, memory and hugepages-"),
    ],
)
def test_a_pod_as_a_whole_has_no_less_than_its_containers(plan: Plan, resources: dict[str, Any], words: str) -> None:
    asked = {**asking(requests={"cpu": "2"}, limits={"cpu": "4"})}
    asked["spec"]["resources"] = resources
    answer = plan.cluster(gpu_node("n1")).manifest(asked).run()
    assert answer.exit_code == 2
    assert words in answer.output
    asked["spec"]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    assert plan.manifest(asked).run().exit_code == 0


def test_equal_amounts_in_other_words_are_admitted(plan: Plan) -> None:
    resources = {"requests": {GPU: "1", "cpu": "1"}, "limits": {GPU: "1000m"}}
    assert plan.cluster(gpu_node("n1")).manifest(asking(**resources)).run().exit_code == 0


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        (of_namespace("ResourceQuota", hard={"pods": "0"}), "exceeded quota: own"),
        (of_namespace("LimitRange", limits=[{"type": "Container", "max": {"cpu": "500m"}}]), "is more than the limit of 500m"),
    ],
)
def test_what_the_manifests_allow_a_namespace_counts(plan: Plan, beside: dict[str, Any], words: str) -> None:
    answer = plan.cluster(gpu_node("n1")).manifest(beside, asking(requests={"cpu": "1"})).run()
    assert answer.exit_code == 1
    assert words in answer.output


def test_a_quota_of_the_manifests_that_makes_no_sense_is_a_mistake(plan: Plan) -> None:
    answer = plan.cluster(gpu_node("n1")).manifest(of_namespace("ResourceQuota", hard={"cpu": "abc"}), asking()).run()
    assert answer.exit_code == 2
    assert "spec.hard" in answer.output


def test_a_quota_that_is_stated_again_counts_once(plan: Plan) -> None:
    """The later one of a file, or of two files, replaces the earlier, and that of the manifests the one of the cluster."""
    quota, pods = of_namespace("ResourceQuota", hard={"pods": "1"}), [pod("a"), pod("b")]
    more = of_namespace("ResourceQuota", hard={"pods": "2"})
    plan.cluster(gpu_node("n1"), quota).manifest(quota, more, *pods)
    (plan.folder / "again.yaml").write_text(json.dumps(more))
    assert plan.run().exit_code == 0
    assert plan.run(files=("gangs.yaml", "again.yaml")).exit_code == 0
    assert "exceeded quota: own" in plan.manifest(more, quota, *pods).run().output


def test_a_quota_that_is_given_scopes_no_longer_counts_all_pods(plan: Plan) -> None:
    scoped = of_namespace("ResourceQuota", hard={"pods": "0"}, scopes=["BestEffort"])
    plan.cluster(gpu_node("n1"), of_namespace("ResourceQuota", hard={"pods": "0"})).manifest(scoped, pod("a"))
    assert plan.run().exit_code == 0


def test_a_limit_range_that_is_stated_again_replaces_the_earlier(plan: Plan) -> None:
    low, high = (of_namespace("LimitRange", limits=[{"type": "Container", "max": {"cpu": cpu}}]) for cpu in ("500m", "2"))
    (plan.folder / "again.yaml").write_text(json.dumps(high))
    plan.cluster(gpu_node("n1"), low).manifest(low, pod("a"))
    assert "maximum cpu usage per Container is 500m" in plan.run().output
    assert plan.run(files=("gangs.yaml", "again.yaml")).exit_code == 0
    assert plan.manifest(high, pod("a")).run().exit_code == 0


def test_a_priority_class_that_is_stated_again_replaces_the_earlier(plan: Plan) -> None:
    named = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    (plan.folder / "again.yaml").write_text(json.dumps({**named, "value": 1}))
    plan.cluster(gpu_node("n1")).manifest({**named, "value": 5, "globalDefault": True}, pod("a"), pod("b", priority=2))
    assert [gang["name"] for gang in plan.gangs()] == ["a", "b"]
    assert [gang["name"] for gang in plan.gangs(files=("gangs.yaml", "again.yaml"))] == ["b", "a"]
