"""The pages over a socket: who is answered, what a
browser may do with the answer, and what a page believes.
"""

import asyncio
import re
import threading
from pathlib import Path

import pytest

from advisor.policy import Policy
from agentload.model.rows import Row
from agentload.report.advise import advise
from agentload.report.document import document
from agentload.report.formats.html import html
from agentload.report.parts import Document
from agentload.store.database import writing
from agentload.ui import app, source
from agentload.ui.guard import POLICY
from agentload.verdict.policy import Setting
from agentload.watch.alarms import ChangeRule, alarms
from agentload.watch.ledger import alarm_rows, execution_row
from tests.report import sample
from tests.report.conftest import simulated
from tests.ui.site import (
    EVIL,
    begun,
    block,
    call,
    empty,
    evil_job,
    hostile,
    leg_row,
    run_row,
    site,
    stored,
    watched,
    whole,
)
from tests.watch.histories import FACTS, execution, history

pytestmark = pytest.mark.loopback
PAGES = ("", "runs", "runs/r1", "decisions", "comparisons", "jobs", "jobs/nightly", "live")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("app"), [*whole("r1"), *watched()])


async def test_every_page_is_there_and_bears_the_policy(database: Path) -> None:
    async with site(database) as client:
        for page in PAGES:
            answer = await client.get(f"/db/bench/{page}")
            text = await answer.text()
            assert (page, answer.status, answer.content_type) == (page, 200, "text/html")
            assert answer.headers["Content-Security-Policy"] == POLICY
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            # What the policy would refuse must not be needed:
            # no script, style or handler in the page itself.
            assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son[a-z]+=", text), page
            assert set(re.findall(r'(?:src|href)="(?:https?:)?//[^"]*', text)) == set()


