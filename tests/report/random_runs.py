"""Documents of random runs: deployments with a drawn effect, accuracy, capacity and policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.decide import decide
from advisor.evidence import Evidence, Kind, Observation, Telemetry, WorkloadClass
from advisor.loads import CapacityPoint
from advisor.policy import Policy, ServiceLimits
from agentload.report.document import document
from agentload.report.parts import Document, Made, RunFacts
from tests.advisor.cases import FP8, SPREAD, bare, compared, search
from tests.advisor.worlds import Noise, simulated_calls

KINDS: tuple[Kind, ...] = ("measured", "emulated", "simulated")


def _observed(
    rng: np.random.Generator, names: tuple[str, ...], arms: tuple[str, ...], *, calm: bool
) -> Evidence:
    """Return what was seen of some classes on some arms; if not *calm*, a few turns failed."""
    effect = float(rng.choice([0.0, -0.2, -0.6, 0.3])) + float(rng.normal(0.0, 0.01))
    noise = Noise(call=0.01 if calm else float(rng.choice([0.01, 0.03, 0.3])))
    pairs, seen = 12 if calm else int(rng.choice([2, 4, 8])), []
    filled = 0.0 if calm else float(rng.choice([0.0, 0.4]))
    for name in names:
        for arm in arms:
            reference, own = simulated_calls(
                rng,
                pairs=pairs,
                sessions=int(rng.integers(1, 6)),
                turns=int(rng.integers(1, 5)),
                effect=effect,
                noise=noise,
                swapped=False,
                restarts=pairs if calm else int(rng.integers(1, pairs + 1)),
            )
            if not calm and rng.random() < 0.2:
                own = replace(own, ok=rng.random(len(own)) < 0.9)
            told = Telemetry(
                pool_filled_share=filled,
                peak_kv_usage=0.1,
                preemptions=0.0,
                minutes=30.0,
                hit_rate=0.6,
                ideal_hit_rate=0.6,
            )
            if arm == arms[0]:
                seen.append(Observation(workload=name, arm="bf16", calls=reference, telemetry=told))
            seen.append(Observation(workload=name, arm=arm, calls=own, telemetry=told))
    telemetry = Telemetry(pool_filled_share=filled, minutes=20.0, hit_rate=0.5)
    return bare(
        observations=tuple(seen),
        server=tuple((arm, telemetry) for arm in ("bf16", *arms)),
        arms=(bare().arms[0], *(replace(FP8, name=arm) for arm in arms)),
        workloads=tuple(
            WorkloadClass(name=name, gpu_time_share=1 / len(names), context_tokens=SPREAD, batch=4)
            for name in names
        ),
    )


def _searched(rng: np.random.Generator, arms: tuple[str, ...]) -> tuple[CapacityPoint, ...]:
    points: list[CapacityPoint] = []
    for arm in ("bf16", *arms):
        tried = search(arm, float(rng.uniform(4, 60)))
        missed = rng.choice(["none", "all", "some"])
        share = {"none": 1.0, "all": 0.0}.get(str(missed))
        points += (
            tried
            if share is None
            else (replace(each, within_slo=round(share * each.turns)) for each in tried)
        )
    return tuple(points)


def run(seed: int) -> tuple[Evidence, Policy]:
    """Return what a random run saw, and the policy it is judged by."""
    rng = np.random.default_rng(seed)
    calm = rng.random() < 0.4
    names = ("chat", "rag", "code")[: int(rng.integers(1, 4))]
    arms = ("fp8", "fp8-skip-sw")[: int(rng.integers(1, 3))]
    evidence = _observed(rng, names, arms, calm=calm)
    if calm or rng.random() < 0.6:
        asked = compared(
            effect=0.0,
            seed=seed,
            items=1_000 if calm else int(rng.choice([20, 400])),
            change=float(rng.choice([-0.15, -0.15, 0.0, 0.02])),
            discordance=0.16,
        ).accuracy
        kept = asked[0 if calm else int(rng.integers(0, len(asked))) :]
        evidence = replace(
            evidence, accuracy=tuple(replace(each, arm=arm) for arm in arms for each in kept)
        )
    if not calm and rng.random() < 0.5:
        evidence = replace(evidence, capacity=_searched(rng, arms))
    peak = None if calm or rng.random() < 0.4 else int(rng.integers(1, 60))
    deployment = replace(
        evidence.deployment,
        peak_agents=peak,
        version=str(rng.choice(["0.10.2", *["0.33.0"] * 4])),
        gpus_per_replica=int(rng.choice([1, 4])),
    )
    slos = (ServiceLimits(ttft_ms=float(rng.uniform(100, 9_000))),) if rng.random() < 0.5 else ()
    kind = KINDS[int(rng.integers(0, 3))]
    return replace(evidence, deployment=deployment, kind=kind), Policy(slos=slos)


def random_document(seed: int) -> Document:
    """Return the document of a random run."""
    evidence, policy = run(seed)
    facts = RunFacts(made=Made(run="r1", tool_version="0.1.0", minutes=30.0))
    return document(decide(evidence, policy), evidence, facts, policy=policy)
