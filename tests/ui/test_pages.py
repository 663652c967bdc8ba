import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from agentload import __version__
from agentload.model.rows import BlockRow, CallRow, VerdictRow
from agentload.report.charts.scale import fit
from agentload.store.database import reading
from agentload.store.runs import RunLine
from agentload.ui import pages
from agentload.ui.pages.jobs import job, jobs
from agentload.ui.pages.listed import ListedRun, comparisons, decisions, overview, runs
from agentload.ui.pages.run import CallTimes, FailedCalls, StoredVerdict, run
from agentload.ui.source import NotFoundError, Query
from agentload.watch.alarms import ChangeRule, alarms
from agentload.watch.ledger import alarm_rows, execution_row
from tests.store.rows import S
from tests.ui.site import call, empty, leg_row, run_row, site, stored, watched, whole
from tests.watch.histories import history

Connection = duckdb.DuckDBPyConnection


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    many = [
        row
        for number in range(7)
        for row in (
            run_row(f"n{number}", number=number, name=f"code {number}", kind="emulated"),
            leg_row(f"n{number}"),
        )
    ]
    rows = [
        *whole("r1", name="Rag Today"),
        *many,
        run_row("dead", name="killed"),
        leg_row("dead", "running"),
        call(
            "dead",
            1,
            status="http_error",
            error="nobody",
            first_ns=None,
            last_ns=None,
            output_tokens=None,
        ),
        call("n0", 1),
        call("n0", 2, prime=True, first_ns=9 * S, last_ns=9 * S, done_ns=9 * S, output_tokens=1),
        VerdictRow(
            run_id="r1",
            at_ns=5 * S,
            policy="default",
            decision='{"headline":"use FP8","decision":{"choice":{"verdict":"use"}}}',
        ),
        VerdictRow(
            run_id="r1",
            at_ns=6 * S,
            policy="ours.yaml",
            decision='{"headline":"stay on BF16","decision":{"choice":{"verdict":"avoid"}}}',
        ),
        *watched(),
    ]
    with reading(stored(tmp_path_factory.mktemp("pages"), rows)) as opened:
        yield opened


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with reading(empty(tmp_path_factory.mktemp("nothing"))) as opened:
        yield opened


def asked(page: str = "runs", name: str = "", **words: str) -> Query:
    return Query(page=page, name=name, words=tuple(words.items()))


def test_runs_are_listed_with_the_latest_first(connection: Connection) -> None:
    found = runs(connection, asked())
    assert (found.total, found.page, found.pages, found.first) == (9, 1, 1, 1)
    assert [line.run.run_id for line in found.lines] == [
        "dead",
        *(f"n{number}" for number in reversed(range(7))),
        "r1",
    ]
    told = RunLine(
        run_id="r1",
        kind="measured",
        name="Rag Today",
        created_ns=1_790_000_000 * S,
        model="m",
        arms=("bf16", "fp8"),
        status="done",
        blocks=2,
        void_blocks=0,
        calls=8,
        ok=8,
    )
    assert found.lines[-1] == ListedRun(
        run=told, job="nightly", headline="stay on BF16", version=None, answers=0
    )
    killed = found.lines[0].run
    assert (killed.calls, killed.ok, killed.status) == (1, 0, "running")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({"q": "today"}, ["r1"]),
        ({"q": "RAG today fp8"}, ["r1"]),
        ({"q": "today tomorrow"}, []),
        ({"q": "%"}, []),
        ({"q": "'; DROP TABLE runs; --"}, []),
        ({"q": "code 3"}, ["n3"]),
        ({"kind": "measured"}, ["dead", "r1"]),
        ({"status": "running"}, ["dead"]),
        ({"kind": "emulated", "q": "code", "status": "running"}, []),
    ],
)
def test_runs_are_searched_and_filtered(
    connection: Connection, words: dict[str, str], found: list[str]
) -> None:
    assert [line.run.run_id for line in runs(connection, asked(**words)).lines] == found


