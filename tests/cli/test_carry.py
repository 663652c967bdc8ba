"""What is printed of a run that was carried out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentload.cli import _carry
from agentload.errors import StoreError
from agentload.evidence.summary import RunFigures
from agentload.live.health import Monitor
from agentload.live.wire import WireFacts
from agentload.report import advise
from agentload.run import door
from agentload.run.ask import Evaluated
from agentload.run.place import StudyPlace
from agentload.run.play import Played
from agentload.run.record import Stored
from agentload.study.kinds import Ask, Replay, Study
from agentload.study.parts import Live

PLACE = StudyPlace(database=Path("x.duckdb"))
SERVERS = Live(endpoints="e")
FACTS = WireFacts(unstamped_reads=0, unstamped_sends=0, clock_steps=0, largest_step_ns=0)


@pytest.mark.parametrize(
    ("study", "ended"),
    [
        (
            Replay(traces=(), servers=SERVERS),
            Played(run_id="r1", health=Monitor().health(FACTS), load_error="locked"),
        ),
        (
            Ask(servers=SERVERS, tasks=("needle",)),
            Evaluated(run_id="r1", answered=3, failed=0, left=0, load_error="locked"),
        ),
    ],
)
def test_no_verb_sends_on_to_a_run_that_the_database_does_not_have(
    study: Study, ended: Stored, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "carry_out", lambda *_: ended)
    with pytest.raises(StoreError, match="locked"):
        _carry.carry_out(study, PLACE, is_dry=False, as_json=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("lag_ms", "next_steps"),
    [
        (1.0, ["Next: agentload report x.duckdb --run r1"]),
        (14.8, ["Next: agentload doctor", "Then: agentload report x.duckdb --run r1"]),
    ],
)
def test_what_held_a_late_client_is_looked_for_before_the_report_is_read(
    lag_ms: float,
    next_steps: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    health = replace(Monitor().health(FACTS), send_lag_p99_ms=lag_ms)
    monkeypatch.setattr(
        door, "carry_out", lambda *_: Played(run_id="r1", health=health, load_error=None)
    )
    monkeypatch.setattr(_carry, "summarise", lambda *_: RunFigures(run_id="r1", arms=()))
    monkeypatch.setattr(advise, "settle", lambda *_: None)
    _carry.carry_out(Replay(traces=(), servers=SERVERS), PLACE, is_dry=False, as_json=False)
    assert capsys.readouterr().out.splitlines()[-len(next_steps) :] == next_steps
