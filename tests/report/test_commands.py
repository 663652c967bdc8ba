"""A suggested command is whole: it can be copied, and plays what the run played."""

from dataclasses import replace
from importlib import import_module

import pytest
import typer
from typer.main import get_command

from advisor import commands
from advisor.policy import Slo
from agentload.report.commands import CARRIED, FLAGS, completed
from agentload.report.facts import Made

OF_ONE_RUN = {"--resume", "--dry-run", "--json", "--noise"}


def made(command: str, database: str | None = None) -> Made:
    return Made(run="r", tool_version="1", traces=("rag",), command=command, database=database)


def whole(command: str, run: Made, *, played: int = 0) -> str:
    found = completed(command, run, played=played)
    assert found is not None
    return found


def options(verb: str) -> dict[str, bool]:
    """Return a verb's long options, and whether each is a flag."""
    app = typer.Typer(add_completion=False)
    app.command()(import_module(f"agentload.cli.{verb}").run)
    return {
        name: getattr(param, "is_flag", False)
        for param in get_command(app).params
        for name in (*param.opts, *param.secondary_opts)
        if name.startswith("--")
    }


def test_the_load_of_the_run_is_kept_and_what_the_suggestion_sets_is_its_own() -> None:
    run = made("agentload replay rag --endpoints arms.yaml --pairs 4 --sessions 16 --wait-cap user=20 --wait-cap tool=5 --warmup --json")
    assert (
        whole("agentload replay TRACE --endpoints ENDPOINTS --pairs 30", run)
        == "agentload replay rag --endpoints arms.yaml --pairs 30 --sessions 16 --wait-cap user=20 --wait-cap tool=5 --warmup --resume r"
    )


def test_what_changes_the_plan_is_a_run_of_its_own() -> None:
    run = made("agentload replay rag --endpoints arms.yaml --pairs 4", database="d.duckdb")
    assert (
        whole("agentload replay TRACE --endpoints ENDPOINTS --aa bf16", run)
        == "agentload replay rag --endpoints arms.yaml --aa bf16 --pairs 4"
    )
    assert whole("agentload replay TRACE --endpoints ENDPOINTS --pairs 8", run).endswith(" --pairs 8 --resume r --db d.duckdb")


def test_another_run_has_as_many_pairs_as_one_that_has_grown() -> None:
    run = made("agentload replay rag --endpoints arms.yaml --pairs 1")
    asked = commands.control("bf16")
    assert whole(asked, run, played=3) == "agentload replay rag --endpoints arms.yaml --aa bf16 --pairs 3"


def test_a_run_whose_arms_changed_machines_is_given_as_many_pairs_on_each() -> None:
    command = "agentload replay rag --endpoints arms.yaml --pairs {} --design parallel --swap"
    run = replace(made(command.format(6)), options='{"pairs": 6}')
    for wanted, more in ((3, 12), (9, 12), (12, 12), (13, 18)):
        asked = f"agentload replay TRACE --endpoints ENDPOINTS --pairs {wanted}"
        assert whole(asked, run, played=6) == f"{command.format(more)} --resume r"


def test_changes_of_machines_are_a_run_of_their_own() -> None:
    run = made("agentload replay rag --endpoints arms.yaml --pairs 6")
    asked = "agentload replay TRACE --endpoints ENDPOINTS --design parallel --swap --pairs 12"
    assert whole(asked, run) == "agentload replay rag --endpoints arms.yaml --design parallel --swap --pairs 12"


def test_a_run_that_was_stopped_is_gone_on_with_as_it_was_typed() -> None:
    command = "agentload replay rag --endpoints arms.yaml --launch --pairs 4 --restarts 4"
    run = replace(made(command), options='{"pairs": 4}')
    assert whole("agentload replay TRACE --endpoints ENDPOINTS --pairs 3", run) == f"{command} --resume r"
    assert whole("agentload replay TRACE --endpoints ENDPOINTS --pairs 5", run) == (
        "agentload replay rag --endpoints arms.yaml --pairs 5 --launch --restarts 4 --resume r"
    )


