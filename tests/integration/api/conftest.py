"""Raw HTTP requests to the sandbox or a real API server, without the operator's own client in between."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cluster import Cluster

Body = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}


@pytest.fixture
async def http(cluster: Cluster) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cluster.url, timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield session


async def answer(http: aiohttp.ClientSession, method: str, path: str, **options: Any) -> tuple[int, Any]:
    async with http.request(method, path, **options) as response:
        return response.status, await response.json(content_type=None)


async def bind(http: aiohttp.ClientSession, name: str, node: str, *, metadata: Body | None = None, **params: str) -> tuple[int, Any]:
    body = {"metadata": {"name": name, **(metadata or {})}, "target": {"name": node}}
    return await answer(http, "POST", f"{PODS}/{name}/binding", json=body, params=params)


class Watch:
    """An open watch, read event by event."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> Body:
        line = await self.response.content.readline()
        if not line:
            raise EOFError
        event: Body = json.loads(line)
        return event

    async def named(self) -> tuple[str, str]:
        event = await self.next()
        return event["type"], event["object"]["metadata"].get("name", "")


OpenWatch = Callable[..., Awaitable[Watch]]


@pytest.fixture
async def watch(http: aiohttp.ClientSession) -> AsyncIterator[OpenWatch]:
    """Return a function that opens a watch; all opened watches are closed after the test."""
    opened: list[aiohttp.ClientResponse] = []

    async def open_watch(path: str, **params: str) -> Watch:
        response = await http.get(path, params={"watch": "1", **params})
        opened.append(response)
        assert response.status == 200
        return Watch(response)

    yield open_watch
    for response in opened:
        response.close()


@pytest.fixture
def forget(request: pytest.FixtureRequest, cluster: Cluster) -> Callable[[], Awaitable[None]]:
    """Return a function that makes the store forget its history, so that earlier revisions can't be listed."""

    async def forget() -> None:
        if request.config.getoption("--home") == "sandbox":
            cluster.compact()
            return
        async with aiohttp.ClientSession(etcd_of(request.getfixturevalue("control_plane"))) as session:
            _, found = await answer(session, "POST", "/v3/kv/range", json={"key": "AA=="})
            revision = found["header"]["revision"]
            assert (await answer(session, "POST", "/v3/kv/compaction", json={"revision": revision, "physical": True}))[0] == 200
            # With this key, API servers announce the compacted revision to each other; then they forget it too (storage/etcd3/compact.go).
            compacted = {"key": b64encode(b"compact_rev_key").decode(), "value": b64encode(str(revision).encode()).decode()}
            assert (await answer(session, "POST", "/v3/kv/put", json=compacted))[0] == 200

    return forget


def etcd_of(plane: Any) -> str:
    """Return the address of the etcd of a control plane's API server, which only the API server's command line states."""
    command = Path(f"/proc/{plane.processes.pid('kube-apiserver')}/cmdline").read_text().split("\0")
    return next(word for word in command if word.startswith("--etcd-servers=")).partition("=")[2]


def pod(name: str = "p", labels: Body | None = None, annotations: Body | None = None, **spec: Any) -> Body:
    """Return a pod that no scheduler binds; keyword arguments become fields of its spec."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": "busybox:1"}], **spec},
    }


def group(name: str = "g", **spec: Any) -> Body:
    return {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def config_map(name: str, **metadata: Any) -> Body:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def definition(**root: Any) -> Body:
    """Return the CRD of a kind whose schema declares only the fields in ``root``."""
    schema = {"type": "object", "properties": root}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gangs.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "gangs", "singular": "gang", "kind": "Gang", "listKind": "GangList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def is_served(cluster: Cluster) -> bool:
    found = cluster.get("customresourcedefinitions", "gangs.example.com", "") or {}
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def named(items: list[Body]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def revision_of(obj: Body | None) -> str:
    assert obj is not None
    return str(obj["metadata"]["resourceVersion"])
