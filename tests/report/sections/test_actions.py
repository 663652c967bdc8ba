"""What to do now: commands, canary, limits for going back."""

import re
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from advisor.policy import Policy, ServiceLimits
from advisor.steps import Again, Control, Questions
from advisor.verdict import Finding, Gate, Need
from agentload.report.parts import Made, Rollout, RunFacts, Step
from tests.report import sample
from tests.report.samples.told import COMMAND
from tests.report.telling import CHOICE, chosen, made
from tests.study.studies import of_command


def test_commands_that_name_a_database_can_be_copied_whatever_it_is_called() -> None:
    facts = RunFacts(made=Made(run="r", tool_version="0.1.0", database="my runs.duckdb"))
    told = made(sample.decision(), sample.evidence(), facts)
    assert told.commands[-1].command == "agentload report 'my runs.duckdb' --run r -o report"
    assert "agentload report 'my runs.duckdb' --run r --against" in told.belief[-1].text


def test_what_kept_the_client_from_sending_on_time_is_looked_for_first() -> None:
    decision = sample.decision()
    failed = Gate(name="client", status="fail", message="the load generator sent requests late")
    first, *others = made(replace(decision, gates=(*decision.gates, failed))).do_now
    assert first == Step(
        text="See what kept this machine from keeping up: its timings are invalid.",
        command="agentload doctor",
    )
    assert tuple(others) == made(decision).do_now


def test_only_a_decision_to_use_an_arm_plans_a_canary() -> None:
    plan = made().rollout
    assert plan is not None
    assert plan.model == "./calibrated/hybrid-30b-fp8-kv-tensor"
    assert " ".join(plan.arguments) == (
        "--served-model-name acme/hybrid-30b --max-model-len 131072 --kv-cache-dtype fp8_e4m3 "
        "--kv-cache-dtype-skip-layers sliding_window --attention-backend FLASH_ATTN "
        "--max-num-batched-tokens 8192"
    )
    assert plan.is_whole
    for verdict in ("avoid", "calibrate", "test further", "no difference"):
        told = made(chosen(CHOICE, verdict=verdict))
        assert told.rollout is None
        assert told.roll_back == ""


def test_the_preemption_limit_is_twice_what_the_run_showed() -> None:
    evidence = sample.evidence()
    busy = tuple(
        (arm, replace(figures, preemptions=80.0, minutes=10.0)) for arm, figures in evidence.server
    )
    plan = made(evidence=replace(evidence, server=busy)).rollout
    assert plan is not None
    assert plan.limits[1].text == "preemptions > 16/min"


def test_what_settles_a_question_is_the_largest_of_the_commands_that_differ_in_a_count_alone() -> (
    None
):
    assert [step for step in made().do_now if step.text.startswith("To reach a decision")] == [
        Step(
            text="To reach a decision: more paired calls of multimodal on FP8, FP8 skip-SW.",
            cost="260 calls, 7 min",
            command="agentload replay traces/mix.jsonl --endpoints arms.yaml --model "
            "acme/hybrid-30b --pairs 30 --db run.duckdb "
            "--resume r-2026-11-20-a1",
        )
    ]


def test_questions_are_asked_at_the_lengths_at_which_each_class_needs_them() -> None:
    wanted = [((8192, 16384, 32768), 900), ((512, 2048), 1_380), ((8192, 16384, 32768), 1_100)]
    needs = tuple(
        Need(
            what=f"paired questions on fp8 at {lengths}",
            pairs=items,
            step=Questions(lengths=lengths, items=items),
        )
        for lengths, items in wanted
    )
    asked = [
        step.command or ""
        for step in made(replace(sample.decision(), needs=needs)).do_now
        if step.text.startswith("To reach")
    ]
    assert [each.split(" --db")[0].split("hybrid-30b ")[1] for each in asked] == [
        "--contexts 8k..32k --items 1100",
        "--contexts 512,2k --items 1380",
    ]


def test_questions_at_some_of_the_lengths_of_others_are_asked_with_them() -> None:
    needs = tuple(
        Need(
            what=f"paired questions on {arm}",
            pairs=1_380,
            minutes=36.0,
            step=Questions(lengths=lengths, items=1_380),
        )
        for arm, lengths in (("fp8", (1024, 2048, 4096)), ("fp8-skip-sw", (1024,)))
    )
    (asked,) = [
        step
        for step in made(replace(sample.decision(), needs=needs)).do_now
        if "questions" in step.text
    ]
    assert "--contexts 1k..4k --items 1380" in (asked.command or "")
    assert asked.cost == "1,380 paired questions, 36 min"


def test_what_was_invalid_is_played_again_before_anything_else() -> None:
    needs = (
        *sample.decision().needs,
        Need(what="a rerun in which the check 'client' passes", step=Again()),
    )
    steps = [step.text for step in made(replace(sample.decision(), needs=needs)).do_now]
    assert steps[1] == "To reach a decision: a rerun in which the check 'client' passes."


def test_a_command_keeps_its_blanks_where_the_run_does_not_fill_them() -> None:
    command = "agentload simulate rag --profile 'broken"
    facts = RunFacts(
        made=Made(run="r", tool_version="0.1.0", command=command), study=of_command(command)
    )
    assert (
        made(facts=facts).do_now[1].command
        == "agentload replay TRACE --endpoints ENDPOINTS --pairs 30"
    )


