"""A suggested command is whole: it can be copied, and plays what the run played."""

import shlex
from contextlib import suppress
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import steps
from advisor.policy import Policy, ServiceLimits
from agentload.cli._lazy import _command, verbs
from agentload.errors import PlanError
from agentload.evidence.grades import QuestionOptions
from agentload.layout.plan import of_study
from agentload.layout.traces import sweep
from agentload.model.controls import control_of
from agentload.report.commands import on_own_servers, silent_options, suggestion
from agentload.report.document import document
from agentload.report.parts import Made, RunFacts, Served
from agentload.run.files import read_traces
from agentload.study.argv import build_study
from agentload.study.change import extend, given_pairs
from agentload.study.kinds import DEFAULT_TASKS, Ask, Probe, Replay, Study, Sweep
from agentload.study.parts import Live, TraceRef, Virtual
from tests.report import sample
from tests.study.studies import of_command, studies
from tests.study.words import split

MORE = steps.MorePairs(pairs=8)
PAST = "agentload replay rag --endpoints arms.yaml"
LENGTHS = st.lists(st.sampled_from((1024, 3000, 4096, 8192)), min_size=1, unique=True).map(
    lambda each: tuple(sorted(each))
)
LIMITS = st.builds(
    ServiceLimits,
    ttft_ms=st.none() | st.floats(1, 9000),
    tpot_ms=st.none() | st.floats(1, 90),
    share=st.floats(0.01, 1),
)
COUNT = st.integers(1, 99)
ASKED: dict[type, st.SearchStrategy[steps.Step]] = {
    steps.Again: st.just(steps.Again()),
    steps.MorePairs: st.builds(steps.MorePairs, pairs=COUNT),
    steps.Restarts: st.builds(steps.Restarts, restarts=COUNT),
    steps.Replicas: st.builds(steps.Replicas, pairs=COUNT),
    steps.Swap: st.builds(steps.Swap, pairs=COUNT),
    steps.Control: st.builds(steps.Control, arm=st.sampled_from(("bf16", "fp8 e4m3"))),
    steps.CapacitySearch: st.builds(
        steps.CapacitySearch, limits=st.none() | LIMITS, trial_s=st.integers(60, 9999).map(float)
    ),
    steps.Lengths: st.builds(steps.Lengths, lengths=LENGTHS),
    steps.Questions: st.builds(
        steps.Questions, lengths=LENGTHS, items=st.none() | COUNT, aa=st.none() | st.just("bf16")
    ),
    steps.Features: st.just(steps.Features()),
    steps.Calibrate: st.just(steps.Calibrate()),
    steps.ArmsFile: st.just(steps.ArmsFile(arm="fp8-skip-sw")),
}


def ran(command: str, database: str | None = None) -> RunFacts:
    return RunFacts(
        made=Made(run="r", tool_version="1", traces=("rag",), command=command, database=database),
        study=of_command(command),
    )


def whole(step: steps.Step, facts: RunFacts, *, played: int = 0, joins: bool = False) -> str:
    found = suggestion(step, facts, played=played, joins=joins)
    assert found is not None
    return found


def refused(command: str) -> set[str]:
    """List the options of a command line that its verb does not have."""
    _, verb, *words = shlex.split(command)
    group, name = (
        ("agentload.cli.endpoints", words[0]) if verb == "endpoints" else ("agentload.cli", verb)
    )
    made = _command(next(each for each in verbs(group) if each.name == name))
    known = {name for param in made.params for name in (*param.opts, *param.secondary_opts)}
    return {word for word in words if word.startswith("--")} - known


def plan(study: Study, *, began: Study | None = None) -> None:
    """Lay out what is played on two arms, each on a machine of
    its own; *began* is the run that goes on. Raises PlanError.
    """
    if not isinstance(study, Replay | Sweep):
        return
    arms = ["bf16", "fp8"]
    aa = study.aa if isinstance(study, Replay) else None
    arms += [
        control_of(arm)
        for arm in arms
        if aa in ("all", arm) or (aa is not None and aa not in arms and arm == "bf16")
    ]
    is_placed = isinstance(study, Replay) and (study.swap or study.design == "parallel")
    trace = sweep((1024,), pairs=1, output=1, seed=0)
    going_on = given_pairs(began, study) if isinstance(began, Replay) else study
    assert isinstance(going_on, Replay | Sweep)
    of_study(going_on, trace, arms, run="r", machines=("m1", "m2") if is_placed else ())


