"""Test that a plan counts only pods that would exist: not pods that are created later, or that the API server refuses."""

from typing import Any

import pytest

from tests.unit.cli import plan_command
from tests.unit.cli.plan_command import PAIR, Plan, node, nodes_of, pod

Object = dict[str, Any]


def template(gang: str = "", minimum: int = 0, cpu: str = "1", **spec: Any) -> Object:
    labels = {f"{PAIR}/name": gang, f"{PAIR}/min-available": str(minimum)} if gang else {}
    return plan_command.template(labels=labels, cpu=cpu, **spec)


def stateful_set(template: Object, replicas: int = 3, **spec: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {"replicas": replicas, "selector": plan_command.SELECTOR, "template": template, **spec},
    }


def mpi_job(policy: str = "", workers: int = 2, **more: Any) -> Object:
    replicas = {"Launcher": {"template": template(**more)}, "Worker": {"replicas": workers, "template": template(**more)}}
    spec = {"mpiReplicaSpecs": replicas} | ({"launcherCreationPolicy": policy} if policy else {})
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}, "spec": spec}


def runtime_class(**more: Any) -> Object:
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata", **more}


def labelled(name: str, taint: str = "", **labels: str) -> Object:
    found = node(name, cpu="4", memory="8Gi")
    found["metadata"]["labels"] = labels
    found["spec"] = {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {}
    return found


# Pods created one after another


def test_gang_whose_pods_are_created_one_after_another_never_has_its_minimum(plan: Plan) -> None:
    [gang] = plan.cluster(node("n1", cpu="8")).manifest(stateful_set(template("db", 3))).gangs(exit_code=1)
    assert (gang["feasible"], gang["reason"], gang["unplaced"]) == (False, "WaitingForMembers", ["db-0", "db-1", "db-2"])
    assert gang["message"] == "podgroup default/db: waiting for members: 1 of 3 exist; pod db-1 is created only after pod db-0 is Ready"


def test_stateful_set_that_creates_its_pods_at_once_fits_as_a_gang(plan: Plan) -> None:
    manifest = stateful_set(template("db", 3), podManagementPolicy="Parallel")
    [gang] = plan.cluster(node("n1", cpu="8")).manifest(manifest).gangs()
    assert len(gang["assignments"]) == 3


def test_pods_of_a_stateful_set_without_a_gang_fit_in_order_until_one_does_not_fit(plan: Plan) -> None:
    gangs = plan.cluster(node("n1", cpu="2")).manifest(stateful_set(template(), replicas=4)).gangs(exit_code=1)
    assert [gang["feasible"] for gang in gangs] == [True, True, False, False]
    assert "1 Insufficient cpu" in gangs[2]["message"]
    assert gangs[3]["message"] == "pod db-3 is created only after pod db-2 is Ready"


def test_gang_that_starts_with_one_pod_grows_by_later_pods(plan: Plan) -> None:
    [gang] = plan.cluster(node("n1", cpu="8")).manifest(stateful_set(template("db", 1))).gangs()
    assert (len(gang["assignments"]), gang["message"]) == (3, "3 of 3 pods placed, 2 of them earlier")


def test_running_pod_of_a_stateful_set_lets_the_next_pod_be_created(plan: Plan) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": True}
    labels = template("db", 1)["metadata"]["labels"]
    first = pod("db-0", nodeName="n1", metadata={"namespace": "default", "uid": "1", "labels": labels, "ownerReferences": [owner]})
    [gang] = (
        plan.cluster(node("n1", cpu="8"), first | {"status": {"phase": "Running"}}).manifest(stateful_set(template("db", 1), 2)).gangs()
    )
    assert sorted(assignment["pod"] for assignment in gang["assignments"]) == ["db-0", "db-1"]


@pytest.mark.parametrize(("policy", "fits"), [("", True), ("AtStartup", True), ("WaitForWorkersReady", False)])
def test_gang_never_starts_if_its_launcher_is_created_after_its_workers(plan: Plan, policy: str, fits: bool) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(mpi_job(policy))
    [gang] = plan.gangs("--gang-scheduling", "allaboard", exit_code=0 if fits else 1)
    assert (gang["name"], gang["minMember"], gang["feasible"]) == ("m", 3, fits)
    assert fits or gang["message"].endswith(
        "waiting for members: 2 of 3 exist; pod m-launcher is created only after pod m-worker-0 is Ready"
    )


def test_launcher_is_created_and_placed_after_workers_that_reach_the_minimum(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(mpi_job("WaitForWorkersReady", gang="g", minimum=2))
    [gang] = plan.gangs()
    assert len(gang["assignments"]) == 3


def test_result_for_a_launcher_is_unknown_without_the_option_gang_scheduling(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(mpi_job("WaitForWorkersReady"))
    gangs = {gang["name"]: gang for gang in plan.gangs(exit_code=1)}
    assert (gangs["m-worker-0"]["feasible"], gangs["m-launcher"]["feasible"]) == (True, None)
    assert "state --gang-scheduling NAME" in gangs["m-launcher"]["message"]
    assert len(plan.gangs("--gang-scheduling", "None")) == 3


def test_launcher_counts_as_a_member_if_the_mpi_operator_pod_has_the_gang_scheduling_flag(plan: Plan) -> None:
    operator = pod("mpi-operator-x", containers=[{"name": "mpi-operator", "args": ["--gang-scheduling=allaboard"]}])
    plan.cluster(node("n1", cpu="8"), operator).manifest(mpi_job("WaitForWorkersReady"))
    assert [gang["minMember"] for gang in plan.gangs(exit_code=1)] == [3]


def test_next_job_of_a_cron_job_is_planned(plan: Plan) -> None:
    job = {"parallelism": 2, "completions": 2, "template": template("c", 2, restartPolicy="Never")}
    spec = {"schedule": "@daily", "jobTemplate": {"spec": job}}
    [gang] = (
        plan.cluster(node("n1", cpu="8"))
        .manifest({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec})
        .gangs()
    )
    assert len(gang["assignments"]) == 2


# Admission


def test_plan_includes_the_overhead_and_scheduling_rules_of_a_runtime_class(plan: Plan) -> None:
    kata = runtime_class(
        overhead={"podFixed": {"cpu": "1"}}, scheduling={"nodeSelector": {"sandboxed": "yes"}, "tolerations": [{"key": "kata"}]}
    )
    asked = pod("a", runtimeClassName="kata", nodeSelector={"disk": "ssd"})
    nodes = labelled("n1", disk="ssd"), labelled("n2", taint="kata", sandboxed="yes", disk="ssd")
    [gang] = plan.cluster(*nodes, kata).manifest(asked).gangs()
    assert nodes_of(gang) == ["n2"]
    four = [pod(name, cpu="1500m", runtimeClassName="kata") for name in "ab"]
    assert [gang["feasible"] for gang in plan.manifest(kata, *four).gangs(exit_code=1)] == [True, False]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"overhead": {"cpu": "1"}}, "Pod Overhead set without corresponding RuntimeClass defined Overhead"),
        ({"overhead": {"cpu": "2"}, "runtimeClassName": "kata"}, "Pod's Overhead doesn't match RuntimeClass's defined Overhead of kata"),
        (
            {"runtimeClassName": "kata", "nodeSelector": {"sandboxed": "no"}},
            "conflict: runtimeClass.scheduling.nodeSelector[sandboxed] = yes; pod.spec.nodeSelector[sandboxed] = no",
        ),
    ],
)
def test_pod_that_the_api_server_refuses_does_not_fit(plan: Plan, spec: Object, why: str) -> None:
    kata = runtime_class(overhead={"podFixed": {"cpu": "1"}}, scheduling={"nodeSelector": {"sandboxed": "yes"}})
    [gang] = plan.cluster(labelled("n1", sandboxed="yes"), kata).manifest(pod("a", **spec)).gangs(exit_code=1)
    assert (gang["feasible"], gang["message"]) == (False, f"pod a would be refused: {why}")


