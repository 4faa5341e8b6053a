"""The stand-in controllers: collectors, ReplicaSet, Deployment, Job."""

from collections.abc import Callable
from typing import Any

import pytest

from allaboard_sandbox import ApiError, Sandbox
from allaboard_sandbox.api import WriteOptions
from allaboard_sandbox.binding import bind
from allaboard_sandbox.eviction import evict

MakePod = Callable[..., dict[str, Any]]
Body = dict[str, Any]


def template(**spec: Any) -> Body:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "busybox:1"}], **spec}}


def deployment(replicas: int = 2) -> Body:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template()}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def job(**spec: Any) -> Body:
    body = {"template": template(restartPolicy="Never"), **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "batch"}, "spec": body}


def pod_count(wanted: int) -> Callable[[Sandbox], bool]:
    return lambda sandbox: len(sandbox.list("pods")) == wanted


def condition(kind: str, name: str, type: str) -> Callable[[Sandbox], bool]:
    def holds(sandbox: Sandbox) -> bool:
        found = sandbox.get(kind, name) or {}
        listed = (found.get("status") or {}).get("conditions") or ()
        return any(each["type"] == type and each["status"] == "True" for each in listed)

    return holds


def bind_all(sandbox: Sandbox) -> None:
    for pod in sandbox.list("pods"):
        if not pod["spec"].get("nodeName"):
            body = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"name": "node-1"}}
            bind(sandbox.api, "default", pod["metadata"]["name"], body, WriteOptions())


async def test_a_rejected_pod_is_replaced_and_stays_to_be_seen(sandbox: Sandbox) -> None:
    sandbox.add_node("node-1", pods=0)
    sandbox.create(deployment(1))
    await sandbox.wait_for(pod_count(1))
    bind_all(sandbox)
    await sandbox.wait_for(pod_count(2))
    assert sorted(pod["status"]["phase"] for pod in sandbox.list("pods")) == ["Failed", "Pending"]


async def test_a_deployment_is_available_when_its_pods_are_ready(sandbox: Sandbox) -> None:
    sandbox.add_node("node-1")
    sandbox.create(deployment())
    await sandbox.wait_for(pod_count(2))
    bind_all(sandbox)
    await sandbox.wait_for(condition("deployments", "web", "Available"))
    assert sandbox.get("deployments", "web")["status"]["readyReplicas"] == 2  # type: ignore[index]


async def test_scaling_down_gives_up_unbound_pods_first(sandbox: Sandbox) -> None:
    sandbox.add_node("node-1")
    sandbox.create(deployment(1))
    await sandbox.wait_for(pod_count(1))
    bind_all(sandbox)
    bound = sandbox.list("pods")[0]["metadata"]["name"]
    sandbox.patch("deployments", "web", {"spec": {"replicas": 3}})
    await sandbox.wait_for(pod_count(3))
    sandbox.patch("deployments", "web", {"spec": {"replicas": 1}})
    await sandbox.wait_for(pod_count(1))
    assert sandbox.list("pods")[0]["metadata"]["name"] == bound


async def test_a_new_template_replaces_the_pods(sandbox: Sandbox) -> None:
    sandbox.create(deployment())
    await sandbox.wait_for(pod_count(2))
    before = {pod["metadata"]["uid"] for pod in sandbox.list("pods")}
    sandbox.patch("deployments", "web", {"spec": {"template": template(priorityClassName="system-node-critical")}})
    await sandbox.wait_for(
        lambda cluster: len(cluster.list("pods")) == 2 and not before & {pod["metadata"]["uid"] for pod in cluster.list("pods")}
    )


async def test_a_deployment_whose_selector_misses_its_template_is_invalid(sandbox: Sandbox) -> None:
    body = deployment()
    body["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    with pytest.raises(ApiError, match="`selector` does not match template `labels`"):
        sandbox.create(body)


async def test_a_job_completes_when_its_pods_have(sandbox: Sandbox) -> None:
    sandbox.add_node("node-1")
    sandbox.create(job(parallelism=2, completions=3))
    await sandbox.wait_for(pod_count(2))
    for expected in (3, 3):
        bind_all(sandbox)
        await sandbox.wait_for(lambda cluster: all(pod["status"]["phase"] != "Pending" for pod in cluster.list("pods")))
        for pod in sandbox.list("pods"):
            sandbox.finish_pod(pod["metadata"]["name"])
        await sandbox.wait_for(pod_count(expected))
    await sandbox.wait_for(condition("jobs", "batch", "Complete"))
    assert sandbox.get("jobs", "batch")["status"]["succeeded"] == 3  # type: ignore[index]


async def test_evicted_members_of_a_job_count_as_failures(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=8, completions=8))
    await sandbox.wait_for(pod_count(8))
    for pod in list(sandbox.list("pods"))[:7]:
        evict(sandbox.api, "default", pod["metadata"]["name"], {})
    await sandbox.wait_for(condition("jobs", "batch", "Failed"))
    failed = next(each for each in sandbox.get("jobs", "batch")["status"]["conditions"] if each["type"] == "Failed")  # type: ignore[index]
    assert failed["reason"] == "BackoffLimitExceeded"


async def test_a_job_that_ignores_disruptions_survives_them(sandbox: Sandbox) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    sandbox.create(job(parallelism=2, completions=2, backoffLimit=0, podFailurePolicy={"rules": [rule]}))
    await sandbox.wait_for(pod_count(2))
    evicted = sandbox.list("pods")[0]["metadata"]
    evict(sandbox.api, "default", evicted["name"], {})
    await sandbox.wait_for(
        lambda cluster: len(cluster.list("pods")) == 2 and evicted["uid"] not in {pod["metadata"]["uid"] for pod in cluster.list("pods")}
    )
    assert sandbox.get("jobs", "batch")["status"]["failed"] == 0  # type: ignore[index]


async def test_suspending_a_job_counts_nothing_and_resuming_starts_anew(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=2, completions=2, backoffLimit=0))
    await sandbox.wait_for(pod_count(2))
    sandbox.patch("jobs", "batch", {"spec": {"suspend": True}})
    await sandbox.wait_for(lambda cluster: pod_count(0)(cluster) and condition("jobs", "batch", "Suspended")(cluster))
    assert "startTime" not in sandbox.get("jobs", "batch")["status"]  # type: ignore[index]
    sandbox.patch("jobs", "batch", {"spec": {"suspend": False}})
    await sandbox.wait_for(pod_count(2))
    status = sandbox.get("jobs", "batch")["status"]  # type: ignore[index]
    assert [(each["type"], each["status"], each["reason"]) for each in status["conditions"]] == [("Suspended", "False", "JobResumed")]
    assert status["failed"] == 0
    assert "startTime" in status


async def test_a_pod_that_fails_by_itself_is_counted_although_its_job_is_being_suspended(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=2, completions=2))
    await sandbox.wait_for(pod_count(2))
    sandbox.patch("jobs", "batch", {"spec": {"suspend": True}})
    sandbox.finish_pod(sandbox.list("pods")[0]["metadata"]["name"], phase="Failed")
    await sandbox.wait_for(condition("jobs", "batch", "Suspended"))
    await sandbox.wait_for(lambda cluster: cluster.get("jobs", "batch")["status"]["failed"] == 1)  # type: ignore[index]


async def test_an_indexed_job_gives_each_pod_its_index(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=3, completions=3, completionMode="Indexed"))
    await sandbox.wait_for(pod_count(3))
    indices = [pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in sandbox.list("pods")]
    assert sorted(indices) == ["0", "1", "2"]
