"""Seats are promised for as long as somebody may take them, and no longer; and nobody takes one that isn't good any more."""

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
from .test_recovery import taker

LEADS = {"leader_elect": True, "lease_namespace": NAMESPACE}


@pytest.fixture
async def cluster(home: Home) -> AsyncIterator[Cluster]:
    """A cluster whose pods take their time to start."""
    async with home.open(startup_delay=3600) as opened:
        yield opened


def namespaces(cluster: Cluster) -> None:
    for name in ("evil", "team"):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    without_lease(cluster)


def bound_in(cluster: Cluster, namespace: str) -> int:
    return sum(1 for pod in cluster.list("pods", namespace) if pod["spec"].get("nodeName"))


def delete(cluster: Cluster) -> None:
    cluster.delete("nodes", "node-1", "")


def cordon(cluster: Cluster) -> None:
    cluster.patch("nodes", "node-1", {"spec": {"unschedulable": True}}, "")


def fall_ill(cluster: Cluster) -> None:
    node = cluster.get("nodes", "node-1", "") or {}
    conditions = [{**each, "status": "False"} if each["type"] == "Ready" else each for each in node["status"]["conditions"]]
    cluster.patch("nodes", "node-1", {"status": {"conditions": conditions}}, "", "status")


def shrink(cluster: Cluster) -> None:
    cluster.patch("nodes", "node-1", {"status": {"allocatable": {"cpu": "1"}}}, "", "status")


def be_replaced(cluster: Cluster) -> None:
    delete(cluster)
    cluster.add_node("node-1", cpu="1")


def be_filled(cluster: Cluster) -> None:
    cluster.create(taker("node-1", "4"))


@pytest.mark.parametrize("change", [delete, cordon, fall_ill, shrink, be_replaced, be_filled])
async def test_nobody_is_bound_to_a_node_that_went_bad_during_the_rehearsal(
    change: Callable[[Cluster], None], cluster: Cluster, start_app: StartApp
) -> None:
    app = await start_app()
    cluster.add_node("node-1", cpu="4")
    rehearsal = cluster.faults.pause("bind", "pods", dry_run=True)
    cluster.create(replica_set(replicas=4))
    await asyncio.wait_for(rehearsal.arrived(), 20)
    before = (app.view.node("node-1"), app.view.counts["pods"])
    change(cluster)
    await _until(lambda: _is_told(app, before, change))
    rehearsal.release()
    await cluster.wait_for(lambda s: "of 4 members placeable" in message(s))
    assert not bound(cluster, "gang")


async def _until(holds: Callable[[], bool]) -> None:
    """Wait for what nothing in the cluster tells of: what the operator knows, or what hasn't arrived."""
    async with asyncio.timeout(50):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _is_told(app: App, before: tuple[Any, int], change: Callable[[Cluster], None]) -> bool:
    if change is be_replaced:
        node = app.view.node("node-1")
        return node is not None and dict(node.allocatable)["cpu"] == 1000
    return (app.view.node("node-1"), app.view.counts["pods"]) != before


@pytest.mark.parametrize("rejected", ["w-0", "w-1", "w-2"])
async def test_bare_pods_of_which_admission_rejects_one_are_not_started_in_part(
    rejected: str, cluster: Cluster, start_app: StartApp
) -> None:
    await start_app()
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", name=rejected, times=FOR_EVER, status=403, message="denied by a webhook", dry_run=None))
    for number in range(3):
        cluster.create(gang_pod(f"w-{number}"))
    await cluster.wait_for(lambda s: f"pod {rejected} can't be bound" in message(s))
    assert not bound(cluster)


async def test_a_template_is_told_by_its_labels_too(cluster: Cluster, start_app: StartApp) -> None:
    """Two roles of one shape, each with a controller; admission rejects the pods of one by their label."""
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
        if not (posts.is_open and not query and path.endswith("/binding") and "/pods/a-" in path):
            return await original(self, path, body, query)

        async def send_at_last() -> Any:
            await posts.resumes.wait()
            return await original(self, path, body, query)

        posts.sent.append(asyncio.create_task(send_at_last()))
        raise ApiError(0, "Timeout", "no answer")

    monkeypatch.setattr(ApiServer, "post", post)
    return posts


class LatePosts:
    """Binds of the pods a-… that nobody answers for, and that are carried out when ``resumes`` is set."""

    def __init__(self) -> None:
        self.is_open = True
        self.resumes = asyncio.Event()
        self.sent: list[asyncio.Task[Any]] = []

    async def arrive(self) -> list[Any]:
        self.resumes.set()
        return await asyncio.gather(*self.sent, return_exceptions=True)


async def test_a_bind_without_an_answer_keeps_its_seat_while_it_may_still_arrive(
    cluster: Cluster, start_app: StartApp, late_posts: LatePosts
) -> None:
    await start_app(bind_attempts=1, backoff_initial_seconds=5.0, backoff_max_seconds=5.0)
    cluster.add_node("node-1", cpu="2")
    cluster.faults.add(Fault("patch", "pods/status", name="a-*", times=FOR_EVER, status=503))  # nor can they be sealed
    for number in range(2):
        cluster.create(gang_pod(f"a-{number}", "a", 2))
    await _until(lambda: len(late_posts.sent) == 2)
    for number in range(2):
        cluster.create(gang_pod(f"b-{number}", "b", 2))
    await cluster.wait_for(lambda s: "0 of 2 members placeable" in message(s, "b"))
    await late_posts.arrive()
    await cluster.wait_for(lambda s: "2 members bound" in message(s, "a"))
    assert bound(cluster) == ["a-0", "a-1"]


