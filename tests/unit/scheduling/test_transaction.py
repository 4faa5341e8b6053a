"""The last look before seats are promised."""

from typing import cast

from allaboard.cluster.bind import Binder
from allaboard.cluster.view import ClusterView
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.scheduling.transaction import Refused, Transaction, begin
from tests.unit.placement.clusters import node, pods


def test_members_that_would_sit_apart_are_promised_nothing() -> None:
    members = pods("w", 2, {"cpu": 1000})
    gang = Gang(GangKey("default", "g"), 2, tuple(members), 0, 0.0, Objective.BINPACK, 60, required_topology="rack")
    view = ClusterView()
    for name, rack in (("a", "x"), ("b", "x"), ("c", "y")):
        view.upsert_node(node(name, {"cpu": 1000}, labels={"rack": rack}))
    for pod in members:
        view.upsert_pod(pod)
    binder = cast("Binder", None)  # nothing is bound yet

    refused = begin(gang, {"w-0": "a", "w-1": "c"}, view, binder, lambda: gang)

    assert isinstance(refused, Refused)
    assert "members would not share one rack: x, y" in refused.message
    assert not any(view.is_assumed(pod) for pod in members)
    assert isinstance(begin(gang, {"w-0": "a", "w-1": "b"}, view, binder, lambda: gang), Transaction)
