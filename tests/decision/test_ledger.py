"""What was asked outlasts the process that asked it."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.cli._decide import notes
from agentload.decision.ledger import Ledger, LedgerEntry, ledger
from agentload.decision.look import Criterion, Look
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.play import Deciding
from agentload.errors import UsageError
from agentload.model.rows import ProbeRow
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace, place_of
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.kinds import Decide
from agentload.study.parts import Live, TraceRef
from agentload.verdict.looks import SpeedInterval
from agentload.verdict.policy import DECISION, Setting

PAIRS = LedgerEntry(
    stage=Look(criterion="speed", amount=4),
    planned_minutes=2.0,
    minutes=3.0,
    said="fp8: turn time",
    intervals=(
        SpeedInterval(
            arm="fp8", pairs=4, value=-0.1, low=-math.inf, high=0.1, margin=0.03, is_open=True
        ),
    ),
)
ITEMS = LedgerEntry(
    stage=Look(criterion="accuracy", amount=30, lengths=(8192,)),
    planned_minutes=1.0,
    minutes=0.5,
    said="fp8: as right",
)


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = Ledger(database=tmp_path / "x.duckdb", run="r")
    made = made.write("asked", PAIRS, aside="fp8 speculates")
    made = made.write("stopped", replace(ITEMS, minutes=1.5), aside=made.aside)
    made = made.write("asked", ITEMS, aside=made.aside)
    assert ledger(tmp_path / "x.duckdb", "r") == made
    assert (made.minutes, made.aside) == (5.0, "fp8 speculates")
    assert made.looks("accuracy") == {30: 0.5}


def test_a_question_is_known_to_have_ended_whose_process_was_killed_before_its_row_was_loaded(
    tmp_path: Path,
) -> None:
    database, before = tmp_path / "x.duckdb", tmp_path / "before"
    made = Ledger(database=database, run="r").write("asked", PAIRS)
    shutil.copy(database, before)
    made = made.write("asked", ITEMS)
    shutil.copy(before, database)  # the row is in the journal alone
    assert ledger(database, "r") == made


def test_a_question_that_was_killed_took_until_the_last_row_that_it_left_behind(
    tmp_path: Path,
) -> None:
    made = Ledger(database=tmp_path / "x.duckdb", run="r").write("asked", PAIRS)
    made.write("asking", replace(ITEMS, minutes=0.0))
    (journal,) = tmp_path.rglob("decision.journal")
    later = time.time() + 120
    os.utime(journal, (later, later))
    found = ledger(tmp_path / "x.duckdb", "r")
    assert found.asked == (PAIRS,)
    assert found.minutes == pytest.approx(PAIRS.minutes + 2.0, abs=0.2)
    os.utime(journal, (later + 3600, later + 3600))
    assert ledger(tmp_path / "x.duckdb", "r") == found, "what it took is known once it was closed"
    assert ledger(tmp_path / "x.duckdb", "r").write("asked", ITEMS).asked == (PAIRS, ITEMS)


def test_a_question_that_was_killed_keeps_what_the_run_is_decided_with(tmp_path: Path) -> None:
    Ledger(database=tmp_path / "x.duckdb", run="r").write(
        "asking", ITEMS, setting=Setting(name="decide")
    )
    ledger(tmp_path / "x.duckdb", "r")
    with reading(tmp_path / "x.duckdb") as connection:
        (closed,) = tables.rows(connection, ProbeRow, run_id="r", probe=DECISION)
    assert closed.outcome == "stopped"
    assert json.loads(closed.detail or "{}")["setting"]["name"] == "decide"


def test_what_a_killed_question_took_is_among_what_is_spent() -> None:
    study = Decide(
        traces=(TraceRef(path="chat"),),
        servers=Live(endpoints="a=http://x/v1,b=http://y/v1"),
        budget_s=600.0,
    )
    ended = DecisionOutcome(
        run_id="r", document=None, asked=(PAIRS,), ending="budget", left_minutes=2.0
    )
    assert "Spent 8 of 10 min" in " ".join(notes(study, ended))


def test_the_pace_of_questions_is_what_they_took_over_their_price(tmp_path: Path) -> None:
    def looked(criterion: Criterion, planned: float, took: float) -> LedgerEntry:
        return LedgerEntry(
            stage=Look(criterion=criterion, amount=1),
            planned_minutes=planned,
            minutes=took,
            said="",
        )

    canary, speed, pilot = (
        looked("canary", 2.0, 1.0),
        looked("speed", 1.0, 9.0),
        looked("accuracy", 2.0, 5.0),
    )
    made = Ledger(database=tmp_path / "x.duckdb", run="r")
    assert made.pace("canary", "accuracy") == 1.0
    assert replace(made, asked=(canary, speed)).pace("canary", "accuracy") == 0.5
    # Planned at half the price, the pilot was priced at four minutes.
    assert replace(made, asked=(canary, speed, pilot)).pace("canary", "accuracy") == 1.0
    assert replace(made, asked=(canary,)).pace("accuracy") == 1.0


def test_a_name_that_a_run_has_is_no_name_of_a_new_decision(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    Ledger(database=database, run="r").write("asked", PAIRS)
    servers = Live(endpoints="bf16=http://127.0.0.1:1/v1,fp8=http://127.0.0.1:2/v1")
    study = Decide(traces=(TraceRef(path="chat"),), servers=servers)
    with pytest.raises(UsageError, match="there is a run of this name") as refused:
        place_of(study, db=database, run_id="r")
    assert f"--db {database} --resume r" in (refused.value.hint or "")
    place = StudyPlace(database=database, resume="r")
    assert Deciding(study=study, place=place, audience=Audience()).known.ledger.asked == (PAIRS,)
