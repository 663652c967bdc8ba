"""`watch history` draws each figure, names where its level
changed and who is suspected, and lists outcomes and alarms.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentload.cli.watch.executions import accept, status
from agentload.cli.watch.executions import history as show
from agentload.errors import AgentloadError
from agentload.watch import ledger
from tests.cli.watch.jobs import watch_file
from tests.watch.histories import FACTS, execution, history

QUIET = (0.004, -0.003, 0.002, -0.006, 0.001, 0.005, -0.002, 0.003, -0.004, 0.0)
NEWER = {"prod": {**FACTS["prod"], "version": "0.11.0"}}


NAMED = "; changed just before: prod: version 0.10.0 → 0.11.0"


def told(folder: Path) -> Path:
    slower = (
        execution(day, change=0.08 + QUIET[day - 11], facts=NEWER, usd=0.25)
        for day in range(11, 21)
    )
    database = folder / "watch.duckdb"
    ledger.note(
        database,
        "nightly",
        map(
            ledger.execution_row,
            (*history(*QUIET), *slower, execution(21, "failed", reason="no disk")),
        ),
    )
    assert ledger.bring_in(database, "nightly") is None
    return watch_file(folder)


def test_a_slowdown_is_drawn_and_told_with_its_suspect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show("nightly", file=told(tmp_path), last=2)
    assert capsys.readouterr().out.splitlines() == [
        "prod: turn latency  ▁▁▁▁▁▁▁▁▁▁▁███▇██████  -0.6% to +8.9% against the first reference run",
        "  prod: turn latency, mean +8.3% since 1970-01-12 00:00, run r11 (p = 0.002)" + NAMED,
        "started (UTC)     took   USD  prod: turn latency  run  outcome",
        "1970-01-21 00:00  60 s  0.25  +8.3%               r20  done, against r0",
        "1970-01-22 00:00  60 s     –  –                   r21  failed: no disk",
        (
            "1970-01-12 00:01, closed 1970-01-13 00:01: changed identity: prod: version 0.10.0 "
            "→ 0.11.0"
        ),
        (
            "1970-01-12 00:01, open: regression: prod: turn latency +8.4% (+6.9% to +9.9%), "
            "the level of the last 10 runs against the level of 11 before"
        )
        + NAMED,
    ]


def test_for_machines_it_is_the_whole_of_a_jobs_trends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show("nightly", file=told(tmp_path), json=True)
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"job", "executions", "series", "identities", "alarms"}
    (series,) = found["series"]
    assert (series["metric"], len(series["points"]), series["points"][0]["low"]) == (
        "turn_ms",
        21,
        None,
    )
    assert [each["run_id"] for each in series["change_points"]] == ["r11"]


def test_what_cannot_be_accepted_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(AgentloadError) as caught:
        accept("nightly", file=told(tmp_path), run="r21")
    assert caught.value.hint == "agentload watch history nightly"


def test_an_execution_is_invalid_in_the_list_of_jobs_as_it_is_in_their_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.note(
        tmp_path / "watch.duckdb",
        "nightly",
        [ledger.execution_row(execution(1, "void", reason="late"))],
    )
    assert ledger.bring_in(tmp_path / "watch.duckdb", "nightly") is None
    status(file=watch_file(tmp_path))
    assert " invalid " in capsys.readouterr().out
