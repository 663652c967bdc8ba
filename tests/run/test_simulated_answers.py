"""Answers in virtual time: as often right as the profile says, and kept as those of servers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from scipy.stats import binomtest

from advisor.policy import Policy
from agentload.emulator.answers import success_rate
from agentload.errors import PlanError, UsageError
from agentload.evidence.grades import area, summarise
from agentload.report.advise import advise
from agentload.run.place import StudyPlace
from agentload.run.servers import arms_of
from agentload.run.simulated_answers import answer_all, answers_of
from agentload.study.change import extend
from agentload.study.kinds import Ask
from agentload.study.parts import Virtual
from agentload.verdict.policy import Setting

BROKEN = "llama-3.1-8b-h100-old-kernel"
ASKED = Ask(
    servers=Virtual(profile=BROKEN, arms=("bf16", "fp8")),
    tasks=("needle",),
    contexts=(131_072,),
    depths=1,
    items=400,
)


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_arms_are_right_as_often_as_their_profile_says(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    ended = answer_all(answers_of(ASKED, StudyPlace(database=database)))
    assert (ended.answered, ended.failed, ended.left) == (800, 0, 0)
    right = dict(rows(database, 'SELECT arm, count(*) FILTER ("right") FROM answers GROUP BY arm'))
    for arm in arms_of(BROKEN, ["bf16", "fp8"]):
        # One honest draw in 10,000 misses this interval.
        interval = binomtest(right[arm.name], 400).proportion_ci(confidence_level=0.9999)
        assert interval.low <= success_rate(arm, 131_072) <= interval.high
    garbage = rows(
        database, "SELECT DISTINCT arm FROM answers WHERE signals ->> 'garbage' IS NOT NULL"
    )
    assert garbage == [("fp8",)]  # its kernel is broken at this length
    assert rows(
        database, "SELECT kind, count(*) FROM runs JOIN arms USING (run_id) GROUP BY kind"
    ) == [("simulated", 2)]
    assert rows(database, "SELECT status FROM legs") == [("done",)]


def test_the_same_questions_are_the_same_run_and_a_control_answers_as_its_arm(
    tmp_path: Path,
) -> None:
    database, study = tmp_path / "x.duckdb", extend(ASKED, items=60, aa="bf16")
    first, again = (
        answer_all(answers_of(study, StudyPlace(database=database))).run_id for _ in range(2)
    )
    assert first == again
    assert rows(database, "SELECT count(*) FROM answers") == [(180,)]
    other = """SELECT count(*) FROM answers a JOIN answers b USING (item) WHERE a.arm = 'bf16' AND b.arm = 'bf16@aa' AND a.score <> b.score"""
    assert rows(database, other) == [(0,)]


def test_more_items_are_added_to_a_run_and_none_is_asked_twice(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    run = answer_all(answers_of(extend(ASKED, items=30), StudyPlace(database=database))).run_id
    joined = [
        answer_all(
            answers_of(extend(ASKED, items=count), StudyPlace(database=database, into=run))
        ).answered
        for count in (30, 100, 100)
    ]
    assert joined == [0, 140, 0]
    assert rows(database, "SELECT count(*), count(DISTINCT (arm, item)) FROM answers") == [
        (200, 200)
    ]
    with pytest.raises(PlanError, match="has no arm 'bf16@aa'"):
        answer_all(answers_of(extend(ASKED, aa="bf16"), StudyPlace(database=database, into=run)))


def test_questions_longer_than_the_window_are_left_out(tmp_path: Path) -> None:
    made = answers_of(
        extend(ASKED, contexts=(8192, 1 << 20), items=20),
        StudyPlace(database=tmp_path / "x.duckdb"),
    )
    assert {each.context for each in made.left()} == {8192}


def test_a_profile_of_published_scores_alone_answers_by_the_scores_of_the_task(
    tmp_path: Path,
) -> None:
    database, kimi = tmp_path / "x.duckdb", Virtual(profile="kimi-k2.5-accuracy")
    asked = Ask(servers=kimi, tasks=("mrcr_like-4",), contexts=(262_144,), depths=1, items=1000)
    answer_all(answers_of(asked, StudyPlace(database=database)))
    right = dict(rows(database, 'SELECT arm, count(*) FILTER ("right") FROM answers GROUP BY arm'))
    for arm, percent in (("bf16", 46.0), ("fp8", 42.7)):
        interval = binomtest(right[arm], 1000).proportion_ci(confidence_level=0.9999)
        assert interval.low <= percent / 100 <= interval.high


def test_what_a_profile_cannot_answer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not your own items"):
        answers_of(extend(ASKED, own="items.jsonl"), StudyPlace(database=tmp_path / "x.duckdb"))
    with pytest.raises(UsageError, match="--aa: no arm 'x'"):
        answers_of(extend(ASKED, aa="x"), StudyPlace(database=tmp_path / "x.duckdb"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "task", "recovery"),
    [
        ("kimi-k2.5-accuracy", "mrcr_like-4", 96.6),
        ("qwen3-30b-a3b-accuracy", "mrcr_like-2", 94.1),
        ("qwen3-30b-a3b-accuracy-b200", "mrcr_like-2", 92.6),
        ("qwen3.5-27b-accuracy", "mrcr_like-4", 100.8),
        ("llama-3.3-70b-accuracy", "mrcr_like-2", 98.2),
    ],
)
def test_without_noise_the_published_scores_and_what_is_kept_of_their_area_come_back(
    profile: str, task: str, recovery: float, tmp_path: Path
) -> None:
    arms = {arm.name: arm for arm in arms_of(profile, is_timed=False)}
    scored = (
        each
        for arm in arms.values()
        for each in arm.accuracy
        if each.task == task.replace("_like", "")
    )
    contexts = tuple(
        sorted({each.context_tokens for each in scored if each.context_tokens is not None})
    )
    database = tmp_path / "x.duckdb"
    asked = Ask(
        servers=Virtual(profile=profile, noise=False),
        tasks=(task,),
        contexts=contexts,
        depths=1,
        items=1000 * len(contexts),
    )
    found = summarise(database, answer_all(answers_of(asked, StudyPlace(database=database))).run_id)
    rates = {
        (name, length): success_rate(arm, length, task=task.replace("_like", ""))
        for name, arm in arms.items()
        for length in contexts
    }
    for cell in found.cells:
        assert cell.right / cell.answered == pytest.approx(
            rates[cell.arm, cell.context_tokens], abs=0.002
        )
    table = {
        name: area({length: rates[name, length] for length in contexts}) or 1.0 for name in arms
    }
    areas = {each.arm: each.area for each in found.curves}
    for name in arms:
        kept = table[name] / table["bf16"]
        assert areas[name] / areas["bf16"] == pytest.approx(kept, abs=0.005)
        assert name != "fp8" or 100 * areas[name] / areas["bf16"] == pytest.approx(
            recovery, abs=0.5
        )


@pytest.mark.slow
def test_kimis_published_scores_say_what_their_loss_is_to_a_margin(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    lengths = (8192, 16384, 32768, 65536, 131_072, 262_144)
    asked = Ask(
        servers=Virtual(profile="kimi-k2.5-accuracy", noise=False),
        tasks=("mrcr_like-4",),
        contexts=lengths,
        items=6000,
    )
    run = answer_all(answers_of(asked, StudyPlace(database=database))).run_id
    found = {}
    for margin in (0.03, 0.02, 0.01):
        document = advise(database, run, setting=Setting(policy=Policy(accuracy_margin=margin)))
        (found[margin],) = (each.verdict for each in document.decision.server if each.arm == "fp8")
    assert found == {0.03: "test further", 0.02: "calibrate", 0.01: "avoid"}


def test_a_task_that_a_profile_has_no_scores_for_is_refused_by_name(tmp_path: Path) -> None:
    asked = Ask(servers=Virtual(profile="kimi-k2.5-accuracy"), tasks=("needle",), contexts=(8192,))
    with pytest.raises(UsageError, match="says nothing of the task 'needle'"):
        answers_of(asked, StudyPlace(database=tmp_path / "x.duckdb"))
