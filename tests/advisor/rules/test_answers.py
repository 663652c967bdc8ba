"""Rules about what an arm does to answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.decide import decide
from advisor.evidence import AccuracyBucket, Evidence, Screened
from advisor.policy import Policy
from advisor.rules import (
    garbage_answers,
    recorded_turns,
    same_question_twice,
    screened_answers,
    systematic_shift,
    untested_lengths,
    worst_length,
)
from advisor.steps import Calibrate, Questions
from tests.advisor.cases import BF16, FP8, bare, compared
from tests.advisor.rules.asking import chat_class, findings
from tests.advisor.worlds import answers


def test_a_loss_that_grows_with_length_is_named_with_its_worst_bucket() -> None:
    rng = np.random.default_rng(1)
    buckets = tuple(
        answers(
            rng,
            arm="fp8",
            task="needle",
            context_tokens=8192.0 * 2**step,
            items=400,
            right=0.85,
            change=-0.03 * step,
            discordance=0.2,
        )
        for step in range(5)
    )
    (found,) = findings(worst_length, compared(effect=0.0, accuracy=buckets))
    assert "needle at 128k" in found.message
    assert "each time the context doubles" in found.message
    flat = tuple(
        answers(
            rng,
            arm="fp8",
            task="needle",
            context_tokens=c,
            items=3000,
            right=0.85,
            change=0.0,
            discordance=0.02,
        )
        for c in (8192.0, 65536.0)
    )
    assert findings(worst_length, compared(effect=0.0, accuracy=flat)) == []
    few = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=4096.0,
        both=6,
        reference_only=3,
        arm_only=1,
        neither=0,
    )
    (found,) = findings(worst_length, compared(effect=0.0, accuracy=(*buckets, few)))
    assert "needle at 128k" in found.message  # ten items that fall by 20 points show nothing


def _all_down(count: int, *, change: float = -0.03) -> Evidence:
    rng = np.random.default_rng(2)
    lengths = [8192.0 * 2**step for step in range(count)]
    return bare(
        accuracy=tuple(
            answers(
                rng,
                arm="fp8",
                task="mrcr",
                context_tokens=length,
                items=2000,
                right=0.8,
                change=change,
                discordance=0.04,
            )
            for length in lengths
        )
    )


def test_six_buckets_down_ask_for_calibration_five_do_not_and_calibrated_scales_are_not_asked_again() -> (
    None
):
    (found,) = findings(systematic_shift, _all_down(6))
    largest = 100 * max(
        (each.reference_only - each.arm_only) / 2000 for each in _all_down(6).accuracy
    )
    assert f"; the largest fall is {largest:.1f} pp. With scales of 1.0, that is" in found.message
    assert (found.asks_for, found.screening) == ("calibrate", True)
    assert findings(systematic_shift, _all_down(5)) == []
    assert (
        findings(
            systematic_shift, replace(_all_down(6), arms=(BF16, replace(FP8, scales="calibrated")))
        )
        == []
    )


def test_a_shift_within_the_margin_is_told_and_asks_for_nothing() -> None:
    one_lost = tuple(
        AccuracyBucket(
            arm="fp8",
            task="needle",
            context_tokens=8192.0 * 2**step,
            both=300,
            reference_only=1,
            arm_only=0,
            neither=49,
        )
        for step in range(6)
    )
    for evidence in (_all_down(6, change=-0.015), bare(accuracy=one_lost)):
        (small,) = findings(systematic_shift, evidence)
        assert (
            small.asks_for,
            small.message.endswith("Pooled, the loss is within the margin."),
        ) == (None, True)


def test_a_look_of_a_sequence_takes_eight_buckets_that_fell() -> None:
    found = [
        findings(systematic_shift, replace(_all_down(count), planned_answers=True))
        for count in (6, 7, 8)
    ]
    assert [len(each) for each in found] == [0, 0, 1]


def test_buckets_that_did_not_move_are_told() -> None:
    still = tuple(
        AccuracyBucket(
            arm="fp8",
            task="needle",
            context_tokens=1024.0 * (1 + step),
            both=80,
            reference_only=0,
            arm_only=0,
            neither=20,
        )
        for step in range(12)
    )
    evidence = _all_down(6)
    (found,) = findings(systematic_shift, replace(evidence, accuracy=(*evidence.accuracy, *still)))
    assert found.message.startswith(
        "6 of 18 buckets fell and none rose, 12 did not move (sign test p 0.016, screening)"
    )


def test_lengths_that_nobody_asked_about_are_told_with_their_share() -> None:
    lengths = np.concatenate([np.full(80, 20_000.0), np.full(20, 200_000.0)])
    found = findings(
        untested_lengths, compared(effect=0.0, workloads=(chat_class(context_tokens=lengths),))
    )
    assert [each.workload for each in found] == [None, "chat"]
    assert "20.0% of the calls of chat are longer than 128k (up to 195k), where" in found[1].message
    assert findings(untested_lengths, compared(effect=0.0)) == []


def test_equal_servers_that_lose_more_than_they_win_are_suspect() -> None:
    again = AccuracyBucket(
        arm="bf16",
        task="needle",
        context_tokens=8192.0,
        both=170,
        reference_only=20,
        arm_only=0,
        neither=10,
    )
    (found,) = findings(same_question_twice, bare(aa_accuracy=(again,)))
    assert (found.kind, found.next_step) == (
        "opposes",
        Questions(lengths=(8192,), items=400, aa="bf16"),
    )
    assert (
        found.arm is None
    )  # every arm is held against the reference: a doubt about it is one about each
    (found,) = findings(same_question_twice, bare(aa_accuracy=(replace(again, arm="fp8"),)))
    assert (found.kind, found.arm) == ("opposes", "fp8")
    assert findings(same_question_twice, bare()) == []


def test_more_garbage_than_on_the_reference_is_a_veto() -> None:
    buckets = compared(effect=0.0).accuracy
    clean = tuple(replace(each, garbage=1, reference_garbage=0) for each in buckets)
    assert findings(garbage_answers, compared(effect=0.0, accuracy=clean)) == []
    broken = (*clean[:-1], replace(clean[-1], garbage=60))
    (found,) = findings(garbage_answers, compared(effect=0.0, accuracy=broken))
    assert found.asks_for == "avoid"
    assert found.message == "60 of 200 answers to needle at 128k are garbage on fp8, 0 on bf16."


def _screen(
    times: dict[float, float], *, agreement: float = 0.95, cached: float | None = 0.99
) -> Evidence:
    rng = np.random.default_rng(3)
    own = {prompt: tuple(0.01 * rng.lognormal(0, 0.1, 3)) for prompt in range(8)}
    rows = (
        Screened(
            arm="fp8",
            prompt=prompt,
            length=length,
            variation=0.01 * factor,
            own=own[prompt],
            agreement=agreement,
            cached=cached,
        )
        for length, factor in times.items()
        for prompt in own
    )
    return bare(screen=tuple(rows))


def test_a_screen_ends_the_question_for_broken_answers_alone() -> None:
    (found,) = findings(screened_answers, _screen({8192.0: 90.0}, agreement=0.02))
    assert (found.kind, found.asks_for, found.context_tokens) == ("blocks", "avoid", 8192.0)
    assert (
        "Answers of fp8 are broken on prompts of 8k tokens: the likeliest token is that of bf16 "
        "at 2% of the places"
    ) in found.message
    (verdict,) = (
        each
        for each in decide(_screen({8192.0: 90.0}, agreement=0.02), Policy()).server
        if each.arm == "fp8"
    )
    assert verdict.verdict == "avoid"
    for times in (
        {8192.0: 1.0, 16384.0: 1.0},
        {8192.0: 3.0, 16384.0: 3.0},
        {8192.0: 1.0, 16384.0: 20.0},
    ):
        (found,) = findings(screened_answers, _screen(times))
        assert (found.kind, found.asks_for, found.screening) == ("informs", None, True)
        (verdict,) = (each for each in decide(_screen(times), Policy()).server if each.arm == "fp8")
        assert (verdict.safe.state, verdict.verdict) == ("untested", "test further")


def test_a_screen_says_where_to_ask_and_what_it_did_not_see() -> None:
    (step,) = findings(
        screened_answers, _screen({8192.0: 1.0, 16384.0: 1.0, 32768.0: 9.0, 65536.0: 8.0})
    )
    assert step.message.startswith(
        "Token probabilities of fp8 leave those of bf16 abruptly at prompts of 32k tokens: there "
        "they are 9"
    )
    assert "A kernel does something else on prompts of 32k to 64k." in step.message
    assert step.next_step == Questions(
        lengths=(16384, 32768, 65536)
    ) or step.next_step == Questions(lengths=(8192, 32768, 65536))
    (uniform,) = findings(screened_answers, _screen({8192.0: 3.0, 16384.0: 3.2}))
    assert (
        isinstance(uniform.next_step, Calibrate),
        "on prompts of 16k tokens, and about as far at every length from 8k to 16k: a sign of "
        "its scales" in uniform.message,
    ) == (True, True)
    (inside,) = findings(screened_answers, _screen({8192.0: 0.9}, cached=0.0))
    assert "That does not show that it is as accurate: only graded answers do." in inside.message
    assert "No probe was seen to read the prefix cache" in inside.message


@pytest.mark.parametrize(
    ("lost", "sessions", "told"),
    [
        (0, 40, ": no certain loss. That"),
        (12, 40, ": a certain loss. A changed reply is not a wrong one"),
        (1, 2, "Fewer than three sessions say nothing more."),
    ],
)
def test_recorded_turns_that_an_arm_makes_less_often_say_where_to_ask_and_decide_nothing(
    lost: int, sessions: int, told: str
) -> None:
    right = np.ones(sessions)
    made = np.where(np.arange(sessions) < lost, 0.0, 1.0)
    replies = AccuracyBucket(
        arm="fp8",
        task="recorded",
        context_tokens=8192.4,
        both=sessions - lost,
        reference_only=lost,
        arm_only=0,
        neither=0,
        reference_scores=right,
        arm_scores=made,
        clusters=np.arange(sessions),
    )
    (found,) = findings(recorded_turns, bare(followed=(replies,)))
    assert told in found.message
    assert found.message.startswith(
        f"fp8 replied as recorded in {sessions - lost} of {sessions} turns, bf16 in {sessions} "
        f"({lost} lost and 0 won)"
    )
    assert (found.kind, found.asks_for, found.screening) == ("informs", None, lost > 2)
    assert found.next_step == (Questions(lengths=(8192,)) if lost > 2 else None)
    for lacking in (
        replace(replies, reference_scores=None),
        replace(replies, arm_scores=None),
        replace(replies, arm="other"),
    ):
        assert findings(recorded_turns, bare(followed=(lacking,))) == []
