"""An alarm is raised once and closed when what it told of is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.watch.alarms import Alarm, AlarmKind, ChangeRule, alarms, exit_code
from agentload.watch.history import Execution, Outcome, expendable, reference
from tests.watch.histories import DAY_NS, FACTS, execution, history

QUIET = (0.004, -0.003, 0.002, -0.006, 0.001, 0.005, -0.002, 0.003, -0.004, 0.0)


def spans(found: tuple[Alarm, ...]) -> list[tuple[AlarmKind, int, int | None]]:
    return [
        (
            each.kind,
            each.raised_ns // DAY_NS,
            None if each.closed_ns is None else each.closed_ns // DAY_NS,
        )
        for each in found
    ]


def test_a_quiet_history_raises_nothing() -> None:
    assert alarms(history(*QUIET), ChangeRule()) == ()


def test_a_regression_is_one_alarm_over_all_its_runs_and_closes_when_it_is_over() -> None:
    past = history(*QUIET, 0.08, 0.075, 0.083, 0.002, -0.001)
    assert spans(alarms(past, ChangeRule())) == [("regression", 11, 14)]
    assert [
        exit_code(past[:length][-1], alarms(past[:length], ChangeRule()))
        for length in range(11, 16)
    ] == [0, 3, 3, 3, 0]


def test_an_improvement_is_an_alarm_that_fails_nothing() -> None:
    past = history(*QUIET, -0.08)
    found = alarms(past, ChangeRule())
    assert (spans(found), exit_code(past[-1], found)) == ([("improvement", 11, None)], 0)


def test_runs_under_an_alarm_do_not_become_the_level_that_it_is_measured_against() -> None:
    past = history(*QUIET, *[0.08] * 20, 0.0)
    assert spans(alarms(past, ChangeRule())) == [("regression", 11, 31)]


def test_an_alarm_closes_by_the_runs_that_it_was_raised_against_and_not_by_those_of_last_year() -> (
    None
):
    slowly_faster = [-0.0004 * number for number in range(400)]
    past = history(*slowly_faster, *[-0.1] * 5, -0.16)
    assert spans(alarms(past, ChangeRule())) == [("regression", 401, 406)]


def test_an_alarm_that_goes_on_tells_of_all_runs_of_the_new_level() -> None:
    told = [alarms(history(*QUIET, *[0.08] * runs), ChangeRule())[0] for runs in (1, 4)]
    assert [each.raised_ns // DAY_NS for each in told] == [11, 11]
    assert [each.message.partition("), ")[2] for each in told] == [
        "the last run against the level of 11 before",
        "the level of the last 4 runs against the level of 11 before",
    ]
    assert told[1].message.startswith("prod: turn_ms +8.")


def test_an_alarm_that_two_runs_raised_counts_both_of_them_at_the_next() -> None:
    one, two, three = (alarms(history(*QUIET, *[0.035] * runs), ChangeRule()) for runs in (1, 2, 3))
    against = "against the level of 11 before"
    first = f"prod: turn_ms +3.6% (+1.4% to +5.7%), the level of the last 2 runs {against}"
    second = f"prod: turn_ms +3.6% (+1.6% to +5.5%), the level of the last 3 runs {against}"
    assert [[each.message for each in found] for found in (one, two, three)] == [
        [],
        [first],
        [second],
    ]


def test_a_difference_inside_the_noise_floor_is_none() -> None:
    past = history(*QUIET, 0.08)
    change = replace(past[-1].detail.changes[0], floor=0.1)
    last = replace(past[-1], detail=replace(past[-1].detail, changes=(change,)))
    assert alarms((*past[:-1], last), ChangeRule()) == ()


def test_the_version_that_changed_just_before_is_the_suspect() -> None:
    newer = {"prod": {**FACTS["prod"], "version": "0.11.0", "process_start_s": 9.0}}
    past = (
        *history(*QUIET),
        execution(11, change=0.08, facts=newer),
        execution(12, change=0.08, facts=newer),
    )
    found = alarms(past, ChangeRule())
    assert spans(found) == [("changed identity", 11, 12), ("regression", 11, None)]
    assert found[1].suspects == ("prod: version 0.10.0 → 0.11.0",)


@pytest.mark.parametrize(("changed", "suspects"), [(11, 1), (10, 1), (9, 1), (8, 0), (7, 0)])
def test_what_changed_more_than_two_runs_before_an_alarm_is_no_suspect(
    changed: int, suspects: int
) -> None:
    newer = {"prod": {**FACTS["prod"], "version": "0.11.0"}}
    days = enumerate((*QUIET, 0.08), start=1)
    runs = [
        execution(day, change=change, facts=newer if day >= changed else FACTS)
        for day, change in days
    ]
    (raised,) = (
        each for each in alarms((execution(0), *runs), ChangeRule()) if each.kind == "regression"
    )
    assert raised.suspects == ("prod: version 0.10.0 → 0.11.0",) * suspects


def test_a_suspect_is_found_behind_the_reference_as_well() -> None:
    newer = {"prod": {**FACTS["prod"], "version": "0.11.0"}}
    past = (execution(0), execution(1, change=0.5, facts=newer))
    assert [each.suspects for each in alarms(past, ChangeRule()) if each.kind == "regression"] == [
        ("prod: version 0.10.0 → 0.11.0",)
    ]


def test_a_dead_endpoint_is_one_alarm_until_it_answers() -> None:
    past = (
        *history(*QUIET),
        execution(11, "dead", reason="refused"),
        execution(12, "dead"),
        execution(13, change=0.0),
    )
    found = alarms(past, ChangeRule())
    assert (spans(found), found[0].message) == ([("dead endpoint", 11, 13)], "refused")


@pytest.mark.parametrize("outcome", ["failed", "missed", "void", "running"])
def test_two_executions_in_a_row_without_figures_are_a_failing_schedule(outcome: Outcome) -> None:
    past = (
        *history(0.0),
        execution(2, outcome),
        execution(3, outcome),
        execution(4, outcome),
        execution(5, change=0.0),
    )
    assert spans(alarms(past, ChangeRule())) == [("failing schedule", 3, 5)]


def test_one_failure_and_skipped_executions_are_no_failing_schedule() -> None:
    past = (
        *history(0.0),
        execution(2, "failed"),
        execution(3, "skipped"),
        execution(4, change=0.0),
        execution(5, "failed"),
    )
    assert alarms(past, ChangeRule()) == ()


def test_three_firings_slept_through_are_told_and_over_with_the_next_run() -> None:
    past = (*history(0.0), execution(4, "missed", missed=3), execution(5, change=0.0))
    assert spans(alarms(past, ChangeRule())) == [("failing schedule", 4, 5)]


@pytest.mark.parametrize(
    ("outcome", "code"), [("done", 0), ("skipped", 0), ("void", 3), ("dead", 1), ("failed", 1)]
)
def test_the_exit_code_follows_from_the_outcome(outcome: Outcome, code: int) -> None:
    assert exit_code(execution(1, outcome), ()) == code


def test_a_new_reference_closes_what_was_said_of_the_old_one() -> None:
    past = (*history(*QUIET, 0.08), replace_reference(execution(12, change=0.0), "r11"))
    assert spans(alarms(past, ChangeRule())) == [("regression", 11, 12)]


def replace_reference(each: Execution, run: str) -> Execution:
    return replace(each, detail=replace(each.detail, reference=run))


def test_the_reference_is_the_first_usable_run_unless_another_is_wanted() -> None:
    past = (execution(0, "void"), execution(1), execution(2, change=0.1), execution(3, "failed"))
    assert reference(past[:1], None) is None
    assert reference(past[:2], None) == "r1"
    assert (reference(past, None), reference(past, "r2")) == ("r0", "r2")


def test_only_calls_of_runs_beyond_those_kept_are_expendable_and_never_the_reference() -> None:
    past = history(*[0.0] * 5)
    assert expendable(past, 2, "r0") == ("r1", "r2", "r3")
    assert expendable(past, None, "r0") == ()
    assert expendable(past, 9, "r0") == ()


def test_a_fixed_reference_may_be_named_as_it_begins_and_is_kept() -> None:
    past = tuple(
        replace(each, run_id=f"20261120-{number}-ab") for number, each in enumerate(history(*QUIET))
    )
    assert reference(past, "20261120-3") == "20261120-3-ab"
    assert reference(past, "20261101-1-cd") == "20261101-1-cd"  # a run that is not the job's
    assert "20261120-3-ab" not in expendable(past, 2, reference(past, "20261120-3"))
    # Of several that begin so, none can be told from the
    # others: the comparison says that, and all of them stay.
    assert (reference(past, "20261120-"), expendable(past, 2, reference(past, "20261120-"))) == (
        "20261120-",
        (),
    )
