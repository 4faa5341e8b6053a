"""A scheduler completes or rolls back gangs that an earlier one left partially bound; the stamps on the pods are the journal."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from allaboard.app import App
from allaboard.binding.bind import Binder
from allaboard.kube.client import ApiServer
from allaboard.model.pod import pod_from
from allaboard_sandbox import Fault
from allaboard_sandbox.faults import Hold
from tests.cluster import Cluster, Home

from .conftest import StartApp, gang_pod
from .test_all_or_none import bound, conditions, message, replica_set, warnings
from .test_healing import pod_group

pytestmark = pytest.mark.usefixtures("impatient")

STAMP = "0123456789ab"


@pytest.fixture
async def slow_cluster(home: Home) -> AsyncIterator[Cluster]:
    """Yield a cluster whose bound pods don't start during a test, so that they can be released."""
    async with home.open(startup_delay=3600) as opened:
        yield opened


async def crash(app: App) -> None:
    """Cancel all tasks of a scheduler, like a kill: it finishes and reports nothing."""
    tasks = [*(app._scheduler.cycle.executor.tasks.tasks() if app._scheduler else ()), *app._tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    app._tasks.clear()
    app._deciding = None


async def bind(cluster: Cluster, name: str, node: str, minimum: int) -> None:
    """Bind a pod with a stamp, as a scheduler would have done that no longer runs."""
    async with ApiServer.connect() as server:
        reply = await Binder(server).bind(pod_from(cluster.get("pods", name) or {}), node, f"{STAMP}/{minimum}")
    assert reply.is_bound, reply.message


def foreign_pod(node: str, cpu: str) -> dict[str, Any]:
    return gang_pod("foreign", "other", 1, requests={"cpu": cpu}, schedulerName="someone", nodeName=node)


def job(members: int = 3, completions: int | None = None, *, ignores_evictions: bool = False) -> dict[str, Any]:
    """Return a batch Job of ``members`` parallel pods, in which evicted pods count as failed unless it ``ignores_evictions``."""
    template = gang_pod("x", "gang", members)
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "gang", "namespace": "default"},
        "spec": {
            "parallelism": members,
            "completions": completions or members,
            "backoffLimit": 0,
            **({"podFailurePolicy": {"rules": [rule]}} if ignores_evictions else {}),
            "template": {
                "metadata": {"labels": template["metadata"]["labels"]},
                "spec": {**template["spec"], "restartPolicy": "Never"},
            },
        },
    }


async def crash_partway(cluster: Cluster, start_app: StartApp) -> None:
    """Start a scheduler and crash it when two of three members are bound."""
    app = await start_app()
    cluster.add_node("node-1", cpu="3")
    cluster.faults.add(Fault("bind", "pods", nth=3, status=0, delay=3600))
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: len(bound(s)) == 2)
    await crash(app)
    cluster.faults.clear()


async def test_partially_bound_gang_is_completed_by_the_next_scheduler(cluster: Cluster, start_app: StartApp) -> None:
    await crash_partway(cluster, start_app)
    first = set(bound(cluster))
    await start_app()
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert first < set(bound(cluster))


class TestWithPodsThatDoNotStart:
    @pytest.fixture
    def cluster(self, slow_cluster: Cluster) -> Cluster:
        return slow_cluster

    async def test_partially_bound_gang_whose_capacity_is_taken_is_rolled_back_by_the_next_scheduler(
        self, cluster: Cluster, start_app: StartApp
    ) -> None:
        await crash_partway(cluster, start_app)
        cluster.create(foreign_pod("node-1", "1"))
        await start_app()
        await cluster.wait_for(lambda s: not bound(s, "gang"))
        await cluster.wait_for(lambda s: bool(warnings(s, "GangUndone")))
        cluster.delete("pods", "foreign")
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3)

    async def test_whole_gang_that_loses_a_member_during_a_restart_is_healed_and_not_rolled_back(
        self, cluster: Cluster, start_app: StartApp
    ) -> None:
        app = await start_app()
        cluster.add_node("node-1", cpu="3")
        cluster.create(replica_set())
        await cluster.wait_for(lambda s: "3 members bound" in message(s))
        await app.stop()
        cluster.delete("pods", bound(cluster)[0], grace=0)
        kept = set(bound(cluster))
        cluster.create(foreign_pod("node-1", "1"))
        await start_app(schedule_timeout_seconds=1)
        await cluster.wait_for(lambda s: conditions(s).get("PartiallyBound") == "True" and conditions(s).get("Timeout") == "True")
        assert kept <= set(bound(cluster))
        cluster.delete("pods", "foreign")
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3 and conditions(s).get("PartiallyBound") == "False")
        assert kept < set(bound(cluster))

    @pytest.mark.parametrize("ignores_evictions", [True, False], ids=["policy", "no policy"])
    async def test_job_that_cannot_be_completed_is_rolled_back_only_if_it_ignores_evictions(
        self, ignores_evictions: bool, cluster: Cluster, start_app: StartApp
    ) -> None:
        cluster.add_node("node-1")
        cluster.faults.add(Fault("bind", "pods", nth=3, times=10_000, status=403, message="no more"))
        await start_app()
        cluster.create(job(ignores_evictions=ignores_evictions))
        await cluster.wait_for(lambda s: bool(warnings(s, "GangUndone" if ignores_evictions else "KeptOpen")))
        if ignores_evictions:
            await cluster.wait_for(lambda s: len(s.list("pods")) == 3 and not bound(s), message="the members are recreated and unbound")
        else:
            assert len(bound(cluster)) == 2
            assert "podFailurePolicy" in warnings(cluster, "KeptOpen")[0]
            await cluster.wait_for(lambda s: conditions(s).get("PartiallyBound") == "True")
        assert not ((cluster.get("jobs", "gang") or {}).get("status") or {}).get("failed")


