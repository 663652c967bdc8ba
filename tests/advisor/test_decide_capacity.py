"""Verdicts that rest on how many agents an arm carries."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from advisor.decide import decide
from advisor.deployment import Deployment
from advisor.evidence import Evidence, StartHistory, Telemetry, WorkloadClass
from advisor.loads import CapacityPoint
from advisor.policy import Policy, ServiceLimits
from advisor.steps import CapacitySearch
from advisor.verdict import Decision
from tests.advisor.cases import H100, compared, search
from tests.advisor.worlds import Noise

QUIET = Noise(call=0.05, wander=0.02, phi=0.3, block=0.005)


def _long_thinkers(points: tuple[CapacityPoint, ...]) -> Evidence:
    evidence = compared(
        effect=0.0,
        noise=QUIET,
        pairs=20,
        restarts=1,
        starts=StartHistory(spread=0.002, source="60 starts"),
    )
    return replace(
        evidence,
        observations=tuple(
            replace(each, telemetry=Telemetry(peak_kv_usage=0.3, fill_minutes=25.0))
            for each in evidence.observations
        ),
        workloads=(
            WorkloadClass(name="chat", gpu_time_share=1.0, working_set_tokens=24 * 90_000.0),
        ),
        capacity=points,
    )


def test_a_larger_pool_is_never_no_difference_when_the_load_would_fill_it() -> None:
    (verdict,) = decide(_long_thinkers(())).server
    assert verdict.verdict == "test further"
    assert verdict.flips[0] == "the whole interval of agents per GPU above +10%: use"
    need = verdict.needs[0]
    assert need.step == CapacitySearch(limits=None, trial_s=3000.0)


def test_runs_that_filled_the_pool_find_the_agents_it_carries() -> None:
    points = (*search("bf16", 16.5), *search("fp8", 33.0))
    decision = decide(
        replace(
            _long_thinkers(points),
            deployment=Deployment(version="0.33.0", gpu=H100, machines=("a",), peak_agents=60),
        )
    )
    (verdict,) = decision.server
    assert verdict.verdict == "use"
    assert re.match(r"3[1-4] agents per GPU for 1[56] on bf16", verdict.pays.reason)
    fp8 = next(each for each in decision.capacity if each.arm == "fp8")
    assert fp8.agents_per_gpu is not None
    assert fp8.replicas_at_peak == 2
    assert fp8.next_replica_at_agents == 2 * math.floor(fp8.agents_per_gpu.value) + 1
    assert fp8.gpus_at_peak is not None
    assert (fp8.gpus_at_peak.low, fp8.gpus_at_peak.high) == (2.0, 2.0)


def test_runs_that_never_filled_the_pool_say_nothing_about_capacity() -> None:
    points = tuple(
        CapacityPoint(arm=arm, agents=24, turns=500, within_slo=495, minutes=2.0, pool_filled=False)
        for arm in ("bf16", "fp8")
    )
    decision = decide(_long_thinkers(points))
    assert [(each.agents_per_gpu, each.reason) for each in decision.capacity] == [
        (None, "the KV pool never filled")
    ] * 2
    assert [each.verdict for each in decision.server] == ["test further"]


def _trials(minutes: float) -> tuple[CapacityPoint, ...]:
    level = ServiceLimits(tpot_ms=12.0)
    return tuple(
        CapacityPoint(
            arm=arm,
            agents=agents,
            turns=500,
            within_slo=within,
            minutes=minutes,
            pool_filled=False,
            slo=level,
        )
        for arm in ("bf16", "fp8")
        for agents, within in ((1, 499), (2, 480), (4, 200), (8, 3))
    )


def test_a_search_that_missed_the_service_level_before_a_pool_was_full_is_not_asked_for_again() -> (
    None
):
    policy = Policy(slos=(ServiceLimits(tpot_ms=12.0),))
    asked = decide(_long_thinkers(()), policy)
    longer = decide(_long_thinkers(_trials(15.0)), policy)
    done = decide(_long_thinkers(_trials(50.0)), policy)

    def searches(decision: Decision) -> list[CapacitySearch]:
        steps = [
            *(need.step for need in decision.needs),
            *(found.next_step for found in decision.findings),
        ]
        return [step for step in steps if isinstance(step, CapacitySearch)]

    # Trials of 15 min are shorter than the 25 min that the pools take to fill, twice.
    assert {step.trial_s for step in searches(asked) + searches(longer)} == {3000.0}
    assert searches(done) == []
    (verdict,) = done.server
    assert verdict.verdict == "test further"
    assert "the KV pool never filled up to where the SLO is missed (" in verdict.reason
    bound = next(each for each in done.findings if each.rule == "capacity_bound")
    assert bound.kind == "informs"
    assert bound.message.endswith(
        "No load that was tried within the service level fills that of fp8."
    )


def test_slower_turns_are_a_harm_that_more_agents_do_not_undo() -> None:
    (verdict,) = decide(
        compared(effect=0.1, capacity=(*search("bf16", 16.5), *search("fp8", 33.0)))
    ).server
    assert verdict.verdict == "avoid"
    assert "the service level has to choose" in verdict.pays.reason


@pytest.mark.parametrize(
    ("searched", "is_said"), [(("bf16",), False), (("fp8",), False), (("bf16", "fp8"), True)]
)
def test_gpus_that_are_saved_are_missed_only_where_agents_of_both_arms_are_known(
    searched: tuple[str, ...],
    is_said: bool,  # noqa: FBT001  # a case
) -> None:
    points = tuple(point for arm in searched for point in search(arm, 16.5))
    evidence = compared(effect=-0.1, pairs=8)
    alone = replace(evidence.deployment, peak_agents=None)
    found = decide(replace(evidence, capacity=points, deployment=alone))
    said = [each for each in found.caveats if "the GPUs that they save are not" in each]
    assert bool(said) == is_said
