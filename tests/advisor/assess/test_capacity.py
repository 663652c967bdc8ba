"""How many agents a GPU carries, by the steps of a search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.assess import capacity
from advisor.evidence import CapacityPoint, WorkloadClass
from advisor.policy import Policy
from advisor.verdict import Capacity
from tests.advisor.cases import bare


def _step(agents: int, within: int, turns: int = 1000) -> CapacityPoint:
    return CapacityPoint(arm="bf16", agents=agents, turns=turns, within_slo=within, minutes=20.0, pool_filled=True)


@pytest.mark.parametrize(
    ("steps", "value", "low", "high"),
    [
        ((_step(8, 995), _step(16, 980), _step(24, 800)), 16, 16, 23),
        ((_step(8, 995), _step(16, 955), _step(24, 800)), 16, 8, 23),  # 95.5 % of 1,000 is not surely 95 %
        ((_step(8, 995), _step(16, 985)), 16, 16, None),
        # So few turns prove nothing at four agents; what sixteen prove holds for four.
        ((_step(4, 20, 20), _step(8, 40, 40), _step(16, 80, 80), _step(24, 60, 120)), 16, 16, 23),
        ((_step(4, 20, 20), _step(8, 40, 40), _step(12, 0, 50)), 8, 0, 11),
        # Preempted: the turns were within the service level, and the server in trouble.
        ((_step(16, 995), replace(_step(24, 990), trouble="preempted"), _step(32, 990)), 16, 16, 23),
        ((_step(16, 995), replace(_step(24, 0, 0), trouble="died")), 16, 16, 23),
        ((_step(24, 600),), 0, 0, 23),
    ],
)
def test_agents_per_gpu_lie_between_the_last_sure_step_and_the_first_surely_broken_one(
    steps: tuple[CapacityPoint, ...], value: int, low: int, high: int | None
) -> None:
    found = capacity.agents_per_gpu(steps, share=0.95, gpus=1)
    assert found is not None
    assert (found.value, found.low, found.high) == (value, low, high)


def test_without_a_step_that_holds_or_surely_breaks_nothing_is_known() -> None:
    assert capacity.agents_per_gpu((_step(8, 18, 20),), share=0.95, gpus=1) is None


def told(found: tuple[Capacity, ...]) -> list[tuple[str | None, float | None]]:
    return [(each.workload, None if each.agents_per_gpu is None else each.agents_per_gpu.value) for each in found]


def test_agents_are_counted_by_the_gpus_of_their_own_arm() -> None:
    evidence = bare(capacity=(_step(16, 995), _step(24, 0)))
    evidence = replace(
        evidence,
        deployment=replace(evidence.deployment, peak_agents=40),
        arms=tuple(replace(arm, gpus=2) if arm.name == "bf16" else arm for arm in evidence.arms),
    )
    (found,) = capacity.capacities(evidence, Policy())
    assert found.agents_per_gpu is not None
    assert (found.agents_per_gpu.value, found.replicas_at_peak) == (8, 3)


def test_capacity_is_told_of_every_scope_that_was_searched() -> None:
    workloads = (WorkloadClass(name="chat"), WorkloadClass(name="code"), WorkloadClass(name="rag"))
    steps = (_step(8, 995), replace(_step(16, 995), workload="chat"), replace(_step(4, 600), workload="chat + code"))
    found = capacity.capacities(bare(workloads=workloads, capacity=steps), Policy())
    assert told(found) == [(None, 8), ("chat", 16), ("chat + code", 0)]
    assert found[2].reason == "pool filled; no step held the service level, the smallest had 4 agents"