async def test_gang_whose_pod_group_is_deleted_during_a_commit_is_completed(cluster: Cluster, start_app: StartApp) -> None:
    app = await start_app(bind_attempts=1)
    cluster.add_node("node-1")
    cluster.create(pod_group("gang", 3))
    app.observe_pod_group("ADDED", cluster.get("podgroups", "gang") or {})
    again = Hold()
    cluster.faults.add(Fault("bind", "pods", name="c", status=503))
    cluster.faults.add(Fault("bind", "pods", name="c", nth=2, status=503, hold=again))
    for name in "abc":
        pod = gang_pod(name)
        pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "gang"}
        cluster.create(pod)
    await asyncio.wait_for(again.arrived(), 20)
    assert bound(cluster) == ["a", "b"]
    app.observe_pod_group("DELETED", cluster.get("podgroups", "gang") or {})
    cluster.delete("podgroups", "gang")
    again.release()
    await cluster.wait_for(lambda s: bound(s) == ["a", "b", "c"])


@pytest.mark.parametrize("refusals", [0, 1])
async def test_younger_of_two_partially_bound_gangs_is_released_for_the_older(
    refusals: int, cluster: Cluster, start_app: StartApp, kubeconfig: Path
) -> None:
    cluster.faults.add(Fault("evict", "pods", times=refusals, status=403))  # then the release is tried again, though nothing else happens
    cluster.add_node("node-1", cpu="2")
    for gang in ("older", "younger"):
        for number in range(2):
            pod = gang_pod(f"{gang}-{number}", gang, 2, annotations={"allaboard.dev/recreate": "true"})
            cluster.create(pod)
    for gang in ("older", "younger"):
        await bind(cluster, f"{gang}-0", "node-1", 2)
    release = cluster.faults.pause("delete", "pods")
    await start_app(schedule_timeout_seconds=1)
    await cluster.wait_for(
        lambda s: conditions(s, "older").get("PartiallyBound") == "True", message="the older is reported as partially bound"
    )
    release.release()
    await cluster.wait_for(lambda s: bound(s, "older") == ["older-0", "older-1"], message="the older is whole")
    assert not bound(cluster, "younger")
    assert any("needs the capacity" in text for text in warnings(cluster, "GangUndone"))


async def test_no_second_gang_is_released_while_released_pods_terminate(cluster: Cluster, start_app: StartApp, kubeconfig: Path) -> None:
    cluster.add_node("node-1", cpu="3")
    gangs = ("oldest", "younger", "youngest")
    for gang in gangs:
        for number in range(2):
            pod = gang_pod(f"{gang}-{number}", gang, 2, annotations={"allaboard.dev/recreate": "true"})
            pod["metadata"]["finalizers"] = ["example.com/held"]
            cluster.create(pod)
    for gang in gangs:
        await bind(cluster, f"{gang}-0", "node-1", 2)
    await start_app(schedule_timeout_seconds=3)
    leaving = "youngest-0"
    await cluster.wait_for(lambda s: "deletionTimestamp" in s.get("pods", leaving)["metadata"])  # type: ignore[index]
    cluster.add_node("node-2", cpu="0")  # a node without capacity doesn't wake the oldest gang; a change of its pod does
    cluster.patch("pods", "oldest-1", {"metadata": {"labels": {"touched": "yes"}}})
    await cluster.wait_for(lambda s: "0/2 nodes" in message(s, "oldest"))
    cluster.patch("pods", leaving, {"metadata": {"finalizers": None}})
    await cluster.wait_for(lambda s: bound(s, "oldest") == ["oldest-0", "oldest-1"], message="the oldest is whole")
    assert bound(cluster, "younger") == ["younger-0"]


