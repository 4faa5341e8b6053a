"""Capacity stays assumed only while a bind may still arrive, and no member is bound to a node that has become unsuitable."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from allaboard.app import App
from allaboard.kube.client import ApiError, ApiServer
from allaboard.report.pods import PodReporter
from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER, Hold
from tests.cluster import Body, Cluster, Home

from .conftest import NAMESPACE, StartApp, gang_pod, without_lease
from .test_all_or_none import bound, message, replica_set
from .test_recovery import foreign_pod

LEADS = {"leader_elect": True, "lease_namespace": NAMESPACE}


@pytest.fixture
async def cluster(home: Home) -> AsyncIterator[Cluster]:
    """Yield a cluster whose bound pods don't start during a test."""
    async with home.open(startup_delay=3600) as opened:
        yield opened


def create_namespaces(cluster: Cluster) -> None:
    for name in ("evil", "team"):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    without_lease(cluster)


def bound_in(cluster: Cluster, namespace: str) -> int:
    return sum(1 for pod in cluster.list("pods", namespace) if pod["spec"].get("nodeName"))


def delete(cluster: Cluster) -> None:
    cluster.delete("nodes", "node-1", "")


def cordon(cluster: Cluster) -> None:
    cluster.patch("nodes", "node-1", {"spec": {"unschedulable": True}}, "")


def become_unready(cluster: Cluster) -> None:
    node = cluster.get("nodes", "node-1", "") or {}
    conditions = [{**each, "status": "False"} if each["type"] == "Ready" else each for each in node["status"]["conditions"]]
    cluster.patch("nodes", "node-1", {"status": {"conditions": conditions}}, "", "status")


def shrink(cluster: Cluster) -> None:
    cluster.patch("nodes", "node-1", {"status": {"allocatable": {"cpu": "1"}}}, "", "status")


def replace(cluster: Cluster) -> None:
    delete(cluster)
    cluster.add_node("node-1", cpu="1")


def fill(cluster: Cluster) -> None:
    cluster.create(foreign_pod("node-1", "4"))


@pytest.mark.usefixtures("watched_binds")
@pytest.mark.parametrize("change", [delete, cordon, become_unready, shrink, replace, fill])
async def test_no_member_is_bound_to_a_node_that_becomes_unsuitable_during_the_dry_run(
    change: Callable[[Cluster], None], cluster: Cluster, start_app: StartApp
) -> None:
    app = await start_app()
    cluster.add_node("node-1", cpu="4")
    dry_run_bind = cluster.faults.pause("bind", "pods", dry_run=True)
    cluster.create(replica_set(replicas=4))
    await asyncio.wait_for(dry_run_bind.arrived(), 20)
    before = (app.view.node("node-1"), app.view.counts["pods"])
    change(cluster)
    await _until(lambda: _has_seen_change(app, before, change))
    dry_run_bind.release()
    await cluster.wait_for(lambda s: "of 4 members placeable" in message(s))
    assert not bound(cluster, "gang")


async def _until(holds: Callable[[], bool]) -> None:
    """Wait until ``holds()``, by polling: no event of the cluster reports what the operator knows, or that a request is under way."""
    async with asyncio.timeout(50):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _has_seen_change(app: App, before: tuple[Any, int], change: Callable[[Cluster], None]) -> bool:
    if change is replace:
        node = app.view.node("node-1")
        return node is not None and dict(node.allocatable)["cpu"] == 1000
    return (app.view.node("node-1"), app.view.counts["pods"]) != before


@pytest.mark.usefixtures("watched_binds")
@pytest.mark.parametrize("rejected", ["w-0", "w-1", "w-2"])
async def test_gang_of_bare_pods_is_not_bound_in_part_when_a_webhook_refuses_the_bind_of_one_pod(
    rejected: str, cluster: Cluster, start_app: StartApp
) -> None:
    await start_app()
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", name=rejected, times=FOR_EVER, status=403, message="denied by a webhook", dry_run=None))
    for number in range(3):
        cluster.create(gang_pod(f"w-{number}"))
    await cluster.wait_for(lambda s: f"pod {rejected} can't be bound" in message(s))
    assert not bound(cluster)


