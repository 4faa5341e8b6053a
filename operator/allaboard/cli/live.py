"""Reads the cluster that ``KUBECONFIG`` or the pod's service account names, once, for a plan."""

from collections.abc import AsyncIterator

from allaboard.cli.documents import Origin
from allaboard.cli.manifests import Cluster, Expanded
from allaboard.cluster.client import ApiError, ApiServer, RawObject, pages
from allaboard.gangs.podgroup import API_VERSION, PLURAL
from allaboard.model.errors import MalformedError
from allaboard.model.interner import Interner
from allaboard.model.node import node_from
from allaboard.model.pod import pod_from

_PAGE_SIZE = 1000


async def read_live_cluster(notes: list[str]) -> Cluster:
    """Nodes, pods and PodGroups as they are now. What can't be understood is left out, with a note.

    Raises ``CredentialsError`` and ``ApiError``.
    """
    found = Cluster()
    intern = Interner()
    async with ApiServer.connect() as server:
        async for raw in _items(server, "/api/v1/nodes"):
            try:
                found.nodes.append(node_from(raw))
            except MalformedError as error:
                notes.append(f"left out a node of the cluster: {error}")
        async for raw in _items(server, "/api/v1/pods"):
            try:
                found.pods.append(pod_from(raw, intern))
            except MalformedError as error:
                notes.append(f"left out a pod of the cluster: {error}")
        try:
            async for raw in _items(server, f"/apis/{API_VERSION}/{PLURAL}"):
                found.pod_groups.append(Expanded(raw, Origin("the cluster", 0)))
        except ApiError as error:
            if error.status != 404:  # without the CRD there are none
                raise
    return found


async def _items(server: ApiServer, path: str) -> AsyncIterator[RawObject]:
    async for page in pages(server, path, page_size=_PAGE_SIZE):
        for item in page.get("items") or ():
            yield item
