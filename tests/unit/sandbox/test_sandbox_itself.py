"""Features that only the sandbox has: a limited history, bulk loads, ``wait_for``, and stopping with open watches."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from allaboard_sandbox import NodeShape, Sandbox, node_object
from allaboard_sandbox.api import WriteOptions
from allaboard_sandbox.binding import bind

PODS = "/api/v1/namespaces/default/pods"
MakePod = Callable[..., dict[str, Any]]


async def test_sandbox_stops_while_watches_are_open() -> None:
    sandbox = Sandbox()
    await sandbox.start()
    async with aiohttp.ClientSession(sandbox.url) as session, session.get(PODS, params={"watch": "1"}) as response:
        async with asyncio.timeout(50):
            await sandbox.stop()
        assert not await response.content.readline()


async def test_a_watch_from_a_revision_older_than_the_history_is_expired(pod: MakePod) -> None:
    async with Sandbox(history=10, startup_delay=0) as small, aiohttp.ClientSession(small.url) as session:
        old = small.create(pod("first"))["metadata"]["resourceVersion"]
        for number in range(50):
            small.create(pod(f"p{number}"))
        async with session.get(PODS, params={"watch": "1", "resourceVersion": old}) as response:
            assert json.loads(await response.content.readline())["type"] == "ERROR"


async def test_wait_for_raises_the_given_message_at_its_timeout(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutError, match="the pod never ran"):
        await sandbox.wait_for(lambda _: False, timeout=0.01, message="the pod never ran")


async def test_bulk_loaded_pods_are_listed_and_use_capacity_of_their_nodes(sandbox: Sandbox, pod: MakePod) -> None:
    node = node_object("node-1", NodeShape(cpu="2"))
    full = pod("loaded", nodeName="node-1", requests={"cpu": "2"})
    full["metadata"] |= {"namespace": "default", "uid": "1"}
    full["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    sandbox.load([node, {**full, "status": {"phase": "Running"}}])
    assert sandbox.get("nodes", "node-1")["spec"] == {}  # type: ignore[index]
    sandbox.create(pod("late", requests={"cpu": "2"}))
    bind(sandbox.api, "default", "late", {"metadata": {"name": "late"}, "target": {"name": "node-1"}}, WriteOptions())
    await sandbox.wait_for(lambda cluster: cluster.get("pods", "late")["status"]["phase"] == "Failed")  # type: ignore[index]
    assert {each["metadata"]["name"] for each in sandbox.list("pods")} == {"loaded", "late"}
