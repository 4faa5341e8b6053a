"""Label and field selectors match objects as kubectl documents them."""

import pytest

from allaboard_sandbox import ApiError
from allaboard_sandbox.kinds import Registry
from allaboard_sandbox.selectors import field_selector, label_selector, object_label_selector

LABELS = {"app": "web", "tier": "front", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=db", True),
        ("missing!=x", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("app notin (db,cache)", True),
        ("missing notin (x)", True),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("!app", False),
        ("empty=", True),
        ("app in (web,db),tier=front,!missing", True),
        ("app in (web,db),tier=back", False),
        ("example.com/a-b_c", False),
    ],
)
def test_label_selectors_match_as_kubectl_documents_them(selector: str, matches: bool) -> None:
    assert label_selector(selector)(LABELS) is matches


def test_a_label_selector_that_cannot_be_parsed_is_a_bad_request() -> None:
    with pytest.raises(ApiError) as refused:
        label_selector("app in web")
    assert (refused.value.status, refused.value.reason) == (400, "BadRequest")


def test_an_object_selector_combines_labels_and_expressions() -> None:
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["front", "back"]},
            {"key": "missing", "operator": "DoesNotExist"},
        ],
    }
    assert object_label_selector(selector)(LABELS)
    assert not object_label_selector(selector)({"app": "web"})


def test_a_missing_selector_selects_nothing_and_an_empty_selector_everything() -> None:
    assert not object_label_selector(None)(LABELS)
    assert object_label_selector({})(LABELS)


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("spec.nodeName=", True),
        ("spec.nodeName!=", False),
        ("status.phase=Pending,spec.schedulerName=allaboard", True),
        ("status.phase!=Succeeded,status.phase!=Failed", True),
        ("metadata.name=p", True),
        ("metadata.namespace=other", False),
        ("spec.hostNetwork=false", True),
    ],
)
def test_pods_are_selected_by_their_fields(selector: str, matches: bool) -> None:
    pods = Registry().named("pods")
    assert pods is not None
    body = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"schedulerName": "allaboard"}, "status": {"phase": "Pending"}}
    assert field_selector(selector, pods)(body) is matches


def test_selecting_by_an_unsupported_field_is_a_bad_request() -> None:
    pods = Registry().named("pods")
    assert pods is not None
    with pytest.raises(ApiError, match=r"field label not supported: spec\.priority"):
        field_selector("spec.priority=1", pods)
