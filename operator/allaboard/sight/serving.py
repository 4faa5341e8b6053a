"""Serves the API on the address and port of the settings."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from allaboard.kube.client import ApiServer
from allaboard.kube.rate_limit import RateLimit
from allaboard.model.errors import unserved
from allaboard.settings.options import Settings
from allaboard.sight.access import LOOPBACK, ByHost, ByToken
from allaboard.sight.api import Api
from allaboard.sight.board import Board
from allaboard.sight.pages import add_pages

_REVIEWS_PER_SECOND = 20.0
_REVIEWS_AT_ONCE = 60  # every client of the port can send tokens, and each unknown one costs the API server a request


@asynccontextmanager
async def open_api(settings: Settings, board: Board) -> AsyncIterator[None]:
    """Serve ``board`` while the context lasts. With port 0 nothing is served. Raises ``OSError`` if the port can't be used."""
    if not settings.api_port:
        yield
        return
    async with AsyncExitStack() as stack:
        if settings.api_address in LOOPBACK:
            api = Api(board, ByHost())
        else:
            # A client of its own: questions of callers must not delay the requests of the scheduler.
            connection = ApiServer.connect(
                settings.request_timeout_seconds,
                kubeconfig=settings.kubeconfig,
                place=settings.in_force.kubeconfig_place,
                rate_limit=RateLimit(_REVIEWS_PER_SECOND, _REVIEWS_AT_ONCE),
            )
            api = Api(board, ByToken(await stack.enter_async_context(connection)))
        application = api.application()
        if settings.ui:
            add_pages(application)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, settings.api_address, settings.api_port).start()
        except OSError as error:
            raise OSError(error.errno, unserved("the API", settings.api_port, error, "ALLABOARD_API_PORT")) from error
        yield
