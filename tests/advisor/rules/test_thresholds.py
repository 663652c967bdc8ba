"""What rules say exactly at a threshold and next to
it, of cases in which one computed figure was replaced.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pytest

from advisor import rulebook
from advisor.deployment import GpuFacts
from advisor.estimate import Estimate
from advisor.evidence import AccuracyBucket, Prior, Telemetry
from advisor.policy import Policy
from advisor.rules import (
    below_break_even,
    capacity_bound,
    draft_acceptance,
    gain_lost_under_load,
    garbage_answers,
    head_dim_256,
    idle_bandwidth,
    kernel_changed,
    missing_evidence,
    not_a_line,
    one_of_two,
    other_gpu,
    pool_never_filled,
    ttft_bound,
    untested_lengths,
    window_layers,
    worst_length,
)
from advisor.steps import Calibrate, Features, MorePairs, Questions
from advisor.verdict import BreakEven, BucketResult, Finding, ItlLine
from tests.advisor.cases import BF16, FP8, LLAMA, bare, compared, search
from tests.advisor.rules.asking import case, chat_class, findings, with_telemetry


def estimate(value: float, low: float | None, high: float | None, *, n: int = 100) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=n, unit="relative", method="mean")


# evidence or a case
def said(rule: ModuleType, known: Any, **changes: object) -> list[Finding]:  # noqa: ANN401
    """Ask a rule about a case of which some figures were replaced."""
    asked = replace(known, **changes)
    return list(rulebook.findings(rule.check, asked))


def bucket(
    tokens: float, value: float, low: float | None, high: float | None, *, n: int = 100
) -> BucketResult:
    difference = estimate(value, low, high, n=n)
    return BucketResult(
        arm="fp8",
        task="needle",
        context_tokens=tokens,
        difference=difference,
        reference=0.9,
        changed_p=None,
    )


def test_the_surest_fall_is_the_worst_and_one_that_reaches_zero_is_none() -> None:
    plain = case(bare())
    sure, larger = bucket(8192, -0.02, -0.03, -0.01), bucket(16384, -0.2, -0.5, 0.1)
    (found,) = said(worst_length, plain, buckets=(larger, sure, bucket(4096, -0.3, None, None)))
    assert found.message == "The worst bucket is needle at 8k: -2.0 pp [-3.0, -1.0]."
    assert (found.kind, found.context_tokens, found.next_step) == (
        "opposes",
        8192,
        Questions(lengths=(8192,)),
    )
    assert (found.screening, found.leg) == (True, "safe")
    assert (
        said(worst_length, plain, buckets=(replace(sure, difference=estimate(-0.02, -0.04, 0.0)),))
        == []
    )
    assert said(worst_length, plain, buckets=()) == []
    slope = [
        bucket(8192.0 * 2**each, value, -0.1, 0.1)
        for each, value in enumerate((-0.010, -0.021, -0.029, -0.040))
    ]
    (grows,) = said(worst_length, plain, buckets=tuple(slope))
    assert "The loss grows by 1.0 pp each time the context doubles (p 0.00" in grows.message
    rises = [
        replace(each, difference=estimate(-each.difference.value, -0.1, 0.1)) for each in slope
    ]
    assert said(worst_length, plain, buckets=tuple(rises)) == []


def line(
    arm: str, *, slope: float = 2e-5, intercept: float = 6.0, users: int = 1, **changes: object
) -> ItlLine:
    found = ItlLine(
        arm=arm,
        users=users,
        slope_ms_per_token=estimate(slope, slope, slope),
        intercept_ms=estimate(intercept, intercept, intercept),
        theil_sen_slope=estimate(slope, slope, slope),
        lack_of_fit_p=None,
        straight=True,
        range_tokens=(1e3, 1e5),
    )
    return replace(found, **changes)  # type: ignore[arg-type]  # a test names the field


@pytest.mark.parametrize(
    ("high", "parallel", "speaks"),
    [(2.009, 1, True), (2.01, 1, False), (4.01, 2, True), (4.03, 2, False), (None, 1, False)],
)
def test_a_slope_leaves_a_gain_where_it_surely_reads_below_three_fifths_of_all_memory(
    high: float | None,
    parallel: int,
    speaks: bool,  # noqa: FBT001  # a case
) -> None:
    known = case(bare(deployment=replace(bare().deployment, tensor_parallel=parallel)))
    slow = line("fp8", bandwidth_tb_s=estimate(1.675, 1.0, high))
    found = said(idle_bandwidth, known, itl=(replace(slow, arm="bf16"), slow, line("fp8")))
    assert bool(found) == speaks
    if speaks:
        share = "50%" if parallel == 1 else "25%"
        assert found[0].message.startswith(
            f"By how its time per output token grows with context, fp8 reads the cache at 1.68 TB/s, "
            f"{share} of the peak"
        )


@pytest.mark.parametrize(("theirs", "speaks"), [(0.53, True), (0.529, False), (0.4, False)])
def test_drafts_that_are_accepted_three_points_less_often_are_told(
    theirs: float,
    speaks: bool,  # noqa: FBT001  # a case
) -> None:
    evidence = compared(effect=0.0, pairs=3)
    for arm, rate in (("bf16", theirs), ("fp8", 0.5)):
        evidence = with_telemetry(evidence, arm, Telemetry(acceptance_rate=rate))
    found = findings(draft_acceptance, evidence)
    assert bool(found) == speaks
    assert findings(draft_acceptance, with_telemetry(evidence, "bf16", Telemetry())) == []


@pytest.mark.parametrize(
    ("tokens", "ahead", "kind", "told"),
    [
        (
            999.0,
            "above",
            "opposes",
            "above the break-even of 2,000 [1,000, 3,000], and these batches are below it.",
        ),
        (1000.0, "above", "informs", "these batches are within its interval: which arm is faster"),
        (3000.0, "above", "informs", "these batches are within its interval: which arm is faster"),
        (3001.0, "above", "supports", "[1,000, 3,000], and these batches are above it."),
        (
            999.0,
            "below",
            "supports",
            "time per output token than bf16 below the break-even of 2,000",
        ),
        (3001.0, "below", "opposes", "[1,000, 3,000], and these batches are above it."),
    ],
)
def test_a_batch_lies_below_in_or_above_the_set(
    tokens: float, ahead: Literal["above", "below"], kind: str, told: str
) -> None:
    known = case(bare(workloads=(chat_class(context_tokens=np.full(3, tokens / 2), batch=2.0),)))
    bounded = BreakEven(
        arm="fp8",
        shape="bounded",
        tokens=2000.0,
        low=1000.0,
        high=3000.0,
        slope_z=-3.0,
        users=1.0,
        ahead=ahead,
    )
    (found,) = said(
        below_break_even, known, break_even=(replace(bounded, low=1.0, high=2.0), bounded)
    )  # the largest batch speaks
    assert (found.kind, told in found.message) == (kind, True)
    assert found.inequality is not None
    assert found.inequality.holds == {"supports": True, "opposes": False, "informs": None}[kind]
    assert found.inequality.relation == (">" if ahead == "above" else "<")
    assert (found.flips, found.next_step is None) == (
        "batches of 3,000" if tokens < 1000 else None,
        kind != "informs",
    )
    opened = replace(bounded, shape="half-line", high=None, tokens=None)
    (half,) = said(below_break_even, known, break_even=(opened,))
    assert f"{ahead} the break-even (at least 1,000), and these" in half.message
    (counted,) = said(below_break_even, known, break_even=(replace(bounded, pairs=8),))
    assert (counted.estimates[0].n, half.estimates[0].n) == (8, 1)
    assert half.flips is None
    assert (
        said(
            below_break_even,
            known,
            break_even=(replace(bounded, arm="other"), replace(bounded, shape="unclear")),
        )
        == []
    )
    nobody = case(bare(workloads=(chat_class(context_tokens=np.full(3, tokens)),)))
    assert said(below_break_even, nobody, break_even=(bounded,)) == []


@pytest.mark.parametrize(
    ("slope", "low", "speaks"),
    [
        (1e-5, -0.0799, True),
        (1e-5, -0.0801, False),
        (-3e-5, -0.4, True),
        (1.69e-5, -0.001, True),
        (1.71e-5, 0.0, False),
        (1e-5, 0.2, True),
    ],
)
def test_a_gain_is_lost_where_surely_less_than_four_fifths_of_what_lines_promise_is_measured(
    slope: float,
    low: float,
    speaks: bool,  # noqa: FBT001  # a case
) -> None:
    """At 100,000 tokens of the batch the lines take 10
    ms and, at half of the slope, 9 ms: a gain of 10%.
    """
    evidence = compared(
        effect=-0.01,
        pairs=6,
        workloads=(chat_class(context_tokens=np.full(3, 50_000.0), batch=2.0),),
    )
    lines = line("bf16", slope=2e-5, intercept=8.0), line("fp8", slope=slope, intercept=8.0)
    known = replace(case(evidence), itl=lines)

    class Told:
        """Stand for a case whose measured change is known."""

        def __getattr__(self, name: str) -> object:
            return getattr(known, name)

        def speed(self, *_: object) -> Any:  # noqa: ANN401  # a speed
            found = known.comparison("fp8", "chat", "tpot_ms")
            assert found is not None
            return replace(
                found, change=replace(found.change, relative=estimate(low + 0.01, low, low + 0.02))
            )

    told: Any = Told()
    found = gain_lost_under_load.check(told, FP8, evidence.workloads[0])
    assert (found is not None) == speaks
    if found is not None and slope == 1e-5:
        assert (
            "promise 10.0% less time per output token for the batches of chat (98k KV tokens)"
            in found.message
        )


@pytest.mark.parametrize(("mine", "theirs", "speaks"), [(9, 0, True), (5, 0, False), (9, 5, False)])
def test_garbage_is_a_veto_where_it_is_surely_more_than_the_references(
    mine: int,
    theirs: int,
    speaks: bool,  # noqa: FBT001  # a case
) -> None:
    some = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=8192,
        both=80,
        reference_only=5,
        arm_only=5,
        neither=10,
        garbage=mine,
        reference_garbage=theirs,
    )
    none = replace(some, context_tokens=4096, garbage=0, reference_garbage=0)
    unknown = replace(some, garbage=None)
    found = findings(garbage_answers, bare(accuracy=(none, some, unknown)))
    assert [each.message for each in found] == [
        f"{mine} of 100 answers to needle at 8k are garbage on fp8, {theirs} on bf16."
    ] * speaks
    # Six among three buckets are no more than chance may do; among one they are.
    six = replace(some, garbage=6, reference_garbage=0)
    assert findings(garbage_answers, bare(accuracy=(six,))) != []
    # Eight against one are 1.7%, eleven against three 2.4%,
    # and nine against two 2.9%: half of the error is for harm.
    for worse, better, is_told in ((8, 1, True), (11, 3, True), (9, 2, False)):
        assert (
            bool(
                findings(
                    garbage_answers,
                    bare(accuracy=(replace(some, garbage=worse, reference_garbage=better),)),
                )
            )
            == is_told
        )
    assert findings(garbage_answers, bare(accuracy=(six, none, none))) == []


@pytest.mark.parametrize(("share", "kind"), [(0.05, "informs"), (0.055, "opposes"), (0.0, None)])
def test_calls_beyond_the_longest_question_are_told_and_weigh_from_a_twentieth_on(
    share: float, kind: str | None
) -> None:
    tokens = np.where(np.arange(1000) < round(1000 * share), 200_000.0, 8_000.0)
    evidence = compared(effect=0.0, pairs=3, workloads=(chat_class(context_tokens=tokens),))
    found = findings(untested_lengths, evidence)
    assert {each.kind for each in found} == (set() if kind is None else {kind})
    assert {each.workload for each in found} == (set() if kind is None else {None, "chat"})
    if found:
        assert found[1].message.startswith(
            f"{share:.1%} of the calls of chat are longer than 128k (up to 195k), where"
        )
    assert (
        findings(
            untested_lengths,
            replace(evidence, arms=(BF16, replace(FP8, observed_dtype="bfloat16"))),
        )
        == []
    )


@pytest.mark.parametrize("arm", ["bf16", "fp8"])
@pytest.mark.parametrize(("share", "speaks"), [(0.5, False), (0.49, True)])
def test_a_pool_that_was_full_for_half_of_the_run_tells_of_capacity(
    arm: str,
    share: float,
    speaks: bool,  # noqa: FBT001  # a case
) -> None:
    crowd = (chat_class(working_set_tokens=400_000.0),)
    filled = {"bf16": Telemetry(), "fp8": Telemetry(), arm: Telemetry(pool_filled_share=share)}
    evidence = bare(workloads=crowd, server=tuple(filled.items()))
    found = findings(pool_never_filled, evidence)
    said = f"The KV pool was full for 49% of the run on {arm}:"
    assert [each.message.startswith(said) for each in found] == [True] * speaks
    small = replace(evidence, workloads=(chat_class(working_set_tokens=4.0),))
    assert findings(pool_never_filled, small) == []


@pytest.mark.parametrize(
    ("p", "why"),
    [(0.049, "kernels switch"), (0.05, "a few calls decide"), (None, "a few calls decide")],
)
def test_a_curve_is_bent_by_its_residuals_or_by_a_few_calls(p: float | None, why: str) -> None:
    bent = line("fp8", straight=False, lack_of_fit_p=p, users=8)
    (found,) = said(not_a_line, case(bare()), itl=(line("bf16"), bent))
    assert found.message.startswith(
        "The line through the times per output token of fp8 at batch 8 is unsafe: "
    )
    assert why in found.message
    assert ("lack of fit p" in found.message) == (p is not None)


@pytest.mark.parametrize(("share", "speaks"), [(0.5, True), (0.49, False)])
# a case
def test_turns_are_bound_by_their_first_token_from_a_half_on(share: float, speaks: bool) -> None:  # noqa: FBT001
    evidence = compared(effect=0.2, pairs=12)
    timed = []
    for each in evidence.observations:
        assert each.calls is not None
        lost = np.arange(len(each.calls)) % 7 == 0  # what died is not looked at
        ttft = np.where(
            lost, 9e9, np.round(share * each.calls.turn_ms * 1024) / 1024 + (share == 0.5)
        )
        timed.append(replace(each, calls=replace(each.calls, ttft_ms=ttft, ok=~lost)))
    policy = Policy(max_dropped_share=1.0)
    found = findings(ttft_bound, replace(evidence, observations=tuple(timed)), policy)
    assert bool(found) == speaks
    if found:
        assert (
            found[0].kind,
            found[0].message.startswith("50% of the turn latency of chat passes"),
        ) == ("opposes", True)


@pytest.mark.parametrize(
    ("pool", "kind"), [(462_000.0, "informs"), (462_001.0, "supports"), (300_000.0, "informs")]
)
def test_a_pool_that_limits_the_load_counts_for_what_it_holds(pool: float, kind: str) -> None:
    arms = (replace(BF16, pool_tokens=420_000.0), replace(FP8, pool_tokens=pool))
    evidence = bare(workloads=(chat_class(working_set_tokens=400_000.0),), arms=arms)
    mix, chat = findings(capacity_bound, evidence)
    assert (mix.kind, mix.workload, chat.workload, mix.leg) == (kind, None, "chat", "capacity")
    told = (
        "The pool limits this load (sessions at once hold 400,000 tokens, 95% of the pool of "
        "bf16); "
    )
    holds = f"fp8 holds {pool / 420_000:.2f}x the tokens of bf16."
    assert (
        mix.message == f"{told}{holds} Only long runs that fill the pool show what that is worth."
    )
    tried = replace(evidence, capacity=(*search("bf16", 16), *search("fp8", 33)))
    known, only = findings(capacity_bound, tried)
    assert (known.message, known.next_step, only.next_step) == (told + holds, None, None)
    # Where the loads that were tried show no gain, more tokens are none.
    alike = replace(evidence, capacity=(*search("bf16", 16), *search("fp8", 16)))
    assert {each.kind for each in findings(capacity_bound, alike)} == {"informs"}
    two = replace(
        tried,
        workloads=(
            *evidence.workloads,
            replace(evidence.workloads[0], name="code", working_set_tokens=1_000.0),
        ),
    )
    assert [
        each.next_step is None for each in findings(capacity_bound, two) if each.workload == "chat"
    ] == [False]
    for unread in (None, 0.0):
        assert (
            findings(
                capacity_bound, replace(evidence, arms=(arms[0], replace(FP8, pool_tokens=unread)))
            )
            == []
        )


@pytest.mark.parametrize(
    ("dim", "sm", "dtype", "speaks"),
    [
        (256, 90, "fp8_e4m3", True),
        (255, 90, "fp8", False),
        (512, 100, "fp8", False),
        (256, 90, "nvfp4", False),
    ],
)
def test_heads_of_256_on_hopper_are_slower_in_fp8(
    dim: int,
    sm: int,
    dtype: str,
    speaks: bool,  # noqa: FBT001  # a case
) -> None:
    deployment = replace(bare().deployment, gpu=GpuFacts(name="any", sm=sm))
    evidence = bare(
        model=replace(LLAMA, head_dim=dim),
        deployment=deployment,
        arms=(BF16, replace(FP8, observed_dtype=dtype)),
    )
    assert bool(findings(head_dim_256, evidence)) == speaks


@pytest.mark.parametrize(
    ("effect", "told", "kind"),
    [
        (-0.2, "keep the cache dtype of fp8", "supports"),
        (0.2, "keep prefix caching", "opposes"),
        (0.0, "neither is shown to be worth more", "opposes"),
    ],
)
def test_of_two_that_exclude_each_other_the_one_that_is_worth_more_is_kept(
    effect: float, told: str, kind: str
) -> None:
    arms = (BF16, replace(FP8, prefix_caching=False))
    (found,) = findings(one_of_two, compared(effect=effect, pairs=12, arms=arms))
    assert (
        found.kind,
        told in found.message,
        "fp8 ran without prefix caching, so" in found.message,
    ) == (kind, True, True)
    assert found.next_step == Features()
    (unmeasured,) = findings(one_of_two, bare(arms=arms))
    assert (unmeasured.next_step, unmeasured.kind) == (MorePairs(pairs=12), "opposes")
    assert findings(one_of_two, bare()) == []
    assert findings(one_of_two, bare(arms=(replace(BF16, prefix_caching=None), arms[1]))) == []
    assert (
        findings(one_of_two, bare(arms=(BF16, replace(arms[1], observed_dtype="bfloat16")))) == []
    )


def test_figures_of_another_gpu_are_counted() -> None:
    here = Prior(
        what="break_even_tokens", value=1.0, unit="tokens", gpu="H100-SXM", source="a", arm="fp8"
    )
    (found,) = findings(
        other_gpu,
        bare(
            priors=(
                here,
                replace(here, gpu="B200"),
                replace(here, gpu="A100"),
                replace(here, gpu=None),
            )
        ),
    )
    assert found.message.startswith(
        "2 published figures shown next to yours come from A100, B200, not from H100-SXM"
    )


@pytest.mark.parametrize(
    ("kernels", "dtypes", "speaks"),
    [
        (("A(1)", "A(1)"), ("bfloat16", "fp8"), False),
        (("A(1)", "B(2)"), ("bfloat16", "fp8"), True),
        (("A(1)", "B(2)"), ("bf16", "bfloat16"), False),
        (("A(1)", None), ("bfloat16", "fp8"), False),
        ((None, "B(2)"), ("bfloat16", "fp8"), False),
    ],
)
def test_a_kernel_that_changed_with_the_dtype_is_told(
    kernels: tuple[str | None, ...],
    dtypes: tuple[str, ...],
    speaks: bool,  # noqa: FBT001  # a case
) -> None:
    arms = tuple(
        replace(arm, kernel=kernel, observed_dtype=dtype)
        for arm, kernel, dtype in zip((BF16, FP8), kernels, dtypes, strict=True)
    )
    found = findings(kernel_changed, bare(arms=arms))
    assert bool(found) == speaks
    if found:
        assert "(--attention-backend B) separates them." in found[0].message


def test_the_pools_of_arms_that_skip_window_layers_are_told_or_said_to_be_unread() -> None:
    skip = replace(FP8, name="skip", skip_layers=("sliding_window",), pool_tokens=630_000.0)
    known = window_layers._pool_cost(skip, FP8, BF16)
    assert known == "the pool of skip holds 1.50x the tokens of bf16, that of fp8 2.00x"
    for arms in (
        (replace(skip, pool_tokens=None), FP8, BF16),
        (skip, replace(FP8, pool_tokens=None), BF16),
        (skip, FP8, replace(BF16, pool_tokens=0.0)),
    ):
        assert window_layers._pool_cost(*arms) == "a pool was not read"


@pytest.mark.parametrize(
    ("low", "high", "speaks"),
    [
        (-0.02, 0.02, False),
        (-0.2, -0.031, False),
        (0.031, 0.2, False),
        (-0.02, 0.031, False),  # "no difference" is what the verdict says of it
        (-0.02, 0.061, True),
        (-0.2, -0.03, True),
    ],
)
def test_speed_is_missing_evidence_as_long_as_the_margin_is_undecided(
    low: float,
    high: float,
    speaks: bool,  # noqa: FBT001  # a case
) -> None:
    known = case(compared(effect=0.0, pairs=6))

    class Told:
        """Stand for a case whose change is known."""

        def __getattr__(self, name: str) -> object:
            return getattr(known, name)

        def comparison(self, *_: object) -> Any:  # noqa: ANN401  # a speed
            found = known.comparison("fp8", "chat")
            assert found is not None
            return replace(
                found, change=replace(found.change, relative=estimate((low + high) / 2, low, high))
            )

    told: Any = Told()
    found = missing_evidence._speed(told, "fp8", "chat")
    assert (found is not None) == speaks
    assert Calibrate() != (None if found is None else found.next_step)


def test_a_margin_of_accuracy_is_told_in_points() -> None:
    told = [
        each.message for each in findings(missing_evidence, bare(), Policy(accuracy_margin=0.6))
    ]
    assert told[-1].endswith("settle a margin of 60 pp.")
