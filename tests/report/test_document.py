from dataclasses import replace

import numpy as np
import pytest

from advisor.decide import decide
from advisor.evidence import Arm, ClientHealth, Deployment, Evidence, Probe
from advisor.policy import Policy, Slo
from advisor.verdict import Capacity, Choice, Decision, Figure, Gate
from agentload.report.charts.spec import Plot
from agentload.report.document import document
from agentload.report.facts import Made, RunFacts, Served, Timeline
from agentload.report.parts import Cell, Check, Document, Step
from tests.report import sample

POLICY = Policy()


def made(
    decision: Decision | None = None, evidence: Evidence | None = None, facts: RunFacts | None = None, policy: Policy = POLICY
) -> Document:
    return document(decision or sample.decision(), evidence or sample.evidence(), facts or sample.facts(), policy=policy)


def chosen(choice: Choice, **changes: object) -> Decision:
    return replace(sample.decision(), choice=replace(choice, **changes))  # type: ignore[arg-type]  # the field's own type, by name


CHOICE = sample.decision().choice


def test_the_headline_is_the_advisors_with_the_arms_named_as_people_do() -> None:
    told = made(
        chosen(CHOICE, arm="bf16", verdict="test further", headline="stay on bf16; test fp8-skip-sw further", runner_up="fp8-skip-sw")
    )
    assert (told.headline, told.tone) == ("stay on BF16; test FP8 skip-SW further", "muted")
    assert made().headline == "canary FP8 skip-SW, then roll out"


def test_the_headings_of_the_four_lists_are_the_lectures() -> None:
    assert [listing.heading for listing in made().lists] == [
        "Use FP8 KV-cache for",
        "Avoid FP8 KV-cache for",
        "Need calibration for",
        "Need further testing for",
    ]


def test_every_class_is_in_exactly_the_lists_of_its_verdicts() -> None:
    told = made()
    assert {listing.word: listing.items for listing in told.lists} == {
        "use": ("code, long_chat (FP8 skip-SW)",),
        "avoid": ("rag (FP8)",),
        "calibrate": ("code, long_chat (FP8)",),
        "test further": (
            "multimodal (FP8 skip-SW: +260 calls, 7 min)",
            "multimodal (FP8: +260 calls, 7 min)",
            "contexts above 128k (3 % of your calls, not tested: stay on BF16 or cap)",
        ),
    }
    assert told.no_difference == ("rag (FP8 skip-SW)",)


def test_a_verdict_that_all_classes_share_is_told_once() -> None:
    decision = sample.decision()
    same = tuple(replace(each, verdict="calibrate") if each.arm == "fp8" else each for each in decision.classes)
    assert made(replace(decision, classes=same)).lists[2].items == ("FP8, the whole server",)


def test_arms_that_are_not_about_fp8_give_the_headings_their_own_name() -> None:
    evidence = replace(sample.evidence(), reference="old", arms=(Arm(name="old"), Arm(name="new")), server=(), sweeps=(), capacity=())
    decision = replace(
        chosen(CHOICE, arm="new", runner_up=None),
        reference="old",
        server=(replace(sample.verdict("fp8-skip-sw", None, "use"), arm="new"),),
        classes=(),
        itl=(),
        ttft=(),
        break_even=(),
        changes=(),
        accuracy=(),
    )
    told = made(decision, evidence, RunFacts(made=Made(run="r", tool_version="0.1.0")))
    assert told.title == "new against old on"
    assert told.lists[0].heading == "Use new for"


def test_commands_that_name_a_database_can_be_copied_whatever_it_is_called() -> None:
    facts = RunFacts(made=Made(run="r", tool_version="0.1.0", database="my runs.duckdb"))
    told = made(sample.decision(), sample.evidence(), facts)
    assert told.commands[-1].command == "agentload report 'my runs.duckdb' --run r -o FOLDER"
    assert "agentload report 'my runs.duckdb' --run r --against" in told.belief[-1].text


def row(told: Document, name: str) -> tuple[Cell, ...]:
    return next(cells[1:] for cells in told.server.rows if cells[0].text == name)


def test_the_server_table_answers_for_every_arm() -> None:
    told = made()
    assert told.server.columns == ("", "BF16", "FP8", "FP8 skip-SW")
    assert row(told, "agent turn time, weighted") == (
        Cell(text="0"),
        Cell(text="−5.5 % [−7.7, −3.3]"),
        Cell(text="−6.0 % [−7.9, −4.1]", tone="strong"),
    )
    assert row(told, "answers right, 744 pairs") == (
        Cell(text="86.6 %"),
        Cell(text="−1.9 pp [−3.9, +0.1] ✗", tone="bad"),
        Cell(text="−0.6 pp [−2.2, +1.0] ✓", tone="good"),
    )
    assert [cell.text for cell in row(told, "verdict for the server")] == ["today", "calibrate, then re-test", "use, canary first"]