async def test_another_gang_is_released_if_the_last_in_the_queue_cannot_be_released(
    cluster: Cluster, start_app: StartApp, kubeconfig: Path
) -> None:
    """The last gang in the queue, by its name, belongs to a Job that counts a lost pod as a failure."""
    cluster.add_node("node-1", cpu="3")
    for gang in ("a", "b"):
        for number in range(2):
            cluster.create(gang_pod(f"{gang}-{number}", gang, 2, annotations={"allaboard.dev/recreate": "true"}))
        await bind(cluster, f"{gang}-0", "node-1", 2)
    cluster.create(job(2))
    await cluster.wait_for(lambda s: len(s.list("pods")) == 6)
    await bind(cluster, cluster.list("pods")[-1]["metadata"]["name"], "node-1", 2)
    await start_app(schedule_timeout_seconds=1)
    await cluster.wait_for(lambda s: not bound(s, "b-"), message="the second is released for the first")
    assert bound(cluster, "gang-")


async def test_partially_bound_gangs_of_bare_pods_are_never_released_for_another_gang(
    cluster: Cluster, start_app: StartApp, kubeconfig: Path
) -> None:
    cluster.add_node("node-1", cpu="2")
    for gang in ("older", "younger"):
        for number in range(2):
            cluster.create(gang_pod(f"{gang}-{number}", gang, 2))
    for gang in ("older", "younger"):
        await bind(cluster, f"{gang}-0", "node-1", 2)
    await start_app(schedule_timeout_seconds=1)
    for gang in ("older", "younger"):
        await cluster.wait_for(lambda s, gang=gang: conditions(s, gang).get("Timeout") == "True")  # type: ignore[misc]
        assert conditions(cluster, gang)["PartiallyBound"] == "True"
    assert bound(cluster) == ["older-0", "younger-0"]


@pytest.mark.parametrize("policy", ["heal", "release"])
async def test_running_gang_with_an_irreplaceable_member_is_released_only_if_its_policy_says_so(
    policy: str, cluster: Cluster, start_app: StartApp
) -> None:
    app = await start_app(schedule_timeout_seconds=1)
    cluster.add_node("node-1", cpu="3")
    workload = replica_set()
    workload["spec"]["template"]["metadata"]["annotations"] = {"allaboard.dev/on-member-lost": policy}
    cluster.create(workload)
    await cluster.wait_for(lambda s: [pod["status"]["phase"] for pod in s.list("pods")] == ["Running"] * 3)
    cluster.add_node("node-2", cpu="3")
    cluster.patch("nodes", "node-1", {"spec": {"unschedulable": True}})
    cluster.patch("nodes", "node-2", {"spec": {"unschedulable": True}})
    # Pods and nodes have separate watches: without this wait the replacement may be bound before the cordons are seen.
    await cluster.wait_for(lambda s: [node.is_unschedulable for node in app.view.snapshot().nodes] == [True, True])
    cluster.delete("pods", bound(cluster)[0], grace=0)
    await cluster.wait_for(lambda s: conditions(s).get("Timeout") == "True")
    if policy == "heal":
        assert len(bound(cluster)) == 2
    else:
        await cluster.wait_for(lambda s: not bound(s), message="the remaining members are released")
    cluster.patch("nodes", "node-2", {"spec": {"unschedulable": False}})
    await cluster.wait_for(lambda s: len(bound(s)) == 3)


@pytest.mark.parametrize("stamp", ["", "/", "x", "0/0", "abc/-1", "abc/99999999999999999999", "zzz/3", "abc/3/3", "abc/٣", "abc/3\n"])
async def test_gang_with_a_forged_stamp_is_bound_and_not_rolled_back(
    stamp: str, cluster: Cluster, start_app: StartApp, kubeconfig: Path
) -> None:
    cluster.add_node("node-1", cpu="3")
    for name in "ab":
        cluster.create(gang_pod(name, minimum=2, annotations={"allaboard.dev/transaction": stamp}))
    await start_app()
    await cluster.wait_for(lambda s: bound(s) == ["a", "b"])
    assert not warnings(cluster, "GangUndone")
