"""What is stored of a run, and read again by this version and by later ones."""

from __future__ import annotations

import json

import msgspec
import pytest

from agentload.errors import UsageError
from agentload.model.metrics import ClockStart
from agentload.study.document import builtins, json_text
from agentload.study.kinds import Ask, Replay, Search, Study, Sweep
from agentload.study.parts import Live, Slo, TraceRef, Virtual
from agentload.study.parts import Load as StudiedLoad
from agentload.study.stored import clock_start_of, parse_stored

RAG, LIVE = (TraceRef(path="rag"),), Live(endpoints="e")


def test_a_study_that_is_stored_is_read_as_it_was() -> None:
    made = Replay(traces=RAG, servers=LIVE, load=StudiedLoad(sessions=3))
    assert parse_stored(json_text(made)) == made


def test_what_a_newer_version_wrote_besides_leaves_the_rest_of_a_stored_study_readable() -> None:
    made = Replay(traces=RAG, servers=LIVE, load=StudiedLoad(sessions=3), slo=Slo(ttft_ms=2000.0))
    said = builtins(made)
    for part in (said, said["traces"][0], said["servers"], said["load"], said["slo"]):
        part["added"] = {"by": ["a newer version"]}
    assert parse_stored(json.dumps(said)) == made
    virtual = msgspec.structs.replace(made, servers=Virtual(profile="p"))
    said = builtins(virtual)
    said["servers"]["added"] = 1
    assert parse_stored(json.dumps(said)) == virtual


@pytest.mark.parametrize(
    "made",
    [
        Replay(traces=RAG, servers=Virtual(profile="p", machines={"m1": -1.0}), workers=2),
        Ask(servers=Live(endpoints="e", noise=False), contexts=(8192, 4096)),
    ],
)
def test_a_study_that_is_stored_is_read_as_it_ran_though_it_is_refused_today(made: Study) -> None:
    assert parse_stored(json_text(made)) == made


def test_a_stored_study_that_this_version_cannot_read_is_an_error_that_names_the_field() -> None:
    text = json_text(Replay(traces=RAG, servers=LIVE)).replace('"cold"', '"tepid"')
    with pytest.raises(
        UsageError, match=r"the run's study: Invalid enum value 'tepid' - at `\$\.cache`"
    ):
        parse_stored(text)


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
def test_clocks_of_a_study_start_when_calls_are_due_unless_we_hold_them_back(
    made: Study | None, start: ClockStart
) -> None:
    assert clock_start_of(made) == start
