"""Passes PodGroups from Kopf's watch, and from lists of the API server, to the registry."""

import logging
from dataclasses import dataclass
from typing import Any

from allaboard.gangs.podgroup import key_of, pod_group_from
from allaboard.gangs.registry import GangRegistry
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.lists import pages
from allaboard.kube.paths import POD_GROUPS
from allaboard.model.errors import MalformedError
from allaboard.model.gang import GangKey
from allaboard.model.raw_fields import version_number, version_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PodGroupReader:
    """A reader that makes records of raw PodGroups and passes them to the ``registry``."""

    server: ApiServer
    registry: GangRegistry

    def observe(self, raw: dict[str, Any]) -> None:
        """Pass a new or changed PodGroup to the registry. A PodGroup that can't be understood is logged and left out."""
        try:
            self.registry.observe_group(pod_group_from(raw))
        except MalformedError as error:
            logger.warning("a PodGroup can't be understood and is left out: %s", error)

    def forget(self, raw: dict[str, Any]) -> None:
        """Remove a deleted PodGroup from the registry. ``raw`` is its last state."""
        self.registry.forget_group(key_of(raw), version_of(raw))

    async def resync(self) -> bool:
        """List all PodGroups, and remove those from the registry that don't exist. Return whether the API server serves PodGroups.

        Kopf may miss a deletion, hence the list. Raises ``ApiError`` for any error but 404.
        """
        found: set[GangKey] = set()
        version = 0
        try:
            async for page in pages(self.server, POD_GROUPS.everywhere):
                if page.begins:
                    found, version = set(), version_number(page.version)
                for raw in page.items:
                    self.observe(raw)
                    found.add(key_of(raw))
        except ApiError as error:
            if error.status != 404:
                raise
            # Nothing is removed: a single 404 may be a passing fault of the API server's discovery.
            logger.warning("PodGroups aren't served by this cluster; install them with: kubectl apply -f crds/")
            return False
        for key in set(self.registry.groups()) - found:
            self.registry.forget_group(key, version)
        return True
