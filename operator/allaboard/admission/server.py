"""Serves the webhooks in a separate process, so that no number or size of requests can load the scheduler's event loop.

A body that is larger than any valid review is not read. Certificates arrive over a pipe, and are used for connections that begin later.
The process ends when its parent process ends.
"""

import asyncio
import os
import socket
import ssl
import tempfile
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import orjson
import uvloop
from aiohttp import web

from allaboard.admission.certificates import Pair
from allaboard.admission.review import Rules, answer
from allaboard.model.errors import unserved

PATH = "/review"

BODY_BYTES = 4 * 2**20
"""Largest body of a request: an object and its former state, each as large as etcd allows."""

_LONGEST_SECONDS = 5.0  # longest time for reading a body
_BACKLOG = 512
_NICER = 5  # if CPU time is short the scheduler, which all gangs need, goes first


def serve(listening: socket.socket, pairs: Connection, rules: Rules) -> None:
    """Answer requests on ``listening``, with the last ``Pair`` that arrived over ``pairs``, until ``pairs`` is closed."""
    os.nice(_NICER)
    with suppress(KeyboardInterrupt):
        uvloop.run(_serve(listening, pairs, rules))


async def _serve(listening: socket.socket, pairs: Connection, rules: Rules) -> None:
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(pairs.fileno(), arrived.set)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    runner = web.AppRunner(application(rules), access_log=None, shutdown_timeout=1.0, keepalive_timeout=75.0)
    await runner.setup()
    is_serving = False
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            while pairs.poll():
                load_pair(context, pairs.recv())
            if not is_serving:
                await web.SockSite(runner, listening, ssl_context=context, backlog=_BACKLOG).start()
                is_serving = True
    except EOFError:
        pass  # the parent process has ended, or has closed the pipe to end this one
    finally:
        loop.remove_reader(pairs.fileno())
        await runner.cleanup()


def application(rules: Rules) -> web.Application:
    """Return the web application that answers the webhooks' requests, without TLS."""
    app = web.Application(client_max_size=BODY_BYTES)
    app.add_routes([web.post(PATH, partial(_review, rules))])
    return app


async def _review(rules: Rules, request: web.Request) -> web.Response:
    if (request.content_length or 0) > BODY_BYTES:
        # Refused before it is read. A body without a Content-Length is read up to the limit.
        raise web.HTTPRequestEntityTooLarge(BODY_BYTES, request.content_length or 0)
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            payload = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    return web.Response(body=orjson.dumps(answer(payload, rules)), content_type="application/json")


def load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Use ``pair`` for new connections. It is written to a temporary file, since OpenSSL loads certificates only from files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_text(pair.certificate + pair.key)
        context.load_cert_chain(path)


def bind_socket(port: int) -> socket.socket:
    """Return a socket that is bound to the port on all addresses and doesn't listen yet. Raises ``OSError`` that names the setting."""
    is_dual = socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if is_dual else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_dual:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(("", port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, unserved("webhooks", port, error, "ALLABOARD_ADMISSION_PORT")) from error
    return bound
