"""The stand-in controllers of ReplicaSets, Deployments and Jobs create, replace and count pods as the real ones do."""

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


def status(kind: str, name: str, **wanted: Any) -> Callable[[Sandbox], bool]:
    """Return a predicate: whether an object's status has the wanted fields."""

    def holds(sandbox: Sandbox) -> bool:
        found = (sandbox.get(kind, name) or {}).get("status") or {}
        return all(found.get(field) == value for field, value in wanted.items())

    return holds


def hold_and_delete(sandbox: Sandbox, pod: Body) -> str:
    """Delete a pod that a finalizer keeps, and return its name."""
    name = str(pod["metadata"]["name"])
    sandbox.patch("pods", name, {"metadata": {"finalizers": ["example.com/held"]}})
    sandbox.delete("pods", name)
    return name


def index_of(pod: Body) -> str:
    return str(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


def bind_all(sandbox: Sandbox) -> None:
    for pod in sandbox.list("pods"):
        if not pod["spec"].get("nodeName"):
            body = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"name": "node-1"}}
            bind(sandbox.api, "default", pod["metadata"]["name"], body, WriteOptions())


async def test_a_pod_that_the_kubelet_rejects_is_replaced_and_remains_as_a_failed_pod(sandbox: Sandbox) -> None:
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


async def test_scaling_down_deletes_unbound_pods_first(sandbox: Sandbox) -> None:
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


async def test_a_deployment_whose_selector_does_not_match_its_template_is_invalid(sandbox: Sandbox) -> None:
    body = deployment()
    body["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    with pytest.raises(ApiError, match="`selector` does not match template `labels`"):
        sandbox.create(body)


async def test_a_job_completes_when_enough_pods_have_succeeded(sandbox: Sandbox) -> None:
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


async def test_evicted_pods_of_a_job_count_as_failures(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=8, completions=8))
    await sandbox.wait_for(pod_count(8))
    for pod in list(sandbox.list("pods"))[:7]:
        evict(sandbox.api, "default", pod["metadata"]["name"], {})
    await sandbox.wait_for(condition("jobs", "batch", "Failed"))
    failed = next(each for each in sandbox.get("jobs", "batch")["status"]["conditions"] if each["type"] == "Failed")  # type: ignore[index]
    assert failed["reason"] == "BackoffLimitExceeded"


async def test_a_job_whose_failure_policy_ignores_disruptions_survives_an_eviction(sandbox: Sandbox) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    sandbox.create(job(parallelism=2, completions=2, backoffLimit=0, podFailurePolicy={"rules": [rule]}))
    await sandbox.wait_for(pod_count(2))
    evicted = sandbox.list("pods")[0]["metadata"]
    evict(sandbox.api, "default", evicted["name"], {})
    await sandbox.wait_for(
        lambda cluster: len(cluster.list("pods")) == 2 and evicted["uid"] not in {pod["metadata"]["uid"] for pod in cluster.list("pods")}
    )
    assert sandbox.get("jobs", "batch")["status"]["failed"] == 0  # type: ignore[index]


async def test_suspending_a_job_counts_no_failure_and_resuming_it_sets_a_start_time(sandbox: Sandbox) -> None:
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


async def test_a_pod_that_fails_by_itself_while_its_job_is_suspended_is_counted(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=2, completions=2))
    await sandbox.wait_for(pod_count(2))
    sandbox.patch("jobs", "batch", {"spec": {"suspend": True}})
    sandbox.finish_pod(sandbox.list("pods")[0]["metadata"]["name"], phase="Failed")
    await sandbox.wait_for(condition("jobs", "batch", "Suspended"))
    await sandbox.wait_for(lambda cluster: cluster.get("jobs", "batch")["status"]["failed"] == 1)  # type: ignore[index]


async def test_a_job_replaces_a_pod_when_its_deletion_begins(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=2, completions=2))
    await sandbox.wait_for(pod_count(2))
    hold_and_delete(sandbox, sandbox.list("pods")[0])
    await sandbox.wait_for(pod_count(3))
    await sandbox.wait_for(status("jobs", "batch", active=2, terminating=1, failed=1))


async def test_a_job_with_replacement_policy_failed_waits_until_a_pod_is_gone(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=2, completions=2, podReplacementPolicy="Failed"))
    await sandbox.wait_for(pod_count(2))
    leaving = hold_and_delete(sandbox, sandbox.list("pods")[0])
    await sandbox.wait_for(status("jobs", "batch", active=1, terminating=1, failed=0))
    assert len(sandbox.list("pods")) == 2
    sandbox.patch("pods", leaving, {"metadata": {"finalizers": None}})
    await sandbox.wait_for(status("jobs", "batch", active=2, terminating=0, failed=1))


