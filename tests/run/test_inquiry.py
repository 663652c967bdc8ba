from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentload.ask.asker import Answered, Failed
from agentload.run.inquiry import FAILURES, Eval, Inquiry
from agentload.run.questions import Generated, asking
from agentload.study.kinds import Ask
from agentload.study.parts import Live
from agentload.study.stored import Notes

ASKED = Generated(asking=asking(tasks=["needle"], contexts=[4096], depths=1, items=1, repetitions=1, seed=0))
STUDY = Ask(servers=Live(endpoints="e"))
EVALUATION = Eval(run="r", study=STUDY, asked=ASKED, endpoints=(), database=Path("x.duckdb"), notes=Notes())
FAILED, ANSWERED = Failed(error="x"), Answered(text="x", finish_reason=None)


@pytest.mark.parametrize(
    ("replies", "dead"),
    [
        ([("a", FAILED)] * (FAILURES - 1), None),
        ([("a", FAILED)] * FAILURES, "a"),
        ([("a", FAILED)] * (FAILURES - 1) + [("a", ANSWERED)] + [("a", FAILED)] * (FAILURES - 1), None),
        ([("a", FAILED), ("b", FAILED)] * (FAILURES - 1), None),  # each arm counts for itself
        ([("a", FAILED), ("b", ANSWERED)] * FAILURES, "a"),
    ],
)
def test_an_arm_that_fails_so_many_times_in_a_row_ends_the_leg(replies: list[tuple[str, Answered | Failed]], dead: str | None) -> None:
    stops = asyncio.Event()
    inquiry = Inquiry(EVALUATION, stops=stops, listener=lambda *_: None)
    for arm, reply in replies:
        inquiry._watch(arm, reply)
    assert (inquiry.dead, stops.is_set(), FAILURES) == (dead, dead is not None, 16)
