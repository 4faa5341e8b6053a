"""Tests reading raw nodes into records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.errors import MalformedError
from allaboard.model.node import Node, Taint, node_from


def raw_node(**parts: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "uid": "u1", "labels": {"zone": "a"}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
        **parts,
    }


def test_a_raw_node_becomes_a_record_with_resources_labels_and_taints() -> None:
    spec = {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoExecute"}]}
    assert node_from(raw_node(spec=spec)) == Node(
        name="n1",
        uid="u1",
        allocatable=(("cpu", 4000), ("pods", 110)),
        labels={"zone": "a"},
        taints=(Taint("gpu", "", "NoSchedule"), Taint("a", "b", "NoExecute")),
        is_unschedulable=True,
        is_ready=True,
    )


@pytest.mark.parametrize(
    "conditions",
    [
        None,
        [],
        [{"type": "Ready", "status": "False"}],
        [{"type": "Ready", "status": "Unknown"}],
        [{"type": "MemoryPressure", "status": "True"}],
    ],
)
def test_a_node_without_a_true_ready_condition_is_not_ready(conditions: Any) -> None:
    assert not node_from(raw_node(status={"conditions": conditions})).is_ready


def test_null_fields_count_as_absent() -> None:
    node = node_from({"metadata": {"name": "n1", "labels": None}, "spec": {"taints": None, "unschedulable": None}, "status": None})
    assert (node.allocatable, node.taints, node.is_unschedulable, node.is_ready) == ((), (), False, False)


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"metadata": {}}, "metadata.name"),
        ({"metadata": {"name": "n1", "labels": {"zone": 1}}}, "metadata.labels[zone]"),
        ({"spec": {"taints": [{"key": 1}]}}, "spec.taints[0].key"),
        ({"spec": {"unschedulable": "no"}}, "spec.unschedulable"),
        ({"status": {"allocatable": {"memory": "16 GB"}}}, "status.allocatable[memory]"),
        ({"status": {"conditions": {}}}, "status.conditions"),
    ],
)
def test_a_malformed_field_of_a_node_is_reported_with_its_path(parts: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedError) as caught:
        node_from(raw_node(**parts))
    assert caught.value.field == field


keys = st.sampled_from(
    [
        "metadata",
        "spec",
        "status",
        "name",
        "uid",
        "labels",
        "taints",
        "key",
        "effect",
        "unschedulable",
        "conditions",
        "type",
        "allocatable",
        "cpu",
    ]
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.integers(), inner, max_size=5),
    max_leaves=25,
)


@given(st.dictionaries(keys, junk, max_size=4), junk)
def test_junk_in_a_node_raises_nothing_but_malformed_error(raw: dict[str, Any], spec: Any) -> None:
    for candidate in (raw, raw_node(spec=spec), raw_node(status=spec)):
        try:
            assert node_from(candidate).name
        except MalformedError as error:
            assert error.field


def test_large_images_are_kept_under_each_of_their_names() -> None:
    images = [
        {"names": ["train@sha256:1", "train:1"], "sizeBytes": 9_000 * 1024**2},
        {"names": ["pause:3"], "sizeBytes": 700_000},
    ]
    node = node_from({"metadata": {"name": "n"}, "status": {"images": images}})
    assert node.images == (("train:1", 9000), ("train@sha256:1", 9000))
