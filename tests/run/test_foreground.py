"""How a run that was carried out ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.errors import InterruptError, StoreError
from agentload.layout.cost import cost
from agentload.layout.plan import plan
from agentload.live.health import Monitor
from agentload.live.wire import WireFacts
from agentload.run import foreground
from agentload.run.foreground import Audience, concluded
from agentload.run.play import Played
from agentload.run.prepared import Place, Prepared
from tests.run.playing import playing, trace

PLACE = Place(database=Path("x.duckdb"))


def test_a_run_that_the_database_does_not_have_is_an_error_and_a_stopped_one_stays_that() -> None:
    said: list[str] = []
    audience = Audience(notice=said.append)
    concluded("r1", PLACE, audience, load_error=None)
    with pytest.raises(StoreError, match=r"^run r1 is in its journal but not in x.duckdb: locked$") as caught:
        concluded("r1", PLACE, audience, load_error="locked")
    assert caught.value.hint == "agentload runs load r1 --db x.duckdb"
    stopped = InterruptError("run r1 was stopped")
    with pytest.raises(InterruptError):
        concluded("r1", PLACE, audience, load_error=None, stopped=stopped)
    assert said == []
    with pytest.raises(InterruptError):
        concluded("r1", PLACE, audience, load_error="locked", stopped=stopped)
    assert said == [
        "warning: run r1 is in its journal but not in x.duckdb: locked",
        "hint: agentload runs load r1 --db x.duckdb",
    ]


@pytest.mark.parametrize("clock_steps", [0, 2])
def test_what_makes_timings_void_is_said(monkeypatch: pytest.MonkeyPatch, *, clock_steps: int) -> None:
    facts = WireFacts(unstamped_reads=0, unstamped_sends=0, clock_steps=clock_steps, largest_step_ns=0)
    ended = Played(run_id="r1", health=Monitor().health(facts), was_stopped=False)
    monkeypatch.setattr(foreground, "played", lambda *_: ended)
    made = playing(plan(trace(), ["a"], run="r1", pairs=1), (), Path("x.duckdb"))
    said: list[str] = []
    foreground.measure(Prepared(playing=made, cost=cost(made.plan)), Place(), Audience(notice=said.append))
    warned = " timings are void: the wall clock was stepped 2 times"
    assert [line.partition(":")[2][: len(warned)] for line in said] == ([warned] if clock_steps else [])
