"""Reads the cluster that ``KUBECONFIG`` or the pod's service account names, once, for a plan."""

import time
from collections.abc import Callable, Collection
from typing import TypeVar

from allaboard.gpu.cache import CardCache
from allaboard.gpu.errors import SourceError
from allaboard.gpu.sources import NoneFoundError, find
from allaboard.gpu.web import Web
from allaboard.kube.client import ApiError, ApiServer, RawObject
from allaboard.kube.lists import pages
from allaboard.kube.paths import JOBS, NODES, POD_GROUPS, PODS, PRIORITY_CLASSES, ApiPath, Resource
from allaboard.model.errors import MalformedError
from allaboard.model.gpus import NO_CARDS, Cards
from allaboard.model.node import node_from
from allaboard.model.pod import Pod, Reading
from allaboard.model.raw_fields import mapping, text
from allaboard.settings.options import Settings
from allaboard.whatif.documents import Origin
from allaboard.whatif.manifests import Expanded
from allaboard.whatif.snapshots import Cluster

Record = TypeVar("Record")

_PAGE_SIZE = 1000
_RUNTIME_CLASSES = Resource("node.k8s.io/v1", "RuntimeClass", "runtimeclasses")
_NAMESPACES = Resource("v1", "Namespace", "namespaces")
_LIMIT_RANGES = Resource("v1", "LimitRange", "limitranges")
_QUOTAS = Resource("v1", "ResourceQuota", "resourcequotas")
_DEFINITIONS = Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")


async def read_live_cluster(notes: list[str], reading: Reading) -> Cluster:
    """Nodes, pods, PodGroups, classes and custom kinds as they are now. What can't be understood is left out, with a note.

    Raises ``CredentialsError`` and ``ApiError``.
    """
    found = Cluster(reading)

    def pod(raw: RawObject) -> Pod:
        record = found.pod_from(raw)
        found.heed(raw, record)
        return record

    async with ApiServer.connect() as server:
        found.nodes = await _known(server, NODES.everywhere, node_from, notes)
        found.pods = await _known(server, PODS.everywhere, pod, notes)
        try:
            found.pod_groups = await _known(server, POD_GROUPS.everywhere, lambda raw: Expanded(raw, Origin("the cluster", 0)), notes)
        except ApiError as error:
            if error.status != 404:  # without the CRD there are none
                raise
        # Classes that pods were admitted with are known all the same.
        found.priorities.are_all = await _could_be_read(server, PRIORITY_CLASSES.everywhere, found.priorities.learn, notes)
        found.runtimes.are_all = await _could_be_read(server, _RUNTIME_CLASSES.everywhere, found.runtimes.learn, notes)
        found.has_all_definitions = await _could_be_read(server, _DEFINITIONS.everywhere, found.definitions.append, notes)
        await _could_be_read(server, _LIMIT_RANGES.everywhere, found.quotas.learn_limits, notes)
        await _could_be_read(server, _QUOTAS.everywhere, found.quotas.learn_quota, notes)
        await _could_be_read(server, JOBS.everywhere, found.learn_job, notes)
        namespaces: list[str] = []
        if await _could_be_read(server, _NAMESPACES.everywhere, lambda raw: namespaces.append(_name(raw)), notes):
            found.namespaces = frozenset(namespaces)
    return found


async def read_cards(settings: Settings, nodes: Collection[str], notes: list[str]) -> Cards:
    """Return what exporters measure of the GPUs of ``nodes``, where the operator reads it; noted if it can't be read here.

    Raises ``CredentialsError`` and ``ApiError``.
    """
    options, cache = settings.gpu_metrics, CardCache(settings.gpu_metrics.stale_seconds)
    async with ApiServer.connect(settings.request_timeout_seconds) as server, Web.open(options) as web:
        try:
            source = await find(options, server, web, lambda name: name in nodes)
            cache.take(await source.read(), time.monotonic())
        except NoneFoundError:
            return NO_CARDS  # the operator has none, either
        except (SourceError, ApiError) as error:
            notes.append(f"no metrics of GPUs, which are planned by the labels of nodes: {error}")
    return cache.cards(time.monotonic())


def _name(raw: RawObject) -> str:
    return text(mapping(raw, "metadata"), "name", path="metadata.")


async def _could_be_read(server: ApiServer, path: ApiPath, learn: Callable[[RawObject], None], notes: list[str]) -> bool:
    """Take what the user may list of a kind; return whether that is all there is."""
    try:
        await _known(server, path, learn, notes)
    except ApiError as error:
        return error.status == 404  # a kind that isn't served has no objects
    return True


async def _known(server: ApiServer, path: ApiPath, project: Callable[[RawObject], Record], notes: list[str]) -> list[Record]:
    found: list[Record] = []
    left_out: list[str] = []
    async for page in pages(server, path, page_size=_PAGE_SIZE):
        if page.begins:
            found, left_out = [], []
        for raw in page.items:
            try:
                found.append(project(raw))
            except MalformedError as error:
                left_out.append(f"left out a {path.resource.kind.lower()} of the cluster: {error}")
    notes += left_out
    return found
