"""Tests that the headroom is kept free on each node."""

import pytest

from allaboard.cluster.view import ClusterView
from allaboard.model.headroom import headroom_from, with_headroom
from allaboard.model.node import Node

GI = 1024**3
ALLOCATABLE = (("cpu", 8000), ("memory", 16 * GI), ("nvidia.com/gpu", 4))


@pytest.mark.parametrize(
    ("resource", "text", "left"),
    [
        ("cpu", "20%", 6400),
        ("cpu", "500m", 7500),
        ("cpu", "100%", 0),
        ("cpu", "99", 0),
        ("memory", "4Gi", 12 * GI),
        ("cpu", "0.01%", 7999),
        ("cpu", "7%", 7440),
    ],
)
def test_headroom_keeps_a_percentage_or_an_amount_free(resource: str, text: str, left: int) -> None:
    offered = dict(with_headroom(ALLOCATABLE, {resource: headroom_from(resource, text)}))
    assert offered.get(resource, 0) == left
    assert {name: amount for name, amount in offered.items() if name != resource} == {
        name: amount for name, amount in ALLOCATABLE if name != resource
    }


@pytest.mark.parametrize("text", ["101%", "-1", "much", "", "5%%"])
def test_headroom_that_is_neither_percentage_nor_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither"):
        headroom_from("cpu", text)


def test_nodes_of_a_view_offer_their_allocatable_less_the_headroom() -> None:
    view = ClusterView({"cpu": headroom_from("cpu", "20%")})
    view.upsert_node(Node("n", "n", ALLOCATABLE))
    snapshot = view.snapshot()
    assert dict(zip(snapshot.resources, snapshot.allocatable[0].tolist(), strict=True))["cpu"] == 6400
    assert dict(zip(snapshot.resources, snapshot.allocatable[0].tolist(), strict=True))["nvidia.com/gpu"] == 4
