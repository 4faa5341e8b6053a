"""Tests of the wall: squares, light on the nodes of a gang, and the place where a waiting gang would run."""

from typing import Any

from playwright.async_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.shown import GPU, Shown, a_cluster, a_gang, a_node

_PIXELS = """(canvas) => {
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const counts = {};
    for (let at = 0; at < data.length; at += 4) {
        const key = data.slice(at, at + 4).join();
        counts[key] = (counts[key] || 0) + 1;
    }
    return counts;
}"""


_COUNT_CLEARED = """() => {
    window.cleared = 0;
    const own = CanvasRenderingContext2D.prototype.clearRect;
    CanvasRenderingContext2D.prototype.clearRect = function (...box) {
        if (!this.canvas.classList.length) cleared++;
        own.apply(this, box);
    };
}"""


# Finds a point of the screen at which the wall has the colour of the gang a/x.
_PLACE_OF = """async () => {
    const canvas = document.querySelector('.panel canvas:not(.over)');
    const {data, width} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const counts = new Map();
    for (let at = 0; at < data.length; at += 4) {
        const key = data.slice(at, at + 4).join();
        if (!counts.has(key)) counts.set(key, []);
        counts.get(key).push(at / 4);
    }
    const {colour} = await import('./page/words.js');
    const {styleOf} = await import('./page/drawing.js');
    const pen = document.createElement('canvas').getContext('2d');
    pen.fillStyle = colour('a/x', styleOf(document.documentElement));
    pen.fillRect(0, 0, 1, 1);
    const [first] = counts.get(pen.getImageData(0, 0, 1, 1).data.join());
    const box = canvas.getBoundingClientRect();
    return [box.left + (first % width) + 1, box.top + Math.floor(first / width) + 1];
}"""


async def pixels(page: Page, canvas: str) -> dict[str, int]:
    """Return how many pixels of a canvas have each colour (red, green, blue, opacity)."""
    found: dict[str, int] = await page.eval_on_selector(canvas, _PIXELS)
    return found


async def wait_for_wall(page: Page) -> None:
    await page.wait_for_selector("canvas[data-drawn]")


WALL, OVER = ".panel canvas:not(.over)", ".panel .over"


async def squares(page: Page, node: Any) -> Any:
    """Return the squares that the page draws for a node."""
    return await page.evaluate("async node => (await import('./page/drawing.js')).squares(node)", node.model_dump(by_alias=True))


async def test_a_tile_has_a_square_for_each_gpu(open_page: Open) -> None:
    page = await open_page(a_cluster())
    assert await squares(page, a_node("n", shares={"a/x": 3, "": 2}, stranded=1)) == ["a/x"] * 3 + ["?"] * 2 + ["", "", "-"]
    assert await squares(page, a_node("n", gpus=0, shares={"a/x": 3})) == []
    assert await squares(page, a_node("n", gpus=32, shares={"a/x": 16})) == ["a/x"] * 8 + [""] * 8


async def test_pointing_at_a_row_lights_the_nodes_of_its_gang(open_page: Open) -> None:
    page = await open_page(a_cluster())
    await wait_for_wall(page)
    assert set(await pixels(page, OVER)) == {"0,0,0,0"}
    await page.get_by_label("Show").select_option("running")
    await page.locator("#rows tr", has_text="llm/pretrain-7b").hover()
    await expect(page.locator("#rows tr.lit")).to_have_count(1)
    dimmed = {key: number for key, number in (await pixels(page, OVER)).items() if key.startswith("255,255,255,")}
    assert dimmed
    await page.mouse.move(5, 5)
    await expect(page.locator("#rows tr.lit")).to_have_count(0)
    assert set(await pixels(page, OVER)) == {"0,0,0,0"}


