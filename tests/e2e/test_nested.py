"""An object that is nested deeper than parsers allow, which a real API server accepts, stops no operator."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.cluster import Body, Cluster
from tests.stories import gang_pod

from .conftest import StartOperator
from .controlplane.operators import OperatorProcess

LEVELS = 5000
CONTAINERS = [{"name": "main", "image": "pause"}]
OBJECTS: dict[str, Body] = {
    "/api/v1/namespaces/default/pods": {"apiVersion": "v1", "kind": "Pod", "spec": {"schedulerName": "other", "containers": CONTAINERS}},
    "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups": {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "spec": {"minMember": 1},
    },
    "/api/v1/namespaces/default/persistentvolumeclaims": {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
    "/apis/batch/v1/namespaces/default/jobs": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}},
    },
}

Create = Callable[[str], None]


def nested(body: Body) -> bytes:
    """Return ``body`` as JSON with deeply nested ``managedFields``.

    Any user may write such an object: the API server accepts ``managedFields`` of any depth if their form is right.
    """
    entry = {"manager": "x", "operation": "Update", "apiVersion": body["apiVersion"], "time": "2026-01-01T00:00:00Z"}
    metadata = {"name": "deep", "labels": {"allaboard.dev/suspended": "true"}}
    metadata["managedFields"] = [{**entry, "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": "HERE"}}]  # type: ignore[assignment]
    return json.dumps({**body, "metadata": metadata}).replace('"HERE"', '{"f:a":' * LEVELS + "{}" + "}" * LEVELS).encode()


@pytest.fixture
async def create(control_plane: Any, cluster: Cluster) -> AsyncIterator[Create]:
    """Yield a function that creates a deeply nested object, and delete the objects at the end; the tests can't parse them."""
    created: list[str] = []

    def make(path: str) -> None:
        created.append(f"{path}/deep?gracePeriodSeconds=0&propagationPolicy=Background")
        assert control_plane.api.send("POST", path, nested(OBJECTS[path])) == 201

    yield make
    for path in created:
        async with asyncio.timeout(60):
            while await asyncio.to_thread(control_plane.api.send, "DELETE", path) != 404:  # noqa: ASYNC110  # the API server has no event to wait for
                await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def running(operator: OperatorProcess) -> list[OperatorProcess]:
    """Return a list of one item, the operator that schedules at present; a test that starts another operator replaces the item."""
    return [operator]


def is_bound(cluster: Cluster, name: str) -> bool:
    return bool((cluster.get("pods", name) or {})["spec"].get("nodeName"))


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.rpartition("/")[2])
async def test_object_that_is_nested_too_deep_stops_neither_a_running_nor_a_starting_operator(
    path: str, create: Create, cluster: Cluster, running: list[OperatorProcess], start_operator: StartOperator
) -> None:
    cluster.add_node("node-1")
    create(path)
    cluster.create(gang_pod("after", "after", 1))
    await cluster.wait_for(lambda s: is_bound(s, "after"), message="the running operator schedules")
    first = running.pop()
    assert first.complaints() == []

    assert await asyncio.to_thread(first.stop) == 0
    running.append(await asyncio.to_thread(start_operator))
    cluster.create(gang_pod("again", "again", 1))
    await cluster.wait_for(lambda s: is_bound(s, "again"), message="the started operator schedules")
    assert running[0].complaints() == []
