"""Tests that the page is served with a strict policy, and that its libraries are unchanged."""

import hashlib
import re
from importlib.resources import files

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from allaboard.sight.pages import add_pages

FOLDER = files("allaboard.sight") / "page"


async def answer(path: str) -> tuple[int, str, str]:
    """Return the status, the type and the text of a path."""
    app = web.Application()
    add_pages(app)
    async with TestClient(TestServer(app)) as client, client.get(path) as response:
        if response.status == 200:
            policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'")
            assert "unsafe" not in policy
        return response.status, response.content_type, await response.text()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/page/main.js", "text/javascript"),
        ("/page/style.css", "text/css"),
        ("/page/icon.svg", "image/svg+xml"),
        ("/page/vendor/htm-preact.js", "text/javascript"),
    ],
)
async def test_files_of_the_page_are_served(path: str, kind: str) -> None:
    status, found, text = await answer(path)
    assert (status, found) == (200, kind)
    assert text


@pytest.mark.parametrize("path", ["/page/../values.py", "/page/%2e%2e/values.py", "/page/index.html", "/page/vendor/README.md", "/page/"])
async def test_no_other_file_is_served(path: str) -> None:
    assert (await answer(path))[0] == 404


def test_libraries_are_those_that_their_list_names() -> None:
    rows = re.findall(r"^\| `(\S+)` .* `([0-9a-f]{64})` \|$", (FOLDER / "vendor" / "README.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {file.name for file in (FOLDER / "vendor").iterdir() if file.name.endswith(".js")}
    for name, digest in rows:
        assert hashlib.sha256((FOLDER / "vendor" / name).read_bytes()).hexdigest() == digest


def test_the_page_refers_to_no_other_host_and_has_no_script_of_its_own() -> None:
    text = (FOLDER / "index.html").read_text()
    assert not re.findall(r"https?://|\son\w+=|<style|javascript:", text)
    assert re.findall(r"<script[^>]*>", text) == ['<script type="module" src="page/main.js">']
    for file in FOLDER.iterdir():
        if file.name.endswith(".js"):
            assert not re.findall(r"https?://|innerHTML|dangerouslySetInnerHTML|eval\(", file.read_text()), file.name


def test_the_page_preloads_each_of_its_modules() -> None:
    preloaded = set(re.findall(r'<link rel="modulepreload" href="page/([^"]+)">', (FOLDER / "index.html").read_text()))
    modules = {file.name for file in FOLDER.iterdir() if file.name.endswith(".js")} | {"vendor/htm-preact.js"}
    assert preloaded == modules - {"main.js", "reader.js"}  # main.js is loaded at once, and reader.js by its worker