def test_pod_that_states_its_runtime_class_overhead_is_admitted(plan: Plan) -> None:
    kata = runtime_class(overhead={"podFixed": {"cpu": "1000m"}})
    assert plan.cluster(node("n1", cpu="2"), kata).manifest(pod("a", overhead={"cpu": 1}, runtimeClassName="kata")).gangs()


def test_missing_runtime_class_is_bad_input(plan: Plan) -> None:
    result = plan.cluster(node("n1", cpu="8")).manifest(pod("a", runtimeClassName="kata")).run()
    assert result.exit_code == 2
    assert (
        "document 1: spec.runtimeClassName: RuntimeClass 'kata' is not known; add the output of `kubectl get runtimeclasses"
        in result.stderr
    )


def quota(**hard: str) -> Object:
    used = {"pods": "1", "requests.cpu": "1500m"}
    metadata = {"name": "q", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}, "status": {"used": used}}


def limit_range(**limits: Object) -> Object:
    spec = {"limits": [{"type": "Container", **limits}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "default"}, "spec": spec}


def gang_of(replicas: int, **more: Any) -> Object:
    spec = {"replicas": replicas, "selector": plan_command.SELECTOR, "template": template("w", replicas, **more)}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "w"}, "spec": spec}


def test_pods_beyond_a_quota_are_not_created(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="16"), quota(**{"requests.cpu": "4", "pods": "10"}))
    assert plan.manifest(gang_of(2)).gangs()
    [gang] = plan.manifest(gang_of(3)).gangs(exit_code=1)
    assert gang["message"] == (
        "podgroup default/w: waiting for members: 2 of 3 exist; pod w-2 would be refused: exceeded quota: q, "
        "requested: requests.cpu=1, used: requests.cpu=3500m, limited: requests.cpu=4"
    )