def plays(study: Study) -> bool:
    with suppress(PlanError):
        plan(study)
        return True
    return False


def short(study: Study) -> Study:
    """Return a study of few pairs, whatever was drawn."""
    few = extend(study, pairs=1 + study.pairs % 12) if isinstance(study, Replay | Sweep) else study
    if isinstance(few.servers, Live) and few.servers.restarts is not None:
        return extend(few, restarts=1 + few.servers.restarts % 12)
    return few


IN_PAIRS = st.builds(
    Replay,
    traces=st.just((TraceRef(path="rag"),)),
    servers=st.builds(
        Live,
        endpoints=st.just("arms.yaml"),
        launch=st.booleans(),
        restarts=st.none() | st.integers(1, 12),
    ),
    pairs=st.integers(1, 12),
    design=st.sampled_from(("interleaved", "parallel", "sequential")),
    swap=st.booleans(),
    warmup=st.booleans(),
    aa=st.none() | st.sampled_from(("fp8", "all")),
)
RUNS = (
    studies().map(short)
    | IN_PAIRS
    | st.builds(Sweep, servers=IN_PAIRS.map(lambda each: each.servers), contexts=LENGTHS)
).filter(plays)


def test_every_step_of_the_advisor_is_tried() -> None:
    assert set(ASKED) == set(get_args(steps.Step))


@given(
    RUNS | st.none(),
    st.one_of(*ASKED.values()),
    st.integers(0, 20),
    st.booleans(),
    st.none() | st.just("my runs.duckdb"),
)
def test_no_command_line_refuses_what_is_suggested(
    run: Study | None,
    step: steps.Step,
    played: int,
    joins: bool,  # noqa: FBT001  # drawn
    database: str | None,
) -> None:
    facts = RunFacts(made=Made(run="r", tool_version="1", database=database), study=run)
    command = suggestion(step, facts, played=played, joins=joins)
    if command is None:
        assert isinstance(step, steps.Features | steps.Restarts | steps.Replicas | steps.Control)
        return
    assert (
        "ENDPOINTS" not in command
        or run is None
        or not (isinstance(run.servers, Virtual) or run.servers.endpoints)
    )
    assert not refused(command)
    is_beside = isinstance(step, steps.CapacitySearch | steps.Lengths | steps.Questions)
    asks_more = (
        isinstance(run, Ask)
        and isinstance(step, steps.Questions)
        and not run.screen
        and step.aa in (None, run.aa)
    )
    assert ("--into r" in command) == (asks_more or (joins and is_beside))
    if not isinstance(step, steps.Calibrate | steps.ArmsFile) and not command.startswith(
        "agentload endpoints init"
    ):
        again = build_study(*split(shlex.split(command)[1:]))
        plan(again, began=run if "--resume r" in command else None)
        is_kept = not isinstance(again, Probe)
        assert ("--db 'my runs.duckdb'" in command) == (database is not None and is_kept)
        if run is not None and isinstance(run.servers, Live):
            assert isinstance(again.servers, Live)
            assert again.servers.endpoints == run.servers.endpoints
    # A run by a benchmark's rules is played by them again: there is no decision of it.
    decides = getattr(run, "benchmark", None) is None
    own = on_own_servers(facts, Policy(decide_by="latency"), agents=400).decided
    assert ("--agents 400 --decide-by latency" in own) == decides
    margins = on_own_servers(facts, Policy(min_change=0.015, accuracy_margin=0.02)).decided
    assert ("--min-change 0.015 --accuracy-margin 0.02" in margins) == decides
    described, decided, _ = on_own_servers(facts)
    assert not refused(described)
    assert not refused(decided)


def test_the_load_of_the_run_is_kept_and_what_the_suggestion_sets_is_its_own() -> None:
    run = ran(
        f"{PAST} --pairs 4 --sessions 16 --wait-cap user=20 --wait-cap tool=5 --warmup --json"
    )
    assert whole(steps.MorePairs(pairs=30), run) == (
        f"{PAST} --pairs 30 --sessions 16 --wait-cap user=20s --wait-cap tool=5s --warmup --resume r"
    )


