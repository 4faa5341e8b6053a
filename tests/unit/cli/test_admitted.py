"""A plan refuses the pods that the API server would refuse, by the resources that they name and by what their namespace allows."""

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
        ({"requests": {"hugepages-2Mi": "2Mi"}}, "a limit must be set"),
        ({"limits": {"gpu": "1"}}, "spec.containers[0].resources.limits['gpu']: must be a standard resource type"),
    ],
)
def test_resources_that_the_api_server_refuses_are_a_mistake_with_a_path(plan: Plan, resources: dict[str, Any], words: str) -> None:
    answer = plan.cluster(gpu_node("n1")).manifest(asking(**resources)).run()
    assert answer.exit_code == 2
    assert words in answer.output


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
