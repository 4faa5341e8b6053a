"""``allaboard ui``: serve the departure board on this machine, with the data of an operator, a cluster or a snapshot, and open it."""

import asyncio
import os
import sys
import webbrowser
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import click
from aiohttp import web
from yarl import URL

from allaboard.cli.boards import Shows, Wanted, open_board
from allaboard.cli.inputs import BadInputError
from allaboard.cli.plan import SOME_DO_NOT_FIT
from allaboard.cli.tables import print_notes
from allaboard.kube.client import ApiError, CredentialsError, chosen_context
from allaboard.settings.options import SettingsError
from allaboard.sight.access import ByHost, RefusedError
from allaboard.sight.api import Api, answer_refusals
from allaboard.sight.pages import HEADERS, add_pages
from allaboard.sight.recorded import RecordedBoard
from allaboard.sight.remote import RemoteBoard, UnreadableError, refuse_redirect
from allaboard.whatif.board import StoredBoard
from allaboard.whatif.documents import ManifestError

_ASK_SECONDS = 120.0
_MANIFESTS = "application/yaml"  # of a request with manifests. No page of another host can send this type without asking first.
_EVENTS = "/api/v1/events"
_HEADERS = {**HEADERS, "Cache-Control": "no-store"}  # of answers that are passed on


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
        print_notes(notes)
        async with served(board, port, plan=_plan_words(wanted)) as url:
            click.echo(url)
            click.echo("Interrupt with Ctrl-C.", err=True)
            if is_opened and sys.stdout.isatty():
                await asyncio.to_thread(webbrowser.open, url)
            await asyncio.Event().wait()


def _plan_words(wanted: Wanted) -> Sequence[str] | None:
    """Return the options with which ``allaboard plan`` reads the same cluster; None if only the address of an API is stated."""
    if wanted.url and not wanted.snapshots:
        return None
    words = [word for path in wanted.snapshots for word in ("--cluster", path)]
    words += ["--kubeconfig", wanted.kubeconfig] if wanted.kubeconfig else []
    return [*words, *(["--context", context] if (context := chosen_context()) else [])]


@asynccontextmanager
async def served(board: Shows, port: int = 0, plan: Sequence[str] | None = None) -> AsyncIterator[str]:
    """Serve the page for ``board`` on 127.0.0.1, and yield its address; ``port`` 0 means any free port.

    With ``plan``, the options of ``allaboard plan``, the page can ask whether the gangs of a manifest would fit.

    Raises ``BadInputError`` if the port can't be used.
    """
    if isinstance(board, RemoteBoard):
        app = _passing_on(board)
    elif isinstance(board, StoredBoard | RecordedBoard):
        app = Api(board, ByHost()).application()
    else:
        raise TypeError(f"no page shows a {type(board).__name__}")
    add_pages(app, asks=plan is not None)
    if plan is not None:
        _add_ask(app, plan)
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
            url = URL(f"{board.url}{request.rel_url.raw_path_qs}", encoded=True)
            async with board.session.get(url, timeout=timeout, allow_redirects=False) as found:
                refuse_redirect(board.url, found)
                # The operator's own headers aren't passed on: whatever is at its address, a browser must not take the answer for a page.
                answer = web.StreamResponse(status=found.status, headers=_HEADERS)
                is_stream = request.path == _EVENTS and found.status == 200
                answer.content_type = "text/event-stream" if is_stream else "application/json"
                await answer.prepare(request)
                async for chunk in found.content.iter_any():
                    await answer.write(chunk)
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError, UnreadableError) as error:
            raise RefusedError(502, f"the operator can't be asked: {error or type(error).__name__}") from error

    app = web.Application(middlewares=[answer_refusals])
    app.router.add_get("/api/v1/{path:.*}", pass_on)
    return app


def _add_ask(app: web.Application, plan: Sequence[str]) -> None:
    """Add ``/ask``, which answers what ``allaboard plan`` with the options ``plan`` says about the manifests in a request."""
    access, turn = ByHost(), asyncio.Lock()

    async def ask(request: web.Request) -> web.Response:
        await access.rights(request.headers, ())
        if request.content_type != _MANIFESTS:
            raise RefusedError(415, f"manifests are sent as {_MANIFESTS}")
        manifests = await request.read()
        async with turn:
            words = ("-m", "allaboard", "plan", "-f", "-", "-o", "json", *plan)
            process = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE)
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    answer, problem = await process.communicate(manifests)
            except TimeoutError:
                raise RefusedError(504, f"the plan took longer than {_ASK_SECONDS:g} s") from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if process.returncode not in (0, SOME_DO_NOT_FIT):
            raise RefusedError(400, problem.decode(errors="replace").strip().removeprefix("Error: "))
        return web.Response(body=answer, content_type="application/json", headers={"Cache-Control": "no-store"})

    app.router.add_post("/ask", ask)
