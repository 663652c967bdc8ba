"""The pages in a real browser. `LOOK=FOLDER` keeps the pictures."""

import asyncio
import json
import os
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from agentload.model.rows import VerdictRow
from agentload.watch.ledger import execution_row
from tests.report.chromium import PROGRAM, Page, browser
from tests.report.test_page import CONTRAST, CUT, UNFOLD, colours
from tests.ui.site import EVIL, begun, call, evil_job, hostile, site, stored, watched, whole
from tests.ui.test_calls import run
from tests.watch.histories import execution, history

pytestmark = [
    pytest.mark.browser,
    pytest.mark.loopback,
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium (Debian: apt-get install chromium)"),
]
DECISION = json.dumps(
    {
        "headline": "use fp8",
        "answers": [],
        "decision": {
            "findings": [
                {
                    "message": "rag is faster on fp8",
                    "rule": "faster",
                    "kind": "supports",
                    "arm": "fp8",
                    "workload": "rag",
                }
            ]
        },
    }
)
DESKTOP, PHONE = 1_200, 390
PAGES = {
    "overview": "",
    "runs": "runs",
    "run": "runs/r-whole",
    "live": "runs/r-live",
    "decisions": "decisions",
    "comparisons": "comparisons",
    "jobs": "jobs",
    "job": "jobs/nightly",
    "missing": "runs/none",
    "pair": "runs/r1/pairs/1",
    "session": "runs/r1/pairs/1/sessions/a",
    "call": "runs/r1/calls/fp8-a-1",
}


@pytest_asyncio.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with browser(tmp_path / "profile") as opened:
        await opened.shape(width=DESKTOP, height=900)
        yield opened


@pytest_asyncio.fixture
async def base(tmp_path: Path) -> AsyncIterator[str]:
    verdict = VerdictRow(run_id="r1", at_ns=5, policy="default", decision=DECISION)
    database = stored(tmp_path, [*whole("r-whole"), *run(), verdict, *watched()])
    with begun(
        database,
        "r-live",
        *(call("r-live", number, arm=arm) for number in range(4) for arm in ("bf16", "fp8")),
    ):
        async with site(database) as client:
            yield f"http://127.0.0.1:{client.port}/db/bench/"


