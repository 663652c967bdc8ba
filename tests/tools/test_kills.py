"""Whatever is killed, at whatever moment, loses nothing that
was complete a second before, has nothing twice, and goes on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.kills import Verb, killed

pytestmark = [pytest.mark.loopback, pytest.mark.slow]


@pytest.mark.parametrize("verb", ["eval", "sweep", "decide", "watch", "load"])
def test_what_is_killed_loses_nothing_and_goes_on(verb: Verb, tmp_path: Path) -> None:
    count = killed(verb, 4, folder=tmp_path, seed=5)
    assert (count.lost, count.twice, count.stuck) == ([], [], [])
    assert count.answers > 40


@pytest.mark.parametrize("verb", ["replay", "workers"])
def test_a_run_that_is_killed_twenty_times_has_every_pair_whole_and_every_call_once(
    verb: Verb, tmp_path: Path
) -> None:
    count = killed(verb, 20, folder=tmp_path, seed=20, a_run=20)
    assert (count.lost, count.twice, count.stuck) == ([], [], [])
    assert count.answers > 48