@pytest.mark.parametrize(
    ("page", "first", "shown", "at"),
    [
        ("1", 1, 4, 1),
        ("3", 9, 1, 3),
        ("99", 9, 1, 3),
        ("0", 1, 4, 1),
        ("-2", 1, 4, 1),
        ("²", 1, 4, 1),
        ("x", 1, 4, 1),
    ],
)
def test_runs_come_in_pages_and_one_behind_the_end_is_the_last(
    connection: Connection, page: str, first: int, shown: int, at: int
) -> None:
    found = runs(connection, Query(page="runs", words=(("page", page),)), size=4)
    assert (found.first, len(found.lines), found.page, found.pages, found.total) == (
        first,
        shown,
        at,
        3,
        9,
    )


def test_a_run_is_told_with_its_latest_decision(connection: Connection) -> None:
    found = run(connection, asked("run", "r1"))
    assert found.verdict == StoredVerdict(
        at_ns=6 * S,
        policy="ours.yaml",
        version=None,
        headline="stay on BF16",
        tone="bad",
        why="",
        do_now=(),
        answers=(),
    )
    timing = CallTimes(
        workload="rag",
        arm="bf16",
        calls=4,
        ok=4,
        ttft_ms=(200.0, 200.0),
        turn_ms=(1200.0, 1200.0),
        token_ms=(10.0, 10.0),
        cached_share=None,
    )
    assert found.timings[0] == timing
    assert [chart.title for chart in found.charts] == ["Output tokens per second, block by block"]


def test_no_template_adds_anything_up() -> None:
    """What a page counts is a value of its data, which tests read without a browser."""
    folder = Path(pages.__file__).parents[1] / "templates"
    adding = [
        each.name for each in folder.glob("*.j2") if re.search(r"\|\s*sum\b", each.read_text())
    ]
    assert adding == []


def test_calls_that_only_fill_a_cache_are_no_figures(connection: Connection) -> None:
    (timing,) = run(connection, asked("run", "n0")).timings
    assert (timing.calls, timing.ttft_ms) == (1, (200.0, 200.0))


def test_a_run_whose_calls_all_failed_has_no_figures(connection: Connection) -> None:
    found = run(connection, asked("run", "dead"))
    assert found.timings == (
        CallTimes(
            workload="rag",
            arm="bf16",
            calls=1,
            ok=0,
            ttft_ms=None,
            turn_ms=None,
            token_ms=None,
            cached_share=None,
        ),
    )
    assert found.failures == (
        FailedCalls(arm="bf16", status="http_error", count=1, error="nobody"),
    )
    assert (found.verdict, found.charts) == (None, ())


def test_a_run_that_is_not_there_is_told_with_what_is(connection: Connection) -> None:
    with pytest.raises(NotFoundError, match="no run 'zz'") as told:
        run(connection, asked("run", "zz"))
    assert told.value.hint is not None
    assert "dead" in told.value.hint
    with pytest.raises(NotFoundError, match="no run 'r3'") as gone:  # of the job's history
        run(connection, asked("run", "r3"))
    assert (
        gone.value.hint
        == "job nightly no longer keeps the calls of this run; see the job's page for its result"
    )


def test_decisions_are_told_with_the_latest_first(connection: Connection) -> None:
    found = decisions(connection, asked("decisions"))
    assert [(line.headline, line.tone, line.policy) for line in found.lines] == [
        ("stay on BF16", "bad", "ours.yaml"),
        ("use FP8", "good", "default"),
    ]