async def test_the_first_address_leads_to_the_overview(database: Path) -> None:
    async with site(database) as client:
        answer = await client.get("/", allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (302, "/db/bench/")
        assert "One thing got worse" in await (await client.get("/")).text()


async def test_a_server_that_changed_is_not_told_as_worse(tmp_path: Path) -> None:
    newer = {"prod": {**FACTS["prod"], "version": "0.11.0"}}
    past = (*history(0.001, -0.001), execution(3, change=0.0, facts=newer))
    rows: list[Row] = [
        *map(execution_row, past),
        *alarm_rows("nightly", alarms(past, ChangeRule()), (), at_ns=0),
    ]
    async with site(stored(tmp_path, rows)) as client:
        for page in ("", "jobs/nightly"):
            told = await (await client.get(f"/db/bench/{page}")).text()
            assert (
                "Nothing got worse, but a server changed" in told,
                "version 0.10.0 → 0.11.0" in told,
            ) == (True, True), page
        assert "1 changed" in await (await client.get("/db/bench/jobs")).text()


async def test_only_names_of_this_machine_are_answered(database: Path) -> None:
    async with site(database, names=("bench.example.org",)) as client:
        for host, status in (
            ("localhost:1234", 200),
            ("127.0.0.1", 200),
            ("[::1]:80", 200),
            ("bench.example.org", 200),
            ("evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("localhost@evil.example", 421),
            ("", 421),
        ):
            for path in ("/db/bench/runs", "/assets/style.css", "/nothing"):
                answer = await client.get(path, headers={"Host": host})
                assert (host, path, answer.status) == (
                    host,
                    path,
                    404 if path == "/nothing" and status == 200 else status,
                )
                assert status == 200 or "rag" not in await answer.text()


async def test_pages_of_others_cannot_make_it_work(database: Path) -> None:
    async with site(database) as client:
        answer = await client.get(
            "/db/bench/runs/r1/report",
            headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"},
        )
        assert (answer.status, "rag" in await answer.text()) == (403, False)


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"]
)
async def test_nothing_can_be_changed(database: Path, method: str) -> None:
    async with site(database) as client:
        answer = await client.request(method, "/db/bench/runs")
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


async def test_a_head_is_a_page_without_its_body(database: Path) -> None:
    async with site(database) as client:
        answer = await client.head("/db/bench/runs")
        assert (answer.status, await answer.read()) == (200, b"")


async def test_words_of_traces_and_servers_stay_words(tmp_path: Path) -> None:
    database = stored(tmp_path, [*hostile(), *evil_job()])
    live = call(
        "r-live",
        2,
        arm=EVIL,
        workload=EVIL,
        session=EVIL,
        status="http_error",
        error=f"{EVIL} <img src=x onerror=alert(1)>",
    )
    with begun(database, "r-live", call("r-live", 1, arm=EVIL), live):
        async with site(database) as client:
            for page in (
                "",
                "runs",
                "runs/r-evil",
                "runs/r-live",
                "runs/r-live/live",
                "live",
                "decisions",
                "comparisons",
                "jobs",
                "jobs/nightly",
            ):
                text = await (await client.get(f"/db/bench/{page}")).text()
                assert not re.search(
                    r"<script(?! src=\"/assets/)|<img|<b>|href=\"javascript", text
                ), page
                if page not in {"comparisons", "live"}:
                    assert "&lt;script&gt;alert(" in text, page
            query = "<script>alert(1)</script>\"' onfocus=alert(1) autofocus='"
            text = await (
                await client.get("/db/bench/runs", params={"q": query, "kind": query, "job": query})
            ).text()
            assert "<script>alert" not in text
            assert "\"' onfocus" not in text


async def test_the_page_of_a_run_says_which_calls_are_in_its_figures(tmp_path: Path) -> None:
    invalid = block("r2", round_=0, arm="a", void="late")
    rows: tuple[Row, ...] = (run_row("r1"), leg_row("r1"), call("r1", 1), run_row("r2"))
    database = stored(tmp_path, (*rows, leg_row("r2"), call("r2", 1), invalid))
    async with site(database) as client:
        pages = [await (await client.get(f"/db/bench/runs/{name}")).text() for name in ("r1", "r2")]
    said = "Calls of the 1 invalid block are in all of these figures and in none of the report’s."
    assert [said in page for page in pages] == [False, True]
    assert all("priming left out" in page for page in pages)


async def test_no_page_shows_a_password_of_a_url(tmp_path: Path) -> None:
    told = "http://me:secret@h:8000/v1: refused"
    failed = call("r1", 1, status="refused", error=told)
    rows: tuple[Row, ...] = (
        run_row("r1", command=f"agentload replay rag --endpoints prod={told}"),
        leg_row("r1"),
        failed,
    )
    database = stored(tmp_path, rows)
    with begun(database, "r2", call("r2", 1, status="refused", error=told)):
        async with site(database) as client:
            for page in ("runs/r1", "runs/r2"):
                text = await (await client.get(f"/db/bench/{page}")).text()
                assert ("secret" in text, "http://***@h:8000/v1: refused" in text) == (
                    False,
                    True,
                ), page


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/db/other/",
        "/db/bench/runs/none",
        "/db/bench/runs/none/report",
        "/db/bench/jobs/none",
        "/db/bench/compare/none/r1",
        "/db/bench/compare",
        "/assets/ui.css",
        "/assets/..%2F..%2Fpyproject.toml",
        "/assets/../../pyproject.toml",
        "/db/bench/runs/..%2F..%2F..%2Fetc%2Fpasswd",
        "/db/bench/runs/..%2F..%2F..%2Fetc%2Fpasswd/live/x",
        "/db/%2e%2e/runs",
    ],
)
async def test_what_is_not_there_is_told_with_a_way_on(database: Path, path: str) -> None:
    async with site(database) as client:
        answer = await client.get(path)
        text = await answer.text()
        assert (answer.status, answer.headers["Content-Security-Policy"]) == (404, POLICY)
        assert '<a href="/db/bench/">Overview</a>' in text


async def test_a_run_outside_the_journal_folder_is_not_followed(tmp_path: Path) -> None:
    database = empty(tmp_path)
    with begun(tmp_path / "elsewhere.duckdb", "r1", call("r1", 1)):
        async with site(database) as client:
            answer = await client.get("/db/bench/runs/..%2F..%2Felsewhere.journal%2Fr1/live")
            assert "Playing" not in await answer.text()


