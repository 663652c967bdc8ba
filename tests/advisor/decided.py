"""Worlds whose truth is known, each with the verdict that an expert would give on one arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from advisor.decide import decide
from advisor.deployment import Deployment, Model
from advisor.evidence import (
    AaControl,
    AccuracyBucket,
    Calls,
    Evidence,
    Floats,
    Observation,
    WorkloadClass,
)
from advisor.policy import Policy
from advisor.steps import Step
from advisor.verdict import Word
from tests.advisor.cases import BF16, BUCKETS, FP8, H100, SPREAD, bare, compared, observed, search
from tests.advisor.worlds import Noise, answers, simulated_calls

QUIET = Noise(call=0.05, wander=0.02, phi=0.3, block=0.005)
USUAL = Policy()
METRICS = ("turn_ms", "ttft_ms")
WRONG: dict[str, Any] = {"items": 300, "change": -0.16, "discordance": 0.3}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Hold evidence of which the truth is known, and what the decision on it has to say."""

    evidence: Callable[[], Evidence]
    verdict: Word | None  # None: no arm is compared
    policy: Policy | Callable[[Evidence], Policy] = USUAL
    arm: str = "fp8"
    equal: Mapping[str, object] = field(default_factory=dict)  # parts of the arm's verdict
    choice: Mapping[str, object] = field(default_factory=dict)  # parts of the choice
    classes: Mapping[str, Word] = field(default_factory=dict)  # verdicts on the arm by workload
    steps: tuple[Step, ...] = ()  # among those of the arm's needs
    says: tuple[str, ...] = ()  # in the reason
    hides: tuple[str, ...] = ()  # in the reason by no means, whatever its case
    headline: tuple[str, ...] = ()  # in the headline
    caveats: tuple[str, ...] = ()  # each in some caveat
    no_caveats: tuple[str, ...] = ()  # each in none
    findings: tuple[tuple[str, str], ...] = ()  # rules with a part of their message


def searched(evidence: Evidence, **agents: int) -> Evidence:
    """Add a capacity search in which each arm carries so many agents."""
    points = tuple(point for arm, most in agents.items() for point in search(arm, most))
    return replace(evidence, capacity=points)


def scaled(evidence: Evidence, factor: Floats | float, *metrics: str, arm: str = "fp8") -> Evidence:
    """Multiply what turns of an arm took."""

    def slower(each: Observation) -> Observation:
        calls = each.calls
        if each.arm != arm or calls is None:
            return each
        columns = {metric: getattr(calls, metric) * factor for metric in metrics or ("turn_ms",)}
        return replace(each, calls=replace(calls, **columns))

    return replace(evidence, observations=tuple(map(slower, evidence.observations)))


def lengths(evidence: Evidence) -> Floats:
    calls = evidence.calls("chat", "fp8")
    assert calls is not None
    return calls.prompt_tokens


def of_two_kinds(short: float, long: float, *, pairs: int = 24) -> Evidence:
    """Change the shorter two thirds of the turns by one factor,
    the longer third by another, longer turns taking longer too.
    """
    evidence = compared(effect=0.0, pairs=pairs, noise=QUIET)
    tokens = lengths(evidence)
    is_long = tokens > np.quantile(tokens, 2 / 3)
    return scaled(evidence, np.where(is_long, long, short))


def with_tail(evidence: Evidence, share: float, times: float, *metrics: str) -> Evidence:
    """Make a few turns of the arm slower, among turns that read and write alike."""
    alike = (lengths(evidence) / 8000) ** (-1 / 0.3)
    for arm in ("bf16", "fp8"):
        evidence = scaled(evidence, alike, *METRICS, arm=arm)
    hit = np.random.default_rng(5).random(alike.size) < share
    return scaled(evidence, np.where(hit, times, 1.0), *(metrics or METRICS))


def first_turns(evidence: Evidence) -> Evidence:
    """Keep the first turn of each session alone."""

    def first(each: Observation) -> Observation:
        calls = each.calls
        assert calls is not None
        columns: dict[str, Any] = {
            column.name: getattr(calls, column.name) for column in fields(Calls)
        }
        kept: dict[str, Any] = {
            name: None if column is None else column[calls.turn == 0]
            for name, column in columns.items()
        }
        return replace(each, calls=Calls(**kept))

    return replace(evidence, observations=tuple(map(first, evidence.observations)))


