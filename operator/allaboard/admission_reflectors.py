"""Follows the webhooks and admission policies of the cluster, so that binds are dry-run only where admission may refuse them.

A cluster may not serve a kind of policies, and the operator's role may not read them. While a kind isn't known, every gang is dry-run.
"""

import asyncio
from dataclasses import replace

from allaboard.cluster.bind_admission import BindAdmission, policy_binding_from, selectors_of_policy, selectors_of_webhooks
from allaboard.kube.client import ApiServer
from allaboard.kube.first_served import FirstServed
from allaboard.kube.paths import (
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_WEBHOOKS,
)

_WATCH_SECONDS = 5
_KNOWN_SECONDS = 7.0  # A kind isn't known if the API server has said nothing about it for longer.
_VERSIONS = tuple(f"admissionregistration.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))


async def follow_bind_admission(server: ApiServer, admission: BindAdmission) -> None:
    """Keep ``admission`` up to date. Runs until it is cancelled."""
    kinds = [
        FirstServed(
            server,
            [replace(resource, api_version=version) for version in _VERSIONS],
            read,
            store,
            watch_seconds=_WATCH_SECONDS,
        )
        for resource, store, read in (
            (VALIDATING_WEBHOOKS, admission.validating_webhooks, selectors_of_webhooks),
            (MUTATING_WEBHOOKS, admission.mutating_webhooks, selectors_of_webhooks),
            (VALIDATING_POLICIES, admission.validating_policies, selectors_of_policy),
            (VALIDATING_BINDINGS, admission.validating_bindings, policy_binding_from),
            (MUTATING_POLICIES, admission.mutating_policies, selectors_of_policy),
            (MUTATING_BINDINGS, admission.mutating_bindings, policy_binding_from),
        )
    ]
    admission.is_known = lambda: all(kind.is_known(_KNOWN_SECONDS) for kind in kinds)
    async with asyncio.TaskGroup() as tasks:
        for kind in kinds:
            tasks.create_task(kind.run())
