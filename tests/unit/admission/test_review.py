"""Tests the answers to admission reviews of pods and workloads."""

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


def response_to(body: object, rules: Rules = RULES) -> Body:
    """Return the response to a review."""
    whole = answer(orjson.dumps(body), rules)
    assert (whole["apiVersion"], whole["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Body = whole["response"]
    return response


def patch_in(response: Body) -> Any:
    return orjson.loads(base64.b64decode(response["patch"])) if "patch" in response else None


def workload(group: str, kind: str, *templates: Body) -> Body:
    """Return a workload of a kind with its pod templates; in maps and lists the templates have the keys ``0``, ``1``, …"""
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


def test_gang_pod_that_names_no_scheduler_gets_our_scheduler() -> None:
    for stated in ({}, {"schedulerName": None}, {"schedulerName": ""}, {"schedulerName": "default-scheduler"}):
        response = response_to(review(template(**stated)))
        assert response["uid"] == "42"
        assert response["allowed"]
        assert response["patchType"] == "JSONPatch"
        assert patch_in(response) == [{"op": "add", "path": "/spec/schedulerName", "value": "allaboard"}]


@pytest.mark.parametrize("label", ["scheduling.x-k8s.io/pod-group", PAIR])
def test_pod_whose_label_names_a_pod_group_gets_our_scheduler(label: str) -> None:
    assert patch_in(response_to(review(template({label: "train"}))))


@pytest.mark.parametrize(
    "pod",
    [
        template(schedulerName="another-scheduler"),
        template({NAME: "train", MINIMUM: "five"}, schedulerName="another-scheduler"),
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
def test_pod_without_gang_labels_or_with_a_scheduler_is_allowed_unchanged(pod: Body) -> None:
    assert response_to(review(pod)) == {"uid": "42", "allowed": True}


def test_function_pod_gets_our_scheduler_if_openfaas_is_on() -> None:
    pod = template({FUNCTION_LABEL: "resize"})
    assert patch_in(response_to(review(pod), Rules(("allaboard",), openfaas=True)))
    assert not patch_in(response_to(review({**pod, "spec": {"schedulerName": "theirs"}}), Rules(("allaboard",), openfaas=True)))


def test_pods_outside_the_scheduled_namespaces_are_allowed_unchanged() -> None:
    rules = Rules(("allaboard",), ("elsewhere",))
    assert response_to(review(template()), rules) == {"uid": "42", "allowed": True}
    assert response_to(review(template({NAME: "x"})), rules)["allowed"]
    assert patch_in(response_to(review(template()), Rules(("allaboard",), ("ml",))))


def test_pod_gets_a_scheduler_from_the_webhook_only_when_it_is_created() -> None:
    assert not patch_in(response_to(review(template(), operation="UPDATE", old=template())))
    assert not patch_in(response_to(review(workload("apps", "Deployment", template()), "Deployment", "apps")))


@pytest.mark.parametrize(
    ("labels", "annotations", "message"),
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
@pytest.mark.parametrize("group_kind", [("", "Pod"), *PATHS], ids=lambda group_kind: group_kind[1])
def test_workload_for_which_the_scheduler_would_hold_its_gang_is_refused_with_the_invalid_field(
    group_kind: tuple[str, str], labels: Body, annotations: Body, message: str
) -> None:
    group, kind = group_kind
    wrong = template(labels, annotations)
    raw = wrong if kind == "Pod" else workload(group, kind, wrong)

    response = response_to(review(raw, kind, group))

    assert not response["allowed"]
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    path = "" if kind == "Pod" else PATHS[group, kind][0].replace(".*.", "[0]." if "ReplicaSpecs" not in PATHS[group, kind][0] else ".0.")
    assert status["message"].startswith(f"{path}.{message}" if path else message)
    assert "patch" not in response


def test_pod_templates_of_one_gang_that_disagree_are_refused() -> None:
    wrong = workload("kubeflow.org", "TFJob", template(), template({**GANG, MINIMUM: "4"}))
    message = response_to(review(wrong, "TFJob", "kubeflow.org"))["status"]["message"]
    assert message.startswith(f"spec.tfReplicaSpecs.1.template.metadata.labels[{MINIMUM}]: PodGroupMinAvailables do not match")


def test_pod_templates_of_different_gangs_need_not_agree() -> None:
    job = workload("jobset.x-k8s.io", "JobSet", template(), template({NAME: "other", MINIMUM: "4"}))
    assert response_to(review(job, "JobSet", "jobset.x-k8s.io"))["allowed"]


def test_update_of_a_workload_is_refused_only_for_mistakes_that_the_update_makes() -> None:
    good, wrong = (workload("batch", "Job", template(labels)) for labels in (GANG, {**GANG, MINIMUM: "five"}))
    finalized = {**wrong, "metadata": {"finalizers": []}}
    assert not response_to(review(wrong, "Job", "batch", "UPDATE", old=good))["allowed"]
    assert response_to(review(finalized, "Job", "batch", "UPDATE", old=wrong))["allowed"]
    assert response_to(review(good, "Job", "batch", "UPDATE", old=wrong))["allowed"]


def test_pod_template_that_names_another_scheduler_is_not_checked() -> None:
    theirs = workload("apps", "Deployment", template({NAME: "x"}, schedulerName="volcano"))
    assert response_to(review(theirs, "Deployment", "apps"))["allowed"]


def test_refusal_of_a_workload_with_very_many_templates_has_a_short_message() -> None:
    raw = _nested("spec.replicatedJobs", [_nested("template.spec.template", template({**GANG, MINIMUM: "x" * 9}))] * 20_000)
    assert len(response_to(review(raw, "JobSet", "jobset.x-k8s.io"))["status"]["message"]) <= 2048


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
def test_malformed_admission_review_is_allowed(payload: bytes) -> None:
    assert answer(payload, RULES)["response"]["allowed"] is True


@given(OBJECTS, OBJECTS, OPERATIONS, st.sampled_from([("", "Pod"), ("apps", "Deployment"), ("batch", "Job")]), st.booleans())
def test_webhook_changes_only_the_scheduler_name_of_pods_that_name_no_scheduler(
    raw: object, old: object, operation: object, group_kind: tuple[str, str], openfaas: bool
) -> None:
    body = review(raw, group_kind[1], group_kind[0], "CREATE", old)
    body["request"]["operation"] = operation

    response = response_to(body, Rules(RULES.scheduler_names, openfaas=openfaas))

    assert response["uid"] == "42"
    assert response["allowed"] or response["status"]["message"]
    patch = patch_in(response)
    if patch is None:
        return
    assert patch == [{"op": "add", "path": "/spec/schedulerName", "value": "allaboard"}]
    assert response["allowed"]
    assert (group_kind, operation) == (("", "Pod"), "CREATE")
    assert isinstance(raw, dict)
    assert raw["spec"].get("schedulerName") in (None, "", "default-scheduler")
    assert set(raw["metadata"]["labels"]) & {*GANG_LABELS, FUNCTION_LABEL}


@given(LABELS.filter(lambda found: isinstance(found, dict)), LABELS)
def test_pod_that_the_scheduler_does_not_understand_is_refused(labels: Any, annotations: Any) -> None:
    pod = template(labels, annotations, schedulerName="allaboard")
    pod["metadata"] |= {"name": "new", "namespace": "ml", "uid": "1"}
    record = pod_from(pod)

    is_allowed = response_to(review(pod))["allowed"]

    if record.malformed or membership_of(record).error:
        assert not is_allowed