def wrong_above(
    length: float, *, asked_to: float = 131_072, change: float = -0.5, items: int = 200
) -> Evidence:
    """Return an arm that loses *change* of its answers above a length."""
    rng = np.random.default_rng(6)
    buckets = tuple(
        answers(
            rng,
            arm="fp8",
            task="needle",
            context_tokens=context,
            items=items,
            right=0.9,
            change=change if context > length else 0.0,
            discordance=0.05 - change if context > length else 0.03,
        )
        for context in BUCKETS
    )
    arms = (BF16, replace(FP8, scales="calibrated"))
    asked = tuple(each for each in buckets if each.context_tokens <= asked_to)
    return compared(effect=-0.15, noise=QUIET, accuracy=asked, arms=arms)


def of_long_calls(evidence: Evidence) -> Evidence:
    """Return evidence of calls of which three quarters have 120,000 tokens."""
    tokens = np.concatenate([np.full(23, 20_000.0), np.full(77, 120_000.0)])
    workload = replace(evidence.workloads[0], context_tokens=tokens)
    return replace(evidence, workloads=(workload,))


def garbage_above_100k(*, asked_to: float) -> Evidence:
    """Return an arm that answers nothing above 100,000 tokens, where a twentieth of calls lies."""
    rng = np.random.default_rng(6)
    buckets = tuple(
        answers(
            rng,
            arm="fp8",
            task="needle",
            context_tokens=context,
            items=150,
            right=0.9,
            change=-0.85 if context > 100_000 else 0.0,
            discordance=0.86 if context > 100_000 else 0.03,
        )
        for context in BUCKETS
        if context <= asked_to
    )
    contexts = np.concatenate([np.linspace(4000, 90_000, 95), np.full(5, 125_000.0)])
    workload = WorkloadClass(name="chat", gpu_time_share=1.0, context_tokens=contexts)
    return compared(effect=-0.15, accuracy=buckets, workloads=(workload,))


def loaded(evidence: Evidence, *, working_set: float) -> Evidence:
    """Return evidence of eight agents at the peak whose sessions hold so many tokens at once."""
    workload = replace(evidence.workloads[0], working_set_tokens=working_set)
    deployment = replace(evidence.deployment, peak_agents=8)
    arms = (replace(BF16, pool_tokens=420_000.0), FP8)
    return replace(evidence, workloads=(workload,), deployment=deployment, arms=arms)


def on_machines(*machines: str, swapped: bool = False) -> Evidence:
    """Return two arms on one or two machines, which they exchange half way where *swapped*."""
    evidence = compared(effect=-0.2, pairs=24, noise=QUIET, items=400)
    homes = (machines * 2)[:2]
    arms = tuple(
        replace(arm, machine=None if swapped else home)
        for arm, home in zip((BF16, FP8), homes, strict=True)
    )
    number = {"bf16": 0, "fp8": len(machines) - 1}

    def placed(each: Observation) -> Observation:
        assert each.calls is not None
        is_exchanged = (each.calls.pair >= 12) & swapped
        here, there = number[each.arm], len(machines) - 1 - number[each.arm]
        machine = np.where(is_exchanged, there, here)
        return replace(each, calls=replace(each.calls, machine=machine))

    return replace(
        evidence,
        deployment=replace(evidence.deployment, machines=machines, swapped=swapped),
        arms=arms,
        observations=tuple(map(placed, evidence.observations)),
    )


def p95(evidence: Evidence, arm: str) -> float:
    """Return the 95th percentile of an arm's time to first token."""
    named = {(each.name, each.arm): each.estimate.value for each in decide(evidence).figures}
    return named["ttft_ms.p95", arm]


def in_use(evidence: Evidence, arm: str, other: str) -> Evidence:
    """Return evidence in which *arm* is the reference."""
    buckets = tuple(replace(each, arm=other) for each in evidence.accuracy)
    return replace(evidence, reference=arm, accuracy=buckets)


