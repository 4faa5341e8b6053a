"""Tests that the last hour is drawn, and that its slider shows the figures and the decisions of an earlier time."""

from playwright.async_api import expect

from tests.browser.conftest import Open, keep_screenshot
from tests.browser.shown import Shown, an_hour


async def test_the_slider_shows_figures_and_decisions_of_an_earlier_time(open_page: Open) -> None:
    page = await open_page(an_hour(), height=1400)
    hour = page.get_by_role("region", name="Last hour")
    await expect(hour.locator(".numbers")).to_contain_text("59.9 of 96 GPUs used, 7.0 stranded, 5 gangs wait")
    await expect(hour.locator(".history li")).to_have_count(3)
    await keep_screenshot(page, "hour", full=True)
    slider = hour.get_by_role("slider", name="Time")
    await slider.press("Home")
    await expect(hour.locator(".numbers")).to_contain_text("30 of 96 GPUs used, 4 stranded, 0 gangs wait")
    await expect(hour.get_by_text("No decision is known from then.")).to_be_visible()
    for _ in range(60):
        await slider.press("ArrowRight")
    await expect(hour.locator(".history li")).to_have_count(1)
    await hour.get_by_role("button", name="Back to now").click()
    await expect(hour.locator(".history li")).to_have_count(3)


async def test_a_decision_opens_its_gang(open_page: Open) -> None:
    page = await open_page(an_hour(), height=1400)
    await page.get_by_role("region", name="Last hour").get_by_role("button", name="llm/pretrain-70b").click()
    await expect(page.get_by_role("heading", name="llm/pretrain-70b")).to_be_visible()


async def test_a_board_without_samples_has_no_last_hour(open_page: Open) -> None:
    page = await open_page(Shown())
    await expect(page.get_by_text("No gang waits.")).to_be_visible()
    await expect(page.get_by_role("region", name="Last hour")).to_have_count(0)
