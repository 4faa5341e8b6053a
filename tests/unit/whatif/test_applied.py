"""Test plans of manifests that are applied already: existing pods stay where they are, and only missing pods are added."""

import json
from typing import Any

import pytest

from tests.unit.cli.plan_command import SELECTOR, Plan, member, node, nodes_of, pod, template

Object = dict[str, Any]


def workload(kind: str = "ReplicaSet", api_version: str = "apps/v1", name: str = "web", cpu: str = "1", **spec: Any) -> Object:
    spec |= (
        {"template": template(cpu=cpu, restartPolicy="Never")} if kind == "Job" else {"selector": SELECTOR, "template": template(cpu=cpu)}
    )
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def job(**spec: Any) -> Object:
    return workload("Job", "batch/v1", **spec)


def owned(name: str, kind: str = "ReplicaSet", api_version: str = "apps/v1", owner: str = "web", phase: str = "", **more: Any) -> Object:
    reference = {"apiVersion": api_version, "kind": kind, "name": owner, "uid": owner, "controller": True}
    metadata = {"namespace": "default", "uid": name, "ownerReferences": [reference], **more.pop("metadata", {})}
    return pod(name, metadata=metadata, **more) | ({"status": {"phase": phase}} if phase else {})


def names(gangs: list[Object]) -> list[str]:
    return sorted(gang["name"] for gang in gangs)


def test_applied_workload_keeps_its_existing_pods(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="3"), owned("web-a", nodeName="n1"), owned("web-b", nodeName="n1"))
    result = plan.manifest(workload(replicas=2)).run("-o", "json")
    assert names(json.loads(result.stdout)["gangs"]) == ["web-a", "web-b"]
    assert result.stderr == "note: ReplicaSet default/web is applied already: 2 of its 2 pods exist, 2 of them on nodes\n"


def test_only_missing_pods_of_an_applied_workload_are_added(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="3"), owned("web-a", nodeName="n1"), owned("web-b"))
    gangs = plan.manifest(workload(replicas=3)).gangs()
    assert names(gangs) == ["web-2", "web-a", "web-b"]
    assert [nodes_of(gang) for gang in gangs] == [["n1"]] * 3
    assert "2 of its 3 pods exist, 1 of them on nodes" in plan.run().stderr


def test_pods_of_a_deployment_are_found_by_its_replica_set(plan: Plan) -> None:
    mine = owned("web-5d9-a", owner="web-5d9", labels={"pod-template-hash": "5d9"}, nodeName="n1")
    others = [owned("web-x-a", owner="web-x"), owned("api-5d9-a", owner="api-5d9", labels={"pod-template-hash": "5d9"})]
    plan.cluster(node("n1", cpu="8"), mine, *others)
    assert names(plan.manifest(workload("Deployment", replicas=2)).gangs()) == ["web-1", "web-5d9-a"]


def test_terminating_or_failed_pod_is_replaced(plan: Plan) -> None:
    terminating = owned("web-b", nodeName="n1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    plan.cluster(node("n1", cpu="8"), owned("web-a", nodeName="n1"), terminating, owned("web-c", phase="Failed"))
    assert names(plan.manifest(workload(replicas=2)).gangs()) == ["web-1", "web-a"]


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ({"parallelism": 3, "completions": 9}, 2),
        ({"parallelism": 3, "completions": 3}, 1),
        ({"parallelism": 3, "completions": 2}, 0),
        ({"parallelism": 3}, 0),
    ],
)
def test_applied_job_creates_only_pods_for_its_remaining_completions(plan: Plan, spec: Object, made: int) -> None:
    there = [owned(f"web-{name}", "Job", "batch/v1", nodeName="n1", phase=phase) for name, phase in (("a", "Running"), ("b", "Succeeded"))]
    plan.cluster(node("n1", cpu="8"), *there)
    assert len(plan.manifest(job(**spec)).gangs()) == 1 + made


