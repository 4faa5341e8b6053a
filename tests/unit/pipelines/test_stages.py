"""Tests that an MLFlow is read into stages, and that a mistake is reported for the stage that has it."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from allaboard.cli.bundled import example
from allaboard.model.errors import MalformedError
from allaboard.pipelines.plan import Found, plan_of, status_of
from allaboard.pipelines.stages import Policy, pipeline_from
from tests.unit.pipelines.mlflows import mlflow, pipeline, stage, step


def test_pipeline_file_of_the_earlier_scheduler_is_read_unchanged() -> None:
    found = pipeline_from(_with_uid(yaml.safe_load(example("lstm-pipeline").read_text(encoding="utf-8"))))
    assert not found.problem
    assert [(each.key, each.title, each.namespace, each.rule, [step.name for step in each.steps]) for each in found.stages] == [
        ("stage1", "data-preprocess", "openfaas-fn", ("dev", "user"), ["load-data", "data-normalization"]),
        ("stage2", "LSTM-model-build", "openfaas-fn", ("dev",), ["train-data-build", "train-model-build", "train-model"]),
        ("stage3", "model-serving", "openfaas-fn", ("dev", "user"), ["model-serving"]),
    ]
    assert {each.problem for each in found.stages} == {""}


def test_stages_are_in_the_order_of_their_numbers() -> None:
    found = pipeline(**{f"stage{number}": stage(f"step-{number}") for number in (10, 9, 1, 2)})
    assert [each.key for each in found.stages] == ["stage1", "stage2", "stage9", "stage10"]


def test_stage_is_deployed_into_the_pipelines_namespace_unless_it_names_another() -> None:
    first, second = pipeline(stage1=stage("a"), stage2=stage("b", namespace="fn")).stages
    assert (first.namespace, second.namespace) == ("ml", "fn")


def test_pipelines_with_equal_names_never_share_a_gang() -> None:
    flows = [pipeline("x", "a-b", stage1=stage("s", namespace="fn")), pipeline("b-x", "a", stage1=stage("s", namespace="fn"))]
    flows += [pipeline("x", "fn", stage1=stage("s")), pipeline("a-b-x", "fn", stage1=stage("s"))]
    assert len({flow.gang_of(flow.stages[0]) for flow in flows}) == 4


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ({"stage1": stage("a"), "stageX": stage("b")}, r"spec\.pipeline: 'stageX' is not the name of a stage"),
        ({"stage1": stage("a"), "stage01": stage("b")}, r"spec\.pipeline: 'stage01' is not the name of a stage"),
        ({f"stage{number}": stage("a") for number in range(33)}, r"33 stages of a pipeline are more than the 32"),
    ],
)
def test_malformed_stage_name_or_too_many_stages_make_the_whole_pipeline_unreadable(stages: dict[str, Any], message: str) -> None:
    found = pipeline(**stages)
    assert found.stages == ()
    with pytest.raises(MalformedError, match=message):
        raise MalformedError("", found.problem)


@pytest.mark.parametrize("spec", [None, {}, {"pipeline": None}, {"pipeline": {}}, {"pipeline": []}, []])
def test_pipeline_without_stages_has_a_problem(spec: object) -> None:
    assert "spec" in pipeline_from({**mlflow(), "spec": spec}).problem


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (stage(), "spec.pipeline.stage1.step: has no steps"),
        ("none", "spec.pipeline.stage1: 'none' is not an object"),
        ({"step": {"name": "a"}}, "spec.pipeline.stage1.step: {'name': 'a'} is not a list"),
        (stage("a", "a"), "spec.pipeline.stage1.step[1].name: 'a' is the name of two steps"),
        (stage("Load_Data"), "spec.pipeline.stage1.step[0].name: 'Load_Data' must be"),
        (stage("x" * 59), "longer than 63 characters"),
        (stage("../../pods"), "must be lower-case letters"),
        ({"step": [step("a", mlfun="two words")]}, "spec.pipeline.stage1.step[0].mlfun: 'two words' is not the name of an image"),
        ({"step": [step("a", mlfun=None)]}, "mlfun: '' is not the name of an image"),
        ({"step": [step("a", requests={"cpu": "much"})]}, "spec.pipeline.stage1.step[0].requests[cpu]: 'much' is not a quantity"),
        ({"step": [step("a", requests={"bad key\n": "1"})]}, r"step[0].requests: 'bad key\n' is not the name of a resource"),
        ({"step": [step("a", limits={"cpu\n": "1"})]}, r"step[0].limits: 'cpu\n' is not the name of a resource"),
        ({"step": [step("a", limits=["cpu"])]}, "limits: ['cpu'] is not an object"),
        (stage("a", namespace="No/Such"), "spec.pipeline.stage1.namespace: 'No/Such' can't be the name of a namespace"),
        (stage("a", rule=["dev,admin"]), "spec.pipeline.stage1.rule: 'dev,admin' must be"),
        (stage("a", rule="dev"), "rule: 'dev' is not a list"),
        (stage("a", schedulerName=3), "schedulerName: 3 is not a string"),
    ],
)
def test_mistake_in_a_stage_is_reported_for_that_stage_alone(wrong: object, message: str) -> None:
    first, second = pipeline(stage1=wrong, stage2=stage("other")).stages
    assert message in first.problem
    assert not first.steps
    assert (second.problem, [step.name for step in second.steps]) == ("", ["other"])


def test_pipeline_has_at_most_128_steps() -> None:
    first, second = pipeline(stage1=stage(*(f"s{number}" for number in range(128))), stage2=stage("last")).stages
    assert (first.problem, len(first.steps)) == ("", 128)
    assert "129 steps of a pipeline are more than the 128" in second.problem


def test_stage_whose_gang_name_is_too_long_for_a_label_is_refused() -> None:
    (found,) = pipeline("x" * 30, "n" * 30, stage1=stage("a", namespace="fn")).stages
    assert "is longer than 63 characters" in found.problem


def test_step_name_that_an_earlier_stage_has_is_refused() -> None:
    first, second = pipeline(stage1=stage("a"), stage2=stage("a")).stages
    assert (first.problem, second.problem) == ("", "spec.pipeline.stage2.step[0].name: 'a' is the name of two steps")


@pytest.mark.parametrize(
    ("namespace", "policy", "message"),
    [
        ("ml", Policy(), ""),
        ("fn", Policy(), "pipelines of namespace ml may not deploy into fn"),
        ("fn", Policy(namespaces=("fn",)), ""),
        ("kube-system", Policy(namespaces=("fn",)), "may not deploy into kube-system"),
        ("ml", Policy(scheduled=("fn",)), "pods of namespace ml are not scheduled here"),
    ],
)
def test_stage_is_deployed_only_into_namespaces_that_are_open_to_its_pipeline(namespace: str, policy: Policy, message: str) -> None:
    flow = pipeline(stage1=stage("a", namespace=namespace))
    refusal = policy.refusal(flow, flow.stages[0])
    assert refusal.startswith(message) if message.startswith("p") else message in refusal
    assert bool(refusal) is bool(message)


@pytest.mark.parametrize(
    ("stated", "used"), [({}, "ours"), ({"schedulerName": "default-scheduler"}, "ours"), ({"schedulerName": "x"}, "x")]
)
def test_pipeline_pods_get_our_scheduler_instead_of_default_scheduler_and_keep_any_other_name(stated: dict[str, str], used: str) -> None:
    assert Policy(("ours", "other")).scheduler_of(pipeline(stage1=stage("a", **stated)).stages[0]) == used


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["a", "fn", "1", "example/a:1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["pipeline", "stage1", "stage2", "step", "name", "mlfun", "namespace", "rule", "requests", "cpu", "conditions"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(_JSON, _JSON)
def test_pipeline_with_random_json_is_read_and_has_a_status(spec: object, status: object) -> None:
    flow = pipeline_from({**mlflow(), "spec": spec, "status": status})
    shown = status_of(flow, plan_of(flow, Found(), Policy()).states, "", "2026-01-02T03:04:05Z")
    assert (shown["conditions"][0]["status"] == "True") is (
        bool(flow.stages) and shown["ready"] == f"{len(flow.stages)}/{len(flow.stages)}"
    )


def _with_uid(raw: Any) -> Any:
    return {**raw, "metadata": {**raw["metadata"], "uid": "u"}}
