"""Whatever is killed, at whatever moment, loses nothing that
was complete a second before, has nothing twice, and goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.kills import Stored, Verb, completed, killed, twice_of

pytestmark = pytest.mark.loopback


def test_a_command_that_does_not_end_is_stuck_and_says_so() -> None:
    done = completed([sys.executable, "-c", "import time; time.sleep(60)"], within_s=0.5)
    assert done.returncode != 0
    assert done.stderr.endswith("not at its end after 0 s")


def test_a_call_is_twice_only_in_one_run() -> None:
    carried = [Stored("first", "c1"), Stored("second", "c1")]
    assert twice_of(carried) == []
    assert twice_of([*carried, Stored("second", "c1")]) == ["c1"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["eval", "sweep", "decide", "watch", "load"])
def test_what_is_killed_loses_nothing_and_goes_on(verb: Verb, tmp_path: Path) -> None:
    count = killed(verb, 4, folder=tmp_path, seed=5)
    assert (count.lost, count.twice, count.stuck) == ([], [], [])
    assert count.answers > 40


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["replay", "workers"])
def test_a_run_that_is_killed_twenty_times_has_every_pair_whole_and_every_call_once(
    verb: Verb, tmp_path: Path
) -> None:
    count = killed(verb, 20, folder=tmp_path, seed=20, a_run=20)
    assert (count.lost, count.twice, count.stuck) == ([], [], [])
    assert count.answers > 48