SIMULATED = "agentload simulate demo-chat --profile llama-3.1-8b-h100 --pairs 4"
ON_SERVERS = "agentload replay demo-chat --endpoints arms.yaml --pairs 4"


@pytest.mark.parametrize(
    ("command", "step", "pairs"),
    [
        (SIMULATED, steps.MorePairs(pairs=51), 51),
        (SIMULATED, steps.Swap(pairs=6), 8),
        (ON_SERVERS, steps.MorePairs(pairs=51), 51),
        (ON_SERVERS, steps.Swap(pairs=6), 8),
        (ON_SERVERS, steps.Restarts(restarts=5), 5),
    ],
)
def test_each_pair_that_a_suggestion_adds_is_as_large_as_those_of_the_run(
    command: str, step: steps.Step, pairs: int
) -> None:
    began = of_command(command)
    suggested = whole(step, ran(command), played=4)
    wanted = of_command(suggested)
    assert isinstance(began, Replay)
    assert isinstance(wanted, Replay)
    if "--resume" in suggested:
        wanted = given_pairs(began, wanted)  # as the run does by itself
    trace, _ = read_traces(began.traces)
    first, more = (
        of_study(each, trace, ["bf16", "fp8"], run="r", machines=("m1", "m2"))
        for each in (began, wanted)
    )
    played = {play.pair for each in more.rounds for play in each.plays}
    assert (len(played), more.blocks) == (pairs, first.blocks)


def test_a_decision_on_own_servers_keeps_what_the_user_said() -> None:
    run = ran(f"{PAST} --pairs 4 --seed 3 --temperature 0.6 --wait-cap user=90")
    decided = on_own_servers(
        replace(run, price_usd=2.5, budget_s=7200.0), agents=400, reference="fp8"
    )[1]
    assert decided == (
        "agentload decide rag --endpoints endpoints.yaml --reference fp8 --agents 400 --price 2.5 "
        "--budget 2h --wait-cap user=90s --seed 3 --temperature 0.6 --db agentload.duckdb"
    )


def test_what_changes_the_plan_is_a_run_of_its_own_in_the_same_database() -> None:
    run = ran(f"{PAST} --pairs 4", database="d.duckdb")
    assert whole(steps.Control(arm="bf16"), run) == f"{PAST} --pairs 4 --aa bf16 --db d.duckdb"
    assert whole(MORE, run).endswith(" --pairs 8 --db d.duckdb --resume r")


def test_what_a_sweep_asked_is_no_trace_to_replay() -> None:
    run = RunFacts(
        made=Made(run="r", tool_version="1", traces=("context-sweep",)),
        study=of_command("agentload sweep --contexts 1k,4k --endpoints arms.yaml"),
    )
    assert whole(steps.Again(), run) == "agentload replay TRACE --endpoints arms.yaml"
    assert on_own_servers(run)[1].startswith("agentload decide TRACE --endpoints endpoints.yaml")


def test_another_run_has_as_many_pairs_as_one_that_has_grown() -> None:
    run = ran(f"{PAST} --pairs 1")
    assert whole(steps.Control(arm="bf16"), run, played=3) == (
        f"{PAST} --pairs 3 --blocks 1 --aa bf16"
    )
    assert whole(steps.Again(), run, played=3) == f"{PAST} --pairs 3 --blocks 1"


def test_a_run_whose_arms_changed_machines_is_given_as_many_pairs_on_each() -> None:
    run = ran(f"{PAST} --design parallel --swap")
    for wanted, more in ((3, 12), (9, 12), (12, 12), (13, 18)):
        for step in (steps.MorePairs(pairs=wanted), steps.Swap(pairs=wanted)):
            assert (
                whole(step, run, played=6)
                == f"{PAST} --pairs {more} --design parallel --swap --resume r"
            )


def test_changes_of_machines_are_a_run_of_their_own() -> None:
    assert (
        whole(steps.Swap(pairs=12), ran(f"{PAST} --pairs 6 --design parallel"))
        == f"{PAST} --pairs 12 --blocks 6 --design parallel --swap"
    )


