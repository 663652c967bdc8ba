"""Whatever is killed, at whatever moment, loses nothing that was complete a second before, has nothing twice, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kills import Verb, killed

pytestmark = [pytest.mark.loopback, pytest.mark.slow]


@pytest.mark.parametrize("verb", ["eval", "sweep", "watch", "load"])
def test_what_is_killed_loses_nothing_and_goes_on(verb: Verb, tmp_path: Path) -> None:
    count = killed(verb, 4, folder=tmp_path, seed=5)
    assert (count.lost, count.twice, count.stuck) == ([], [], [])
    assert count.answers > 40
