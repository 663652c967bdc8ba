from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.case import Case
from advisor.decide import assess, decide
from advisor.evidence import AccuracyBucket, Evidence, WorkloadClass
from advisor.legs.safe import safe_leg
from advisor.policy import Policy
from advisor.steps import Questions
from tests.advisor.cases import BUCKETS, bare, compared
from tests.advisor.worlds import answers

SHORT, LONG = np.full(50, 7_000.0), np.full(50, 120_000.0)


def _bucket(length: float, *, lost: int, won: int, items: int = 500) -> AccuracyBucket:
    both = round(0.85 * items)
    neither = items - both - lost - won
    return AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=length,
        both=both,
        reference_only=lost,
        arm_only=won,
        neither=neither,
        garbage=0,
    )


def _case(buckets: tuple[AccuracyBucket, ...], *, chat: float = 0.5) -> Case:
    classes = (
        WorkloadClass(name="chat", gpu_time_share=chat, context_tokens=SHORT),
        WorkloadClass(name="agents", gpu_time_share=1 - chat, context_tokens=LONG),
    )
    return assess(bare(accuracy=buckets, workloads=classes), Policy())


def _fine_but_at_128k() -> tuple[AccuracyBucket, ...]:
    return tuple(
        _bucket(length, lost=61 if length == BUCKETS[-1] else 5, won=6) for length in BUCKETS
    )


def test_a_long_bucket_that_fails_is_no_veto_on_a_class_that_never_gets_there() -> None:
    case = _case(_fine_but_at_128k())
    assert {name: safe_leg(case, "fp8", name).leg.state for name in ("chat", "agents", None)} == {
        "chat": "yes",
        "agents": "no",
        None: "no",
    }


@pytest.mark.parametrize(("lost", "side", "state"), [(12, "p_for", "yes"), (36, "p_against", "no")])
def test_answers_are_proven_at_half_of_alpha_as_good_or_worse(
    lost: int, side: str, state: str
) -> None:
    evidence = bare(accuracy=tuple(_bucket(length, lost=lost, won=6) for length in BUCKETS))
    p = getattr(safe_leg(assess(evidence, Policy()), "fp8", "chat"), side)
    assert p is not None
    assert 0 < p < 0.4
    just, short = (
        safe_leg(assess(evidence, Policy(alpha=2 * p * share)), "fp8", "chat").leg
        for share in (1.001, 0.999)
    )
    assert (just.state, short.state) == (state, "unclear")


@pytest.mark.parametrize(
    ("lengths", "where"), [(BUCKETS, "at 8k to 128k"), (BUCKETS[-1:], "at 128k")]
)
def test_a_leg_says_at_which_lengths_answers_were_compared(
    lengths: tuple[float, ...], where: str
) -> None:
    leg = safe_leg(
        assess(
            bare(accuracy=tuple(_bucket(length, lost=5, won=5) for length in lengths)), Policy()
        ),
        "fp8",
        "chat",
    ).leg
    assert leg.reason.startswith("accuracy 0.0 pp")
    assert f"{where}, margin 3 pp" in leg.reason


def test_short_buckets_do_not_thin_what_a_long_class_loses() -> None:
    lost = (
        20,
        21,
        19,
        30,
        33,
        47,
    )  # Qwen3-30B-A3B: +0.4, +0.2, +0.6, -1.9, -2.6, -5.4 points by length, in 500 items
    buckets = tuple(
        _bucket(length, lost=each, won=won)
        for length, each, won in zip(BUCKETS, lost, (22, 22, 22, 20, 20, 20), strict=True)
    )
    whole = assess(bare(accuracy=buckets, workloads=()), Policy())
    assert safe_leg(whole, "fp8", None).leg.state == "yes"  # pooled, six lengths hide the last
    case = _case(buckets, chat=0.8)
    server = safe_leg(case, "fp8", None).leg
    assert safe_leg(case, "fp8", "agents").leg.state != "yes"
    assert server.state != "yes"
    assert {need.step for need in server.needs} <= {
        need.step for need in safe_leg(case, "fp8", "agents").leg.needs
    }


