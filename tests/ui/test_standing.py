"""The sentence over jobs: red where something got
worse, green only where every job was judged lately.
"""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.model.commands import Status
from agentload.model.rows import LegRow
from agentload.store.database import reading
from agentload.ui.pages.jobs import JobLine, jobs, standing
from agentload.ui.source import Query
from agentload.watch.alarms import ChangeRule, alarms
from agentload.watch.history import Execution
from agentload.watch.ledger import alarm_rows, execution_row
from agentload.watch.schedule import Schedule
from tests.ui.site import call, empty, site, stored, whole
from tests.watch.histories import DAY_NS, execution, history

DAILY = Schedule(cron="0 0 * * *", time_zone="UTC")
NOW_NS = 3 * DAY_NS + DAY_NS // 2


def line(
    *past: Execution,
    worse: int = 0,
    changed: int = 0,
    muted: int = 0,
    schedule: Schedule | None = DAILY,
) -> JobLine:
    return JobLine(
        job="nightly",
        schedule_text="",
        schedule=schedule,
        executions=len(past),
        past=past,
        series=None,
        changes=(),
        worse=worse,
        changed=changed,
        failing=0,
        better=0,
        muted=muted,
    )


JUDGED = line(*history(0.0, 0.0, 0.0))
VOID = line(*history(0.0, 0.0), execution(3, "void", reason="requests left 6.8 ms late"))


@pytest.mark.parametrize(
    ("lines", "tone", "text", "why"),
    [
        ([JUDGED], "good", "Nothing got worse", []),
        (
            [VOID],
            "plain",
            "nightly could not be judged",
            ["the latest run is invalid: requests left 6.8 ms late"],
        ),
        (
            [JUDGED, VOID],
            "plain",
            "1 of 2 jobs could not be judged · nothing got worse in the other",
            None,
        ),
        (
            [JUDGED, JUDGED, VOID],
            "plain",
            "1 of 3 jobs could not be judged · nothing got worse in the others",
            None,
        ),
        ([line()], "plain", "nightly could not be judged", ["has never run"]),
        (
            [line(*history(0.0))],
            "plain",
            "nightly could not be judged",
            ["is overdue: 2 firings without a run"],
        ),
        (
            [line(execution(3))],
            "plain",
            "nightly could not be judged",
            ["has only its first run, which later ones are compared with"],
        ),
        (
            [line(*history(0.0, 0.0), execution(3, "running"))],
            "plain",
            "nightly could not be judged",
            ["the latest run was killed"],
        ),
        ([line(*history(0.0, 0.0, 0.0), execution(3, "skipped"))], "good", "Nothing got worse", []),
        ([line(*history(0.0, 0.0, 0.0), worse=2), VOID], "bad", "2 things got worse", None),
        (
            [line(*history(0.0, 0.0, 0.0), changed=1)],
            "plain",
            "Nothing got worse, but a server changed",
            [],
        ),
        (
            [line(*history(0.0, 0.0, 0.0), muted=1)],
            "plain",
            "Nothing else got worse: 1 alarm muted",
            [],
        ),
        ([line(*history(0.0), schedule=None)], "good", "Nothing got worse", []),
    ],
)
def test_jobs_are_green_only_where_each_was_judged_lately(
    lines: list[JobLine], tone: str, text: str, why: list[str] | None
) -> None:
    found = standing(lines, frozenset(), NOW_NS)
    assert (found.tone, found.text) == (tone, text)
    assert why is None or [each for _, each in found.blind] == why


def test_a_job_that_is_running_now_is_judged_by_the_run_before() -> None:
    assert (
        standing([line(*history(0.0, 0.0, 0.0), execution(4, "running"))], {"r4"}, NOW_NS).tone
        == "good"
    )


