"""Tests that effective requests follow the rules of kube-scheduler and the kubelet (component-helpers/resource/helpers.go)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.errors import MalformedError
from allaboard.model.requests import Requests, default_requests, node_allocatable, pod_requests, unstated_requests


def container(name: str = "main", *, limits: Any = None, restart_policy: str | None = None, **requests: Any) -> dict[str, Any]:
    resources = {"requests": requests or None, "limits": limits}
    return {"name": name, "resources": resources, "restartPolicy": restart_policy}


def sidecar(name: str = "sidecar", **requests: Any) -> dict[str, Any]:
    return container(name, restart_policy="Always", **requests)


def requested(*containers: dict[str, Any], status: Any = None, **spec: Any) -> dict[str, int]:
    return dict(pod_requests({"spec": {"containers": list(containers), **spec}, "status": status}))


def test_a_pod_requests_the_sum_of_its_containers_and_one_pod_of_the_nodes_pod_count() -> None:
    assert requested(container(cpu="500m", memory="1Gi"), container(cpu=1, memory="1Mi")) == {
        "cpu": 1500,
        "memory": 2**30 + 2**20,
        "pods": 1,
    }


def test_a_pod_without_requests_requests_only_one_of_the_resource_pods() -> None:
    assert requested({"name": "main"}) == {"pods": 1}


def test_zero_requests_are_left_out() -> None:
    assert requested(container(cpu=0, memory="0")) == {"pods": 1}


def test_limits_do_not_count_as_requests_of_a_pod() -> None:
    assert requested(container(limits={"cpu": 4})) == {"pods": 1}


def test_amounts_are_rounded_after_they_are_summed() -> None:
    assert requested(container(memory="500m"), container(memory="500m"))["memory"] == 1


def test_cpu_request_of_each_container_is_rounded_up_to_milli_cores_as_by_the_api_server() -> None:
    assert requested(container(cpu="500u"), container(cpu="500u"))["cpu"] == 2


def test_largest_init_container_counts_where_its_request_exceeds_the_sum_of_all_containers() -> None:
    init = [container("a", cpu=3, memory="1Mi"), container("b", cpu=2, memory="9Mi")]
    assert requested(container(cpu=2, memory="4Mi"), initContainers=init) == {"cpu": 3000, "memory": 9 * 2**20, "pods": 1}


def test_a_sidecar_runs_beside_the_containers() -> None:
    assert requested(container(cpu=2), initContainers=[sidecar(cpu=1)])["cpu"] == 3000


def test_requests_of_an_init_container_are_added_to_those_of_sidecars_that_start_earlier() -> None:
    after = [sidecar(cpu=2), container("setup", cpu=5)]
    before = [container("setup", cpu=5), sidecar(cpu=2)]
    assert requested(container(cpu=1), initContainers=after)["cpu"] == 7000
    assert requested(container(cpu=1), initContainers=before)["cpu"] == 5000


def test_sidecars_add_up_in_order() -> None:
    init = [sidecar("s1", cpu=1), container("i1", cpu=4), sidecar("s2", cpu=2), container("i2", cpu=3)]
    # i1 beside s1 is 5; i2 beside s1 and s2 is 6; the container beside both sidecars is 4.
    assert requested(container(cpu=1), initContainers=init)["cpu"] == 6000


def test_overhead_is_added_to_the_larger_of_containers_and_init_containers() -> None:
    spec = {"initContainers": [container("init", cpu=3)], "overhead": {"cpu": "250m", "memory": "120Mi"}}
    assert requested(container(cpu=1), **spec) == {"cpu": 3250, "memory": 120 * 2**20, "pods": 1}


def test_pod_level_requests_override_cpu_memory_and_huge_pages_but_nothing_else() -> None:
    pod_level = {"requests": {"cpu": 1, "memory": "2Gi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": 8, "ephemeral-storage": "1Gi"}}
    gpu: dict[str, Any] = {"nvidia.com/gpu": 1}
    main = container(cpu=2, memory="4Gi", **gpu)
    assert requested(main, resources=pod_level, overhead={"cpu": 1}) == {
        "cpu": 2000,
        "memory": 2**31,
        "hugepages-2Mi": 2**22,
        "nvidia.com/gpu": 1,
        "pods": 1,
    }


def status_of(name: str = "main", *, allocated: Any = None, actual: Any = None) -> dict[str, Any]:
    return {"containerStatuses": [{"name": name, "allocatedResources": allocated, "resources": {"requests": actual}}]}


def test_a_pod_that_shrinks_in_place_is_charged_for_what_its_status_says_it_still_has() -> None:
    assert requested(container(cpu=1), status=status_of(allocated={"cpu": 2}, actual={"cpu": 3}))["cpu"] == 3000


def test_a_pod_that_grows_in_place_is_charged_for_what_it_will_have() -> None:
    assert requested(container(cpu=4), status=status_of(allocated={"cpu": 2}, actual={"cpu": 2}))["cpu"] == 4000


def test_a_pod_whose_resize_is_infeasible_is_charged_for_what_it_holds() -> None:
    status = status_of(allocated={"cpu": 2}) | {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
    assert requested(container(cpu=64), status=status)["cpu"] == 2000


def test_a_pod_whose_resize_the_kubelet_defers_is_charged_for_what_it_will_have() -> None:
    status = status_of(allocated={"cpu": 2}) | {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}
    assert requested(container(cpu=8), status=status)["cpu"] == 8000


def test_a_pod_is_charged_for_what_its_resized_sidecar_holds() -> None:
    status = {"initContainerStatuses": [{"name": "sidecar", "allocatedResources": {"cpu": 2}, "resources": {}}]}
    assert requested(container(cpu=1), initContainers=[sidecar(cpu=1)], status=status)["cpu"] == 3000


def test_a_pod_level_request_that_shrinks_in_place_is_charged_as_the_status_states_it() -> None:
    status = {"resources": {"requests": {"cpu": 8}}, "allocatedResources": {"cpu": 8}}
    assert requested(container(cpu="100m"), resources={"requests": {"cpu": 1}}, status=status)["cpu"] == 8000


def vectors() -> list[Any]:
    """Return pods of many kinds, some during a resize, each with the result that ``PodRequests`` of component-helpers v0.37.0 gives.

    The results were computed with UseStatusResources and InPlacePodLevelResourcesVerticalScalingEnabled, as in kube-scheduler 1.37.
    """
    lines = (Path(__file__).parent / "pod_requests.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("vector", vectors())
def test_a_pod_is_counted_as_kube_scheduler_counts_it(vector: dict[str, Any]) -> None:
    assert dict(pod_requests(vector["pod"])) == {**vector["requests"], "pods": 1}


def test_null_counts_as_absent_everywhere() -> None:
    pod = {
        "spec": {
            "containers": [{"name": "main", "resources": None}, container(cpu=None, memory="1Mi")],
            "initContainers": None,
            "overhead": None,
            "resources": None,
        },
        "status": {"containerStatuses": None, "conditions": None},
    }
    assert dict(pod_requests(pod)) == {"memory": 2**20, "pods": 1}
    assert dict(pod_requests({"spec": None, "status": None})) == {"pods": 1}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": "main"}, "spec.containers"),
        ({"containers": ["main"]}, "spec.containers[0]"),
        ({"containers": [{}, {"resources": []}]}, "spec.containers[1].resources"),
        ({"containers": [container(cpu="lots")]}, "spec.containers[0].resources.requests[cpu]"),
        ({"containers": [container(memory="-1Gi")]}, "spec.containers[0].resources.requests[memory]"),
        ({"containers": [{"resources": {"requests": {5: 1}}}]}, "spec.containers[0].resources.requests"),
        ({"initContainers": [container(cpu=[])]}, "spec.initContainers[0].resources.requests[cpu]"),
        ({"initContainers": [{"restartPolicy": 1}]}, "spec.initContainers[0].restartPolicy"),
        ({"overhead": {"cpu": "1 core"}}, "spec.overhead[cpu]"),
        ({"resources": {"requests": {"cpu": True}}}, "spec.resources.requests[cpu]"),
    ],
)
def test_a_malformed_field_of_a_pod_is_reported_with_its_path(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedError) as caught:
        pod_requests({"spec": spec})
    assert caught.value.field == field


def defaulted(**spec: Any) -> dict[str, int]:
    return dict(pod_requests({"spec": default_requests(spec)}))


def test_missing_requests_default_to_the_limits_resource_by_resource() -> None:
    main = container(cpu="500m", limits={"cpu": "1", "nvidia.com/gpu": 1})
    assert defaulted(containers=[main]) == {"cpu": 500, "nvidia.com/gpu": 1, "pods": 1}


def test_init_containers_get_requests_from_limits_too() -> None:
    assert defaulted(containers=[container(cpu=1)], initContainers=[container("init", limits={"cpu": 2})])["cpu"] == 2000


def test_a_null_request_defaults_like_an_absent_one() -> None:
    assert defaulted(containers=[container(cpu=None, limits={"cpu": 1, "memory": None})]) == {"cpu": 1000, "pods": 1}


def test_a_stated_zero_request_is_kept() -> None:
    assert defaulted(containers=[container(cpu=0, limits={"cpu": 1})]) == {"pods": 1}


def test_a_limit_of_the_pod_is_its_request_where_no_container_asks_for_the_resource() -> None:
    pod_level = {"limits": {"cpu": 8, "memory": "8Gi", "nvidia.com/gpu": 1}}
    assert defaulted(containers=[container(cpu=1)], resources=pod_level) == {"cpu": 1000, "memory": 2**33, "pods": 1}


def test_a_huge_page_limit_of_the_pod_is_its_request_whatever_the_containers_say() -> None:
    pages: dict[str, Any] = {"hugepages-2Mi": "2Mi"}
    main = container(**pages)
    assert defaulted(containers=[main], resources={"limits": {"hugepages-2Mi": "8Mi"}})["hugepages-2Mi"] == 2**23


def test_a_stated_request_of_the_pod_is_kept() -> None:
    assert defaulted(containers=[container()], resources={"limits": {"cpu": 8}, "requests": {"cpu": 2}})["cpu"] == 2000


def test_function_default_requests_leaves_the_given_spec_unchanged() -> None:
    spec: dict[str, Any] = {"containers": [container(limits={"cpu": 1})], "resources": {"limits": {"memory": "1Gi"}}}
    before = repr(spec)
    default_requests(spec)
    assert repr(spec) == before


def test_a_node_offers_its_allocatable_without_zeros() -> None:
    node = {"status": {"allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": 110, "nvidia.com/gpu": "0"}, "capacity": {"cpu": 4}}}
    assert dict(node_allocatable(node)) == {"cpu": 3920, "memory": 15 * 2**30, "pods": 110}


def test_a_request_beyond_the_largest_amount_fits_no_node() -> None:
    """A request of 3Pi doesn't fit a node of 2Pi, though both exceed the largest amount."""
    node = {"status": {"allocatable": {"memory": "2Pi"}}}
    assert dict(node_allocatable(node))["memory"] < requested(container(memory="3Pi"))["memory"]


