"""The page in a real browser. `LOOK=FOLDER` keeps the pictures."""

import os
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agentload.report.formats.html import html
from tests.report.chromium import PROGRAM, Page, browser
from tests.report.kept import FOLDER, KEPT
from tests.report.telling import told

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium (Debian: apt-get install chromium)"),
]
DESKTOP, PHONE = 1_200, 390
# WCAG 2.2 AA: 4.5 to 1 for text, computed from the colours that the browser resolved.
CONTRAST = """[...document.querySelectorAll('h1, h2, h3, p, li, dd, dt, td, th, summary, figcaption, button, .badge, .chart text')]
      .filter(part => part.textContent.trim() && !part.closest('.heat-ink') && !part.matches('.heat-ink, .skip')).map(part => {
        const light = colour => { const parts = colour.match(/[0-9.]+/g).slice(0, 3).map(value => value / 255)
            .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
          return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]; };
        let behind = part; const style = getComputedStyle(part);
        while (behind && getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
        const [low, high] = [light(part.closest('.chart') ? style.fill : style.color),
          light(getComputedStyle(behind ?? document.documentElement).backgroundColor)].sort((a, b) => a - b);
        return [(high + 0.05) / (low + 0.05), part.tagName + '.' + part.className + ' ' + part.textContent.slice(0, 40)]; })
      .filter(([ratio]) => ratio < 4.5)"""


@pytest_asyncio.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    file = tmp_path / "decision.html"
    file.write_text(html(told()))
    async with browser(tmp_path / "profile") as opened:
        await opened.shape(width=DESKTOP, height=900)
        await opened.open(file)
        yield opened


UNFOLD = "document.querySelectorAll('details').forEach(part => part.open = true)"


def colours(png: bytes) -> int:
    """Count the distinct colours of an 8-bit PNG's unfiltered and
    filtered bytes: few for a blank picture, many for a drawn one.
    """
    parts, at = b"", 8
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        parts += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    return len(set(zlib.decompress(parts)))


def keep(name: str, png: bytes) -> None:
    if folder := os.environ.get("LOOK"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(png)


async def test_the_page_asks_for_nothing_and_complains_of_nothing(page: Page) -> None:
    assert await page.run("document.querySelectorAll('figure').length") == sum(
        len(group.charts) for group in told().groups
    )
    assert (
        page.complaints,
        [url for url in page.requests if not url.startswith(("file:", "data:"))],
    ) == ([], [])


async def test_every_chart_is_drawn_inside_its_frame(page: Page) -> None:
    await page.run(UNFOLD)
    empty = (
        "[...document.querySelectorAll('figure svg.chart')].filter(svg => !svg.querySelector('.mark, "
        ".line, .heat')).length"
    )
    outside = """[...document.querySelectorAll('figure svg.chart')].flatMap(svg => {
        const frame = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text, .mark, .line, .heat')]
          .filter(part => { const box = part.getBoundingClientRect();
            return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1; })
          .map(part => svg.querySelector('title').textContent + ': ' + (part.textContent || part.className.baseVal)); })"""
    assert (await page.run(empty), await page.run(outside)) == (0, [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "width"), [("desktop", DESKTOP), ("phone", PHONE)])
async def test_the_page_fits_its_window_in_light_and_dark(
    page: Page, name: str, width: int, scheme: str
) -> None:
    await page.shape(width=width, height=800, mobile=width == PHONE, scheme=scheme)
    assert await page.run("document.documentElement.scrollWidth") == width
    png = await page.screenshot(height=2_400)
    keep(f"{name}-{scheme}", png)
    assert struct.unpack_from(">II", png, 16) == (width, 2_400)
    assert colours(png) > 100
    dark = await page.run("getComputedStyle(document.documentElement).backgroundColor")
    assert dark == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}[scheme]


@pytest.mark.parametrize(("width", "height", "screens"), [(1_440, 900, 1), (PHONE, 844, 2)])
async def test_what_decides_is_on_the_first_screen(
    page: Page, width: int, height: int, screens: int
) -> None:
    """Decision, reason, arms, confidence, next step, servers and what
    was not measured: one desktop. Up to the next step: two phones.
    """
    await page.shape(width=width, height=height, mobile=width == PHONE)
    last = "#decision" if screens == 1 else "#decision .facts > div:has(ol)"
    end = f"document.querySelector('{last}').getBoundingClientRect().bottom + scrollY"
    assert await page.run(end) <= height * screens
    for word in KEPT:
        await page.open(FOLDER / word / "decision.html")
        assert await page.run(end) <= height * screens, word