def test_a_job_is_told_with_its_trend_and_its_alarm(connection: Connection) -> None:
    found = job(connection, asked("job", "nightly"))
    (trend,) = found.trends
    assert (found.line.worse, found.line.better, len(found.executions)) == (1, 0, 20)
    assert [each.alarm.kind for each in found.alarms] == ["regression"]
    assert [level.point for level in trend.levels] == [17]
    assert [(band.slot, band.low) for band in trend.chart.bands] == [(1, 18.0)]
    assert len(trend.chart.rules) == 1
    points = trend.chart.series[0]
    assert points.ys[-1] == pytest.approx(12.7, abs=0.1)
    assert points.lows[-1] < points.ys[-1] < points.highs[-1]
    with pytest.raises(NotFoundError, match="no job 'x'"):
        job(connection, asked("job", "x"))


def test_the_overview_says_first_what_got_worse(connection: Connection) -> None:
    found = overview(connection, Query(page="overview", journalled=("r1", "r-lost", "dead")))
    assert found.unloaded == ("r-lost",)
    assert [(each.job, each.alarm.kind, each.chart is not None) for each in found.worse] == [
        ("nightly", "regression", True)
    ]
    assert (found.better, len(found.decisions.lines), len(found.runs.lines), found.runs.total) == (
        (),
        2,
        6,
        9,
    )
    assert [(line.job, line.series) for line in found.jobs] == [("nightly", "prod: turn_ms")]


def test_comparisons_are_those_of_jobs_and_runs_of_one_plan(connection: Connection) -> None:
    found = comparisons(connection, asked("comparisons"))
    assert len(found.executions) == 19
    assert [(group.kind, group.count, group.runs[0]) for group in found.groups] == [
        ("measured", 2, "dead"),
        ("emulated", 7, "n6"),
    ]


@pytest.mark.parametrize("read", [overview, runs, decisions, comparisons, jobs])
def test_an_empty_database_has_empty_pages(
    nothing: Connection, read: Callable[[Connection, Query], Any]
) -> None:
    assert not any(
        value for name, value in asdict(read(nothing, asked())).items() if isinstance(value, tuple)
    ), read


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({"model": "other"}, ["r2"]),
        ({"arm": "fp8"}, ["r1"]),
        ({"kind": "simulated"}, ["r2"]),
        ({"since": "2026-09-22"}, ["r2"]),
        ({"until": "2026-09-21"}, ["r1"]),
        ({"since": "2026-09-21", "until": "2026-09-22"}, ["r2", "r1"]),
        ({"since": "soon"}, []),
    ],
)
def test_runs_are_narrowed_by_model_arm_kind_and_day(
    tmp_path: Path, words: dict[str, str], found: list[str]
) -> None:
    with reading(
        stored(
            tmp_path,
            [*whole("r1"), run_row("r2", number=1, kind="simulated", model="other"), leg_row("r2")],
        )
    ) as connection:
        listed = runs(connection, Query(page="runs", words=tuple(words.items())))
    assert [each.run.run_id for each in listed.lines] == found
    assert dict(listed.facets) == {
        "arm": (("bf16", 1), ("fp8", 1)),
        "kind": (("measured", 1), ("simulated", 1)),
        "model": (("m", 1), ("other", 1)),
        "status": (("done", 2),),
    }


async def test_a_decision_of_another_version_is_said_to_be_made_again(tmp_path: Path) -> None:
    def decided(run: str, version: str | None, at_s: int) -> VerdictRow:
        headline = None if version is None else "use FP8"
        return VerdictRow(
            run_id=run,
            at_ns=at_s * S,
            policy="default",
            decision='{"headline":"use FP8"}',
            headline=headline,
            version=version,
        )

    rows = [
        *whole("now"),
        *whole("old"),
        *whole("older"),
        decided("now", "0.0.1", 1),
        decided("now", __version__, 2),
    ]
    database = stored(tmp_path, [*rows, decided("old", "0.0.1", 3), decided("older", None, 4)])
    async with site(database) as client:
        for page in ("", "runs", "decisions"):
            told = await (await client.get(f"/db/bench/{page}")).text()
            assert told.count("Use FP8") == (7 if page == "" else 3), (
                page
            )  # each run, and the heading
            assert told.count("decides again") == (4 if page == "" else 2), page
            assert "by agentload 0.0.1; its report decides again" in told
            assert "by an older agentload; its report decides again" in told
        assert "decides again" in await (await client.get("/db/bench/runs/old")).text()
        assert "decides again" not in await (await client.get("/db/bench/runs/now")).text()


