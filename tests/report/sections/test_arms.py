"""The tables of the arms: that of the first screen, and the same by class."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.decide import decide
from advisor.estimate import Estimate
from advisor.evidence import AccuracyBucket, Observation, Telemetry
from advisor.loads import CapacityPoint
from advisor.policy import Policy, ServiceLimits
from advisor.steps import Again
from advisor.verdict import Capacity, Leg, Need
from agentload.report.charts.spec import Lanes
from agentload.report.parts import Cell, Document
from tests.advisor.cases import compared
from tests.report import sample
from tests.report.telling import CHOICE, chosen, made


def row(told: Document, name: str) -> tuple[Cell, ...]:
    return next(cells[1:] for cells in told.arms.rows if cells[0].text.startswith(name))


def by_class(told: Document) -> dict[str, tuple[Cell, ...]]:
    return {cells[0].text: cells[1:] for cells in told.groups[0].tables[0].rows}


def test_the_first_table_has_the_reference_in_absolute_values_beside_every_change_and_the_noise() -> (
    None
):
    told = made()
    assert told.arms.columns == (
        "8 block pairs; lower is better, ↑: higher is better",
        "BF16",
        "FP8",
        "FP8: change",
        "FP8 skip-SW",
        "FP8 skip-SW: change",
        "noise",
    )
    assert row(told, "turn latency") == (
        Cell(text="3.57 s"),
        Cell(text="3.37 s"),
        Cell(text="−5.5% [−7.7, −3.3]"),
        Cell(text="3.35 s"),
        Cell(text="−6.0% [−7.9, −4.1]", tone="strong"),
        Cell(text="±1.8%", tone="muted"),
    )
    assert row(told, "accuracy at 8k to 128k, 744 questions")[:5] == (
        Cell(text="86.6%"),
        Cell(text="84.7%"),
        Cell(text="−1.9 pp [−3.9, +0.1] ✗", tone="bad"),
        Cell(text="86.0%"),
        Cell(text="−0.6 pp [−2.2, +1.0] ✓", tone="good"),
    )
    assert [cell.text for cell in row(told, "verdict")[:5]] == [
        "",
        "",
        "calibrate, then test again",
        "",
        "use, canary first",
    ]


def test_the_note_says_what_is_bold_what_the_band_is_and_how_questions_weigh() -> None:
    note = made().arms.note
    assert "Bold: the arm to use." in note
    assert (
        "A change counts from 3% (min_change). “No difference” needs a change within ±3% "
        "whose whole interval is within ±6%."
    ) in note
    assert "Accuracy weighs each length by your calls of that length." in note
    avoided = made(chosen(CHOICE, verdict="avoid", arm="bf16"))
    assert "Bold" not in avoided.arms.note


def test_what_was_not_measured_is_one_line_and_no_row_of_dashes() -> None:
    evidence = replace(sample.evidence(), accuracy=())
    decision = replace(
        sample.decision(),
        accuracy=(),
        capacity=(),
        server=tuple(
            replace(each, safe=replace(each.safe, state="untested", estimate=None))
            for each in sample.decision().server
        ),
    )
    told = made(decision, evidence)
    assert not [cells for cells in told.arms.rows if {cell.text for cell in cells[1:]} <= {"–", ""}]
    assert told.unmeasured == (
        "agents per GPU; GPUs saved (capacity was not measured); accuracy; validity checks "
        "that lacked data: dropped turns"
    )
    assert told.answers[1].word == "not tested"


def test_a_difference_within_the_noise_says_so_where_it_would_look_like_one() -> None:
    decision = sample.decision()
    noisy = made(
        replace(decision, changes=tuple(replace(each, floor=0.065) for each in decision.changes))
    )
    assert by_class(noisy)["rag 17%: turn latency"][2:] == (
        Cell(text="+5.0% [+1.9, +8.1], within noise", tone="muted"),
        Cell(text="3.50 s"),
        Cell(text="+1.0% [−1.9, +3.9]", tone="muted"),
        Cell(text="±6.5%", tone="muted"),
    )
    assert by_class(noisy)["code 46%: turn latency"][2] == Cell(text="−9.0% [−13.0, −5.0]")


def test_figures_that_a_failed_check_invalidates_are_marked_where_they_stand() -> None:
    decision = sample.decision()
    late = tuple(
        replace(each, pays=replace(each.pays, state="untested")) for each in decision.server
    )
    told = made(replace(decision, server=late))
    assert row(told, "turn latency")[2] == Cell(text="−5.5% [−7.7, −3.3], not valid", tone="muted")
    assert row(told, "output tokens/s per GPU ↑")[2] == Cell(text="−6%, not valid", tone="muted")
    (drawn,) = (
        each for group in told.groups for each in group.charts if each.name == "differences"
    )
    assert isinstance(drawn, Lanes)
    assert {span.slot for span in drawn.spans if span.lane == 1} == {None}


def test_a_verdict_that_waits_for_a_rerun_says_so_beside_what_it_waits_for() -> None:
    decision = sample.decision()
    needs = (
        Need(what="a rerun", step=Again()),
        Need(what="paired questions on fp8", pairs=1_380, minutes=36.0),
    )
    waiting = tuple(replace(each, verdict="test further", needs=needs) for each in decision.server)
    expected = "test further: a run without the failed check and +1,380 questions"
    assert row(made(replace(decision, server=waiting)), "verdict")[2].text == expected


def test_the_first_screen_shows_no_fits_and_no_token_costs() -> None:
    told = made()
    words = repr(
        (told.headline, told.why, told.arms, told.sure, told.do_now, told.unmeasured, told.flips)
    )
    assert [word for word in ("slope", "Theil", "distribution", "USD per") if word in words] == []


def test_a_class_that_was_not_compared_counts_the_calls_that_ended_well() -> None:
    evidence = sample.evidence()
    ok = {"fp8": 0, "fp8-skip-sw": 7}

    def spoilt(each: Observation) -> Observation:
        if each.workload != "multimodal" or each.calls is None:
            return each
        return replace(
            each, calls=replace(each.calls, ok=np.arange(len(each.calls)) < ok.get(each.arm, 0))
        )

    told = by_class(
        made(evidence=replace(evidence, observations=tuple(map(spoilt, evidence.observations))))
    )
    assert [cell.text for cell in told["multimodal 4%: turn latency"]] == [
        "–",
        "–",
        "every call failed",
        "3.44 s",
        "7 calls: too few",
        "",
    ]


def test_a_ttft_above_its_service_level_is_marked() -> None:
    told = by_class(
        made(
            policy=Policy(
                slos=(
                    ServiceLimits(workload="code", ttft_ms=1_500.0),
                    ServiceLimits(ttft_ms=3_000.0),
                )
            )
        )
    )
    assert told["code 46%: TTFT p95 (limit 1.5 s)"][3] == Cell(text="1.95 s", tone="bad")
    assert told["rag 17%: TTFT p95 (limit 3 s)"][3] == Cell(text="1.95 s")
    assert "multimodal 4%: TTFT p95 (limit 3 s)" not in told


def test_too_few_sessions_for_a_p95_show_the_median_and_say_so() -> None:
    decision = sample.decision()
    figures = tuple(
        replace(each, name=each.name.replace("p95", "p50")) if each.workload == "rag" else each
        for each in decision.figures
    )
    told = by_class(
        made(
            replace(decision, figures=figures),
            policy=Policy(slos=(ServiceLimits(ttft_ms=1_000.0),)),
        )
    )
    assert told["rag 17%: TTFT p50 (limit 1 s)"][3] == Cell(text="1.95 s")


def test_first_tokens_are_compared_for_every_arm() -> None:
    decision = sample.decision()
    moved = [replace(each, metric="ttft_ms") for each in decision.changes if each.workload == "rag"]
    told = by_class(made(replace(decision, changes=(*decision.changes, *moved))))
    assert [cell.text for cell in told["rag 17%: time to first token"][2:5:2]] == [
        "+5.0% [+1.9, +8.1]",
        "+1.0% [−1.9, +3.9]",
    ]


def needing(arm: str, gpus: tuple[float | None, float, float | None]) -> Capacity:
    """Return an arm that needs so many GPUs at the peak: at least, likely, at most."""
    low, value, high = gpus
    return Capacity(
        arm=arm,
        workload=None,
        agents_per_gpu=None,
        replicas_at_peak=round(value / 4),
        gpus_at_peak=Estimate(value=value, low=low, high=high, n=12, unit="GPUs", method=""),
        next_replica_at_agents=None,
        reason="pool full",
    )


@pytest.mark.parametrize(
    ("bf16", "skip", "word", "tone"),
    [
        ((12, 12, 12), (8, 8, 8), "4", "good"),
        ((12, 12, 12), (16, 16, 16), "−4", "bad"),
        ((8, 12, 12), (8, 8, 8), "4 [0, 4]", "plain"),
        ((172, 200, 232), (84, 96, 112), "104 [71, 139]", "good"),
    ],
)
def test_gpus_that_are_saved_carry_the_interval_of_both_arms(
    bf16: tuple[float, float, float], skip: tuple[float, float, float], word: str, tone: str
) -> None:
    capacity = (needing("bf16", bf16), needing("fp8-skip-sw", skip))
    found = made(replace(sample.decision(), capacity=capacity))
    saved = found.answers[2]
    assert (saved.word, saved.tone) == (word, tone)
    assert saved.because.startswith("FP8 skip-SW needs ")
    needed = row(found, "GPUs at your peak of 42 agents")
    assert ["[" in cell.text for cell in (needed[0], needed[3])] == [
        gpus[0] != gpus[2] for gpus in (bf16, skip)
    ]


@pytest.mark.parametrize(
    ("gpus", "text", "word", "tone"),
    [((4, 4, 4), "as many", "0", "plain"), ((None, 4, None), "not known", "not known", "muted")],
)
def test_arms_need_as_many_gpus_only_where_an_interval_says_so(
    gpus: tuple[float | None, float, float | None], text: str, word: str, tone: str
) -> None:
    capacity = (needing("bf16", gpus), needing("fp8-skip-sw", gpus))
    found = made(replace(sample.decision(), capacity=capacity))
    change = row(found, "GPUs at your peak of 42 agents")[4]
    assert (change.text, change.tone) == (text, tone)
    assert (found.answers[2].word, found.answers[2].tone) == (word, tone)


def test_graded_answers_count_in_part() -> None:
    scores = np.array([1.0, 0.5, 0.0, 0.7] * 20)
    graded = (
        AccuracyBucket(
            arm="fp8",
            task="qa",
            context_tokens=32_768,
            both=0,
            reference_only=0,
            arm_only=0,
            neither=0,
            reference_scores=scores,
            arm_scores=scores,
        ),
    )
    (found,) = decide(compared(effect=0.0, accuracy=graded)).server
    assert found.safe.answers is not None
    assert found.safe.answers.reference == pytest.approx(0.55)
    assert found.safe.answers.questions == 80


def test_a_hit_rate_above_all_is_shown_as_the_claim_that_it_is() -> None:
    evidence = replace(
        sample.evidence(),
        server=(
            ("bf16", Telemetry(hit_rate=0.5, pool_filled_share=0.4)),
            ("fp8", Telemetry(hit_rate=1.2)),
        ),
    )
    assert row(made(evidence=evidence), "cache hit rate")[:2] == (
        Cell(text="50%"),
        Cell(text="120%, not valid", tone="muted"),
    )


@pytest.mark.parametrize(
    ("value", "low", "high", "told"),
    [
        (0.0, 0.0, 16.2, "fewer than 20"),
        (20.7, 10.0, None, "≥ 10 (met at every load tried, up to 40 agents)"),
        (20.7, 0.0, None, "met at every load tried, up to 40 agents"),
        (9.0, 8.0, 10.0, "9 [8, 10]"),
    ],
)
def test_only_loads_that_were_tried_are_said_to_have_met_or_missed_the_service_level(
    value: float, low: float, high: float | None, told: str
) -> None:
    each = Estimate(value=value, low=low, high=high, n=9, unit="agents/GPU", method="")
    tried = tuple(
        CapacityPoint(arm="bf16", agents=agents, turns=9, within_slo=9, minutes=9.0)
        for agents in (20, 40)
    )
    capacity = (replace(needing("bf16", (1, 1, 1)), agents_per_gpu=each),)
    found = made(
        replace(sample.decision(), capacity=capacity), replace(sample.evidence(), capacity=tried)
    )
    assert row(found, "agents per GPU within the SLO")[0].text == told


def test_no_gpus_are_saved_or_lost_where_both_arms_met_every_load_that_was_tried() -> None:
    bound = Estimate(value=20.0, low=4.0, high=None, n=9, unit="agents/GPU", method="")
    capacity = tuple(
        replace(needing(arm, (1, 3, 100)), agents_per_gpu=bound) for arm in ("bf16", "fp8-skip-sw")
    )
    saved = made(replace(sample.decision(), capacity=capacity)).answers[2]
    assert (saved.word, saved.because) == (
        "not known",
        "both arms met the SLO at every load tried; try higher loads",
    )


def test_pools_and_hits_have_no_row_where_no_pool_was_ever_full() -> None:
    evidence = sample.evidence()
    idle = tuple((arm, replace(seen, pool_filled_share=0.0)) for arm, seen in evidence.server)
    names = [cells[0].text for cells in made(evidence=replace(evidence, server=idle)).arms.rows]
    assert [name for name in names if "pool" in name or "cache" in name] == []


def test_a_run_of_one_class_has_one_table() -> None:
    evidence = sample.evidence()
    one = made(evidence=replace(evidence, workloads=evidence.workloads[:1]))
    assert one.groups[0].tables == ()


def test_the_verdict_of_a_single_arm_is_in_the_headline_alone_unless_it_lacks_something() -> None:
    # Kept reports are compared with what the program writes elsewhere.
    kept = Path(__file__).parents[3] / "reports"
    tables = {
        name: (kept / name / "decision.md").read_text(encoding="utf-8").partition("## ")[0]
        for name in ("use", "no-difference", "calibrate", "test-further")
    }
    lines = {
        name: re.findall(r"^\| verdict .*", text, re.MULTILINE) for name, text in tables.items()
    }
    assert all("| turn latency |" in text for text in tables.values())
    assert (lines["use"], lines["no-difference"], lines["calibrate"]) == ([], [], [])
    assert "test further: +" in lines["test-further"][0]


def test_questions_that_cannot_show_a_loss_show_no_largest_drop() -> None:
    decision = sample.decision()
    spoiled = tuple(
        replace(each, safe=Leg(name="safe", state="untested", reason="answers cannot be judged: …"))
        for each in decision.server
    )
    names = [cells[0].text for cells in made(replace(decision, server=spoiled)).arms.rows]
    assert [name for name in names if name.startswith("accuracy")] == []


def test_the_largest_drop_of_a_length_is_a_row_where_answers_are_not_surely_as_accurate() -> None:
    decision = sample.decision()
    cells = row(made(), "accuracy, largest drop of a task at a length")
    drops = [cell.text for cell in cells if cell.text]
    assert drops
    for drop in drops:
        assert re.fullmatch(r"−[\d.]+ pp in [\d,]+ questions of \S+ at \S+", drop)
    safe = tuple(replace(each, safe=replace(each.safe, state="yes")) for each in decision.server)
    names = [cells[0].text for cells in made(replace(decision, server=safe)).arms.rows]
    assert [name for name in names if name.startswith("accuracy")] == [
        "accuracy at 8k to 128k, 744 questions ↑"
    ]