@pytest.mark.parametrize(("share", "state"), [(0.99, "unclear"), (1.01, "no")])
def test_a_loss_of_one_of_two_classes_counts_for_the_server_at_half_the_level(
    share: float, state: str
) -> None:
    buckets = (_bucket(BUCKETS[0], lost=6, won=6), _bucket(BUCKETS[-1], lost=36, won=6))
    p = safe_leg(_case(buckets), "fp8", "agents").p_against
    assert p is not None
    classes = _case(buckets).evidence.workloads
    case = assess(bare(accuracy=buckets, workloads=classes), Policy(alpha=2 * 2 * p * share))
    assert (safe_leg(case, "fp8", "agents").leg.state, safe_leg(case, "fp8", None).leg.state) == (
        "no",
        state,
    )


def test_a_class_of_less_than_a_tenth_does_not_bind_the_server() -> None:
    case = _case(_fine_but_at_128k(), chat=0.95)
    assert (safe_leg(case, "fp8", None).leg.state, safe_leg(case, "fp8", "agents").leg.state) == (
        "yes",
        "no",
    )


def test_garbage_at_a_length_that_a_class_never_reaches_is_no_veto_on_it() -> None:
    rng = np.random.default_rng(1)
    base = tuple(
        answers(
            rng,
            arm="fp8",
            task="needle",
            context_tokens=length,
            items=600,
            right=0.9,
            change=0.0,
            discordance=0.02,
        )
        for length in BUCKETS
    )
    clean = tuple(replace(each, garbage=0, reference_garbage=0) for each in base)
    classes = (
        WorkloadClass(name="chat", gpu_time_share=0.5, context_tokens=SHORT),
        WorkloadClass(name="agents", gpu_time_share=0.5, context_tokens=LONG),
    )
    evidence: Evidence = compared(
        effect=-0.2, accuracy=(*clean[:-1], replace(clean[-1], garbage=60)), workloads=classes
    )
    said = {
        each.workload: "garbage" in each.reason
        for each in (*decide(evidence).classes, *decide(evidence).server)
    }
    assert said == {"chat": False, "agents": True, None: True}


def test_a_reference_that_knows_nothing_shows_no_arm_to_be_safe() -> None:
    blind = tuple(
        replace(_bucket(length, lost=0, won=0), both=0, neither=500) for length in BUCKETS
    )
    leg = safe_leg(_case(blind), "fp8", None).leg
    assert (leg.state, "cannot show a loss" in leg.reason) == ("untested", True)


@pytest.mark.parametrize(
    ("lost", "won", "items", "more", "in_all"),
    [
        # A tenth of 300 differs: 1,198 in all would do if each weighed
        # alike; lengths stand for unequal shares of the calls.
        (3, 2, 50, 1080, 1380),
        # None of 120 differs, and 3 in 120 still may: agreement of a few is no proof.
        (0, 0, 20, 360, 480),
    ],
)
def test_the_plan_counts_items_in_all_and_adds_to_those_asked(
    lost: int, won: int, items: int, more: int, in_all: int
) -> None:
    buckets = tuple(_bucket(length, lost=lost, won=won, items=items) for length in BUCKETS)
    leg = safe_leg(assess(bare(accuracy=buckets), Policy()), "fp8", "chat").leg
    assert leg.state == "unclear"
    (need,) = leg.needs
    assert (need.pairs, need.step) == (
        more,
        Questions(lengths=tuple(1024 * each for each in (8, 16, 32, 64, 96, 128)), items=in_all),
    )


@pytest.mark.parametrize(
    ("arm", "said"), [("fp8", " at these context lengths"), ("other", ""), (None, "")]
)
def test_what_was_asked_at_other_lengths_is_told_of_the_arm_that_was_asked(
    arm: str | None, said: str
) -> None:
    asked = () if arm is None else (replace(_bucket(BUCKETS[0], lost=0, won=0), arm=arm),)
    case = replace(assess(bare(accuracy=asked), Policy()), accuracy=(), gates=())
    assert safe_leg(case, "fp8", None).leg.reason == f"accuracy was not tested{said}"


def test_answers_that_the_reference_has_not_either_need_other_questions_not_more() -> None:
    unknown = replace(_bucket(BUCKETS[0], lost=0, won=0), both=0, neither=36)
    leg = safe_leg(assess(bare(accuracy=(unknown,)), Policy()), "fp8", None).leg
    assert (leg.state, [need.what for need in leg.needs]) == (
        "untested",
        ["answers that pass the check 'answers possible'"],
    )
    assert [need.step for need in leg.needs] == [None]