@pytest.mark.usefixtures("watched_binds")
async def test_pods_with_equal_requests_and_different_labels_get_separate_dry_runs(cluster: Cluster, start_app: StartApp) -> None:
    """The gang has two roles of the same requests, each with a controller; admission rejects the pods of one role."""
    await start_app()
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", name="ps-*", times=FOR_EVER, status=403, message="denied by a webhook", dry_run=None))
    for role in ("worker", "ps"):
        made = replica_set(replicas=2, minimum=4)
        made["metadata"]["name"] = role
        made["spec"]["selector"]["matchLabels"]["app"] = made["spec"]["template"]["metadata"]["labels"]["app"] = role
        cluster.create(made)
    with cluster.faults.noting() as calls:
        await cluster.wait_for(lambda s: "can't be bound" in message(s))
    assert not any(call.verb == "bind" and not call.is_dry_run for call in calls)


@pytest.fixture
def late_posts(monkeypatch: pytest.MonkeyPatch) -> "LatePosts":
    posts = LatePosts()
    original = ApiServer.post

    async def post(self: ApiServer, path: str, body: Any, query: Any = None) -> Any:
        if not (posts.is_delaying and not query and path.endswith("/binding") and "/pods/a-" in path):
            return await original(self, path, body, query)

        async def send_later() -> Any:
            await posts.resumes.wait()
            return await original(self, path, body, query)

        posts.sent.append(asyncio.create_task(send_later()))
        raise ApiError(0, "Timeout", "no answer")

    monkeypatch.setattr(ApiServer, "post", post)
    return posts


class LatePosts:
    """Binds of the pods a-… that get no answer, and are carried out once ``resumes`` is set."""

    def __init__(self) -> None:
        self.is_delaying = True
        self.resumes = asyncio.Event()
        self.sent: list[asyncio.Task[Any]] = []

    async def arrive(self) -> list[Any]:
        self.resumes.set()
        return await asyncio.gather(*self.sent, return_exceptions=True)


async def test_capacity_of_an_unanswered_bind_stays_assumed_while_the_bind_may_arrive(
    cluster: Cluster, start_app: StartApp, late_posts: LatePosts
) -> None:
    await start_app(bind_attempts=1, backoff_initial_seconds=5.0, backoff_max_seconds=5.0)
    cluster.add_node("node-1", cpu="2")
    cluster.faults.add(Fault("patch", "pods/status", name="a-*", times=FOR_EVER, status=503))  # the pods can't be fenced off either
    for number in range(2):
        cluster.create(gang_pod(f"a-{number}", "a", 2))
    await _until(lambda: len(late_posts.sent) == 2)
    for number in range(2):
        cluster.create(gang_pod(f"b-{number}", "b", 2))
    await cluster.wait_for(lambda s: "0 of 2 members placeable" in message(s, "b"))
    await late_posts.arrive()
    await cluster.wait_for(lambda s: "2 members bound" in message(s, "a"))
    assert bound(cluster) == ["a-0", "a-1"]


