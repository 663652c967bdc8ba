"""Whatever is missing, a decision comes out: plain data, without a NaN and without a warning."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest

from advisor.decide import decide
from advisor.deployment import GpuFacts, Model
from advisor.evidence import (
    AccuracyBucket,
    Arm,
    ContextSweep,
    Evidence,
    Observation,
    Telemetry,
    WorkloadClass,
)
from advisor.loads import CapacityPoint
from advisor.policy import Policy, ServiceLimits
from tests.advisor.cases import compared, sweeps


def _blanked(rng: np.random.Generator, evidence: Evidence) -> Evidence:
    """Return *evidence* with facts taken away at random."""

    def maybe(thing: Arm | Model | GpuFacts, keep: tuple[str, ...]) -> dict[str, object]:
        defaults = {
            each.name: each.default for each in dataclasses.fields(thing) if each.name not in keep
        }
        return {name: default for name, default in defaults.items() if rng.random() < 0.4}

    # defaults of the same fields
    arms = tuple(replace(arm, **maybe(arm, ("name",))) for arm in evidence.arms)  # type: ignore[arg-type]
    # as above
    gpu = replace(evidence.deployment.gpu, **maybe(evidence.deployment.gpu, ("name",)))  # type: ignore[arg-type]
    # as above
    model = replace(evidence.model, **maybe(evidence.model, ("name",)))  # type: ignore[arg-type]
    return replace(
        evidence, arms=arms, model=model, deployment=replace(evidence.deployment, gpu=gpu)
    )


def _spoiled(rng: np.random.Generator, evidence: Evidence) -> Evidence:
    """Return *evidence* with rows failed, figures lost and whole columns gone at random."""
    observations: list[Observation] = []
    for each in evidence.observations:
        if rng.random() < 0.15:
            continue
        calls = each.calls
        if calls is not None:
            holes = rng.random(len(calls)) < rng.choice([0.0, 0.3, 1.0])
            lost = [name for name in ("ttft_ms", "tpot_ms", "turn_ms") if rng.random() < 0.4]
            columns = {name: np.where(holes, np.nan, getattr(calls, name)) for name in lost}
            columns |= {
                name: np.full(len(calls), np.nan)
                for name in ("prompt_tokens", "output_tokens")
                if rng.random() < 0.15
            }
            calls = replace(
                calls, ok=rng.random(len(calls)) < rng.choice([1.0, 0.9, 0.0]), **columns
            )
        telemetry = (None, Telemetry(), Telemetry(peak_kv_usage=0.99), each.telemetry)[
            rng.integers(4)
        ]
        observations.append(
            replace(each, calls=calls if rng.random() > 0.1 else None, telemetry=telemetry)
        )
    kept: tuple[ContextSweep, ...] = tuple(
        sweep for sweep in sweeps(pairs=int(rng.integers(1, 6))) if rng.random() > 0.3
    )
    empty = AccuracyBucket(
        arm="fp8",
        task="none",
        context_tokens=1024.0,
        both=0,
        reference_only=0,
        arm_only=0,
        neither=0,
    )
    accuracy = tuple(bucket for bucket in evidence.accuracy if rng.random() > 0.5)
    steps = tuple(
        CapacityPoint(
            arm=arm,
            agents=int(rng.integers(1, 9)),
            turns=10,
            within_slo=int(rng.integers(0, 11)),
            minutes=1.0,
            pool_filled=True,
            trouble="preempted" if rng.random() < 0.3 else None,
        )
        for arm in ("bf16", "fp8")
    )
    return replace(
        evidence,
        observations=tuple(observations),
        sweeps=kept,
        accuracy=(*accuracy, empty),
        capacity=steps if rng.random() < 0.3 else (),
        workloads=(*evidence.workloads, WorkloadClass(name="idle", context_tokens=np.zeros(0))),
    )


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(n, marks=pytest.mark.slow) for n in range(20, 60))]
)
def test_any_hole_in_the_evidence_leaves_a_decision_of_plain_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence = compared(effect=float(rng.normal(0, 0.1)), pairs=int(rng.integers(1, 8)), seed=seed)
    decision = decide(
        _spoiled(rng, _blanked(rng, evidence)),
        Policy(slos=(ServiceLimits(ttft_ms=1000.0, tpot_ms=20.0),)),
    )
    json.dumps(dataclasses.asdict(decision), allow_nan=False)
    assert {verdict.verdict for verdict in (*decision.server, *decision.classes)} <= {
        "use",
        "avoid",
        "calibrate",
        "test further",
        "no difference",
    }
