"""Tests that a local port leads to a port of a pod, through an API server that answers as a real one (``v4.channel.k8s.io``)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from allaboard.kube.client import ApiServer
from allaboard.kube.port_forward import forwarded

PORT = (8082).to_bytes(2, "little")


@asynccontextmanager
async def an_api_server(error: bytes = b"") -> AsyncIterator[ApiServer]:
    """Yield a client of an API server, whose pod answers each message with its text in capitals, or ends with ``error``."""

    async def forward(request: web.Request) -> web.StreamResponse:
        assert (request.path, dict(request.query)) == ("/api/v1/namespaces/ns/pods/p/portforward", {"ports": "8082"})
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        await socket.send_bytes(b"\x00" + PORT)
        await socket.send_bytes(b"\x01" + PORT)
        if error:
            await socket.send_bytes(b"\x01" + error)
        async for message in socket:
            assert message.data[0] == 0
            await socket.send_bytes(b"\x00" + message.data[1:].upper())
            if message.data.endswith(b"bye"):
                break
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ns/pods/{name}/portforward", forward)
    async with TestServer(app) as server:
        client = ApiServer(Configuration(host=str(server.make_url("")).rstrip("/")))
        try:
            yield client
        finally:
            await client.close()


async def exchange(port: int, sent: bytes) -> bytes:
    async with asyncio.timeout(50):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await writer.drain()
        received = await reader.read()
        writer.close()
        return received


async def test_bytes_for_the_local_port_reach_the_pod_and_its_answer_comes_back() -> None:
    async with an_api_server() as server, forwarded(server, "ns", "p", 8082) as port:
        assert await asyncio.gather(exchange(port, b"hello, bye"), exchange(port, b"again, bye")) == [b"HELLO, BYE", b"AGAIN, BYE"]


async def test_the_reason_is_logged_if_the_pod_refuses_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with an_api_server(error=b"connection refused") as server, forwarded(server, "ns", "p", 8082) as port:
        with caplog.at_level(logging.WARNING):
            assert await exchange(port, b"hello") == b""
    assert "port 8082 of pod ns/p can't be forwarded: connection refused" in caplog.text


async def test_the_reason_is_logged_if_the_api_server_does_not_forward(caplog: pytest.LogCaptureFixture) -> None:
    async with an_api_server() as server, forwarded(server, "other", "p", 8082) as port:
        assert await exchange(port, b"hello") == b""
    assert "port 8082 of pod other/p can't be forwarded: " in caplog.text
    assert "(404 NotUpgraded)" in caplog.text
