"""Reads a live cluster once, for a plan: the cluster of ``KUBECONFIG`` or of the pod's service account."""

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

from allaboard.cluster.stored_kinds import STORED_KINDS
from allaboard.gangs.owner_walltimes import OWNER_KINDS
from allaboard.gpu.cache import CardCache
from allaboard.gpu.errors import SourceError
from allaboard.gpu.sources import NoneFoundError, find
from allaboard.gpu.web import Web
from allaboard.kube.client import ApiError, ApiServer, RawObject
from allaboard.kube.lists import pages
from allaboard.kube.paths import (
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    RUNTIME_CLASSES,
    ApiPath,
    Resource,
)
from allaboard.model.errors import MalformedError
from allaboard.model.gpus import NO_CARDS, Cards
from allaboard.model.node import node_from
from allaboard.model.pod import Pod, Reading
from allaboard.settings.options import Settings
from allaboard.whatif.documents import Origin
from allaboard.whatif.manifests import Expanded
from allaboard.whatif.snapshots import Cluster

Record = TypeVar("Record")

_PAGE_SIZE = 1000
_DEFINITIONS = Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")


async def read_live_cluster(notes: list[str], reading: Reading) -> Cluster:
    """Return the present nodes, pods, PodGroups, classes and custom kinds. Objects that can't be read are left out, with a note.

    Raises ``CredentialsError`` and ``ApiError``.
    """
    found = Cluster(reading, read_at=time.time())

    def pod(raw: RawObject) -> Pod:
        record = found.pod_from(raw)
        found.learn_from_pod(raw, record)
        return record

    async with ApiServer.connect() as server:
        found.nodes = await _read_all(server, NODES.everywhere, node_from, notes)
        found.pods = await _read_all(server, PODS.everywhere, pod, notes)
        try:
            found.pod_groups = await _read_all(server, POD_GROUPS.everywhere, lambda raw: Expanded(raw, Origin("the cluster", 0)), notes)
        except ApiError as error:
            if error.status != 404:  # without the CRD there are no PodGroups
                raise
        # Classes that can't be listed are known if pods were admitted with them.
        found.priorities.are_all = await _learn_all(server, PRIORITY_CLASSES.everywhere, found.priorities.learn, notes)
        found.runtimes.are_all = await _learn_all(server, RUNTIME_CLASSES.everywhere, found.runtimes.learn, notes)
        found.has_all_definitions = await _learn_all(server, _DEFINITIONS.everywhere, found.definitions.append, notes)
        await _learn_all(server, LIMIT_RANGES.everywhere, found.quotas.learn_limits, notes)
        await _learn_all(server, QUOTAS.everywhere, found.quotas.learn_quota, notes)
        await _learn_all(server, JOBS.everywhere, found.learn_job, notes)
        found.storage.is_known = True
        for kind in STORED_KINDS.values():
            learn = partial(found.storage.learn, *kind.group_kind)
            found.storage.is_known &= await _learn_all(server, kind.resource.everywhere, learn, notes)
        for owner in OWNER_KINDS:
            for resource in owner.resources:
                await _learn_all(server, resource.everywhere, partial(found.learn_owner, *owner.group_kind), notes)
        if await _learn_all(server, NAMESPACES.everywhere, found.learn_namespace, notes):
            found.namespaces = frozenset(found.namespace_labels)
    return found


async def read_cards(settings: Settings, nodes: Collection[str], notes: list[str]) -> Cards:
    """Return the GPU metrics of ``nodes``, from the source from which the operator reads them. Add a note if the metrics can't be read.

    Raises ``CredentialsError`` and ``ApiError``.
    """
    options, cache = settings.gpu_metrics, CardCache(settings.gpu_metrics.stale_seconds)
    async with ApiServer.connect(settings.request_timeout_seconds) as server, Web.open(options) as web:
        try:
            source = await find(options, server, web, lambda name: name in nodes)
            cache.take(await source.read(), time.monotonic())
        except NoneFoundError:
            return NO_CARDS  # the operator finds no metrics, either
        except (SourceError, ApiError) as error:
            notes.append(f"GPU metrics can't be read, so GPUs are planned by node labels: {error}")
    return cache.cards(time.monotonic())


async def _learn_all(server: ApiServer, path: ApiPath, learn: Callable[[RawObject], None], notes: list[str]) -> bool:
    """Pass all objects of a kind to ``learn``; return False if they can't be listed."""
    try:
        await _read_all(server, path, learn, notes)
    except ApiError as error:
        return error.status == 404  # a kind that isn't served has no objects
    return True


async def _read_all(server: ApiServer, path: ApiPath, project: Callable[[RawObject], Record], notes: list[str]) -> list[Record]:
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
