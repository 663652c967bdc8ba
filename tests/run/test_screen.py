"""Screens of profiles and of emulated servers: what is kept, and what the report says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentload.evidence.screen import scored_prompts, screen
from agentload.evidence.view import run_view
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.report.advise import advise
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace
from agentload.run.screen import screen as screened
from agentload.store.database import reading
from agentload.study.change import extend
from agentload.study.kinds import Ask
from agentload.study.parts import Live, TraceRef, Virtual
from agentload.tracefile.files import write
from agentload.verdict.policy import Setting

PROFILE = "llama-3.1-8b-h100-old-kernel"
VIRTUAL = Ask(
    servers=Virtual(profile=PROFILE, arms=("bf16", "fp8")), contexts=(2048, 98_304), screen=True
)


@pytest.mark.slow
def test_a_kernel_that_breaks_is_found_on_three_prompts_in_virtual_time(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    run = screened(VIRTUAL, StudyPlace(database=database), Audience()).run_id
    assert screened(VIRTUAL, StudyPlace(database=database), Audience()).run_id == run
    with reading(database) as connection:
        rows, excused = screen(run_view(connection, run), ["bf16", "fp8"])
        (whole,) = scored_prompts(run_view(connection, run), ["fp8"])
    assert ([row.prompt for row in rows if row.length == 98_304], excused) == ([0, 1, 2], ())
    assert (whole.length, whole.cached) == (2048, 0.0)
    assert all(row.cached is not None and row.cached > 0.98 for row in rows)
    document = advise(database, run, setting=Setting())
    (finding,) = (each for each in document.decision.findings if each.rule == "screened_answers")
    assert (
        finding.asks_for,
        "Answers of fp8 are broken on prompts of 96k tokens" in finding.message,
    ) == ("avoid", True)


def test_a_screen_of_sound_arms_informs_and_asks_for_graded_answers(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    study = extend(VIRTUAL, contexts=(1024, 4096), profile="llama-3.1-8b-h100")
    document = advise(
        database,
        screened(study, StudyPlace(database=database), Audience()).run_id,
        setting=Setting(),
    )
    (finding,) = (each for each in document.decision.findings if each.rule == "screened_answers")
    assert (finding.kind, "a sign of its scales" in finding.message) == ("informs", True)
    (verdict,) = (each for each in document.decision.server if each.arm == "fp8")
    assert (verdict.verdict, verdict.safe.state) == ("test further", "untested")


@pytest.mark.slow
@pytest.mark.loopback
def test_emulated_servers_are_screened_on_the_prompts_of_a_trace(tmp_path: Path) -> None:
    database, told = tmp_path / "x.duckdb", list[str]()
    sessions = (
        Session(
            session=f"s{n}",
            workload="w",
            start_s=0.0,
            turns=(Turn(add=(Segment(role="user", tokens=1300, key=f"k{n}"),), output=1),),
        )
        for n in range(8)
    )
    write(tmp_path / "own.jsonl", Trace(header=Header(name="own"), sessions=tuple(sessions)))
    study = Ask(
        servers=Live(endpoints="emulated:llama-3.1-8b-h100/bf16+fp8"),
        traces=(TraceRef(path=str(tmp_path / "own.jsonl")),),
        screen=True,
        aa="bf16",
    )
    run = screened(study, StudyPlace(database=database), Audience(notice=told.append)).run_id
    with reading(database) as connection:
        rows, excused = screen(run_view(connection, run), ["bf16", "fp8", "bf16@aa"])
    assert excused == ()
    assert {row.arm for row in rows} == {"fp8", "bf16@aa"}
    assert all(row.cached is not None and row.cached > 0.9 for row in rows)
    assert len({row.prompt for row in rows}) == 8
    assert re.fullmatch(r"screen: prompt 1 of 8, [\d,]+ tokens", told[0])
