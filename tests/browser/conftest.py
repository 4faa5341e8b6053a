"""Fixtures that open the page in a real Chromium. At the end of each test the page must have had no error and asked no other host."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, Page, async_playwright, expect

from allaboard.sight.access import Access
from allaboard.sight.api import Api
from allaboard.sight.pages import add_pages
from tests.browser import chromium
from tests.browser.shown import Everything

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
_VIOLATIONS = """window.policyViolations = [];
addEventListener('securitypolicyviolation', event => policyViolations.push(`${event.violatedDirective} ${event.blockedURI}`))"""
_READS = "willReadFrequently"  # a warning about tests that read a canvas

_MILLISECONDS = 50_000  # ends only a test that hangs
expect.set_options(timeout=_MILLISECONDS)

Open = Callable[..., Awaitable[Page]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of this folder in one event loop, that of the browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Start Chromium. A missing one fails each test: a skipped test would show nothing."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=chromium.locate(), args=["--no-sandbox", "--disable-gpu"])
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser) -> AsyncIterator[Open]:
    """Return a function that serves a board and opens the page: ``await open_page(board, width=390, scheme="dark")``.

    Instead of a board, the address of a page that is served already can be passed. ``errors`` is a regular expression of allowed errors.
    """
    async with AsyncExitStack() as stack:

        async def opens(
            board: Any,
            *,
            width: int = 1280,
            height: int = 800,
            scheme: str = "light",
            access: Access | None = None,
            streams: int = 64,
            errors: str = "^$",
            waits_for: str = "#rows",
        ) -> Page:
            own = board if isinstance(board, str) else str((await stack.enter_async_context(_serve(board, access, streams))).make_url("/"))
            context = await browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", locale="en-GB"
            )
            stack.push_async_callback(context.close)
            await context.add_init_script(_VIOLATIONS)
            page = await context.new_page()
            page.set_default_timeout(_MILLISECONDS)
            problems = list[str]()
            page.on(
                "console",
                lambda message: (
                    problems.append(message.text) if message.type in ("error", "warning") and _READS not in message.text else None
                ),
            )
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("request", lambda request: None if request.url.startswith(own) else problems.append(f"a request to {request.url}"))
            stack.push_async_callback(_check, page, problems, errors)
            await page.goto(own)
            await page.wait_for_selector(waits_for)
            return page

        yield opens


def _serve(board: Any, access: Access | None, streams: int) -> TestServer:
    application = Api(board, access or Everything(), pause=0.02, most_streams=streams).application()
    add_pages(application)
    return TestServer(application)


async def _check(page: Page, problems: list[str], allowed: str) -> None:
    assert await page.evaluate("policyViolations") == []
    assert [each for each in problems if not re.search(allowed, each)] == []


async def keep_screenshot(page: Page, name: str, *, full: bool = False) -> None:
    """Keep a picture of the page for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=full)
