"""The stand-in for training-operator's TFJob controller does what training-operator 1.9 was observed to do."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from allaboard_sandbox import Sandbox
from allaboard_sandbox.api import WriteOptions
from allaboard_sandbox.binding import bind

Body = dict[str, Any]
CRDS = Path(__file__).parents[3] / "crds"
PREFIX = "training.kubeflow.org/"


@pytest.fixture
async def kubeflow(sandbox: Sandbox) -> AsyncIterator[Sandbox]:
    """Yield a sandbox that serves PodGroups and has one node with 8 GPUs."""
    sandbox.apply(yaml.safe_load((CRDS / "podgroups.scheduling.x-k8s.io.yaml").read_text()))
    sandbox.add_node("node-1", gpus=8)
    yield sandbox


def role(replicas: int, resources: Body | None = None, **fields: Any) -> Body:
    container = {"name": "tensorflow", "image": "tf:1", "resources": resources or {}}
    return {"replicas": replicas, "template": {"spec": {"containers": [container]}}, **fields}


def tfjob(policy: Body | None = None, **roles: Body) -> Body:
    spec: Body = {"tfReplicaSpecs": roles}
    if policy:
        spec["runPolicy"] = policy
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "mnist", "annotations": {"team": "a"}}, "spec": spec}


def names(sandbox: Sandbox) -> list[str]:
    return [pod["metadata"]["name"] for pod in sandbox.list("pods")]


def state(sandbox: Sandbox) -> str:
    conditions = (sandbox.get("tfjobs", "mnist") or {}).get("status", {}).get("conditions") or [{"type": ""}]
    return str(conditions[-1]["type"])


def is_in(wanted: str) -> Callable[[Sandbox], bool]:
    return lambda sandbox: state(sandbox) == wanted


def uid(sandbox: Sandbox, name: str) -> str | None:
    found = sandbox.get("pods", name)
    return found["metadata"]["uid"] if found else None


def recreated(name: str, old: str | None) -> Callable[[Sandbox], bool]:
    return lambda sandbox: uid(sandbox, name) not in (None, old)


async def run(sandbox: Sandbox, *pods: str) -> None:
    for name in pods:
        bind(sandbox.api, "default", name, {"metadata": {"name": name}, "target": {"name": "node-1"}}, WriteOptions())
    for name in pods:
        await sandbox.wait_for(lambda cluster, name=name: cluster.get("pods", name)["status"]["phase"] == "Running")  # type: ignore[misc,index]


async def test_pods_are_named_and_labelled_by_role_and_index(kubeflow: Sandbox) -> None:
    kubeflow.create(tfjob(PS=role(1), Worker=role(2)))
    await kubeflow.wait_for(lambda cluster: len(names(cluster)) == 3 and len(cluster.list("services")) == 3)
    assert names(kubeflow) == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]
    pod = kubeflow.get("pods", "mnist-worker-1")
    assert pod is not None
    assert pod["metadata"]["labels"] == {
        f"{PREFIX}operator-name": "tfjob-controller",
        f"{PREFIX}job-name": "mnist",
        f"{PREFIX}replica-type": "worker",
        f"{PREFIX}replica-index": "1",
        "scheduling.x-k8s.io/pod-group": "mnist",
    }
    assert kubeflow.get("pods", "mnist-worker-0")["metadata"]["labels"][f"{PREFIX}job-role"] == "master"  # type: ignore[index]
    assert (pod["spec"]["schedulerName"], pod["spec"]["restartPolicy"]) == ("allaboard", "Never")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "TFJob"
    assert "annotations" not in pod["metadata"]


async def test_a_pod_group_is_created_for_all_replicas(kubeflow: Sandbox) -> None:
    kubeflow.create(tfjob(PS=role(1), Worker=role(4)))
    await kubeflow.wait_for(lambda cluster: cluster.get("podgroups", "mnist") is not None)
    group = kubeflow.get("podgroups", "mnist")
    assert group is not None
    assert group["spec"]["minMember"] == 5
    assert group["metadata"]["annotations"] == {"team": "a"}
    assert group["metadata"]["ownerReferences"][0]["kind"] == "TFJob"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 1}}, {"cpu": "2"}),
        ({"limits": {"cpu": "1500m", "nvidia.com/gpu": 1, "memory": "1Gi"}}, {"cpu": "3", "nvidia.com/gpu": "2", "memory": "2Gi"}),
    ],
)
async def test_min_resources_ignore_limits_of_containers_with_requests(resources: Body, expected: Body, kubeflow: Sandbox) -> None:
    kubeflow.create(tfjob(Worker=role(2, resources)))
    await kubeflow.wait_for(lambda cluster: cluster.get("podgroups", "mnist") is not None)
    assert kubeflow.get("podgroups", "mnist")["spec"]["minResources"] == expected  # type: ignore[index]


async def test_changes_of_the_pod_group_are_overwritten_at_each_reconcile(kubeflow: Sandbox) -> None:
    kubeflow.create(tfjob({"schedulingPolicy": {"minAvailable": 1}}, Worker=role(2)))
    await kubeflow.wait_for(lambda cluster: len(names(cluster)) == 2)
    kubeflow.patch("podgroups", "mnist", {"spec": {"minMember": 2}})
    await kubeflow.wait_for(lambda cluster: cluster.get("podgroups", "mnist")["spec"]["minMember"] == 1)  # type: ignore[index]


async def test_another_scheduler_in_the_template_is_kept_with_a_warning(kubeflow: Sandbox) -> None:
    body = tfjob(Worker=role(1))
    body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = "other"
    kubeflow.create(body)
    await kubeflow.wait_for(lambda cluster: names(cluster) == ["mnist-worker-0"])
    assert kubeflow.get("pods", "mnist-worker-0")["spec"]["schedulerName"] == "other"  # type: ignore[index]
    assert "SetPodTemplateSchedulerName" in {event["reason"] for event in kubeflow.list("events")}


async def test_a_tfjob_succeeds_when_its_first_worker_has_succeeded(kubeflow: Sandbox) -> None:
    kubeflow.create(tfjob(PS=role(1), Worker=role(2)))
    await kubeflow.wait_for(lambda cluster: len(names(cluster)) == 3)
    await run(kubeflow, *names(kubeflow))
    await kubeflow.wait_for(is_in("Running"))
    kubeflow.finish_pod("mnist-worker-0")
    await kubeflow.wait_for(is_in("Succeeded"))
    await kubeflow.wait_for(lambda cluster: cluster.get("podgroups", "mnist") is None)
    assert kubeflow.get("pods", "mnist-ps-0")["status"]["phase"] == "Running"  # type: ignore[index]


async def test_a_tfjob_with_success_policy_all_workers_waits_for_all_workers(kubeflow: Sandbox) -> None:
    body = tfjob(Worker=role(2))
    body["spec"]["successPolicy"] = "AllWorkers"
    kubeflow.create(body)
    await kubeflow.wait_for(lambda cluster: len(names(cluster)) == 2)
    await run(kubeflow, *names(kubeflow))
    kubeflow.finish_pod("mnist-worker-0")
    await kubeflow.wait_for(
        lambda cluster: cluster.get("tfjobs", "mnist")["status"]["replicaStatuses"]["Worker"] == {"active": 1, "succeeded": 1}  # type: ignore[index]
    )
    assert state(kubeflow) == "Running"
    kubeflow.finish_pod("mnist-worker-1")
    await kubeflow.wait_for(is_in("Succeeded"))


async def test_a_deleted_unbound_pod_is_created_again_under_its_name(kubeflow: Sandbox) -> None:
    kubeflow.create(tfjob(Worker=role(1)))
    await kubeflow.wait_for(lambda cluster: names(cluster) == ["mnist-worker-0"])
    old = uid(kubeflow, "mnist-worker-0")
    kubeflow.delete("pods", "mnist-worker-0")
    await kubeflow.wait_for(recreated("mnist-worker-0", old))
    assert state(kubeflow) == "Created"


async def test_a_deleted_bound_pod_that_does_not_run_yet_is_created_again(kubeflow: Sandbox) -> None:
    kubeflow.create(tfjob(Worker=role(1)))
    await kubeflow.wait_for(lambda cluster: names(cluster) == ["mnist-worker-0"])
    old = uid(kubeflow, "mnist-worker-0")
    bind(kubeflow.api, "default", "mnist-worker-0", {"metadata": {"name": "mnist-worker-0"}, "target": {"name": "node-1"}}, WriteOptions())
    kubeflow.delete("pods", "mnist-worker-0")
    await kubeflow.wait_for(recreated("mnist-worker-0", old))
    assert state(kubeflow) == "Created"


@pytest.mark.parametrize("restart_policy", ["Never", "OnFailure", "ExitCode"])
async def test_deleting_a_running_pod_fails_the_tfjob_whatever_its_restart_policy(restart_policy: str, kubeflow: Sandbox) -> None:
    kubeflow.create(tfjob(Worker=role(2, restartPolicy=restart_policy)))
    await kubeflow.wait_for(lambda cluster: len(names(cluster)) == 2)
    await run(kubeflow, *names(kubeflow))
    kubeflow.delete("pods", "mnist-worker-1")
    await kubeflow.wait_for(is_in("Failed"))
    failed = kubeflow.get("tfjobs", "mnist")["status"]["conditions"][-1]  # type: ignore[index]
    assert failed["message"] == "TFJob default/mnist has failed because 1 Worker replica(s) failed."


@pytest.mark.parametrize(("restart_policy", "outcome"), [("Never", "Failed"), ("OnFailure", "Running")])
async def test_a_failed_pod_is_replaced_if_the_restart_policy_allows(restart_policy: str, outcome: str, kubeflow: Sandbox) -> None:
    kubeflow.create(tfjob(Worker=role(2, restartPolicy=restart_policy)))
    await kubeflow.wait_for(lambda cluster: len(names(cluster)) == 2)
    await run(kubeflow, *names(kubeflow))
    old = uid(kubeflow, "mnist-worker-1")
    kubeflow.finish_pod("mnist-worker-1", phase="Failed")
    if outcome == "Running":
        await kubeflow.wait_for(recreated("mnist-worker-1", old))
    await kubeflow.wait_for(is_in(outcome))


async def test_suspending_a_tfjob_deletes_its_pods_and_its_pod_group(kubeflow: Sandbox) -> None:
    kubeflow.create(tfjob(Worker=role(1)))
    await kubeflow.wait_for(lambda cluster: names(cluster) == ["mnist-worker-0"])
    kubeflow.patch("tfjobs", "mnist", {"spec": {"runPolicy": {"suspend": True}}})
    await kubeflow.wait_for(lambda cluster: not names(cluster) and cluster.get("podgroups", "mnist") is None)
    await kubeflow.wait_for(is_in("Suspended"))


async def test_a_tfjob_without_a_gang_scheduler_gets_no_pod_group() -> None:
    async with Sandbox(startup_delay=0) as plain:
        plain.apply(yaml.safe_load((CRDS / "podgroups.scheduling.x-k8s.io.yaml").read_text()))
        plain.create(tfjob(Worker=role(1)))
        await plain.wait_for(lambda cluster: names(cluster) == ["mnist-worker-0"])
        assert plain.list("podgroups") == []
        assert plain.get("pods", "mnist-worker-0")["spec"]["schedulerName"] == "default-scheduler"  # type: ignore[index]
