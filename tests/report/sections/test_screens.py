"""The two tables of the first screen."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.policy import Policy, Slo
from advisor.verdict import Capacity
from agentload.report.parts import Cell, Document
from tests.report import sample
from tests.report.telling import made


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
    split = tuple(replace(arm, gpus=8) if arm.name == "fp8-skip-sw" else arm for arm in evidence.arms)
    spent = made(replace(sample.decision(), capacity=(capacity("bf16", 3), capacity("fp8-skip-sw", 2))), replace(evidence, arms=split))
    assert (spent.answers[2].word, spent.answers[2].tone) == ("−4", "bad")  # 3 replicas of 4 GPUs for 2 of 8
    unsure = (replace(capacity("bf16", 3), fewest_replicas=2), replace(capacity("fp8-skip-sw", 2), most_replicas=2))
    told = made(replace(sample.decision(), capacity=unsure), evidence).answers[2]
    assert (told.word, told.tone) == ("0 to 4", "plain")
    unknown = made(replace(sample.decision(), capacity=())).answers[2]
    assert (unknown.word, unknown.because) == ("not known", "capacity was not measured")
    both = (capacity("bf16", None, "the pool never filled"), capacity("fp8-skip-sw", None, "the pool never filled"))
    assert made(replace(sample.decision(), capacity=both)).answers[2].because == "the pool never filled"


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


def test_where_no_limit_was_agreed_the_first_token_shows_how_it_changed() -> None:
    decision = sample.decision()
    moved = [replace(each, metric="ttft_ms") for each in decision.changes if each.arm == "fp8-skip-sw" and each.workload == "rag"]
    told = made(replace(decision, changes=(*decision.changes, *moved)))
    assert told.classes is not None
    assert told.classes.columns[3] == "FP8 skip-SW first token"
    by_class = {row[0].text.split()[0]: row[3].text for row in told.classes.rows}
    assert by_class["rag"] == "+1.0 % [−1.9, +3.9]"


def test_graded_answers_count_in_part() -> None:
    scores = np.array([1.0, 0.5, 0.0, 0.7])
    graded = tuple(
        replace(each, both=0, reference_only=0, arm_only=0, neither=0, reference_scores=scores, arm_scores=scores)
        for each in sample.evidence().accuracy
    )
    told = made(evidence=replace(sample.evidence(), accuracy=graded))
    assert row(told, "answers right, 16 pairs")[0] == Cell(text="55.0 %")
