from dataclasses import replace

import numpy as np

from advisor.decide import decide
from advisor.policy import Policy
from advisor.verdict import Figure, Inequality
from agentload.report.charts.spec import Plot
from agentload.report.document import document
from agentload.report.parts import Made, RunFacts, Timeline
from tests.report import sample
from tests.report.telling import POLICY, made


def test_figures_of_another_kind_never_enter_a_table() -> None:
    decision = sample.decision()
    stranger = Figure(
        name="ttft_ms.p95",
        arm="bf16",
        workload="code",
        estimate=sample.estimate(1.0, unit="ms"),
        kind="simulated",
    )
    assert (
        made(replace(decision, figures=(stranger, *decision.figures))).groups
        == made(decision).groups
    )


def test_published_figures_stand_in_a_table_of_their_own() -> None:
    group = made().groups[-1]
    assert group.title == "Published figures, for comparison only"
    assert [cell.text for cell in group.tables[0].rows[0]] == [
        "break even tokens",
        "FP8 skip-SW",
        "7,659 tokens",
        "H100-SXM, 0.19.1",
        "vLLM blog, The State of FP8 KV-Cache and Attention Quantization in vLLM, 2026-04-22",
    ]


def test_a_million_calls_are_drawn_with_few_marks() -> None:
    rng = np.random.default_rng(0)
    evidence = sample.evidence()
    many = sample.calls("code", "fp8", pairs=400, per_pair=50)
    shuffled = replace(many, ttft_ms=rng.permutation(many.ttft_ms))
    observations = tuple(
        replace(each, calls=shuffled) if (each.workload, each.arm) == ("code", "fp8") else each
        for each in evidence.observations
    )
    groups = made(evidence=replace(evidence, observations=observations)).groups
    marks = [
        len(series.xs)
        for group in groups
        for chart in group.charts
        if hasattr(chart, "series")
        for series in chart.series
    ]
    assert max(marks) <= 150


def test_an_inequality_of_what_nobody_measured_says_so() -> None:
    decision = sample.decision()
    asked = Inequality(left="accuracy", observed=None, relation=">", right="-3 pp", holds=None)
    first, *others = decision.server
    server = (replace(first, inequality=asked), *others)
    written = [each.inequality for each in made(replace(decision, server=server)).verdicts]
    assert "accuracy > −3 pp: not measured" in written


def test_the_inequality_that_decided_is_written_out() -> None:
    assert (
        made().verdicts[0].inequality
        == "turn time, FP8 skip-SW / BF16: −6.0% [−7.9, −4.1] < −3.0% (holds)"
    )


def test_findings_that_block_come_first_and_screening_and_priors_carry_a_badge() -> None:
    assert [(reason.title, reason.badges) for reason in made().findings] == [
        ("FP8 on the whole server", ("opposes", "rule: systematic shift", "screening, unadjusted")),
        ("FP8 skip-SW on the whole server", ("supports", "rule: window layers")),
        (
            "FP8 skip-SW on the whole server",
            ("informs", "rule: published break even", "published figures, not this run"),
        ),
    ]


def test_names_of_charts_are_safe_and_differ_even_where_workloads_look_alike() -> None:
    evidence = sample.evidence()
    twins = {"code": "a b", "rag": "a/b"}
    renamed = replace(
        evidence,
        workloads=tuple(
            replace(each, name=twins.get(each.name, each.name)) for each in evidence.workloads
        ),
        observations=tuple(
            replace(each, workload=twins.get(each.workload, each.workload))
            for each in evidence.observations
        ),
    )
    names = [chart.name for group in made(evidence=renamed).groups for chart in group.charts]
    assert len(set(names)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in names)


def test_calls_far_above_the_others_are_counted_not_drawn() -> None:
    evidence = sample.evidence()
    sweep = evidence.sweeps[0]
    slow = replace(sweep, itl_ms=np.where(np.arange(36) == 3, 900.0, sweep.itl_ms))
    groups = made(evidence=replace(evidence, sweeps=(slow, *evidence.sweeps[1:]))).groups
    chart = next(chart for group in groups for chart in group.charts if chart.name == "itl")
    assert isinstance(chart, Plot)
    assert max(max(series.ys) for series in chart.series) < 20
    assert chart.caption.endswith("1 slower call is off the chart.")


def test_what_is_drawn_against_context_is_named_under_the_chart() -> None:
    chart = next(chart for group in made().groups for chart in group.charts if chart.name == "itl")
    assert chart.caption == (
        "Each mark is a call. Lines are fits. Within the band FP8 skip-SW and BF16 cannot "
        "be distinguished."
    )


def test_a_run_of_one_arm_is_told_without_a_comparison() -> None:
    evidence = sample.evidence()
    alone = replace(
        evidence,
        arms=evidence.arms[:1],
        observations=evidence.observations[:1],
        server=(),
        sweeps=(),
        capacity=(),
        accuracy=(),
        aa=(),
    )
    told = document(
        decide(alone), alone, RunFacts(made=Made(run="r", tool_version="0.1.0")), policy=POLICY
    )
    assert (told.title, told.headline) == (
        "BF16 alone on",
        "stay on BF16: nothing was compared with it",
    )
    assert [answer.question for answer in told.answers] == ["GPUs saved"]
    assert told.why == "Only one arm was measured, so there is nothing to compare."
    assert told.rollout is None


def test_a_run_in_which_every_call_failed_is_still_reported() -> None:
    evidence = sample.evidence()
    failed = tuple(
        replace(
            each,
            calls=None
            if each.calls is None
            else replace(each.calls, ok=np.zeros_like(each.calls.ok)),
        )
        for each in evidence.observations
    )
    assert document(
        sample.decision(), replace(evidence, observations=failed), sample.facts(), policy=Policy()
    ).groups


def test_what_was_played_as_a_control_is_no_arm_of_the_report() -> None:
    control = Timeline(
        arm="bf16@aa", seconds=(0.0, 1.0), kv_usage=(0.1, 0.2), preemptions=(0.0, 1.0)
    )
    facts = sample.facts()
    played = replace(facts, timelines=(*facts.timelines, control))
    assert document(sample.decision(), sample.evidence(), played, policy=Policy()) == document(
        sample.decision(), sample.evidence(), facts, policy=Policy()
    )
