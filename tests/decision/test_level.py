"""Decisions whose truth is planted: what the user
named as acceptable and as its cost is what decides.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentload.builtin import find
from agentload.cli.main import main
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.play import Deciding
from agentload.decision.single_session import DRAWS, SingleSession
from agentload.report.advise import advise
from agentload.report.render import render
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace
from agentload.study.kinds import Decide
from agentload.study.parts import Slo, TraceRef, Virtual
from agentload.verdict.policy import Setting

ACCURACY = """    accuracy:
      - {task: niah, percent: 100.0, context_tokens: 1000, source: assumed, note: found}
      - {task: niah, percent: 91.2, context_tokens: 128000, source: blog}
"""


def planted(folder: Path, *, slower: float) -> str:
    """Write a profile whose FP8 arm answers as BF16
    does, holds twice as much and is so much slower.
    """
    shipped = find("profiles", "llama-3.1-8b-h100").read_text(encoding="utf-8")
    arms = ["arms:\n"]
    for arm, factor in (("bf16", 1.0), ("fp8", slower)):
        # Weights and the host take 6.3 ms of a step on both.
        step = (
            f"decode_ms: {6.44 + 6.3 * (factor - 1):g}, decode_ms_per_token: {4.37e-5 * factor:g}, "
            f"prefill_ms_per_pair: {8.62e-7 * factor:g}, batch8_attention: 0.0"
        )
        arms.append(f"  {arm}:\n    kv_dtype: {arm}\n    step: {{{step}}}\n{ACCURACY}")
    file = folder / "planted.yaml"
    file.write_text(shipped.partition("arms:\n")[0] + "".join(arms), encoding="utf-8")
    return str(file)


def decided(
    folder: Path, profile: str, slo: Slo, *, agents: int | None = 400, minutes: float = 45.0
) -> DecisionOutcome:
    study = Decide(
        traces=(TraceRef(path="chat"),),
        servers=Virtual(profile=profile, arms=("bf16", "fp8")),
        slo=slo,
        agents=agents,
        budget_s=60 * minutes,
    )
    place = StudyPlace(database=folder / "x.duckdb")
    return Deciding(study=study, place=place, audience=Audience()).play()


def asked(outcome: DecisionOutcome) -> list[str]:
    """Return what was asked, each criterion once."""
    return list(dict.fromkeys(each.stage.criterion for each in outcome.asked))


@pytest.mark.slow
def test_an_arm_that_is_slower_within_the_level_on_half_the_gpus_is_used(tmp_path: Path) -> None:
    outcome = decided(
        tmp_path, planted(tmp_path, slower=1.1), Slo(ttft_ms=2000.0, tpot_ms=40.0), minutes=120.0
    )
    assert outcome.document is not None
    decision = outcome.document.decision
    (verdict,) = decision.server
    assert (verdict.verdict, decision.choice.arm) == ("use", "fp8")
    assert "turn latency +" in verdict.pays.reason
    assert "GPUs decide because --slo and --agents were given" in verdict.reason
    assert asked(outcome)[2:] == [
        "service level",
        "canary",
        "screen",
        "step times",
        "capacity",
        "accuracy",
    ]
    pairs = [each.stage.amount for each in outcome.asked if each.stage.criterion == "speed"]
    assert pairs == [1, 4], "capacity decides, so speed is not refined before it"
    # Whoever reads the run judges it alike, the decider included.
    read = advise(tmp_path / "x.duckdb", outcome.run_id, setting=Setting())
    assert read.decision == decision
    assert json.loads(render(read, "json"))["decision"]["capacity"][1]["gpus_at_peak"]["low"] > 0


@pytest.mark.slow
def test_a_level_that_nobody_meets_is_the_headline_within_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = planted(tmp_path, slower=0.7)  # faster, and of no use
    outcome = decided(tmp_path, profile, Slo(ttft_ms=20.0, tpot_ms=2.0), agents=None)
    assert outcome.document is not None
    headline = "no arm meets ttft=20ms,tpot=2ms, even with one session"
    assert outcome.document.headline == headline
    assert outcome.ending == "decided"
    assert asked(outcome) == ["checks", "speed", "service level"]
    assert sum(each.minutes for each in outcome.asked) < 6
    database = str(tmp_path / "x.duckdb")
    for verb in (("advise", database), ("report", database, "-o", str(tmp_path / "r"))):
        monkeypatch.setattr("sys.argv", ["agentload", *verb, "--fail-on", "slo"])
        assert main() == 3
        error = capsys.readouterr().err
        assert error.startswith(f"error: bf16 misses ttft=20ms,tpot=2ms: {headline}")
        monkeypatch.setattr("sys.argv", ["agentload", *verb, "--fail-on", "use"])
        assert main() == 0


@pytest.mark.slow
def test_where_one_arm_meets_the_level_and_the_other_does_not_that_decides(tmp_path: Path) -> None:
    profile = planted(tmp_path, slower=2.5)
    outcome = decided(tmp_path, profile, Slo(tpot_ms=12.0), agents=None)
    assert outcome.document is not None
    (verdict,) = outcome.document.decision.server
    assert verdict.verdict == "avoid"
    assert verdict.reason.startswith(
        "It misses the service level: fp8 misses tpot=12ms even with one session"
    )
    assert asked(outcome) == ["checks", "speed", "service level"]


def test_the_level_is_asked_once_and_takes_a_small_part_of_the_budget(tmp_path: Path) -> None:
    servers = Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8"))
    without = Decide(traces=(TraceRef(path="chat"),), servers=servers)
    stated = Decide(traces=without.traces, servers=servers, slo=Slo(ttft_ms=2000.0))
    for study, is_wanted in ((without, False), (stated, True)):
        place = StudyPlace(database=tmp_path / "x.duckdb")
        deciding = Deciding(study=study, place=place, audience=Audience())
        level = SingleSession(means=deciding.means)
        assert level.is_wanted(deciding.known.ledger) is is_wanted
        (first, *_) = deciding.forecast()
        assert (first.criterion == "service level") is is_wanted
        if is_wanted:
            assert first.price.minutes == pytest.approx(DRAWS * 2 * 22 / 60)
