from __future__ import annotations

from pathlib import Path

import pytest

from agentload.cli._playing import warned
from agentload.experiment.legs.replay import Played
from agentload.live.health import Monitor
from agentload.live.wire import WireFacts


@pytest.mark.parametrize(
    ("clock_steps", "load_error", "said"),
    [
        (0, None, []),
        (2, None, ["warning: timings are void: the wall clock was stepped 2 times"]),
        (0, "locked", ["warning: the run is in its journal but not in x.duckdb: locked", "hint: agentload runs load r1 --db x.duckdb"]),
    ],
)
def test_what_is_wrong_with_a_leg_is_said_whatever_verb_played_it(
    clock_steps: int, load_error: str | None, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    facts = WireFacts(unstamped_reads=0, unstamped_sends=0, clock_steps=clock_steps, largest_step_ns=0)
    ended = Played(run_id="r1", health=Monitor().health(facts), was_stopped=False, load_error=load_error)
    assert warned(ended, Path("x.duckdb")) == (load_error is not None)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(said)
    assert all(line.startswith(each) for line, each in zip(lines, said, strict=True))
