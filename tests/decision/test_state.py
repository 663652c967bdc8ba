"""What a decision shows of its state is what the verdict is about."""

from __future__ import annotations

from dataclasses import replace

from advisor.legs.capacity import AGENTS
from advisor.legs.gpus import GPUS
from agentload.decision.state import speed_interval
from tests.report import sample


def test_an_arm_has_an_interval_of_its_turn_latency_and_none_where_gpus_decide() -> None:
    verdict = sample.decision().server[0]
    found = verdict.pays.estimate
    assert found is not None
    shown = speed_interval(verdict, pairs=8, is_open=True)
    assert shown is not None
    assert (shown.arm, shown.value, shown.low) == (verdict.arm, found.value, found.low)
    for method in (AGENTS, GPUS):
        other = replace(verdict.pays, estimate=replace(found, method=method))
        assert speed_interval(replace(verdict, pays=other), pairs=8, is_open=True) is None
    none = replace(verdict, pays=replace(verdict.pays, estimate=None))
    assert speed_interval(none, pairs=8, is_open=True) is None