CUT = """[...document.querySelectorAll('.scroll, pre, nav')]
      .filter(part => part.checkVisibility() && part.scrollWidth > part.clientWidth + 1)
      .map(part => part.tagName + ' ' + (part.getAttribute('aria-label') ?? part.textContent.slice(0, 40)))"""
"""What hides a part of itself until somebody scrolls it sideways."""


async def test_nothing_is_cut_at_its_right_edge(page: Page) -> None:
    """Folded tables, commands and the list of sections have a phone's width, too."""
    for width in (1_440, PHONE):
        await page.shape(width=width, height=900, mobile=width == PHONE)
        await page.run(UNFOLD)
        assert await page.run(CUT) == []


async def test_each_figure_of_a_restacked_row_has_the_name_of_its_column(page: Page) -> None:
    await page.shape(width=PHONE, height=844, mobile=True)
    await page.run(UNFOLD)
    names = """[...document.querySelectorAll('[aria-label="Validity checks"] tr:nth-child(1) td')].map(cell =>
        getComputedStyle(cell, '::before').content)"""
    heads = """[...document.querySelectorAll('[aria-label="Validity checks"] thead th')].slice(1).map(head =>
        '"' + head.textContent + '"')"""
    assert await page.run(names) == await page.run(heads)


async def test_the_first_table_of_a_phone_has_three_columns(page: Page) -> None:
    await page.shape(width=PHONE, height=844, mobile=True)
    rows = """[...document.querySelectorAll('#decision tbody tr')].map(row => [...row.cells]
        .filter(cell => cell.checkVisibility()).map(cell => Math.round(cell.getBoundingClientRect().left)))"""
    places = [left for _, *cells in await page.run(rows) for left in cells]
    assert len({*places}) == 3  # the reference, an arm, its change


async def test_no_name_of_an_arm_wraps_on_a_phone(page: Page) -> None:
    """A name of two lines would stand beside the figures of the next arm."""
    await page.shape(width=PHONE, height=844, mobile=True)
    wrapped = """[...document.querySelectorAll('#decision thead th')].slice(1).filter(head => {
        const range = document.createRange(); range.selectNodeContents(head);
        return range.getBoundingClientRect().height > 24; }).map(head => head.textContent)"""
    assert await page.run(wrapped) == []


async def test_what_all_columns_share_is_said_in_a_line_above_their_names(page: Page) -> None:
    await page.shape(width=PHONE, height=844, mobile=True)
    words = """[...document.querySelectorAll('#decision thead th')].map(head => {
        const range = document.createRange(); range.selectNodeContents(head);
        return range.getBoundingClientRect(); }).map(box => [box.top, box.bottom, box.height, box.right])"""
    (_, bottom, height, right), *others = await page.run(words)
    assert height < 24
    assert right <= PHONE
    assert [top for top, *_ in others if top < bottom - 2] == []


async def test_each_chart_has_its_data_as_csv_and_as_vega_lite(page: Page) -> None:
    table = "decodeURIComponent(document.querySelector('a[download=\"differences.csv\"]').href.split(',').slice(1).join(','))"
    assert (await page.run(table)).startswith("lane,arm,what,low,at,high\n")
    vega = "JSON.parse(document.querySelector('button[data-vega]').dataset.vega).data.format.type"
    assert await page.run(vega) == "csv"
    assert not await page.run("document.querySelector('button[data-vega]').hidden")


async def test_text_has_the_contrast_that_readers_need(page: Page) -> None:
    for scheme in ("light", "dark"):
        await page.shape(width=DESKTOP, height=900, scheme=scheme)
        assert await page.run(CONTRAST) == []


TARGETS = """[...document.querySelectorAll('a, button, summary, select, input, pre[tabindex]')]
      .filter(part => part.checkVisibility() && !part.closest('p:not(.data), li, .skip, td, th, dd'))
      .map(part => [part.getBoundingClientRect(), part.tagName + ' ' + part.textContent.slice(0, 30)])
      .filter(([box]) => Math.min(box.width, box.height) < 24).map(([, name]) => name)"""
