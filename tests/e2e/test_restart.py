"""The operator is replaced while gangs arrive, as in an update of its Deployment."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.cluster import Cluster, Home
from tests.stories import running

from .conftest import StartOperator
from .workloads import deployment, gangs, partially_bound

GANGS = 24
MEMBERS = 3


@pytest.fixture
async def cluster(alone: None, home: Home) -> AsyncIterator[Cluster]:
    """Yield an empty cluster on which no operator runs yet."""
    async with home.open() as opened:
        yield opened


async def test_gangs_that_arrive_while_the_operator_is_replaced_are_all_scheduled_whole(
    cluster: Cluster, start_operator: StartOperator
) -> None:
    for number in range(1, 5):
        cluster.add_node(f"node-{number}", cpu="24")
    first = await asyncio.to_thread(start_operator)
    is_ended = asyncio.Event()

    async def arrive() -> None:
        for number in range(GANGS):
            if number == 2 * GANGS // 3:
                await is_ended.wait()
            await asyncio.to_thread(cluster.create, deployment(f"gang-{number}", MEMBERS, {"cpu": "1"}))

    arriving = asyncio.create_task(arrive())
    await cluster.wait_for(lambda s: running(s) >= 2 * MEMBERS, message="the first gangs run")
    assert await asyncio.to_thread(first.stop) == 0
    is_ended.set()
    second = await asyncio.to_thread(start_operator)
    await arriving

    await cluster.wait_for(lambda s: running(s) == GANGS * MEMBERS, timeout=20, message="all run")
    assert partially_bound(cluster) == {}
    assert len(gangs(cluster)) == GANGS
    assert [*first.complaints(), *second.complaints()] == []