async def test_a_job_of_the_jobs_file_that_never_ran_is_named(tmp_path: Path) -> None:
    database = empty(tmp_path)
    (tmp_path / "watch.yaml").write_text(
        "database: bench.duckdb\njobs: {hourly: {traces: [rag], endpoints: "
        "'p=http://127.0.0.1:9/v1', schedule: {cron: '0 * * * *'}}}\n"
    )
    async with site(database) as client:
        for page in ("", "jobs", "jobs/hourly"):
            told = await (await client.get(f"/db/bench/{page}")).text()
            assert "has never run" in told, page
            assert "headline good" not in told, page


LATE = "requests left 14.8 ms late (p99; limit 5)"


def unjudged(folder: Path) -> Path:
    """Return a database of a job whose two runs were both invalid."""
    past = tuple(execution(day, "void", reason=LATE) for day in (1, 2))
    raised = alarms(past, ChangeRule())
    assert [each.kind for each in raised] == ["failing schedule"]
    runs = [*whole("r1"), *whole("r2"), *map(execution_row, past)]
    return stored(folder, [*runs, *alarm_rows("nightly", raised, (), at_ns=0)])


def test_a_schedule_without_usable_figures_is_not_worse_but_could_not_be_judged(
    tmp_path: Path,
) -> None:
    with reading(unjudged(tmp_path)) as connection:
        (found,) = jobs(connection, Query(page="jobs")).lines
    assert (found.worse, found.failing) == (0, 1)
    said = standing([found], frozenset(), NOW_NS)
    assert (said.tone, said.text) == ("plain", "nightly could not be judged")
    assert said.blind == (("nightly", f"the latest run is invalid: {LATE}; 2 of 2 runs ended so"),)


async def test_no_page_calls_an_invalid_run_worse_or_fine(tmp_path: Path) -> None:
    async with site(unjudged(tmp_path)) as client:
        for page in ("", "jobs", "jobs/nightly", "runs"):
            told = await (await client.get(f"/db/bench/{page}")).text()
            assert "got worse<" not in told, page
            assert 'class="state bad"' not in told, page
            assert '<span class="state good">done' not in told, page
            assert "invalid" in told, page


async def test_the_table_of_jobs_calls_no_alarms_what_could_not_be_judged(tmp_path: Path) -> None:
    past = (*history(0.0, 0.0), execution(3, "void", reason=LATE))
    async with site(stored(tmp_path, [*map(execution_row, past)])) as client:
        told = await (await client.get("/db/bench/jobs")).text()
    cell = told.partition('<td data-label="alarms">')[2].partition("</td>")[0]
    assert cell == (
        '<span class="state muted">could not be judged</span>'
        f'<span class="under">the latest run is invalid: {LATE}</span>'
    )


STATE = re.compile(r'<span class="state (\w+)">([^<]*)</span>')


@pytest.mark.parametrize(
    ("health", "status", "state"),
    [
        (
            {"void": LATE, "send_lag_p99_ms": 14.8, "loop_stall_max_ms": 1.0},
            "ok",
            ("doubtful", "invalid"),
        ),
        ({}, "http_error", ("doubtful", "done, 1 call failed")),
        ({}, "cancelled", ("good", "done")),
        ({}, "stopped", ("good", "done")),
    ],
)
async def test_every_page_says_alike_whether_a_run_counts_and_what_failed_in_it(
    tmp_path: Path, health: dict[str, object], status: Status, state: tuple[str, str]
) -> None:
    """What a window cut short by plan has not failed; a run that left late has no green mark."""
    rows = [
        replace(each, health=json.dumps(health)) if isinstance(each, LegRow) else each
        for each in whole("r1")
    ]
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    database = stored(folders[0], [*rows, call("r1", 9, status=status)])
    async with site(database, empty(folders[1])) as client:
        links = re.findall(r'href="(/db/[^"/]*)/runs/r1"', await (await client.get("/")).text())
        for page in ("/", f"{links[0]}/runs", f"{links[0]}/runs/r1"):
            told = await (await client.get(page)).text()
            assert STATE.findall(told)[0] == state, page
            assert ("× cancelled" in told, "× stopped" in told) == (False, False)
