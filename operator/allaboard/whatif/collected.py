"""Reads the objects of a live cluster that a plan needs, as they are written into a snapshot: without what a plan doesn't read.

Secrets stand in environment variables, commands and annotations that tools keep. None of these are written.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from allaboard.cluster.stored_kinds import STORED_KINDS
from allaboard.gangs.owner_walltimes import OWNER_KINDS
from allaboard.kube.client import ApiError, ApiServer, RawObject
from allaboard.kube.lists import listed
from allaboard.kube.paths import JOBS, LIMIT_RANGES, NAMESPACES, NODES, POD_GROUPS, PODS, PRIORITY_CLASSES, QUOTAS, RUNTIME_CLASSES

KINDS = (
    *(NODES, PODS, POD_GROUPS, PRIORITY_CLASSES, RUNTIME_CLASSES, LIMIT_RANGES, QUOTAS, JOBS, NAMESPACES),
    *(kind.resource for kind in STORED_KINDS.values()),
    *(resource for owner in OWNER_KINDS for resource in owner.resources),
)
"""The kinds of objects that a plan reads."""
_NEEDED = (NODES, PODS)
_UNREAD = frozenset(
    (
        *("env", "envFrom", "args", "command", "managedFields", "volumeMounts", "volumeDevices", "lifecycle", "livenessProbe"),
        *("readinessProbe", "startupProbe", "securityContext", "imagePullSecrets", "hostAliases", "dnsConfig", "containerStatuses"),
        *("initContainerStatuses", "ephemeralContainerStatuses", "projected", "configMap", "secret", "downwardAPI", "podIPs", "hostIPs"),
    )
)
_NOTES_OF_TOOLS = ("kubectl.kubernetes.io/last-applied-configuration",)


async def collected(server: ApiServer, notes: list[str]) -> AsyncIterator[RawObject]:
    """Yield the objects of all kinds that a plan reads. A kind that can't be listed is left out, with a note.

    Raises ``ApiError`` if nodes or pods can't be listed.
    """
    for resource in KINDS:
        try:
            found = await listed(server, resource.everywhere)
        except ApiError as error:
            if resource in _NEEDED:
                raise
            if error.status != 404:  # a kind that isn't served has no objects
                notes.append(f"{resource.plural} are left out: {error}")
            continue
        for raw in found:
            yield {"apiVersion": resource.api_version, "kind": resource.kind, **without_unread(raw)}


def without_unread(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without fields that no plan reads: what containers run, and notes of tools."""
    kept: dict[str, Any] = {}
    for key, value in raw.items():
        if key in _UNREAD and not isinstance(value, str):  # a label may have such a name
            continue
        if key == "annotations" and isinstance(value, Mapping):
            value = {name: text for name, text in value.items() if name not in _NOTES_OF_TOOLS}
        kept[key] = _without_unread(value)
    return kept


def _without_unread(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_unread(value)
    return [_without_unread(each) for each in value] if isinstance(value, list) else value