async def test_pointing_at_a_square_lights_its_gang_and_a_click_opens_it(open_page: Open) -> None:
    shown = Shown([a_gang("a/x", bound=1)], [a_node("n1", shares={"a/x": 4})])
    page = await open_page(shown, waits_for=".empty")
    await wait_for_wall(page)
    await page.get_by_label("Show").select_option("running")
    await page.locator(OVER).hover(position={"x": 8, "y": 24})
    await expect(page.locator("#rows tr.lit")).to_contain_text("a/x")
    await expect(page.locator(".tip")).to_contain_text("n1: 4 of 8 GPUs free; used by a/x (1)")
    await page.locator(OVER).click(position={"x": 8, "y": 24})
    await expect(page.locator("#gang")).to_have_text("a/x")


async def test_a_waiting_gang_shows_where_it_would_run_and_what_must_end(open_page: Open) -> None:
    page = await open_page(a_cluster())
    await wait_for_wall(page)
    await page.get_by_role("button", name="llm/pretrain-70b").click()
    said = page.get_by_role("status").last
    await expect(said).to_contain_text("Capacity is kept for this gang on 3 nodes; its expected start is")
    await expect(said).to_contain_text("2 of them lack something. 1 member fits on no node. 3 gangs must end first.")
    places = [
        " ".join(row.split()) for row in await page.get_by_role("region", name="Where it would run").locator("tbody tr").all_inner_texts()
    ]
    assert places == ["gpu-c2 1 8 GPUs, 32 cpu nothing", "gpu-c1 1 8 GPUs, 32 cpu ✕ 3 GPUs", "gpu-b1 1 8 GPUs, 32 cpu ✕ 8 GPUs, 32 cpu"]
    ends = await page.locator(".ends li").all_inner_texts()
    assert [each.split()[1] for each in ends] == ["llm/eval-nightly", "llm/pretrain-7b", "a"]
    groups = page.get_by_role("region", name="What nodes lack")
    assert [" ".join(row.split()) for row in await groups.locator("tbody tr").all_inner_texts()] == [
        "1 worker takes 1 more member",
        "8 worker 3 GPUs: Insufficient nvidia.com/gpu",
        "1 worker node(s) were not ready",
    ]
    assert (await pixels(page, OVER))["194,16,31,255"] > 100
    await page.locator(".ends").get_by_role("button", name="llm/eval-nightly").click()
    await expect(page.locator("#gang")).to_have_text("llm/eval-nightly")
    await page.keyboard.press("Escape")
    await expect(page.locator("#rows").get_by_role("button", name="llm/pretrain-70b")).to_be_focused()


async def test_missing_squares_are_those_of_gangs_that_must_end(open_page: Open) -> None:
    page = await open_page(a_cluster())
    tile = a_node("n", shares={"a/stays": 3, "a/ends": 3})
    place = {"node": "n", "pods": 2, "gpus": 4.0, "requests": {GPU: 4}, "lacks": {GPU: 2}}
    outlook = {"waitsFor": [{"gang": "a/ends", "nodes": ["n"]}]}
    found = await page.evaluate(
        "async ([node, place, outlook]) => (await import('./page/drawing.js')).placesOf(node, place, outlook)",
        [tile.model_dump(by_alias=True), place, outlook],
    )
    assert found == [[6, 7], [3, 4]]


async def test_a_gang_without_a_known_place_has_no_such_section(open_page: Open) -> None:
    page = await open_page(a_cluster())
    await page.get_by_role("button", name="speech/align").click()
    await expect(page.locator("#gang")).to_have_text("speech/align")
    await expect(page.get_by_role("heading", name="Members")).to_be_visible()
    await expect(page.get_by_text("Where it would run")).to_have_count(0)