def test_an_untested_leg_is_a_row_of_dashes_not_a_missing_row() -> None:
    evidence = replace(sample.evidence(), accuracy=())
    decision = replace(
        sample.decision(),
        accuracy=(),
        server=tuple(replace(each, safe=replace(each.safe, state="untested", estimate=None)) for each in sample.decision().server),
    )
    told = made(decision, evidence)
    assert [cell.text for cell in row(told, "answers right, not tested")] == ["–", "–", "–"]
    assert told.answers[1].word == "not tested"


def test_the_first_screen_shows_no_fits_no_cdfs_and_no_token_costs() -> None:
    told = made()
    words = repr((told.answers, told.server, told.classes, told.lists, told.asides, told.belief))
    assert [word for word in ("slope", "Theil", "CDF", "distribution", "USD", "per token") if word in words] == []


def test_a_ttft_above_its_service_level_is_marked() -> None:
    told = made(policy=Policy(slos=(Slo(workload="code", ttft_ms=1_500.0), Slo(ttft_ms=3_000.0))))
    assert told.classes is not None
    assert [cells[3] for cells in told.classes.rows] == [
        Cell(text="1.95 s (SLO 1.5 s)", tone="bad"),
        Cell(text="1.95 s (SLO 3 s)"),
        Cell(text="1.95 s (SLO 3 s)"),
        Cell(text="–", tone="muted"),
    ]


def test_gpus_are_saved_in_whole_ones() -> None:
    def capacity(arm: str, replicas: int | None, reason: str = "pool full") -> Capacity:
        return Capacity(arm=arm, workload=None, agents_per_gpu=None, replicas_at_peak=replicas, next_replica_at_agents=None, reason=reason)

    evidence = replace(sample.evidence(), deployment=replace(sample.evidence().deployment, gpus_per_replica=4))
    saved = made(replace(sample.decision(), capacity=(capacity("bf16", 3), capacity("fp8-skip-sw", 2))), evidence).answers[2]
    assert (saved.word, saved.tone, saved.because) == ("4", "good", "FP8 skip-SW needs 2 replicas at your peak of 42 agents, BF16 3")
    unknown = made(replace(sample.decision(), capacity=())).answers[2]
    assert (unknown.word, unknown.because) == ("not known", "capacity was not measured")
    both = (capacity("bf16", None, "the pool never filled"), capacity("fp8-skip-sw", None, "the pool never filled"))
    assert made(replace(sample.decision(), capacity=both)).answers[2].because == "the pool never filled"


def test_figures_of_another_kind_never_enter_a_table() -> None:
    decision = sample.decision()
    stranger = Figure(name="ttft_ms.p95", arm="bf16", workload="code", estimate=sample.estimate(1.0, unit="ms"), kind="simulated")
    assert made(replace(decision, figures=(stranger, *decision.figures))).groups == made(decision).groups


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


@pytest.mark.parametrize(
    ("kind", "words"), [("measured", "Measured on real servers"), ("emulated", "Emulated:"), ("simulated", "Simulated:")]
)
def test_the_kind_of_the_evidence_is_said_first(kind: str, words: str) -> None:
    told = made(replace(sample.decision(), kind=kind))  # type: ignore[arg-type]  # one of the three
    assert told.banner.startswith(words)
    assert ("agentload replay" in repr(told.do_now[0])) == (kind != "measured")


def checks(evidence: Evidence, facts: RunFacts | None = None) -> set[Check]:
    return set(made(evidence=evidence, facts=facts).belief)


