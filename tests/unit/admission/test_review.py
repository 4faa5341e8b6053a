"""What is answered about pods and workloads that are about to be stored."""

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.admission.review import FUNCTION_LABEL, Rules, answer
from allaboard.admission.templates import PATHS
from allaboard.gangs.membership import GANG_LABELS, membership_of
from allaboard.model.pod import pod_from

PAIR = "pod-group.scheduling.sigs.k8s.io"
NAME, MINIMUM = f"{PAIR}/name", f"{PAIR}/min-available"
GANG = {NAME: "train", MINIMUM: "5"}
RULES = Rules(("allaboard", "other-name-of-ours"))

Body = dict[str, Any]


def template(labels: object = GANG, annotations: object = None, **spec: object) -> Body:
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": {"containers": [{"name": "main"}], **spec}}


def review(raw: object, kind: str = "Pod", group: str = "", operation: str = "CREATE", old: object = None) -> Body:
    request = {
        "uid": "42",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "operation": operation,
        "namespace": "ml",
        "object": raw,
        "oldObject": old,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def asked(body: object, rules: Rules = RULES) -> Body:
    """The response to a review."""
    whole = answer(orjson.dumps(body), rules)
    assert (whole["apiVersion"], whole["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Body = whole["response"]
    return response


def patch_in(response: Body) -> Any:
    return orjson.loads(base64.b64decode(response["patch"])) if "patch" in response else None


def workload(group: str, kind: str, *templates: Body) -> Body:
    """A workload of a kind with templates where it has them: in maps and lists as ``0``, ``1``, …"""
    raw: Body = {}
    for path in PATHS[group, kind][:1]:
        head, star, tail = path.partition(".*.")
        inside = [_nested(tail, each) for each in templates] if star else templates[0]
        raw = _nested(head, dict(zip("01", inside, strict=False)) if head.endswith("ReplicaSpecs") else inside)
    return raw


def _nested(path: str, value: object) -> Any:
    for step in reversed(path.split(".")):
        value = {step: value}
    return value


def test_a_pod_of_a_gang_that_names_no_scheduler_is_given_ours() -> None:
    for stated in ({}, {"schedulerName": None}, {"schedulerName": ""}, {"schedulerName": "default-scheduler"}):
        response = asked(review(template(**stated)))
        assert response["uid"] == "42"
        assert response["allowed"]
        assert response["patchType"] == "JSONPatch"
        assert patch_in(response) == [{"op": "add", "path": "/spec/schedulerName", "value": "allaboard"}]


@pytest.mark.parametrize("label", ["scheduling.x-k8s.io/pod-group", PAIR])
def test_so_is_one_whose_label_names_a_pod_group(label: str) -> None:
    assert patch_in(asked(review(template({label: "train"}))))


@pytest.mark.parametrize(
    "pod",
    [
        template(schedulerName="somebody-else"),
        template({NAME: "train", MINIMUM: "five"}, schedulerName="somebody-else"),
        template(schedulerName="other-name-of-ours"),
        template({"app": "web"}),
        template({"app": "web"}, {"allaboard.dev/nothing": "x"}),
        template({FUNCTION_LABEL: "resize"}),
        template(nodeName="node-1"),
        template(schedulingGroup={"podGroupName": "native"}),
        template({NAME: None}),
        {"metadata": {"labels": GANG}},
    ],
)
def test_any_other_pod_is_let_through_as_it_is(pod: Body) -> None:
    assert asked(review(pod)) == {"uid": "42", "allowed": True}


def test_a_function_pod_is_ours_where_the_adapter_is_on() -> None:
    pod = template({FUNCTION_LABEL: "resize"})
    assert patch_in(asked(review(pod), Rules(("allaboard",), openfaas=True)))
    assert not patch_in(asked(review({**pod, "spec": {"schedulerName": "theirs"}}), Rules(("allaboard",), openfaas=True)))


def test_pods_of_namespaces_that_the_scheduler_leaves_alone_are_left_alone() -> None:
    rules = Rules(("allaboard",), ("elsewhere",))
    assert asked(review(template()), rules) == {"uid": "42", "allowed": True}
    assert asked(review(template({NAME: "x"})), rules)["allowed"]
    assert patch_in(asked(review(template()), Rules(("allaboard",), ("ml",))))


def test_only_a_pod_that_is_made_is_given_a_scheduler() -> None:
    assert not patch_in(asked(review(template(), operation="UPDATE", old=template())))
    assert not patch_in(asked(review(workload("apps", "Deployment", template()), "Deployment", "apps")))


@pytest.mark.parametrize(
    ("labels", "annotations", "words"),
    [
        ({**GANG, MINIMUM: "five"}, None, f"metadata.labels[{MINIMUM}]: 'five' is not a whole number of at least 1"),
        ({**GANG, MINIMUM: "0"}, None, f"metadata.labels[{MINIMUM}]: "),
        ({**GANG, MINIMUM: 5}, None, f"metadata.labels[{MINIMUM}]: 5 is not a string"),
        ({NAME: "train"}, None, f"metadata.labels[{MINIMUM}]: labels {NAME} and {MINIMUM} go together; {MINIMUM} is missing"),
        ({MINIMUM: "3"}, None, f"metadata.labels[{NAME}]: "),
        ({"scheduling.x-k8s.io/pod-group": ""}, None, "metadata.labels[scheduling.x-k8s.io/pod-group]: "),
        (GANG, {"allaboard.dev/objective": "tetris"}, "metadata.annotations[allaboard.dev/objective]: 'tetris' is not one of "),
        (GANG, {"allaboard.dev/objektive": "spread"}, "metadata.annotations[allaboard.dev/objektive]: "),
        (GANG, {"allaboard.dev/min-members": "ps"}, "metadata.annotations[allaboard.dev/min-members]: "),
        (GANG, {"allaboard.dev/role": "a b"}, "metadata.annotations[allaboard.dev/role]: "),
        (GANG, {"allaboard.dev/required-topology": "!"}, "metadata.annotations[allaboard.dev/required-topology]: "),
        ({"scheduling.x-k8s.io/pod-group": "x"}, {"allaboard.dev/undo": "no"}, "metadata.annotations[allaboard.dev/undo]: "),
    ],
)
@pytest.mark.parametrize("of", [("", "Pod"), *PATHS], ids=lambda of: of[1])
def test_what_the_scheduler_would_hold_is_refused_with_the_field(of: tuple[str, str], labels: Body, annotations: Body, words: str) -> None:
    group, kind = of
    wrong = template(labels, annotations)
    raw = wrong if kind == "Pod" else workload(group, kind, wrong)

    response = asked(review(raw, kind, group))

    assert not response["allowed"]
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    path = "" if kind == "Pod" else PATHS[group, kind][0].replace(".*.", "[0]." if "ReplicaSpecs" not in PATHS[group, kind][0] else ".0.")
    assert status["message"].startswith(f"{path}.{words}" if path else words)
    assert "patch" not in response


def test_templates_of_one_gang_that_disagree_are_refused() -> None:
    wrong = workload("kubeflow.org", "TFJob", template(), template({**GANG, MINIMUM: "4"}))
    message = asked(review(wrong, "TFJob", "kubeflow.org"))["status"]["message"]
    assert message.startswith(f"spec.tfReplicaSpecs.1.template.metadata.labels[{MINIMUM}]: PodGroupMinAvailables do not match")


def test_templates_of_several_gangs_need_not_agree() -> None:
    job = workload("jobset.x-k8s.io", "JobSet", template(), template({NAME: "other", MINIMUM: "4"}))
    assert asked(review(job, "JobSet", "jobset.x-k8s.io"))["allowed"]


def test_of_an_update_only_what_it_makes_wrong_is_refused() -> None:
    good, wrong = (workload("batch", "Job", template(labels)) for labels in (GANG, {**GANG, MINIMUM: "five"}))
    finalized = {**wrong, "metadata": {"finalizers": []}}
    assert not asked(review(wrong, "Job", "batch", "UPDATE", old=good))["allowed"]
    assert asked(review(finalized, "Job", "batch", "UPDATE", old=wrong))["allowed"]
    assert asked(review(good, "Job", "batch", "UPDATE", old=wrong))["allowed"]


def test_a_template_of_another_scheduler_is_not_looked_at() -> None:
    theirs = workload("apps", "Deployment", template({NAME: "x"}, schedulerName="volcano"))
    assert asked(review(theirs, "Deployment", "apps"))["allowed"]


def test_a_workload_of_very_many_templates_is_looked_at_in_part() -> None:
    raw = _nested("spec.replicatedJobs", [_nested("template.spec.template", template({**GANG, MINIMUM: "x" * 9}))] * 20_000)
    assert len(asked(review(raw, "JobSet", "jobset.x-k8s.io"))["status"]["message"]) <= 2048


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*GANG_LABELS, FUNCTION_LABEL, "app", "allaboard.dev/objective", "allaboard.dev/oops", "allaboard.dev/min-members"])
WORDS = st.sampled_from(["train", "5", "five", "", "spread", "ps=1"]) | JSON
LABELS = st.dictionaries(KEYS, WORDS, max_size=4) | JSON
SCHEDULERS = st.sampled_from([None, "", "default-scheduler", "allaboard", "other-name-of-ours", "theirs"]) | JSON
PODS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"name": JSON, "labels": LABELS, "annotations": LABELS}) | JSON,
        "spec": st.fixed_dictionaries({}, optional={"schedulerName": SCHEDULERS, "nodeName": JSON, "schedulingGroup": JSON}) | JSON,
    },
)
OBJECTS = PODS | PODS.map(lambda pod: _nested("spec.template", pod)) | JSON
OPERATIONS = st.sampled_from(["CREATE", "UPDATE", "DELETE"]) | JSON


