"""Tests that names and messages of tenants stay text, that lost rights and servers are reported, and that the page can't write."""

from collections.abc import Mapping, Sequence

import pytest
from playwright.async_api import expect

from allaboard.sight.access import RefusedError, Rights
from tests.browser.conftest import Open, keep_screenshot
from tests.browser.shown import Shown, a_cluster, a_gang, a_member, a_node

MARKUP = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
HOSTILE = [MARKUP, "\u202egnp.exe\u202c\u2066\u200b", "x" * 253, "javascript:window.hacked=1", "'\"`${window.hacked=1}", "مرحبا-שלום"]


@pytest.mark.parametrize("width", [1280, 390])
async def test_hostile_names_stay_text_and_break_no_layout(open_page: Open, width: int) -> None:
    gangs = [a_gang(f"team/{text}", position=place, needed=2, message=f"{text} {text}") for place, text in enumerate(HOSTILE, 1)]
    nodes = [a_node(text, domain=text, shares={f"team/{text}": 4}) for text in HOSTILE]
    shown = Shown(gangs, nodes)
    shown.grouped_by = MARKUP
    key = f"team/{HOSTILE[0]}"
    shown.pods[key] = [a_member(text, node=text) for text in HOSTILE]
    shown.outlooks[key] = {
        "kind": "nearest",
        "begins": None,
        "nodes": [{"node": text, "pods": 1, "gpus": 1.0, "requests": {text: 1}, "lacks": {text: 1}} for text in HOSTILE],
        "unplaced": 0,
        "waitsFor": [{"gang": f"team/{text}", "ends": 1e9, "basis": text, "nodes": [text]} for text in HOSTILE],
    }
    page = await open_page(shown, width=width)
    await page.get_by_text("The nodes as a table").click()
    await page.locator("#rows tbody tr").first.click(position={"x": 30, "y": 10})
    await page.wait_for_selector(".ends")
    assert MARKUP in await page.locator("#gang").inner_text()
    assert await page.evaluate("window.hacked") is None
    assert await page.locator("img, main script").count() == 0
    text = await page.locator("main").inner_text()
    assert not set(text) & set("\u202e\u202c\u2066\u200b")
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    await keep_screenshot(page, f"hostile-{width}", full=True)


class Refuses:
    """Access that refuses each request without the token ``secret``."""

    async def rights(self, headers: Mapping[str, str], namespaces: Sequence[str]) -> Rights:
        if headers.get("Authorization") != "Bearer secret":
            raise RefusedError(401, "send a bearer token")
        return Rights(frozenset(namespaces), nodes=False)


async def test_a_page_without_a_token_asks_for_one_and_shows_what_it_may_read(open_page: Open) -> None:
    page = await open_page(a_cluster(), access=Refuses(), errors="40[13]|EventSource", waits_for="form")
    await expect(page.get_by_role("alert")).to_have_text("send a bearer token")
    await page.get_by_label("Bearer token").fill("secret")
    await page.get_by_role("button", name="Use this token").click()
    await expect(page.locator("#rows tbody tr")).to_have_count(6)


async def test_a_lost_server_is_reported_while_the_last_state_is_shown(open_page: Open) -> None:
    shown = a_cluster()
    page = await open_page(shown, errors="Failed to load|ERR_")
    await page.context.set_offline(True)
    await expect(page.locator(".health .warning")).to_contain_text("The operator doesn't answer")
    assert await page.locator("#rows tbody tr").count() == 6


async def test_the_page_only_reads(open_page: Open) -> None:
    methods = set[str]()
    page = await open_page(a_cluster())
    page.on("request", lambda request: methods.add(request.method))
    await page.get_by_role("button", name="llm/pretrain-70b").click()
    await page.wait_for_selector(".ends")
    await page.reload()
    await page.wait_for_selector("#rows")
    assert methods == {"GET"}
