"""Whatever is killed, at whatever moment, loses nothing that
was complete a second before, has nothing twice, and goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentload.model.rows import ProbeRow
from agentload.store.journal import Writer
from agentload.store.places import journal_folder
from agentload.verdict.policy import DECISION
from tools.kills import Stored, Verb, asked_again, completed, killed, twice_of

pytestmark = pytest.mark.loopback


def test_a_command_that_does_not_end_is_stuck_and_says_so() -> None:
    done = completed([sys.executable, "-c", "import time; time.sleep(60)"], within_s=0.5)
    assert done.returncode != 0
    assert done.stderr.endswith("not at its end after 0 s")


def test_a_call_is_twice_only_in_one_run() -> None:
    carried = [Stored("first", "c1"), Stored("second", "c1")]
    assert twice_of(carried) == []
    assert twice_of([*carried, Stored("second", "c1")]) == ["c1"]


def _ended(number: int) -> ProbeRow:
    return ProbeRow(
        run_id="r1",
        arm="fp8",
        probe="decision",
        at_ns=number,
        settings="{}",
        outcome="asked",
        detail=f'{{"stage": {{"criterion": "speed", "amount": {number}}}}}',
    )


def test_a_question_that_came_to_its_end_twice_is_asked_again(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with Writer(journal_folder(database, "r1") / f"{DECISION}.journal") as writer:
        for number in (1, 2, 1):
            writer.append(_ended(number))
    (again,) = asked_again(database)
    assert again.startswith("asked 2 times: r1: ")
    assert "'amount': 1" in again


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
