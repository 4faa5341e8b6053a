"""Follows the webhooks and admission policies of the cluster, so that binds are dry-run only where admission may refuse them.

A cluster may not serve a kind of policies, and the operator's role may not read them. While a kind isn't known, every gang is dry-run.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from allaboard.cluster.bind_admission import BindAdmission, policy_binding_from, selectors_of_policy, selectors_of_webhooks
from allaboard.cluster.records import Records
from allaboard.kube.client import ApiServer
from allaboard.kube.paths import (
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from allaboard.kube.reflector import Reflector
from allaboard.kube.retry import Sleep

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 5
_KNOWN_SECONDS = 7.0  # A kind isn't known if the API server has said nothing about it for longer.
_PAUSE_SECONDS = 30.0  # between two tries to read a kind
_FORBIDDEN, _NOT_SERVED = 403, 404
_OLDER = ("admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1")


@dataclass(slots=True)
class FollowedKind:
    """Follows one kind of objects, in the newest version that the cluster serves."""

    resource: Resource
    store: Records[Any]
    read: Callable[[dict[str, Any]], object]
    _reflector: Reflector | None = None
    _is_absent: bool = False  # The cluster serves no version of the kind, so there are no such objects.

    @property
    def is_known(self) -> bool:
        """True if all objects of the kind are known, as of a few seconds ago."""
        if self._reflector is not None and self._reflector.synced.is_set():
            return self._reflector.age_seconds < _KNOWN_SECONDS
        return self._is_absent

    async def follow(self, server: ApiServer, sleep: Sleep = asyncio.sleep) -> None:
        """Keep the store up to date. Runs until it is cancelled."""
        was_forbidden = False
        while True:
            is_forbidden = await self._follow_any_version(server)
            self._is_absent = not is_forbidden
            if is_forbidden and not was_forbidden:
                logger.warning("%s can't be read, so the binds of every gang are dry-run", self.resource.plural)
            was_forbidden = is_forbidden
            await sleep(_PAUSE_SECONDS)

    async def _follow_any_version(self, server: ApiServer) -> bool:
        """Follow the newest version that is served, for as long as the cluster lets it be read; return whether it is forbidden."""
        for version in (self.resource.api_version, *_OLDER):
            path = replace(self.resource, api_version=version).everywhere
            ends_on = (_FORBIDDEN, _NOT_SERVED)
            self._reflector = reflector = Reflector(server, path, self.read, self.store, ends_on=ends_on, watch_seconds=_WATCH_SECONDS)
            await reflector.run()
            self._reflector = None
            if reflector.ended_by is not None and reflector.ended_by.status == _FORBIDDEN:
                return True
        return False


async def follow_bind_admission(server: ApiServer, admission: BindAdmission) -> None:
    """Keep ``admission`` up to date. Runs until it is cancelled."""
    kinds = [
        FollowedKind(VALIDATING_WEBHOOKS, admission.validating_webhooks, selectors_of_webhooks),
        FollowedKind(MUTATING_WEBHOOKS, admission.mutating_webhooks, selectors_of_webhooks),
        FollowedKind(VALIDATING_POLICIES, admission.validating_policies, selectors_of_policy),
        FollowedKind(VALIDATING_BINDINGS, admission.validating_bindings, policy_binding_from),
        FollowedKind(MUTATING_POLICIES, admission.mutating_policies, selectors_of_policy),
        FollowedKind(MUTATING_BINDINGS, admission.mutating_bindings, policy_binding_from),
    ]
    admission.is_known = lambda: all(kind.is_known for kind in kinds)
    async with asyncio.TaskGroup() as tasks:
        for kind in kinds:
            tasks.create_task(kind.follow(server), name=f"reflect {kind.resource.plural}")
