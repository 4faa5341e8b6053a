"""The binding subresource, against replies of a real API server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from allaboard.sandbox import ApiError, Sandbox
from allaboard.sandbox.api import WriteOptions
from allaboard.sandbox.binding import bind

REPLIES = yaml.safe_load(Path(__file__).with_name("binding_replies.yaml").read_text())
MakePod = Callable[..., dict[str, Any]]


def to_node(sandbox: Sandbox, name: str, node: str, *, dry_run: bool = False, **metadata: Any) -> None:
    body = {"metadata": {"name": name, **metadata}, "target": {"name": node}}
    bind(sandbox.api, "default", name, body, WriteOptions(dry_run=dry_run))


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: reply["case"].replace(" ", "-"))
async def test_a_bind_is_answered_as_by_a_real_api_server(reply: dict[str, Any], sandbox: Sandbox, pod: MakePod) -> None:
    created = sandbox.create(pod("b", **reply.get("pod", {}).get("spec", {})))
    metadata = created["metadata"]
    if reply["code"] == 201:
        bind(sandbox.api, "default", "b", reply["binding"], WriteOptions())
        bound = sandbox.get("pods", "b")
        assert bound is not None
        assert bound["spec"]["nodeName"] == reply["binding"]["target"]["name"]
        return
    with pytest.raises(ApiError) as refused:
        bind(sandbox.api, "default", "b", reply["binding"], WriteOptions())
    assert (refused.value.status, refused.value.reason) == (reply["code"], reply["reason"])
    expected = reply["message"].replace("{uid}", metadata["uid"]).replace("{revision}", metadata["resourceVersion"])
    assert refused.value.message == expected
    assert refused.value.details == reply.get("details")


async def test_a_pod_that_is_not_there_cannot_be_bound(sandbox: Sandbox) -> None:
    with pytest.raises(ApiError, match='404 NotFound: pods "b" not found'):
        to_node(sandbox, "b", "node-1")


async def test_a_pod_being_deleted_cannot_be_bound(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.create({**pod("b"), "metadata": {"name": "b", "finalizers": ["example.com/hold"]}})
    sandbox.delete("pods", "b")
    with pytest.raises(ApiError, match="pod b is being deleted, cannot be assigned to a host"):
        to_node(sandbox, "b", "node-1")


async def test_the_bindings_annotations_and_labels_are_written_with_the_node(sandbox: Sandbox, pod: MakePod) -> None:
    before = sandbox.create(pod("b", annotations={"kept": "1", "stamp": "old"}))
    to_node(sandbox, "b", "node-1", annotations={"stamp": "new"}, labels={"gang": "g"})
    after = sandbox.get("pods", "b")
    assert after is not None
    assert after["metadata"]["annotations"] == {"kept": "1", "stamp": "new"}
    assert after["metadata"]["labels"] == {"gang": "g"}
    assert int(after["metadata"]["resourceVersion"]) == int(before["metadata"]["resourceVersion"]) + 1


async def test_a_bound_pod_is_scheduled_and_takes_the_nodes_zone(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1", labels={"topology.kubernetes.io/zone": "z1"}, ready=False)
    sandbox.create(pod("b"))
    to_node(sandbox, "b", "node-1")
    bound = sandbox.get("pods", "b")
    assert bound is not None
    assert bound["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z1"
    assert [(each["type"], each["status"]) for each in bound["status"]["conditions"]] == [("PodScheduled", "True")]


async def test_a_dry_run_binds_nothing_but_finds_the_same_faults(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.create(pod("b"))
    to_node(sandbox, "b", "node-1", dry_run=True)
    unbound = sandbox.get("pods", "b")
    assert unbound is not None
    assert "nodeName" not in unbound["spec"]
    to_node(sandbox, "b", "node-1")
    with pytest.raises(ApiError, match="already assigned"):
        to_node(sandbox, "b", "node-1", dry_run=True)


async def test_any_change_of_a_pod_makes_an_older_bind_stale(sandbox: Sandbox, pod: MakePod) -> None:
    seen = sandbox.create(pod("b"))["metadata"]["resourceVersion"]
    sandbox.patch("pods", "b", {"metadata": {"annotations": {"epoch": "2"}}})
    with pytest.raises(ApiError, match="ResourceVersion in precondition"):
        to_node(sandbox, "b", "node-1", resourceVersion=seen)
