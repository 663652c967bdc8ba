from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.assess import coverage
from advisor.decide import decide
from advisor.evidence import Calls, Evidence, Floats, OwnCalls, WorkloadClass
from advisor.policy import Policy
from advisor.results import Beyond
from advisor.verdict import ArmVerdict, Decision
from tests.advisor.cases import bare, compared

CHAT = np.linspace(5_000.0, 112_000.0, 101)


def own(contexts: Floats, *, workload: str = "chat", calls: int = 1_000) -> OwnCalls:
    none = np.zeros(0)
    return OwnCalls(
        workload=workload,
        calls=calls,
        context_tokens=contexts,
        new_tokens=none,
        output_tokens=none,
        wait_s=none,
        hit_rate=none,
    )


def played(evidence: Evidence, contexts: Floats) -> Evidence:
    """Return evidence whose calls have these contexts, over and over."""

    def sized(calls: Calls) -> Calls:
        output = np.full(len(calls), 100.0)
        return replace(
            calls,
            prompt_tokens=np.resize(contexts, len(calls)) - output,
            output_tokens=output,
            computed_tokens=output,
        )

    observations = tuple(
        replace(each, calls=None if each.calls is None else sized(each.calls))
        for each in evidence.observations
    )
    return replace(evidence, observations=observations)


def on_trace(evidence: Evidence, contexts: Floats = CHAT) -> Evidence:
    """Return evidence that knows the contexts of the user's own calls."""
    workloads = tuple(replace(each, context_tokens=contexts) for each in evidence.workloads)
    return replace(evidence, trace=(own(contexts),), workloads=workloads)


def of_server(decision: Decision) -> ArmVerdict:
    return next(each for each in decision.server if each.arm == "fp8")


def test_a_context_is_timed_where_three_pairs_reach_it_or_calls_are_as_long_as_often_as_in_the_trace() -> (
    None
):
    pairs = np.repeat(np.arange(4), 3)
    short = np.tile([5_000.0, 8_000.0, 10_000.0], 4)
    assert coverage.timed_to(short, pairs, CHAT) == 10_000.0
    stray = short.copy()
    stray[-1] = 112_000.0
    assert (
        coverage.timed_to(stray, pairs, CHAT) == 10_000.0
    )  # one call says nothing of a tail that half of the trace is in
    assert coverage.timed_to(stray[-6:], pairs[-6:], CHAT) == 10_000.0  # two pairs: what both reach
    assert (
        coverage.timed_to(stray, pairs, np.append(np.full(99, 8_000.0), 112_000.0)) == 112_000.0
    )  # as rare as in the trace
    assert coverage.timed_to(np.zeros(0), np.zeros(0, dtype=np.int64), CHAT) is None


def test_contexts_are_timed_up_to_the_last_call_before_those_that_the_trace_has_more_often() -> (
    None
):
    pairs = np.repeat(np.arange(4), 3)
    played = np.tile([5_000.0, 8_000.0, 10_000.0], 4)
    played[-3:] = 5_000.0, 60_000.0, 112_000.0
    # A fifth of the trace is longer: more than twice the share of the longest call, and less
    # than twice that of the two longest.
    trace = np.append(np.full(80, 8_000.0), np.full(20, 200_000.0))
    assert coverage.timed_to(played, pairs, trace) == 60_000.0


contexts = st.lists(st.integers(100, 200_000), min_size=1, max_size=40).map(
    lambda each: np.asarray(each, dtype=np.float64)
)


@given(own=contexts, pairs=st.integers(1, 8))
def test_all_is_covered_where_all_of_the_trace_was_played(own: Floats, pairs: int) -> None:
    rng = np.random.default_rng(1)
    # Once, in blocks, or whole in every pair.
    in_blocks = rng.integers(0, pairs, own.size)
    assert coverage.timed_to(own, in_blocks, own) == own.max()
    assert (
        coverage.timed_to(np.tile(own, pairs), np.repeat(np.arange(pairs), own.size), own)
        == own.max()
    )
    assert coverage.beyond(own, float(own.max())) == Beyond(
        to=float(own.max()), calls=0.0, tokens=0.0
    )


