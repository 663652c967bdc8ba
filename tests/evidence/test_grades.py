from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest

from advisor.evidence import AccuracyBucket, Evidence
from agentload.evidence import grades
from agentload.evidence.gather import gather
from agentload.evidence.grades import Curve, TaskScore, area, curves, summarise
from agentload.evidence.view import run_view
from agentload.model.rows import AnswerRow
from tests.evidence.runs import ARMS, pair_of_blocks, stored

# Table 2 and its neighbours of "The State of FP8 KV-Cache and Attention
# Quantization in vLLM" (vLLM blog, 2026-04-22): scores from 8k tokens on, each
# length twice the one before, and the published area. Weights / KV cache.
PUBLISHED = {
    "llama-3.3-70b h100 bf16/bf16": ((79.7, 60.0, 54.4, 37.7, 15.9), 38.9),
    "llama-3.3-70b h100 bf16/fp8": ((76.0, 58.1, 55.0, 37.4, 14.6), 38.2),
    "llama-3.3-70b h100 fp8/bf16": ((78.0, 58.7, 55.0, 37.6, 14.5), 38.4),
    "llama-3.3-70b h100 fp8/fp8": ((77.6, 58.4, 54.5, 36.4, 12.8), 37.3),
    "qwen3-30b-a3b h100 bf16/bf16": ((50.2, 53.4, 55.3, 43.6, 49.3, 37.1), 45.8),
    "qwen3-30b-a3b h100 bf16/fp8": ((50.6, 53.6, 55.9, 41.7, 46.7, 31.7), 43.1),
    "qwen3-30b-a3b h100 fp8/bf16": ((50.9, 53.8, 55.7, 44.0, 45.9, 38.0), 44.9),
    "qwen3-30b-a3b h100 fp8/fp8": ((50.7, 55.9, 56.6, 42.7, 48.1, 31.0), 43.9),
    "qwen3-30b-a3b b200 bf16/bf16": ((50.6, 53.0, 56.6, 43.9, 48.5, 37.7), 45.8),
    "qwen3-30b-a3b b200 bf16/fp8": ((50.9, 52.3, 55.3, 41.3, 45.4, 31.4), 42.4),
    "qwen3-30b-a3b b200 fp8/bf16": ((51.1, 52.3, 55.0, 44.5, 48.6, 39.1), 46.2),
    "qwen3-30b-a3b b200 fp8/fp8": ((51.6, 54.5, 57.7, 42.2, 48.3, 31.9), 44.2),
    "qwen3.5-27b h100 bf16/bf16": ((100, 98.0, 99.7, 95.1, 96.5, 80.6, 63.3, 35.5), 65.6),
    "qwen3.5-27b h100 bf16/fp8": ((100, 98.9, 99.9, 96.5, 97.0, 82.9, 64.2, 33.7), 66.1),
    "qwen3.5-27b h100 fp8/bf16": ((100, 98.7, 99.4, 96.1, 96.4, 80.4, 60.1, 32.5), 63.6),
    "qwen3.5-27b h100 fp8/fp8": ((100, 98.3, 99.4, 95.8, 95.8, 80.6, 61.4, 36.1), 65.0),
    "kimi-k2.5 h200 bf16/bf16": ((95.4, 77.8, 69.2, 57.1, 59.5, 46.0), 58.0),
    "kimi-k2.5 h200 bf16/fp8": ((95.0, 74.8, 67.2, 55.5, 58.2, 42.7), 56.0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_areas_follow_from_the_published_scores(name: str) -> None:
    scores, published = PUBLISHED[name]
    found = area({8192 << place: score for place, score in enumerate(scores)})
    assert found == pytest.approx(published, abs=0.1)


def test_a_recovered_area_can_hide_a_length_that_did_not_recover() -> None:
    (reference, whole), (arm, recovered) = (
        PUBLISHED[f"qwen3-30b-a3b h100 {each}"] for each in ("bf16/bf16", "fp8/fp8")
    )
    assert recovered / whole > 0.95
    assert (
        min(low / high for low, high in zip(arm, reference, strict=True))
        == arm[-1] / reference[-1]
        < 0.84
    )


def test_one_length_is_no_curve() -> None:
    assert (area({4096: 1.0}), area({})) == (None, None)


def cell(arm: str, length: int, score: float | None) -> TaskScore:
    return TaskScore(
        task="t", context_tokens=length, arm=arm, right=0, answered=1, failed=0, score=score
    )


def test_a_length_that_the_reference_was_not_asked_at_is_measured_against_all_right() -> None:
    cells = [
        cell("a", 1000, 0.5),
        cell("a", 2000, 0.5),
        cell("b", 1000, 0.4),
        cell("b", 2000, 0.4),
        cell("b", 4000, 0.6),
    ]
    curve = next(each for each in curves(cells, ["a", "b"]) if each.arm == "b")
    assert (curve.worst_context, curve.worst) == (4000, 0.6)


def test_a_curve_tells_its_area_and_its_worst_length_beside_the_reference() -> None:
    scores = {"a": (0.9, 0.5, 0.4), "b": (0.9, 0.25, 0.4)}
    cells = [
        cell(arm, 1000 * (place + 1), score)
        for arm, own in scores.items()
        for place, score in enumerate(own)
    ]
    assert tuple(
        curves([*cells, cell("c", 1000, 0.5), cell("c", 2000, None)], ["a", "b", "c"])
    ) == (
        # compares as a float
        Curve(task="t", arm="a", area=pytest.approx(0.575), worst_context=3000, worst=0.4),  # type: ignore[arg-type]
        # as above
        Curve(task="t", arm="b", area=pytest.approx(0.45), worst_context=2000, worst=0.5),  # type: ignore[arg-type]
    )


RIGHT = {"r": True, "w": False, "?": None}


def answer(arm: str, item: str, *, right: bool | None, repetition: int = 0) -> AnswerRow:
    return AnswerRow(
        run_id="r1",
        arm=arm,
        task="needle",
        item=item,
        context_tokens=4000,
        depth=None,
        repetition=repetition,
        score=None if right is None else float(right),
        right=right,
        answer="",
    )


def answers(**marks: str) -> list[AnswerRow]:
    """Return an answer for each mark of each arm: right, wrong or unread."""
    return [
        answer(arm, f"i{k}", right=RIGHT[mark])
        for arm, given in marks.items()
        for k, mark in enumerate(given)
    ]


def evidence(folder: Path, rows: Sequence[AnswerRow]) -> Evidence:
    with stored(folder, [*pair_of_blocks(), *rows], described=True) as connection:
        return gather(connection, run_view(connection, "r1"))


def test_answers_are_paired_item_by_item(tmp_path: Path) -> None:
    again = [answer(name, "i0", right=True, repetition=1) for name in ARMS]
    (bucket,) = evidence(tmp_path, [*answers(bf16="rrrww?", fp8="rrwrwr"), *again]).accuracy
    counted = replace(bucket, reference_scores=None, arm_scores=None, clusters=None, depths=None)
    assert [getattr(counted, each.name) for each in fields(AccuracyBucket)] == [
        getattr(
            AccuracyBucket(
                arm="fp8",
                task="needle",
                context_tokens=4000.0,
                both=3,
                reference_only=1,
                arm_only=1,
                neither=1,
            ),
            each.name,
        )
        for each in fields(AccuracyBucket)
    ]
    assert bucket.clusters is not None
    assert bucket.arm_scores is not None
    assert (bucket.clusters.tolist(), bucket.arm_scores.tolist()) == (
        [1, 1, 2, 3, 4, 5],
        [1, 1, 1, 0, 1, 0],
    )


def test_an_arm_that_was_asked_twice_is_held_against_itself(tmp_path: Path) -> None:
    found = evidence(tmp_path, answers(**{"bf16": "rrw", "fp8": "rrr", "fp8@aa": "rwr"}))
    assert [
        (each.arm, each.both, each.reference_only, each.arm_only) for each in found.accuracy
    ] == [("fp8", 2, 0, 1)]
    assert [
        (each.arm, each.both, each.reference_only, each.arm_only) for each in found.aa_accuracy
    ] == [("fp8", 2, 1, 0)]


def test_an_arm_that_answered_nothing_got_none_right_and_lost_none(tmp_path: Path) -> None:
    rows = [*pair_of_blocks(), answer("bf16", "a", right=None), answer("fp8", "a", right=None)]
    with stored(tmp_path, rows):
        pass
    found = summarise(tmp_path / "x.duckdb", "r1")
    assert [
        (each.right, each.answered, each.failed, each.lost, each.won) for each in found.arms
    ] == [(0, 0, 1, 0, 0)] * 2
    assert [each.right for each in found.cells] == [0, 0]


def test_checks_that_no_emulated_arm_can_pass_are_no_accuracy() -> None:
    def bucket(task: str, both: int) -> AccuracyBucket:
        return AccuracyBucket(
            arm="fp8",
            task=task,
            context_tokens=300,
            both=both,
            reference_only=0,
            arm_only=0,
            neither=4,
        )

    unread = bucket("check/multimodal", 0)
    read = (bucket("check/rag", 0), bucket("check/rag", 1), bucket("needle", 0))
    assert grades.without_unread_checks((unread, *read)) == read
