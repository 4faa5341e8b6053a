"""Tests the process that serves the webhooks, as a client sees it."""

import asyncio
import io
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import orjson
import pytest

from allaboard import app
from allaboard.admission import webhook_process as webhook_processes
from allaboard.admission.certificates import Pair, make_pair
from allaboard.admission.review import Rules
from allaboard.admission.server import BODY_BYTES, bind_socket, serve
from allaboard.admission.webhook_process import WebhookProcess
from allaboard.kube.errors import ApiError
from allaboard.runtime.processes import spawned
from allaboard.settings.options import SettingsError

pytestmark = pytest.mark.processes

POD = {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}, "spec": {}}
REVIEW = orjson.dumps({"request": {"uid": "1", "operation": "CREATE", "kind": {"group": "", "kind": "Pod"}, "object": POD}})

Call = Callable[..., Awaitable[tuple[int, Any]]]


class FakeCertificateSecret:
    """Returns the ``pair`` that a test sets; fails until then."""

    def __init__(self) -> None:
        self.pair: Pair | None = None
        self.is_settled = True

    async def refresh(self) -> Pair:
        if self.pair is None:
            raise ApiError(0, "Unreachable", "no answer")
        return self.pair


def new_pair(before: Pair | None = None) -> Pair:
    return make_pair(("127.0.0.1",), datetime.now(UTC), timedelta(days=1), before)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def certificate_secret() -> FakeCertificateSecret:
    return FakeCertificateSecret()


@pytest.fixture
async def webhook_process(
    certificate_secret: FakeCertificateSecret, port: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WebhookProcess]:
    """Yield a webhook process that refreshes its certificate ten times a second."""
    monkeypatch.setattr(webhook_processes, "_SOON_SECONDS", 0.1)
    process = WebhookProcess(certificate_secret, port, Rules(("allaboard",)), 0.1)  # type: ignore[arg-type]
    running = asyncio.create_task(process.run())
    yield process
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await process.close()


@pytest.fixture
async def call(port: int) -> Call:
    """Return a function that sends a body over a new connection, until a trusted server answers, and returns status and answer."""

    async def send(trusted: Pair, body: bytes = REVIEW) -> tuple[int, Any]:
        context = ssl.create_default_context(cadata=trusted.authorities)
        while True:
            try:
                async with (
                    aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
                    session.post(f"https://127.0.0.1:{port}/review?timeout=1s", data=io.BytesIO(body)) as response,
                ):
                    return response.status, orjson.loads(await response.read()) if response.status == 200 else None
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)

    return send


async def test_review_is_answered_over_tls(webhook_process: WebhookProcess, certificate_secret: FakeCertificateSecret, call: Call) -> None:
    certificate_secret.pair = new_pair()
    status, answer = await call(certificate_secret.pair)
    assert status == 200
    assert answer["response"]["uid"] == "1"
    assert answer["response"]["patchType"] == "JSONPatch"


async def test_connection_is_refused_at_once_while_there_is_no_certificate(webhook_process: WebhookProcess, port: int) -> None:
    await asyncio.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_renewed_certificate_is_served_without_a_new_webhook_process(
    webhook_process: WebhookProcess, certificate_secret: FakeCertificateSecret, call: Call
) -> None:
    certificate_secret.pair = new_pair()
    await call(certificate_secret.pair)
    process = webhook_process._process
    certificate_secret.pair = new = new_pair()  # a client that trusts only the pair before doesn't trust this one
    assert (await call(new))[0] == 200
    assert webhook_process._process is process


async def test_port_of_the_webhooks_is_logged_once(
    webhook_process: WebhookProcess, certificate_secret: FakeCertificateSecret, call: Call, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", webhook_processes.logger.name)
    for _ in range(2):
        certificate_secret.pair = new_pair()
        await call(certificate_secret.pair)
    assert [record.getMessage() for record in caplog.records] == [f"the webhooks are served on port {port}"]


async def test_webhook_process_that_dies_is_replaced(
    webhook_process: WebhookProcess, certificate_secret: FakeCertificateSecret, call: Call
) -> None:
    certificate_secret.pair = new_pair()
    await call(certificate_secret.pair)
    first = webhook_process._process
    assert first is not None
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    certificate_secret.pair = new = new_pair()  # the dead process can't have served this pair
    assert (await call(new))[0] == 200
    assert webhook_process._process is not first


async def test_webhook_process_ends_by_itself_when_its_pipe_is_closed(port: int, call: Call) -> None:
    pair = new_pair()
    receiver, pairs = spawned().Pipe(duplex=False)
    with bind_socket(port) as listening, receiver:
        process = spawned().Process(target=serve, args=(listening, receiver, Rules(("allaboard",))))
        process.start()
    pairs.send(pair)
    await call(pair)

    pairs.close()

    await asyncio.to_thread(process.join, 20)
    assert process.exitcode == 0


async def test_webhook_request_with_too_large_a_body_is_refused(
    webhook_process: WebhookProcess, certificate_secret: FakeCertificateSecret, call: Call
) -> None:
    certificate_secret.pair = new_pair()
    assert (await call(certificate_secret.pair, b" " * (BODY_BYTES + 1)))[0] == 413
    assert (await call(certificate_secret.pair))[0] == 200


async def test_webhook_request_with_a_malformed_body_is_allowed(
    webhook_process: WebhookProcess, certificate_secret: FakeCertificateSecret, call: Call
) -> None:
    certificate_secret.pair = new_pair()
    status, answer = await call(certificate_secret.pair, b"\0" * 1000)
    assert (status, answer["response"]) == (200, {"uid": "", "allowed": True})


def test_error_names_the_setting_of_a_port_that_is_taken() -> None:
    with bind_socket(0) as first:
        first.listen()
        with pytest.raises(OSError, match=r"webhooks can't be served on port [0-9]+: .*ALLABOARD_ADMISSION_PORT"):
            bind_socket(first.getsockname()[1])


def test_error_names_the_missing_package_cryptography_and_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("allaboard.admission", "cryptography"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(SettingsError, match=r"^admission_port: it needs the package cryptography: pip install 'allaboard\[admission\]'"):
        app._admission()