def keep(name: str, png: bytes) -> None:
    if folder := os.environ.get("LOOK"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(png)


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_is_drawn_everywhere_and_asks_nobody_else(
    page: Page, base: str, name: str
) -> None:
    for kind, width, scheme in (("desktop", DESKTOP, "light"), ("phone", PHONE, "dark")):
        await page.shape(width=width, height=800, mobile=width == PHONE, scheme=scheme)
        await page.open(base + PAGES[name])
        assert await page.run("document.documentElement.scrollWidth") == width
        assert await page.run(CONTRAST) == []
        png = await page.screenshot(height=1_600)
        keep(f"ui-{name}-{kind}", png)
        assert struct.unpack_from(">II", png, 16) == (width, 1_600)
        assert colours(png) > 60
    complaints = [each for each in page.complaints if "404" not in each]
    assert complaints == []
    root = base.partition("/db/")[0]
    assert [url for url in page.requests if not url.startswith((root, "data:"))] == []


@pytest.mark.parametrize("name", [name for name in PAGES if name not in {"missing", "decisions"}])
async def test_every_table_fits_a_phone(page: Page, base: str, name: str) -> None:
    await page.shape(width=PHONE, height=844, mobile=True)
    await page.open(base + PAGES[name])
    await page.run(UNFOLD)
    assert await page.run("document.querySelectorAll('.scroll').length") > 0
    assert await page.run(CUT) == []


async def test_what_runs_is_drawn_anew_while_one_looks(page: Page, tmp_path: Path) -> None:
    database = stored(tmp_path, whole("r-whole"))
    done = "document.querySelector('.live td').textContent"
    with begun(database, "r-live", call("r-live", 1)) as writer:
        async with site(database) as client:
            await page.open(f"http://127.0.0.1:{client.port}/db/bench/")
            assert await page.run(done) == "1 of 8"
            await page.run("document.querySelector('main').dataset.mark = 'the same page'")
            for number in (2, 3):
                writer.append(call("r-live", number))
            writer.flush()
            await until(page, f"{done} === '3 of 8'")
            assert await page.run("document.querySelector('main').dataset.mark") == "the same page"
            writer.close()
            # The run is over: the whole page is read anew.
            await until(
                page,
                "document.querySelector('[data-live]').textContent.includes('Nothing is running')",
            )
            assert await page.run("document.querySelector('main').dataset.mark ?? null") is None
    assert page.complaints == []


async def test_a_page_says_when_its_server_is_gone(page: Page, tmp_path: Path) -> None:
    async with site(stored(tmp_path, whole("r-whole"))) as client:
        await page.open(f"http://127.0.0.1:{client.port}/db/bench/")
    await until(
        page, "document.querySelector('[data-live]').textContent.includes('does not answer')"
    )


async def test_words_of_others_run_nothing(page: Page, tmp_path: Path) -> None:
    database = stored(tmp_path, [*hostile(), *evil_job()])
    with begun(
        database,
        "r-live",
        call("r-live", 1, arm=EVIL, session=EVIL, status="http_error", error=EVIL),
    ) as writer:
        async with site(database) as client:
            base = f"http://127.0.0.1:{client.port}/db/bench/"
            for path in ("", "runs", "runs/r-evil", "decisions", "jobs/nightly", "runs/r-live"):
                await page.open(base + path)
                assert (
                    await page.run(
                        "document.querySelectorAll('main script, main img, main b').length"
                    )
                    == 0
                )
            error = "<img src=x onerror=\"document.title='taken'\">"
            writer.append(
                call("r-live", 2, arm=EVIL, session=EVIL, status="http_error", error=error)
            )
            writer.flush()
            await until(page, "document.querySelector('.failures').textContent.includes('onerror')")
            assert await page.run("document.querySelectorAll('main img').length") == 0
            assert page.complaints == []
            # Even markup that got in would not run: the policy has no word for it.
            await page.run(
                "document.querySelector('main').insertAdjacentHTML('beforeend', '<img "
                'src=x onerror="document.title=1">\')'
            )
            await asyncio.sleep(0.3)
            assert await page.run("document.title") != "1"
    assert any("Content Security Policy" in each for each in page.complaints)


async def test_a_search_is_a_form_that_the_policy_lets_go(page: Page, base: str) -> None:
    await page.open(base + "runs")
    await page.run(
        "document.querySelector('input[name=q]').value = 'nowhere'; "
        "document.querySelector('form').requestSubmit()"
    )
    await until(page, "location.search.includes('q=nowhere')")
    await until(page, "document.querySelector('main').textContent.includes('No runs match')")


async def test_a_trend_is_read_with_the_keyboard(page: Page, base: str) -> None:
    await page.open(base + "jobs/nightly")
    await page.run("document.querySelector('svg.chart').focus()")
    await page.press("ArrowRight")
    assert await page.run("document.getElementById('tip').textContent") == "r0: the reference"
    await page.press("End")
    assert "+12.7% [" in await page.run("document.getElementById('tip').textContent")


async def test_one_gets_from_a_verdict_to_the_tokens_of_a_call_and_back(
    page: Page, base: str
) -> None:
    """By links alone: verdict, finding, pair, session, call;
    then up again by the trail, and from the report home.
    """
    await page.open(base + "runs/r1")
    assert await page.run("document.querySelector('.headline').textContent") == "use fp8"
    for text, lands in (
        ("the calls behind it", "/pairs/0"),
        ("pair 1 →", "/pairs/1"),
        ("a", "/sessions/a"),
        ("turn 1", "/calls/bf16-a-1"),
    ):
        await follow(page, text, lands)
    assert await page.run(
        "[...document.querySelectorAll('figure h4')].map(each => each.textContent)"
    ) == ["Tokens as they came", "Time between chunks"]
    await page.run("document.querySelector('svg.chart').focus()")
    await page.press("ArrowRight")
    assert "1 token after 300 ms" in await page.run("document.getElementById('tip').textContent")
    await follow(page, "the same turn on fp8", "/calls/fp8-a-1")
    for text, lands in (
        ("session a", "/sessions/a"),
        ("pair 1", "/pairs/1"),
        ("rag", "/runs/r1"),
        ("Open the report", "/runs/r1/report"),
        ("← r1", "/runs/r1"),
    ):
        await follow(page, text, lands)
    assert page.complaints == []


async def follow(page: Page, text: str, lands: str) -> None:
    """Follow the first link of that text, and wait for the page that it leads to."""
    find = (
        "[...document.querySelectorAll('a')].find(each => each.textContent.trim() === "
        f"{json.dumps(text)})"
    )
    assert await page.run(f"Boolean({find})"), text
    await page.run(f"{find}.click()")
    await until(
        page,
        f"location.pathname.endsWith({json.dumps(lands)}) && document.readyState === 'complete'",
    )


async def test_blind_is_grey(page: Page, tmp_path: Path) -> None:
    """A job whose latest run was invalid is no reason for green."""
    past = history(*[0.0] * 4)
    void = execution(5, "void", reason="requests left 6.8 ms late")
    colour = "getComputedStyle(document.querySelector('.headline')).color"
    for rows, word, is_grey in (
        (past, "Nothing got worse", False),
        ((*past, void), "could not be judged", True),
    ):
        folder = tmp_path / word.split()[0]
        folder.mkdir()
        async with site(stored(folder, [*map(execution_row, rows)])) as client:
            await page.open(f"http://127.0.0.1:{client.port}/db/bench/")
            assert word in await page.run("document.querySelector('.headline').textContent")
            await page.run(
                "document.body.insertAdjacentHTML('beforeend', '<p class=\"headline good\" "
                'id="green">x</p>\')'
            )
            green = await page.run("getComputedStyle(document.getElementById('green')).color")
            assert (await page.run(colour) != green) is is_grey
            assert (
                await page.run(
                    "parseFloat(getComputedStyle(document.querySelector('.headline')).fontSize)"
                )
                > 25
            )
            keep(f"ui-blind-{is_grey}", await page.screenshot(height=900))


async def until(page: Page, claim: str) -> None:
    async with asyncio.timeout(60):
        while True:
            with suppress(AssertionError):  # a page that is being read anew has nothing to say
                if await page.run(claim):
                    return
            await asyncio.sleep(0.1)
