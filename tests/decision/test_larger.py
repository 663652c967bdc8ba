"""The budget that is suggested pays for what it is suggested for."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from advisor.steps import Questions
from agentload.decision.larger import budget_for
from agentload.decision.look import Criterion
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.play import Deciding
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace
from agentload.run.servers import arms_of
from agentload.serve.processes import start
from agentload.serve.server import ServerOptions
from agentload.study.change import extend
from agentload.study.kinds import Decide
from agentload.study.parts import Live, TraceRef, Virtual


def test_a_larger_budget_makes_what_comes_before_longer() -> None:
    def looks(budget: float) -> dict[Criterion, float]:
        return {"speed": min(20.0, budget / 3), "canary": 1.0}

    assert (
        budget_for({"speed": 10.0, "canary": 1.0, "accuracy": 25.0}, looks, spent=36.0, budget=30.0)
        == 42
    )
    assert budget_for({"speed": 10.0, "accuracy": 25.0}, looks, spent=35.0, budget=30.0) == 42, (
        "and has time for more"
    )
    assert budget_for({"accuracy": 25.0}, looks, spent=80.0, budget=30.0) == 80, (
        "resumed, it has spent what others need not"
    )


def test_a_budget_is_large_enough_that_its_dry_run_has_the_questions_that_are_missing() -> None:
    def looks(budget: float) -> dict[Criterion, float]:
        return {"speed": 5.0, "canary": 1.0, "capacity": 9.0, "accuracy": 25.0}

    found = budget_for({"speed": 5.0, "accuracy": 25.0}, looks, spent=30.0, budget=30.0)
    speed, step_times = found / 3, 0.15 * found
    assert speed + 1.0 + step_times + 9.0 + 25.0 <= found < 72, "pairs may take a third"


def decided(study: Decide, folder: Path) -> DecisionOutcome:
    return Deciding(
        study=study, place=StudyPlace(database=folder / "x.duckdb"), audience=Audience()
    ).play()


def is_asked(wanted: DecisionOutcome, found: DecisionOutcome) -> bool:
    """Tell whether the question that a budget was
    suggested for was asked, or was not needed any more.
    """
    assert wanted.wants is not None
    stage = wanted.wants[0]
    most = max(
        (each.stage.amount for each in found.asked if each.stage.criterion == stage.criterion),
        default=0,
    )
    return most >= stage.amount or found.ending in ("decided", "open")


@pytest.mark.slow
def test_a_suggested_budget_pays_for_its_question(tmp_path: Path) -> None:
    study = Decide(
        traces=(TraceRef(path="chat"),),
        servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")),
        budget_s=1200.0,
    )
    first = decided(study, tmp_path / "first")
    assert first.ending == "budget"
    assert is_asked(
        first, decided(extend(study, budget_s=60 * first.enough_minutes), tmp_path / "then")
    )


@pytest.mark.slow
@pytest.mark.loopback
def test_a_budget_that_a_simulation_suggests_pays_for_the_questions_on_servers_too(
    tmp_path: Path,
) -> None:
    study = Decide(
        traces=(TraceRef(path="demo-chat"),),
        servers=Virtual(profile="llama-3.1-8b-h100"),
        budget_s=360.0,
    )
    first = decided(study, tmp_path / "first")
    assert (first.ending, first.document is None) == ("budget", False)
    assert first.document is not None
    (verdict,) = first.document.decision.server
    (needed,) = (each.step.items for each in verdict.safe.needs if isinstance(each.step, Questions))
    assert needed is not None
    arms = arms_of("llama-3.1-8b-h100", ["bf16", "fp8"])
    with start(arms, ServerOptions(noise=False, speed=3.0, port=0)) as servers:
        urls = ",".join(f"{arm}={url}" for arm, url in servers.urls.items())
        place = StudyPlace(database=tmp_path / "then.duckdb")
        budget_s = 60 * first.enough_minutes
        then = replace(study, servers=Live(endpoints=urls), budget_s=budget_s)
        foretold = Deciding(study=then, place=place, audience=Audience()).forecast()
    assert next(each.amount for each in foretold if each.criterion == "accuracy") >= needed
