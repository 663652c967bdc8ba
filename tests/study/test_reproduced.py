"""A stored study is what was played: read back, it lays out the same calls under the same salts."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import agentload
from agentload.layout.plan import of_study
from agentload.model.plan import Plan
from agentload.model.rows import BlockRow, CallRow, RunRow
from agentload.run.files import read_traces
from agentload.run.lay import simulation
from agentload.run.place import StudyPlace
from agentload.run.simulate import Simulation
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.argv import argv, build_study
from agentload.study.change import extend, given_pairs
from agentload.study.document import fields_of, json_text
from agentload.study.kinds import Decide, Replay, Study
from agentload.study.parts import Live, TraceRef, Virtual
from agentload.study.stored import parse_stored
from agentload.watch.play import bounded_study
from tests.study.studies import studies
from tests.study.words import split

DEMO = (TraceRef(path="demo-chat"),)
LIVE = Replay(traces=DEMO, servers=Live(endpoints="e"), pairs=4, seed=7)
VIRTUAL = Replay(
    traces=DEMO, servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")), pairs=2, seed=7
)
CALL = ("arm", "pair", "session", "turn", "context_tokens", "released_ns", "done_ns", "request_id")
SHAPES: dict[str, dict[str, Any]] = {
    "blocks": {"blocks": 2},
    "benchmark": {"benchmark": "agentx-fast", "sessions": 2, "duration_s": 20.0},
    "windows": {"windows": 4, "sessions": 2, "duration_s": 20.0},
    "windows of arrivals": {"windows": 4, "rate_per_s": 0.2, "duration_s": 20.0},
    "windows as recorded": {"windows": 3, "duration_s": 2.0},
    "capacity": {"capacity": 2, "duration_s": 60.0},
    "cut": {"max_context_tokens": 3000},
    "warm": {"cache": "warm"},
    "noise": {"noise_seed": 99, "seed": 3},
    "warm-up": {"warmup": True},
}


def played(made: Plan) -> tuple[object, ...]:
    """Return what a plan sends, to whom, in which order, under which salts and load."""
    blocks = tuple(
        (block.index, block.is_window, tuple(islice(block.sessions, 200))) for block in made.blocks
    )
    return blocks, made.rounds, made.load, made.limits, made.arms


@given(study=studies())
def test_any_study_is_the_same_from_the_database_and_from_its_command_line(study: Study) -> None:
    assert parse_stored(json_text(study)) == study
    assert build_study(*split(argv(study))) == study


@pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, marks=() if shape == "warm" else pytest.mark.slow) for shape in SHAPES],
)
def test_a_simulated_run_can_be_laid_out_again_from_what_it_stored(
    shape: str, tmp_path: Path
) -> None:
    study = extend(VIRTUAL, **SHAPES[shape])
    place = StudyPlace(database=tmp_path / "x.duckdb", run="r")
    first = simulation(study, place).playing
    assert isinstance(first, Simulation)
    row = next(each for each in first.rows() if isinstance(each, RunRow))
    assert row.study is not None
    read = parse_stored(row.study)
    assert isinstance(read, Replay)
    typed = build_study(*split(argv(read)))
    assert isinstance(typed, Replay)
    for again in (read, typed):
        second = simulation(again, place).playing
        assert isinstance(second, Simulation)
        assert played(second.plan) == played(first.plan)
        assert second.arms == first.arms


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", ["blocks", "benchmark", "windows", "windows of arrivals", "windows as recorded"]
)
def test_a_run_that_is_given_more_pairs_plays_what_it_began_with_and_can_be_laid_out_again(
    shape: str,
) -> None:
    trace, _ = read_traces(DEMO)
    began = extend(LIVE, **SHAPES[shape])
    now = given_pairs(began, extend(began, pairs=9))
    first, more = (of_study(study, trace, ["a", "b"], run="r") for study in (began, now))
    assert parse_stored(json_text(now)) == build_study(*split(argv(now))) == now
    salts = {play.pair: (play.block, play.salt) for round_ in more.rounds for play in round_.plays}
    before = {
        play.pair: (play.block, play.salt) for round_ in first.rounds for play in round_.plays
    }
    assert {pair: salts[pair] for pair in before} == before
    sessions = {block.index: tuple(islice(block.sessions, 200)) for block in more.blocks}
    assert all(
        sessions[block.index] == tuple(islice(block.sessions, 200)) for block in first.blocks
    )


def test_an_execution_of_the_watch_stores_the_budget_that_it_played() -> None:
    trace, _ = read_traces(DEMO)
    study = bounded_study(replace_load(LIVE), 40, arms=1)
    assert study.windows is not None
    assert parse_stored(json_text(study)) == study
    assert bounded_study(study, 40, arms=1) == study
    again = build_study(*split(argv(study)))
    assert isinstance(again, Replay)
    assert played(of_study(again, trace, ["a"], run="r")) == played(
        of_study(study, trace, ["a"], run="r")
    )


@pytest.mark.parametrize(
    ("study", "hidden"),
    [
        (
            LIVE,
            {
                "benchmark",
                "slo",
                "cv",
                "ramp_from_per_s",
                "burst",
                "logs",
                "start_timeout_s",
                "restarts",
                "nodes",
                "share",
            },
        ),
        (
            extend(LIVE, capacity=2),
            {
                "benchmark",
                "cv",
                "ramp_from_per_s",
                "burst",
                "logs",
                "start_timeout_s",
                "restarts",
                "nodes",
                "share",
            },
        ),
        (VIRTUAL, {"benchmark", "slo", "cv", "ramp_from_per_s", "burst"}),
        (
            Decide(traces=DEMO, servers=LIVE.servers),
            {"cv", "ramp_from_per_s", "burst", "logs", "start_timeout_s"},
        ),
    ],
)
def test_a_stored_study_does_not_say_what_nobody_asked_for(study: Study, hidden: set[str]) -> None:
    told = json.loads(json_text(study))
    said = {
        *told,
        *(name for part in ("servers", "load", "request", "timeouts") for name in told[part]),
    }
    assert {flag.path[-1] for flag in fields_of(study)} - said == hidden


def replace_load(study: Replay) -> Replay:
    return extend(study, sessions=2, wait_cap_s={"user": 5.0})


def test_another_run_id_is_other_salts_and_nothing_else() -> None:
    trace, _ = read_traces(DEMO)
    one, other = (
        of_study(extend(LIVE, **SHAPES["windows"]), trace, ["a"], run=run) for run in ("r", "s")
    )
    assert played(one)[0] == played(other)[0]
    salts = [
        {play.salt for round_ in made.rounds for play in round_.plays} for made in (one, other)
    ]
    assert not salts[0] & salts[1]
    assert replace(one, run="s", rounds=other.rounds, blocks=other.blocks) == other


@pytest.mark.slow
def test_what_a_decision_stores_of_its_pairs_is_what_it_played(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    study = Decide(traces=(TraceRef(path="rag"),), servers=VIRTUAL.servers, budget_s=900.0, seed=5)
    ended = agentload.decide(study, db=database)
    with reading(database) as connection:
        row = tables.rows(connection, RunRow, run_id=ended.run_id)[0]
        calls = connection.execute(
            f"SELECT {', '.join(CALL)} FROM calls_row ORDER BY ALL"
        ).fetchall()
        blocks = tables.rows(connection, BlockRow, run_id=ended.run_id)
    assert row.study is not None
    read = parse_stored(row.study)
    assert isinstance(read, Replay)
    again = simulation(read, StudyPlace(database=tmp_path / "y.duckdb", run=ended.run_id)).playing
    assert isinstance(again, Simulation)
    rows = list(again.rows())
    sent = [
        tuple(getattr(each, name) for name in CALL) for each in rows if isinstance(each, CallRow)
    ]
    assert sorted(sent) == calls
    assert {each.salt for each in rows if isinstance(each, BlockRow)} == {
        each.salt for each in blocks
    }
