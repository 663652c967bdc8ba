"""Answers that stand beside a run, as evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from advisor.evidence import AccuracyBucket, Evidence
from agentload.evidence.gather import gather
from agentload.model.rows import AnswerRow
from tests.evidence.runs import ARMS, pair_of_blocks, stored

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
    return [answer(arm, f"i{k}", right=RIGHT[mark]) for arm, given in marks.items() for k, mark in enumerate(given)]


def evidence(folder: Path, rows: Sequence[AnswerRow]) -> Evidence:
    with stored(folder, [*pair_of_blocks(), *rows], described=True) as connection:
        return gather(connection, "r1")


def test_answers_are_paired_item_by_item(tmp_path: Path) -> None:
    again = [answer(name, "i0", right=True, repetition=1) for name in ARMS]
    (bucket,) = evidence(tmp_path, [*answers(bf16="rrrww?", fp8="rrwrwr"), *again]).accuracy
    counted = replace(bucket, reference_scores=None, arm_scores=None, clusters=None)
    assert [getattr(counted, each.name) for each in fields(AccuracyBucket)] == [
        getattr(AccuracyBucket(arm="fp8", task="needle", context_tokens=4000.0, both=3, reference_only=1, arm_only=1, neither=1), each.name)
        for each in fields(AccuracyBucket)
    ]
    assert bucket.clusters is not None
    assert bucket.arm_scores is not None
    assert (bucket.clusters.tolist(), bucket.arm_scores.tolist()) == ([1, 1, 2, 3, 4, 5], [1, 1, 1, 0, 1, 0])


def test_an_arm_that_was_asked_twice_is_held_against_itself(tmp_path: Path) -> None:
    found = evidence(tmp_path, answers(**{"bf16": "rrw", "fp8": "rrr", "fp8@aa": "rwr"}))
    assert [(each.arm, each.both, each.reference_only, each.arm_only) for each in found.accuracy] == [("fp8", 2, 0, 1)]
    assert [(each.arm, each.both, each.reference_only, each.arm_only) for each in found.aa_accuracy] == [("fp8", 2, 1, 0)]