def test_what_speaks_against_the_figures_is_said() -> None:
    evidence = sample.evidence()
    arms = (
        replace(evidence.arms[0], kernel="FLASH_ATTN(FA3)"),
        replace(evidence.arms[1], kernel="FLASHINFER", observed_dtype="bfloat16"),
        evidence.arms[2],
    )
    poor = replace(
        evidence,
        arms=arms,
        aa=(),
        deployment=replace(evidence.deployment, swapped=False),
        health=(ClientHealth(void_blocks=6, blocks=24, foreign_requests=3),),
        server=tuple((arm, replace(figures, pool_filled_share=0.0)) for arm, figures in evidence.server),
    )
    servers = tuple(Served(arm=arm, steady=arm != "fp8") for arm in sample.ARMS)
    facts = replace(sample.facts(), made=replace(sample.facts().made, servers=servers))
    decision = sample.decision()
    uncontrolled = replace(decision, changes=tuple(replace(each, floor=None) for each in decision.changes))
    assert set(made(uncontrolled, poor, facts).belief) >= {
        Check(state="bad", text="each arm stayed on its own machine: a difference may be the machine's"),
        Check(state="bad", text="KV dtype is not what was asked: FP8 (bfloat16 for fp8_e4m3)"),
        Check(state="bad", text="attention kernel differs: BF16 FLASH_ATTN(FA3), FP8 FLASHINFER, FP8 skip-SW FLASH_ATTN(FA3)"),
        Check(state="bad", text="identity changed during the run: FP8"),
        Check(state="bad", text="3 foreign requests on the servers"),
        Check(state="bad", text="6 of 24 blocks void"),
        Check(state="unknown", text="no A/A control run: the noise floor is not known"),
        Check(state="unknown", text="KV pool never filled on BF16, FP8, FP8 skip-SW: nothing follows there for capacity"),
    }


def test_equal_servers_that_differ_by_more_than_any_margin_speak_against_the_figures() -> None:
    decision = sample.decision()
    wild = replace(decision, changes=tuple(replace(each, floor=0.19) for each in decision.changes))
    assert Check(state="bad", text="A/A noise floor across machines ±19.0 % of turn time") in made(wild).belief


def test_what_was_not_observed_is_never_told_as_fine() -> None:
    evidence = replace(
        sample.evidence(),
        arms=tuple(Arm(name=name) for name in sample.ARMS),
        deployment=Deployment(gpu=sample.evidence().deployment.gpu),
        health=(),
        server=(),
    )
    facts = RunFacts(made=Made(run="r", tool_version="0.1.0"))
    fine = {check.text for check in checks(evidence, facts) if check.state == "ok"}
    assert fine == {
        "A/A noise floor across machines ±1.8 % of turn time",
        "8 block pairs, 288 calls on the same bytes in each arm",
        "2 of 3 physics and health gates passed, none failed",
    }


def test_only_a_decision_to_use_an_arm_plans_a_canary() -> None:
    plan = made().rollout
    assert plan is not None
    assert plan.arguments == ("--max-model-len", "131072", "--kv-cache-dtype", "fp8_e4m3", "--kv-cache-dtype-skip-layers", "sliding_window")
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


def test_a_million_calls_are_drawn_with_few_marks() -> None:
    rng = np.random.default_rng(0)
    evidence = sample.evidence()
    many = sample.calls("code", "fp8", pairs=400, per_pair=50)
    shuffled = replace(many, ttft_ms=rng.permutation(many.ttft_ms))
    observations = tuple(
        replace(each, calls=shuffled) if (each.workload, each.arm) == ("code", "fp8") else each for each in evidence.observations
    )
    groups = made(evidence=replace(evidence, observations=observations)).groups
    marks = [len(series.xs) for group in groups for chart in group.charts if hasattr(chart, "series") for series in chart.series]
    assert max(marks) <= 150


def test_the_inequality_that_decided_is_written_out() -> None:
    assert made().verdicts[0].inequality == "turn time, FP8 skip-SW / BF16: −6.0 % [−7.9, −4.1] < −3.0 % (holds)"


def test_findings_that_block_come_first_and_screening_and_priors_carry_a_badge() -> None:
    assert [(reason.title, reason.badges) for reason in made().findings] == [
        ("FP8 on the whole server", ("opposes", "rule: systematic shift", "screening, unadjusted")),
        ("FP8 skip-SW on the whole server", ("supports", "rule: window layers")),
        ("FP8 skip-SW on the whole server", ("informs", "rule: published break even", "published figures, not this run")),
    ]


def test_names_of_charts_are_safe_and_differ_even_where_workloads_look_alike() -> None:
    evidence = sample.evidence()
    twins = {"code": "a b", "rag": "a/b"}
    renamed = replace(
        evidence,
        workloads=tuple(replace(each, name=twins.get(each.name, each.name)) for each in evidence.workloads),
        observations=tuple(replace(each, workload=twins.get(each.workload, each.workload)) for each in evidence.observations),
    )
    names = [chart.name for group in made(evidence=renamed).groups for chart in group.charts]
    assert len(set(names)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in names)


