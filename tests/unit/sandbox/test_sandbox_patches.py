"""The patch formats of the API change objects as a real API server does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard_sandbox import ApiError
from allaboard_sandbox.patches import apply_json_patch, apply_merge_patch, apply_server_side, apply_strategic_merge_patch

JSON = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(min_size=1, max_size=2), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(min_size=1, max_size=2), JSON, max_size=4)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_that_is_applied_again_changes_nothing(body: dict[str, Any], patch: dict[str, Any]) -> None:
    once = apply_merge_patch(body, patch)
    assert apply_merge_patch(once, patch) == once


@given(OBJECTS)
def test_an_empty_merge_patch_changes_nothing(body: dict[str, Any]) -> None:
    assert apply_merge_patch(body, {}) == body


def test_null_in_a_merge_patch_removes_a_field() -> None:
    assert apply_merge_patch({"a": 1, "b": {"c": 1, "d": 2}}, {"a": None, "b": {"c": None}}) == {"b": {"d": 2}}


def test_a_json_patch_whose_test_fails_is_refused_without_details() -> None:
    with pytest.raises(ApiError) as refused:
        apply_json_patch({"metadata": {"resourceVersion": "2"}}, [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}])
    assert refused.value.status == 422
    assert refused.value.message == "the server rejected our request due to an error in our request"
    assert refused.value.body()["details"] == {}


def test_a_json_patch_does_not_change_the_original() -> None:
    body = {"metadata": {"labels": {"a": "1"}}}
    patched = apply_json_patch(body, [{"op": "add", "path": "/metadata/labels/b", "value": "2"}])
    assert patched["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert body == {"metadata": {"labels": {"a": "1"}}}


def test_a_strategic_merge_patch_merges_keyed_lists_and_replaces_other_lists() -> None:
    pod = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}], "tolerations": [{"key": "x"}]}}
    patch = {"spec": {"containers": [{"name": "b", "image": "2"}], "tolerations": [{"key": "y"}]}}
    assert apply_strategic_merge_patch(pod, patch) == {
        "spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}], "tolerations": [{"key": "y"}]}
    }


def test_a_strategic_merge_patch_deletes_items_by_key() -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    patch = {"spec": {"containers": [{"$patch": "delete", "name": "a"}]}}
    assert apply_strategic_merge_patch(pod, patch) == {"spec": {"containers": [{"name": "b"}]}}


def test_a_strategic_merge_patch_sorts_items_by_its_set_element_order() -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    patch = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a", "image": "2"}]}}
    assert apply_strategic_merge_patch(pod, patch) == {"spec": {"containers": [{"name": "b"}, {"name": "a", "image": "2"}]}}


def test_a_strategic_merge_patch_adds_and_removes_single_finalizers() -> None:
    body = {"metadata": {"finalizers": ["a", "b"]}}
    assert apply_strategic_merge_patch(body, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}) == {
        "metadata": {"finalizers": ["b"]}
    }
    assert apply_strategic_merge_patch(body, {"metadata": {"finalizers": ["c"]}}) == {"metadata": {"finalizers": ["a", "b", "c"]}}


def test_replace_in_a_strategic_merge_patch_replaces_a_whole_map() -> None:
    body = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}}}
    patch = {"spec": {"strategy": {"$patch": "replace", "type": "Recreate"}}}
    assert apply_strategic_merge_patch(body, patch) == {"spec": {"strategy": {"type": "Recreate"}}}


def test_server_side_apply_merges_and_removes_nothing() -> None:
    body = {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "a", "image": "1"}]}}
    applied = {"metadata": {"labels": {"b": "2"}, "managedFields": []}, "spec": {"containers": [{"name": "a", "image": "2"}]}}
    assert apply_server_side(body, applied) == {
        "metadata": {"labels": {"a": "1", "b": "2"}},
        "spec": {"containers": [{"name": "a", "image": "2"}]},
    }