def test_a_run_that_was_stopped_is_gone_on_with_as_it_was_of_command() -> None:
    run = ran(f"{PAST} --launch --pairs 4 --restarts 4")
    assert (
        whole(steps.MorePairs(pairs=3), run) == f"{PAST} --launch --restarts 4 --pairs 4 --resume r"
    )
    assert (
        whole(steps.MorePairs(pairs=5), run) == f"{PAST} --launch --restarts 4 --pairs 5 --resume r"
    )


def test_servers_are_never_started_less_often_than_the_run_began_with() -> None:
    wanted = steps.Restarts(restarts=5)
    assert (
        whole(wanted, ran(f"{PAST} --launch --pairs 8"), played=8)
        == f"{PAST} --launch --pairs 13 --resume r"
    )
    often = ran(f"{PAST} --launch --pairs 8 --restarts 8")
    assert whole(wanted, often, played=8) == f"{PAST} --launch --restarts 8 --pairs 13 --resume r"
    seldom = ran(f"{PAST} --launch --pairs 4 --restarts 2")
    assert whole(wanted, seldom, played=4) == f"{PAST} --launch --restarts 5 --pairs 5 --resume r"
    fewer = f"{PAST} --launch --restarts 5 --pairs 5 --blocks 6"
    assert whole(wanted, ran(PAST), played=6) == fewer
    assert suggestion(steps.Restarts(restarts=1001), ran(PAST), played=6) is None, (
        "nobody starts them so often"
    )


@pytest.mark.parametrize(
    ("servers", "command"),
    [
        (
            "bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1",
            "agentload endpoints init --model m --out endpoints.yaml",
        ),
        ("emulated:qwen3-30b-a3b-h200/bf16+fp8", None),
    ],
)
def test_starts_of_servers_begin_with_the_file_that_says_how_they_are_started(
    servers: str, command: str | None
) -> None:
    run = ran(f"agentload replay rag --endpoints {servers} --model m")
    assert suggestion(steps.Restarts(restarts=5), run) == command


def test_a_run_that_gets_to_start_its_servers_plays_them_in_turn_and_primes_them_by_their_start() -> (
    None
):
    wanted = steps.Restarts(restarts=5)
    alone = f"{PAST} --launch --restarts 5 --pairs 5 --blocks 6"
    for said in ("--warmup", "--design sequential", "--design parallel --swap"):
        assert whole(wanted, ran(f"{PAST} {said}"), played=6) == alone


def test_a_sweep_beside_a_run_starts_its_servers_no_more_often_than_it_has_pairs() -> None:
    run = ran(f"{PAST} --launch --pairs 12 --restarts 12")
    sweep = "agentload sweep --endpoints arms.yaml --launch --restarts 6 --contexts 1k,4k"
    assert whole(steps.Lengths(lengths=(1024, 4096)), run) == sweep


def test_a_noise_floor_is_measured_one_arm_at_a_time_on_machines_that_stay() -> None:
    run = ran(f"{PAST} --design parallel --swap")
    assert whole(steps.Control(arm="bf16"), run, played=6) == f"{PAST} --aa bf16"


def test_arms_change_machines_without_a_second_copy_of_one() -> None:
    for said in ("--aa bf16", "--design sequential", "--launch"):
        assert whole(steps.Swap(pairs=6), ran(f"{PAST} {said}"), played=6) == f"{PAST} --swap"
    assert (
        whole(steps.Again(), ran(f"{PAST} --design parallel --swap"), played=7)
        == f"{PAST} --pairs 12 --blocks 6 --design parallel --swap"
    )


@pytest.mark.parametrize(
    ("wanted", "played", "more"),
    [
        (3, 2, None),  # the run was stopped: it is resumed as it was typed
        (4, 2, None),
        (5, 2, 5),
        (3, 4, 7),
        (4, 4, 8),
        (5, 4, 5),
    ],
)
def test_pairs_that_are_wanted_come_on_top_where_the_run_has_as_many(
    wanted: int, played: int, more: int | None
) -> None:
    step = steps.MorePairs(pairs=wanted)
    assert (
        whole(step, ran(f"{PAST} --pairs 4"), played=played)
        == f"{PAST} --pairs {more or 4} --resume r"
    )


