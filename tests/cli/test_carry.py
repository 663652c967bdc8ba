"""What is printed of a run that was carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.cli import _carry
from agentload.errors import StoreError
from agentload.live.health import Monitor
from agentload.live.wire import WireFacts
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
