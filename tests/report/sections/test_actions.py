"""What to do now: commands, canary, limits for going back."""

from dataclasses import replace

from advisor.steps import Questions
from advisor.verdict import Need
from agentload.report.facts import Made, RunFacts
from agentload.report.parts import Step
from agentload.study.stored import stored
from tests.report import sample
from tests.report.telling import CHOICE, chosen, made


def test_commands_that_name_a_database_can_be_copied_whatever_it_is_called() -> None:
    facts = RunFacts(made=Made(run="r", tool_version="0.1.0", database="my runs.duckdb"))
    told = made(sample.decision(), sample.evidence(), facts)
    assert told.commands[-1].command == "agentload report 'my runs.duckdb' --run r -o FOLDER"
    assert "agentload report 'my runs.duckdb' --run r --against" in told.belief[-1].text


def test_only_a_decision_to_use_an_arm_plans_a_canary() -> None:
    plan = made().rollout
    assert plan is not None
    assert plan.model == "./calibrated/hybrid-30b-fp8-kv-tensor"
    assert " ".join(plan.arguments) == (
        "--served-model-name acme/hybrid-30b --max-model-len 131072 --kv-cache-dtype fp8_e4m3 "
        "--kv-cache-dtype-skip-layers sliding_window --attention-backend FLASH_ATTN --max-num-batched-tokens 8192"
    )
    assert plan.is_whole
    for verdict in ("avoid", "calibrate", "test further", "no difference"):
        told = made(chosen(CHOICE, verdict=verdict))
        assert told.rollout is None
        assert told.roll_back == ""


def test_the_preemption_limit_is_twice_what_the_run_showed() -> None:
    evidence = sample.evidence()
    busy = tuple((arm, replace(figures, preemptions=80.0, minutes=10.0)) for arm, figures in evidence.server)
    plan = made(evidence=replace(evidence, server=busy)).rollout
    assert plan is not None
    assert plan.limits[1].text == "preemptions > 16/min"


def test_what_settles_a_question_is_the_largest_of_the_commands_that_differ_in_a_count_alone() -> None:
    assert [step for step in made().do_now if step.text.startswith("To settle")] == [
        Step(
            text="To settle what is open: 180 paired calls of multimodal on FP8, 5 min; "
            "260 paired calls of multimodal on FP8 skip-SW, 7 min.",
            command="agentload replay traces/mix.jsonl --endpoints arms.yaml --model acme/hybrid-30b --pairs 30 --db run.duckdb "
            "--resume r-2026-11-20-a1",
        )
    ]


def test_questions_are_asked_at_the_lengths_at_which_each_class_needs_them() -> None:
    wanted = [((8192, 16384, 32768), 900), ((512, 2048), 1_380), ((8192, 16384, 32768), 1_100)]
    needs = tuple(
        Need(what=f"paired answers on fp8 at {lengths}", pairs=items, step=Questions(lengths=lengths, items=items))
        for lengths, items in wanted
    )
    asked = [step.command or "" for step in made(replace(sample.decision(), needs=needs)).do_now if step.text.startswith("To settle")]
    assert [each.split(" --db")[0].split("hybrid-30b ")[1] for each in asked] == [
        "--contexts 8k..32k --items 1100",
        "--contexts 512,2k --items 1380",
    ]


def test_a_command_keeps_its_blanks_where_the_run_does_not_fill_them() -> None:
    command = "agentload simulate rag --profile 'broken"
    facts = RunFacts(made=Made(run="r", tool_version="0.1.0", command=command), study=stored(None, command=command, options="{}"))
    assert made(facts=facts).do_now[1].command == "agentload replay TRACE --endpoints ENDPOINTS --pairs 30"


def test_an_endpoint_list_is_quoted_as_it_must_be_typed() -> None:
    command = "agentload replay 'a b' '--endpoints=x=http://h/v1?k=1&l=2'"
    facts = RunFacts(
        made=Made(run="r", tool_version="0.1.0", traces=("a b",), command=command), study=stored(None, command=command, options="{}")
    )
    assert made(facts=facts).do_now[1].command == "agentload replay 'a b' --endpoints 'x=http://h/v1?k=1&l=2' --pairs 30 --resume r"
