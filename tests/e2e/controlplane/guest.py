"""Lends an existing cluster to one test after another; tests see and remove only objects that the suite has created."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from .client import Api, Body, Resource
from .existing import ExistingCluster
from .home import SYSTEM_NAMESPACES, ControlPlaneHome, RealCluster
from .proxy import FaultProxy

_FILTERED = ("nodes", "namespaces")


class GuestCluster(RealCluster):
    """The part of an existing cluster that belongs to the suite."""

    def __init__(self, api: Api, proxy: FaultProxy, is_ours: Callable[[Resource, Body], bool]) -> None:
        super().__init__(api, proxy)
        self._is_ours = is_ours

    def add_node(self, name: str, *, labels: Mapping[str, str] | None = None, **shape: Any) -> Body:
        """Add a node with an operating system that keeps the cluster's DaemonSets away, whose pods would take capacity."""
        return super().add_node(name, labels={"kubernetes.io/os": "none", **(labels or {})}, **shape)

    def list(self, kind: str, namespace: str | None = None, label_selector: str | None = None) -> list[Body]:
        found = super().list(kind, namespace, label_selector)
        if not found:
            return found
        resource = self._resource(kind)
        if namespace is None and (resource.namespaced or resource.plural in _FILTERED):
            return [obj for obj in found if self._is_ours(resource, obj)]
        return found


class GuestHome(ControlPlaneHome):
    """Installs missing CRDs, and removes only objects that the suite has created."""

    def __init__(self, plane: ExistingCluster, crds: Sequence[Body]) -> None:
        self._existing = plane
        super().__init__(plane, crds)

    def prepare_crds(self, *, crds: bool = True) -> None:
        if not crds:
            for crd in self._crds:
                resource = self._api.resource("customresourcedefinitions")
                found = self._api.find(resource.path(None, crd["metadata"]["name"]))
                if found and not self._is_ours(resource, found):
                    pytest.skip(f"the test needs a cluster without {crd['metadata']['name']}, which belongs to the cluster")
        super().prepare_crds(crds=crds)

    def _install(self, obj: Body) -> None:
        """Install ``obj`` unless it exists: existing objects aren't changed."""
        resource = self._api.resource(str(obj["kind"]), str(obj["apiVersion"]))
        if self._api.find(resource.path(obj["metadata"].get("namespace"), obj["metadata"]["name"])) is None:
            super()._install(obj)

    def _cluster_at(self, proxy: FaultProxy) -> RealCluster:
        return GuestCluster(self._api, proxy, self._is_ours)

    def _is_ours(self, resource: Resource, obj: Body) -> bool:
        if not super()._is_ours(resource, obj):
            return False
        metadata = obj["metadata"]
        namespace = metadata.get("namespace")
        if namespace is None:
            return self._existing.api.has_created(resource.path(None, metadata["name"]), obj)
        if namespace == "default" or namespace in SYSTEM_NAMESPACES:
            return bool(namespace == "default")
        return f"/api/v1/namespaces/{namespace}" in self._existing.api.created

    def _clear_events(self) -> None:
        """Remove events in the namespace default, except events about nodes, which may be the cluster's own."""
        self._api.request("DELETE", "/api/v1/namespaces/default/events", query={"fieldSelector": "involvedObject.kind!=Node"})
