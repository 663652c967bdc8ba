"""What a run that goes on, or is joined, takes over from what was played before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentload.errors import PlanError
from agentload.layout.plan import Scheme, plan, with_starts
from agentload.model.plan import Plan
from agentload.model.rows import ArmRow, BlockRow, CallRow, FingerprintRow, LegRow, Row, RunRow
from agentload.model.trace import Header, Session, Trace, Turn
from agentload.run.past import (
    ADDED_FROM,
    Past,
    added_pairs,
    added_plan,
    check_resumed,
    needless,
    past,
)
from agentload.run.record import PlayedOn, run_row
from agentload.store import journal
from agentload.store.places import began, journal_folder, journals, worker_journals
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Live, Load, TraceRef
from agentload.study.stored import Notes, study_of
from tests.layout.test_plan import swapped

SESSIONS = tuple(
    Session(session=f"s{i}", workload="chat", start_s=float(i), turns=(Turn(add=(), output=4),))
    for i in range(8)
)
TRACE = Trace(header=Header(name="t", seed=1), sessions=SESSIONS)
STUDY = Replay(
    traces=(TraceRef(path="t"),),
    servers=Live(endpoints="e"),
    pairs=2,
    load=Load(sessions=2, wait_cap_s={"user": 2.0}),
)


def planned(arms: Sequence[str] = ("a", "b"), *, pairs: int = 2, study: Replay = STUDY) -> Plan:
    return plan(
        TRACE,
        arms,
        run="r",
        scheme=Scheme(pairs=pairs, design=study.design, cache=study.cache),
        load=study.load.planned(),
        seed=study.seed,
    )


def described(made: Plan, study: Replay = STUDY) -> RunRow:
    return replace(
        run_row(
            made.run,
            study,
            plan=made,
            trace_hash="h",
            created_ns=1,
            command="agentload replay t",
            notes=Notes(),
            on=PlayedOn(kind="measured", model="m"),
        ),
        name="t",
    )


def leg(number: int) -> LegRow:
    return LegRow(run_id="r", leg=number, host="here", boot_id=None, monotonic_ns=0, wall_ns=0)


def block(number: int, pair: int, arm: str, salt: str, void: str | None = None) -> BlockRow:
    return BlockRow(
        run_id="r",
        leg=number,
        pair=pair,
        block=pair,
        arm=arm,
        round=0,
        started_ns=0,
        drain_ns=None,
        ended_ns=1,
        salt=salt,
        void=void,
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


def test_a_pair_that_was_void_twice_in_one_leg_is_not_played_under_a_salt_that_it_had(
    tmp_path: Path,
) -> None:
    before = kept(
        tmp_path,
        [
            *(block(1, 0, "a", salt) for salt in ("r/0", "r/0~1")),
            *(block(1, 0, "b", salt, void="b changed") for salt in ("r/0", "r/0~1")),
            call(1, 0, "a", "of-the-third-play", at_ns=2),
        ],
    )
    assert (before.done, before.lost) == (frozenset(), {0: 3})


def test_a_play_that_was_killed_before_its_end_counts_and_one_that_never_began_does_not(
    tmp_path: Path,
) -> None:
    before = kept(
        tmp_path,
        [call(1, 0, "a", "one"), block(1, 0, "a", "r/0"), call(1, 1, "b", "two")],
        [call(2, 0, "a", "three")],
    )
    assert (before.legs, before.done, before.lost) == (2, frozenset(), {0: 2, 1: 1})


def test_a_leg_whose_calls_lie_in_journals_of_workers_is_read_as_one(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    path = journal_folder(database, "r") / "leg001.journal"
    path.parent.mkdir(parents=True)
    rows: dict[Path, list[Row]] = {
        path: [leg(1), block(1, 0, "a", "r/0"), block(1, 0, "b", "r/0"), block(1, 1, "a", "r/1")]
    }
    for worker, own in enumerate(worker_journals(path, 2)):
        rows[own] = [call(1, pair, arm, f"{pair}{arm}{worker}") for pair in (0, 1) for arm in "ab"]
    for each, written in rows.items():
        with journal.Writer(each) as writer:
            for row in written:
                writer.append(row)
    before = past(database, planned())
    assert (before.legs, before.done, before.lost) == (1, frozenset({0}), {1: 2})
    assert [each.name for each in journals(database, "r")] == [
        "leg001-1.journal",
        "leg001-2.journal",
        "leg001.journal",
    ]


def test_halves_of_two_plays_are_no_whole_pair(tmp_path: Path) -> None:
    before = kept(
        tmp_path,
        [block(1, 0, "a", "r/0"), block(1, 0, "b", "r/0", void="died")],
        [block(2, 0, "b", "r/0~1"), block(2, 1, "b", "r/1")],
    )
    assert (before.done, before.lost) == (frozenset(), {0: 2, 1: 1})


def test_a_pair_that_is_whole_under_one_salt_is_done(tmp_path: Path) -> None:
    before = kept(tmp_path, [block(1, 0, "a", "r/0"), block(1, 0, "b", "r/0")])
    assert (before.done, before.lost) == (frozenset({0}), {})


def test_pages_that_a_power_cut_lost_cost_the_pair_that_was_being_played_and_no_other(
    tmp_path: Path,
) -> None:
    kept(tmp_path, [block(1, 0, "a", "r/0"), block(1, 0, "b", "r/0")])
    database = tmp_path / "x.duckdb"
    (path,) = journals(database, "r")
    synced = path.stat().st_size
    with journal.Writer(path) as writer:
        for number in range(3):
            writer.append(call(1, 1, "a", f"call {number}", at_ns=2))
    whole = bytearray(path.read_bytes())
    whole[synced + 8 : synced + 40] = bytes(
        32
    )  # a page that the disk never had, before one that it has
    path.write_bytes(whole)
    assert (past(database, planned()).done, past(database, planned()).lost) == (
        frozenset({0}),
        {1: 1},
    )


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({"pairs": 1}, "run r began with other pairs"),
        ({"sessions": None, "rate_per_s": 1.0}, "run r began with other sessions and rate"),
        ({"wait_cap_s": {}}, "run r began with other wait-cap"),
        (
            {"pairs": 3, "sessions": None, "cache": "warm"},
            "run r began with other cache setting and sessions",
        ),
        ({"seed": 1}, "run r began with other seed"),
        ({"design": "parallel"}, "run r began with other design"),
        ({"retries": 1}, "run r began with other retries"),
        ({"cache": "warm"}, "run r began with other cache setting"),
    ],
)
def test_a_run_goes_on_only_as_it_began(now: dict[str, Any], says: str) -> None:
    study = extend(STUDY, **now)
    assert refused(planned(), planned()) is None
    assert refused(planned(), planned(pairs=study.pairs, study=study), study=study) == (says, HINT)


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        (("a", "c"), "run r began with the arms a, b, not a, c"),
        (("b", "a"), "run r began with the arms a, b, not b, a"),
    ],
)
def test_a_run_goes_on_only_with_its_arms_in_their_order(arms: Sequence[str], says: str) -> None:
    assert refused(planned(), planned(arms)) == (says, HINT)


def test_a_run_goes_on_with_its_own_trace_and_where_its_journals_are(tmp_path: Path) -> None:
    database, made = tmp_path / "x.duckdb", planned()
    with pytest.raises(PlanError, match="run r began with trace h, not other"):
        check_resumed(
            Past(lost={}, run=described(made), arms=made.arms),
            made,
            STUDY,
            trace_hash="other",
            database=database,
        )
    with pytest.raises(PlanError, match="no journal of run r beside"):
        check_resumed(past(database, made), made, STUDY, trace_hash="h", database=database)


def test_a_run_that_did_not_write_down_how_it_was_played_is_not_gone_on_with(
    tmp_path: Path,
) -> None:
    made = planned()
    before = Past(
        lost={},
        run=replace(described(made), study=None, command="agentload watch run x"),
        arms=made.arms,
    )
    with pytest.raises(
        PlanError, match="run r is of an older version, which did not write down how it was played"
    ):
        check_resumed(before, made, STUDY, trace_hash="h", database=tmp_path / "x.duckdb")


def test_a_run_tells_into_how_many_blocks_it_cut_its_trace_and_how_long_they_may_last(
    tmp_path: Path,
) -> None:
    database, study = tmp_path / "x.duckdb", extend(STUDY, pairs=5, duration_s=4800.0)
    assert began(database, "r") is None
    kept(tmp_path, [described(planned(pairs=5, study=study), study)])
    row = began(database, "r")
    assert row is not None
    assert study_of(row) == study


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
def test_a_leg_leaves_out_what_is_done_and_warms_up_only_for_something(
    *, warmup: bool, done: set[int], left_out: set[int]
) -> None:
    made = plan(TRACE, ("a", "b"), run="r", scheme=Scheme(pairs=2, warmup=warmup))
    assert (
        needless((play for round_ in made.rounds for play in round_.plays), frozenset(done))
        == left_out
    )


def test_what_each_server_said_last_and_first_is_taken_over(tmp_path: Path) -> None:
    def said(number: int, facts: dict[str, str]) -> FingerprintRow:
        return FingerprintRow(
            run_id="r",
            leg=number,
            arm="a",
            at_ns=number,
            moment="before",
            round=0,
            facts=json.dumps(facts),
        )

    before = kept(
        tmp_path,
        [said(1, {"version": "1"}), said(1, {"version": "2"})],
        [said(2, {"version": "3"})],
    )
    assert before.facts == {"a": {"version": "3"}}
    assert before.began_as["a"]["version"] == "1"


HINT = "resume with what it began with: agentload replay t"


def refused(
    before: Plan, now: Plan, *, began_as: Replay = STUDY, study: Replay = STUDY
) -> tuple[str, str | None] | None:
    """Return what is said of a run that goes on with another plan, or as another study."""
    run = Past(lost={}, run=described(before, began_as), arms=before.arms)
    try:
        check_resumed(run, now, study, trace_hash="h", database=Path("x.duckdb"))
    except PlanError as error:
        return error.message, error.hint
    return None


PLAYED = extend(STUDY, pairs=4)
MORE = extend(STUDY, pairs=8)


@pytest.mark.parametrize(
    ("began_as", "goes_on", "says"),
    [
        ({"launch": True, "restarts": 2}, {"launch": True, "restarts": 4, "pairs": 8}, None),
        ({"launch": True, "restarts": 2}, {"launch": True, "restarts": 2, "pairs": 8}, None),
        ({"launch": True, "restarts": 2}, {"launch": True, "pairs": 8}, None),
        ({"launch": True, "restarts": 2}, {"launch": True}, "restarts"),
        ({"launch": True, "restarts": 2}, {"launch": True, "restarts": 1, "pairs": 8}, "restarts"),
        ({"launch": True, "restarts": 2}, {"pairs": 8}, "launch"),
        ({}, {"launch": True, "pairs": 8}, "launch"),
    ],
)
def test_a_run_grows_on_new_starts_after_those_that_it_had(
    began_as: dict[str, Any], goes_on: dict[str, Any], says: str | None
) -> None:
    first, then = extend(PLAYED, **began_as), extend(PLAYED, **goes_on)
    assert (refused(started(first), started(then), began_as=first, study=then) or (None,))[0] == (
        says and f"run r began with other {says}"
    )


def started(study: Replay) -> Plan:
    made = planned(pairs=study.pairs)
    assert isinstance(study.servers, Live)
    return with_starts(made, study.servers.restarts) if study.servers.launch else made


def elsewhere(made: Plan) -> Plan:
    """Return a plan whose arms begin on each other's machine."""
    other = {"m1": "m2", "m2": "m1"}
    rounds = (
        replace(
            each,
            plays=tuple(replace(play, machine=other[play.machine or ""]) for play in each.plays),
        )
        for each in made.rounds
    )
    return replace(made, rounds=tuple(rounds))