async def test_a_run_is_told_before_there_is_a_database(tmp_path: Path) -> None:
    database = tmp_path / "bench.duckdb"
    async with site(database) as client:
        assert "Nothing is stored yet" in await (await client.get("/db/bench/")).text()
        answer = await client.get("/db/bench/runs")
        assert (answer.status, "no such database" in await answer.text()) == (503, True)
        with begun(
            database,
            "r1",
            call("r1", 1),
            call("r1", 2, status="http_error", error="busy", first_ns=None),
        ):
            first = await (await client.get("/db/bench/")).text()
            whole_ = await (await client.get("/db/bench/runs/r1")).text()
            part = await client.get("/db/bench/runs/r1/live")
            assert "12%</strong> done" in first
            assert "2 of 8" in whole_
            assert 'data-live="/db/bench/runs/r1/live"' in whole_
            assert 'http-equiv="refresh"' in whole_  # without scripts it reloads itself
            assert "1 http_error" in await part.text()
            running = part.headers["X-Agentload-Stamp"]
        over = await client.get("/db/bench/runs/r1/live")
        assert "It has ended" in await over.text()
        assert over.headers["X-Agentload-Stamp"] != running
        assert (
            "agentload runs load r1 --db bench.duckdb"
            in await (await client.get("/db/bench/")).text()
        )
    assert not database.exists()


async def test_a_killed_run_is_not_told_as_running(tmp_path: Path) -> None:
    async with site(stored(tmp_path, [run_row("r1"), leg_row("r1", "running")])) as client:
        assert "killed" in await (await client.get("/db/bench/runs")).text()
        assert "killed" in await (await client.get("/db/bench/runs/r1")).text()


async def test_a_database_of_another_version_is_told_with_what_to_do(tmp_path: Path) -> None:
    database = empty(tmp_path)
    with writing(database) as connection:
        connection.execute("UPDATE schema_version SET version = 0")
    async with site(database) as client:
        answer = await client.get("/db/bench/")
        text = await answer.text()
        assert answer.status == 503
        assert "database version 0" in text
        assert "runs load" in text


async def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "bench.duckdb").write_bytes(b"not a database" * 1000)
    async with site(tmp_path / "bench.duckdb") as client:
        answer = await client.get("/db/bench/runs")
        assert (answer.status, "not a database" in await answer.text()) == (503, True)


async def test_a_busy_database_is_asked_again_by_the_page_itself(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "PATIENCE_S", 0.02)
    async with site(database) as client:
        with writing(database):
            answer = await client.get("/db/bench/runs")
            text = await answer.text()
        assert (answer.status, 'content="5"' in text, "has been writing it" in text) == (
            503,
            True,
            True,
        )
        assert (await client.get("/db/bench/runs")).status == 200