def test_a_malformed_allocatable_is_reported_with_its_path() -> None:
    with pytest.raises(MalformedError) as caught:
        node_allocatable({"status": {"allocatable": {"cpu": "four"}}})
    assert caught.value.field == "status.allocatable[cpu]"


amounts = st.integers(0, 64)


@given(st.lists(amounts, max_size=4), st.lists(st.tuples(amounts, st.booleans()), max_size=5), amounts)
def test_a_pod_requests_the_peak_of_its_start_up(main: list[int], init: list[tuple[int, bool]], overhead: int) -> None:
    """The test counts the peak step by step: sidecars stay, init containers come and go, and containers run at the end."""
    raw_init = [container(f"i{n}", cpu=cpu, restart_policy="Always" if stays else None) for n, (cpu, stays) in enumerate(init)]
    spec = {"initContainers": raw_init, "overhead": {"cpu": overhead}}
    running, peak = 0, 0
    for cpu, stays in init:
        peak = max(peak, running + cpu)
        running += cpu if stays else 0
    peak = max(peak, running + sum(main))
    found = requested(*(container(f"c{n}", cpu=cpu) for n, cpu in enumerate(main)), **spec)
    assert found.get("cpu", 0) == (peak + overhead) * 1000


def test_scores_assume_an_amount_for_each_container_without_requests() -> None:
    def unstated(pod: dict[str, Any]) -> Requests:
        return unstated_requests(pod, pod_requests(pod))

    stated = {"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}
    half = {"resources": {"requests": {"cpu": "0", "memory": None}}}
    assert unstated({"spec": {"containers": [stated]}}) == ()
    assert unstated({"spec": {"containers": [stated, {}]}}) == (("cpu", 100), ("memory", 209_715_200))
    assert unstated({"spec": {"containers": [half, half]}}) == (("memory", 419_430_400),)
    # The init container requests more than scores assume for the container, so nothing is added.
    assert unstated({"spec": {"containers": [{}], "initContainers": [stated]}}) == ()