"""Controls smaller than 24 pixels, but for links inside a sentence (WCAG 2.2, 2.5.8)."""


async def test_what_is_pressed_is_large_enough_for_a_finger(page: Page) -> None:
    for width in (DESKTOP, PHONE):
        await page.shape(width=width, height=900, mobile=width == PHONE)
        await page.run(UNFOLD)
        assert await page.run(TARGETS) == []


async def test_a_command_is_copied_with_the_keyboard(page: Page) -> None:
    count = "document.querySelectorAll('pre').length"
    assert await page.run(count) == await page.run(
        "document.querySelectorAll('.command > pre + button').length"
    )
    # The clipboard of a headless browser belongs to nobody: what would be copied is kept.
    await page.run(
        "Object.defineProperty(navigator, 'clipboard', "
        "{value: {writeText: async text => { window.copied = text; }}})"
    )
    await page.run("document.querySelector('.command button').focus()")
    await page.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r")
    await page.send("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter")
    await page.run("new Promise(done => setTimeout(done, 50))")
    assert await page.run("window.copied === document.querySelector('pre').textContent")
    assert await page.run("document.querySelector('.command button').textContent") == "Copied"


async def test_the_forest_lies_in_the_rows_that_it_is_about(page: Page) -> None:
    await page.shape(width=1_440, height=900)
    await page.open(FOLDER / "use" / "decision.html")
    rows = """[...document.querySelectorAll('#decision tbody tr')].filter(row => row.querySelector('svg.forest'))
      .map(row => [row.querySelector('th').textContent, row.getBoundingClientRect().height <= 34])"""
    assert await page.run(rows) == [
        ["turn latency", True],
        ["time to first token", True],
        ["time per output token", True],
    ]
    assert await page.run("document.querySelectorAll('#decision thead svg.forest').length") == 1


async def test_a_chart_is_read_with_the_keyboard(page: Page) -> None:
    await page.run(UNFOLD)
    await page.run("document.querySelector('svg[aria-labelledby^=itl]').focus()")
    await page.press("ArrowRight")
    first = await page.run("document.getElementById('tip').textContent")
    await page.press("ArrowRight")
    await page.press("ArrowDown")
    other = await page.run("document.getElementById('tip').textContent")
    await page.press("Escape")
    assert (first.split(":")[0], other.split(":")[0]) == ("BF16", "FP8")
    assert await page.run("document.getElementById('tip').hidden")


async def test_pointing_at_a_mark_tells_its_values(page: Page) -> None:
    await page.run(UNFOLD)
    await page.run(
        "document.querySelector('svg[aria-labelledby^=itl]').scrollIntoView({block: 'center'})"
    )
    box = await page.run(
        "(() => { const box = document.querySelector('svg[aria-labelledby^=itl] .arm-2 "
        ".mark').getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    await page.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    assert "tokens" in await page.run("document.getElementById('tip').textContent")
    assert not await page.run("document.getElementById('tip').hidden")


async def test_a_legend_entry_hides_and_shows_its_arm(page: Page) -> None:
    button = (
        "document.querySelector('figure:has(svg[aria-labelledby^=itl]) button[data-arm=\"1\"]')"
    )
    shown = (
        "[...document.querySelectorAll('svg[aria-labelledby^=itl] .series.arm-1')].filter(part "
        "=> part.getClientRects().length).length"
    )
    before = await page.run(shown)
    await page.run(f"{button}.click()")
    hidden = (await page.run(shown), await page.run(f"{button}.getAttribute('aria-pressed')"))
    await page.run(f"{button}.click()")
    assert (hidden, await page.run(shown)) == ((0, "false"), before)


async def test_paper_shows_what_the_screen_folds(page: Page) -> None:
    folded = "[...document.querySelectorAll('details')].filter(part => !part.open).length"
    assert await page.run(folded) > 0
    await page.run("dispatchEvent(new Event('beforeprint'))")
    assert await page.run(folded) == 0
    await page.run("dispatchEvent(new Event('afterprint'))")
    assert await page.run(folded) > 0