@given(st.binary(max_size=64) | JSON.map(orjson.dumps) | st.just(b"[" * 100_000) | st.just(b'{"a":' * 2_000))
def test_whatever_is_sent_is_answered(payload: bytes) -> None:
    assert answer(payload, RULES)["response"]["allowed"] is True


@given(OBJECTS, OBJECTS, OPERATIONS, st.sampled_from([("", "Pod"), ("apps", "Deployment"), ("batch", "Job")]), st.booleans())
def test_nothing_is_changed_but_the_scheduler_of_a_pod_that_names_none(
    raw: object, old: object, operation: object, of: tuple[str, str], openfaas: bool
) -> None:
    body = review(raw, of[1], of[0], "CREATE", old)
    body["request"]["operation"] = operation

    response = asked(body, Rules(RULES.scheduler_names, openfaas=openfaas))

    assert response["uid"] == "42"
    assert response["allowed"] or response["status"]["message"]
    patch = patch_in(response)
    if patch is None:
        return
    assert patch == [{"op": "add", "path": "/spec/schedulerName", "value": "allaboard"}]
    assert response["allowed"]
    assert (of, operation) == (("", "Pod"), "CREATE")
    assert isinstance(raw, dict)
    assert raw["spec"].get("schedulerName") in (None, "", "default-scheduler")
    assert set(raw["metadata"]["labels"]) & {*GANG_LABELS, FUNCTION_LABEL}


@given(LABELS.filter(lambda found: isinstance(found, dict)), LABELS)
def test_what_is_let_in_is_what_the_scheduler_understands(labels: Any, annotations: Any) -> None:
    pod = template(labels, annotations, schedulerName="allaboard")
    pod["metadata"] |= {"name": "new", "namespace": "ml", "uid": "1"}
    record = pod_from(pod)

    is_allowed = asked(review(pod))["allowed"]

    if record.malformed or membership_of(record).error:
        assert not is_allowed
