"""Tests what is to be done for a pipeline, given its spec and its existing objects."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.gangs.membership import membership_of
from allaboard.model.pod import pod_from
from allaboard.pipelines.objects import DEPLOYMENTS, FUNCTIONS, MEMBER_OF, UID, Body
from allaboard.pipelines.plan import Phase, Plan, plan_of, status_of
from allaboard.pipelines.stages import Policy, pipeline_from
from tests.unit.pipelines.mlflows import existing, found, mlflow, pipeline, stage, status, step

NOW = "2026-01-02T03:04:05Z"


def names(plan: Plan) -> list[str]:
    return [name for _, (_, _, name), _ in plan.create]


def phases(plan: Plan) -> list[str]:
    return [str(state.phase) for state in plan.states]


def test_first_stage_is_created_and_the_second_waits_for_it() -> None:
    plan = plan_of(pipeline(), found(), Policy())
    assert names(plan) == ["lstm-load", "lstm-clean"]
    assert phases(plan) == ["Deploying", "Waiting"]
    assert plan.states[1].message == "waits for stage1"


def test_stage_with_a_step_that_is_not_ready_keeps_the_next_stage_waiting() -> None:
    flow = pipeline()
    plan = plan_of(flow, found(existing(flow, "load"), existing(flow, "clean", ready=False)), Policy())
    assert (names(plan), phases(plan)) == ([], ["Deploying", "Waiting"])
    assert plan.states[0].message == "1 of 2 steps are ready"


def test_next_stage_is_created_when_the_stage_before_is_ready() -> None:
    flow = pipeline()
    plan = plan_of(flow, found(existing(flow, "load", "clean")), Policy())
    assert (names(plan), phases(plan)) == (["lstm-train"], ["Ready", "Deploying"])


def test_stage_that_has_begun_is_completed_even_if_the_stage_before_is_no_longer_ready() -> None:
    flow = pipeline(stage1=stage("a"), stage2=stage("b", "c"), stage3=stage("d"))
    plan = plan_of(flow, found(existing(flow, "a", ready=False), existing(flow, "b")), Policy())
    assert (names(plan), phases(plan)) == (["lstm-c"], ["Deploying", "Deploying", "Waiting"])


def test_pipeline_whose_steps_are_all_ready_needs_no_action() -> None:
    flow = pipeline()
    plan = plan_of(flow, found(existing(flow, "load", "clean", "train")), Policy())
    assert (plan.create, plan.repair, plan.remove, phases(plan)) == ((), (), (), ["Ready", "Ready"])


def test_step_with_another_image_is_repaired_and_a_step_that_was_taken_out_is_removed() -> None:
    old = pipeline(stage1=stage("a", "b"))
    new = pipeline(stage1={"step": [step("a", mlfun="example/a:2")]})
    plan = plan_of(new, found(existing(old, "a", "b")), Policy())
    assert [(object_key[2], body["spec"]["template"]["spec"]["containers"][0]["image"]) for _, object_key, body in plan.repair] == [
        ("lstm-a", "example/a:2")
    ]
    assert [object_key[2] for object_key in plan.remove] == ["lstm-b"]
    assert phases(plan) == ["Deploying"]


def test_no_object_is_removed_while_a_part_of_the_pipeline_cannot_be_read() -> None:
    old = pipeline(stage1=stage("a", "b"))
    for broken in (pipeline(stage1=stage("a"), stage2=stage()), pipeline(stage1=stage("a"), stageX=stage("b"))):
        assert plan_of(broken, found(existing(old, "a", "b")), Policy()).remove == ()


def test_stage_that_may_not_be_deployed_fails_and_keeps_later_stages_waiting() -> None:
    flow = pipeline(stage1=stage("a", namespace="kube-system"), stage2=stage("b"))
    plan = plan_of(flow, found(), Policy())
    assert (plan.create, phases(plan)) == ((), ["Failed", "Waiting"])


def test_state_of_a_stage_has_the_reason_for_which_its_gang_waits() -> None:
    flow = pipeline()
    plan = plan_of(flow, found(existing(flow, "load", "clean", ready=False)), Policy(), lambda gang: f"{gang}: Insufficient cpu")
    assert plan.states[0].message == "0 of 2 steps are ready: ml/lstm.stage1: Insufficient cpu"


def test_state_of_a_stage_says_why_its_pods_cannot_be_created() -> None:
    flow = pipeline()
    deployments = existing(flow, "load", "clean", ready=False)
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    next(iter(deployments.values()))["status"]["conditions"] = [failure]
    assert plan_of(flow, found(deployments), Policy()).states[0].message == "0 of 2 steps are ready: exceeded quota"


@pytest.mark.parametrize(
    ("deployment", "phase"),
    [
        ({"metadata": {"generation": 2}}, Phase.DEPLOYING),
        ({"spec": {"replicas": 3}}, Phase.DEPLOYING),
        ({"spec": {"replicas": 0}, **status(False)}, Phase.READY),
        ({"status": {"readyReplicas": 1, "updatedReplicas": 0, "observedGeneration": 1}}, Phase.DEPLOYING),
        ({"status": None}, Phase.DEPLOYING),
        ({"status": []}, Phase.DEPLOYING),
        ({"status": {**status(False)["status"], "conditions": 7}}, Phase.DEPLOYING),
    ],
)
def test_step_is_ready_when_all_pods_of_its_newest_template_are_ready(deployment: Body, phase: Phase) -> None:
    flow = pipeline(stage1=stage("a"))
    (object_key, body), *_ = existing(flow, "a").items()
    merged = {key: {**(body.get(key) or {}), **part} if isinstance(part, dict) else part for key, part in deployment.items()}
    assert plan_of(flow, found({object_key: body | merged}), Policy()).states[0].phase is phase


def test_pods_of_a_stage_are_one_gang_of_our_scheduler() -> None:
    flow = pipeline()
    plan = plan_of(flow, found(), Policy(("ours",)))
    pods = [
        pod_from({"metadata": {"name": "p", "namespace": object_key[1], **pod["metadata"]}, "spec": pod["spec"]})
        for object_key, pod in _pods(plan)
    ]
    assert {(pod.scheduler_name, membership_of(pod).key.name, membership_of(pod).min_member) for pod in pods} == {
        ("ours", "lstm.stage1", 2)
    }
    assert not [pod.malformed for pod in pods if pod.malformed]


def _pods(plan: Plan) -> list[tuple[tuple[object, str, str], Body]]:
    return [(object_key, body["spec"]["template"]) for _, object_key, body in plan.create]


def test_object_of_a_step_has_its_resources_and_the_users_of_its_stage() -> None:
    flow = pipeline(stage1={"rule": ["dev", "user"], "step": [step("a", requests={"cpu": 1}, limits={"nvidia.com/gpu": "2"})]})
    ((_, _, body),) = plan_of(flow, found(), Policy()).create
    assert body["metadata"]["annotations"]["pipelines.allaboard.dev/rule"] == "dev,user"
    pod = body["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"] == {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}
    assert pod["automountServiceAccountToken"] is False


def test_object_has_an_owner_in_the_pipelines_namespace_and_the_uid_label_everywhere() -> None:
    flow = pipeline(stage1=stage("a"), stage2=stage("b", namespace="fn"))
    policy = Policy(namespaces=("fn",))
    ((_, _, first),) = plan_of(flow, found(), policy).create
    ((_, _, second),) = plan_of(flow, found(existing(flow, "a")), policy).create
    assert [owner["uid"] for owner in first["metadata"]["ownerReferences"]] == ["uid-of-lstm"]
    assert "ownerReferences" not in second["metadata"]
    assert {body["metadata"]["labels"][UID] for body in (first, second)} == {"uid-of-lstm"}


def test_functions_are_created_if_openfaas_is_installed() -> None:
    flow = pipeline()
    plan = plan_of(flow, found(has_functions=True), Policy())
    assert {(body["apiVersion"], body["kind"]) for _, _, body in plan.create} == {("openfaas.com/v1", "Function")}
    spec = plan.create[0][2]["spec"]
    assert (spec["name"], spec["image"]) == ("lstm-load", "example/load:1")
    assert (spec["labels"]["pod-group.scheduling.sigs.k8s.io/name"], spec["labels"]["pod-group.scheduling.sigs.k8s.io/min-available"]) == (
        "lstm.stage1",
        "2",
    )
    assert UID not in spec["labels"]
    assert spec["labels"][MEMBER_OF] == "uid-of-lstm"


def test_function_is_ready_when_the_deployment_behind_it_is_ready() -> None:
    flow = pipeline(stage1=stage("a"))
    functions = existing(flow, "a", kind=FUNCTIONS)
    for ready, phase in ((True, "Ready"), (False, "Deploying")):
        behind = {("ml", "lstm-a"): {"metadata": {}, "spec": {}, **status(ready)}}
        assert phases(plan_of(flow, found(functions, behind=behind, has_functions=True), Policy())) == [phase]
    assert phases(plan_of(flow, found(functions, has_functions=True), Policy())) == ["Deploying"]


def test_existing_object_keeps_its_kind_when_openfaas_is_installed_or_removed() -> None:
    flow = pipeline(stage1=stage("a"))
    for kind, has_functions in ((DEPLOYMENTS, True), (FUNCTIONS, False)):
        plan = plan_of(flow, found(existing(flow, "a", kind=kind), has_functions=has_functions), Policy())
        assert (plan.create, plan.repair, plan.remove) == ((), (), ())


def test_limits_that_a_function_no_longer_has_are_removed_from_its_object() -> None:
    old = pipeline(stage1={"step": [step("a", limits={"cpu": "1"})]})
    plan = plan_of(pipeline(stage1=stage("a")), found(existing(old, "a", kind=FUNCTIONS), has_functions=True), Policy())
    assert [body["spec"]["limits"] for _, _, body in plan.repair] == [None]


def test_status_shows_the_first_stage_that_is_not_ready() -> None:
    flow = pipeline()
    shown = status_of(flow, plan_of(flow, found(existing(flow, "load", "clean")), Policy()).states, "", NOW)
    assert (shown["observedGeneration"], shown["phase"], shown["stage"], shown["ready"]) == (3, "Deploying", "stage2", "1/2")
    assert [(each["name"], each["phase"], each["ready"], each["total"], each["podGroup"]) for each in shown["stages"]] == [
        ("stage1", "Ready", 2, 2, "lstm.stage1"),
        ("stage2", "Deploying", 0, 1, "lstm.stage2"),
    ]
    (condition,) = shown["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", "Deploying")


def test_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    raw = mlflow() | {"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"}]}}
    flow = pipeline_from(raw)
    deploying = status_of(flow, plan_of(flow, found(), Policy()).states, "", NOW)
    ready = status_of(flow, plan_of(flow, found(existing(flow, "load", "clean", "train")), Policy()).states, "", NOW)
    assert [each["conditions"][0]["lastTransitionTime"] for each in (deploying, ready)] == ["2025-01-01T00:00:00Z", NOW]


_FLOW = pipeline(**{f"stage{number}": stage(f"a{number}", f"b{number}") for number in range(1, 5)})
_STEPS = [each.name for one in _FLOW.stages for each in one.steps]


@given(st.lists(st.sampled_from(["absent", "waiting", "ready"]), min_size=len(_STEPS), max_size=len(_STEPS)))
def test_no_stage_begins_before_all_earlier_stages_are_ready(states: list[str]) -> None:
    state = dict(zip(_STEPS, states, strict=True))
    objects = [existing(_FLOW, name, ready=step_state == "ready") for name, step_state in state.items() if step_state != "absent"]
    plan = plan_of(_FLOW, found(*objects), Policy())
    made = {name.removeprefix("lstm-") for name in names(plan)}
    for index, one in enumerate(_FLOW.stages):
        own = {each.name for each in one.steps}
        if made & own and all(state[name] == "absent" for name in own):
            before = [each.name for earlier in _FLOW.stages[:index] for each in earlier.steps]
            assert all(state[name] == "ready" for name in before)
            assert made >= own
    assert json.dumps(status_of(_FLOW, plan.states, "", NOW))


@given(st.lists(st.sampled_from(_STEPS), max_size=4))
def test_repeated_plans_make_every_stage_ready(lost: list[str]) -> None:
    objects = {object_key: body for name in _STEPS if name not in lost for object_key, body in existing(_FLOW, name).items()}
    for _ in range(len(_FLOW.stages) + 1):
        plan = plan_of(_FLOW, found(objects), Policy())
        objects |= {object_key: body | status(True) for _, object_key, body in plan.create}
    assert phases(plan) == ["Ready"] * len(_FLOW.stages)
