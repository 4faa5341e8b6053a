"""Reads PodGroups: what Kopf and the API server tell of them goes to the registry."""

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
    """Passes PodGroups on to the registry."""

    server: ApiServer
    registry: GangRegistry

    def observe(self, raw: dict[str, Any]) -> None:
        """Take a PodGroup as the API server has it."""
        try:
            self.registry.observe_group(pod_group_from(raw))
        except MalformedError as error:
            logger.warning("a PodGroup can't be understood and is left out: %s", error)

    def forget(self, raw: dict[str, Any]) -> None:
        """Take the deletion of a PodGroup, as the API server had it last."""
        self.registry.forget_group(key_of(raw), version_of(raw))

    async def resync(self) -> bool:
        """List all PodGroups, so that one whose deletion was not reported is forgotten. Return whether they are served.

        Raises ``ApiError``.
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
            # One 404 may be a hiccup of the API server's discovery; nothing is forgotten for it.
            logger.warning("PodGroups aren't served by this cluster; install them with: kubectl apply -f crds/")
            return False
        for key in set(self.registry.groups()) - found:
            self.registry.forget_group(key, version)
        return True
