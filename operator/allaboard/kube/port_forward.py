"""Forwards a local port to a port of a pod through the API server, as ``kubectl port-forward`` does.

Each local connection is a WebSocket of its own (KEP-4006's predecessor, ``v4.channel.k8s.io``): every message begins with the number of its
channel, 0 for data and 1 for errors. The first message of each channel is the number of the port.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import aiohttp

from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError
from allaboard.kube.paths import PODS

logger = logging.getLogger(__name__)

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_CHUNK = 1 << 16


@asynccontextmanager
async def forwarded(server: ApiServer, namespace: str, pod: str, port: int, local_port: int = 0) -> AsyncIterator[int]:
    """Yield a local port of 127.0.0.1 that leads to ``port`` of a pod, while the context lasts.

    ``local_port`` 0 means any free port. A connection that the API server doesn't forward is closed. Raises ``OSError`` if the local port
    is in use.
    """
    relay = partial(_relay, server, namespace, pod, port)
    listener = await asyncio.start_server(relay, "127.0.0.1", local_port)
    async with listener:
        yield listener.sockets[0].getsockname()[1]


async def _relay(
    server: ApiServer, namespace: str, pod: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Relay one connection until either side ends it."""
    path = PODS.named(namespace, pod, "portforward")
    try:
        async with server.websocket(path, {"ports": str(port)}, _PROTOCOL) as remote:
            sending = asyncio.create_task(_send(reader, remote))
            try:
                await _receive(remote, writer)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
    except (ApiError, aiohttp.ClientError, OSError) as error:
        logger.warning("port %d of pod %s/%s can't be forwarded: %s", port, namespace, pod, error)
    finally:
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()


async def _send(reader: asyncio.StreamReader, remote: aiohttp.ClientWebSocketResponse) -> None:
    while chunk := await reader.read(_CHUNK):
        await remote.send_bytes(bytes([_DATA]) + chunk)


async def _receive(remote: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    """Write what comes from the pod. Raises ``OSError`` with the message of an error."""
    begun = set[int]()
    async for message in remote:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel not in begun:
            begun.add(channel)  # the first message of a channel is the number of the port
        elif channel == _ERROR:
            raise OSError(data.decode(errors="replace").strip())
        elif channel == _DATA:
            writer.write(data)
            await writer.drain()
