from __future__ import annotations

from time import process_time

import numpy as np
import pytest

from advisor.decide import decide
from advisor.evidence import Observation, WorkloadClass
from advisor.policy import Policy, ServiceLimits
from tests.advisor.cases import compared, observed, sweeps
from tests.advisor.worlds import Noise, simulated_calls


@pytest.mark.slow
@pytest.mark.alone
def test_a_million_calls_are_decided_in_seconds() -> None:
    rng = np.random.default_rng(1)
    classes = ("chat", "code", "rag", "cron", "reasoning")
    observations: list[Observation] = []
    for name in classes:
        calls = simulated_calls(
            rng, pairs=25, sessions=400, turns=10, effect=-0.12, noise=Noise(), swapped=False
        )
        observations.extend(observed(*calls, workload=name))
    evidence = compared(
        effect=0.0,
        items=600,
        observations=tuple(observations),
        workloads=tuple(WorkloadClass(name=name, gpu_time_share=0.2) for name in classes),
        sweeps=sweeps(),
    )
    assert sum(len(each.calls) for each in observations if each.calls is not None) == 1_000_000
    started = process_time()
    decision = decide(evidence, Policy(slos=(ServiceLimits(ttft_ms=8000.0),)))
    assert (
        process_time() - started < 6.0
    )  # one to two on an idle machine; what is quadratic takes minutes
    assert decision.choice.arm == "fp8"
