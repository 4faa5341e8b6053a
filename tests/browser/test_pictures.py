"""Takes pictures of the page, and checks its accessibility in each of these states."""

import pytest

from tests.browser import axe
from tests.browser.conftest import Open, keep_screenshot
from tests.browser.shown import an_hour


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_each_state_of_the_page_is_accessible(open_page: Open, width: int, scheme: str) -> None:
    page = await open_page(an_hour(), width=width, scheme=scheme)
    await page.wait_for_selector("canvas[data-drawn]")
    await keep_screenshot(page, f"board-{width}-{scheme}")
    assert await axe.violations(page) == []
    await page.get_by_text("The nodes as a table").click()
    await page.wait_for_selector("details table")
    assert await axe.violations(page) == []
    await page.get_by_text("The nodes as a table").click()
    await page.get_by_role("button", name="llm/pretrain-70b").first.click()
    await page.wait_for_selector(".ends")
    await page.set_viewport_size({"width": width, "height": 1400 if width > 1000 else 800})
    await keep_screenshot(page, f"ghosts-{width}-{scheme}")
    assert await axe.violations(page) == []