def test_pod_must_state_the_resources_that_a_quota_counts(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="16", memory="8Gi"), quota(**{"requests.memory": "4Gi"})).manifest(gang_of(1))
    [gang] = plan.gangs(exit_code=1)
    assert gang["message"].endswith("pod w-0 would be refused: failed quota: q: must specify requests.memory")


def test_existing_pods_are_counted_once_by_a_quota(plan: Plan) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w", "controller": True}
    metadata = {"uid": "1", "namespace": "default", "labels": template("w", 2)["metadata"]["labels"], "ownerReferences": [owner]}
    plan.cluster(node("n1", cpu="16"), quota(pods="2"), pod("w-x", nodeName="n1", metadata=metadata)).manifest(gang_of(2))
    assert len(plan.gangs()[0]["assignments"]) == 2


def test_plan_applies_the_defaults_and_limits_of_a_limit_range(plan: Plan) -> None:
    bare = [{"name": "main", "image": "i"}]
    plan.cluster(node("n1", cpu="4"), limit_range(defaultRequest={"cpu": "3"})).manifest(gang_of(2, containers=bare))
    assert "Insufficient cpu" in plan.gangs(exit_code=1)[0]["message"]
    plan.cluster(node("n1", cpu="4"), limit_range(max={"cpu": "500m"})).manifest(gang_of(1))
    assert "maximum cpu usage per Container is 500m, but limit is 1" in plan.gangs(exit_code=1)[0]["message"]


# The last wave of a Job


def job_of(completions: int = 6) -> Object:
    spec = {"parallelism": 4, "completions": completions, "template": template("w", 4, restartPolicy="Never")}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "w", "namespace": "default"}, "spec": spec}


def ended(number: int) -> Object:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "w", "uid": "j", "controller": True}
    metadata = {"uid": f"u{number}", "namespace": "default", "labels": template("w", 4)["metadata"]["labels"], "ownerReferences": [owner]}
    return pod(f"w-old{number}", nodeName="n1", metadata=metadata) | {"status": {"phase": "Succeeded"}}


def in_cluster(succeeded: int) -> Object:
    job = job_of()
    return job | {"metadata": {**job["metadata"], "uid": "j"}, "status": {"succeeded": succeeded}}


@pytest.mark.parametrize(
    "there",
    [[ended(number) for number in range(4)], [*(ended(number) for number in range(4)), in_cluster(4)], [in_cluster(4)]],
    ids=["pods", "pods and Job", "Job"],
)
def test_last_wave_of_a_job_needs_no_more_pods_than_the_job_creates(plan: Plan, there: list[Object]) -> None:
    [gang] = plan.cluster(node("n1", cpu="8"), *there).manifest(job_of()).gangs()
    assert (gang["minMember"], len(gang["assignments"])) == (4, 2)
    assert "Job default/w is applied already: 0 of its 2 pods exist" in plan.run().stderr


def test_job_that_creates_fewer_pods_than_its_gang_needs_waits_for_ever(plan: Plan) -> None:
    [gang] = plan.cluster(node("n1", cpu="8")).manifest(job_of(completions=2)).gangs(exit_code=1)
    assert gang["message"] == "podgroup default/w: waiting for members: 2 of 4 exist"
