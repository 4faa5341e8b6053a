"""Serves the API: on 127.0.0.1 for users that forward a port, and on another port for callers with a bearer token.

Each has a port of its own. The proxy of a service mesh beside the operator connects from 127.0.0.1, too: on a common port it would lead
all its callers past the question for a token.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from allaboard.kube.client import ApiServer
from allaboard.kube.rate_limit import RateLimit
from allaboard.model.errors import unserved
from allaboard.settings.options import Settings
from allaboard.sight.access import Access, ByHost, ByToken
from allaboard.sight.api import Api
from allaboard.sight.board import Board
from allaboard.sight.pages import add_pages

_UNKNOWN_PER_SECOND, _UNKNOWN_BURST = 20.0, 60  # every client of the port can send tokens, and each unknown one costs a review
_KNOWN_PER_SECOND, _KNOWN_BURST = 100.0, 200  # a caller with rights in some namespaces costs a review for each namespace with gangs


@asynccontextmanager
async def open_api(settings: Settings, board: Board) -> AsyncIterator[None]:
    """Serve ``board`` while the context lasts, on each port that isn't 0. Raises ``OSError`` if a port can't be used."""
    async with AsyncExitStack() as stack:
        if settings.api_port:
            await _serve(stack, settings, board, ByHost(), "127.0.0.1", settings.api_port, "ALLABOARD_API_PORT")
        if settings.api_service_port:
            # A client of its own: questions of callers must not delay the requests of the scheduler.
            connection = ApiServer.connect(
                settings.request_timeout_seconds,
                kubeconfig=settings.kubeconfig,
                place=settings.in_force.kubeconfig_place,
            )
            access = ByToken(
                await stack.enter_async_context(connection),
                of_unknown=RateLimit(_UNKNOWN_PER_SECOND, _UNKNOWN_BURST),
                of_known=RateLimit(_KNOWN_PER_SECOND, _KNOWN_BURST),
            )
            address = settings.api_service_address or None
            await _serve(stack, settings, board, access, address, settings.api_service_port, "ALLABOARD_API_SERVICE_PORT")
        yield


async def _serve(
    stack: AsyncExitStack, settings: Settings, board: Board, access: Access, address: str | None, port: int, variable: str
) -> None:
    """Serve ``board`` until ``stack`` is closed. Without an ``address``, all addresses are listened on."""
    application = Api(board, access).application()
    if settings.ui:
        add_pages(application)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, address, port).start()
    except OSError as error:
        raise OSError(error.errno, unserved("the API", port, error, variable)) from error
