"""The operator runs in pods, which are killed during commits, and replaced while gangs arrive."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from subprocess import PIPE, Popen
from uuid import uuid4

import pytest

from allaboard_sandbox import ApiError
from tests.cluster import Body, Cluster
from tests.e2e.workloads import deployment, gangs, partially_bound
from tests.stories import bound, gang_pod, pods, running

from .real import PATIENCE, is_deployed_whole

NAMESPACE = "allaboard-system"
OURS = "app.kubernetes.io/name=allaboard"
MEMBERS = 64
CAPACITY = 72
FULL = 140
"""Number of gangs of three that fit on four nodes."""
BINDS = (1, 2, 3, 17, 49, 64)
"""Numbers of binds of a commit after which the operator is killed."""
ROUNDS = 3
"""Most repetitions of ``BINDS``: on a busy machine a commit may end before the test sees its start."""

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
async def cluster(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Yield the cluster, and wait at the end until the operator is deployed again."""
    yield cluster
    await cluster.wait_for(is_deployed_whole, 2 * PATIENCE, "the operator is deployed again")


async def test_gang_whose_operator_is_killed_in_the_middle_of_its_commit_is_whole_after_the_restart(
    cluster: Cluster, worker: str, control_plane_node: str
) -> None:
    for number in (1, 2):
        cluster.add_node(f"node-{number}", cpu=str(CAPACITY // 2), memory="64Gi")
    interrupted = 0
    for number, binds in enumerate(BINDS * ROUNDS):
        if interrupted and number >= len(BINDS):
            break
        name = f"gang-{number}"
        arrive(cluster, name, is_controlled=number % 3 == 2)
        with killer(worker, control_plane_node) as kill:
            await cluster.wait_for(partial(has_begun, gang=name, binds=binds), PATIENCE, "the commit has begun")
            kill()
        interrupted += len(bound(cluster, f"{name}-")) < MEMBERS

        replace(cluster)
        await cluster.wait_for(partial(runs, gang=name, size=MEMBERS), 2 * PATIENCE, "the gang is whole")
        assert len(pods(cluster, f"{name}-")) == MEMBERS
        await finish(cluster, name)
    assert interrupted, "no commit was in progress when the operator was killed"

    # No capacity has leaked: a gang that needs all of it is bound.
    for rank in range(CAPACITY):
        cluster.create(gang_pod(f"all-{rank}", "all", CAPACITY))
    await cluster.wait_for(lambda s: running(s, "all") == CAPACITY, 2 * PATIENCE, "all capacity is free")


async def test_gangs_that_arrive_while_the_operators_pods_are_replaced_are_all_scheduled_whole(cluster: Cluster) -> None:
    for number in range(1, 5):
        cluster.add_node(f"node-{number}", cpu="24")
    old = {pod["metadata"]["uid"] for pod in operators(cluster)}
    restart = {"spec": {"template": {"metadata": {"annotations": {"allaboard.dev/restarted": uuid4().hex}}}}}
    cluster.patch("deployments", "allaboard", restart, NAMESPACE)

    arrived = 0
    while old & {pod["metadata"]["uid"] for pod in operators(cluster)}:
        name = f"gang-{arrived}"
        cluster.create(deployment(name, 3, {"cpu": "100m"}))
        await cluster.wait_for(partial(runs, gang=name, size=3), PATIENCE, f"{name} runs")
        arrived += 1
        assert arrived < FULL, "the operator's pods are not replaced"

    assert arrived > 1
    assert len(gangs(cluster)) == arrived
    assert partially_bound(cluster) == {}


def has_begun(cluster: Cluster, gang: str, binds: int) -> bool:
    return len(bound(cluster, f"{gang}-")) >= binds


def runs(cluster: Cluster, gang: str, size: int) -> bool:
    return running(cluster, f"{gang}-") == size


def arrive(cluster: Cluster, name: str, *, is_controlled: bool) -> None:
    if is_controlled:
        cluster.create(deployment(name, MEMBERS, {"cpu": "1"}))
        return
    for rank in range(MEMBERS):
        cluster.create(gang_pod(f"{name}-{rank}", name, MEMBERS))


async def finish(cluster: Cluster, name: str) -> None:
    with suppress(ApiError):
        cluster.delete("deployments", name)
    for pod in pods(cluster, f"{name}-"):
        with suppress(ApiError):  # the pod may be gone with its Deployment
            cluster.delete("pods", pod["metadata"]["name"], grace=0)
    await cluster.wait_for(lambda s: not s.list("pods", "default"), PATIENCE, "the gang is gone")


@contextmanager
def killer(*nodes: str) -> Iterator[Callable[[], None]]:
    """Yield a function that kills every operator at once.

    The shells that kill the operators are started on the nodes beforehand, since starting a shell takes longer than a commit.
    """
    command = "read -r _ && pkill -KILL --full '[b]in/allaboard'"  # the brackets keep the pattern from matching this shell itself
    ready = [Popen(["docker", "exec", "--interactive", node, "sh", "-c", command], stdin=PIPE) for node in nodes]

    def kill() -> None:
        for process in ready:
            process.communicate(b"now\n", timeout=60)
        assert 0 in [process.returncode for process in ready], "no operator was running"

    try:
        yield kill
    finally:
        for process in ready:
            process.terminate()
            process.wait()


def replace(cluster: Cluster) -> None:
    """Delete the operators' pods, which are recreated at once: kubelets restart containers after ever longer pauses."""
    for pod in operators(cluster):
        with suppress(ApiError):
            cluster.delete("pods", pod["metadata"]["name"], NAMESPACE, grace=0)


def operators(cluster: Cluster) -> list[Body]:
    return cluster.list("pods", NAMESPACE, OURS)