async def test_a_job_that_is_resumed_while_its_pods_terminate_follows_its_replacement_policy(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=1, podReplacementPolicy="Failed"))
    await sandbox.wait_for(pod_count(1))
    (pod,) = sandbox.list("pods")
    sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": ["example.com/held"]}})
    sandbox.patch("jobs", "batch", {"spec": {"suspend": True}})
    await sandbox.wait_for(status("jobs", "batch", active=0, terminating=1, failed=0))
    sandbox.patch("jobs", "batch", {"spec": {"suspend": False}})
    await sandbox.wait_for(lambda cluster: not condition("jobs", "batch", "Suspended")(cluster))
    assert len(sandbox.list("pods")) == 1
    sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": None}})
    await sandbox.wait_for(status("jobs", "batch", active=1, terminating=0, failed=0))


def test_a_job_with_a_pod_failure_policy_gets_replacement_policy_failed(sandbox: Sandbox) -> None:
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
    assert sandbox.create(job(podFailurePolicy=policy))["spec"]["podReplacementPolicy"] == "Failed"
    with pytest.raises(ApiError, match=r'spec\.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"'):
        sandbox.patch("jobs", "batch", {"spec": {"podReplacementPolicy": "TerminatingOrFailed"}})


async def test_a_job_starts_no_more_pods_than_its_remaining_completions(sandbox: Sandbox) -> None:
    sandbox.add_node("node-1")
    sandbox.create(job(parallelism=4, completions=6))
    await sandbox.wait_for(pod_count(4))
    bind_all(sandbox)
    await sandbox.wait_for(lambda cluster: all(pod["status"]["phase"] == "Running" for pod in cluster.list("pods")))
    for pod in sandbox.list("pods"):
        sandbox.finish_pod(pod["metadata"]["name"])
    await sandbox.wait_for(status("jobs", "batch", succeeded=4, active=2))
    assert len(sandbox.list("pods")) == 6


async def test_an_indexed_job_replaces_a_lost_index_and_counts_each_index_once(sandbox: Sandbox) -> None:
    sandbox.add_node("node-1")
    sandbox.create(job(parallelism=3, completions=3, completionMode="Indexed"))
    await sandbox.wait_for(pod_count(3))
    bind_all(sandbox)
    await sandbox.wait_for(lambda cluster: all(pod["status"]["phase"] == "Running" for pod in cluster.list("pods")))
    lost, *others = sorted(sandbox.list("pods"), key=index_of)
    leaving = hold_and_delete(sandbox, lost)
    await sandbox.wait_for(pod_count(4))
    assert sorted(map(index_of, sandbox.list("pods"))) == ["0", "0", "1", "2"]
    for pod in others:
        sandbox.finish_pod(pod["metadata"]["name"])
    await sandbox.wait_for(status("jobs", "batch", succeeded=2, completedIndexes="1,2"))
    sandbox.finish_pod(leaving)
    await sandbox.wait_for(status("jobs", "batch", succeeded=3, completedIndexes="0-2"))


async def test_an_indexed_job_with_reduced_completions_keeps_its_lowest_indexes(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=4, completions=4, completionMode="Indexed"))
    await sandbox.wait_for(pod_count(4))
    sandbox.patch("jobs", "batch", {"spec": {"parallelism": 2, "completions": 2}})
    await sandbox.wait_for(pod_count(2))
    assert sorted(map(index_of, sandbox.list("pods"))) == ["0", "1"]
    with pytest.raises(ApiError, match=r"can only be modified in tandem with spec\.parallelism"):
        sandbox.patch("jobs", "batch", {"spec": {"completions": 3}})


async def test_a_job_is_failed_only_when_its_last_pod_is_gone(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=2, completions=2, backoffLimit=0))
    await sandbox.wait_for(pod_count(2))
    leaving = hold_and_delete(sandbox, sandbox.list("pods")[0])
    await sandbox.wait_for(condition("jobs", "batch", "FailureTarget"))
    assert not condition("jobs", "batch", "Failed")(sandbox)
    sandbox.patch("pods", leaving, {"metadata": {"finalizers": None}})
    await sandbox.wait_for(condition("jobs", "batch", "Failed"))


async def test_an_indexed_job_gives_each_pod_its_index(sandbox: Sandbox) -> None:
    sandbox.create(job(parallelism=3, completions=3, completionMode="Indexed"))
    await sandbox.wait_for(pod_count(3))
    assert sorted(map(index_of, sandbox.list("pods"))) == ["0", "1", "2"]
