"""Serves the webhooks, in a process of its own: whatever is sent, and however much of it, the scheduler's loop has none of it to bear.

A body that is larger than an honest one is not read. Certificates come over a pipe, and count for every connection that begins later.
The process ends with whoever started it.
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
"""An object and the one before it, each as large as etcd takes them."""

_LONGEST_SECONDS = 5.0
_BACKLOG = 512
_NICER = 5  # where processors are short the scheduler, whom the others need, goes first


def serve(listening: socket.socket, orders: Connection, rules: Rules) -> None:
    """Answer on ``listening``, with the last ``Pair`` that came over ``orders``, until that is closed."""
    os.nice(_NICER)
    with suppress(KeyboardInterrupt):
        uvloop.run(_serve(listening, orders, rules))


async def _serve(listening: socket.socket, orders: Connection, rules: Rules) -> None:
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(orders.fileno(), arrived.set)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    runner = web.AppRunner(application(rules), access_log=None, shutdown_timeout=1.0, keepalive_timeout=75.0)
    await runner.setup()
    is_serving = False
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            while orders.poll():
                take(context, orders.recv())
            if not is_serving:
                await web.SockSite(runner, listening, ssl_context=context, backlog=_BACKLOG).start()
                is_serving = True
    except EOFError:
        pass  # whoever started us has ended, or wants us to
    finally:
        loop.remove_reader(orders.fileno())
        await runner.cleanup()


def application(rules: Rules) -> web.Application:
    """The webhooks, without what secures them."""
    app = web.Application(client_max_size=BODY_BYTES)
    app.add_routes([web.post(PATH, partial(_review, rules))])
    return app


async def _review(rules: Rules, request: web.Request) -> web.Response:
    if (request.content_length or 0) > BODY_BYTES:
        # Answered before it is read; what is sent without saying how long it is, is read up to the limit.
        raise web.HTTPRequestEntityTooLarge(BODY_BYTES, request.content_length or 0)
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            payload = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    return web.Response(body=orjson.dumps(answer(payload, rules)), content_type="application/json")


def take(context: ssl.SSLContext, pair: Pair) -> None:
    """Have connections that begin from now on be served with ``pair``. OpenSSL reads files only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_text(pair.certificate + pair.key)
        context.load_cert_chain(path)


def bound(port: int) -> socket.socket:
    """A socket for all addresses, on which nobody listens yet. Raises ``OSError`` that names the setting."""
    is_dual = socket.has_dualstack_ipv6()
    made = socket.socket(socket.AF_INET6 if is_dual else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_dual:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(("", port))
    except OSError as error:
        made.close()
        raise OSError(error.errno, unserved("webhooks", port, error, "ALLABOARD_ADMISSION_PORT")) from error
    return made