SWAPPED, SWAPS = swapped("interleaved", pairs=4), extend(PLAYED, swap=True)


@pytest.mark.parametrize(
    ("before", "began_as", "now", "study", "says"),
    [
        (SWAPPED, SWAPS, swapped("interleaved", pairs=8, began=4), extend(SWAPS, pairs=8), None),
        (SWAPPED, SWAPS, planned(pairs=4), PLAYED, "swap and machines"),
        (planned(pairs=4), PLAYED, swapped("interleaved", pairs=8), extend(SWAPS, pairs=8), "swap"),
        # Which machines they are says the arms file.
        (SWAPPED, SWAPS, elsewhere(SWAPPED), SWAPS, "machines"),
    ],
)
def test_a_run_grows_on_changes_of_machines_after_those_that_it_had(
    before: Plan, began_as: Replay, now: Plan, study: Replay, says: str | None
) -> None:
    found = refused(before, now, began_as=began_as, study=study)
    assert (found or (None,))[0] == (says and f"run r began with other {says}")


def written(database: Path, *arms: str) -> Path:
    """Write what a run left: arms, a pair that was played,
    and one that was killed before its block was closed.
    """
    rows: list[Row] = [
        ArmRow(run_id="r", arm=arm, position=0, url=None, model=None) for arm in arms
    ]
    rows += [*(block(1, 0, arm, "r/0") for arm in arms), call(1, 1, arms[0], "killed")]
    folder = journal_folder(database, "r")
    folder.mkdir(parents=True)
    with journal.Writer(folder / "leg001.journal") as writer:
        for row in rows:
            writer.append(row)
    return database