async def test_a_bind_without_an_answer_comes_too_late_when_its_seat_is_free_again(
    cluster: Cluster, start_app: StartApp, late_posts: LatePosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def say_nothing(*_: object) -> None:
        """Words would make the pods newer, too."""

    monkeypatch.setattr(PodReporter, "_write", say_nothing)
    app = await start_app(bind_attempts=1)
    cluster.add_node("node-1", cpu="2")
    for number in range(2):
        cluster.create(gang_pod(f"a-{number}", "a", 2))
    await _until(lambda: len(late_posts.sent) == 2)
    late_posts.is_open = False
    again = cluster.faults.pause("bind", "pods", dry_run=True, times=2)
    await asyncio.wait_for(again.arrived(), 20)
    answers = await late_posts.arrive()
    assert [isinstance(answer, ApiError) and answer.status for answer in answers] == [409, 409]
    assert not bound(cluster)
    again.release()
    await cluster.wait_for(lambda s: bound(s) == ["a-0", "a-1"])
    await _until(lambda: not app.view.counts["assumed_pods"])


async def test_nobody_sleeps_through_a_retry_after_with_seats_promised(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(backoff_max_seconds=60)
    namespaces(cluster)
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
    assert sum(call.name.startswith("e-") for call in calls if call.verb == "bind") == 4, "each is tried once, and then there is a pause"


def stuck(cluster: Cluster, **spec: Any) -> Body:
    """A pod of one namespace to which nobody can write, since its webhook is broken."""
    cluster.faults.add(Fault("patch", "pods", name="stuck", times=FOR_EVER, status=500, message="failed calling webhook"))
    return cluster.create(gang_pod("stuck", minimum=1, namespace="evil", requests={"cpu": "2"}, **spec))


async def test_a_webhook_that_keeps_one_pod_from_being_sealed_keeps_nobody_else_waiting(cluster: Cluster, start_app: StartApp) -> None:
    namespaces(cluster)
    cluster.add_node("node-1", cpu="3")
    stuck(cluster, nodeSelector={"no": "where"})
    await start_app(**LEADS)
    for number in range(3):
        cluster.create(gang_pod(f"t-{number}", namespace="team"))
    await cluster.wait_for(lambda s: bound_in(s, "team") == 3)


async def test_room_is_kept_where_a_pod_that_can_t_be_sealed_may_land(cluster: Cluster, start_app: StartApp) -> None:
    namespaces(cluster)
    cluster.add_node("node-1", cpu="4")
    stuck(cluster)
    app = await start_app(**LEADS)
    for number in range(3):
        cluster.create(gang_pod(f"t-{number}"))
    await cluster.wait_for(lambda s: "2 of 3 members placeable" in message(s))
    assert not bound_in(cluster, "evil")
    cluster.delete("pods", "stuck", "evil", grace=0)
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert app.view.snapshot().used.max(initial=0) >= 3000


async def test_a_gang_that_loses_its_members_again_and_again_rests(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(backoff_initial_seconds=2.0, backoff_max_seconds=60.0)
    cluster.add_node("node-1")
    cluster.create(replica_set(replicas=2))
    loop, placed = asyncio.get_running_loop(), []
    for _ in range(3):
        await cluster.wait_for(lambda s: sum(1 for pod in s.list("pods") if _holds(pod)) == 2)
        placed.append(loop.time())
        for pod in [pod for pod in cluster.list("pods") if _holds(pod)]:
            with suppress(KeyError):
                cluster.finish_pod(pod["metadata"]["name"], phase="Failed")
    assert placed[1] - placed[0] < 1.5, "at once the first time"
    assert placed[2] - placed[1] > 1.5


def _holds(pod: Body) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] != "Failed"


PORTS = [{"name": "main", "image": "pause", "ports": [{"containerPort": 80, "hostPort": 8080}], "resources": {"requests": {"cpu": "1"}}}]


async def test_a_port_that_is_taken_between_two_tries_of_a_bind_is_seen(cluster: Cluster, start_app: StartApp) -> None:
    app = await start_app()
    cluster.add_node("node-1", cpu="8")
    first = Hold()
    cluster.faults.add(Fault("bind", "pods", status=503, hold=first))
    cluster.create(gang_pod("mine", minimum=1, containers=PORTS))
    await asyncio.wait_for(first.arrived(), 20)
    theirs = taker("node-1", "1")
    theirs["spec"]["containers"] = PORTS
    cluster.create(theirs)
    await _until(lambda: app.view.counts["pods"] == 2)
    first.release()
    await cluster.wait_for(lambda s: "didn't have free ports" in message(s))
    assert bound(cluster, "mine") == []


def disk(cluster: Cluster, name: str) -> None:
    """A claim that is bound to a volume of a driver whose volumes nodes attach."""
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


async def test_a_node_is_given_no_more_volumes_than_it_can_attach(cluster: Cluster, start_app: StartApp) -> None:
    drivers = [{"name": "disk.example.com", "nodeID": "n1", "topologyKeys": [], "allocatable": {"count": 3}}]
    cluster.add_node("node-1", cpu="8")
    cluster.create({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "node-1"}, "spec": {"drivers": drivers}})
    for name in ("shared", "a", "b", "theirs"):
        disk(cluster, name)
    cluster.create(with_disks(taker("node-1", "1"), "theirs"))
    await start_app()
    for name in ("a", "b"):
        cluster.create(with_disks(gang_pod(name, minimum=2), name, "shared"))
    await cluster.wait_for(lambda s: "1 node(s) exceed max volume count" in message(s))
    assert bound(cluster, "a") == bound(cluster, "b") == []
    cluster.delete("pods", "taker", grace=0)
    await cluster.wait_for(lambda s: len(bound(s)) == 2)


async def test_room_that_another_scheduler_has_made_for_its_pod_is_left_to_it(cluster: Cluster, start_app: StartApp) -> None:
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
