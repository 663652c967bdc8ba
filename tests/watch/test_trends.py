"""Trends are series over a job's runs: intervals, changes
of level with suspects, and what servers said differently.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.watch import ledger
from agentload.watch.alarms import ChangeRule, alarms
from agentload.watch.history import Execution
from agentload.watch.trends import IdentityChange, Point, Trends, trends
from tests.watch.histories import DAY_NS, FACTS, execution, history

QUIET = (0.004, -0.003, 0.002, -0.006, 0.001, 0.005, -0.002, 0.003, -0.004, 0.0)
NEWER = {"prod": {**FACTS["prod"], "version": "0.11.0"}}


def seen(past: tuple[Execution, ...]) -> Trends:
    return trends("nightly", past, alarms(past, ChangeRule()))


def test_a_series_begins_with_its_reference_and_has_an_interval_a_run() -> None:
    (series,) = seen(history(0.02, -0.01)).series
    first, second, third = series.points
    assert first == Point(
        execution=0, run_id="r0", at_ns=0, value=0.0, low=None, high=None, reference="r0"
    )
    assert (second.run_id, second.at_ns, second.reference) == ("r1", DAY_NS, "r0")
    assert second.value == pytest.approx(math.expm1(0.02))
    assert (second.low, second.high) == pytest.approx(
        (math.expm1(0.02 - 0.00196), math.expm1(0.02 + 0.00196))
    )
    assert third.value == pytest.approx(math.expm1(-0.01))
    assert series.name == "prod: turn_ms"


def test_only_usable_runs_are_points_and_say_which_execution_they_were() -> None:
    past = (
        *history(0.01),
        execution(2, "failed"),
        execution(3, "void", change=0.5),
        execution(4, change=0.0),
    )
    (series,) = seen(past).series
    assert [point.execution for point in series.points] == [0, 1, 4]


def test_a_new_reference_lies_where_it_was_itself() -> None:
    last = execution(3, change=0.01)
    past = (*history(0.0, 0.08), replace(last, detail=replace(last.detail, reference="r2")))
    (series,) = seen(past).series
    assert [point.value for point in series.points] == pytest.approx(
        [0.0, 0.0, math.expm1(0.08), math.expm1(0.09)]
    )
    assert series.points[-1].reference == "r2"


def test_a_change_of_level_names_the_version_that_changed_just_before() -> None:
    past = (
        *history(*QUIET),
        *(execution(day, change=0.08 + QUIET[day - 11], facts=NEWER) for day in range(11, 21)),
    )
    found = seen(past)
    (series,) = found.series
    (level,) = series.change_points
    assert (level.point, level.run_id, level.suspects) == (
        11,
        "r11",
        ("prod: version 0.10.0 → 0.11.0",),
    )
    assert level.change == pytest.approx(math.expm1(0.08), abs=0.002)
    assert found.identities == (
        IdentityChange(
            run_id="r11", at_ns=11 * DAY_NS, differences=("prod: version 0.10.0 → 0.11.0",)
        ),
    )
    assert [each.kind for each in series.alarms] == ["regression"]
    assert [each.kind for each in found.alarms] == ["changed identity", "regression"]


def test_what_changed_one_run_off_is_still_a_suspect() -> None:
    past = (
        *history(*QUIET, 0.002),
        *(execution(day, change=0.08 + QUIET[day - 12], facts=NEWER) for day in range(12, 22)),
    )
    early = replace(past[11], detail=replace(past[11].detail, facts=NEWER))
    (series,) = seen((*past[:11], early, *past[12:])).series
    assert [level.suspects for level in series.change_points] == [
        ("prod: version 0.10.0 → 0.11.0",)
    ]


def test_a_job_that_was_never_executed_has_empty_trends() -> None:
    found = Trends(job="nightly", executions=(), series=(), identities=(), alarms=())
    assert trends("nightly", (), ()) == found


def test_trends_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    database = tmp_path / "watch.duckdb"
    past = history(*QUIET, 0.08)
    found = alarms(past, ChangeRule())
    ledger.note(database, "nightly", map(ledger.execution_row, past))
    ledger.note(database, "nightly", ledger.alarm_rows("nightly", found, (), at_ns=0))
    assert ledger.bring_in(database, "nightly") is None
    read = ledger.history(database, "nightly"), ledger.stored_alarms(database, "nightly")
    assert trends("nightly", *read) == trends("nightly", past, found)
