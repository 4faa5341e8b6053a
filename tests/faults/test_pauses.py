"""Tests that a request can be held at a chosen point, and that it vanishes with a client that dies."""

import asyncio

import aiohttp
import pytest

from allaboard_sandbox import Sandbox
from allaboard_sandbox.faults import FOR_EVER

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "pause"}]}}


def bind(http: aiohttp.ClientSession, cluster: Sandbox) -> "asyncio.Task[int]":
    async def post() -> int:
        body = {"metadata": {"name": "a"}, "target": {"name": "node-1"}}
        async with http.post(f"{cluster.url}/api/v1/namespaces/default/pods/a/binding", json=body) as answer:
            return answer.status

    return asyncio.create_task(post())


def is_bound(cluster: Sandbox) -> bool:
    pod = cluster.get("pods", "a")
    assert pod is not None
    return "nodeName" in pod["spec"]


@pytest.mark.parametrize("after", [False, True])
async def test_fault_can_hold_a_request_before_or_after_the_api_server_carries_it_out(after: bool) -> None:
    async with Sandbox() as cluster, aiohttp.ClientSession() as http:
        cluster.create(POD)
        hold = cluster.faults.pause("bind", "pods", after=after)
        request = bind(http, cluster)
        await hold.arrived()
        assert is_bound(cluster) is after
        assert not request.done()
        hold.release()
        assert await request == 201
        assert is_bound(cluster)


async def test_held_request_of_a_client_that_has_gone_is_never_carried_out() -> None:
    async with Sandbox() as cluster:
        cluster.create(POD)
        hold = cluster.faults.pause("bind", "pods")
        async with aiohttp.ClientSession() as http:
            request = bind(http, cluster)
            await hold.arrived()
            request.cancel()
        await hold.abandoned()
        hold.release()
        assert not is_bound(cluster)


async def test_all_requests_but_watches_can_be_held_from_a_chosen_request_onwards() -> None:
    async with Sandbox() as cluster, aiohttp.ClientSession() as http:
        cluster.create(POD)
        hold = cluster.faults.pause("[!w]*", nth=2, times=FOR_EVER)
        pods = f"{cluster.url}/api/v1/pods"
        async with http.get(pods) as answer:
            assert answer.status == 200
        held = [asyncio.create_task(http.get(pods)), bind(http, cluster)]
        await hold.arrived()
        async with http.get(pods, params={"watch": "1", "timeoutSeconds": "0"}) as answer:
            assert answer.status == 200
        assert not any(request.done() for request in held)
        hold.release()
        for outcome in await asyncio.gather(*held):
            if isinstance(outcome, aiohttp.ClientResponse):
                outcome.release()


async def test_sandbox_can_record_the_requests_that_reach_its_api_server() -> None:
    async with Sandbox() as cluster, aiohttp.ClientSession() as http:
        cluster.create(POD)
        with cluster.faults.noting() as calls:
            await bind(http, cluster)
        await bind(http, cluster)
        assert [(call.verb, call.resource, call.subresource, call.name) for call in calls] == [("bind", "pods", "binding", "a")]
