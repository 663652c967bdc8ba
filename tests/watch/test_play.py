"""What a replay came to, as the watch tells it."""

from __future__ import annotations

import pytest

from agentload.live.health import Monitor
from agentload.live.wire import WireFacts
from agentload.run.play import Played
from agentload.watch.play import outcome

FACTS = WireFacts(unstamped_reads=0, unstamped_sends=0, clock_steps=0, largest_step_ns=0)


@pytest.mark.parametrize(
    ("died", "was_stopped", "stopped", "told"),
    [
        ((), False, None, None),
        (("prod@aa", "prod"), True, None, "prod stopped answering"),
        (("prod",), True, "stopped by SIGTERM", None),
        (("prod",), False, None, None),  # it came back
    ],
)
def test_a_server_is_dead_where_the_replay_ended_by_it(
    *, died: tuple[str, ...], was_stopped: bool, stopped: str | None, told: str | None
) -> None:
    played = Played(run_id="r1", health=Monitor().health(FACTS), was_stopped=was_stopped, died=died)
    found = outcome(played, arms=("prod",), stopped=stopped, usd=None)
    assert (found.died, found.stopped) == (told, stopped)
