"""A pod is placed where its resource claims are allocated, and held if one isn't."""

from typing import Any

import pytest

from allaboard.cluster.resource_claims import ResourceClaims, UnallocatedClaimError, resource_claim_from
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind
from allaboard.placement.rules.matching import all_match
from tests.unit.placement.clusters import node, pods

HERE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


def a_pod(*claims: tuple[str, str]) -> Pod:
    (pod,) = pods("p", 1, {}, resource_claims=claims)
    return pod


def a_store(**claims: dict[str, Any]) -> ResourceClaims:
    found = ResourceClaims()
    for name, status in claims.items():
        found.upsert(f"default/{name}", resource_claim_from({"status": status}))
    return found


def test_pod_is_restricted_to_the_nodes_of_its_allocated_claims() -> None:
    store = a_store(gpus={"allocation": {"nodeSelector": HERE}}, anywhere={"allocation": {}})
    spec = store.resolve(a_pod(("x", "gpus"), ("y", "anywhere"))).spec
    assert spec.resource_claims == ()
    ((kind, terms),) = spec.storage
    assert kind is Kind.RESOURCE_CLAIM
    assert [zone for zone in "ab" if all_match((terms,), node("n", {}, labels={"zone": zone}))] == ["a"]


def test_pod_without_resource_claims_is_returned_unchanged() -> None:
    pod = a_pod()
    assert a_store().resolve(pod) is pod


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (("gpu", ""), 'the resourceclaim for "gpu" has not been created yet'),
        (("gpu", "missing"), 'resourceclaim "missing" not found'),
        (("gpu", "waiting"), 'resourceclaim "waiting" is not allocated'),
        (("gpu", "full"), 'resourceclaim "full" is in use by 256 pods'),
    ],
)
def test_pod_whose_claim_allows_no_node_yet_is_refused_with_the_reason(claim: tuple[str, str], words: str) -> None:
    users = [{"uid": str(number)} for number in range(256)]
    store = a_store(waiting={}, full={"allocation": {}, "reservedFor": users})
    with pytest.raises(UnallocatedClaimError, match=words):
        store.resolve(a_pod(claim))


def test_claim_that_is_reserved_for_the_pod_itself_is_not_full() -> None:
    pod = a_pod(("gpu", "mine"))
    users = [{"uid": pod.uid}, *({"uid": str(number)} for number in range(255))]
    assert a_store(mine={"allocation": {}, "reservedFor": users}).resolve(pod).spec.storage == ()


def test_listener_is_called_when_a_claim_changes() -> None:
    calls: list[str] = []
    store = ResourceClaims()
    store.listen(lambda: calls.append("change"))
    for status in ({}, {}, {"allocation": {}}):
        store.upsert("default/gpus", resource_claim_from({"status": status}))
    store.remove("default/gpus")
    assert calls == ["change"] * 3
