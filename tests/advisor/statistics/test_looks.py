"""Sequences of looks against simulated truths: how
many items they take, and how often they are wrong.
"""

from __future__ import annotations

import numpy as np
import pytest

from advisor.statistics import accuracy
from advisor.statistics.accuracy import AnswerCounts
from advisor.statistics.looks import AnswerTruth, Ends, _word, ends
from advisor.statistics.planning import PLANNED_ANSWERS, questions_a_context

LOOKS = (30, 120, 160, 220, 300, 400, 520, 680, 880, 1160, 1550)


@pytest.mark.parametrize(("flips", "most"), [(0.10, 900), (0.05, 600), (0.03, 450), (0.01, 330)])
def test_equal_arms_are_as_accurate_after_few_items(flips: float, most: int) -> None:
    found = ends(
        LOOKS, AnswerTruth(flips=flips, change=0.0), margin=0.03, level=PLANNED_ANSWERS, draws=1000
    )
    assert found.mean_items <= most
    assert found.worse == 0


@pytest.mark.slow
def test_at_the_margin_hardly_any_sequence_is_wrong() -> None:
    # 2.5% by simulation of 20,000; two standard errors of a thousand draws above it.
    found = ends(
        LOOKS, AnswerTruth(flips=0.1, change=-0.03), margin=0.03, level=PLANNED_ANSWERS, draws=1000
    )
    assert found.safe <= 0.025 + 0.01
    assert (
        ends(
            LOOKS,
            AnswerTruth(flips=0.12, change=-0.1),
            margin=0.03,
            level=PLANNED_ANSWERS,
            draws=300,
        ).mean_items
        <= 300
    )


@pytest.mark.slow
def test_eight_questions_a_context_read_a_quarter_of_the_contexts() -> None:
    alone = ends(
        LOOKS, AnswerTruth(flips=0.1, change=0.0), margin=0.03, level=PLANNED_ANSWERS, draws=300
    )
    shared = ends(
        LOOKS,
        AnswerTruth(flips=0.1, change=0.0, together=8, correlation=0.1),
        margin=0.03,
        level=PLANNED_ANSWERS,
        draws=150,
    )
    assert shared.contexts <= alone.contexts / 4
    margin = ends(
        LOOKS,
        AnswerTruth(flips=0.1, change=-0.03, together=8, correlation=0.1),
        margin=0.03,
        level=PLANNED_ANSWERS,
        draws=300,
    )
    assert margin.safe <= 0.025 + 0.018


def test_few_contexts_are_less_sure_than_as_many_independent_items() -> None:
    normal, few = (
        accuracy.tango(AnswerCounts(reference_only=5, arm_only=4, n=300, df=df)) for df in (None, 4)
    )
    assert (few.low or 0) < (normal.low or 0)
    alone, five, many = (
        accuracy.p_not_worse(AnswerCounts(reference_only=5, arm_only=4, n=300, df=df), margin=0.03)
        for df in (None, 4, 100_000)
    )
    assert five > alone
    assert many == pytest.approx(alone, rel=0.01)


@pytest.mark.parametrize(
    ("correlation", "expected"), [(0.0, 8), (0.1, 8), (0.6, 5), (0.9, 2), (1.0, 1)]
)
def test_the_more_the_questions_of_a_context_resemble_each_other_the_fewer_are_asked(
    correlation: float, expected: int
) -> None:
    assert questions_a_context(correlation, 8192, 256, most=8) == expected


def test_questions_that_share_a_context_count_for_what_they_are_worth() -> None:
    difference = np.where(
        np.arange(400) // 2 % 10 == 0, -1.0, 0.0
    )  # both of a pair are lost, or neither
    for together, said in ((1, -1), (2, 0)):
        found = accuracy.counts(difference, np.arange(400) // together)
        assert found.effect == pytest.approx(together, rel=0.15)
        assert _word(found, margin=0.065, level=0.01) == said


@pytest.mark.parametrize(("few", "many"), [(0.05, 0.3), (0.1, 0.8)])
def test_the_more_alike_the_questions_of_a_context_are_the_more_of_them_it_takes(
    few: float, many: float
) -> None:
    items = [
        ends(
            LOOKS,
            AnswerTruth(flips=0.06, change=0.0, together=8, correlation=each),
            margin=0.03,
            level=PLANNED_ANSWERS,
            draws=150,
        ).mean_items
        for each in (few, many)
    ]
    assert items[0] * 1.2 < items[1]


def test_shares_are_of_all_draws_by_the_word_that_ended_them_and_when() -> None:
    found = Ends(
        items=np.array([30.0, 120.0, 120.0, 160.0]),
        words=np.array([1.0, -1.0, 1.0, 0.0]),
        together=8,
    )
    assert (found.safe, found.worse, found.mean_items, found.contexts) == (
        0.5,
        0.25,
        107.5,
        (4 + 15 + 15 + 20) / 4,
    )
    assert [found.by(items, word) for items, word in ((29, 1), (30, 1), (119, -1), (120, -1))] == [
        0.0,
        0.25,
        0.0,
        0.25,
    ]