async def test_the_nearest_placement_says_that_no_time_is_known(open_page: Open) -> None:
    shown = a_cluster()
    shown.outlooks["recsys/ranker"] = {
        "kind": "nearest",
        "begins": None,
        "nodes": [{"node": "cpu-1", "pods": 3, "gpus": 0.0, "requests": {"cpu": 30, "memory": 20 * 2**30}, "lacks": {"cpu": 10}}],
        "unplaced": 0,
        "waitsFor": [],
    }
    page = await open_page(shown)
    await page.get_by_role("button", name="recsys/ranker").click()
    await expect(page.get_by_role("status").last).to_have_text(
        "No time is known at which this gang fits. The nearest placement is on 1 node. It lacks something."
    )
    await expect(page.get_by_role("region", name="Where it would run")).to_contain_text("✕ 10 cpu")
    assert (await pixels(page, OVER))["194,16,31,255"] > 20


async def test_the_table_has_the_same_as_the_wall(open_page: Open) -> None:
    page = await open_page(a_cluster())
    await page.get_by_text("The nodes as a table").click()
    table = page.get_by_role("region", name="The nodes", exact=True)
    await expect(table.locator("tbody tr")).to_have_count(14)
    await expect(table.locator("tr", has_text="gpu-b4")).to_contain_text("not ready")
    await expect(table.locator("tr", has_text="gpu-b3")).to_contain_text("another namespace (1), llm/eval-nightly (1)")
    await page.get_by_label("Nodes with").fill("notebooks/ada")
    await expect(table.locator("tbody tr")).to_have_count(2)


async def test_only_tiles_whose_nodes_have_changed_are_drawn_again(open_page: Open) -> None:
    shown = a_cluster()
    page = await open_page(shown)
    await wait_for_wall(page)
    before = await pixels(page, WALL)
    drawn = int(await page.get_attribute(WALL, "data-drawn") or 0)
    await page.evaluate(_COUNT_CLEARED)
    shown.node_rows[0] = a_node("gpu-a1", "rack-a")
    shown.change()
    await page.wait_for_selector(f"canvas[data-drawn='{drawn + 1}']")
    assert await page.evaluate("cleared") == 1
    assert await pixels(page, WALL) != before


async def test_a_tall_wall_draws_what_is_in_view_and_scrolls_to_the_nodes_of_a_chosen_gang(open_page: Open) -> None:
    nodes = [a_node(f"n{number:04d}", f"rack-{number // 32:03d}", shares={"a/x": 8} if number == 2999 else None) for number in range(3000)]
    page = await open_page(Shown([a_gang("a/x", bound=1)], nodes), waits_for=".empty")
    await wait_for_wall(page)
    full, part = await page.evaluate(
        "[document.querySelector('.panel .full').clientHeight, document.querySelector('.panel canvas').clientHeight]"
    )
    assert part < 500 < 1000 < full
    before = await pixels(page, WALL)
    await page.get_by_label("Show").select_option("running")
    await page.locator("#rows").get_by_role("button", name="a/x").click()
    await expect(page.locator("#gang")).to_have_text("a/x")
    await page.locator(".panel").evaluate("panel => new Promise(done => panel.scrollTop ? done() : panel.addEventListener('scroll', done))")
    await page.mouse.move(5, 5)
    place = await page.evaluate(_PLACE_OF)
    await page.mouse.move(*place)
    await expect(page.locator(".tip")).to_contain_text("n2999: 0 of 8 GPUs free; used by a/x (1)")
    assert await pixels(page, WALL) != before


async def test_nodes_are_grouped_by_the_label_that_the_user_chooses(open_page: Open) -> None:
    page = await open_page(a_cluster())
    by = page.get_by_label("By")
    await expect(by).to_have_value("")
    await page.get_by_text("The nodes as a table").click()
    cell = page.get_by_role("row", name="gpu-a1").get_by_role("cell").nth(1)
    await expect(cell).to_have_text("rack-a")
    before = await page.locator(".wall canvas").first.get_attribute("data-drawn")
    await by.select_option("topology.kubernetes.io/zone")
    await expect(cell).to_have_text("zone-1")
    await expect(page.locator(".wall canvas").first).not_to_have_attribute("data-drawn", str(before))
