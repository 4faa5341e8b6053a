"""Fault injection: a chosen request fails in the chosen way, and all others succeed, in the sandbox and with a real API server."""

import aiohttp
import pytest

from allaboard_sandbox import Fault
from tests.cluster import Cluster

from .conftest import PODS, answer, bind, pod


def node_of(cluster: Cluster, name: str) -> str | None:
    found = cluster.get("pods", name)
    assert found is not None
    return found["spec"].get("nodeName")


async def test_the_chosen_bind_fails_and_all_other_binds_succeed(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    for name in ("a", "b", "c"):
        cluster.create(pod(name))
    cluster.faults.add(Fault("bind", "pods", nth=2, status=429, retry_after=1))
    assert (await bind(http, "a", "n"))[0] == 201
    async with http.post(f"{PODS}/b/binding", json={"metadata": {"name": "b"}, "target": {"name": "n"}}) as response:
        body = await response.json()
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert (body["reason"], body["details"]["retryAfterSeconds"]) == ("TooManyRequests", 1)
    assert (await bind(http, "c", "n"))[0] == 201
    assert [node_of(cluster, name) for name in ("a", "b", "c")] == ["n", None, "n"]


@pytest.mark.parametrize(("after", "node"), [(False, None), (True, "n")], ids=["request-lost", "reply-lost"])
async def test_a_dropped_connection_hides_whether_the_bind_was_carried_out(
    after: bool, node: str | None, cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    cluster.create(pod("a"))
    cluster.faults.add(Fault("bind", "pods", drop=True, after=after))
    with pytest.raises(aiohttp.ClientError):
        await bind(http, "a", "n")
    assert node_of(cluster, "a") == node


async def test_a_fault_that_hits_a_watch_answers_with_the_status_of_the_fault(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.faults.add(Fault("watch", "pods", status=500))
    status, body = await answer(http, "GET", PODS, params={"watch": "1"})
    assert (status, body["reason"]) == (500, "InternalError")


async def test_a_fault_with_a_delay_and_without_an_error_makes_a_request_slow(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    cluster.faults.add(Fault("get", "pods", status=0, delay=0.01))
    assert (await answer(http, "GET", f"{PODS}/a"))[0] == 200
