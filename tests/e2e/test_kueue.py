"""Kueue decides when a gang starts, and Allaboard decides where: gangs are queued, admitted, evicted and requeued by a real Kueue."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import Body, Cluster, Home
from tests.stories import bound, gang_pod, pods, running, status_of

from .controlplane import existing
from .controlplane.kueue import GATE, Kueue
from .queued import GANG, HOSTNAME, RACK, Make, add_nodes, add_queue, as_job, as_pods, as_tfjob, condition_of, workload_of
from .test_workloads import uids
from .workloads import deployment, partially_bound

pytestmark = pytest.mark.usefixtures("kueue")

KINDS = pytest.mark.parametrize("make", [as_job, as_tfjob, as_pods])
_REQUIRED = "kueue.x-k8s.io/podset-required-topology"


@pytest.fixture(scope="module")
def kueue(alone: None, home: Home, control_plane: Any) -> Iterator[Kueue]:
    """Run Kueue during the module's tests."""
    if existing.is_wanted():
        pytest.skip("the API server of an existing cluster can't call Kueue's webhooks on this machine")
    with Kueue(control_plane) as started:
        yield started


@pytest.fixture
def impatient(kueue: Kueue) -> Iterator[None]:
    """Let Kueue evict workloads whose pods aren't all ready eight seconds after their admission."""
    requeuing = {"timestamp": "Eviction", "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}
    kueue.start(waitForPodsReady={"timeout": "8s", "recoveryTimeout": "0s", "requeuingStrategy": requeuing})
    yield
    kueue.start()


def submit(cluster: Cluster, make: Make, name: str, **options: Any) -> None:
    for obj in make(name, **options):
        cluster.create(obj)


def gates(cluster: Cluster, gang: str) -> set[str]:
    return {gate["name"] for pod in pods(cluster, gang) for gate in pod["spec"].get("schedulingGates") or ()}


def priority_class(name: str, value: int) -> Body:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


@KINDS
async def test_gang_waits_in_kueues_queue_and_starts_whole_once_it_is_admitted(make: Make, cluster: Cluster) -> None:
    add_nodes(cluster, "node-1", "node-2")
    add_queue(cluster, cpu="6")
    submit(cluster, make, "first")
    await cluster.wait_for(lambda s: running(s, "first") == GANG, message="the first gang runs")

    submit(cluster, make, "second")
    await cluster.wait_for(lambda s: condition_of(s, "second", "QuotaReserved")[0] == "False", message="the second gang is queued")
    assert gates(cluster, "second") >= ({GATE} if make is as_pods else set())
    assert not bound(cluster, "second")

    for pod in pods(cluster, "first"):
        cluster.finish_pod(pod["metadata"]["name"])
    await cluster.wait_for(lambda s: running(s, "second") == GANG, message="the second gang runs")
    assert condition_of(cluster, "second", "Admitted")[0] == "True"


@KINDS
async def test_gang_that_kueue_evicts_leaves_its_nodes_and_runs_again_when_it_is_requeued(make: Make, cluster: Cluster) -> None:
    add_nodes(cluster, "node-1")
    add_queue(cluster, cpu="6")
    submit(cluster, make, "train")
    await cluster.wait_for(lambda s: running(s, "train") == GANG, message="the gang runs")
    before = uids(pods(cluster))

    cluster.patch("workloads", workload_of(cluster, "train")["metadata"]["name"], {"spec": {"active": False}})
    await cluster.wait_for(lambda s: condition_of(s, "train", "Evicted") == ("True", "Deactivated"), message="the gang is evicted")
    await cluster.wait_for(lambda s: not bound(s, "train"), message="its pods are gone")

    if make is as_pods:
        submit(cluster, make, "train", first=GANG)
    cluster.patch("workloads", workload_of(cluster, "train")["metadata"]["name"], {"spec": {"active": True}})
    await cluster.wait_for(lambda s: running(s, "train") == GANG, message="the gang runs again")
    assert not before & uids(pods(cluster, "train"))


@KINDS
async def test_gang_is_bound_to_the_nodes_that_kueue_has_chosen(make: Make, cluster: Cluster) -> None:
    add_nodes(cluster, "a-1", "a-2", cpu="4", rack="a")
    add_nodes(cluster, "b-1", "b-2", cpu="4", rack="b")
    add_queue(cluster, cpu="12", with_topology=True)
    for gang in ("first", "second"):
        submit(cluster, make, gang, annotations={_REQUIRED: RACK})

    await cluster.wait_for(lambda s: running(s) == 2 * GANG, message="both gangs run")
    chosen = {pod["metadata"]["name"]: pod["spec"]["nodeSelector"][HOSTNAME] for pod in pods(cluster)}
    assert {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in bound(cluster)} == chosen
    for gang in ("first", "second"):
        assert len({node.partition("-")[0] for name, node in chosen.items() if name.startswith(gang)}) == 1


async def test_group_of_plain_pods_starts_when_its_last_pod_has_come(cluster: Cluster) -> None:
    add_nodes(cluster, "node-1")
    add_queue(cluster, cpu="6")
    *early, last = as_pods("train")
    for pod in early:
        cluster.create(pod)
    await cluster.wait_for(lambda s: "gated" in status_of(s, "train").get("message", ""), message="the gang waits for Kueue")
    assert not bound(cluster)

    cluster.create(last)
    await cluster.wait_for(lambda s: running(s, "train") == GANG, message="all run")
    await cluster.wait_for(lambda s: status_of(s, "train").get("phase") == "Running", message="the PodGroup says so")


async def test_longest_run_that_a_job_states_to_kueue_is_its_walltime(cluster: Cluster) -> None:
    add_nodes(cluster, "node-1")
    add_queue(cluster, cpu="6")
    submit(cluster, as_job, "train", labels={"kueue.x-k8s.io/max-exec-time-seconds": "600"})
    await cluster.wait_for(lambda s: running(s, "train") == GANG, message="the gang runs")
    assert {pod["metadata"]["annotations"].get("allaboard.dev/walltime") for pod in pods(cluster)} == {"600"}


async def test_kueue_and_not_allaboard_preempts_a_gang_that_kueue_manages(cluster: Cluster) -> None:
    cluster.create(priority_class("high", 1000))
    add_nodes(cluster, "node-1", cpu="6")
    add_queue(cluster, cpu="6", preemption={"withinClusterQueue": "LowerPriority"})
    submit(cluster, as_job, "low")
    await cluster.wait_for(lambda s: running(s, "low") == GANG, message="the gang of low priority runs")

    cluster.create(gang_pod("other-0", "other", 1, priorityClassName="high"))
    await cluster.wait_for(lambda s: "0 of 1" in status_of(s, "other").get("message", ""), message="the gang outside of Kueue is refused")
    assert running(cluster, "low") == GANG

    cluster.delete("pods", "other-0")
    submit(cluster, as_job, "high", priorityClassName="high")
    await cluster.wait_for(lambda s: running(s, "high") == GANG, message="the gang of high priority runs")
    assert condition_of(cluster, "low", "Evicted") == ("True", "Preempted")


async def test_gang_with_quota_and_without_nodes_waits_and_preempts_no_gang(cluster: Cluster) -> None:
    cluster.create(priority_class("high", 1000))
    add_nodes(cluster, "node-1", cpu="6")
    add_queue(cluster, cpu="6")
    cluster.create(deployment("web", 3, {"cpu": "2"}))
    await cluster.wait_for(lambda s: running(s, "web") == 3, message="the gang of low priority runs")
    before = uids(pods(cluster, "web"))

    submit(cluster, as_job, "train", priorityClassName="high")
    await cluster.wait_for(lambda s: "0 of 3" in status_of(s, "train").get("message", ""), message="the admitted gang is refused")
    assert uids(pods(cluster, "web")) == before
    assert condition_of(cluster, "train", "Admitted")[0] == "True"


async def test_gang_evicted_because_its_pods_are_not_ready_in_time_loses_its_reservation(impatient: None, cluster: Cluster) -> None:
    add_nodes(cluster, "node-1", "node-2", cpu="4")
    add_queue(cluster, cpu="6")
    cluster.create(gang_pod("busy-0", "busy", 1, requests={"cpu": "4"}, annotations={"allaboard.dev/walltime": "1h"}))
    await cluster.wait_for(lambda s: running(s, "busy") == 1, message="one node is busy")

    submit(cluster, as_job, "train")
    await cluster.wait_for(lambda s: "expectedStart" in status_of(s, "train"), message="the admitted gang has a reservation")
    # Its name sorts behind "train": both may be created within one second, and then the name decides.
    cluster.create(gang_pod("younger-0", "younger", 1, requests={"cpu": "4"}))
    await cluster.wait_for(lambda s: status_of(s, "younger").get("reason") == "Reserved", message="a later gang finds its node reserved")

    await cluster.wait_for(lambda s: running(s, "younger") == 1, message="the later gang runs once the reservation is gone")
    assert condition_of(cluster, "train", "Evicted")[1] == "PodsReadyTimeout"
    assert not bound(cluster, "train")
    assert partially_bound(cluster) == {}

    cluster.delete("pods", "busy-0")
    await cluster.wait_for(lambda s: condition_of(s, "train", "Requeued")[0] == "True", message="the gang is requeued")
    cluster.delete("pods", "younger-0")
    await cluster.wait_for(lambda s: running(s, "train") == GANG, message="the gang runs when there is capacity")