@pytest.mark.usefixtures("watched_binds")
async def test_unanswered_bind_that_arrives_after_its_capacity_was_freed_is_rejected(
    cluster: Cluster, start_app: StartApp, late_posts: LatePosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write_nothing(*_: object) -> None:
        """Stand in for the write of a pod's condition, and do nothing: a write would change the pod's resourceVersion."""

    monkeypatch.setattr(PodReporter, "_write", write_nothing)
    app = await start_app(bind_attempts=1)
    cluster.add_node("node-1", cpu="2")
    for number in range(2):
        cluster.create(gang_pod(f"a-{number}", "a", 2))
    await _until(lambda: len(late_posts.sent) == 2)
    late_posts.is_delaying = False
    again = cluster.faults.pause("bind", "pods", dry_run=True, times=2)
    await asyncio.wait_for(again.arrived(), 20)
    answers = await late_posts.arrive()
    assert [isinstance(answer, ApiError) and answer.status for answer in answers] == [409, 409]
    assert not bound(cluster)
    again.release()
    await cluster.wait_for(lambda s: bound(s) == ["a-0", "a-1"])
    await _until(lambda: not app.view.counts["assumed_pods"])


async def test_capacity_does_not_stay_assumed_during_a_long_pause_that_the_api_server_asks_for(
    cluster: Cluster, start_app: StartApp
) -> None:
    await start_app(backoff_max_seconds=60)
    create_namespaces(cluster)
    cluster.add_node("node-1", cpu="4")
    cluster.faults.add(Fault("bind", "pods", name="e-*", times=FOR_EVER, status=429, retry_after=86_400, dry_run=None))
    with cluster.faults.noting() as calls:
        for number in range(4):
            cluster.create(gang_pod(f"e-{number}", minimum=4, namespace="evil"))
        await cluster.wait_for(lambda _: any(call.verb == "bind" for call in calls))
        for number in range(4):
            cluster.create(gang_pod(f"t-{number}", minimum=4, namespace="team"))
        await cluster.wait_for(lambda s: bound_in(s, "team") == 4)
    assert not bound_in(cluster, "evil")
    assert sum(call.name.startswith("e-") for call in calls if call.verb == "bind") == 4, (
        "each bind is tried once, and then the gang is in backoff"
    )


def create_unpatchable(cluster: Cluster, **spec: Any) -> Body:
    """Create a pod that can't be patched, since a webhook of its namespace is broken."""
    cluster.faults.add(Fault("patch", "pods", name="unpatchable", times=FOR_EVER, status=500, message="failed calling webhook"))
    return cluster.create(gang_pod("unpatchable", minimum=1, namespace="evil", requests={"cpu": "2"}, **spec))


async def test_gangs_are_scheduled_while_a_webhook_keeps_a_pod_from_being_fenced_off(cluster: Cluster, start_app: StartApp) -> None:
    create_namespaces(cluster)
    cluster.add_node("node-1", cpu="3")
    create_unpatchable(cluster, nodeSelector={"no": "where"})
    await start_app(**LEADS)
    for number in range(3):
        cluster.create(gang_pod(f"t-{number}", namespace="team"))
    await cluster.wait_for(lambda s: bound_in(s, "team") == 3)


async def test_capacity_is_reserved_where_a_pod_that_cannot_be_fenced_off_may_be_bound(cluster: Cluster, start_app: StartApp) -> None:
    create_namespaces(cluster)
    cluster.add_node("node-1", cpu="4")
    create_unpatchable(cluster)
    app = await start_app(**LEADS)
    for number in range(3):
        cluster.create(gang_pod(f"t-{number}"))
    await cluster.wait_for(lambda s: "2 of 3 members placeable" in message(s))
    assert not bound_in(cluster, "evil")
    cluster.delete("pods", "unpatchable", "evil", grace=0)
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert app.view.snapshot().used.max(initial=0) >= 3000


async def test_gang_that_loses_its_members_repeatedly_is_placed_after_a_backoff(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(backoff_initial_seconds=2.0, backoff_max_seconds=60.0)
    cluster.add_node("node-1")
    cluster.create(replica_set(replicas=2))
    loop, placed = asyncio.get_running_loop(), []
    for _ in range(3):
        await cluster.wait_for(lambda s: sum(1 for pod in s.list("pods") if _is_placed(pod)) == 2)
        placed.append(loop.time())
        for pod in [pod for pod in cluster.list("pods") if _is_placed(pod)]:
            with suppress(KeyError):
                cluster.finish_pod(pod["metadata"]["name"], phase="Failed")
    assert placed[1] - placed[0] < 1.5, "the first time the members are replaced at once"
    assert placed[2] - placed[1] > 1.5


def _is_placed(pod: Body) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] != "Failed"


PORTS = [{"name": "main", "image": "pause", "ports": [{"containerPort": 80, "hostPort": 8080}], "resources": {"requests": {"cpu": "1"}}}]


async def test_bind_is_not_retried_on_a_node_whose_host_port_was_taken_meanwhile(cluster: Cluster, start_app: StartApp) -> None:
    app = await start_app()
    cluster.add_node("node-1", cpu="8")
    first = Hold()
    cluster.faults.add(Fault("bind", "pods", status=503, hold=first))
    cluster.create(gang_pod("mine", minimum=1, containers=PORTS))
    await asyncio.wait_for(first.arrived(), 20)
    theirs = foreign_pod("node-1", "1")
    theirs["spec"]["containers"] = PORTS
    cluster.create(theirs)
    await _until(lambda: app.view.counts["pods"] == 2)
    first.release()
    await cluster.wait_for(lambda s: "didn't have free ports" in message(s))
    assert bound(cluster, "mine") == []


def disk(cluster: Cluster, name: str) -> None:
    """Create a claim that is bound to a volume of a CSI driver."""
    csi = {"driver": "disk.example.com", "volumeHandle": f"handle-{name}"}
    parts = {"accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "csi": csi}
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"pv-{name}"}
    cluster.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"pv-{name}"}, "spec": parts})
    metadata = {"name": name, "namespace": "default"}
    cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim})
    cluster.patch("persistentvolumeclaims", name, {"status": {"phase": "Bound"}}, subresource="status")


