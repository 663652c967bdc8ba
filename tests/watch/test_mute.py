"""A kind of alarm that is muted until a day stays open, and disturbs nobody until then."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentload.cli.watch.executions import mute, status
from agentload.errors import GateError, UsageError
from agentload.watch import ledger
from agentload.watch.alarms import ChangeRule, alarms, exit_code, loud_alarms
from agentload.watch.history import Detail, Execution, executions, reference
from agentload.watch.notices import junit
from agentload.watch.words import alarm_words, outcome_words
from tests.ui.site import site
from tests.watch.histories import DAY_NS, execution, history

QUIET = (0.004, -0.003, 0.002, -0.006, 0.001, 0.005, -0.002, 0.003, -0.004, 0.0)
WORSE = history(*QUIET, 0.08)  # the regression is of day 11


def muted(day: int, until_day: float, kind: str = "regression") -> Execution:
    detail = Detail(kind=kind, until_ns=round(until_day * DAY_NS), reason="fix on Monday")
    return replace(
        execution(day, "muted"),
        run_id=None,
        started_ns=day * DAY_NS + 1,
        ended_ns=day * DAY_NS + 1,
        detail=detail,
    )


@pytest.mark.parametrize(
    ("kind", "until_day", "code"),
    [
        ("regression", 20, 0),
        ("changed identity", 20, 3),
        ("regression", 12, 3),
        ("regression", 3, 3),
    ],
)
def test_a_muted_alarm_fails_no_check_until_its_day(kind: str, until_day: int, code: int) -> None:
    past = (*WORSE, muted(11, until_day, kind), execution(12, change=0.081))
    (alarm,) = alarms(past, ChangeRule())
    assert alarm.is_open
    assert exit_code(past[-1], (alarm,)) == code
    assert bool(loud_alarms((alarm,), past[-1].started_ns)) is (code == 3)


def test_an_alarm_that_is_raised_while_its_kind_is_muted_is_muted_too() -> None:
    past = (*WORSE[:-1], muted(10, 20), WORSE[-1])
    (alarm,) = alarms(past, ChangeRule())
    assert (alarm.muted_ns, exit_code(past[-1], (alarm,))) == (20 * DAY_NS, 0)
    assert alarms((*WORSE[:-1], muted(9, 10), WORSE[-1]), ChangeRule())[0].muted_ns is None


def test_a_day_that_has_passed_ends_a_mute() -> None:
    past = (*WORSE, muted(11, 20), muted(12, 1), execution(13, change=0.08))
    assert exit_code(past[-1], alarms(past, ChangeRule())) == 3


def test_a_mute_is_no_execution_and_changes_no_reference() -> None:
    past = (*WORSE, muted(11, 20))
    assert executions(past) == WORSE
    assert reference(past, None) == "r0"
    assert exit_code(past[-1], alarms(past, ChangeRule())) == 0
    assert outcome_words(past[-1]) == "regression muted until 1970-01-21 00:00: fix on Monday"


def test_notices_say_what_is_muted_and_fail_nothing() -> None:
    past = (*WORSE, muted(11, 20), execution(12, change=0.08))
    found = alarms(past, ChangeRule())
    assert alarm_words(found[0]).endswith("; muted until 1970-01-21 00:00")
    assert 'failures="0"' in junit("nightly", past[-1], found)


def test_what_is_muted_is_stored_and_read_again(tmp_path: Path) -> None:
    (alarm,) = found = alarms((*WORSE, muted(11, 20)), ChangeRule())
    (row,) = ledger.alarm_rows("nightly", found, (), at_ns=0)
    assert ledger.alarm(row) == alarm
    assert ledger.alarm_rows("nightly", found, found, at_ns=0) == ()


def _day(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.fixture
def jobs_file(tmp_path: Path) -> Path:
    file = tmp_path / "watch.yaml"
    file.write_text(
        "jobs: {nightly: {traces: [rag], endpoints: 'prod=http://127.0.0.1:9/v1', "
        "schedule: {cron: '0 2 * * *'}}}\n"
    )
    ledger.note(tmp_path / "watch.duckdb", "nightly", map(ledger.execution_row, WORSE))
    return file


@pytest.mark.slow
async def test_the_verb_mutes_and_the_page_says_so_in_grey(
    jobs_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mute("nightly", "regression", until=_day("2199-12-01"), file=jobs_file, note="known")
    assert "regression: prod: turn latency +8.3%" in (told := capsys.readouterr().out)
    assert "regression muted until 2199-12-01 00:00: known" in told
    status(file=jobs_file)  # raises nothing
    async with site(jobs_file.with_name("watch.duckdb")) as client:
        for page in ("", "jobs", "jobs/nightly"):
            text = await (await client.get(f"/db/watch/{page}")).text()
            assert "<strong>muted until 2199-12-01</strong>" in text, page
            assert "reason bad" not in text, page
            assert "headline good" not in text, page
        assert "regression until 2199-12-01" in text  # in its history
    with pytest.raises(UsageError, match="--until 2020-01-01 has passed") as refused:
        mute("nightly", "regression", until=_day("2020-01-01"), file=jobs_file)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert refused.value.hint == f"--until {today} ends a mute at once"
    mute("nightly", "regression", until=_day(today), file=jobs_file)
    with pytest.raises(GateError, match="1 open alarm"):
        status(file=jobs_file)


def test_a_kind_that_is_none_is_refused_with_those_that_are(jobs_file: Path) -> None:
    with pytest.raises(UsageError, match="no kind of alarm 'slow'") as refused:
        mute("nightly", "slow", until=_day("2199-12-01"), file=jobs_file)
    assert (
        refused.value.hint
        == "any of: regression, improvement, dead-endpoint, changed-identity, failing-schedule"
    )
