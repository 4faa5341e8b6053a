"""Tests that webhooks and policies count as known only while each kind can be read, or isn't served at all."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from allaboard.admission_reflectors import follow_bind_admission
from allaboard.cluster.bind_admission import BindAdmission
from allaboard.cluster.namespaces import Namespaces
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.paths import ApiPath

V1, BETA = "admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1"
BINDS = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"]}
HOOK = {"metadata": {"name": "hook"}, "webhooks": [{"rules": [BINDS]}]}
POLICY = {"metadata": {"name": "policy"}, "spec": {"matchConstraints": {"resourceRules": [BINDS]}}}
POLICY_BINDING = {"metadata": {"name": "binding"}, "spec": {"policyName": "policy"}}


class Server:
    """A server whose collections are empty, except ``items``; ``answers`` has the status of refused requests. Both by (version, plural)."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.answers: dict[tuple[str, str], int] = {}

    async def get(self, path: ApiPath, query: Mapping[str, str]) -> dict[str, Any]:
        key = path.resource.api_version, path.resource.plural
        is_old = key[0] != V1 and key not in self.items
        if status := self.answers.get(key, 404 if is_old else 0):
            raise ApiError(status, "Refused", f"no {path}")
        return {"metadata": {"resourceVersion": "1"}, "items": self.items.get(key, [])}

    @asynccontextmanager
    async def stream(self, path: ApiPath, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        async def lines() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        yield lines()


@asynccontextmanager
async def followed(server: Server) -> AsyncIterator[BindAdmission]:
    namespaces = Namespaces()
    namespaces.upsert("team", {})
    admission = BindAdmission(namespaces)
    task = asyncio.create_task(follow_bind_admission(cast(ApiServer, server), admission))
    for _ in range(100):
        await asyncio.sleep(0)
    try:
        yield admission
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_no_bind_may_be_refused_where_no_webhook_and_no_policy_is_found() -> None:
    async with followed(Server()) as admission:
        assert admission.is_known()
        assert not admission.may_refuse("team")


@pytest.mark.parametrize("plural", ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"])
async def test_binds_may_be_refused_where_a_webhook_sees_them(plural: str) -> None:
    server = Server()
    server.items[V1, plural] = [HOOK]
    async with followed(server) as admission:
        assert admission.is_known()
        assert admission.may_refuse("team")


@pytest.mark.parametrize("version", [V1, BETA])
@pytest.mark.parametrize("kind", ["validating", "mutating"])
async def test_binds_may_be_refused_where_a_policy_of_any_version_sees_them(version: str, kind: str) -> None:
    server = Server()
    policies, bindings = f"{kind}admissionpolicies", f"{kind}admissionpolicybindings"
    if version != V1:
        server.answers = {(V1, policies): 404, (V1, bindings): 404}
    server.items = {(version, policies): [POLICY], (version, bindings): [POLICY_BINDING]}
    async with followed(server) as admission:
        assert admission.is_known()
        assert admission.may_refuse("team")


@pytest.mark.parametrize("kind", ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"])
async def test_a_kind_that_no_version_of_is_served_has_no_objects(kind: str) -> None:
    server = Server()
    server.answers[V1, kind] = 404
    async with followed(server) as admission:
        assert admission.is_known()
        assert not admission.may_refuse("team")


@pytest.mark.parametrize("status", [403, 500])
@pytest.mark.parametrize("kind", ["validatingwebhookconfigurations", "mutatingadmissionpolicybindings"])
async def test_any_bind_may_be_refused_while_a_kind_can_not_be_read(kind: str, status: int) -> None:
    server = Server()
    server.answers[V1, kind] = status
    async with followed(server) as admission:
        assert not admission.is_known()
        assert admission.may_refuse("team")