def test_a_class_that_few_pairs_of_a_whole_run_hold_asks_for_pairs_on_top() -> None:
    run = ran(PAST)
    assert whole(steps.MorePairs(pairs=3), run, played=6) == f"{PAST} --pairs 9 --resume r"
    assert whole(steps.MorePairs(pairs=3), run, played=5) == f"{PAST} --resume r"


def test_a_simulation_is_given_more_pairs_by_a_longer_one() -> None:
    run = ran("agentload simulate rag --profile p --rate 2")
    assert whole(MORE, run, played=6) == (
        "agentload simulate rag --profile p --pairs 8 --blocks 6 --rate 2"
    )
    assert (
        whole(steps.Swap(pairs=8), run, played=6)
        == "agentload simulate rag --profile p --pairs 12 --blocks 6 --swap --rate 2"
    )
    assert whole(steps.Again(), run) == "agentload simulate rag --profile p --rate 2"
    assert suggestion(steps.Control(arm="bf16"), run) is None


def test_what_is_asked_beside_a_simulation_is_asked_of_its_profile() -> None:
    run = ran(
        "agentload simulate rag --profile p --arms bf16,fp8 --rate 2 --wait-cap user=5",
        database="d.duckdb",
    )
    questions, search = (
        steps.Questions(lengths=(8192, 16384), items=90),
        steps.CapacitySearch(limits=None, trial_s=60.0),
    )
    assert whole(questions, run, joins=True) == (
        "agentload eval --endpoints emulated:p/bf16+fp8 --contexts 8k..16k --items 90 --db "
        "d.duckdb --into r"
    )
    assert whole(steps.Lengths(lengths=(1024, 2048)), run) == (
        "agentload sweep --endpoints emulated:p/bf16+fp8 --contexts 1k..2k --db d.duckdb"
    )
    assert whole(search, run, joins=True) == (
        "agentload simulate rag --profile p --arms bf16,fp8 --find max-concurrency "
        "--wait-cap user=5s --db d.duckdb --into r"
    )


def test_a_decision_after_a_simulation_is_under_the_same_load_in_blocks_of_its_own() -> None:
    run = ran(
        "agentload simulate rag --profile p --rate=2 --cv 3 --no-noise --duration 240 --pairs 9"
    )
    assert on_own_servers(run) == (
        "agentload endpoints init --model MODEL --out endpoints.yaml",
        "agentload decide rag --endpoints endpoints.yaml --rate 2 --cv 3 --db agentload.duckdb",
        45.0,
    )
    assert on_own_servers(replace(run, made=replace(run.made, model="llama-3.1-8b")))[0].endswith(
        "--model llama-3.1-8b --out endpoints.yaml"
    )


def test_what_the_user_gave_is_in_the_commands_for_other_servers() -> None:
    run = ran(
        "agentload simulate code.jsonl --profile p --benchmark agentx --sessions 8 --pairs 2 "
        "--seed 42"
    )
    assert on_own_servers(run)[1:] == (
        (
            "agentload replay code.jsonl --endpoints endpoints.yaml --pairs 2 --benchmark agentx "
            "--sessions 8 --seed 42 --db agentload.duckdb"
        ),
        None,
    )
    short = replace(ran("agentload simulate chat --profile p"), budget_s=5400.0)
    assert on_own_servers(short)[1:] == (
        "agentload decide chat --endpoints endpoints.yaml --budget 90m --db agentload.duckdb",
        90.0,
    )
    arms = tuple(Served(arm=name) for name in ("bf16", "fp8-drafts", "bf16-drafts", "own"))
    of_drafts = replace(short, made=replace(short.made, model="m", servers=arms))
    assert on_own_servers(of_drafts)[0] == (
        "agentload endpoints init --model m --arms bf16,fp8-drafts,bf16-drafts --out endpoints.yaml"
    )


