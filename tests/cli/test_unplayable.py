"""What `trace check` calls an error stops every verb that plays a trace, with the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.errors import AgentloadError, TraceError
from tests.cli.verbs import agentload

HEADER = '{"kind":"agentload-trace","version":1,"name":"x"}\n'
NO_START = '{"session":"a","workload":"w","turns":[{"add":[["user",400,"k"]],"output":3}]}\n'
SCHEMA = (
    '{"session":"b","workload":"w","start_s":0,"turns":[{"add":[["user",400,"l"]],"output":3,'
    '"check":[{"has":"x"},{"json":{"properties":{"n":{"type":"objekt"}}}}]}]}\n'
)
PROFILE = "llama-3.1-8b-h100"
VERBS = (
    f"simulate x.jsonl --profile {PROFILE} --db x.duckdb",
    f"simulate x.jsonl --profile {PROFILE} --db x.duckdb --find max-concurrency --slo ttft=3s",
    f"replay x.jsonl --endpoints emulated:{PROFILE} --db x.duckdb",
    f"replay x.jsonl --endpoints emulated:{PROFILE} --db x.duckdb --dry-run",
    f"decide x.jsonl --profile {PROFILE} --slo ttft=3s --agents 4 --db x.duckdb",
    f"eval --trace x.jsonl --endpoints emulated:{PROFILE}/bf16 --tasks needle --db x.duckdb",
    "calibrate x.jsonl --model m --out o",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", VERBS)
def test_a_trace_that_cannot_be_played_is_refused_with_its_line(folder: Path, verb: str) -> None:
    (folder / "x.jsonl").write_text(HEADER + "\n" + NO_START + SCHEMA)
    with pytest.raises(TraceError) as refused:
        agentload(verb)
    assert (refused.value.message, refused.value.hint) == (
        "x.jsonl:3: session a: has no start_s, and no turn before it spawns it, and 1 more problem",
        "agentload trace check x.jsonl",
    )
    assert not (folder / "x.duckdb").exists()


def test_check_prints_every_problem_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "x.jsonl").write_text(HEADER + NO_START + SCHEMA)
    with pytest.raises(AgentloadError, match="2 problems: it cannot be played"):
        agentload("trace check x.jsonl")
    assert capsys.readouterr().out.splitlines()[:2] == [
        "x.jsonl:2: session a: has no start_s, and no turn before it spawns it",
        (
            "x.jsonl:3: session b, turn 0: check 1: broken JSON Schema: $.properties.n.type: "
            '"objekt" is no type: object, array, string, integer, number, boolean, null'
        ),
    ]