def mixed(effects: Mapping[str, float]) -> Evidence:
    """Return evidence with one workload an effect, equal shares and good answers."""
    rng = np.random.default_rng(1)
    observations: list[Observation] = []
    for name, effect in effects.items():
        calls = simulated_calls(
            rng, pairs=16, effect=effect, noise=QUIET, swapped=False, restarts=16
        )
        observations.extend(observed(*calls, workload=name))
    share = 1 / len(effects)
    classes = tuple(
        WorkloadClass(name=name, gpu_time_share=share, context_tokens=SPREAD) for name in effects
    )
    return compared(effect=0.0, observations=tuple(observations), workloads=classes)


def three_arms(effect: float, factor: float, third: str, **changes: object) -> Evidence:
    """Return evidence in which a third arm takes *factor* of what fp8 takes."""
    rng = np.random.default_rng(2)
    reference, calls = simulated_calls(rng, pairs=24, effect=effect, noise=QUIET, swapped=False)
    columns = {name: getattr(calls, name) * factor for name in ("turn_ms", "tpot_ms", "ttft_ms")}
    other = Observation(workload="chat", arm=third, calls=replace(calls, **columns))
    base = compared(effect=0.0)
    accuracy = [replace(each, arm=arm) for each in base.accuracy for arm in ("fp8", third)]
    found = replace(
        base,
        arms=(BF16, FP8, replace(FP8, name=third)),
        observations=(*observed(reference, calls), other),
        accuracy=tuple(accuracy),
    )
    return replace(found, **changes)  # type: ignore[arg-type]  # a world names the field


def skipping_windows() -> Evidence:
    """Return full FP8 and an arm that skips the window layers, on a model that has them."""
    arms = (
        replace(BF16, pool_tokens=800_000.0, expected_pool_tokens=None),
        replace(FP8, pool_tokens=1_600_000.0, expected_pool_tokens=None),
        replace(
            FP8,
            name="fp8-skip-sw",
            skip_layers=("sliding_window",),
            pool_tokens=1_000_000.0,
            expected_pool_tokens=None,
        ),
    )
    model = Model(name="gpt-oss-20b", full_layers=12, window_layers=12, head_dim=64)
    return three_arms(-0.04, 0.92, "fp8-skip-sw", arms=arms, model=model)


def published_losses() -> Evidence:
    """Return the scores of Kimi-K2.5 on H200: points of 100 by bucket, without timings."""
    points = {8192: -0.4, 16384: -3.0, 32768: -2.0, 65536: -1.6, 131072: -1.3, 262144: -3.3}
    rng = np.random.default_rng(3)
    buckets = []
    for length, lost in points.items():
        base = rng.uniform(0.3, 0.9, 100)
        drawn = rng.normal(0, 0.2, 100)
        bucket = AccuracyBucket(
            arm="fp8",
            task="mrcr",
            context_tokens=float(length),
            both=0,
            reference_only=0,
            arm_only=0,
            neither=0,
            reference_scores=base,
            arm_scores=base + drawn - drawn.mean() + lost / 100,
        )
        buckets.append(bucket)
    return bare(accuracy=tuple(buckets))


def two_copies(effect: float, *, seed: int, machines: tuple[str, ...]) -> Evidence:
    """Return one configuration under two names, on one machine or two."""
    rng = np.random.default_rng(seed)
    calls = simulated_calls(rng, pairs=24, effect=effect, noise=QUIET, swapped=False)
    homes = machines if len(machines) > 1 else (None, None)
    return compared(
        effect=0.0,
        arms=(replace(BF16, machine=homes[0]), replace(BF16, name="bf16-b", machine=homes[1])),
        deployment=Deployment(version="0.33.0", gpu=H100, machines=machines, peak_agents=8),
        observations=observed(*calls, name="bf16-b"),
        accuracy=(),
    )


def controlled(evidence: Evidence, effect: float, *, pairs: int, seed: int) -> Evidence:
    """Add an A/A control whose copies differ by *effect*."""
    rng = np.random.default_rng(seed)
    first, second = simulated_calls(rng, pairs=pairs, effect=effect, noise=QUIET)
    control = AaControl(workload="chat", first=first, second=second)
    return replace(evidence, aa=(control,))