def test_an_arm_that_a_finding_asks_for_is_in_the_arms_file_that_it_suggests() -> None:
    arms = tuple(Served(arm=name) for name in ("bf16", "fp8"))
    run = RunFacts(made=Made(run="r", tool_version="1", model="m", servers=arms))
    init = "agentload endpoints init --model m"
    step = steps.ArmsFile(arm="fp8-skip-sw")
    assert whole(step, run) == f"{init} --arms bf16,fp8,fp8-skip-sw --out -"
    own = replace(run, made=replace(run.made, servers=(Served(arm="mine"), Served(arm="fp8"))))
    assert whole(step, own) == f"{init} --out -"  # with the usual ones, which it is of


def test_a_decision_after_a_run_that_fills_the_pool_holds_its_service_level() -> None:
    run = ran(
        "agentload simulate chat --profile p --capacity 20 --wait-cap user=60 --max-context 64k"
    )
    assert on_own_servers(run)[1] == (
        "agentload decide chat --endpoints endpoints.yaml --slo ttft=2s,tpot=100ms "
        "--wait-cap user=1m "
        "--max-context 64k --db agentload.duckdb"
    )


def test_a_run_that_is_no_study_keeps_its_traces_and_has_blanks_for_its_servers() -> None:
    run = ran("agentload watch run nightly", database="w.duckdb")
    assert whole(MORE, run) == "agentload replay rag --endpoints ENDPOINTS --pairs 8 --db w.duckdb"
    assert whole(steps.Calibrate(), run) == "agentload calibrate rag --model MODEL"
    unknown = RunFacts(made=Made(run="r", tool_version="1"))
    assert whole(steps.Again(), unknown) == "agentload replay TRACE --endpoints ENDPOINTS"


def test_a_replay_has_blanks_for_the_servers_that_nobody_named() -> None:
    unnamed = RunFacts(
        made=Made(run="r", tool_version="1"), study=Replay(traces=(), servers=Live(endpoints=""))
    )
    assert whole(steps.Again(), unnamed) == "agentload replay TRACE --endpoints ENDPOINTS"


def test_answers_that_join_a_run_find_its_database() -> None:
    run = ran(PAST, database="my runs.duckdb")
    asked = steps.Questions(lengths=(8192, 16384), items=90)
    joined = (
        "agentload eval --endpoints arms.yaml --contexts 8k..16k --items 90 --db 'my runs.duckdb'"
    )
    assert whole(asked, run, joins=True) == f"{joined} --into r"
    assert whole(asked, run) == joined


def test_more_questions_are_asked_as_the_first_were_and_of_the_same_run() -> None:
    run = ran(
        "agentload eval --endpoints arms.yaml --tasks needle --contexts 4k --items 20 "
        "--depths 5 --aa bf16"
    )
    assert whole(steps.Questions(lengths=(4096,), items=90), run) == (
        "agentload eval --endpoints arms.yaml --tasks needle --contexts 4k --depths 5 "
        "--items 90 --aa bf16 --into r"
    )
    # Who was not asked twice yet is no arm of the run.
    other = whole(steps.Questions(lengths=(4096,), items=90, aa="fp8"), run)
    assert other.endswith("--items 90 --aa fp8")


def test_questions_after_own_items_are_added_to_them_for_their_answers_count() -> None:
    run = ran("agentload eval --endpoints arms.yaml --own mine.jsonl")
    assert whole(steps.Questions(lengths=(4096,), items=90), run) == (
        "agentload eval --endpoints arms.yaml --contexts 4k --items 90 --into r"
    )


def test_questions_added_to_a_replay_are_made_like_those_that_it_has() -> None:
    run = ran("agentload replay chat --endpoints arms.yaml --tokenizer t.json --seed 5")
    step = steps.Questions(lengths=(4096, 8192), items=90)
    begin = "agentload eval --endpoints arms.yaml "
    assert whole(step, run, joins=True) == (
        f"{begin}--contexts 4k..8k --items 90 --seed 5 --tokenizer t.json --into r"
    )
    form = QuestionOptions(
        seed=3, per_context=4, depths=None, tasks=("needle",), by_length={4096: 8}
    )
    assert whole(step, replace(run, asked=form), joins=True) == (
        f"{begin}--tasks needle --contexts 4k..8k --items 90 --per-context 4 --seed 3 "
        "--tokenizer t.json --into r"
    )
    often = replace(form, tasks=(*reversed(DEFAULT_TASKS),), repetitions=3)
    assert whole(step, replace(run, asked=often), joins=True) == (
        f"{begin}--contexts 4k..8k --items 30 --per-context 4 --repetitions 3 --seed 3 "
        "--tokenizer t.json --into r"
    )
    others = replace(form, tasks=("pointer_chase",), per_context=1, depths=3)
    assert whole(step, replace(run, asked=others), joins=True) == (
        f"{begin}--tasks pointer_chase --contexts 4k..8k --depths 3 --items 90 --seed 3 "
        "--tokenizer t.json --into r"
    )


