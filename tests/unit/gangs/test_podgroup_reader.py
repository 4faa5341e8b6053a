"""The reader of PodGroups, which also finds PodGroups whose deletion was not reported."""

from typing import Any, cast

import pytest

from allaboard.gangs.podgroup_reader import PodGroupReader
from allaboard.gangs.registry import GangRegistry
from allaboard.kube.client import ApiError, ApiServer


def a_group(name: str, version: str = "5") -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "uid": name, "resourceVersion": version, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"minMember": 2}}


class Server:
    """An API server that lists ``groups``, or raises ``error`` if that is set."""

    def __init__(self) -> None:
        self.groups: list[dict[str, Any]] = []
        self.error: ApiError | None = None

    async def get(self, path: object, query: object = None) -> dict[str, Any]:
        if self.error:
            raise self.error
        return {"metadata": {"resourceVersion": "9"}, "items": self.groups}


def a_reader() -> tuple[Server, GangRegistry, PodGroupReader]:
    server, registry = Server(), GangRegistry(["allaboard"])
    return server, registry, PodGroupReader(cast(ApiServer, server), registry)


def names(registry: GangRegistry) -> set[str]:
    return {key.name for key in registry.groups()}


def test_a_podgroup_is_known_until_it_is_deleted_and_a_malformed_one_is_left_out() -> None:
    _, registry, reader = a_reader()
    reader.observe(a_group("a"))
    reader.observe({**a_group("malformed"), "metadata": "none"})
    assert names(registry) == {"a"}
    reader.forget(a_group("a", version="6"))
    assert names(registry) == set()


async def test_a_podgroup_whose_deletion_was_not_reported_is_forgotten_when_podgroups_are_listed() -> None:
    server, registry, reader = a_reader()
    reader.observe(a_group("gone"))
    server.groups = [a_group("a")]
    assert await reader.resync()
    assert names(registry) == {"a"}


@pytest.mark.parametrize(("status", "is_raised"), [(404, False), (500, True)])
async def test_no_podgroup_is_forgotten_when_podgroups_cannot_be_listed(status: int, is_raised: bool) -> None:
    server, registry, reader = a_reader()
    reader.observe(a_group("a"))
    server.error = ApiError(status, "", "no")
    if is_raised:
        with pytest.raises(ApiError):
            await reader.resync()
    else:
        assert not await reader.resync()
    assert names(registry) == {"a"}