def test_a_class_that_few_pairs_of_a_whole_run_hold_asks_for_pairs_on_top() -> None:
    run = replace(made("agentload replay rag --endpoints arms.yaml --pairs 6"), options='{"pairs": 6}')
    command = "agentload replay TRACE --endpoints ENDPOINTS --pairs 3"
    assert whole(command, run, played=6) == "agentload replay rag --endpoints arms.yaml --pairs 9 --resume r"
    assert whole(command, run, played=5) == "agentload replay rag --endpoints arms.yaml --pairs 6 --resume r"


def test_a_measurement_after_a_simulation_plays_the_same_load() -> None:
    run = made("agentload simulate rag --profile p --rate=2 --cv 3 --no-noise --minutes 5")
    command = "agentload replay TRACE --endpoints bf16=URL,fp8=URL --model MODEL --db agentload.duckdb"
    assert whole(command, run) == (
        "agentload replay rag --endpoints bf16=URL,fp8=URL --model MODEL --db agentload.duckdb --rate 2 --cv 3 --no-noise"
    )


def test_answers_that_join_a_run_find_its_database() -> None:
    run = made("agentload replay rag --endpoints arms.yaml", database="my runs.duckdb")
    assert whole("agentload eval --endpoints ENDPOINTS --into r", run) == (
        "agentload eval --endpoints arms.yaml --into r --db 'my runs.duckdb'"
    )


def test_every_option_that_is_carried_over_exists_and_none_of_a_replay_is_forgotten() -> None:
    for verb, carried in CARRIED.items():
        assert set(carried) <= options(verb).keys(), verb
    assert options("replay").keys() - set(CARRIED["replay"]) == OF_ONE_RUN
    for verb in CARRIED:
        assert {name for name, is_flag in options(verb).items() if is_flag} <= FLAGS, verb


@pytest.mark.parametrize(
    "asked",
    [
        commands.more_pairs(8),
        commands.more_restarts(4),
        commands.control("bf16"),
        commands.fill_pool(into="r"),
        commands.context_sweep(longest=8192, into="r"),
        commands.evaluate(90, into="r"),
    ],
)
def test_no_option_is_carried_into_a_command_that_would_refuse_it(asked: str) -> None:
    typed = "agentload replay rag --endpoints arms.yaml --pairs 4 --launch --restarts 2 --logs l --sessions 4 --wait-cap user=5 --aa bf16"
    command = whole(asked, made(typed))
    verb, *words = command.removeprefix("agentload ").split()
    given = {word.removeprefix("--").replace("-", "_") for word in words if word.startswith("--")}
    needs = import_module(f"agentload.cli.{verb}").NEEDS
    assert [option for option in given if option in needs and not given & set(needs[option])] == []


def test_a_search_tries_the_mix_of_the_run_and_a_sweep_what_its_servers_take() -> None:
    run = replace(made("agentload replay rag chat --endpoints arms.yaml --wait-cap user=5"), traces=("rag", "chat"))
    joined = "--endpoints arms.yaml --into r"
    assert whole(commands.fill_pool(into="r"), run) == f"agentload sweep --concurrency --trace rag,chat {joined} --wait-cap user=5"
    assert whole(commands.context_sweep(longest=8192, into="r"), run) == f"agentload sweep --contexts 1k..8k {joined}"
    long = made("agentload replay rag --endpoints arms.yaml --capacity 24 --slo ttft=2000")
    assert whole(commands.fill_pool(), long).endswith("--endpoints arms.yaml --slo ttft=2000")
    assert "--slo" not in whole(commands.context_sweep(), long)
    assert whole(commands.fill_pool(slo=Slo(tpot_ms=50)), long).count("--slo") == 1


@pytest.mark.parametrize("servers", ["bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1", "emulated:qwen3-30b-a3b-h200/bf16+fp8"])
def test_combinations_of_features_are_tried_only_where_a_file_says_how_servers_are_started(servers: str) -> None:
    asked = commands.probe(into="r")
    assert completed(asked, made(f"agentload replay rag --endpoints {servers}")) is None
    found = completed(asked, made("agentload replay rag --endpoints arms.yaml --launch --logs l --pairs 3", database="d.duckdb"))
    assert found == "agentload probe --matrix --endpoints arms.yaml --into r --logs l --db d.duckdb"
