"""What is laid out knows what it is a part of: the
shape of the whole trace, live and simulated alike.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from agentload.layout.coverage import trace_shapes
from agentload.run.audience import Audience
from agentload.run.files import read_traces
from agentload.run.lay import lay_out, simulation
from agentload.run.measure import simulate
from agentload.run.place import StudyPlace
from agentload.run.play import Playing
from agentload.run.simulate import Simulation
from agentload.study.kinds import Replay
from agentload.study.parts import Live, Load, TraceRef, Virtual

BEGINNING = Replay(
    traces=(TraceRef(path="chat"), TraceRef(path="rag")),
    servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")),
    pairs=2,
    load=Load(sessions=2, duration_s=10.0, wait_cap_s={"user": 5.0}, max_context_tokens=65_536),
)


def test_a_run_keeps_the_shape_of_its_whole_trace_whatever_part_is_played(tmp_path: Path) -> None:
    place = StudyPlace(database=tmp_path / "x.duckdb")
    simulated = simulation(BEGINNING, place).playing
    assert isinstance(simulated, Simulation)
    live = msgspec.structs.replace(
        BEGINNING, servers=Live(endpoints="emulated:llama-3.1-8b-h100/bf16+fp8")
    )
    with lay_out(live, place, is_dry=True) as found:
        assert isinstance(found.playing, Playing)
        shapes = found.playing.notes.trace_shape
    assert shapes == simulated.notes.trace_shape
    whole, _ = read_traces(BEGINNING.traces, max_context_tokens=65_536)
    assert shapes == trace_shapes(whole, BEGINNING.load.planned())
    assert [each.workload for each in shapes] == ["chat", "rag"]
    assert 60_000 < max(shapes[0].context_tokens) <= 65_536


def test_the_time_that_a_simulation_takes_is_without_reading_its_trace(tmp_path: Path) -> None:
    made = simulation(BEGINNING, StudyPlace(database=tmp_path / "x.duckdb"))
    began_s = time.monotonic()
    ended = simulate(made, Audience())
    assert 0 < (ended.simulated_s or 0.0) <= time.monotonic() - began_s
