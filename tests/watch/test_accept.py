"""An accepted run is the reference from then on; alarms
on what was before are over, and the history says why.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentload.errors import AgentloadError
from agentload.model.rows import RunRow
from agentload.store import journal
from agentload.store.loader import load
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef
from agentload.watch import ledger
from agentload.watch.alarms import Rule, alarms, exit_code
from agentload.watch.execute import accept, latest_ns
from agentload.watch.history import Execution, expendable, reference
from agentload.watch.job import Job
from agentload.watch.ledger import locked
from agentload.watch.notices import outcome_told
from agentload.watch.schedule import Schedule
from tests.watch.histories import DAY_NS, FACTS, execution, history

STUDY = Replay(traces=(TraceRef(path="rag"),), servers=Live(endpoints="prod=http://127.0.0.1:1/v1"))
JOB = Job(name="nightly", study=STUDY, schedule=Schedule(cron="0 2 * * *"))
QUIET = (0.004, -0.003, 0.002, -0.006, 0.001, 0.005, -0.002, 0.003, -0.004, 0.0)
WORSE = history(*QUIET, 0.08, 0.075)


def unheard(_: str) -> None:
    """Listen to no notice."""


def accepted(day: int, run: str) -> Execution:
    return replace(execution(day, "accepted"), run_id=run)


def held_against(each: Execution, run: str) -> Execution:
    return replace(each, detail=replace(each.detail, reference=run))


def kept(folder: Path, past: tuple[Execution, ...], *runs: str) -> Path:
    database = folder / "watch.duckdb"
    ledger.note(database, "nightly", map(ledger.execution_row, past))
    path = folder / "runs.journal"
    with journal.Writer(path) as writer:
        for run in runs:
            writer.append(
                RunRow(
                    run_id=run,
                    kind="measured",
                    name="rag",
                    created_ns=0,
                    trace_name="rag",
                    trace_hash="h",
                    model="m",
                    design="interleaved",
                    seed=0,
                    version="0",
                    command="",
                    options="{}",
                )
            )
    load([path], database)
    return database


def test_accepting_closes_the_regression_and_later_runs_are_held_against_the_accepted_one() -> None:
    past = (*WORSE, accepted(13, "r12"))
    (alarm,) = alarms(past, Rule())
    assert (alarm.kind, alarm.closed_ns) == ("regression", past[-1].ended_ns)
    assert reference(past, None) == "r12"
    later = (
        *past,
        *(held_against(execution(day, change=QUIET[day - 14]), "r12") for day in range(14, 24)),
    )
    assert [each.kind for each in alarms(later, Rule())] == ["regression"]
    assert reference(later, None) == "r12"
    worse = (*later, held_against(execution(24, change=0.08), "r12"))
    assert [(each.kind, each.is_open) for each in alarms(worse, Rule())] == [
        ("regression", False),
        ("regression", True),
    ]


def test_a_suspect_is_found_behind_an_accepted_reference() -> None:
    newer = {"prod": {**FACTS["prod"], "version": "0.11.0"}}
    past = (
        *WORSE,
        accepted(13, "r12"),
        held_against(execution(14, change=0.5, facts=newer), "r12"),
    )
    assert [each.suspects for each in alarms(past, Rule()) if each.is_open and each.metric] == [
        ("prod: version 0.10.0 → 0.11.0",)
    ]


def test_accepting_is_no_execution_and_answers_for_no_firing() -> None:
    past = (*WORSE, accepted(13, "r12"))
    assert latest_ns(past, now_ns=14 * DAY_NS) == 12 * DAY_NS
    assert exit_code(past[-1], alarms(past, Rule())) == 0
    assert expendable(past, 2, "r12") == tuple(f"r{day}" for day in range(11))
    assert (
        outcome_told(replace(past[-1], detail=replace(past[-1].detail, reason="known")))
        == "accepted as the reference: known"
    )


def test_the_latest_usable_run_is_accepted_and_written_down(tmp_path: Path) -> None:
    database = kept(tmp_path, (*WORSE, execution(13, "failed")), "r12", "r11")
    done = accept(JOB, database, run=None, note="the new driver", notice=unheard)
    assert [each.kind for each in done.closed] == ["regression"]
    stored = ledger.history(database, "nightly")
    assert (stored[-1].outcome, stored[-1].run_id, stored[-1].detail.reason) == (
        "accepted",
        "r12",
        "the new driver",
    )
    assert all(not each.is_open for each in ledger.stored_alarms(database, "nightly"))
    assert accept(JOB, database, run="r11", note=None, notice=unheard).execution.run_id == "r11"


def test_what_cannot_be_held_against_is_not_accepted(tmp_path: Path) -> None:
    database = kept(tmp_path, (*WORSE, execution(13, "failed")), "r12")
    for job, run, message in (
        (JOB, "r13", "has no usable run r13"),
        (JOB, "r11", "the calls of run r11 were deleted"),
        (replace(JOB, name="other"), None, "has no usable run yet"),
        (replace(JOB, reference="r3"), "r12", "its reference is fixed in the jobs file: r3"),
    ):
        with pytest.raises(AgentloadError, match=message):
            accept(job, database, run=run, note=None, notice=unheard)
    with locked(database, "nightly"), pytest.raises(AgentloadError, match="is being executed"):
        accept(JOB, database, run=None, note=None, notice=unheard)
    assert ledger.history(database, "nightly")[-1].outcome == "failed"
