"""Windows cut tasks: what is estimated of these is what whole tasks take, in virtual time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import agentload
from advisor.assess.tasks import task_figures
from advisor.verdict import TaskFigures
from agentload.evidence.gather import gather
from agentload.evidence.view import run_view
from agentload.store.database import reading
from agentload.study.kinds import Replay
from agentload.study.parts import Load, TraceRef, Virtual


def tasks(study: Replay, database: Path) -> TaskFigures:
    agentload.simulate(study, db=database, run_id="r")
    with reading(database) as connection:
        (found,) = task_figures(gather(connection, run_view(connection, "r")))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("trace", "windows"), [("short_chat", 32), ("reasoning", 48)])
def test_windows_estimate_the_latency_of_whole_tasks_within_a_tenth(
    tmp_path: Path, trace: str, windows: int
) -> None:
    whole = Replay(
        traces=(TraceRef(path=trace),),
        servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16",), noise=False),
        load=Load(sessions=4, wait_cap_s={"user": 20.0}),
        seed=3,
    )
    cut = msgspec.structs.replace(whole, windows=windows, pairs=windows // 4)
    truth, estimated = tasks(whole, tmp_path / "whole.db"), tasks(cut, tmp_path / "cut.db")
    assert (truth.are_whole, estimated.are_whole) == (True, False)
    assert truth.latency_ms is not None
    assert estimated.latency_ms is not None
    assert estimated.latency_ms.value == pytest.approx(truth.latency_ms.value, rel=0.1)
    assert truth.ungraded == estimated.ungraded == "the trace checks no answer"