@given(own=contexts, seen=contexts, more=st.integers(1, 100_000), pairs=st.integers(1, 8))
def test_coverage_grows_with_the_longest_context_that_was_played(
    own: Floats, seen: Floats, more: int, pairs: int
) -> None:
    numbers = np.arange(seen.size) % pairs

    def covered(contexts: Floats) -> tuple[float, float]:
        to = coverage.timed_to(contexts, numbers, own)
        assert to is not None
        found = coverage.beyond(own, to)
        return 1 - found.calls, 1 - found.tokens

    shorter, longer = covered(seen), covered(np.where(seen == seen.max(), seen + more, seen))
    assert longer >= shorter
    assert 0 <= shorter[0] <= 1
    assert 0 <= shorter[1] <= 1


def test_a_verdict_is_bounded_by_the_contexts_that_were_timed() -> None:
    evidence = on_trace(played(compared(effect=-0.15, restarts=12), np.linspace(5_000, 30_720, 50)))
    decision = decide(evidence)
    verdict = of_server(decision)
    assert (verdict.verdict, verdict.holds_to) == ("use", 30_720.0)
    assert decision.choice.headline == "use fp8 for contexts up to 30k; test it further beyond"
    assert (
        "This holds for contexts up to 30k: 73% of your calls are longer, up to 109k, and "
        "need further testing."
    ) in verdict.reason
    assert [each.what for each in verdict.needs] == [
        "block pairs of the mix on fp8 at contexts of 30k to 109k"
    ]
    (found,) = decision.coverage
    assert (found.timed_to, found.longest) == (30_720.0, 112_000.0)
    assert found.call_share == pytest.approx(27 / 101)


def test_a_verdict_on_a_trace_that_was_played_whole_has_no_bound() -> None:
    decision = decide(on_trace(played(compared(effect=-0.15, restarts=12), CHAT)))
    assert decision.choice.headline == "use fp8"
    assert (of_server(decision).holds_to, decision.choice.holds_to) == (None, None)
    assert decision.coverage[0].call_share == 1.0
    context, *_ = decision.coverage[0].quantiles
    assert context.trace == (15_700.0, 58_500.0, 101_300.0, 110_930.0, 112_000.0)
    assert context.played == pytest.approx(context.trace, rel=0.1)


@pytest.mark.parametrize(
    ("effect", "word", "headline"),
    [
        (0.15, "avoid", "stay on bf16: avoid fp8 for contexts up to 30k; test it further beyond"),
        (
            0.0,
            "no difference",
            "stay on bf16: fp8 makes no difference for contexts up to 30k; test it further beyond",
        ),
    ],
)
def test_a_loss_or_no_difference_on_short_contexts_says_nothing_of_long_ones(
    effect: float, word: str, headline: str
) -> None:
    evidence = on_trace(
        played(compared(effect=effect, pairs=24, restarts=24), np.linspace(5_000, 30_720, 50))
    )
    decision = decide(evidence)
    assert (of_server(decision).verdict, decision.choice.headline) == (word, headline)


def test_nothing_is_wanted_beyond_what_the_servers_take() -> None:
    evidence = on_trace(
        played(compared(effect=-0.15, restarts=12), np.linspace(5_000, 131_072, 50)),
        np.linspace(5_000.0, 200_000.0, 101),
    )
    open_, closed = (
        replace(evidence.deployment, max_model_len=window) for window in (262_144, 131_072)
    )
    wanting, ended = (
        of_server(decide(replace(evidence, deployment=each))) for each in (open_, closed)
    )
    assert (wanting.holds_to, ended.holds_to) == (131_072.0, 131_072.0)
    assert (len(wanting.needs), ended.needs) == (2, ())


def test_wrong_answers_are_enough_at_any_length() -> None:
    evidence = on_trace(
        played(
            compared(effect=-0.15, change=-0.3, discordance=0.4, restarts=12),
            np.linspace(5_000, 30_720, 50),
        )
    )
    verdict = of_server(decide(evidence))
    assert (verdict.safe.state, verdict.holds_to) == ("no", None)


