"""Tests of the board: it shows what the API answers, can be filtered, and keeps its rows where they are."""

from typing import Any

from playwright.async_api import Page, expect

from allaboard.model.gang import GangKey
from tests.browser.conftest import Open
from tests.browser.shown import Shown, a_cluster, a_gang, a_node
from tests.unit.placement.clusters import node
from tests.unit.scheduling.schedulers import World
from tests.unit.sight.test_board import a_board


async def rows_of(page: Page) -> list[str]:
    """Return the texts of the rows of the board."""
    return [" ".join(text.split()) for text in await page.locator("#rows tbody tr").all_inner_texts()]


async def names_of(page: Page) -> list[str]:
    return await page.locator("#rows tbody button").all_inner_texts()


async def facts_of(page: Page) -> dict[str, str]:
    """Return the facts in the header, by their names."""
    facts = page.locator("header dl > div")
    return {await fact.locator("dt").inner_text(): await fact.locator("dd").inner_text() for fact in await facts.all()}


async def test_the_page_shows_what_the_scheduler_says(open_page: Open) -> None:
    async with World(cpus=3) as world:
        world.view.upsert_node(node("m", {"cpu": 1000}))
        world.add("runs", 2)
        await world.run_cycle()
        for name, size, bound in (("half", 3, 1), ("waits", 4, 0)):
            world.add(name, size, bound=bound)
        await world.run_cycle()
        page = await open_page(a_board(world))
        rows = await rows_of(page)
        waits = next(row for row in rows if "waits" in row)
        assert "0/4" in waits
        assert world.message_of(GangKey("default", "waits")).partition(": ")[2][:60] in waits
        assert "1/3" in next(row for row in rows if "half" in row)
        assert not [row for row in rows if "runs" in row]
        await page.get_by_label("Show").select_option("running")
        await expect(page.locator("#rows tbody tr")).to_have_count(1)
        assert "default/runs" in (await rows_of(page))[0]


async def test_the_header_has_the_figures_of_the_cluster(open_page: Open) -> None:
    page = await open_page(a_cluster())
    facts = await facts_of(page)
    assert facts == {"GPUs used": "60 of 96", "free": "36", "stranded": "4", "waiting": "6", "oldest wait": "2h3m"}
    await expect(page.locator(".health")).to_contain_text("This replica leads")
    await expect(page.locator(".health")).to_contain_text("Data")


async def test_a_replica_that_does_not_lead_and_an_old_cache_are_warned_of(open_page: Open) -> None:
    shown = a_cluster()
    shown.leads, shown.cache_age = False, 90.0
    page = await open_page(shown)
    await expect(page.locator(".health .warning").first).to_contain_text("doesn't lead")
    await expect(page.locator(".health .warning").last).to_contain_text("Data 1m30s old")


async def test_rows_are_filtered_by_kind_namespace_and_words(open_page: Open) -> None:
    page = await open_page(a_cluster())
    assert len(await names_of(page)) == 6
    await page.get_by_label("with", exact=True).fill("2 were lost")
    await expect(page.locator("#rows tbody tr")).to_have_count(1)
    assert await names_of(page) == ["vision/finetune-vit"]
    await page.get_by_label("with", exact=True).fill("")
    await page.get_by_label("Show").select_option("all")
    await expect(page.locator("#rows tbody tr")).to_have_count(13)
    await page.locator(".board .filters select").nth(1).select_option("llm")
    await expect(page.locator("#rows tbody tr")).to_have_count(3)
    await page.get_by_label("with", exact=True).fill("nothing has this")
    await expect(page.get_by_text("No gang is shown.")).to_be_visible()


async def test_rows_keep_their_places_under_the_pointer(open_page: Open) -> None:
    shown = Shown([a_gang(f"team/g{place}", position=place, needed=2, message="m") for place in range(1, 6)], [a_node("n")])
    page = await open_page(shown)
    third = page.locator("#rows tbody tr").nth(2)
    await third.hover()
    before = await third.bounding_box()
    del shown.rows["team/g1"]
    shown.change(
        a_gang("team/g2", bound=2, needed=2),
        a_gang("team/g4", position=1, needed=2, message="a much longer reason than before " * 10),
        a_gang("team/g6", position=2, needed=2),
    )
    await expect(page.locator("#rows tbody tr")).to_have_count(6)
    assert await names_of(page) == [f"team/g{place}" for place in range(1, 7)]
    assert "no longer exists" in (await rows_of(page))[0]
    assert "Scheduled" in (await rows_of(page))[1]
    assert await third.bounding_box() == before
    await page.mouse.move(5, 5)
    await expect(page.locator("#rows tbody tr")).to_have_count(4)
    assert (await names_of(page))[:2] == ["team/g4", "team/g6"]


async def test_a_long_board_shows_more_rows_on_request(open_page: Open) -> None:
    page = await open_page(Shown([a_gang(f"team/g{place}", position=place) for place in range(1, 251)], [a_node("n")]))
    await expect(page.locator("#rows tbody tr")).to_have_count(100)
    await page.get_by_role("button", name="Show more").click()
    await expect(page.locator("#rows tbody tr")).to_have_count(200)


async def test_a_board_without_gangs_says_so(open_page: Open) -> None:
    page = await open_page(Shown([], [a_node("n")]), waits_for=".empty")
    await expect(page.get_by_text("No gang waits.")).to_be_visible()


async def test_changes_are_shown_without_a_reload(open_page: Open) -> None:
    shown = a_cluster()
    page = await open_page(shown)
    shown.change(a_gang("llm/pretrain-70b", bound=4, needed=4))
    await expect(page.locator("#rows tbody tr")).to_have_count(5)


async def test_changes_are_shown_although_the_stream_of_events_is_refused(open_page: Open) -> None:
    shown = a_cluster()
    page = await open_page(shown, streams=0, errors="503|EventSource")
    shown.change(a_gang("llm/pretrain-70b", bound=4, needed=4))
    await expect(page.locator("#rows tbody tr")).to_have_count(5)


async def test_a_pod_and_a_gang_of_the_same_name_have_a_row_each(open_page: Open) -> None:
    shown = Shown([a_gang("a/x", position=1)], [a_node("n")])
    shown.rows["other"] = a_gang("a/x", position=2, kind="Pod", state="")
    page = await open_page(shown)
    assert await names_of(page) == ["a/x", "a/x"]
    assert "Waiting" in (await rows_of(page))[1]
    assert await page.title() == "(2) Allaboard"


async def test_the_keyboard_alone_opens_and_closes_a_gang(open_page: Open) -> None:
    page = await open_page(a_cluster())
    await page.get_by_label("with", exact=True).focus()
    for _ in range(2):
        await page.keyboard.press("Tab")
    name = await focused(page)
    assert name == "vision/finetune-vit"
    await expect(page.locator("#rows tr.lit")).to_contain_text(name)
    await page.keyboard.press("Enter")
    await expect(page.locator("#gang")).to_be_focused()
    await expect(page.locator("#rows tr.chosen")).to_contain_text(name)
    await page.keyboard.press("Escape")
    await expect(page.locator("#details")).to_have_count(0)
    assert await focused(page) == name


async def focused(page: Page) -> Any:
    return await page.evaluate("document.activeElement.innerText")
