"""The lines that users of `vllm bench serve` know run here, and the block agrees with the calls."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

import duckdb
import pytest

from agentload.errors import UsageError
from agentload.study.argv import argv, build_study
from agentload.study.kinds import Replay
from tests.cli.verbs import agentload
from tests.study.words import split

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
LINES = re.findall(
    r"^\| `--.*\| `agentload (replay .*)` \|$", PAGE.read_text("utf-8"), re.MULTILINE
)
SERVER = "--endpoints vllm=http://127.0.0.1:8000/v1"


def figures(text: str) -> dict[str, float]:
    found = re.findall(r"^(\w[^:\n]*):\s+([\d.]+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_the_page_has_the_lines_of_the_other_client() -> None:
    assert len(LINES) == 5
    assert all(SERVER in line and "--block" in line for line in LINES)


@pytest.mark.parametrize("line", LINES)
def test_each_line_of_the_page_runs_in_virtual_time(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    virtual = "--profile llama-3.1-8b-h100 --arms bf16"
    simulated = line.replace("replay", "simulate", 1).replace(SERVER, virtual)
    agentload(simulated, db=tmp_path / "x.duckdb")
    found = figures(capsys.readouterr().out)
    assert found["Successful requests"] == 150
    assert found["Failed requests"] == 0


def test_the_figures_of_the_block_are_those_of_the_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "x.duckdb"
    agentload(
        "simulate short_chat --profile llama-3.1-8b-h100 --arms bf16 --num-prompts 40 --rate inf "
        "--pairs 1 --block",
        db=database,
    )
    said = capsys.readouterr().out
    found = figures(said)
    with duckdb.connect(str(database), read_only=True) as connection:
        calls = connection.sql(
            "SELECT ttft_ms, tpot_ms, turn_ms, prompt_tokens, output_tokens, due_ns, done_ns, "
            "chunk_ns FROM turns"
        ).fetchall()
    seconds = max(each[6] for each in calls) / 1e9
    assert len(calls) == 40
    assert len({round(each[5] / 1e6) for each in calls}) == 1  # all at once
    assert found["Total input tokens"] == sum(each[3] for each in calls)
    assert found["Total generated tokens"] == sum(each[4] for each in calls)
    assert found["Benchmark duration (s)"] == pytest.approx(seconds, abs=0.011)
    assert found["Request throughput (req/s)"] == pytest.approx(40 / seconds, rel=0.01)
    for name, values in (
        ("TTFT", [each[0] for each in calls]),
        ("TPOT", [each[1] for each in calls if each[1] is not None]),
        ("E2EL", [each[2] for each in calls]),
        ("ITL", [(b - a) / 1e6 for each in calls for a, b in pairwise(each[7])]),
    ):
        assert found[f"Mean {name} (ms)"] == pytest.approx(mean(values), abs=0.006)
        assert found[f"Median {name} (ms)"] == pytest.approx(median(values), abs=0.006)
        assert found[f"P99 {name} (ms)"] >= found[f"Median {name} (ms)"]
    assert {len(line) for line in said.splitlines() if line.startswith(("=", "-", "Mean"))} == {50}


def test_an_endless_rate_is_written_as_it_was_typed() -> None:
    words = ("replay", "rag", "--endpoints", "e", "--rate", "inf", "--num-prompts", "150")
    made = build_study(*split(words))
    assert isinstance(made, Replay)
    assert made.load.max_calls == 150
    written = argv(made)
    assert written[written.index("--rate") + 1] == "inf"
    assert build_study(*split(written)) == made
    with pytest.raises(UsageError, match="--rate inf starts every session at once"):
        build_study(*split((*words, "--windows", "2")))


@pytest.mark.loopback
def test_a_replay_of_servers_prints_the_block_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agentload(
        "replay demo-chat --endpoints emulated:llama-3.1-8b-h100/bf16 --num-prompts 3 --rate inf "
        "--pairs 1 --wait-cap user=0.1 --block",
        db=tmp_path / "x.duckdb",
    )
    assert figures(capsys.readouterr().out)["Successful requests"] == 3
