from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from advisor.evidence import Kind
from advisor.policy import Policy
from agentload.evidence.capacity import Concurrency
from agentload.report.document import document
from agentload.report.matrix import MatrixPage, html, markdown
from agentload.report.matrix import json as as_json
from agentload.report.record import Measured, Missing
from tests.report import sample
from tests.report.golden import assert_golden

GIB = 1 << 30
MISSING = (
    Missing(
        model="chat",
        what="fp8-calibrated",
        why="the model names no calibrated checkpoint",
        is_failure=False,
    ),
    Missing(model="chat", what="seqs64", why="ValueError: No common block size for 7", code=1),
)


def measured(model: str, kind: Kind = "measured") -> Measured:
    decision, evidence = sample.decision(kind), sample.evidence(kind)
    return Measured(
        model=model,
        document=document(decision, evidence, sample.facts(), policy=Policy()),
        evidence=evidence,
        held=(
            Concurrency(arm="bf16", workload="rag", holds=12, breaks=13),
            Concurrency(arm="fp8", workload="rag", holds=25, breaks=None),
            Concurrency(arm="fp8-skip-sw", workload="rag", holds=None, breaks=1),
        ),
        right={arm: (right, 260) for arm, right in zip(sample.ARMS, (240, 236, 239), strict=True)},
        gpu_memory={"bf16": 73.4 * GIB, "fp8": 73.5 * GIB},
        report=f"{model}/report",
    )


def made(*models: Measured) -> MatrixPage:
    return MatrixPage(title="Four models", models=models, missing=MISSING)


def test_the_page_reads_as_it_was_looked_at() -> None:
    assert_golden("matrix.md", markdown(made(measured("chat"), measured("code"))))


def test_a_record_in_which_nothing_was_timed_has_no_rows() -> None:
    untimed = replace(measured("chat"), held=(), evidence=replace(sample.evidence(), workloads=()))
    assert [each.rows for each in made(untimed).tables if each.title == "Record"] == [()]


def test_each_row_is_a_model_a_workload_and_a_configuration() -> None:
    found = made(measured("chat"))
    assert len(found.rows) == 3 * (4 + 1)
    assert [(row.workload, row.config) for row in found.rows[:4]] == [
        ("code", "bf16"),
        ("code", "fp8"),
        ("code", "fp8-skip-sw"),
        ("long_chat", "bf16"),
    ]
    assert (found.rows[0].verdict, found.rows[0].gpu_memory_bytes) == (None, 73.4 * GIB)
    assert found.rows[2].gpu_memory_bytes is None
    rag = {
        row.config: (row.sessions_held, row.sessions_broke)
        for row in found.rows
        if row.workload == "rag"
    }
    assert rag == {"bf16": (12, 13), "fp8": (25, None), "fp8-skip-sw": (None, 1)}


def test_classes_that_were_searched_together_have_a_row_that_is_no_whole_server() -> None:
    both = Concurrency(arm="fp8", workload="chat + rag", holds=7, breaks=8)
    rows = made(replace(measured("chat"), held=(both,))).rows
    found = [
        (row.config, row.workload, row.sessions_broke)
        for row in rows
        if row.sessions_held is not None
    ]
    assert found == [("fp8", "chat + rag", 8)]
    assert [row.verdict for row in rows if row.workload == "chat + rag"] == [None] * 3


def test_the_four_lists_name_the_model_of_each_item() -> None:
    found = made(measured("chat"), measured("code"))
    (own,) = [each for each in measured("chat").document.lists if each.word == "use"]
    (use,) = [each for each in found.lists if each.word == "use"]
    assert use.heading == own.heading
    assert use.items == tuple(f"{model}: {'; '.join(own.items)}" for model in ("chat", "code"))


def test_what_was_measured_never_shares_a_table_with_what_was_not() -> None:
    found = made(measured("chat"), measured("toy", "emulated"))
    assert [table.title for table in found.tables] == [
        "Record",
        "Whole servers, all workloads",
        "Record, emulated",
        "Whole servers, all workloads, emulated",
    ]
    assert [{row[0].text for row in table.rows} for table in found.tables] == [
        {"chat"},
        {"chat"},
        {"toy"},
        {"toy"},
    ]
    assert len(found.banners) == 2


