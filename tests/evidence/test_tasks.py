"""What a task takes, by rows whose instants are known, and whether its answers passed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.assess.tasks import task_figures
from advisor.verdict import TaskFigures
from agentload.evidence.gather import gather
from agentload.evidence.summary import RunFigures, summarise
from agentload.evidence.view import run_view
from agentload.model.rows import AnswerRow, CallRow, Row
from tests.evidence.runs import ARMS, arm, block, call, leg, run, stored

TURN_MS = 30 + 80 + 81
"""Of every call: from when it was due to its last byte."""
SHAPE = {
    "workload": "rag",
    "calls": 4,
    "context_tokens": [1000],
    "new_tokens": [1000],
    "output_tokens": [5],
    "wait_s": [1.0],
    "hit_rate": [0.0],
    "tasks": 2,
    "task_turns": [2, 2],
    "tool_s": 0.0,
    "checked": 2,
}


def played(*, right: bool = True) -> list[Row]:
    """Two tasks of two turns on each arm, whose last answers are checked."""
    rows: list[Row] = []
    for name, at in (("bf16", 0), ("fp8", 200)):
        rows.append(block(name, 0, at))
        for session in ("s1", "s2"):
            last = call(name, 0, at + 5, session, 1, turns_left=0)
            rows += [call(name, 0, at + 1, session, 0, turns_left=1), last]
            is_right = right or session == "s2"
            rows.append(
                AnswerRow(
                    run_id="r1",
                    arm=name,
                    task="check/rag",
                    item=f"{session}[1]",
                    context_tokens=1000,
                    depth=None,
                    repetition=0,
                    score=float(is_right),
                    right=is_right,
                    answer="",
                    request_id=last.request_id,
                )
            )
    return rows


def figures(folder: Path, rows: list[Row], **noted: object) -> tuple[TaskFigures, RunFigures]:
    said = replace(run(), options=json.dumps({"trace_shape": [SHAPE], **noted}))
    described = [said, leg(), *(arm(name, place) for place, name in enumerate(ARMS))]
    with stored(folder, [*described, *rows], described=False) as connection:
        found = task_figures(gather(connection, run_view(connection, "r1")))
    return found[0], summarise(folder / "x.duckdb", "r1")


def test_a_tasks_latency_is_the_sum_of_its_turns_wherever_it_is_said(tmp_path: Path) -> None:
    task, summary = figures(tmp_path, played(), free_lengths=["bf16", "fp8"])
    assert task.latency_ms is not None
    assert task.latency_ms.value == pytest.approx(2 * TURN_MS)
    assert (task.arm, task.are_whole, task.tasks, task.done) == ("bf16", True, 2, 2)
    first = summary.arms[0]
    assert (first.tasks, first.tasks_done) == (2, 2)
    assert first.task_ms == pytest.approx(2 * TURN_MS)
    assert "bf16: 2 of 2 tasks done, 0.4 s each (waits left out)" in summary.text()


def test_an_answer_that_fails_its_check_fails_its_task(tmp_path: Path) -> None:
    task, _ = figures(tmp_path, played(right=False), free_lengths=["bf16", "fp8"])
    assert task.success is not None
    assert (task.success.value, task.success.n) == (0.5, 2)


def test_answers_of_a_forced_length_are_not_graded(tmp_path: Path) -> None:
    task, _ = figures(tmp_path, played())
    assert task.success is None
    assert task.ungraded.startswith("output lengths are forced")


def test_a_session_that_was_cut_is_no_task(tmp_path: Path) -> None:
    ends = [row for row in played() if not (isinstance(row, CallRow) and row.turn)]
    task, summary = figures(tmp_path, ends)
    assert not task.are_whole
    assert task.latency_ms is None
    assert summary.arms[0].tasks is None
    assert "tasks done" not in summary.text()
