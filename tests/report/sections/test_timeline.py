"""The run over time: blocks, gaps in what was sampled, and one session."""

import math
from dataclasses import replace

import pytest

from agentload.report.charts.spec import Lanes
from agentload.report.parts import Block, Document, RunFacts, Timeline, Turn
from tests.report import sample
from tests.report.telling import made


def lanes(told: Document, name: str) -> Lanes:
    found = next(chart for group in told.groups for chart in group.charts if chart.name == name)
    assert isinstance(found, Lanes)
    return found


def told(**facts: object) -> Document:
    # fields of the facts, by name
    return made(facts=replace(sample.facts(), **facts))  # type: ignore[arg-type]


def test_a_block_that_was_left_out_is_drawn_as_such_and_says_why() -> None:
    blocks = (
        Block(arm="bf16", pair=0, start_s=0.0, end_s=30.0),
        Block(arm="fp8", pair=0, start_s=31.0, end_s=60.0, invalid="the server restarted"),
        Block(arm="bf16@aa", pair=0, start_s=61.0, end_s=90.0),
    )
    found = lanes(told(blocks=blocks, timelines=()), "timeline")
    assert [(each.lane, each.look, each.low, each.high) for each in found.spans] == [
        (0, "block", 0.0, 30.0),
        (1, "invalid", 31.0, 60.0),
    ]
    assert found.spans[1].tip == "FP8, pair 0: 29 s, left out: the server restarted"
    assert "1 block left out (hatched)." in found.caption


def test_no_line_is_drawn_across_a_gap_in_the_samples() -> None:
    seconds = (0.0, 5.0, 10.0, 15.0, 400.0, 405.0)
    line = Timeline(
        arm="bf16", seconds=seconds, kv_usage=(0.1, 0.1, 0.1, 0.1, 0.2, 0.95), preemptions=()
    )
    (trace,) = lanes(told(timelines=(line,)), "timeline").traces
    assert [at for at, value in zip(trace.xs, trace.ys, strict=True) if math.isnan(value)] == [15.0]


def test_a_pool_that_never_fills_has_no_line() -> None:
    line = Timeline(arm="fp8", seconds=(0.0, 5.0), kv_usage=(0.1, 0.2), preemptions=(0.0, 0.0))
    blocks = (Block(arm="bf16", pair=0, start_s=0.0, end_s=30.0),)
    found = lanes(told(blocks=blocks, timelines=(line,)), "timeline")
    assert (found.traces, found.title) == ((), "Blocks over time")
    full = replace(line, kv_usage=(0.5, 1.0))
    assert len(lanes(told(blocks=blocks, timelines=(full,)), "timeline").traces) == 1


def test_preemptions_are_ticks_where_they_were_counted() -> None:
    line = Timeline(
        arm="fp8", seconds=(0.0, 5.0, 10.0), kv_usage=(0.9, 1.0, 1.0), preemptions=(0.0, 3.0, 3.0)
    )
    marks = [
        each for each in lanes(told(timelines=(line,)), "timeline").spans if each.look == "mark"
    ]
    assert [(each.low, each.tip) for each in marks] == [(5.0, "FP8: 3 preemptions")]


def test_a_session_is_its_turns_with_what_each_waited_for() -> None:
    turns = (
        Turn(
            arm="bf16",
            turn=0,
            due_s=0.0,
            released_s=0.0,
            first_s=0.4,
            done_s=2.0,
            status="ok",
            prompt_tokens=1_000,
            cached_tokens=0,
        ),
        Turn(
            arm="bf16",
            turn=1,
            due_s=5.0,
            released_s=5.5,
            first_s=5.6,
            done_s=7.0,
            status="ok",
            output_tokens=70,
        ),
    )
    found = lanes(told(session=turns), "session")
    assert found.lanes == ("BF16", " turn 1", " turn 2")
    assert [(each.lane, each.look, each.low, each.high) for each in found.spans] == [
        (1, "prefill", 0.0, 0.4),
        (1, "decode", 0.4, 2.0),
        (2, "wait", 2.0, 5.0),
        (2, "queue", 5.0, 5.5),
        (2, "prefill", 5.5, 5.6),
        (2, "decode", 5.6, 7.0),
    ]
    assert (
        found.spans[0].tip
        == "BF16, turn 1: time to first token, 1.0k prompt tokens, 0 cached, 400 ms"
    )


@pytest.mark.parametrize("facts", [RunFacts(made=sample.facts().made)])
def test_a_run_of_which_nothing_was_timed_has_no_timeline(facts: RunFacts) -> None:
    assert "The run over time" not in {group.title for group in made(facts=facts).groups}