def with_disks(pod: Body, *claims: str) -> Body:
    pod["spec"]["volumes"] = [{"name": f"v-{claim}", "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return pod


async def test_node_is_given_no_more_volumes_than_it_can_attach(cluster: Cluster, start_app: StartApp) -> None:
    drivers = [{"name": "disk.example.com", "nodeID": "n1", "topologyKeys": [], "allocatable": {"count": 3}}]
    cluster.add_node("node-1", cpu="8")
    cluster.create({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "node-1"}, "spec": {"drivers": drivers}})
    for name in ("shared", "a", "b", "theirs"):
        disk(cluster, name)
    cluster.create(with_disks(foreign_pod("node-1", "1"), "theirs"))
    await start_app()
    for name in ("a", "b"):
        cluster.create(with_disks(gang_pod(name, minimum=2), name, "shared"))
    await cluster.wait_for(lambda s: "1 node(s) exceed max volume count" in message(s))
    assert bound(cluster, "a") == bound(cluster, "b") == []
    cluster.delete("pods", "foreign", grace=0)
    await cluster.wait_for(lambda s: len(bound(s)) == 2)


async def test_capacity_that_another_scheduler_nominated_goes_only_to_gangs_of_higher_priority(
    cluster: Cluster, start_app: StartApp
) -> None:
    cluster.add_node("node-1", cpu="4")
    for name, value in (("important", 1000), ("urgent", 2000)):
        cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    theirs = gang_pod("theirs", "other", 1, requests={"cpu": "4"}, schedulerName="someone", priorityClassName="important")
    cluster.create(theirs)
    cluster.patch("pods", "theirs", {"status": {"nominatedNodeName": "node-1"}}, subresource="status")
    await start_app()
    cluster.create(gang_pod("low", minimum=1))
    await cluster.wait_for(lambda s: "Insufficient cpu" in message(s))
    cluster.create(gang_pod("high", "high", 1, priorityClassName="urgent"))
    await cluster.wait_for(lambda s: bound(s) == ["high"])
    cluster.delete("pods", "theirs", grace=0)
    await cluster.wait_for(lambda s: bound(s, "low") == ["low"])
