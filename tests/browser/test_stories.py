"""Plays stories of the demo with the whole operator on a sandbox, and reads on its page how they ended."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import expect

from allaboard.cli import bundled
from allaboard.cli.embedded import operator
from allaboard.cli.stories import STORIES, Objects, Stage
from allaboard_sandbox import Sandbox
from tests.browser.conftest import Open, keep_screenshot

_GONE = "ERR_|Failed to load"  # the operator ends before the page does


@asynccontextmanager
async def played(name: str, folder: Path) -> AsyncIterator[str]:
    """Play a story, and yield the address of the page."""
    story = next(each for each in STORIES if each.name == name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with Sandbox() as sandbox:
        for crd in bundled.crds():
            sandbox.apply(crd)
        sandbox.write_kubeconfig(folder / "kubeconfig")

        async def apply(objects: Objects) -> None:
            for each in objects:
                sandbox.apply(each)

        async with operator(folder / "kubeconfig", api_port=port, ui="true", **story.settings):
            await story.run(Stage(sandbox, apply))
            yield f"http://127.0.0.1:{port}/"


async def test_a_gang_with_a_reservation_shows_where_and_when_it_will_run(open_page: Open, tmp_path: Path) -> None:
    async with played("backfill", tmp_path) as address:
        page = await open_page(address, errors=_GONE)
        # By the names' buttons: a reason may name another gang.
        big, long = (page.locator("#rows tbody tr", has=page.get_by_title(f"default/{name}")) for name in ("big", "long"))
        await expect(big).to_contain_text("0/2")
        await expect(big.locator(".expected")).to_contain_text(":")
        await expect(long).to_contain_text("0/1")
        await expect(page.locator("header dl")).to_contain_text("13 of 16")
        await big.get_by_role("button").click()
        await expect(page.locator(".outlook")).to_contain_text("Capacity is kept for this gang on 2 nodes; its expected start is")
        places = page.get_by_role("region", name="Where it would run").locator("tbody tr")
        await expect(places).to_have_count(2)
        for place in await places.all():
            await expect(place).to_contain_text("8 GPUs")
            await expect(place).to_contain_text("✕")
        await expect(page.locator(".ends li")).to_have_count(3)  # both pods of busy, and short
        await keep_screenshot(page, "story-backfill")


async def test_a_gang_that_never_fits_says_why(open_page: Open, tmp_path: Path) -> None:
    async with played("impossible", tmp_path) as address:
        page = await open_page(address, errors=_GONE)
        row = page.locator("#rows tbody tr").first
        await expect(row).to_contain_text("nvidia.com/gpu")
        await row.get_by_role("button").click()
        await expect(page.get_by_role("heading", name="Last decisions")).to_be_visible()
        await keep_screenshot(page, "story-impossible")


async def test_a_gang_that_runs_lights_its_nodes(open_page: Open, tmp_path: Path) -> None:
    async with played("pack", tmp_path) as address:
        page = await open_page(address, errors=_GONE, waits_for=".empty")
        await page.get_by_label("Show").select_option("running")
        row = page.locator("#rows tbody tr", has_text="tf-smoke-gpu")
        await expect(row).to_contain_text("5/5")
        await row.hover()
        await expect(row).to_have_class("lit")
        await keep_screenshot(page, "story-pack")