def test_a_trend_reaches_no_further_down_than_its_runs_and_leaves_room_for_its_label(
    tmp_path: Path,
) -> None:
    """Half of the picture showed that nothing got faster, and the label lay on the marks."""
    with reading(stored(tmp_path, watched())) as connection:
        (shown,) = job(connection, asked("job", "nightly")).trends
    (plot, highest) = (shown.chart, max(shown.chart.series[0].highs))
    assert plot.y.low == -3.5
    assert plot.y.high == pytest.approx(1.3 * highest)


def test_a_trend_of_two_runs_claims_no_more_than_they_show(tmp_path: Path) -> None:
    with reading(stored(tmp_path, map(execution_row, history(0.012)))) as connection:
        (trend,) = job(connection, asked("job", "nightly")).trends
    plot = trend.chart
    assert [series.label for series in plot.series] == ["prod: turn_ms"]  # no mean
    assert (plot.y.low, plot.y.high) == (-3.5, 3.5)
    assert fit(plot.x, plot.series[0].xs, start=0.0, end=100.0, ends="values").ticks() == (1.0, 2.0)
    assert "means" not in plot.caption
    assert "alarm" not in plot.caption


def test_a_stored_decision_says_why_and_what_to_do_next(tmp_path: Path) -> None:
    step = '{"text": "Decide on them", "command": "agentload decide rag", "cost": "45 min"}'
    decision = f'{{"headline": "use FP8", "why": "It is faster.", "do_now": [{step}]}}'
    row = VerdictRow(run_id="r1", at_ns=S, policy="default", decision=decision)
    with reading(stored(tmp_path, [*whole("r1"), row])) as opened:
        found = run(opened, asked("run", "r1")).verdict
    assert found is not None
    assert found.why == "It is faster."
    assert [(each.command, each.cost) for each in found.do_now] == [
        ("agentload decide rag", "45 min")
    ]


def test_no_mean_is_drawn_across_the_run_that_raised_an_alarm(tmp_path: Path) -> None:
    past = history(0.0, 0.001, -0.001, 0.12, 0.13)
    raised = alarm_rows("nightly", alarms(past, ChangeRule()), (), at_ns=0)
    database = stored(tmp_path, [*map(execution_row, past), *raised])
    with reading(database) as connection:
        page = job(connection, asked("job", "nightly"))
    (trend, *_) = page.trends
    lines = [each for each in trend.chart.series if each.label == "mean"]
    (shaded,) = trend.chart.bands
    assert [(each.xs, round(each.ys[0], 1)) for each in lines] == [((0.5, 4.5), 0.0)]
    assert shaded.low == 5.0


def test_a_run_whose_sessions_were_whole_has_its_tasks(tmp_path: Path) -> None:
    calls = [
        replace(row, turns_left=0, status="ok" if row.session != "s3" else "reset")
        for row in whole("r-ok")
        if isinstance(row, CallRow)
    ]
    others = [row for row in whole("r-ok") if not isinstance(row, CallRow)]
    rows = [
        *(replace(row, salt="x") if isinstance(row, BlockRow) else row for row in others),
        *calls,
    ]
    with reading(stored(tmp_path, rows)) as connection:
        page = run(connection, asked("run", "r-ok"))
    for each in page.tasks:
        own = [row for row in calls if row.arm == each.arm]
        assert each.tasks == len(own)
        assert each.tasks_done == sum(row.status == "ok" for row in own)
        assert each.task_ms == pytest.approx(1200.0)
    assert [each.arm for each in page.tasks] == ["bf16", "fp8"]
