"""How many agents a GPU carries, by the steps of a search."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from advisor.assess import capacity
from advisor.evidence import WorkloadClass
from advisor.loads import CapacityPoint
from advisor.policy import Policy
from advisor.statistics.crossing import CarriedLoad
from advisor.verdict import Capacity
from tests.advisor.cases import bare, search


def _step(agents: int, within: int, turns: int = 1000) -> CapacityPoint:
    return CapacityPoint(
        arm="bf16", agents=agents, turns=turns, within_slo=within, minutes=20.0, pool_filled=True
    )


def test_agents_lie_between_the_trials_that_hold_and_those_that_do_not() -> None:
    steps = [
        _step(8, 995),
        _step(12, 990),
        _step(16, 980),
        _step(16, 960),
        _step(20, 900),
        _step(24, 700),
        _step(24, 800),
    ]
    found = capacity.limits({"bf16": steps}, share=0.95)["bf16"]
    assert 12 < found.low < found.value < 20
    assert found.high is not None
    assert found.value < found.high < 24


def test_a_draw_of_sessions_that_was_easy_is_one_trial_of_several() -> None:
    # At 16 agents one draw holds and two do not: that one holds is no proof that 16 are carried.
    steps = [
        _step(8, 995),
        _step(10, 990),
        _step(12, 985),
        _step(16, 980),
        _step(16, 800),
        _step(16, 850),
        _step(20, 600),
    ]
    found = capacity.limits({"bf16": steps}, share=0.95)["bf16"]
    assert 10 < found.value < 16


def test_trials_of_one_arm_say_how_steep_the_others_curve_is() -> None:
    often = [
        _step(agents, within)
        for agents, within in (
            (14, 990),
            (15, 985),
            (16, 960),
            (16, 955),
            (17, 900),
            (18, 600),
            (19, 400),
        )
    ]
    seldom = [_step(28, 990), _step(36, 600)]
    alone = capacity.limits({"fp8": seldom}, share=0.95)["fp8"]
    together = capacity.limits({"bf16": often, "fp8": seldom}, share=0.95)["fp8"]
    assert alone.high is not None
    assert together.high is not None
    assert together.high / together.low < alone.high / alone.low


def test_trials_whose_draw_a_model_has_played_say_far_more_of_the_long_run() -> None:
    # One draw is of long sessions and breaks at 14, one of short
    # ones and holds at 18: the long run's limit lies between.
    draws = ((10, 13, 1.25), (13, 16, 1.0), (16, 20, 0.8))
    steps = [each for low, high, _ in draws for each in (_step(low, 98, 100), _step(high, 80, 100))]
    known = [
        replace(step, worth=draws[number // 2][2], error=0.05) for number, step in enumerate(steps)
    ]
    alone, modelled = (
        capacity.limits({"bf16": each}, share=0.95)["bf16"] for each in (steps, known)
    )
    assert alone.high is not None
    assert modelled.high is not None
    assert alone.high / alone.low > 1.4 * modelled.high / modelled.low
    assert 12 < modelled.low < modelled.value < modelled.high < 16.5


def test_what_the_model_itself_is_unsure_of_is_in_the_interval() -> None:
    steps = [
        replace(_step(agents, within, 100), worth=1.0)
        for agents, within in ((13, 98), (13, 97), (16, 80), (16, 85))
    ]
    sure, unsure = (
        capacity.limits({"bf16": [replace(step, error=error) for step in steps]}, share=0.95)[
            "bf16"
        ]
        for error in (0.0, 0.2)
    )
    assert sure.high is not None
    assert unsure.high is not None
    assert unsure.low < sure.low < sure.value == unsure.value < sure.high < unsure.high
    assert unsure.high / unsure.value > 1.22


@pytest.mark.parametrize("trouble", ["preempted", "died"])
def test_a_server_in_trouble_carries_nothing_whatever_its_turns_say(trouble: str) -> None:
    steps = [
        _step(8, 995),
        _step(16, 995),
        replace(_step(24, 990), trouble=trouble),
        replace(_step(32, 0, 0), trouble=trouble),
    ]
    found = capacity.limits({"bf16": steps}, share=0.95)["bf16"]
    assert found.high is not None
    assert found.high < 25


def test_a_search_that_met_its_own_bound_is_open_there() -> None:
    held = capacity.limits({"bf16": [_step(8, 995), _step(16, 985)]}, share=0.95)["bf16"]
    assert (held.value, held.high, 8 < held.low <= 16) == (16, None, True)
    broke = capacity.limits({"bf16": [_step(24, 600)]}, share=0.95)["bf16"]
    assert (broke.value, broke.low, broke.high is not None and broke.high < 25) == (0, 0, True)


def told(found: tuple[Capacity, ...]) -> list[tuple[str | None, float | None]]:
    return [
        (each.workload, None if each.agents_per_gpu is None else each.agents_per_gpu.value)
        for each in found
    ]


def test_agents_are_counted_by_the_gpus_of_their_own_arm() -> None:
    evidence = bare(capacity=(_step(16, 995),))
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
    steps = (
        _step(8, 995),
        replace(_step(16, 995), workload="chat"),
        replace(_step(4, 600), workload="chat + code"),
    )
    found = capacity.capacities(bare(workloads=workloads, capacity=steps), Policy())
    assert told(found) == [(None, 8), ("chat", 16), ("chat + code", 0)]
    assert found[2].reason == "the SLO was missed even at 4 agents, the smallest load tried"


@pytest.mark.parametrize("spare", [0, 2])
def test_spare_replicas_come_on_top_of_those_that_the_peak_keeps_busy(spare: int) -> None:
    evidence = bare(
        capacity=search("fp8", 16),
        deployment=replace(bare().deployment, peak_agents=100, spare_replicas=spare),
    )
    (found,) = capacity.capacities(evidence, Policy())
    agents = found.agents_per_gpu
    assert agents is not None
    assert agents.low is not None
    assert agents.high is not None
    expected = [
        math.ceil(100 / math.floor(each)) + spare
        for each in (agents.high, agents.value, agents.low)
    ]
    gpus = found.gpus_at_peak
    assert gpus is not None
    assert [gpus.low, gpus.value, gpus.high] == expected
    assert found.replicas_at_peak == expected[1]
    assert found.next_replica_at_agents == (expected[1] - spare) * math.floor(agents.value) + 1


def test_what_a_replica_carries_is_shared_by_its_gpus_value_and_ends() -> None:
    limit = CarriedLoad(value=40.0, low=32.0, high=60.0)
    found, opened = (
        capacity._agents_per_gpu(each, trials=9, share=0.95, gpus=4, level=0.9)
        for each in (limit, replace(limit, high=None))
    )
    assert (found.value, found.low, found.high, found.n, found.level) == (10.0, 8.0, 15.0, 9, 0.9)
    assert (opened.value, opened.high) == (10.0, None)
