from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.decide import assess
from advisor.deployment import QuestionRates
from advisor.evidence import AccuracyBucket, Evidence, WorkloadClass
from advisor.legs import questions
from advisor.policy import Policy
from advisor.steps import Questions
from tests.advisor.cases import bare

K = 1024


def _of(lengths: list[float], *, window: int | None = None) -> Evidence:
    evidence = bare(
        workloads=(
            WorkloadClass(name="chat", gpu_time_share=1.0, context_tokens=np.array(lengths)),
        )
    )
    return replace(evidence, deployment=replace(evidence.deployment, max_model_len=window))


@pytest.mark.parametrize(
    ("evidence", "lengths", "items"),
    [
        (_of([5_000.0] * 50 + [30_000.0] * 50), (8 * K, 16 * K, 30 * K), 1200),
        # One call in 200 is longer than what counts: as
        # many are asked there as at each length that does.
        (
            _of([5_000.0] * 100 + [30_000.0] * 99 + [60_000.0]),
            (8 * K, 16 * K, 32 * K, 59 * K),
            1620,
        ),
        # The longest speaks for a length that is hardly shorter.
        (_of([5_000.0] * 50 + [34_000.0] * 50), (8 * K, 16 * K, 34 * K), 1200),
        (_of([5_000.0] * 50 + [30_000.0] * 50, window=20_000), (8 * K, 16 * K, 19 * K), 1200),
        (_of([700.0] * 9), (K,), 1200),
    ],
)
def test_first_questions_settle_a_class_at_lengths_that_others_share(
    evidence: Evidence, lengths: tuple[int, ...], items: int
) -> None:
    need = questions.first(assess(evidence, Policy()), "fp8", "chat")
    assert (need.pairs, need.step) == (items, Questions(lengths=lengths, items=items))


@pytest.mark.parametrize("margin", [0.02, 0.0275, 0.03])
def test_a_class_and_the_server_miss_one_number_of_questions_though_lengths_differ(
    margin: float,
) -> None:
    """1,419 questions over three lengths and 1,420 over four were one need with two figures."""
    policy = Policy(accuracy_margin=margin)
    needs = []
    for longest in (16, 30, 60, 120):
        lengths = [1_000.0 * (longest - 1)] * 50 + [5_000.0] * 50
        needs.append(questions.first(assess(_of(lengths), policy), "fp8", "chat"))
    ladders = {len(need.step.lengths) for need in needs if isinstance(need.step, Questions)}
    assert ladders == {2, 3, 4, 5}
    assert len({need.pairs for need in needs if need.pairs}) == 1


def test_questions_take_what_those_before_took() -> None:
    evidence = _of([5_000.0] * 50 + [30_000.0] * 50)
    known = replace(
        evidence,
        deployment=replace(evidence.deployment, asking=QuestionRates(token_s=0.0, answer_s=0.5)),
    )
    minutes = [
        questions.first(assess(each, Policy()), "fp8", "chat").minutes for each in (evidence, known)
    ]
    assert minutes == [pytest.approx(1200 * 18 * K / 10_000 / 60), pytest.approx(1200 * 0.5 / 60)]


@pytest.mark.parametrize(("together", "in_all"), [(1, 660), (4, 1020)])
def test_what_is_missing_are_questions_also_where_some_share_a_context(
    together: int, in_all: int
) -> None:
    reference = np.ones(160)
    arm = reference.copy()
    reference[10::40] = 0.0
    arm[0::40] = 0.0
    bucket = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=30 * K,
        both=152,
        reference_only=4,
        arm_only=4,
        neither=0,
        reference_scores=reference,
        arm_scores=arm,
        clusters=np.arange(160) // together,
    )
    case = assess(replace(_of([30_000.0] * 50), accuracy=(bucket,)), Policy())
    found = case.accuracy_of("fp8", None)
    assert found is not None
    need = questions.more(case, found)
    assert isinstance(need.step, Questions)
    assert (need.step.items, need.pairs) == (in_all, in_all - 160)


@pytest.mark.parametrize(
    ("missing", "had", "unit", "level"),
    [
        (12, (0, 0, 0), 1, 4),
        (13, (0, 0, 0), 1, 5),
        (13, (0, 0, 0), 4, 8),
        (12, (0, 90, 4), 1, 8),
        (1, (7, 90, 4), 1, 5),
        (90, (0, 90), 1, 90),
        (92, (0, 90), 1, 91),
    ],
)
def test_questions_fill_lengths_like_water(
    missing: int, had: tuple[int, ...], unit: int, level: int
) -> None:
    evidence = bare(workloads=())
    lengths = tuple(4 * K * 2**each for each in range(len(had)))
    stored = dict(zip(lengths, had, strict=True))
    asking = QuestionRates(per_context=unit, stored=stored)
    evidence = replace(evidence, deployment=replace(evidence.deployment, asking=asking))
    case = assess(evidence, Policy())
    need = questions._need(case, "fp8", missing, lengths)
    assert need.step == Questions(lengths=lengths, items=level * len(had))
    assert need.pairs == sum(max(0, level - each) for each in had) >= missing


@pytest.mark.parametrize(("lost", "in_all"), [(0, 1200), (1, 1380), (4, 5220)])
def test_a_few_answers_are_planned_on_as_none_are(lost: int, in_all: int) -> None:
    arm, items = np.ones(9), 9
    arm[:lost] = 0.0
    bucket = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=30 * K,
        both=items - lost,
        reference_only=lost,
        arm_only=0,
        neither=0,
        reference_scores=np.ones(items),
        arm_scores=arm,
        clusters=np.arange(items),
    )
    case = assess(replace(_of([30_000.0] * 50), accuracy=(bucket,)), Policy())
    found = case.accuracy_of("fp8", None)
    assert found is not None
    need = questions.more(case, found)
    assert isinstance(need.step, Questions)
    assert (need.step.items, need.pairs) == (in_all, in_all - items)


@pytest.mark.parametrize(
    ("asked", "stored", "lengths"),
    [
        ((16_167.0, 16_384.0, 65_536.0), {16_384: 40, 65_536: 40}, (16_384, 65_536)),
        ((3_217.0, 3_590.0, 9_000.0), {}, (4_096, 9_216)),
        ((16_384.0, 17_408.0), {16_384: 8, 17_408: 8}, (16_384, 17_408)),
    ],
)
def test_more_is_asked_at_lengths_that_have_names_of_their_own(
    asked: tuple[float, ...], stored: dict[int, int], lengths: tuple[int, ...]
) -> None:
    assert questions._askable(asked, stored, window=None) == lengths


def test_no_length_is_asked_for_that_does_not_fit_into_the_window() -> None:
    assert questions._askable((31_900,), {}, window=32_000) == (31_744,)
