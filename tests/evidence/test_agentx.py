"""A run that was laid out by AgentX's rules is valid, and one that breaks a rule says which."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentload.builtin import find
from agentload.errors import GateError
from agentload.evidence.agentx import BenchmarkPlay, rulings
from agentload.layout.agentx import RULES
from agentload.matrix.read import read_matrix
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Load, TraceRef, Virtual
from tests.cli.verbs import agentload

STUDY = Replay(
    traces=(TraceRef(path="code"),),
    servers=Virtual(profile="llama-3.1-8b-h100"),
    benchmark="agentx",
    load=Load(sessions=4),
)
PLAY = BenchmarkPlay(
    arm="bf16",
    pair=0,
    seconds=3600.0,
    primers=44,
    primers_failed=0,
    calls=400,
    failed=4,
    short=2,
    idle_s=10.0,
    interactivity=38.0,
    output_tokens=1e5,
    prompt_tokens=1e7,
)


def broken(study: Mapping[str, Any], play: Mapping[str, Any]) -> list[str]:
    found = rulings(RULES["agentx"], extend(STUDY, **study), replace(PLAY, **play))
    return [each.rule for each in found if not each.is_kept]


def test_what_keeps_every_rule_is_valid() -> None:
    assert broken({}, {}) == []


@pytest.mark.parametrize(
    ("study", "play", "rule"),
    [
        ({}, {"primers": 43}, "a primer a conversation"),
        ({}, {"primers_failed": 1}, "a primer a conversation"),
        ({"max_context_tokens": 100_000}, {}, "a slot holds a whole session tree"),
        ({"cache": "warm"}, {}, "each play of a session has its own content"),
        ({}, {"idle_s": 11.0}, "the load is idle for 10 s at most"),
        ({"wait_cap_s": {"user": 5.0}}, {}, "waits are as recorded"),
        ({"wait_scale": {"tool": 0.1}}, {}, "waits are as recorded"),
        ({}, {"seconds": 3599.0}, "calls count for 3,600 s"),
        ({}, {"seconds": None}, "calls count for 3,600 s"),
        ({}, {"failed": 41}, "recorded prompts and whole answers"),
        ({}, {"short": 5}, "recorded prompts and whole answers"),
        ({"cancel_share": 0.1}, {}, "recorded prompts and whole answers"),
        ({"history": "live"}, {}, "recorded prompts and whole answers"),
        ({"max_in_flight": 2}, {}, "recorded prompts and whole answers"),
    ],
)
def test_each_rule_is_found_broken_where_it_is(
    study: Mapping[str, Any], play: Mapping[str, Any], rule: str
) -> None:
    (found,) = broken(study, play)
    assert found.startswith(rule)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agentx") / "code.jsonl"
    agentload("trace generate code sessions=8 window=60000", out=path)
    return path


def judged(
    database: Path, capsys: pytest.CaptureFixture[str], line: str, *words: object
) -> dict[str, Any]:
    agentload(f"{line} --pairs 1 --seed 42", *words, db=database)
    capsys.readouterr()
    agentload("runs benchmark --json", database)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


SIMULATED = "simulate --profile llama-3.1-8b-h100 --arms bf16"


@pytest.mark.slow
def test_the_preset_runs_whole_in_virtual_time_and_is_valid(
    tmp_path: Path, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replay = read_matrix(find("presets", "agentx")).measure.replay
    assert (replay.benchmark, replay.pairs, replay.seed) == ("agentx", 1, 42)
    line = f"{SIMULATED} --benchmark {replay.benchmark} --sessions {replay.load.sessions}"
    found = judged(tmp_path / "a.duckdb", capsys, line, trace)
    assert found["valid"], found["plays"]
    (play,) = (each["play"] for each in found["plays"])
    assert play["seconds"] == 3600.0
    assert play["primers"] >= 11 * 8
    assert 0 < play["idle_s"] <= 10.0
    said = found["missing"]
    assert [each for each in said if "real server" in each or "corpus" in each] == said[:2]
    agentload("runs benchmark --gate", tmp_path / "a.duckdb")
    assert "\nvalid: " in capsys.readouterr().out


def test_the_fast_edition_is_valid_and_no_submission(
    tmp_path: Path, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"{SIMULATED} --benchmark agentx-fast --sessions 2"
    found = judged(tmp_path / "a.duckdb", capsys, line, trace)
    assert found["valid"], found["plays"]
    assert any("the hour of" in each for each in found["missing"])


def test_a_usual_replay_breaks_what_only_the_benchmark_lays_out(
    tmp_path: Path, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"{SIMULATED} --sessions 2 --duration 30"
    found = judged(tmp_path / "a.duckdb", capsys, line, trace)
    rules = found["plays"][0]["rules"]
    kept = [each["is_kept"] for each in rules]
    assert kept == [False] * 4 + [None, False, None, True]
    agentload("runs benchmark", tmp_path / "a.duckdb")
    said = capsys.readouterr().out
    assert re.search(
        "^not seen  the load is idle for 10 s at most +nothing was primed", said, re.MULTILINE
    )
    assert re.search(
        "^invalid: .* broke [0-9]+ rules of agentx; [0-9]+ could not be seen$", said, re.MULTILINE
    )
    with pytest.raises(GateError, match="broke a rule of agentx"):
        agentload("runs benchmark --gate", tmp_path / "a.duckdb")
