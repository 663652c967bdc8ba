"""What starts of servers add, as a profile or the
database's own runs say; how often a run was looked at.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.evidence import StartHistory
from agentload.builtin import find
from agentload.emulator.profile import parse
from agentload.evidence.gather import gather
from agentload.evidence.plays import PlayedBlock
from agentload.evidence.starts import looks, of_history, of_profile
from agentload.evidence.view import run_view
from agentload.model.rows import CallRow, FingerprintRow, Row, RunRow
from agentload.store import tables
from agentload.study.kinds import Replay
from agentload.study.parts import Virtual
from tests.evidence.runs import S, arm, block, call, fingerprint, leg, pair_of_blocks, run, stored


def _past(
    name: str,
    *,
    starts: int,
    spread: float,
    seed: int,
    pairs_a_start: int = 2,
    turns: int = 1,
    own: bool = True,
) -> list[object]:
    """Return a run whose fp8 server was started so often,
    each start adding its own to what a call takes.

    Turns scatter by 2%, pairs by 0.2%. Servers are the run's *own*, or served others too.
    """
    rng, since = np.random.default_rng(seed), 10_000.0 * seed * own
    rows: list[object] = [
        replace(run(), kind="measured"),
        leg(),
        arm("bf16", 0),
        arm("fp8", 1),
        fingerprint("bf16", 0, process_start_s=since + 1.0),
    ]
    for start in range(starts):
        added, began = rng.normal(0.0, spread), start * 1000.0
        rows.append(fingerprint("fp8", began, process_start_s=since + 100.0 + start))
        rows.append(fingerprint("bf16", began, process_start_s=since + 5.0 + start))
        for number in range(pairs_a_start):
            pair, at = start * pairs_a_start + number, began + 1 + 400.0 * number
            for name_of_arm, log, after in (("bf16", 0.0, 0.0), ("fp8", added, 200.0)):
                rows.append(block(name_of_arm, pair, at + after))
                of_pair = log + rng.normal(0.0, 0.002)
                for turn in range(turns):
                    took = float(
                        np.exp(of_pair + (0.02 * rng.standard_normal() if turns > 1 else 0.0))
                    )
                    rows.append(
                        _lasting(
                            call(name_of_arm, pair, at + after + 1 + 4 * turn, turn=turn), took
                        )
                    )
    # every row has a run
    return [replace(row, run_id=name) for row in rows]  # type: ignore[type-var]


def _lasting(row: Row, seconds: float) -> Row:
    assert isinstance(row, CallRow)
    return replace(
        row, done_ns=row.released_ns + round(seconds * S), request_id=f"{row.request_id}-{seconds}"
    )


def test_runs_that_started_their_servers_again_tell_what_a_start_adds(tmp_path: Path) -> None:
    rows = [
        row
        for number in range(3)
        for row in _past(f"past-{number}", starts=8, spread=0.04, seed=number)
    ]
    with stored(tmp_path, rows) as connection:
        (own,) = tables.rows(connection, RunRow, run_id="r1")
        found = of_history(connection, own)
    assert found is not None
    assert found.source == "24 starts in 3 runs of this database"
    assert found.spread == pytest.approx(
        0.04 / 2**0.5, rel=0.4
    )  # of one arm, where both are started


def _history(tmp_path: Path, rows: list[object]) -> StartHistory | None:
    with stored(tmp_path, rows) as connection:
        (own,) = tables.rows(connection, RunRow, run_id="r1")
        return of_history(connection, own)


def test_decisions_with_one_start_each_tell_by_how_much_they_differ(tmp_path: Path) -> None:
    rows = [
        row
        for seed in range(12)
        for row in _past(f"past-{seed}", starts=1, spread=0.04, seed=seed, pairs_a_start=6)
    ]
    found = _history(tmp_path, rows)
    assert found is not None
    assert found.source == "12 starts in 12 runs of this database"
    assert found.spread == pytest.approx(0.04 / 2**0.5, rel=0.5)


def test_servers_that_served_all_decisions_were_started_once_and_other_loads_are_other_ratios(
    tmp_path: Path,
) -> None:
    many = [
        _past(f"past-{seed}", starts=1, spread=0.04, seed=seed, pairs_a_start=6)
        for seed in range(12)
    ]
    same = [
        _past(f"past-{seed}", starts=1, spread=0.04, seed=seed, pairs_a_start=6, own=False)
        for seed in range(12)
    ]
    assert _history(tmp_path / "same", [row for rows in same for row in rows]) is None
    others = [
        replace(row, trace_hash=row.run_id) if isinstance(row, RunRow) else row
        for rows in many
        for row in rows
    ]
    assert _history(tmp_path / "other", others) is None


def test_a_start_a_pair_tells_by_what_the_halves_of_a_pair_do_not_explain(tmp_path: Path) -> None:
    rows = _past("past", starts=40, spread=0.04, seed=3, pairs_a_start=1, turns=12)
    found = _history(tmp_path / "starts", rows)
    assert found is not None
    assert found.source == "40 starts in 1 run of this database"
    assert found.spread == pytest.approx(0.04 / 2**0.5, rel=0.35)
    quiet = _history(
        tmp_path / "quiet", _past("past", starts=40, spread=0.0, seed=3, pairs_a_start=1, turns=12)
    )
    assert quiet is not None
    assert quiet.spread < 0.004, "turns scatter by 2%, and that is taken off"
    assert (
        _history(
            tmp_path / "single", _past("past", starts=40, spread=0.04, seed=3, pairs_a_start=1)
        )
        is None
    ), "one turn has no halves"


def test_few_starts_tell_nothing_and_a_run_does_not_tell_of_itself(tmp_path: Path) -> None:
    with stored(tmp_path, _past("past", starts=4, spread=0.04, seed=1)) as connection:
        (own,) = tables.rows(connection, RunRow, run_id="r1")
        assert of_history(connection, own) is None


def test_emulated_servers_start_as_their_profile_has_it_and_as_noise_is_on() -> None:
    name = "llama-3.1-8b-h100"
    known = parse(find("profiles", name).read_text(encoding="utf-8"), name=name).arms[0]
    study = Replay(traces=(), servers=Virtual(profile=name))
    found = of_profile(study, known)
    assert found == StartHistory(
        spread=known.noise.restart_sigma, source=f"as profile {known.profile} has it"
    )
    silent = of_profile(Replay(traces=(), servers=Virtual(profile=name, noise=False)), known)
    assert silent is not None
    assert silent.spread == 0.0
    assert of_profile(study, None) is None


def _play(leg_number: int, pair: int, **changed: object) -> PlayedBlock:
    made = PlayedBlock(
        number=0, leg=leg_number, arm="a", pair=pair, started_ns=0, clock_ns=0, drain_ns=None, ended_ns=1, start_s=0.0, restart=0,
        left_out=None,
        is_void=False,
    )  # fmt: skip
    return replace(made, **changed)  # type: ignore[arg-type]  # a test names the field


@pytest.mark.parametrize(
    ("legs", "planned", "count"),
    [
        ([(1, 5)], 6, 1),
        ([(1, 3), (2, 5)], 6, 1),  # stopped, and brought to what was planned
        ([(1, 5), (2, 11)], 6, 2),
        ([(1, 5), (2, 11), (3, 23)], 6, 3),
        ([(1, 2), (2, 5)], 6, 1),  # machines exchanged half way
        ([(1, 7)], None, 1),
    ],
)
def test_a_look_is_a_part_that_went_beyond_what_had_been_planned(
    legs: list[tuple[int, int]], planned: int | None, count: int
) -> None:
    played = [_play(number, pair) for number, last in legs for pair in range(last + 1)]
    assert looks(played, planned) == count
    assert looks([*played, _play(9, 99, left_out="void")], planned) == count


def test_parts_of_one_command_are_one_look() -> None:
    played = [_play(leg, leg - 1) for leg in range(1, 13)]  # replicas: a part a pair
    assert looks(played, 6, dict.fromkeys(range(1, 7), 6) | dict.fromkeys(range(7, 13), 12)) == 2
    assert looks(played, 6) == 7, "where nobody told, each part beyond is one"


def test_the_checks_of_equal_servers_in_other_runs_are_the_history_of_a_start(
    tmp_path: Path,
) -> None:
    def told(start_s: float, ms: float, version: str) -> FingerprintRow:
        row = fingerprint("fp8", start_s, process_start_s=start_s, check_ms=ms, version=version)
        return replace(row, run_id="past")

    before = [
        replace(run(), run_id="past", kind="measured"),
        told(1.0, 100.0, "0.33.0"),
        told(2.0, 104.0, "0.33.0"),
        told(3.0, 50.0, "0.20.0"),
    ]
    own = fingerprint(
        "fp8", 5.0, process_start_s=9.0, check_ms=140.0, compile_cache="missed", version="0.33.0"
    )
    with stored(tmp_path, [*before, own, *pair_of_blocks()]) as connection:
        (arm_of_run,) = (
            each
            for each in gather(connection, run_view(connection, "r1")).arms
            if each.name == "fp8"
        )
    assert arm_of_run.checks_ms == (140.0,)
    assert sorted(arm_of_run.past_checks_ms) == [100.0, 104.0]
    assert arm_of_run.compile_cache == ("missed",)
