"""Serves the departure board, a page that shows what the API answers. The files of the page never change while the operator runs."""

from collections.abc import Awaitable, Callable
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
HEADERS = {
    # Scripts, styles and data come from this server only, and no script or style stands in the page itself.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Headers of the page and its files."""


def add_pages(app: web.Application, *, asks: bool = False) -> None:
    """Add the page at ``/`` and its files at ``/page/…`` to an application. Other paths are never looked up on the disk.

    If the page ``asks``, the application answers questions about manifests at ``/ask``.
    """
    folder = files("allaboard.sight") / "page"
    index = (folder / "index.html").read_bytes()
    app.router.add_get("/", _answering(index.replace(b"<html ", b"<html data-asks ") if asks else index, "text/html"))
    for prefix, place in (("/page/", folder), ("/page/vendor/", folder / "vendor")):
        for file in place.iterdir():
            if _type_of(file) and file.name != "index.html":
                app.router.add_get(f"{prefix}{file.name}", _answering(file.read_bytes(), _type_of(file)))


def _answering(body: bytes, kind: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)

    return answer


def _type_of(file: Traversable) -> str:
    return next((kind for ending, kind in _TYPES.items() if file.name.endswith(ending)), "")