def test_a_column_of_which_no_figure_is_known_is_left_out() -> None:
    bare = replace(measured("chat"), held=(), right={}, gpu_memory={})
    (record, _) = made(bare).tables
    assert "sessions at once" not in record.columns
    assert "answers right" not in record.columns
    assert "GPU memory" not in record.columns
    assert "GPU memory" not in " ".join(made(bare).notes).replace("KV pool, GPU memory", "")


def test_both_shares_of_right_answers_and_their_difference_are_of_the_same_questions() -> None:
    (_, whole) = made(measured("chat")).tables
    cells = [row[whole.columns.index("accuracy")].text for row in whole.rows]
    read = (re.match(r"([\d.]+)% of ([\d,]+)(?:; ([−+]?[\d.]+) pp)?", text) for text in cells)
    (ours, count, _), *others = (found.groups() for found in read if found is not None)
    assert len(others) == 2
    for share, questions, change in others:
        assert questions == count
        apart = float(share) - float(ours)
        assert abs(apart - float(change.replace("−", "-"))) <= 0.11  # each has a decimal


def test_the_first_column_is_called_by_what_it_names() -> None:
    for name, subject in (("chat", "scenario"), ("acme/hybrid-30b", "model")):
        page = made(measured(name))
        assert {table.columns[0] for table in page.tables} == {subject}
        assert f'<th scope="col">{subject}</th>' in html(page)


def test_a_heading_counts_the_verdicts() -> None:
    assert made(measured("chat"), measured("code")).headline == "Four models: use FP8 in 2 of 2"
    assert made().headline == "Four models"


def test_each_model_is_a_line_with_its_figure_on_one_axis() -> None:
    found = made(measured("chat"), measured("acme/hybrid-30b"))
    assert [(each.name, each.model) for each in found.scenarios] == [
        ("chat", "acme/hybrid-30b"),
        ("acme/hybrid-30b", ""),
    ]
    assert found.scenarios[0].figure.text == "−6.0% [−7.9, −4.1]"
    assert found.forest is not None
    assert list(found.forest.rows) == ["chat", "acme/hybrid-30b"]
    told = html(found)
    assert told.count('class="chart forest"') == 3
    assert "could not be judged<" not in told


def test_a_change_of_which_nothing_counts_is_grey_with_the_cause() -> None:
    of = measured("chat")
    untested = [
        replace(each, pays=replace(each.pays, state="untested"))
        for each in of.document.decision.server
    ]
    decision = replace(of.document.decision, server=tuple(untested))
    (line,) = made(replace(of, document=replace(of.document, decision=decision))).scenarios
    assert (line.is_judged, line.figure.tone) == (False, "muted")
    assert line.sure[0] == "could not be judged"
    (known,) = made(of).scenarios
    assert known.sure == ("effect likely", *filter(None, [of.document.coverage]))


def test_without_a_model_the_page_says_what_is_missing() -> None:
    told = markdown(made())
    assert "No common block size for 7 (code 1)" in told
    assert "Use a new setting for:** none" in told


def test_names_of_models_are_shown_as_they_are() -> None:
    told = html(made(replace(measured("chat"), model="<b>chat</b>")))
    assert "<b>chat</b>" not in told
    assert "&lt;b&gt;chat&lt;/b&gt;" in told


@pytest.mark.parametrize("models", [(), (measured("chat"),)])
def test_the_record_is_there_for_machines(models: tuple[Measured, ...]) -> None:
    said = json.loads(as_json(made(*models)))
    assert said["format"] == "agentload-matrix/1"
    assert [each["what"] for each in said["missing"]] == ["fp8-calibrated", "seqs64"]
    assert len(said["record"]) == 15 * len(models)
    if models:
        first = said["record"][0]
        assert {
            "model",
            "workload",
            "config",
            "ttft_p50_ms",
            "itl_p50_ms",
            "output_tokens_per_s",
            "pool_tokens",
            "verdict",
        } <= first.keys()
        assert (first["ttft_p95_ms"]["unit"], first["ttft_p50_ms"]) == ("ms", None)
