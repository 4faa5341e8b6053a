"""Tests that the page asks ``allaboard ui`` about manifests, and shows the answer on the wall."""

import json
from pathlib import Path

from playwright.async_api import expect

from allaboard.cli.boards import Wanted, open_board
from allaboard.cli.ui import served
from tests.browser import axe
from tests.browser.conftest import Open, keep_screenshot
from tests.unit.cli.plan_command import gpu_node, member


async def test_a_manifest_is_planned_and_shown_on_the_wall(open_page: Open, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n1"), gpu_node("n2")]}))
    pods = [member(f"w-{number}", gang="train", minimum="2") for number in range(2)]
    for pod in pods:
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    async with open_board(Wanted(snapshots=[str(file)]), []) as board, served(board, plan=["--cluster", str(file)]) as url:
        page = await open_page(url, height=1400, errors="400")
        ask = page.get_by_role("region", name="Ask")
        await ask.get_by_label("Manifests").fill(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
        await ask.get_by_role("button", name="Plan").click()
        await expect(ask.get_by_text("default/train")).to_be_visible()
        await expect(ask.get_by_text("✓ fits on")).to_be_visible()
        await expect(ask.get_by_role("button", name="Hide on the wall")).to_be_visible()
        await keep_screenshot(page, "ask", full=True)
        assert await axe.violations(page) == []
        await ask.get_by_label("Manifests").fill("kind: [")
        await ask.get_by_role("button", name="Plan").click()
        await expect(ask.locator(".error")).to_contain_text("standard input")


async def test_the_operators_page_asks_nothing(open_page: Open, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n1")]}))
    async with open_board(Wanted(snapshots=[str(file)]), []) as board, served(board) as url:
        page = await open_page(url)
        await expect(page.get_by_text("No gang waits.")).to_be_visible()
        await expect(page.get_by_role("region", name="Ask")).to_have_count(0)
