"""What older versions stored of a run, which databases still hold: names and values that are read for ever."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from agentload.errors import UsageError
from agentload.model.metrics import ClockStart
from agentload.model.plan import Budget, Burst, ClosedLoop, Load, OpenLoop, Recorded, WaitScale
from agentload.study.document import builtins, json_text
from agentload.study.kinds import Ask, Replay, Search, Study, Sweep
from agentload.study.parts import Live, Slo, TraceRef, Virtual
from agentload.study.parts import Load as StudiedLoad
from agentload.study.stored import Notes, clock_start_of, notes, stored

RAG, LIVE = (TraceRef(path="rag"),), Live(endpoints="e")
AS_RECORDED = {
    "arrivals": {"kind": "Recorded", "speed": 1.0},
    "waits": {},
    "max_in_flight": None,
    "budget": {"calls": None, "tokens": None, "seconds": None},
    "cancel_share": 0.0,
    "history": "fixed",
    "retries": 0,
}


def old(options: dict[str, Any], command: str = "agentload watch run nightly") -> Study | None:
    return stored(None, command=command, options=json.dumps(options), design="parallel", seed=7)


@pytest.mark.parametrize(
    ("said", "load"),
    [
        (AS_RECORDED, Load()),
        (
            {
                "arrivals": {
                    "kind": "OpenLoop",
                    "rate_per_s": 2.0,
                    "cv": 0.5,
                    "ramp_s": 3.0,
                    "ramp_from_per_s": 0.1,
                    "burst": {"factor": 4.0, "seconds": 5.0, "every_s": 60.0},
                },
                "waits": {"tool": {"scale": 0.5, "cap_s": 9.0}},
                "max_in_flight": 8,
                "budget": {"calls": 7, "tokens": 8, "seconds": 9.0},
                "cancel_share": 0.1,
                "history": "live",
                "retries": 2,
            },
            Load(
                arrivals=OpenLoop(
                    rate_per_s=2.0, cv=0.5, ramp_s=3.0, ramp_from_per_s=0.1, burst=Burst(factor=4.0, seconds=5.0, every_s=60.0)
                ),
                waits={"tool": WaitScale(scale=0.5, cap_s=9.0)},
                max_in_flight=8,
                budget=Budget(calls=7, tokens=8, seconds=9.0),
                cancel_share=0.1,
                history="live",
                retries=2,
            ),
        ),
        (
            {**AS_RECORDED, "arrivals": {"kind": "ClosedLoop", "sessions": 3, "ramp_s": 1.0}},
            Load(arrivals=ClosedLoop(sessions=3, ramp_s=1.0)),
        ),
        ({**AS_RECORDED, "arrivals": {"kind": "Recorded", "speed": 2.0}}, Load(arrivals=Recorded(speed=2.0))),
    ],
)
def test_the_load_of_a_run_is_read_by_these_names(said: dict[str, Any], load: Load) -> None:
    made = old({"load": said, "cache": "warm", "rounds": 6, "pairs": 3, "traces": ["rag"]})
    assert isinstance(made, Replay)
    assert made.load.planned() == load
    assert (made.cache, made.pairs, made.traces, made.design, made.seed) == ("warm", 3, RAG, "parallel", 7)


def test_a_long_run_is_read_with_its_limits_and_when_its_pools_were_expected_to_be_full() -> None:
    capacity = {"agents": 24, "slo": {"ttft_ms": 2000.0, "tpot_ms": None, "turn_ms": None, "share": 0.95}, "fill_minutes": {"fp8": 3.5}}
    options = {"load": AS_RECORDED, "profile": "p", "capacity": capacity}
    made = old(options)
    assert isinstance(made, Replay)
    assert (made.capacity, made.slo, made.servers) == (24, Slo(ttft_ms=2000.0), Virtual(profile="p"))
    assert notes(json.dumps(options)) == Notes(fill_minutes={"fp8": 3.5})


def test_a_run_is_what_its_command_says_where_that_is_a_study() -> None:
    made = old({"load": AS_RECORDED}, "agentload replay rag --endpoints e --sessions 3 --db x.duckdb")
    assert made == Replay(traces=RAG, servers=LIVE, load=StudiedLoad(sessions=3))


def test_a_study_that_is_stored_is_read_as_it_was() -> None:
    made = Replay(traces=RAG, servers=LIVE, load=StudiedLoad(sessions=3))
    assert stored(json_text(made), command="agentload replay x --endpoints y", options="{}") == made


def test_what_a_newer_version_wrote_besides_leaves_the_rest_of_a_stored_study_readable() -> None:
    made = Replay(traces=RAG, servers=LIVE, load=StudiedLoad(sessions=3), slo=Slo(ttft_ms=2000.0))
    said = builtins(made)
    for part in (said, said["traces"][0], said["servers"], said["load"], said["slo"]):
        part["added"] = {"by": ["a newer version"]}
    assert stored(json.dumps(said), command="", options="{}") == made
    virtual = msgspec.structs.replace(made, servers=Virtual(profile="p"))
    said = builtins(virtual)
    said["servers"]["added"] = 1
    assert stored(json.dumps(said), command="", options="{}") == virtual


@pytest.mark.parametrize(
    "made",
    [
        Replay(traces=RAG, servers=Virtual(profile="p", machines={"m1": -1.0}), workers=2),
        Ask(servers=Live(endpoints="e", noise=False), contexts=(8192, 4096)),
    ],
)
def test_a_study_that_is_stored_is_read_as_it_ran_though_it_is_refused_today(made: Study) -> None:
    assert stored(json_text(made), command="", options="{}") == made


def test_a_stored_study_that_this_version_cannot_read_is_an_error_that_names_the_field() -> None:
    text = json_text(Replay(traces=RAG, servers=LIVE)).replace('"cold"', '"tepid"')
    with pytest.raises(UsageError, match=r"the run's study: Invalid enum value 'tepid' - at `\$\.cache`"):
        stored(text, command="", options="{}")


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"load": AS_RECORDED}, "due"),
        ({"load": {"arrivals": {"kind": "OpenLoop", "rate_per_s": 1.0}}}, "due"),
        ({"load": {**AS_RECORDED, "max_in_flight": 8}}, "released"),
        ({"load": {"arrivals": {"kind": "OpenLoop", "rate_per_s": 1.0}, "max_in_flight": 8}}, "released"),
        ({"load": {"arrivals": {"kind": "ClosedLoop", "sessions": 2}, "max_in_flight": None}}, "released"),
        # A run without a load was not held back.
        ({}, "due"),
        ({"load": None}, "due"),
        ({"load": {}}, "due"),
    ],
)
def test_clocks_of_a_run_that_is_stored_start_where_those_of_its_load_do(options: dict[str, Any], start: ClockStart) -> None:
    assert clock_start_of(old(options)) == start


@pytest.mark.parametrize(
    ("made", "start"),
    [
        (Replay(traces=RAG, servers=LIVE), "due"),
        (Replay(traces=RAG, servers=LIVE, load=StudiedLoad(max_in_flight=3)), "released"),
        (Replay(traces=RAG, servers=LIVE, load=StudiedLoad(sessions=3)), "released"),
        (Replay(traces=RAG, servers=LIVE, capacity=3), "released"),
        (Sweep(servers=LIVE, contexts=(1024,)), "released"),
        (Search(traces=RAG, servers=LIVE), "due"),
        (None, "due"),
    ],
)
def test_clocks_of_a_study_start_when_calls_are_due_unless_we_hold_them_back(made: Study | None, start: ClockStart) -> None:
    assert clock_start_of(made) == start
