"""Answers that are wrong altogether: called broken
with the lengths, and never a matter of scales.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.assess.broken import faults
from advisor.decide import decide
from advisor.evidence import AccuracyBucket, Evidence
from advisor.policy import Policy
from tests.advisor.cases import BF16, FP8, bare, compared
from tests.advisor.rules.asking import QUIET

LENGTHS = (55_296.0, 98_304.0, 111_616.0)
CONTEXTS = (2, 2, 5)
DEPTHS = (0.125, 0.375, 0.625, 0.875)
Right = Callable[[float, int, float], bool]
"""Tells whether an answer is right, by length, context and depth."""


def always(length: float, context: int, depth: float) -> bool:
    return True


def never(length: float, context: int, depth: float) -> bool:
    return False


def canary(
    arm: Right,
    *,
    reference: Right = always,
    lengths: tuple[float, ...] = LENGTHS,
    contexts: tuple[int, ...] = CONTEXTS,
) -> tuple[AccuracyBucket, ...]:
    return tuple(bucket(arm, reference, *each) for each in zip(lengths, contexts, strict=True))


def bucket(arm: Right, reference: Right, length: float, contexts: int) -> AccuracyBucket:
    rows = [(context, depth) for context in range(contexts) for depth in DEPTHS]
    theirs = np.array([reference(length, *row) for row in rows])
    mine = np.array([arm(length, *row) for row in rows])
    return AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=length,
        both=int((theirs & mine).sum()),
        reference_only=int((theirs & ~mine).sum()),
        arm_only=int((~theirs & mine).sum()),
        neither=int((~theirs & ~mine).sum()),
        reference_scores=theirs.astype(np.float64),
        arm_scores=mine.astype(np.float64),
        clusters=np.array([context for context, _ in rows]),
        depths=np.array([depth for _, depth in rows]),
    )


def asked(*buckets: AccuracyBucket) -> Evidence:
    return bare(accuracy=buckets)


PLANNED = Policy(planned_looks=True)


@pytest.mark.parametrize(
    ("arm", "where"),
    [
        (never, "every length asked: 0 of 36 right at 54k to 109k where bf16 has 36 of 36"),
        (
            lambda length, *_: length < 90_000,
            "above 54k: 0 of 28 right at 96k to 109k where bf16 has 28 of 28",
        ),
        (
            lambda length, *_: length < 100_000,
            "above 96k: 0 of 20 right at 109k where bf16 has 20 of 20",
        ),
        (
            lambda length, context, _: length < 100_000 or context == 0,
            "above 96k: 4 of 20 right at 109k where bf16 has 20 of 20",
        ),
    ],
)
def test_an_arm_that_loses_most_answers_is_broken_from_a_length_on(arm: Right, where: str) -> None:
    decision = decide(asked(*canary(arm)), PLANNED)
    (verdict,) = decision.server
    at = "at " if where.startswith("every") else ""
    assert verdict.verdict == "avoid"
    assert verdict.reason.startswith(f"fp8 is broken {at}{where}.")
    assert f"avoid fp8, which is broken {at}{where.partition(':')[0]}" in decision.choice.headline
    assert "calibrat" not in f"{verdict.reason} {verdict.needs} {verdict.flips}"


def test_an_arm_that_is_broken_between_sound_lengths_is_broken_there() -> None:
    middle = canary(lambda length, *_: length != 98_304.0, contexts=(2, 4, 3))
    (verdict,) = decide(asked(*middle), PLANNED).server
    assert verdict.reason.startswith(
        "fp8 is broken at 96k: 0 of 16 right at 96k where bf16 has 16 of 16."
    )


def test_a_faster_arm_whose_answers_are_all_wrong_is_not_to_be_calibrated() -> None:
    faster = compared(effect=-0.2, noise=QUIET)
    broken = decide(
        replace(faster, accuracy=canary(never), arms=(BF16, replace(FP8, scales="default")))
    )
    assert broken.server[0].pays.state == "yes"
    assert (broken.server[0].verdict, broken.choice.verdict) == ("avoid", "avoid")


@pytest.mark.parametrize(
    ("arm", "reference", "why"),
    [
        (
            lambda length, context, depth: (length, context, depth) == (*LENGTHS[2:], 0, 0.125),
            always,
            "one of them is right",
        ),
        (
            never,
            lambda length, context, _: length > 100_000 and context < 2,
            "eight answers are no proof",
        ),
        (
            lambda length, context, _: length < 100_000 or context > 1,
            always,
            "two of five contexts",
        ),
        (never, never, "the reference cannot answer either"),
        (
            lambda _, context, depth: depth != 0.625 or context > 1,
            always,
            "at one depth, and not often",
        ),
    ],
)
def test_less_than_that_is_not_called_broken(arm: Right, reference: Right, why: str) -> None:
    found = faults(asked(*canary(arm, reference=reference)), PLANNED).broken
    if why == "one of them is right":
        assert found, "what is left in one context is no reason to believe the others"
    else:
        assert not found, why


def test_an_answer_that_only_the_arm_has_right_speaks_against_a_fault() -> None:
    def odd(length: float, context: int, depth: float) -> bool:
        return (context, depth) == (0, 0.125)

    won = canary(odd, reference=lambda *row: not odd(*row), lengths=LENGTHS[2:], contexts=(3,))
    assert not faults(asked(*won), PLANNED).broken
    lost = canary(never, reference=lambda *row: not odd(*row), lengths=LENGTHS[2:], contexts=(3,))
    assert faults(asked(*lost), PLANNED).broken


def test_a_fault_at_one_depth_is_a_reason_to_ask_more_and_then_broken() -> None:
    def hole(length: float, context: int, depth: float) -> bool:
        return depth != 0.375

    few = decide(asked(*canary(hole)), PLANNED)
    (finding,) = [each for each in few.findings if each.rule == "broken"]
    assert finding.message.startswith(
        "0 of 9 answers of fp8 are right, at 38% of the context at 54k to 109k, where bf16 has 9"
    )
    assert few.server[0].verdict == "test further"
    assert not [each for each in few.findings if each.asks_for == "calibrate"]
    (verdict,) = decide(asked(*canary(hole, contexts=(2, 3, 5))), PLANNED).server
    assert verdict.verdict == "avoid"
    assert verdict.reason.startswith(
        "fp8 is broken at every length asked, at 38% of the context: 0 of 10 right"
    )


def test_what_lies_beyond_the_contexts_of_a_workload_is_no_verdict_on_it_unless_a_canary_asked_there() -> (
    None
):
    short = replace(
        compared(effect=-0.2, noise=QUIET).workloads[0], context_tokens=np.full(200, 50_000.0)
    )
    evidence = replace(
        compared(effect=-0.2, noise=QUIET),
        workloads=(short,),
        accuracy=canary(lambda length, *_: length < 90_000),
    )
    assert decide(evidence, PLANNED).server[0].verdict != "avoid"
    assert decide(replace(evidence, canary=LENGTHS), PLANNED).server[0].verdict == "avoid"


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_a_sound_arm_whose_answers_flip_both_ways_is_never_called_broken(
    correlation: float,
) -> None:
    rng = np.random.default_rng(20261123)
    flips = 0.05
    for _ in range(1000):
        buckets = []
        for length, contexts in zip(LENGTHS, CONTEXTS, strict=True):
            reference = rng.random((contexts, len(DEPTHS))) < 0.9
            odd = rng.random((contexts, 1)) < flips
            own = rng.random((contexts, len(DEPTHS))) < flips
            turned = np.where(rng.random((contexts, len(DEPTHS))) < correlation**0.5, odd, own)
            # Of what turns, as much is lost as is won.
            arm = np.where(turned, rng.random((contexts, len(DEPTHS))) < 0.5, reference)
            buckets.append(bucket(_rows(arm), _rows(reference), length, contexts))
        found = faults(asked(*buckets), PLANNED)
        assert (found.broken, found.suspects) == ((), ())


def _rows(right: NDArray[np.bool_]) -> Right:
    def is_right(_: float, context: int, depth: float) -> bool:
        return bool(right[context, DEPTHS.index(depth)])

    return is_right
