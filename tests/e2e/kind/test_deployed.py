"""The operator in pods of its own: killed in the middle of commits, and replaced while work arrives."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from subprocess import PIPE, Popen
from uuid import uuid4

import pytest

from allaboard_sandbox import ApiError
from tests.cluster import Body, Cluster
from tests.e2e.workloads import deployment, gangs, in_part
from tests.stories import bound, gang_pod, pods, running

from .real import PATIENCE, is_deployed_whole

NAMESPACE = "allaboard-system"
OURS = "app.kubernetes.io/name=allaboard"
MEMBERS = 64
SEATS = 72
FULL = 140
"""Gangs of three for which four nodes have room."""
BINDS = (1, 2, 3, 17, 49, 64)
"""After how many of a commit the operator is killed."""
ROUNDS = 3
"""At most: on a busy machine a commit may have ended each time before it is seen to have begun."""

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
async def cluster(cluster: Cluster) -> AsyncIterator[Cluster]:
    """The operator is there again at the end."""
    yield cluster
    await cluster.wait_for(is_deployed_whole, 2 * PATIENCE, "the operator is there again")


async def test_a_gang_whose_operator_is_killed_in_the_middle_of_its_commit_is_whole_after_the_restart(
    cluster: Cluster, worker: str, control_plane_node: str
) -> None:
    for number in (1, 2):
        cluster.add_node(f"node-{number}", cpu=str(SEATS // 2), memory="64Gi")
    torn = 0
    for number, binds in enumerate(BINDS * ROUNDS):
        if torn and number >= len(BINDS):
            break
        name = f"gang-{number}"
        arrive(cluster, name, is_controlled=number % 3 == 2)
        with killer(worker, control_plane_node) as kill:
            await cluster.wait_for(partial(has_begun, gang=name, binds=binds), PATIENCE, "the commit has begun")
            kill()
        torn += len(bound(cluster, f"{name}-")) < MEMBERS

        replace(cluster)
        await cluster.wait_for(partial(runs, gang=name, size=MEMBERS), 2 * PATIENCE, "the gang is whole")
        assert len(pods(cluster, f"{name}-")) == MEMBERS
        await finish(cluster, name)
    assert torn, "no commit was in progress when the operator was killed"

    # No seat is leaked: who needs all of them gets all.
    for rank in range(SEATS):
        cluster.create(gang_pod(f"all-{rank}", "all", SEATS))
    await cluster.wait_for(lambda s: running(s, "all") == SEATS, 2 * PATIENCE, "all seats are free")


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
    assert in_part(cluster) == {}


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
        with suppress(ApiError):  # who has gone with the Deployment
            cluster.delete("pods", pod["metadata"]["name"], grace=0)
    await cluster.wait_for(lambda s: not s.list("pods", "default"), PATIENCE, "the gang is gone")


@contextmanager
def killer(*nodes: str) -> Iterator[Callable[[], None]]:
    """What ends every operator at once, without a word; it stands ready on the nodes, since a commit takes no longer than to get there."""
    command = "read -r _ && pkill -KILL --full '[b]in/allaboard'"  # the brackets are for this shell's own words not to match
    ready = [Popen(["docker", "exec", "--interactive", node, "sh", "-c", command], stdin=PIPE) for node in nodes]

    def kill() -> None:
        for process in ready:
            process.communicate(b"now\n", timeout=60)
        assert 0 in [process.returncode for process in ready], "there was nobody to kill"

    try:
        yield kill
    finally:
        for process in ready:
            process.terminate()
            process.wait()


def replace(cluster: Cluster) -> None:
    """Have the operators' pods made anew: kubelets start the old ones again after ever longer pauses."""
    for pod in operators(cluster):
        with suppress(ApiError):
            cluster.delete("pods", pod["metadata"]["name"], NAMESPACE, grace=0)


def operators(cluster: Cluster) -> list[Body]:
    return cluster.list("pods", NAMESPACE, OURS)
