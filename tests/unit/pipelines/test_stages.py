"""What a pipeline asks for is read whole, and what is wrong with it is said of the stage that is wrong."""

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


def test_the_file_of_the_earlier_system_is_read_as_it_is() -> None:
    found = pipeline_from(_with_uid(yaml.safe_load(example("lstm-pipeline").read_text(encoding="utf-8"))))
    assert not found.problem
    assert [(each.key, each.title, each.namespace, each.rule, [step.name for step in each.steps]) for each in found.stages] == [
        ("stage1", "data-preprocess", "openfaas-fn", ("dev", "user"), ["load-data", "data-normalization"]),
        ("stage2", "LSTM-model-build", "openfaas-fn", ("dev",), ["train-data-build", "train-model-build", "train-model"]),
        ("stage3", "model-serving", "openfaas-fn", ("dev", "user"), ["model-serving"]),
    ]
    assert {each.problem for each in found.stages} == {""}


def test_stages_come_in_the_order_of_their_numbers() -> None:
    found = pipeline(**{f"stage{number}": stage(f"step-{number}") for number in (10, 9, 1, 2)})
    assert [each.key for each in found.stages] == ["stage1", "stage2", "stage9", "stage10"]


def test_a_stage_is_deployed_into_the_pipelines_own_namespace_unless_it_says_otherwise() -> None:
    first, second = pipeline(stage1=stage("a"), stage2=stage("b", namespace="fn")).stages
    assert (first.namespace, second.namespace) == ("ml", "fn")


def test_gangs_of_pipelines_of_the_same_name_never_meet() -> None:
    flows = [pipeline("x", "a-b", stage1=stage("s", namespace="fn")), pipeline("b-x", "a", stage1=stage("s", namespace="fn"))]
    flows += [pipeline("x", "fn", stage1=stage("s")), pipeline("a-b-x", "fn", stage1=stage("s"))]
    assert len({flow.gang_of(flow.stages[0]) for flow in flows}) == 4


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ({"stage1": stage("a"), "stageX": stage("b")}, r"spec\.pipeline: 'stageX' is not the name of a stage"),
        ({"stage1": stage("a"), "stage01": stage("b")}, r"spec\.pipeline: 'stage01' is not the name of a stage"),
        ({f"stage{number}": stage("a") for number in range(33)}, r"33 stages of a pipeline are more than the 32"),
    ],
)
def test_stages_that_cannot_be_told_apart_or_counted_make_the_pipeline_unreadable(stages: dict[str, Any], words: str) -> None:
    found = pipeline(**stages)
    assert found.stages == ()
    with pytest.raises(MalformedError, match=words):
        raise MalformedError("", found.problem)


@pytest.mark.parametrize("spec", [None, {}, {"pipeline": None}, {"pipeline": {}}, {"pipeline": []}, []])
def test_a_pipeline_without_stages_says_so(spec: object) -> None:
    assert "spec" in pipeline_from({**mlflow(), "spec": spec}).problem


@pytest.mark.parametrize(
    ("wrong", "words"),
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
def test_what_is_wrong_with_a_stage_is_said_of_it_and_leaves_the_others_alone(wrong: object, words: str) -> None:
    first, second = pipeline(stage1=wrong, stage2=stage("other")).stages
    assert words in first.problem
    assert not first.steps
    assert (second.problem, [step.name for step in second.steps]) == ("", ["other"])


def test_a_pipeline_has_so_many_steps_and_no_more() -> None:
    first, second = pipeline(stage1=stage(*(f"s{number}" for number in range(128))), stage2=stage("last")).stages
    assert (first.problem, len(first.steps)) == ("", 128)
    assert "129 steps of a pipeline are more than the 128" in second.problem


def test_a_gang_whose_name_would_be_no_label_is_refused() -> None:
    (found,) = pipeline("x" * 30, "n" * 30, stage1=stage("a", namespace="fn")).stages
    assert "is longer than 63 characters" in found.problem


def test_a_step_is_called_by_a_name_that_no_other_of_the_pipeline_has() -> None:
    first, second = pipeline(stage1=stage("a"), stage2=stage("a")).stages
    assert (first.problem, second.problem) == ("", "spec.pipeline.stage2.step[0].name: 'a' is the name of two steps")


@pytest.mark.parametrize(
    ("namespace", "policy", "words"),
    [
        ("ml", Policy(), ""),
        ("fn", Policy(), "pipelines of namespace ml may not deploy into fn"),
        ("fn", Policy(namespaces=("fn",)), ""),
        ("kube-system", Policy(namespaces=("fn",)), "may not deploy into kube-system"),
        ("ml", Policy(scheduled=("fn",)), "pods of namespace ml are not scheduled here"),
    ],
)
def test_a_stage_goes_only_where_pipelines_of_its_namespace_may(namespace: str, policy: Policy, words: str) -> None:
    flow = pipeline(stage1=stage("a", namespace=namespace))
    refusal = policy.refusal(flow, flow.stages[0])
    assert refusal.startswith(words) if words.startswith("p") else words in refusal
    assert bool(refusal) is bool(words)


@pytest.mark.parametrize(
    ("stated", "used"), [({}, "ours"), ({"schedulerName": "default-scheduler"}, "ours"), ({"schedulerName": "x"}, "x")]
)
def test_the_default_scheduler_stands_for_ours_and_any_other_for_itself(stated: dict[str, str], used: str) -> None:
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
def test_whatever_a_pipeline_says_it_is_read_and_its_status_can_be_told(spec: object, status: object) -> None:
    flow = pipeline_from({**mlflow(), "spec": spec, "status": status})
    told = status_of(flow, plan_of(flow, Found(), Policy()).states, "", "2026-01-02T03:04:05Z")
    assert (told["conditions"][0]["status"] == "True") is (bool(flow.stages) and told["ready"] == f"{len(flow.stages)}/{len(flow.stages)}")


def _with_uid(raw: Any) -> Any:
    return {**raw, "metadata": {**raw["metadata"], "uid": "u"}}
