"""What searches for concurrency left beside a run, as the advisor reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from advisor.assess.capacity import capacities
from advisor.evidence import Evidence, Telemetry
from advisor.gates import impossible_hits
from advisor.loads import CapacityPoint
from advisor.policy import Policy
from agentload.evidence.capacity import Concurrency, capacity, concurrency, next_search
from agentload.evidence.fill import PoolFill, point
from agentload.evidence.gather import gather
from agentload.evidence.plays import PlayedBlock
from agentload.evidence.view import run_view
from agentload.kvmath.pool import GIB, pool_of
from agentload.layout.long_run import long_run
from agentload.layout.plan import Scheme, plan
from agentload.model.plan import Budget, Load
from agentload.model.profile import ArmProfile
from agentload.model.rows import ProbeRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.run.simulate import Simulation, store, without_noise
from agentload.store.database import reading
from agentload.store.loader import keep
from agentload.study.kinds import Replay
from agentload.study.parts import Load as StudiedLoad
from agentload.study.parts import Slo, TraceRef, Virtual
from agentload.study.stored import Notes
from tests.evidence.runs import stored

CLASSES = ("chat", "rag")


def step(
    agents: int,
    *,
    at_ns: int = 5,
    arm: str = "bf16",
    classes: Sequence[str] = CLASSES,
    void: bool = False,
    **seen: Any,
) -> ProbeRow:
    unseen = dict.fromkeys(("trouble", "peak_kv_usage", "preemptions", "found_again"))
    detail = {
        "turns": 100,
        "within": 99,
        "minutes": 2.0,
        "hit_rate": 0.5,
        "output_tokens_per_s": 800.0,
        **unseen,
        **seen,
    }
    return ProbeRow(
        run_id="r1",
        arm=arm,
        at_ns=at_ns,
        probe="capacity",
        settings=json.dumps({"agents": agents, "classes": classes}),
        outcome="void" if void else "ok",
        detail=json.dumps(detail),
    )


def tried(agents: int, **changed: Any) -> CapacityPoint:
    seen = {
        "turns": 100,
        "within_slo": 99,
        "minutes": 2.0,
        "hit_rate": 0.5,
        "output_tokens_per_s": 800.0,
        **changed,
    }
    return CapacityPoint(arm="bf16", agents=agents, **seen)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step(4)], [Concurrency(arm="bf16", workload=None, holds=4, breaks=None)]),
        ([step(4, within=40)], [Concurrency(arm="bf16", workload=None, holds=None, breaks=4)]),
        (
            [step(4), step(8, void=True)],
            [Concurrency(arm="bf16", workload=None, holds=4, breaks=None)],
        ),
        (
            [step(4), step(2, at_ns=6)],
            [Concurrency(arm="bf16", workload=None, holds=2, breaks=None)],
        ),  # the search was made again
        (
            [step(4), step(2, at_ns=6, classes=("rag",)), step(3, at_ns=7, arm="fp8", classes=())],
            [
                Concurrency(arm="bf16", workload="rag", holds=2, breaks=None),
                Concurrency(arm="bf16", workload=None, holds=4, breaks=None),
                Concurrency(arm="fp8", workload=None, holds=3, breaks=None),
            ],
        ),
        (
            [step(4, classes=("chat", "rag", "code"))],
            [Concurrency(arm="bf16", workload=None, holds=4, breaks=None)],
        ),
    ],
)
def test_the_last_search_of_each_arm_and_class_says_what_holds_and_what_breaks(
    tmp_path: Path, steps: list[ProbeRow], expected: list[Concurrency]
) -> None:
    with stored(tmp_path, steps) as connection:
        assert (
            sorted(
                concurrency(run_view(connection, "r1"), CLASSES),
                key=lambda each: (each.arm, each.workload or "~"),
            )
            == expected
        )


def test_a_search_holds_what_the_fit_through_its_trials_says_at_its_own_share(
    tmp_path: Path,
) -> None:
    trials = [
        step(agents, within=within)
        for agents, within in ((4, 99), (8, 99), (10, 97), (11, 96), (12, 92), (16, 40))
    ]
    with stored(tmp_path, trials) as connection:
        (found,) = concurrency(run_view(connection, "r1"), CLASSES)
    assert found.holds is not None
    assert found.breaks is not None
    assert 8 <= found.holds < 12 <= found.breaks <= 16


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, {"pool_filled": None}),
        ({"peak_kv_usage": 0.94}, {"pool_filled": False}),
        ({"peak_kv_usage": 0.95}, {"pool_filled": True}),
        ({"peak_kv_usage": 0.1, "preemptions": 1.0}, {"pool_filled": True, "preemptions": 1.0}),
        ({"peak_kv_usage": 0.1, "preemptions": 0.0}, {"pool_filled": False, "preemptions": 0.0}),
        ({"found_again": 0.89}, {"pool_filled": False}),
        (
            {"found_again": 0.87},
            {"pool_filled": True},
        ),  # contexts that the step with 0.9 still found were evicted
        ({"trouble": "preempted"}, {"trouble": "preempted"}),
        ({"trouble": "slo"}, {"trouble": None}),  # the share of turns says it
        ({"trouble": "errors"}, {"trouble": None}),
        ({"within": 7, "turns": 9}, {"within_slo": 7, "turns": 9}),
    ],
)
def test_a_step_is_a_point_with_a_full_pool_where_pages_preemptions_or_lost_contexts_say_so(
    tmp_path: Path, seen: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = step(4, found_again=0.9) if "found_again" in seen else step(4, peak_kv_usage=0.5)
    with stored(tmp_path, [before, step(8, **seen)]) as connection:
        assert capacity(run_view(connection, "r1"), ["bf16"], CLASSES) == (
            tried(4, pool_filled=False),
            tried(8, **expected),
        )
        assert capacity(run_view(connection, "r1"), ["fp8"], CLASSES) == ()


def test_a_search_without_a_date_is_numbered_behind_all_others(tmp_path: Path) -> None:
    with stored(tmp_path, [step(4, at_ns=7), step(8, at_ns=3)]) as connection:
        assert (next_search(connection, "r1"), next_search(connection, "r2")) == (8, 0)


AGENTS = 6


def talk(number: int) -> Session:
    turns = tuple(
        Turn(
            add=(Segment(role="user", tokens=1_500, key=f"{number}.{turn}"),),
            output=60,
            wait="user",
            wait_s=2.0,
        )
        for turn in range(8)
    )
    return Session(session=f"s{number}", workload="chat", start_s=float(number), turns=turns)


TRACE = Trace(header=Header(name="t", seed=1), sessions=tuple(talk(number) for number in range(12)))


def arms(**gib: float) -> dict[str, ArmProfile]:
    """Two arms whose pools hold so many GiB."""
    known = {arm.name: arm for arm in arms_of("llama-3.1-8b-h100", list(gib))}
    return without_noise(
        [
            replace(
                arm,
                server=replace(
                    arm.server, kv_cache_memory_bytes=round(gib[name] * GIB), max_model_len=16_384
                ),
            )
            for name, arm in known.items()
        ]
    )


def played(
    folder: Path,
    on: dict[str, ArmProfile],
    *,
    seconds: float = 120.0,
    searched: Sequence[ProbeRow] = (),
) -> Evidence:
    pools = {name: float(pool_of(arm).tokens) for name, arm in on.items()}
    long = long_run(
        TRACE, Load(budget=Budget(seconds=seconds)), agents=AGENTS, pairs=2, seed=1, pools=pools
    )
    made = plan(
        TRACE,
        tuple(on),
        run="r",
        scheme=Scheme(pairs=2),
        load=long.laid.load,
        laid=long.laid.blocks,
    )
    study = Replay(
        traces=(TraceRef(path="t"),),
        servers=Virtual(profile="llama-3.1-8b-h100"),
        capacity=AGENTS,
        slo=Slo(ttft_ms=500.0, tpot_ms=50.0),
        load=StudiedLoad(duration_s=seconds),
    )
    notes, database = Notes(fill_minutes=dict(long.fills.minutes)), folder / "x.duckdb"
    store(
        Simulation(study=study, plan=made, arms=on, trace_hash="", database=database, notes=notes)
    )
    if searched:
        keep(searched, database, run_id="r", name="capacity")
    with reading(database) as connection:
        ((primes,),) = connection.execute(
            "SELECT count(*) FROM calls_row WHERE prime AND turn = 0 AND NOT tail"
        ).fetchall()
        assert primes >= 2 * AGENTS
        return gather(connection, run_view(connection, "r"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    # At 128 KiB a token 8 GiB hold less than is written in
    # a minute, and at half of that 60 GiB more than in two.
    return played(tmp_path_factory.mktemp("long"), arms(bf16=8.0, fp8=60.0))


def test_a_priming_call_is_no_evidence(found: Evidence) -> None:
    calls = found.calls("chat", "bf16")
    assert calls is not None
    assert calls.output_tokens.min() == 60
    impossible = [figures.impossible_hits for _, figures in found.server]
    assert impossible == [None, None]


def test_capacity_is_told_of_the_time_in_which_the_pool_was_full(found: Evidence) -> None:
    small, large = found.capacity
    calls = found.calls("chat", "bf16")
    assert calls is not None
    assert (small.agents, small.pool_filled, large.pool_filled) == (AGENTS, True, False)
    assert 0 < small.turns < len(calls)
    server = dict(found.server)
    assert 0.2 < (server["bf16"].pool_filled_share or 0) < 1
    assert server["fp8"].pool_filled_share == 0
    expected = server["bf16"].fill_minutes
    assert expected is not None
    # The plan's speeds are rough; its order of magnitude is what a dry run is asked for.
    assert (1 - (server["bf16"].pool_filled_share or 0)) * 2 == pytest.approx(expected, rel=0.5)


def test_hits_of_sessions_that_began_in_the_middle_are_not_compared_with_what_their_whole_plan_could_hit(
    tmp_path: Path,
) -> None:
    short = played(tmp_path, arms(bf16=60.0, fp8=60.0), seconds=20.0)
    figures = [each.telemetry for each in short.observations if each.telemetry is not None]
    assert [each.hit_rate is not None and each.hit_rate > 0.7 for each in figures] == [True, True]
    assert {gate.status for gate in impossible_hits.check(short, Policy())} <= {"pass"}


def test_a_pool_that_never_filled_is_named_and_says_nothing_of_capacity(found: Evidence) -> None:
    note = next(note for note in found.notes if note.startswith("fp8: the KV pool never filled ("))
    assert note.endswith("capacity is not tested; play longer, or with more sessions")
    by_arm = {each.arm: each for each in capacities(found, Policy())}
    assert by_arm["fp8"].agents_per_gpu is None
    assert by_arm["fp8"].reason == "the KV pool never filled"
    assert not [note for note in found.notes if note.startswith("bf16: the KV pool")]


def test_a_search_next_to_a_long_run_says_alone_what_an_arm_carries(tmp_path: Path) -> None:
    trials = [step(agents, arm="fp8", classes=["chat"]) for agents in (4, 8)]
    found = played(
        tmp_path,
        arms(bf16=8.0, fp8=60.0),
        seconds=30.0,
        searched=[replace(each, run_id="r") for each in trials],
    )
    agents = [(each.arm, each.agents) for each in found.capacity]
    assert agents == [("fp8", 4), ("fp8", 8), ("bf16", AGENTS)]
    assert not [note for note in found.notes if note.startswith("fp8: the KV pool never filled")]


def test_a_turn_that_gave_no_token_holds_no_limit() -> None:
    study = Replay(traces=(), servers=Virtual(profile="p"), capacity=AGENTS, slo=Slo(ttft_ms=500.0))
    rows = pl.DataFrame(
        {
            "arm": "a",
            "play": 0,
            "start_s": 0.0,
            "status": ["ok", "ok", "ok", "reset"],
            "ttft_ms": [100.0, None, 501.0, 100.0],
        }
    ).with_columns(
        tpot_ms=pl.lit(None, pl.Float64), turn_ms=pl.lit(600.0), hit_rate=pl.lit(None, pl.Float64)
    )
    play = PlayedBlock(
        number=0,
        leg=1,
        arm="a",
        pair=0,
        started_ns=0,
        clock_ns=0,
        drain_ns=None,
        ended_ns=1,
        start_s=0.0,
        restart=0,
        left_out=None,
        is_void=False,
    )
    found = point(
        study,
        "a",
        rows,
        [play],
        figures=Telemetry(),
        pool=PoolFill(tokens=None, written=None, full_from_s={}, full_share=0.0, is_full=None),
    )
    assert (found.turns, found.within_slo) == (4, 1)
