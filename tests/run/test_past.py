"""What a resumed run takes over from the legs before it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.errors import PlanError
from agentload.layout.plan import plan, with_starts
from agentload.model.plan import Budget, ClosedLoop, Load, OpenLoop, Plan, WaitScale
from agentload.model.rows import BlockRow, CallRow, FingerprintRow, LegRow, Row, RunRow
from agentload.model.trace import Header, Session, Trace, Turn
from agentload.run.past import Past, blocks_of, check_resumed, lasted_s, needless, past
from agentload.run.record import run_row
from agentload.store import journal
from agentload.store.places import journal_folder, journals, worker_journals
from tests.layout.test_swap import swapped

SESSIONS = tuple(Session(session=f"s{i}", workload="chat", start_s=float(i), turns=(Turn(add=(), output=4),)) for i in range(8))
TRACE = Trace(header=Header(name="t", seed=1), sessions=SESSIONS)
LOAD = Load(arrivals=ClosedLoop(sessions=2), waits={"user": WaitScale(cap_s=2.0)})


def planned(arms: Sequence[str] = ("a", "b"), *, pairs: int = 2, load: Load = LOAD, seed: int = 0, run: str = "r") -> Plan:
    return plan(TRACE, arms, run=run, pairs=pairs, load=load, seed=seed)


def described(made: Plan) -> RunRow:
    return run_row(made, kind="measured", name="t", trace_hash="h", model="m", created_ns=1, command="agentload replay t", settings={})


def leg(number: int) -> LegRow:
    return LegRow(run_id="r", leg=number, host="here", boot_id=None, monotonic_ns=0, wall_ns=0)


def block(number: int, pair: int, arm: str, salt: str, void: str | None = None) -> BlockRow:
    return BlockRow(
        run_id="r", leg=number, pair=pair, block=pair, arm=arm, round=0, started_ns=0, drain_ns=None, ended_ns=1, salt=salt, void=void
    )


def call(number: int, pair: int, arm: str, name: str, *, at_ns: int = 0) -> CallRow:
    return CallRow(
        run_id="r",
        leg=number,
        arm=arm,
        block=pair,
        pair=pair,
        workload="chat",
        session="s0",
        turn=0,
        attempt=0,
        retry_of=None,
        request_id=name,
        due_ns=0,
        released_ns=at_ns,
        context_tokens=1,
        asked_tokens=1,
        status="ok",
    )


def kept(tmp_path: Path, *legs: Sequence[Row]) -> Past:
    database = tmp_path / "x.duckdb"
    folder = journal_folder(database, "r")
    folder.mkdir(parents=True)
    for number, rows in enumerate(legs, start=1):
        with journal.Writer(folder / f"leg{number:03}.journal") as writer:
            for row in (leg(number), *rows):
                writer.append(row)
    return past(database, planned())


def test_a_pair_that_was_void_twice_in_one_leg_is_not_played_under_a_salt_that_it_had(tmp_path: Path) -> None:
    before = kept(
        tmp_path,
        [
            *(block(1, 0, "a", salt) for salt in ("r/0", "r/0~1")),
            *(block(1, 0, "b", salt, void="b changed") for salt in ("r/0", "r/0~1")),
            call(1, 0, "a", "of-the-third-play", at_ns=2),
        ],
    )
    assert (before.done, before.lost) == (frozenset(), {0: 3})


def test_a_play_that_was_killed_before_its_end_counts_and_one_that_never_began_does_not(tmp_path: Path) -> None:
    before = kept(tmp_path, [call(1, 0, "a", "one"), block(1, 0, "a", "r/0"), call(1, 1, "b", "two")], [call(2, 0, "a", "three")])
    assert (before.legs, before.done, before.lost) == (2, frozenset(), {0: 2, 1: 1})


def test_a_leg_whose_calls_lie_in_journals_of_workers_is_read_as_one(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    path = journal_folder(database, "r") / "leg001.journal"
    path.parent.mkdir(parents=True)
    rows: dict[Path, list[Row]] = {path: [leg(1), block(1, 0, "a", "r/0"), block(1, 0, "b", "r/0"), block(1, 1, "a", "r/1")]}
    for worker, own in enumerate(worker_journals(path, 2)):
        rows[own] = [call(1, pair, arm, f"{pair}{arm}{worker}") for pair in (0, 1) for arm in "ab"]
    for each, written in rows.items():
        with journal.Writer(each) as writer:
            for row in written:
                writer.append(row)
    before = past(database, planned())
    assert (before.legs, before.done, before.lost) == (1, frozenset({0}), {1: 2})
    assert [each.name for each in journals(database, "r")] == ["leg001-1.journal", "leg001-2.journal", "leg001.journal"]


def test_halves_of_two_plays_are_no_whole_pair(tmp_path: Path) -> None:
    before = kept(
        tmp_path, [block(1, 0, "a", "r/0"), block(1, 0, "b", "r/0", void="died")], [block(2, 0, "b", "r/0~1"), block(2, 1, "b", "r/1")]
    )
    assert (before.done, before.lost) == (frozenset(), {0: 2, 1: 1})


def test_a_pair_that_is_whole_under_one_salt_is_done(tmp_path: Path) -> None:
    before = kept(tmp_path, [block(1, 0, "a", "r/0"), block(1, 0, "b", "r/0")])
    assert (before.done, before.lost) == (frozenset({0}), {})


def test_pages_that_a_power_cut_lost_cost_the_pair_that_was_being_played_and_no_other(tmp_path: Path) -> None:
    kept(tmp_path, [block(1, 0, "a", "r/0"), block(1, 0, "b", "r/0")])
    database = tmp_path / "x.duckdb"
    (path,) = journals(database, "r")
    synced = path.stat().st_size
    with journal.Writer(path) as writer:
        for number in range(3):
            writer.append(call(1, 1, "a", f"call {number}", at_ns=2))
    whole = bytearray(path.read_bytes())
    whole[synced + 8 : synced + 40] = bytes(32)  # a page that the disk never had, before one that it has
    path.write_bytes(whole)
    assert (past(database, planned()).done, past(database, planned()).lost) == (frozenset({0}), {1: 1})


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (planned(pairs=1), "run r began with other pairs"),
        (planned(load=replace(LOAD, arrivals=OpenLoop(rate_per_s=1.0))), "run r began with other load"),
        (planned(load=replace(LOAD, waits={})), "run r began with other load"),
        (replace(planned(pairs=3, load=Load()), cache="warm"), "run r began with other load and cache"),
        (planned(("a", "c")), "run r began with the arms a, b, not a, c"),
        (planned(seed=1), "run r began with seed 0, not 1"),
        (replace(planned(), design="parallel"), "run r began with design interleaved, not parallel"),
        (planned(("b", "a")), "run r began with the arms a, b, not b, a"),
        (planned(load=replace(LOAD, retries=1)), "run r began with other load"),
        (replace(planned(), cache="warm"), "run r began with other cache"),
    ],
)
def test_a_run_goes_on_only_as_it_began(tmp_path: Path, now: Plan, says: str) -> None:
    assert refused(tmp_path, began := planned(), began) is None
    assert refused(tmp_path, began, now) == (says, "resume with what it began with: agentload replay t")


def test_a_run_goes_on_with_its_own_trace_and_where_its_journals_are(tmp_path: Path) -> None:
    database, began = tmp_path / "x.duckdb", planned()
    with pytest.raises(PlanError, match="run r began with trace h, not other"):
        check_resumed(Past(lost={}, run=described(began), arms=began.arms), began, trace_hash="other", database=database)
    with pytest.raises(PlanError, match="no journal of run r beside"):
        check_resumed(past(database, began), began, trace_hash="h", database=database)


def test_a_run_tells_into_how_many_blocks_it_cut_its_trace(tmp_path: Path) -> None:
    assert blocks_of(tmp_path / "x.duckdb", "r") is None
    kept(tmp_path, [replace(described(planned()), options='{"pairs": 5}')])
    assert blocks_of(tmp_path / "x.duckdb", "r") == 5


@pytest.mark.parametrize(
    ("warmup", "done", "left_out"),
    [
        (False, {0}, {0}),
        (False, {0, 1}, {0, 1}),
        (True, {-1, 0}, {0}),  # servers are warmed up again for the pairs that are left
        (True, {-1, 0, 1}, {-1, 0, 1}),
        (True, {0, 1}, {0, 1}),
    ],
)
def test_a_leg_leaves_out_what_is_done_and_warms_up_only_for_something(*, warmup: bool, done: set[int], left_out: set[int]) -> None:
    made = plan(TRACE, ("a", "b"), run="r", pairs=2, warmup=warmup)
    assert needless((play for round_ in made.rounds for play in round_.plays), frozenset(done)) == left_out


def test_what_each_server_said_last_and_first_is_taken_over(tmp_path: Path) -> None:
    def said(number: int, facts: dict[str, str]) -> FingerprintRow:
        return FingerprintRow(run_id="r", leg=number, arm="a", at_ns=number, moment="before", round=0, facts=json.dumps(facts))

    before = kept(tmp_path, [said(1, {"version": "1"}), said(1, {"version": "2"})], [said(2, {"version": "3"})])
    assert before.facts == {"a": {"version": "3"}}
    assert before.began_as["a"]["version"] == "1"


def test_a_run_tells_how_long_its_blocks_may_last_for_those_who_go_on_with_it(tmp_path: Path) -> None:
    assert lasted_s(tmp_path / "x.duckdb", "r") is None
    kept(tmp_path, [described(planned(load=replace(LOAD, budget=Budget(seconds=4800.0))))])
    assert lasted_s(tmp_path / "x.duckdb", "r") == 4800.0


def refused(folder: Path, began: Plan, now: Plan) -> tuple[str, str | None] | None:
    """Return what is said of a run that goes on with another plan."""
    before = Past(lost={}, run=described(began), arms=began.arms)
    try:
        check_resumed(before, now, trace_hash="h", database=folder / "x.duckdb")
    except PlanError as error:
        return error.message, error.hint
    return None


STARTED, SWAPPED = with_starts(planned(pairs=4), 2), swapped("interleaved", pairs=4)


@pytest.mark.parametrize(
    ("began", "now", "says"),
    [
        (STARTED, with_starts(planned(pairs=8), 4), None),
        (STARTED, with_starts(planned(pairs=8), 2), None),
        (STARTED, with_starts(planned(pairs=8)), None),
        (STARTED, with_starts(planned(pairs=4)), "starts"),
        (STARTED, planned(pairs=8), "starts"),
        (planned(pairs=4), with_starts(planned(pairs=8)), "starts"),
        (SWAPPED, swapped("interleaved", pairs=8, began=4), None),
        (SWAPPED, planned(pairs=4, load=SWAPPED.load), "machines"),
        (planned(pairs=4, load=SWAPPED.load), swapped("interleaved", pairs=8), "machines"),
    ],
)
def test_a_run_grows_on_new_starts_and_changes_of_machines_after_those_that_it_had(
    tmp_path: Path, began: Plan, now: Plan, says: str | None
) -> None:
    assert (refused(tmp_path, began, now) or (None,))[0] == (says and f"run r began with other {says}")
