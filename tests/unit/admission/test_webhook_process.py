"""The process that serves the webhooks, as a client sees it."""

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
from allaboard.admission.certificates import Pair, made
from allaboard.admission.review import Rules
from allaboard.admission.server import BODY_BYTES, bound, serve
from allaboard.admission.webhook_process import WebhookProcess
from allaboard.kube.errors import ApiError
from allaboard.runtime.processes import spawned
from allaboard.settings.options import SettingsError

pytestmark = pytest.mark.processes

POD = {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}, "spec": {}}
REVIEW = orjson.dumps({"request": {"uid": "1", "operation": "CREATE", "kind": {"group": "", "kind": "Pod"}, "object": POD}})

Call = Callable[..., Awaitable[tuple[int, Any]]]


class FakeKeeper:
    """Gives what it is told to, once it is told anything."""

    def __init__(self) -> None:
        self.pair: Pair | None = None
        self.is_settled = True

    async def look(self) -> Pair:
        if self.pair is None:
            raise ApiError(0, "Unreachable", "nobody is there")
        return self.pair


def new_pair(before: Pair | None = None) -> Pair:
    return made(("127.0.0.1",), datetime.now(UTC), timedelta(days=1), before)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def certificate_secret() -> FakeKeeper:
    return FakeKeeper()


@pytest.fixture
async def webhook_process(certificate_secret: FakeKeeper, port: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WebhookProcess]:
    """A desk that looks ten times a second."""
    monkeypatch.setattr(webhook_processes, "_SOON_SECONDS", 0.1)
    made = WebhookProcess(certificate_secret, port, Rules(("allaboard",)), 0.1)  # type: ignore[arg-type]
    running = asyncio.create_task(made.run())
    yield made
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await made.close()


@pytest.fixture
async def call(port: int) -> Call:
    """Sends a body over a new connection, and returns status and answer; waits until somebody who is trusted answers."""

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


async def test_a_review_is_answered_over_tls(webhook_process: WebhookProcess, certificate_secret: FakeKeeper, call: Call) -> None:
    certificate_secret.pair = new_pair()
    status, answer = await call(certificate_secret.pair)
    assert status == 200
    assert answer["response"]["uid"] == "1"
    assert answer["response"]["patchType"] == "JSONPatch"


async def test_who_comes_while_there_is_no_certificate_is_refused_at_once(webhook_process: WebhookProcess, port: int) -> None:
    await asyncio.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_renewed_certificate_is_served_by_the_same_process(
    webhook_process: WebhookProcess, certificate_secret: FakeKeeper, call: Call
) -> None:
    certificate_secret.pair = new_pair()
    await call(certificate_secret.pair)
    process = webhook_process._process
    certificate_secret.pair = new = new_pair()  # whom nobody trusts who trusts the one before only
    assert (await call(new))[0] == 200
    assert webhook_process._process is process


async def test_it_is_said_once_that_and_where_the_webhooks_are_served(
    webhook_process: WebhookProcess, certificate_secret: FakeKeeper, call: Call, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", webhook_processes.logger.name)
    for _ in range(2):
        certificate_secret.pair = new_pair()
        await call(certificate_secret.pair)
    assert [record.getMessage() for record in caplog.records] == [f"the webhooks are served on port {port}"]


async def test_a_process_that_dies_is_replaced(webhook_process: WebhookProcess, certificate_secret: FakeKeeper, call: Call) -> None:
    certificate_secret.pair = new_pair()
    await call(certificate_secret.pair)
    first = webhook_process._process
    assert first is not None
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    certificate_secret.pair = new = new_pair()  # which the one that is dead can't have served
    assert (await call(new))[0] == 200
    assert webhook_process._process is not first


async def test_the_process_ends_by_itself_when_whoever_started_it_is_gone(port: int, call: Call) -> None:
    pair = new_pair()
    theirs, orders = spawned().Pipe(duplex=False)
    with bound(port) as listening, theirs:
        process = spawned().Process(target=serve, args=(listening, theirs, Rules(("allaboard",))))
        process.start()
    orders.send(pair)
    await call(pair)

    orders.close()

    await asyncio.to_thread(process.join, 20)
    assert process.exitcode == 0


async def test_what_is_larger_than_an_object_is_not_read(
    webhook_process: WebhookProcess, certificate_secret: FakeKeeper, call: Call
) -> None:
    certificate_secret.pair = new_pair()
    assert (await call(certificate_secret.pair, b" " * (BODY_BYTES + 1)))[0] == 413
    assert (await call(certificate_secret.pair))[0] == 200


async def test_nonsense_is_let_through(webhook_process: WebhookProcess, certificate_secret: FakeKeeper, call: Call) -> None:
    certificate_secret.pair = new_pair()
    status, answer = await call(certificate_secret.pair, b"\0" * 1000)
    assert (status, answer["response"]) == (200, {"uid": "", "allowed": True})


def test_a_port_that_is_taken_is_named_with_its_setting() -> None:
    with bound(0) as first:
        first.listen()
        with pytest.raises(OSError, match=r"webhooks can't be served on port [0-9]+: .*ALLABOARD_ADMISSION_PORT"):
            bound(first.getsockname()[1])


def test_without_the_package_that_makes_certificates_the_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("allaboard.admission", "cryptography"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(SettingsError, match=r"^admission_port: it needs the package cryptography: pip install 'allaboard\[admission\]'"):
        app._admission()