def test_an_endpoint_list_is_quoted_as_it_must_be_of_command() -> None:
    command = "agentload replay 'a b' '--endpoints=x=http://h/v1?k=1&l=2'"
    facts = RunFacts(
        made=Made(run="r", tool_version="0.1.0", traces=("a b",), command=command),
        study=of_command(command),
    )
    assert (
        made(facts=facts).do_now[1].command
        == "agentload replay 'a b' --endpoints 'x=http://h/v1?k=1&l=2' --pairs 30 --resume r"
    )


def plan(**changed: object) -> Rollout:
    found = made(**changed).rollout  # type: ignore[arg-type]  # fields of `made`, by name
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("policy", "late"),
    [
        (Policy(slos=(ServiceLimits(ttft_ms=1800.0),)), "2.5"),
        (Policy(slos=(ServiceLimits(workload="code", ttft_ms=1000.0),)), "1.0"),
    ],
)
def test_late_is_the_bound_of_the_histogram_at_the_service_level(policy: Policy, late: str) -> None:
    (limit,) = (
        each for each in plan(policy=policy).limits if each.name == "CanaryTimeToFirstToken"
    )
    assert set(re.findall(r'le="([\d.]+)"', limit.expression)) == {late}
    assert f"above {float(late):g} s" in limit.text


def test_late_is_at_the_service_level_that_a_run_filled_its_pool_for() -> None:
    filled = of_command(f"{COMMAND} --capacity 20 --slo ttft=2s,tpot=100")
    facts = replace(sample.facts(), study=filled)
    assert "TTFT above 2.5 s in" in made(facts=facts).roll_back


def test_an_arm_is_calibrated_before_it_is_decided_on() -> None:
    decision = replace(chosen(CHOICE, arm="fp8", verdict="calibrate"), kind="simulated")
    commands = [step.command or "" for step in made(decision).do_now]
    verbs = [each.split(" ")[1] for each in commands]
    assert verbs == ["endpoints", "calibrate", "decide"]


def test_without_a_service_level_late_is_where_one_in_twenty_of_todays_calls_is() -> None:
    own = [
        each.calls
        for each in sample.evidence().observations
        if each.arm == "bf16" and each.calls is not None
    ]
    p95_s = float(np.quantile(np.concatenate([calls.ttft_ms for calls in own]), 0.95)) / 1000
    (bound,) = {float(each) for each in re.findall(r'le="([\d.]+)"', plan().limits[0].expression)}
    assert p95_s <= bound < 2.6 * p95_s  # bounds lie no further apart there


def test_a_page_by_chance_is_rarer_than_one_a_day_and_a_broken_model_is_seen_in_a_few_answers() -> (
    None
):
    expression = plan().limits[2].expression
    found = re.search(r"> ([\d.]+) \+ ([\d.]+) / sqrt", expression)
    assert found is not None
    margin, room = map(float, found.groups())
    rng = np.random.default_rng(1)
    spread = 1.0  # of an exponential: what the sample's answers vary by, or less
    for answers in (20, 100, 2000):
        means = rng.exponential(spread, (2000, answers)).mean(axis=1)
        assert np.mean(np.abs(means - 1) > margin + room / sqrt(answers)) == 0
    assert margin + room / sqrt(100) < 0.6  # answers that stop after the first word


def test_the_canary_works_as_hard_as_each_of_the_replicas_beside_it() -> None:
    evidence = sample.evidence()
    for replicas, percent in ((1, 10), (2, 33), (9, 10), (300, 1)):
        decision = replace(sample.decision(), capacity=())
        shared = replace(evidence.deployment, replicas=replicas)
        assert (
            plan(decision=decision, evidence=replace(evidence, deployment=shared)).percent
            == percent
        )
    (stable,) = (
        each for each in sample.decision().capacity if each.arm == "bf16" and each.workload is None
    )
    assert plan().percent == round(100 / ((stable.replicas_at_peak or 0) + 1))


def test_a_decision_after_a_simulation_asks_for_the_readers_service_level_and_peak() -> None:
    step = made(
        replace(sample.decision(), kind="simulated"),
        policy=Policy(slos=(ServiceLimits(ttft_ms=2_000.0, tpot_ms=40.0),)),
    ).do_now[-1]
    assert "--slo ttft=2s,tpot=40ms --agents 42" in (step.command or "")


def test_a_measured_run_without_a_control_is_told_how_to_get_one() -> None:
    decision = sample.decision()
    missing = Finding(
        kind="informs",
        rule="noise_floor",
        message="No A/A control.",
        next_step=Control(arm="bf16"),
        leg="validity",
    )
    uncontrolled = replace(decision, findings=(*decision.findings, missing))
    step = made(uncontrolled).do_now[-1]
    assert (step.text.partition(":")[0], "--aa bf16" in (step.command or "")) == (
        "To be surer",
        True,
    )
    simulated = made(replace(uncontrolled, kind="simulated")).do_now
    assert [each.text for each in simulated if "--aa bf16" in (each.command or "")] == []
    assert not any("To be surer" in each.text for each in made().do_now)
