"""Throughput against what one agent gets, and latency by context and load."""

from dataclasses import replace

import numpy as np

from agentload.report.charts.spec import HeatMap, Plot
from agentload.report.parts import Document
from agentload.report.sections.capacity import open_calls
from tests.report import sample
from tests.report.telling import made


def charts(told: Document) -> dict[str, object]:
    (group,) = (group for group in told.groups if group.title == "Capacity and load")
    return {chart.name: chart for chart in group.charts}


def test_each_load_that_was_tried_is_a_mark_of_what_a_gpu_does_against_what_an_agent_gets() -> None:
    found = charts(made())["pareto-turns"]
    assert isinstance(found, Plot)
    reference = found.series[0]
    tried = sorted(
        (each.agents, each.within_slo) for each in sample.evidence().capacity if each.arm == "bf16"
    )
    assert reference.ys == tuple(6.0 * within for _, within in tried)  # of ten minutes
    assert reference.xs == tuple(6.0 * within / agents for agents, within in tried)


def test_the_draws_of_one_load_are_one_mark() -> None:
    evidence = sample.evidence()
    again = replace(evidence, capacity=(*evidence.capacity, *evidence.capacity))
    once, twice = (charts(made(evidence=each))["pareto-turns"] for each in (evidence, again))
    assert isinstance(once, Plot)
    assert isinstance(twice, Plot)
    assert [each.ys for each in twice.series] == [each.ys for each in once.series]
    assert {each.mark for each in once.series} == {"path"}


def test_with_a_single_load_the_command_that_tries_more_stands_in_the_place_of_the_chart() -> None:
    evidence = replace(sample.evidence(), capacity=sample.evidence().capacity[:1])
    told = made(evidence=evidence)
    (group,) = (group for group in told.groups if group.title == "Capacity and load")
    assert "pareto-turns" not in charts(told)
    assert group.next is not None
    assert group.next.text == "Throughput against what a user gets needs two loads or more:"
    assert (group.next.command or "").startswith("agentload sweep --concurrency")


def test_an_arm_that_is_faster_by_a_tenth_is_so_in_every_field() -> None:
    evidence = sample.evidence()
    observations = []
    for each in evidence.observations:
        base = evidence.calls(each.workload, "bf16")
        assert base is not None
        observations.append(
            replace(each, calls=replace(base, tpot_ms=base.tpot_ms * 0.9))
            if each.arm == "fp8"
            else each
        )
    found = charts(made(evidence=replace(evidence, observations=tuple(observations))))["load-fp8"]
    assert isinstance(found, HeatMap)
    assert {(cell.text, cell.slot) for cell in found.cells} == {("−10%", 1)}


def test_a_run_whose_chunks_all_came_in_one_read_is_shown_without_a_slowest_field() -> None:
    evidence = sample.evidence()
    observations = tuple(
        replace(each, calls=replace(calls, tpot_ms=np.zeros_like(calls.tpot_ms)))
        for each in evidence.observations
        if (calls := evidence.calls(each.workload, each.arm)) is not None
    )
    found = charts(made(evidence=replace(evidence, observations=observations)))["load-bf16"]
    assert isinstance(found, HeatMap)
    assert {(cell.text, cell.value) for cell in found.cells} == {("0 ms", 0.0)}


def test_calls_open_at_once_are_counted_over_all_classes() -> None:
    calls = sample.calls("code", "bf16", pairs=1, per_pair=4)
    first = replace(
        calls,
        start_s=np.array([0.0, 1.0, 2.0, 30.0]),
        turn_ms=np.array([1_500.0, 5_000.0, 500.0, 100.0]),
    )
    other = replace(calls, start_s=np.array([1.2, 3.0, 31.0, 40.0]), turn_ms=np.full(4, 500.0))
    assert [each.tolist() for each in open_calls([first, other])] == [[1, 2, 2, 1], [3, 2, 1, 1]]