def test_job_that_has_ended_adds_no_pods(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8"), owned("web-a", "Job", "batch/v1", phase="Succeeded"))
    result = plan.manifest(job(completions=1)).run("-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["gangs"]) == (0, [])
    assert result.stderr == "note: Job default/web is applied already: its pods have ended\nnote: no pods to place\n"


def test_missing_pod_of_a_stateful_set_is_added_under_its_own_name(plan: Plan) -> None:
    there = [owned(f"web-{index}", "StatefulSet", nodeName="n1") for index in (0, 2)]
    plan.cluster(node("n1", cpu="8"), *there)
    assert names(plan.manifest(workload("StatefulSet", replicas=3)).gangs()) == ["web-0", "web-1", "web-2"]
    assert "2 of its 3 pods exist" in plan.run().stderr


def test_made_up_name_of_a_new_pod_differs_from_names_of_existing_pods(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="2"), pod("web-0", nodeName="n1", metadata={"uid": "u", "namespace": "default"}))
    [gang] = plan.manifest(workload(replicas=1)).gangs()
    assert gang["assignments"] == [{"pod": "web-0-1", "node": "n1"}]
    assert plan.manifest(workload(replicas=2)).gangs(exit_code=1)[1]["feasible"] is False


def test_changed_requests_of_an_applied_workload_cause_a_note(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8"), owned("web-a", cpu="2", nodeName="n1"))
    assert "other resources" in plan.manifest(workload(replicas=1, cpu="4")).run().stderr
    assert "other resources" not in plan.manifest(workload(replicas=1, cpu="2")).run().stderr


def test_members_in_the_cluster_count_even_if_no_manifest_has_them(plan: Plan) -> None:
    there = member("a", minimum="3", nodeName="n1", metadata={"uid": "a", "namespace": "default"})
    waits = member("b", minimum="3", metadata={"uid": "b", "namespace": "default"})
    plan.cluster(node("n1", cpu="8"), there, waits)
    [gang] = plan.manifest(member("c", minimum="3")).gangs()
    assert [assignment["pod"] for assignment in gang["assignments"]] == ["a", "b", "c"]
    assert gang["message"] == "3 of 3 pods placed, 1 of them earlier"


def test_running_gang_is_feasible_even_if_a_new_member_does_not_fit(plan: Plan) -> None:
    there = [member(name, nodeName="n1", metadata={"uid": name, "namespace": "default"}) for name in "ab"]
    [gang] = plan.cluster(node("n1", cpu="2"), *there).manifest(*(member(name) for name in "abc")).gangs()
    assert (gang["feasible"], gang["unplaced"]) == (True, ["c"])
    assert gang["message"].startswith("2 of 3 pods placed, 2 of them earlier, 2 needed; pod c: 0/1 nodes are available")


def test_new_pods_are_younger_than_waiting_pods(plan: Plan) -> None:
    old = member("z", minimum="1", gang="z", metadata={"uid": "z", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"})
    plan.cluster(node("n1", cpu="1"), old).manifest(member("a", minimum="1", gang="a"), member("z", minimum="1", gang="z"))
    assert [(gang["name"], gang["feasible"]) for gang in plan.gangs(exit_code=1)] == [("z", True), ("a", False)]


def test_existing_pod_group_keeps_its_age(plan: Plan) -> None:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 1}}
    old = group | {"metadata": {"name": "g", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    labelled = pod("b", labels={"scheduling.x-k8s.io/pod-group": "g"})
    plan.cluster(node("n1", cpu="1"), old).manifest(pod("a"), labelled, group)
    assert [gang["name"] for gang in plan.gangs(exit_code=1)] == ["g", "a"]


def test_bare_pods_that_have_ended_are_not_planned(plan: Plan) -> None:
    ended = pod("a", metadata={"uid": "a", "namespace": "default"}) | {"status": {"phase": "Succeeded"}}
    result = plan.cluster(node("n1", cpu="8"), ended).manifest(pod("a")).run()
    assert (result.exit_code, result.stdout) == (0, "")
    assert "note: pod default/a is in the cluster already, and has ended" in result.stderr


def test_note_about_many_existing_bare_pods_states_their_number_instead_of_names(plan: Plan) -> None:
    there = [pod(name, metadata={"uid": name, "namespace": "default"}, nodeName="n1") for name in "abcd"]
    result = plan.cluster(node("n1", cpu="8"), *there).manifest(*(pod(name) for name in "abcd")).run()
    assert result.stderr == "note: 4 pods are in the cluster already, 4 of them on nodes\n"


def waiting(name: str, **more: Any) -> Object:
    return pod(name, metadata={"uid": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}, **more)


def test_gang_that_waits_in_the_cluster_takes_capacity_before_a_new_gang(plan: Plan) -> None:
    result = plan.cluster(node("n1", cpu="1"), waiting("old")).manifest(pod("new")).run("-o", "json")
    [gang] = json.loads(result.stdout)["gangs"]
    assert (gang["name"], gang["feasible"]) == ("new", False)
    assert result.stderr == "note: a gang that waits in the cluster is placed, too: default/old\n"


def test_unschedulable_gang_of_the_cluster_is_not_planned(plan: Plan) -> None:
    refused = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    plan.cluster(node("n1", cpu="1"), waiting("old") | {"status": refused})
    assert [gang["name"] for gang in plan.manifest(pod("new")).gangs()] == ["new"]


def test_note_about_many_waiting_gangs_states_their_number(plan: Plan) -> None:
    result = plan.cluster(node("n1", cpu="9"), *(waiting(name) for name in "abcd")).manifest(pod("new")).run()
    assert result.stderr == "note: 4 gangs that wait in the cluster are placed, too: default/a, default/b, default/c, …\n"


def test_waiting_gang_outside_the_schedulers_namespaces_takes_no_capacity(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_NAMESPACES", "ml")
    plan.cluster(node("n1", cpu="1"), waiting("old")).manifest(pod("new"))
    assert plan.gangs("-n", "ml")[0]["feasible"] is True


def training_job(cpu: str = "4", **policy: int) -> Object:
    replicas = {"Worker": {"replicas": 1, "template": template(cpu=cpu, schedulerName="allaboard")}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "short"},
        "spec": {"tfReplicaSpecs": replicas, "runPolicy": policy},
    }


LATER = {"creationTimestamp": "2026-01-01T10:05:00Z"}


def reserved_node() -> list[Object]:
    """Return a node with 8 CPUs, a pod on it that uses 4 of them for an hour, and an older gang that waits for all 8."""
    created = {"creationTimestamp": "2026-01-01T10:00:00Z"}
    stated = {"uid": "busy", **created, "annotations": {"allaboard.dev/walltime": "1h"}}
    busy = pod("busy", cpu="4", nodeName="n1", metadata=stated) | {"status": {"phase": "Running", "startTime": "2026-01-01T10:00:00Z"}}
    return [node("n1", cpu="8"), busy, pod("wide", cpu="8", metadata={"uid": "wide", **created})]


@pytest.mark.parametrize(
    ("policy", "fits"), [({}, False), ({"activeDeadlineSeconds": 600}, True), ({"activeDeadlineSeconds": 7200}, False)]
)
def test_training_job_that_ends_before_a_reservation_begins_is_placed_on_reserved_capacity(plan: Plan, policy: Any, fits: bool) -> None:
    plan.cluster(*reserved_node())
    (gang,) = plan.manifest(training_job(**policy)).gangs(exit_code=0 if fits else 1)
    assert (gang["reason"], nodes_of(gang)) == (("", ["n1"]) if fits else ("Reserved", []))


@pytest.mark.parametrize("seconds", [600, 7200])
def test_walltime_of_an_applied_training_job_is_that_of_its_manifest(plan: Plan, seconds: int) -> None:
    theirs = training_job(activeDeadlineSeconds=7800 - seconds)
    theirs["metadata"]["uid"] = "short"
    worker = owned("short-worker-0", "TFJob", "kubeflow.org/v1", owner="short", cpu="4", metadata=LATER)
    plan.cluster(*reserved_node(), theirs, worker)
    (gang,) = plan.manifest(training_job(activeDeadlineSeconds=seconds)).gangs(exit_code=0 if seconds == 600 else 1)
    assert nodes_of(gang) == (["n1"] if seconds == 600 else [])


@pytest.mark.parametrize("seconds", [600, 7200])
def test_walltime_of_a_training_job_in_the_cluster_counts_for_its_waiting_pods(plan: Plan, seconds: int) -> None:
    theirs = training_job(activeDeadlineSeconds=seconds)
    theirs["metadata"]["uid"] = "short"
    worker = owned("short-worker-0", "TFJob", "kubeflow.org/v1", owner="short", cpu="4", metadata=LATER)
    result = plan.cluster(*reserved_node(), theirs, worker).manifest(pod("late", cpu="4")).run()
    assert ("a gang that waits in the cluster is placed, too: default/short-worker-0" in result.stderr) is (seconds == 600)
