"""The commands under *How to reproduce*, typed in an empty folder, make the same run."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from agentload.cli import main as cli
from agentload.live import health
from agentload.model.rows import AnswerRow, CallRow
from agentload.store.places import journal_rows

TRACE = Path(__file__).parents[1] / "recorded/files/tiny.jsonl"
PROFILE = ("--profile", "llama-3.1-8b-h100", "--arms", "bf16,fp8")
SERVED = ("--endpoints", "emulated:llama-3.1-8b-h100/bf16+fp8")
KEPT = ("--db", "kept/runs.duckdb")
ADDED = (*KEPT, "--into", "first")
SIMULATED = ("simulate", "demo-chat", *PROFILE, "--pairs", "3", *KEPT, "--run-id", "first")
ASKED = ("--tasks", "needle", "--contexts", "8k,16k", "--items", "40")
PAIRS = 2
"""That a live run begins with."""
POLICY = "accuracy_margin: 0.05\n"
VIRTUAL = {
    "simulate": (
        SIMULATED,
        ("eval", *PROFILE, *ASKED, *ADDED),
        (
            "simulate",
            "demo-chat",
            *PROFILE,
            "--find",
            "max-concurrency",
            "--slo",
            "ttft=200ms",
            "--minutes",
            "1",
            *ADDED,
        ),
    ),
    "eval": (("eval", *PROFILE, *ASKED, *KEPT),),
    "decide": (("decide", "demo-chat", *PROFILE, "--budget", "4m", *KEPT, "--run-id", "d"),),
}


def typed(folder: Path, *words: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(sys, "argv", ["agentload", *words])
        assert cli.main() == 0, words


def place(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(TRACE, folder / "mine.jsonl")
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    return folder


def page(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report/decision.json").read_text("utf-8"))
    return found


def again(first: Path, folder: Path) -> None:
    """Type the commands that the page of the first folder ends with."""
    _, _, told = (first / "report/decision.md").read_text("utf-8").partition("How to reproduce")
    commands = re.findall(r"`(agentload [^`]+)`", told)
    assert len(commands) >= 2
    for each in commands:
        typed(folder, *shlex.split(each)[1:])


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=name, marks=() if name == "eval" else pytest.mark.slow)
        for name, words in VIRTUAL.items()
    ],
)
def test_a_run_in_virtual_time_is_the_same_to_the_last_figure(
    words: tuple[tuple[str, ...], ...], tmp_path: Path
) -> None:
    first, second = place(tmp_path / "first"), place(tmp_path / "second")
    for each in words:
        typed(first, *each)
    typed(first, "report", "kept/runs.duckdb", "--policy", "policy.yaml", "-o", "report")
    again(first, second)
    assert f"The run: `agentload {words[0][0]} " in (first / "report/decision.md").read_text(
        "utf-8"
    )
    assert page(second) == page(first)


@pytest.mark.slow
@pytest.mark.loopback
def test_a_live_run_that_was_given_more_sends_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MAX_SEND_LAG_MS", "MAX_STALL_MS", "MAX_COALESCED_SHARE"):
        monkeypatch.setattr(health, limit, math.inf)  # other tests may keep this machine busy
    first, second = place(tmp_path / "first"), place(tmp_path / "second")
    replay = ("replay", "mine.jsonl", *SERVED, *KEPT)
    typed(first, *replay, "--pairs", str(PAIRS), "--run-id", "first")
    typed(first, *replay, "--pairs", "4", "--resume", "first")
    typed(first, "eval", *SERVED, "--tasks", "needle", "--contexts", "2k", "--items", "2", *ADDED)
    typed(first, "report", "kept/runs.duckdb", "-o", "report")
    again(first, second)
    assert len(sent(first)) > 20
    assert sent(second) == sent(first)


def sent(folder: Path) -> set[tuple[object, ...]]:
    """Return what was sent and asked, of each pair on each arm."""
    found: set[tuple[object, ...]] = set()
    for row in journal_rows(folder / "kept/runs.duckdb", "first"):
        match row:
            case CallRow():
                # What a run is given when it is resumed has the salts of that part.
                prompt = row.prompt_hash if row.pair < PAIRS else None
                found.add((row.arm, row.pair, row.session, row.turn, prompt))
            case AnswerRow():
                found.add((row.arm, row.task, row.item, row.context_tokens, row.repetition))
            case _:
                pass
    return found