def test_what_settles_a_question_is_the_largest_of_the_commands_that_differ_in_a_count_alone() -> None:
    assert [step for step in made().do_now if step.text.startswith("To settle")] == [
        Step(
            text="To settle what is open: 180 paired calls of multimodal on FP8, 5 min; "
            "260 paired calls of multimodal on FP8 skip-SW, 7 min.",
            command="agentload replay traces/mix.jsonl --endpoints arms.yaml --pairs 30 --model acme/hybrid-30b --db run.duckdb "
            "--resume r-2026-11-20-a1",
        )
    ]


def test_a_command_keeps_its_blanks_where_the_run_does_not_fill_them() -> None:
    facts = RunFacts(made=Made(run="r", tool_version="0.1.0", command="agentload simulate rag --profile 'broken"))
    assert made(facts=facts).do_now[1].command == "agentload replay TRACE --endpoints ENDPOINTS --pairs 30"


def test_an_endpoint_list_is_quoted_as_it_must_be_typed() -> None:
    facts = RunFacts(
        made=Made(run="r", tool_version="0.1.0", traces=("a b",), command="agentload replay 'a b' '--endpoints=x=http://h/v1?k=1&l=2'")
    )
    assert made(facts=facts).do_now[1].command == "agentload replay 'a b' --endpoints 'x=http://h/v1?k=1&l=2' --pairs 30 --resume r"


def test_a_failed_gate_is_told_with_what_it_saw() -> None:
    gates = tuple(
        Gate(name="steady", status="fail", arm="fp8", workload=name, message="the last third lies +9% from the first")
        for name in ("code", "rag")
    )
    decision = replace(
        sample.decision(), gates=gates, caveats=("steady: the last third lies +9% from the first.", "Each server was started once.")
    )
    told = made(decision)
    assert Check(state="bad", text="failed gate: steady on FP8, code, the last third lies +9 % from the first; 1 more time") in told.belief
    assert dict(told.asides)["Caveats"] == "Each server was started once"


@pytest.mark.parametrize(
    ("few", "heading", "cells"),
    [
        (set(), "TTFT p95", ("1.95 s", "1.95 s")),
        ({"rag", "code", "long_chat"}, "TTFT p50", ("1.95 s", "1.95 s")),
        ({"rag"}, "TTFT", ("p50 1.95 s", "p95 1.95 s")),
    ],
)
def test_too_few_sessions_for_a_p95_show_the_median_and_the_heading_says_which_it_is(
    few: set[str], heading: str, cells: tuple[str, str]
) -> None:
    decision = sample.decision()
    figures = tuple(replace(each, name=each.name.replace("p95", "p50")) if each.workload in few else each for each in decision.figures)
    told = made(replace(decision, figures=figures))
    assert told.classes is not None
    assert told.classes.columns[3] == f"FP8 skip-SW {heading}"
    by_class = {row[0].text.split()[0]: row[3].text for row in told.classes.rows}
    assert (by_class["rag"], by_class["code"]) == cells


def test_verdicts_that_read_the_same_are_told_once() -> None:
    decision = sample.decision()
    alike = tuple(
        replace(each, verdict="test further", reason="nobody looked", inequality=None, flips=(), needs=())
        for each in (*decision.server, *decision.classes)
        if each.workload != "rag" or each.arm == "fp8"
    )
    told = made(replace(decision, server=alike[:2], classes=alike[2:]))
    places = "the whole server, code, long_chat"
    title = f"FP8 skip-SW on {places}, multimodal; FP8 on {places}, rag, multimodal: test further"
    assert [(reason.title, reason.message) for reason in told.verdicts] == [(title, "nobody looked")]


def test_calls_far_above_the_others_are_counted_not_drawn() -> None:
    evidence = sample.evidence()
    sweep = evidence.sweeps[0]
    slow = replace(sweep, itl_ms=np.where(np.arange(36) == 3, 900.0, sweep.itl_ms))
    groups = made(evidence=replace(evidence, sweeps=(slow, *evidence.sweeps[1:]))).groups
    chart = next(chart for group in groups for chart in group.charts if chart.name == "itl")
    assert isinstance(chart, Plot)
    assert max(max(series.ys) for series in chart.series) < 20
    assert chart.caption.endswith("1 slower call not drawn, above the frame.")


def test_graded_answers_count_in_part() -> None:
    scores = np.array([1.0, 0.5, 0.0, 0.7])
    graded = tuple(
        replace(each, both=0, reference_only=0, arm_only=0, neither=0, reference_scores=scores, arm_scores=scores)
        for each in sample.evidence().accuracy
    )
    told = made(evidence=replace(sample.evidence(), accuracy=graded))
    assert row(told, "answers right, 16 pairs")[0] == Cell(text="55.0 %")


