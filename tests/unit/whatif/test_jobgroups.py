"""Test that a job is one gang if its job operator creates PodGroups, which the operator's pod or a command-line option shows."""

import json
from typing import Any

import pytest

from tests.unit.cli.plan_command import Plan, node, pod, template

FLAG = "--gang-scheduler-name"

Object = dict[str, Any]


def job(kind: str = "TFJob", key: str = "tfReplicaSpecs", api_version: str = "kubeflow.org/v1", **more: Any) -> Object:
    pods = {"metadata": more.pop("template", {}), "spec": template()["spec"]}
    spec = {key: {"Worker": {"replicas": 3, "template": pods}}, **more.pop("spec", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w", **more}, "spec": spec}


def training_operator(*arguments: str, phase: str = "Running") -> Object:
    found = pod("training-operator-5d9-x", schedulerName="default-scheduler")
    found["spec"]["containers"][0] |= {"command": ["/manager"], "args": list(arguments)}
    return found | {"status": {"phase": phase}}


def gangs(plan: Plan, *options: str) -> list[tuple[str, int, int]]:
    found = json.loads(plan.run("-o", "json", *options).stdout)["gangs"]
    return [(gang["name"], gang["minMember"], len(gang["assignments"])) for gang in found]


@pytest.mark.parametrize("arguments", [(f"{FLAG}=allaboard",), ("--zap-devel", FLAG, "allaboard"), ("-gang-scheduler-name=allaboard",)])
def test_job_is_one_gang_if_the_job_operators_pod_has_the_gang_flag(plan: Plan, arguments: tuple[str, ...]) -> None:
    plan.cluster(node("n1", cpu="8"), training_operator(*arguments)).manifest(job())
    assert gangs(plan) == [("w", 3, 3)]
    assert plan.run().stderr == ""


@pytest.mark.parametrize("operator", [training_operator(), training_operator(f"{FLAG}=allaboard", phase="Failed")])
def test_each_pod_of_a_job_is_a_gang_if_the_job_operator_has_no_gang_flag_and_a_note_says_so(plan: Plan, operator: Object) -> None:
    plan.cluster(node("n1", cpu="8"), operator).manifest(job())
    assert gangs(plan) == [(f"w-worker-{index}", 1, 1) for index in range(3)]
    assert (
        f"note: TFJob default/w: its pods name no gang; if training-operator runs with {FLAG}, pass this option to plan, too"
        in plan.run().stderr
    )


def test_command_line_option_overrides_the_flag_of_the_job_operators_pod(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8"), training_operator(f"{FLAG}=volcano")).manifest(job())
    assert gangs(plan, FLAG, "allaboard") == [("w", 3, 3)]


@pytest.mark.parametrize("name", ["None", "volcano"])
def test_each_pod_of_a_job_is_a_gang_if_the_job_operator_creates_no_pod_groups_for_allaboard(plan: Plan, name: str) -> None:
    plan.cluster(node("n1", cpu="8"), training_operator(f"{FLAG}={name}")).manifest(job())
    assert len(gangs(plan)) == 3


def test_scheduling_policy_of_a_job_sets_the_minimum(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="2")).manifest(job(spec={"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}))
    assert gangs(plan, FLAG, "allaboard") == [("w", 2, 2)]


def test_annotations_of_a_job_apply_to_its_pod_group(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8"), node("n2", cpu="8")).manifest(job(annotations={"allaboard.dev/objective": "spread"}))
    [gang] = json.loads(plan.run("-o", "json", FLAG, "allaboard").stdout)["gangs"]
    assert {assignment["node"] for assignment in gang["assignments"]} == {"n1", "n2"}


def test_pods_that_name_no_scheduler_get_the_scheduler_that_the_flag_names(plan: Plan) -> None:
    bare = job()
    del bare["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"]
    plan.cluster(node("n1", cpu="8")).manifest(bare)
    assert plan.run(FLAG, "allaboard").stderr == ""
    assert "schedulerName 'scheduler-plugins'" in plan.run(FLAG, "scheduler-plugins").stderr


def test_flag_of_one_job_operator_does_not_change_jobs_of_another_job_operator(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(job("MPIJob", "mpiReplicaSpecs", "kubeflow.org/v2beta1"))
    assert len(gangs(plan, FLAG, "allaboard")) == 3


@pytest.mark.parametrize(("field", "value"), [("minAvailable", -1), ("minAvailable", "2"), ("scheduleTimeoutSeconds", -1)])
def test_invalid_scheduling_policy_is_reported_with_its_field(plan: Plan, field: str, value: Any) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(job(spec={"runPolicy": {"schedulingPolicy": {field: value}}}))
    result = plan.run(FLAG, "allaboard")
    assert result.exit_code == 2
    assert f"document 1: spec.runPolicy.schedulingPolicy.{field}: " in result.stderr
