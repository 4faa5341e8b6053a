"""``allaboard ui``: serve the departure board on this machine, with the data of an operator, a cluster or a snapshot, and open it."""

import asyncio
import os
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import click
from aiohttp import web
from yarl import URL

from allaboard.cli.boards import Shows, Wanted, open_board
from allaboard.cli.inputs import BadInputError
from allaboard.kube.client import ApiError, CredentialsError
from allaboard.settings.options import SettingsError
from allaboard.sight.access import ByHost, RefusedError
from allaboard.sight.api import Api, answer_refusals
from allaboard.sight.pages import add_pages
from allaboard.sight.recorded import RecordedBoard
from allaboard.sight.remote import RemoteBoard, UnreadableError
from allaboard.whatif.board import StoredBoard
from allaboard.whatif.documents import ManifestError

_PASSED_ON = ("Content-Type", "Cache-Control", "X-Content-Type-Options")  # headers of the operator's answers


def ui(api: str | None, snapshots: tuple[str, ...], kubeconfig: str | None, port: int, is_opened: bool) -> None:
    """Serve the page until interrupted. Raises ``BadInputError`` if there is nothing to show, or the port can't be used."""
    wanted = Wanted(api or "", snapshots, kubeconfig or "")
    try:
        asyncio.run(_serve(wanted, port, is_opened=is_opened))
    except (ManifestError, SettingsError, ApiError, CredentialsError, UnreadableError) as error:
        raise BadInputError(str(error)) from error


async def _serve(wanted: Wanted, port: int, *, is_opened: bool) -> None:
    notes: list[str] = []
    async with open_board(wanted, notes) as board:
        for note in notes:
            click.echo(f"note: {note}", err=True)
        async with served(board, port) as url:
            click.echo(url)
            click.echo("Interrupt with Ctrl-C.", err=True)
            if is_opened and sys.stdout.isatty():
                await asyncio.to_thread(webbrowser.open, url)
            await asyncio.Event().wait()


@asynccontextmanager
async def served(board: Shows, port: int = 0) -> AsyncIterator[str]:
    """Serve the page for ``board`` on 127.0.0.1, and yield its address; ``port`` 0 means any free port.

    Raises ``BadInputError`` if the port can't be used.
    """
    if isinstance(board, RemoteBoard):
        app = _passing_on(board)
    elif isinstance(board, StoredBoard | RecordedBoard):
        app = Api(board, ByHost()).application()
    else:
        raise TypeError(f"no page shows a {type(board).__name__}")
    add_pages(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
        except OSError as error:
            raise BadInputError(f"can't listen on port {port}: {os.strerror(error.errno or 0)}; --port names another") from error
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


def _passing_on(board: RemoteBoard) -> web.Application:
    """Return an application that passes requests for the API on to the operator, with the token of this user."""
    access = ByHost()

    async def pass_on(request: web.Request) -> web.StreamResponse:
        await access.rights(request.headers, ())
        try:
            # A stream of events may be silent for a long time.
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=15.0, sock_read=60.0)
            url = URL(f"{board.url}{request.rel_url.raw_path}", encoded=True)
            async with board.session.get(url, timeout=timeout) as found:
                headers = {name: found.headers[name] for name in _PASSED_ON if name in found.headers}
                answer = web.StreamResponse(status=found.status, headers=headers)
                await answer.prepare(request)
                async for chunk in found.content.iter_any():
                    await answer.write(chunk)
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise RefusedError(502, f"the operator can't be asked: {error or type(error).__name__}") from error

    app = web.Application(middlewares=[answer_refusals])
    app.router.add_get("/api/v1/{path:.*}", pass_on)
    return app