def test_a_run_of_one_arm_is_told_without_a_comparison() -> None:
    evidence = sample.evidence()
    alone = replace(
        evidence, arms=evidence.arms[:1], observations=evidence.observations[:1], server=(), sweeps=(), capacity=(), accuracy=(), aa=()
    )
    told = document(decide(alone), alone, RunFacts(made=Made(run="r", tool_version="0.1.0")), policy=POLICY)
    assert (told.title, told.headline) == ("BF16 alone on", "stay on BF16: nothing was compared with it")
    assert [answer.question for answer in told.answers] == ["GPUs saved today"]
    assert told.rollout is None


def test_probed_combinations_stand_in_a_table() -> None:
    probes = (
        Probe(arm="fp8", prefix_caching=True, cuda_graphs=False, outcome="ok"),
        Probe(arm="fp8", outcome="garbage", detail="repeats itself"),
    )
    group = next(
        group for group in made(evidence=replace(sample.evidence(), probes=probes)).groups if group.title == "Feature combinations"
    )
    assert [[cell.text for cell in cells] for cells in group.tables[0].rows] == [
        ["FP8", "on", "off", "ok", ""],
        ["FP8", "–", "–", "garbage", "repeats itself"],
    ]


def test_a_run_in_which_every_call_failed_is_still_reported() -> None:
    evidence = sample.evidence()
    failed = tuple(
        replace(each, calls=None if each.calls is None else replace(each.calls, ok=np.zeros_like(each.calls.ok)))
        for each in evidence.observations
    )
    assert document(sample.decision(), replace(evidence, observations=failed), sample.facts(), policy=Policy()).groups


def test_what_was_played_as_a_control_is_no_arm_of_the_report() -> None:
    control = Timeline(arm="bf16@aa", seconds=(0.0, 1.0), kv_usage=(0.1, 0.2), preemptions=(0.0, 1.0))
    facts = sample.facts()
    played = replace(facts, timelines=(*facts.timelines, control))
    assert document(sample.decision(), sample.evidence(), played, policy=Policy()) == document(
        sample.decision(), sample.evidence(), facts, policy=Policy()
    )


def test_without_metrics_of_production_it_is_not_known_whether_the_load_is_its() -> None:
    """One line, with what the trace is and the command that would tell."""
    facts = replace(sample.facts(), production=None)
    assert made(facts=facts).belief[-1] == Check(
        state="unknown",
        text="representativeness unknown: replayed from claude_code import of 480 sessions; compare with production by "
        "agentload report run.duckdb --run r-2026-11-20-a1 --against prometheus=URL",
    )
    assert "Production" not in {group.title for group in made(facts=facts).groups}
    assert made(facts=facts).production == ()


def test_the_load_of_the_arm_in_use_is_held_against_production() -> None:
    told = made()
    assert told.belief[-1].state == "bad"
    assert told.belief[-1].text == (
        "replayed from claude_code import of 480 sessions; 11 of 15 figures are like production's; "
        "more: time to first token (q99), KV pool in use; less: output tokens (mean, q99)"
    )
    (table,) = next(group.tables for group in told.groups if group.title == "Production")
    assert len(table.rows) == len(told.production) == 15
    by_name = {row[0].text: tuple(cell.text for cell in row[1:]) for row in table.rows}
    calls = [each.calls for each in sample.evidence().observations if each.arm == "bf16" and each.calls is not None]
    prompts = np.concatenate([each.prompt_tokens for each in calls])
    computed = np.concatenate([each.computed_tokens for each in calls if each.computed_tokens is not None])
    assert by_name["prompt tokens mean"] == (f"{prompts.mean():,.0f}", "26,000", "alike")
    assert by_name["cached share of prompts"] == (f"{1 - computed.sum() / prompts.sum():.0%}".replace("%", " %"), "71 %", "alike")
    assert by_name["output tokens q99"][1:] == ("over 1,000", "less")


def test_a_load_like_productions_speaks_for_the_figures() -> None:
    facts = sample.facts()
    assert facts.production is not None
    prompts = {name: found for name, found in facts.production.histograms.items() if "prompt" in name}
    told = made(facts=replace(facts, production=replace(facts.production, histograms=prompts, values={})))
    assert told.belief[-1] == Check(
        state="ok", text="replayed from claude_code import of 480 sessions; 4 of 4 figures are like production's"
    )
