from __future__ import annotations

from pathlib import Path

import pytest
from agentload.cli._playing import concluded, warned

from agentload.cli import eval as eval_verb
from agentload.cli import replay
from agentload.errors import InterruptError, StoreError
from agentload.live.health import Monitor
from agentload.live.wire import WireFacts
from agentload.run.inquiry import Asked
from agentload.run.play import Played

DB = Path("x.duckdb")


def played(*, clock_steps: int = 0, load_error: str | None = None) -> Played:
    facts = WireFacts(unstamped_reads=0, unstamped_sends=0, clock_steps=clock_steps, largest_step_ns=0)
    return Played(run_id="r1", health=Monitor().health(facts), was_stopped=False, load_error=load_error)


def test_what_makes_timings_void_is_said_whatever_verb_played_them(capsys: pytest.CaptureFixture[str]) -> None:
    warned(played())
    assert capsys.readouterr().err == ""
    warned(played(clock_steps=2))
    assert capsys.readouterr().err.startswith("warning: timings are void: the wall clock was stepped 2 times")


def test_a_run_that_the_database_does_not_have_is_an_error_and_a_stopped_one_stays_that(capsys: pytest.CaptureFixture[str]) -> None:
    concluded("r1", DB, load_error=None)
    with pytest.raises(StoreError, match=r"^run r1 is in its journal but not in x.duckdb: locked$") as caught:
        concluded("r1", DB, load_error="locked")
    assert caught.value.hint == "agentload runs load r1 --db x.duckdb"
    stopped = InterruptError("run r1 was stopped")
    with pytest.raises(InterruptError):
        concluded("r1", DB, load_error=None, stopped=stopped)
    assert capsys.readouterr().err == ""
    with pytest.raises(InterruptError):
        concluded("r1", DB, load_error="locked", stopped=stopped)
    assert capsys.readouterr().err == (
        "warning: run r1 is in its journal but not in x.duckdb: locked\nhint: agentload runs load r1 --db x.duckdb\n"
    )


def test_no_verb_sends_on_to_a_run_that_the_database_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreError, match="locked"):
        replay._report(played(load_error="locked"), DB, as_json=False)
    with pytest.raises(StoreError, match="locked"):
        eval_verb._report(Asked(run_id="r1", answered=3, failed=0, left=0, load_error="locked"), DB, as_json=False)
    assert capsys.readouterr().out == ""