def plays(made: Plan) -> list[tuple[str, int, str]]:
    return [(play.arm, play.pair, play.salt) for round_ in made.rounds for play in round_.plays]


def test_what_is_played_beside_a_run_has_pairs_and_salts_after_those_that_were_used(
    tmp_path: Path,
) -> None:
    made = added_plan(planned(), written(tmp_path / "d.duckdb", "a", "b", "a@aa"))
    assert plays(made) == [
        (play.arm, play.pair + ADDED_FROM, f"r/{play.pair + ADDED_FROM}")
        for round_ in planned().rounds
        for play in round_.plays
    ]


def test_a_second_sweep_follows_the_first_and_neither_takes_a_pair_that_the_run_may_still_be_given(
    tmp_path: Path,
) -> None:
    database = written(tmp_path / "d.duckdb", "a", "b")
    with journal.Writer(journal_folder(database, "r") / "leg002.journal") as writer:
        for arm in ("a", "b"):
            writer.append(block(2, ADDED_FROM, arm, f"r/{ADDED_FROM}"))
    whole = planned(pairs=added_pairs(database, "r") + 2)
    made = added_plan(whole, database)
    assert {pair for _, pair, _ in plays(made)} == {ADDED_FROM + 1, ADDED_FROM + 2}
    orders = [(arm, pair + ADDED_FROM) for arm, pair, _ in plays(whole) if pair > 0]
    assert [(arm, pair) for arm, pair, _ in plays(made)] == orders, (
        "the orders go on where they were"
    )
    more = {pair for _, pair, _ in plays(planned(pairs=8))}
    assert past(database, planned()).done & more == {0}


@pytest.mark.parametrize(
    ("arms", "told"), [(("a", "b", "c"), "has an arm 'c'"), (("a",), "has no arm 'b'")]
)
def test_a_run_of_other_arms_is_refused(tmp_path: Path, arms: tuple[str, ...], told: str) -> None:
    with pytest.raises(PlanError, match=told):
        added_plan(planned(), written(tmp_path / "d.duckdb", *arms))