async def test_a_page_that_breaks_says_so_and_nothing_of_its_inside(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setitem(app.PAGES, "jobs", broken)
    async with site(database) as client:
        answer = await client.get("/db/bench/jobs")
        text = await answer.text()
    assert (answer.status, "a bug in agentload" in text, "a secret" in text) == (500, True, False)
    assert "a secret" in capsys.readouterr().err


async def test_a_report_is_made_when_it_is_asked_for_and_kept(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def advise(path: Path, run: str, **_: object) -> Document:
        made.append((path, run))
        return document(sample.decision(), sample.evidence(), sample.facts(), policy=Policy())

    monkeypatch.setattr("agentload.report.advise.advise", advise)
    async with site(database) as client:
        first, again = [
            await client.get(f"/db/bench/runs/r1/report{query}") for query in ("", "?x=1")
        ]
        text = await first.text()
        assert (first.status, "<h2>Verdicts</h2>" in text, await again.text() == text) == (
            200,
            True,
            True,
        )
        assert made == [(database, "r1")]
        # Its own style and script, by their hashes, and nothing else.
        policy = first.headers["Content-Security-Policy"]
        assert (
            "'sha256-" in policy,
            "frame-ancestors 'none'" in policy,
            "unsafe" in policy,
            "'self'" in policy,
        ) == (True, True, False, False)


@pytest.mark.slow
async def test_pages_do_not_wait_for_reports_that_wait_for_each_other(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, is_making, made = threading.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def advise(path: Path, run: str, **_: object) -> Document:
        made.append((path, run))
        loop.call_soon_threadsafe(is_making.set)
        go_on.wait(20)
        return document(sample.decision(), sample.evidence(), sample.facts(), policy=Policy())

    monkeypatch.setattr("agentload.report.advise.advise", advise)
    async with site(database) as client:
        # More than there are threads for pages.
        reports = [asyncio.create_task(client.get("/db/bench/runs/r1/report")) for _ in range(40)]
        await is_making.wait()
        async with asyncio.timeout(60):
            page = await client.get("/db/bench/runs?q=rag")
        go_on.set()
        assert (page.status, {(await each).status for each in reports}, made) == (
            200,
            {200},
            [(database, "r1")],
        )


@pytest.mark.slow
async def test_a_report_says_what_the_file_says(tmp_path: Path) -> None:
    database = tmp_path / "bench.duckdb"
    run = simulated(database)
    other = simulated(database, "--no-noise")
    async with site(database) as client:
        answer = await client.get(f"/db/bench/runs/{run[:8]}/report")
        told = re.sub(r'<nav aria-label="Pages">.*?</nav>\n?', "", await answer.text())
        assert told.replace("<body>\n", "<body>", 1) == html(
            advise(database, run, setting=Setting())
        ).replace("<body>\n", "<body>", 1)
        chosen = await client.get("/db/bench/compare", params={"before": run, "after": other})
        assert (chosen.status, chosen.url.path) == (200, f"/db/bench/compare/{run}/{other}")
        assert "full report" in await chosen.text()
        whole_report = await client.get(f"/db/bench/compare/{run}/{other}/report")
        assert "The runs were made one after the other" in await whole_report.text()


async def test_runs_that_cannot_be_compared_are_told_with_the_reason(database: Path) -> None:
    async with site(database) as client:
        same = await client.get("/db/bench/compare", params={"before": "r1", "after": "r1"})
        assert (same.status, "choose two runs" in await same.text()) == (404, True)


async def test_several_databases_lead_to_each_other(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    async with site(stored(one, whole("r1")), empty(other)) as client:
        assert 'href="/db/bench-2/"' in await (await client.get("/db/bench/")).text()
        missing = await client.get("/db/bench-2/runs/r1")
        assert missing.status == 404
        # Its links lead on in the same database.
        assert 'class="brand" href="/db/bench-2/"' in await missing.text()
        both = await (await client.get("/")).text()
        assert (
            "1 run in 2 databases" in both,
            'href="/db/bench/runs/r1"' in both,
            "0 runs" in both,
        ) == (True, True, True)


async def test_what_got_worse_anywhere_is_said_over_all_databases(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "other", "new")]
    for folder in folders:
        folder.mkdir()
    async with site(
        stored(folders[0], watched()), stored(folders[1], whole("r1")), folders[2] / "later.duckdb"
    ) as client:
        text = await (await client.get("/")).text()
        assert '<p class="headline bad">One thing got worse</p>' in text
        assert (
            'href="/db/bench/jobs/nightly"' in text or 'href="/db/bench/"' in text,
            "no such database" in text,
        ) == (True, True)


async def test_a_page_that_is_open_before_the_first_run_follows_it(tmp_path: Path) -> None:
    database = tmp_path / "bench.duckdb"
    async with site(database) as client:
        assert "Nothing is stored yet" in await (await client.get("/db/bench/")).text()
        with begun(database, "r-first", call("r-first", 1)):
            text = await (await client.get("/db/bench/")).text()
            assert (
                "The first run is on" in text,
                "Nothing is stored yet" in text,
                "r-first" in text,
            ) == (True, False, True)
        stored(tmp_path, whole("r-first"))
        assert "r-first" in await (await client.get("/db/bench/runs")).text()


async def test_two_runs_are_compared_by_checking_them_in_a_list(tmp_path: Path) -> None:
    async with site(stored(tmp_path, [*whole("r1"), *whole("r2")])) as client:
        text = await (await client.get("/db/bench/runs")).text()
        assert [run in text for run in ('name="run" value="r1"', 'name="run" value="r2"')] == [
            True,
            True,
        ]
        # A form sends them in the order of the list, which
        # has the latest first; the verdict is about that one.
        answer = await client.get("/db/bench/compare?run=r2&run=r1", allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (302, "/db/bench/compare/r1/r2")
        for wrong in ("run=r1", "run=r1&run=r2&run=r3", "run=r1&run=r1"):
            assert (
                await client.get(f"/db/bench/compare?{wrong}", allow_redirects=False)
            ).status == 404, wrong
