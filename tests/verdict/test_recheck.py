"""A decision that asks for calibration leaves the questions that are asked of the result."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from agentload.errors import UsageError
from agentload.run.place import StudyPlace
from agentload.run.simulated_answers import answer_all, answers_of
from agentload.study.document import parse, yaml_text
from agentload.study.kinds import Ask
from agentload.study.parts import Live, Virtual
from agentload.verdict.policy import Setting
from agentload.verdict.recheck import recheck
from tests.cli.verbs import agentload

LENGTHS = (16_384, 32_768, 65_536, 131_072, 196_608, 262_144)
KIMI = Ask(
    servers=Virtual(profile="kimi-k2.5-accuracy", noise=False),
    tasks=("mrcr_like-4",),
    contexts=LENGTHS,
    items=600,
)


def answered(study: Ask, database: Path) -> str:
    """Have a profile answer, and say that servers did."""
    run = answer_all(answers_of(study, StudyPlace(database=database))).run_id
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "UPDATE arms SET url = 'http://127.0.0.1:' || (8000 + position) || '/v1' WHERE "
            "url IS NULL"
        )
    return run


def test_what_was_open_is_asked_of_the_calibrated_arm_where_the_other_was_served(
    tmp_path: Path,
) -> None:
    database = tmp_path / "x.duckdb"
    found = recheck(database, answered(KIMI, database), setting=Setting())
    assert (found.arm, found.model) == ("fp8", "kimi-k2.5")
    assert found.study.servers == Live(
        endpoints="bf16=http://127.0.0.1:8000/v1,fp8-calibrated=http://127.0.0.1:8001/v1"
    )
    assert (found.study.tasks, found.study.until_settled, found.study.items) == (
        ("mrcr_like-4",),
        True,
        None,
    )
    assert set(found.study.contexts) <= set(LENGTHS)
    assert 262_144 in found.study.contexts  # where 3.3 points were lost
    assert parse(yaml_text(found.study), at="again.yaml") == found.study


def test_the_verb_writes_script_prompts_and_what_is_asked_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = answered(KIMI, tmp_path / "agentload.duckdb")
    agentload("calibrate demo-rag --prompts 4", run=run)
    assert {path.name for path in (tmp_path / "calibrate").iterdir()} == {
        "calibrate.py",
        "prompts.jsonl",
        "again.yaml",
    }
    said = capsys.readouterr().out
    assert "vllm serve kimi-k2.5-fp8-kv-tensor" in said
    assert "served where fp8 was: agentload run calibrate/again.yaml --db agentload.duckdb" in said


def test_another_decision_and_a_simulated_run_leave_nothing_to_ask(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    sound = Ask(
        servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")),
        tasks=("needle",),
        contexts=(8192,),
        items=60,
    )
    run = answered(sound, database)
    with pytest.raises(UsageError, match="does not ask for calibration"):
        recheck(database, run, setting=Setting())
    simulated = answer_all(answers_of(KIMI, StudyPlace(database=database))).run_id
    with pytest.raises(UsageError, match="was simulated"):
        recheck(database, simulated, setting=Setting())