def test_a_search_tries_the_mix_of_the_run_and_a_sweep_what_its_servers_take() -> None:
    run = ran("agentload replay rag chat --endpoints arms.yaml --wait-cap user=5")
    search = steps.CapacitySearch(limits=None, trial_s=60.0)
    assert whole(search, run, joins=True) == (
        "agentload sweep --concurrency --trace rag,chat --endpoints arms.yaml --wait-cap "
        "user=5s --into r"
    )
    sweep = steps.Lengths(lengths=(1024, 2048, 4096, 8192))
    assert (
        whole(sweep, run, joins=True)
        == "agentload sweep --endpoints arms.yaml --contexts 1k..8k --into r"
    )


def test_a_search_in_virtual_time_tries_sessions_like_those_of_the_run() -> None:
    begin = "agentload simulate rag --profile p"
    of_sessions = "--wait-cap user=5s --max-context 64k --cancel-share 0.1"
    run = ran(f"{begin} --sessions 9 --duration 60 --max-calls 30 {of_sessions}")
    search = steps.CapacitySearch(limits=None, trial_s=60.0)
    assert whole(search, run) == f"{begin} --find max-concurrency {of_sessions}"


def test_a_search_holds_the_limits_of_the_policy_or_those_of_the_long_run() -> None:
    long = ran(f"{PAST} --capacity 24 --slo ttft=2000")
    assert " --slo ttft=2s" in whole(steps.CapacitySearch(limits=None, trial_s=60.0), long)
    assert "--slo" not in whole(steps.Lengths(lengths=(1024,)), long)
    own = whole(
        steps.CapacitySearch(limits=ServiceLimits(tpot_ms=50, share=0.9), trial_s=240.0), long
    )
    assert own.endswith("--seconds 4m --slo tpot=50ms --share 0.9")
    assert "--slo" not in whole(
        steps.CapacitySearch(limits=ServiceLimits(), trial_s=60.0), ran(PAST)
    )


def test_features_are_tried_on_servers_that_run_side_by_side() -> None:
    asked = steps.Features()
    urls = "bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1"
    run = ran(f"agentload replay rag --endpoints {urls}", database="d.duckdb")
    assert whole(asked, run, joins=True) == f"agentload probe --endpoints {urls}"
    assert suggestion(asked, ran(f"{PAST} --launch --pairs 3")) is None
    emulated = ran("agentload replay rag --endpoints emulated:qwen3-30b-a3b-h200/bf16+fp8")
    assert suggestion(asked, emulated) is None


def test_what_a_defaults_file_here_would_change_is_spelled_out() -> None:
    """A command that leaves out what is usual would take what the file says instead."""
    facts = replace(
        ran(PAST, "x.duckdb"),
        spelled=frozenset({"--pairs", "--wait-cap", "--sessions", "--seed", "--contexts"}),
    )
    words = shlex.split(whole(steps.Again(), facts, played=4))
    assert words[words.index("--pairs") + 1] == "6"  # the usual number
    assert words[words.index("--seed") + 1] == "0"
    assert "--seed" not in whole(steps.Again(), replace(facts, spelled=frozenset()), played=4)
    assert silent_options(facts) == ("--sessions", "--wait-cap")
    assert split(words[1:])[1]["seed"] == "0"


def test_what_no_command_can_leave_out_is_said_before_the_commands() -> None:
    decision, evidence = sample.decision("simulated"), sample.evidence("simulated")
    told = document(
        decision, evidence, replace(sample.facts(), spelled=frozenset({"--rate"})), policy=Policy()
    )
    assert (
        told.do_now[0].text
        == "agentload.toml sets --rate here, which this run did without: take that out first."
    )