@given(
    longest=st.sampled_from([9_000, 17_000, 30_720, 60_000, 95_000, 112_000]),
    asked=st.sampled_from([16_384, 65_536, 131_072]),
)
def test_no_verdict_reaches_beyond_what_was_covered(longest: int, asked: int) -> None:
    evidence = compared(effect=-0.15, restarts=12)
    evidence = replace(
        evidence, accuracy=tuple(each for each in evidence.accuracy if each.context_tokens <= asked)
    )
    verdict = of_server(decide(on_trace(played(evidence, np.linspace(5_000, longest, 50)))))
    covered = min(longest, asked)
    beyond = coverage.beyond(CHAT, covered)
    if verdict.verdict == "use":
        assert verdict.holds_to == (covered if beyond.bound(Policy()) else None)


def test_a_class_of_the_trace_that_was_not_played_is_not_covered() -> None:
    evidence = played(compared(effect=-0.15, restarts=12), np.full(9, 8_000.0))
    trace = (
        own(np.full(9, 8_000.0), calls=90),
        own(np.full(9, 4_000.0), workload="code", calls=10),
    )
    decision = decide(replace(evidence, trace=trace))
    assert [(each.workload, each.calls, each.call_share) for each in decision.coverage] == [
        (None, 100, 0.9),
        ("chat", 90, 1.0),
        ("code", 10, 0.0),
    ]
    assert decision.choice.holds_to == 8_000.0


def test_quantiles_of_several_classes_weigh_each_call_alike() -> None:
    columns = (np.array([1.0]), np.array([10.0, 20.0]), np.zeros(0))
    assert coverage.quantiles(columns, (3, 2, 0)) == (1.0, 1.0, 20.0, 20.0, 20.0)
    assert coverage.quantiles((np.array([np.nan]),), (1,)) == ()
    assert coverage.quantiles((), ()) == ()


def test_nothing_is_said_of_a_run_that_does_not_know_its_trace() -> None:
    decision = decide(compared(effect=-0.15, restarts=12))
    assert (decision.coverage, decision.choice.holds_to) == ((), None)
    assert (
        decide(bare(workloads=(WorkloadClass(name="chat"),), trace=(own(CHAT),)))
        .coverage[0]
        .call_share
        == 0.0
    )


def with_windows(evidence: Evidence, **tokens: int | None) -> Evidence:
    return replace(
        evidence,
        arms=tuple(replace(each, max_model_len=tokens[each.name]) for each in evidence.arms),
    )


FEW_LONG = np.append(np.linspace(5_000.0, 40_000.0, 98), [60_000.0, 70_000.0, 80_000.0])


def test_an_arm_that_refuses_much_of_the_trace_is_avoided() -> None:
    evidence = on_trace(played(compared(effect=-0.15, restarts=12), np.linspace(5_000, 65_536, 50)))
    verdict = of_server(decide(with_windows(evidence, bf16=131_072, fp8=65_536)))
    assert (verdict.verdict, verdict.holds_to) == ("avoid", None)
    assert (
        verdict.reason
        == "fp8 takes contexts up to 64k: it refuses 44% of your calls, which bf16 serves."
    )


@pytest.mark.parametrize(
    ("bf16", "fp8"),
    [(65_536, 65_536), (65_536, 131_072), (None, None), (131_072, None), (None, 65_536)],
)
def test_only_an_arm_that_is_known_to_take_less_than_the_reference_is_held_to_refuse_anything(
    bf16: int | None, fp8: int | None
) -> None:
    evidence = on_trace(played(compared(effect=-0.15, restarts=12), np.linspace(5_000, 65_536, 50)))
    assert coverage.refusal(with_windows(evidence, bf16=bf16, fp8=fp8), "fp8") is None


def test_few_refused_calls_bound_what_is_said_of_an_arm() -> None:
    evidence = on_trace(
        played(compared(effect=-0.15, restarts=12), np.linspace(5_000, 48_000, 50)), FEW_LONG
    )
    decision = decide(with_windows(evidence, bf16=131_072, fp8=49_152))
    assert decision.choice.headline == "use fp8 for contexts up to 47k; it takes none above 48k"
    assert (
        "This holds for contexts up to 47k: fp8 refuses those above 48k, 3% of your calls."
        in of_server(decision).reason
    )
    slower = on_trace(
        played(compared(effect=0.15, restarts=12), np.linspace(5_000, 48_000, 50)), FEW_LONG
    )
    assert of_server(decide(with_windows(slower, bf16=131_072, fp8=49_152))).holds_to is None, (
        "slower is enough to avoid it"
    )
