"""An autoscaler is asked for the nodes of a whole gang: one ProvisioningRequest, whatever fails, and none that is no longer needed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from allaboard.app import App
from allaboard_sandbox.faults import Fault
from tests import autoscaler
from tests.autoscaler import CLASS, CONSUMES, answer, consumed, provision, requests
from tests.cluster import Body, Cluster

from .conftest import StartApp, gang_pod
from .test_recovery import crash

pytestmark = pytest.mark.usefixtures("served")

ON: dict[str, Any] = {"provisioning_class": CLASS}


@pytest.fixture
def served(cluster: Cluster) -> Iterator[None]:
    """Serve ProvisioningRequests, and grant the operator the rights to them, until the test ends."""
    cluster.apply(autoscaler.CRD)
    autoscaler.grant(cluster)
    yield
    autoscaler.revoke(cluster)


@pytest.fixture
async def asked(cluster: Cluster, start_app: StartApp) -> AsyncIterator[App]:
    """Yield a scheduler that asks for nodes, on a cluster whose only node is too small for a gang."""
    cluster.add_node("small", cpu="2")
    yield await start_app(**ON)


def create_gang(cluster: Cluster, name: str = "gang", members: int = 3, **fields: Any) -> None:
    for number in range(members):
        cluster.create(gang_pod(f"{name}-{number}", name, members, **fields))


def status_of(cluster: Cluster, name: str = "gang") -> Body:
    return (cluster.get("podgroups", name) or {}).get("status") or {}


def message_of(cluster: Cluster, name: str = "gang") -> str:
    return str(status_of(cluster, name).get("message", ""))


def bound(cluster: Cluster, prefix: str = "gang") -> int:
    pods = [pod for pod in cluster.list("pods") if pod["metadata"]["name"].startswith(prefix)]
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods)


def reasons_of(cluster: Cluster) -> set[str]:
    """Return the reasons of the conditions PodScheduled, to which autoscalers react; "" stands for a pod without the condition."""
    found = set()
    for pod in cluster.list("pods"):
        conditions = {each["type"]: each for each in pod["status"].get("conditions") or ()}
        found.add(conditions.get("PodScheduled", {}).get("reason", ""))
    return found


async def until_annotated(cluster: Cluster, prefix: str = "gang") -> Body:
    """Wait until one request exists, and all pods name it. Return the request."""
    await cluster.wait_for(
        lambda s: bool(requests(s)) and consumed(s, prefix) <= {each["metadata"]["name"] for each in requests(s)},
        message="the members name the request",
    )
    (request,) = requests(cluster)
    return request


async def test_gang_that_lacks_nodes_gets_one_request_and_is_bound_when_its_nodes_are_there(cluster: Cluster, asked: App) -> None:
    create_gang(cluster)
    request = await until_annotated(cluster)
    group = cluster.get("podgroups", "gang")
    assert group is not None
    assert [each["uid"] for each in request["metadata"]["ownerReferences"]] == [group["metadata"]["uid"]]
    assert request["spec"]["provisioningClassName"] == CLASS
    (pod_set,) = request["spec"]["podSets"]
    assert pod_set["count"] == 3
    template = cluster.get("podtemplates", pod_set["podTemplateRef"]["name"])
    assert template is not None
    assert template["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    name = request["metadata"]["name"]
    await cluster.wait_for(
        lambda s: f"waits for ProvisioningRequest default/{name}: not yet accepted" in message_of(s), message="the message names it"
    )
    await cluster.wait_for(lambda s: reasons_of(s) == {"Unschedulable"}, message="the pods are reported")
    answer(cluster, request, Accepted="accepted")
    await cluster.wait_for(lambda s: f"default/{name}: Accepted, not yet provisioned" in message_of(s), message="the answer is shown")
    assert provision(cluster, request) == 3
    await cluster.wait_for(lambda s: bound(s) == 3, message="the gang is bound")
    await cluster.wait_for(lambda s: not requests(s) and not s.list("podtemplates"), message="the request is deleted")


async def test_members_are_annotated_and_reported_only_once_the_request_exists(cluster: Cluster, asked: App) -> None:
    held = cluster.faults.pause("create", "provisioningrequests")
    create_gang(cluster)
    await held.arrived()
    await cluster.wait_for(lambda s: "a ProvisioningRequest is being made" in message_of(s), message="the message says so")
    assert consumed(cluster) == {""}
    assert reasons_of(cluster) == {""}  # an autoscaler would add nodes for each of the pods
    held.release()
    await until_annotated(cluster)
    await cluster.wait_for(lambda s: reasons_of(s) == {"Unschedulable"}, message="the pods are reported")


async def test_pods_of_different_kinds_are_different_pod_sets(cluster: Cluster, asked: App) -> None:
    for number in range(3):
        cluster.create(gang_pod(f"gang-{number}", "gang", 3, requests={"cpu": "1" if number else "3"}))
    request = await until_annotated(cluster)
    assert sorted(pod_set["count"] for pod_set in request["spec"]["podSets"]) == [1, 2]
    assert len(cluster.list("podtemplates")) == 2


@pytest.mark.parametrize("resource", ["provisioningrequests", "podtemplates"])
async def test_lost_answer_to_a_creation_leads_to_one_request(cluster: Cluster, asked: App, resource: str) -> None:
    cluster.faults.add(Fault("create", resource, drop=True, after=True))
    create_gang(cluster)
    await until_annotated(cluster)
    assert len(cluster.list("podtemplates")) == 1
    assert not cluster.faults.pending


@pytest.mark.parametrize("resource", ["provisioningrequests", "podtemplates"])
async def test_passing_errors_delay_a_request_only(cluster: Cluster, asked: App, resource: str) -> None:
    cluster.faults.add(Fault("create", resource, times=2, status=500))
    create_gang(cluster)
    await until_annotated(cluster)


@pytest.mark.parametrize(
    ("verb", "resource"),
    [("create", "podtemplates"), ("create", "provisioningrequests"), ("patch", "pods/status"), ("delete", "podtemplates")],
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_scheduler_that_is_killed_between_two_calls_leaves_one_request_to_the_next(
    cluster: Cluster, start_app: StartApp, verb: str, resource: str, after: bool
) -> None:
    cluster.add_node("small", cpu="2")
    first = await start_app(**ON)
    held = cluster.faults.pause(verb, resource, name="gang-1" if resource == "pods/status" else None, after=after, dry_run=False)
    create_gang(cluster)
    if verb == "delete":
        answer(cluster, await until_annotated(cluster), Failed="no quota")
    await held.arrived()
    await crash(first)
    held.release()
    await start_app(**ON)
    if verb == "delete":
        await cluster.wait_for(lambda s: "was given up, Failed: no quota" in message_of(s) and not requests(s), message="it is given up")
        await cluster.wait_for(lambda s: not s.list("podtemplates"), message="the PodTemplates are deleted")
        return
    request = await until_annotated(cluster)
    assert len(cluster.list("podtemplates")) == 1
    provision(cluster, request)
    await cluster.wait_for(lambda s: bound(s) == 3 and not requests(s), message="the gang is bound")


@pytest.mark.parametrize("condition", ["Failed", "BookingExpired", "CapacityRevoked"])
async def test_request_that_brings_no_nodes_is_given_up_and_not_made_again_at_once(cluster: Cluster, asked: App, condition: str) -> None:
    create_gang(cluster)
    request = await until_annotated(cluster)
    answer(cluster, request, Accepted="accepted", Provisioned="there", **{condition: "no quota left"})
    await cluster.wait_for(lambda s: not requests(s) and not s.list("podtemplates"), message="the request is deleted")
    await cluster.wait_for(
        lambda s: f"was given up, {condition}: no quota left; the next one is made after" in message_of(s), message="the message says why"
    )
    await cluster.wait_for(
        lambda s: any(event.get("reason") == "ProvisioningGivenUp" for event in s.list("events")), message="an event says why"
    )
    cluster.add_node("tiny", cpu="100m")  # the gang is attempted again
    create_gang(cluster, "other", 1, requests={"cpu": "9"})
    await cluster.wait_for(lambda s: "other" in "".join(each["metadata"]["name"] for each in requests(s)), message="others go on")
    assert [each["metadata"]["ownerReferences"][0]["name"] for each in requests(cluster)] == ["other"]


async def test_changed_members_get_a_new_request_at_once(cluster: Cluster, asked: App) -> None:
    create_gang(cluster)
    first = await until_annotated(cluster)
    answer(cluster, first, Failed="no quota left")
    await cluster.wait_for(lambda s: "was given up" in message_of(s), message="the request is given up")
    cluster.delete("pods", "gang-0", grace=0)
    cluster.create(gang_pod("gang-0", "gang", 3, requests={"cpu": "2"}))
    await cluster.wait_for(lambda s: bool(requests(s)), message="a new request is made")
    second = await until_annotated(cluster)
    assert second["metadata"]["name"] != first["metadata"]["name"]


async def test_request_is_made_again_after_a_pause(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("small", cpu="2")
    await start_app(**ON, provisioning_backoff_seconds=1.0)
    create_gang(cluster)
    first = await until_annotated(cluster)
    answer(cluster, first, Failed="no quota left")
    await cluster.wait_for(
        lambda s: [each["metadata"]["uid"] for each in requests(s)] not in ([], [first["metadata"]["uid"]]), message="it is made again"
    )


async def test_new_member_of_a_gang_is_annotated_too(cluster: Cluster, asked: App) -> None:
    create_gang(cluster)
    request = await until_annotated(cluster)
    cluster.delete("pods", "gang-1", grace=0)
    cluster.create(gang_pod("gang-1", "gang", 3))
    await cluster.wait_for(lambda s: consumed(s, "gang") == {request["metadata"]["name"]}, message="the new member is annotated")
    assert [each["metadata"]["uid"] for each in requests(cluster)] == [request["metadata"]["uid"]]


async def test_no_request_is_made_where_a_member_names_one(cluster: Cluster, asked: App) -> None:
    create_gang(cluster, annotations={CONSUMES: "made-by-kueue"})
    await cluster.wait_for(lambda s: bool(message_of(s)), message="the gang waits")
    create_gang(cluster, "other", 2)
    create_gang(cluster, "alone", 1, requests={"cpu": "9"})
    await cluster.wait_for(lambda s: bool(requests(s)), message="another gang gets a request")
    assert consumed(cluster, "gang") == {"made-by-kueue"}
    assert not any(each["metadata"]["ownerReferences"][0]["name"] == "gang" for each in requests(cluster))


async def test_request_of_a_deleted_gang_is_deleted(cluster: Cluster, asked: App) -> None:
    create_gang(cluster)
    await until_annotated(cluster)
    for number in range(3):
        cluster.delete("pods", f"gang-{number}", grace=0)
    await cluster.wait_for(lambda s: not requests(s) and not s.list("podtemplates"), message="the request is deleted")


async def test_request_of_another_installation_is_left_alone(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("small", cpu="2")
    second = {**ON, "scheduler_names": ("second",)}
    await start_app(**second)
    create_gang(cluster, schedulerName="second")
    made = await until_annotated(cluster)
    first = await start_app(**ON)
    requester = first._scheduler and first._scheduler.cycle.executor.provisionings.requester
    assert first._scheduler is not None
    assert requester is not None
    await first._scheduler.cycle.executor.provisionings.sweep(requester)
    await first.stop()
    third = await start_app()
    create_gang(cluster, "alone", 1)
    await cluster.wait_for(lambda s: bound(s, "alone") == 1, message="another gang is bound")
    await third.stop()
    assert [each["metadata"]["uid"] for each in requests(cluster)] == [made["metadata"]["uid"]]


async def test_requests_and_annotations_are_removed_when_the_setting_is_switched_off(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("small", cpu="2")
    first = await start_app(**ON)
    create_gang(cluster)
    await until_annotated(cluster)
    await first.stop()
    await start_app()
    await cluster.wait_for(lambda s: not requests(s) and consumed(s) == {""}, message="nothing is left")


async def test_refused_request_is_said_once_and_the_gang_waits_as_without(
    cluster: Cluster, asked: App, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.faults.add(Fault("create", "podtemplates", times=99, status=403, message="podtemplates is forbidden"))
    create_gang(cluster)
    create_gang(cluster, "other", 4)
    for name in ("gang", "other"):
        await cluster.wait_for(
            lambda s, name=name: "no ProvisioningRequest can be made: podtemplates is forbidden" in message_of(s, name),  # type: ignore[misc]
            message="the message says why",
        )
    await cluster.wait_for(lambda s: reasons_of(s) == {"Unschedulable"}, message="autoscalers react to the pods")
    assert consumed(cluster) == {""}
    assert sum("waits for nodes like a gang without" in record.getMessage() for record in caplog.records) == 1


async def test_without_the_crd_gangs_are_scheduled_and_the_log_says_so_once(
    cluster: Cluster, start_app: StartApp, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.delete("customresourcedefinitions", autoscaler.CRD["metadata"]["name"])
    cluster.add_node("large", cpu="8")
    await start_app(**ON)
    create_gang(cluster)
    await cluster.wait_for(lambda s: bound(s) == 3, message="the gang is bound")
    create_gang(cluster, "large", 2, requests={"cpu": "9"})
    await cluster.wait_for(lambda s: "Unschedulable" in reasons_of(s), message="the gang waits")
    assert sum("ProvisioningRequests can't be listed" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.sandbox_only("a real API server checks the status by the CRD's schema")
async def test_malformed_status_changes_nothing(cluster: Cluster, asked: App) -> None:
    create_gang(cluster)
    request = await until_annotated(cluster)
    name = request["metadata"]["name"]
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd = {**autoscaler.CRD, "spec": {**autoscaler.CRD["spec"]}}
    crd["spec"]["versions"] = [{**crd["spec"]["versions"][0], "schema": {"openAPIV3Schema": {**loose, "properties": {"status": loose}}}}]
    cluster.apply(crd)
    for status in (
        {"conditions": "Provisioned"},
        {"conditions": [{"type": ["Failed"], "status": "True"}]},
        {"conditions": [{"type": "Failed", "status": True, "message": {"a": 1}}]},
        {"conditions": [{"type": "Provisioned", "status": "True"}] * 300},
        {"conditions": [None, 7]},
    ):
        cluster.patch("provisioningrequests", name, {"status": {"conditions": None}}, subresource="status")
        cluster.patch("provisioningrequests", name, {"status": status}, subresource="status")
        await asyncio.sleep(0)
    cluster.patch(
        "provisioningrequests",
        name,
        {
            "status": {
                "conditions": [
                    {"type": "Accepted", "status": "True"},
                    {"type": "Provisioned", "status": "False", "message": "no\nnode" * 99},
                ]
            }
        },
        subresource="status",
    )
    await cluster.wait_for(lambda s: "Accepted, not yet provisioned (no\\nnode" in message_of(s), message="the message is bounded")
    assert len(message_of(cluster)) < 800
    provision(cluster, request)
    await cluster.wait_for(lambda s: bound(s) == 3, message="the gang is bound")
