"""Replicas serve the admission webhooks with one certificate, which the leader registers."""

import asyncio
import base64
import socket
import ssl
from contextlib import suppress

import pytest

from allaboard_sandbox.faults import Fault
from tests.cluster import Cluster

from .conftest import StartApp

NAME = "allaboard-admission"
KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

pytestmark = pytest.mark.sandbox_only("the role that the suite installs has none of the rights of config/components/admission")


@pytest.fixture
def ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


async def test_all_replicas_serve_one_certificate_that_the_leader_registers(
    cluster: Cluster, start_app: StartApp, ports: list[int]
) -> None:
    for kind in KINDS:
        webhook = {"name": "pods.allaboard.dev", "clientConfig": {"service": {"name": NAME, "namespace": "default"}}}
        cluster.create({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": NAME}, "webhooks": [webhook]})

    for port in ports:
        await start_app(admission_port=port, admission_hosts=("127.0.0.1",))

    await cluster.wait_for(lambda s: all(_bundle(s, kind) for kind in KINDS), message="the certificate authority is registered")
    (bundle,) = {_bundle(cluster, kind) for kind in KINDS}
    context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    assert len({await _served(context, port) for port in ports}) == 1


async def test_scheduler_starts_without_permission_to_store_a_certificate(cluster: Cluster, start_app: StartApp, ports: list[int]) -> None:
    for verb in ("get", "create"):
        cluster.faults.add(Fault(verb, "secrets", status=403, times=10_000))

    app = await start_app(admission_port=ports[0], admission_hosts=("127.0.0.1",))

    assert app.is_ready


def _bundle(cluster: Cluster, kind: str) -> str:
    configuration = cluster.get(f"{kind.lower()}s", NAME) or {}
    return str(configuration["webhooks"][0]["clientConfig"].get("caBundle", ""))


async def _served(context: ssl.SSLContext, port: int) -> bytes:
    """Wait until a port serves a certificate that ``context`` trusts, and return the certificate."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return certificate
