"""Figures on one page agree: in documents of random runs, and in every kept report."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from advisor.steps import Questions
from agentload.cli._closing import MOST, closing
from agentload.cli._decide import OF_ERROR
from agentload.report import labels
from agentload.report.format import typeset
from agentload.report.parts import Cell, Document, Table
from agentload.report.render import render
from tests.report.random_runs import random_document

NOTES = (
    "Spent 49 of 45 min.",
    (
        "This budget cannot settle accuracy. Missing: 1,200 paired questions, 31 min and 2 more "
        "block pairs, 12 min; left: 0 s. --budget 90m pays for it."
    ),
)
TOOK = (
    "It took: checks 30 s, speed 12 min, service level 3 min, canary 2 min, screen 40 s, step times "
    "2 min, capacity 10 min, accuracy 8 min, without a result 5 min."
)
QUICK = (*range(6), 11, 29)  # they reach every verdict
MANY = range(1_000)
_UNITS = {"ms": 1.0, "s": 1_000.0, "min": 60_000.0, "h": 3_600_000.0}
_TIME = re.compile(r"^([\d.,]+) (ms|s|min|h)$")
_CHANGE = re.compile(r"^([+−]?[\d.,]+)%")
_POINTS = re.compile(r"^([+−]?[\d.,]+) pp")
_SHARE = re.compile(r"^([\d.,]+)%$")
_USD = re.compile(r"([\d,.]+) USD")
_STATED = re.compile(r"[+−]?[\d.,]+(?:%| pp)\s+\[[^\]|]*\d\]")
_OF_WHOLE = re.compile(r"([\d,]+)% of the (?:pool|trace|peak)")
_NO_COUNT = re.compile(r"\b(?:0|1) (?:sessions|agents|questions|replicas|GPUs|pairs|turns)\b")
_FIGURE = re.compile(
    r"[+−]?\d[\d,.]*(?: ?%| pp| min| USD| block pairs?| calls?| (?:paired )?questions| ms| s\b|×)?"
    r"(?: \[[^\]]*\])?"
)
_PEAK = re.compile(r"GPUs at your peak of \d+ agents|GPUs at your peak of$|^\d+ agents")
"""What the user gave, which pages repeat beside a figure alone."""
_TAG = re.compile(r"<(script|style).*?</\1>|<[^>]+>", flags=re.DOTALL)
_COST = re.compile(r"\+([\d,]+) (?:calls|block pairs)")


@cache
def told(seed: int) -> Document:
    return random_document(seed)


def value(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def rounding(text: str) -> float:
    """Return by how much a number may have been rounded."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


def tables(document: Document) -> Iterator[Table]:
    yield document.arms
    for group in document.groups:
        yield from (each for each in group.tables if each.title.startswith("By workload class"))


def triples(document: Document) -> Iterator[tuple[str, Cell, Cell, Cell]]:
    """Yield each row's name with the reference, an arm's own figure and its change."""
    for table in tables(document):
        width = len(table.columns) - (table.columns[-1] == "noise")
        for name, reference, *cells in table.rows:
            arms = cells[: width - 2]
            for own, change in zip(arms[::2], arms[1::2], strict=True):
                yield name.text, reference, own, change


def disagreeing(document: Document) -> Iterator[str]:
    """Yield every statement of a document that another one contradicts."""
    for name, reference, own, change in triples(document):
        yield from _apart(name, reference.text, own.text, change.text)
        if change.tone == "bad" and not change.text:
            yield f"{name}: marked as worse where nothing was compared"
    yield from _dearer(document)
    yield from _summed(document)
    yield from _lower_case(document)
    yield from _extrapolated(document)
    yield from _verdicts(document)
    yield from _other_intervals(document)
    yield from _other_counts(document)
    page = render(document, "md")
    yield from misprints(page)
    missing = stated(render(document, "txt")) - stated(page)
    yield from (f"the screen alone says {each}" for each in sorted(missing))
    yield from _on_the_last_screen(document, page)
    if document.kind != "measured" and document.sure.basis == "measured":
        yield "a run without servers is called measured"
    for step in document.do_now:
        is_cure = "before you test" in step.text
        if is_cure and step.command:
            yield f"{step.text} {step.command} reproduces what is to be avoided"


def _on_the_last_screen(document: Document, page: str) -> Iterator[str]:
    """Yield what the end of a decision says and a page does not, and an end that is too long."""
    screen, *others = (
        closing(
            document,
            steps=document.do_now,
            notes=NOTES[:told],
            took=TOOK if told else "",
            report=Path("r"),
            width=100,
            most=most,
        )
        for told, most in ((0, MOST), (2, MOST), (2, MOST - OF_ERROR))
    )
    for most, other in zip((MOST, MOST - OF_ERROR), others, strict=True):
        if len(other.splitlines()) > most:
            yield f"an end of {most} lines has {len(other.splitlines())}"
    told = [line for line in screen.splitlines() if not line.startswith("    ")]  # no commands
    told = [_PEAK.sub("", line) for line in told]
    web = html.unescape(_TAG.sub(" ", render(document, "html")))
    for name, other in (("md", page.replace("\\", "")), ("html", web)):
        there = re.sub(r"\s+", " ", other)
        for figure in (each for line in told for each in _FIGURE.findall(line)):
            if figure.strip(" .,") not in there:
                yield f"the last screen says {figure}, and the {name} does not"
    if len(screen.splitlines()) > MOST:
        yield f"the last screen has {len(screen.splitlines())} lines"


def stated(text: str) -> set[str]:
    """Return the changes that a text gives with their intervals."""
    return {re.sub(r"\s+", " ", each) for each in _STATED.findall(text.replace("\\", ""))}


def misprints(page: str) -> Iterator[str]:
    """Yield what no page may say: a share above the whole, a count that is none."""
    yield from (each[0] for each in _OF_WHOLE.finditer(page) if value(each[1]) > 100)
    yield from (each[0] for each in _NO_COUNT.finditer(page))


def _other_intervals(document: Document) -> Iterator[str]:
    """Yield a change that a verdict's reason gives otherwise than the row of its arm."""
    decision, rows = document.decision, [*triples(document)]
    for place, verdict in enumerate(decision.server):
        told = typeset(verdict.reason).casefold()
        for name in ("turn latency", "accuracy"):
            own = [change.text for row, _, _, change in rows if row.startswith(name)]
            match = re.search(rf"{name} ({_STATED.pattern})", told)
            if match and len(own) > place and stated(own[place]) not in (set(), {match[1]}):
                yield f"{verdict.arm}: {match[0]} beside {own[place]}"


def _other_counts(document: Document) -> Iterator[str]:
    """Yield a row that counts other questions than its verdict rests on, or needs that add up to
    less than is missing.
    """
    for name, _, _, _ in triples(document):
        counted = re.search(r"([\d,]+) questions", name)
        asked = {
            each.safe.answers.questions for each in document.decision.server if each.safe.answers
        }
        if counted and value(counted[1]) not in asked:
            yield f"{name}, of verdicts that rest on {sorted(asked)}"
    for need in document.decision.needs:
        in_all = need.step.items if isinstance(need.step, Questions) else None
        if in_all is not None and not 0 < (need.pairs or 0) <= in_all:
            yield f"{need.pairs} more of {in_all} questions in all"


def _apart(name: str, reference: str, own: str, change: str) -> Iterator[str]:
    """Yield a row whose absolute values and change do not combine within rounding."""
    before, after, apart = _TIME.match(reference), _TIME.match(own), _CHANGE.match(change)
    if before and after and apart:
        left, right = (value(each[1]) * _UNITS[each[2]] for each in (before, after))
        low, high = (
            100
            * (
                (right + side * rounding(after[1]) * _UNITS[after[2]])
                / (left - side * rounding(before[1]) * _UNITS[before[2]])
                - 1
            )
            for side in (-1, 1)
        )
        slack = rounding(apart[1]) + 1e-9
        if not low - slack <= value(apart[1]) <= high + slack:
            yield f"{name}: {reference}, {own} and {change}"
    first, second, points = _SHARE.match(reference), _SHARE.match(own), _POINTS.match(change)
    if first and second and points:
        difference = value(second[1]) - value(first[1])
        if abs(difference - value(points[1])) > 0.151:
            yield f"{name}: {reference}, {own} and {change}"


def _dearer(document: Document) -> Iterator[str]:
    """Yield an arm for a class of which more is asked than for its open whole server."""
    decision = document.decision
    is_open = {each.arm for each in decision.server if each.verdict == "test further"}
    if len(is_open) < len(decision.server):
        return
    for table in tables(document):
        for name, *cells in table.rows:
            if name.text.endswith(": verdict") and any(_COST.search(each.text) for each in cells):
                yield f"{name.text}: {[each.text for each in cells]} beside an open server"
    for listing in document.lists:
        for item in listing.items:
            if _COST.search(item) and "the whole server" not in item:
                yield f"{item} beside an open server"


def _summed(document: Document) -> Iterator[str]:
    """Yield an arm whose needs cost something else together than one by one."""
    items = [item for listing in document.lists for item in listing.items]
    cells = [change.text for name, _, _, change in triples(document) if name == "verdict"]
    for verdict, cell in zip(document.decision.server if cells else (), cells, strict=True):
        own = f"{labels.arm(verdict.arm)}, the whole server"
        parts = next((_USD.findall(item) for item in items if item.startswith(own)), [])
        total = _USD.search(cell)
        if total and len(parts) > 1:
            apart = abs(value(total[1]) - sum(map(value, parts)))
            slack = rounding(total[1]) + sum(map(rounding, parts))
            if apart > slack + 1e-9 or slack > 0.03 * max(1.0, value(total[1])):
                yield f"{' + '.join(parts)} USD beside {total[1]} USD"


def _lower_case(document: Document) -> Iterator[str]:
    """Yield a finding that begins like the middle of a sentence; the name of an arm may."""
    arms = ("bf16", *(each.arm for each in document.decision.server))
    for each in document.findings:
        if each.message[0].islower() and not each.message.startswith((*arms, "vllm#", "vLLM ")):
            yield each.message


def _extrapolated(document: Document) -> Iterator[str]:
    """Yield a load that is said to have failed and was never tried."""
    for table in (document.arms, *(each for group in document.groups for each in group.tables)):
        for row in table.rows:
            yield from (cell.text for cell in row if "and above" in cell.text)


def _verdicts(document: Document) -> Iterator[str]:
    """Yield a verdict whose headline, row and list differ."""
    decision = document.decision
    cells = [change.text for name, _, _, change in triples(document) if name == "verdict"]
    # The headline alone has the verdict of a single arm that lacks nothing.
    shown = decision.server if cells or len(decision.server) > 1 else ()
    for verdict, cell in zip(shown, cells, strict=True):
        if verdict.verdict.partition(" ")[0] not in cell:
            yield f"{verdict.arm} is {verdict.verdict}, and its row says {cell}"
    choice = decision.choice
    chosen = [each for each in decision.server if each.arm == choice.arm]
    if any(each.verdict != choice.verdict for each in chosen):
        yield f"the headline says {choice.verdict} of {choice.arm}"
    money = [part for part in document.arms.note.split(". ") if "USD a month" in part]
    if money and any(each.verdict == "test further" for each in chosen):
        yield f"{money[0]}, although nothing is decided"


@pytest.mark.parametrize("seed", QUICK)
def test_every_figure_of_a_random_run_agrees_with_its_neighbours(seed: int) -> None:
    assert [*disagreeing(told(seed))] == []


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(10))
def test_every_figure_of_a_thousand_random_runs_agrees_with_its_neighbours(hundred: int) -> None:
    found = {seed: [*disagreeing(random_document(seed))] for seed in MANY[hundred::10]}
    assert {seed: each for seed, each in found.items() if each} == {}


def test_random_runs_reach_every_verdict() -> None:
    words = {each.verdict for seed in QUICK for each in told(seed).decision.server}
    assert words == {"use", "avoid", "calibrate", "test further", "no difference"}


def test_a_page_whose_figures_contradict_each_other_is_found() -> None:
    document = told(2)
    rows = [
        (row[0], row[1], replace(row[2], text="9.99 h"), *row[3:])
        if row[0].text == "turn latency"
        else row
        for row in document.arms.rows
    ]
    wrong = replace(document, arms=replace(document.arms, rows=tuple(rows)))
    first, *others = disagreeing(wrong)
    assert first.startswith("turn latency: ")
    assert others, "the last screen has the row as it was"
    assert all(each.startswith("the last screen says ") for each in others)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("400 sessions hold 5523% of the pool of BF16", "5523% of the pool"),
        ("1 sessions at once", "1 sessions"),
        ("21 sessions, 95% of the pool", None),
    ],
)
def test_what_no_page_may_say_is_found(page: str, found: str | None) -> None:
    assert [*misprints(page)] == ([] if found is None else [found])


def test_a_second_interval_or_count_of_one_figure_is_found() -> None:
    document = told(2)
    server = document.decision.server
    reason = "turn latency −20.5% [−22.6, −14.2]"
    other = tuple(replace(each, reason=reason) for each in server)
    wrong = replace(document, decision=replace(document.decision, server=other))
    assert any(reason in each for each in disagreeing(wrong))
    answers = server[0].safe.answers
    assert answers is not None
    asked = replace(answers, questions=answers.questions + 1)
    more = tuple(replace(each, safe=replace(each.safe, answers=asked)) for each in server)
    wrong = replace(document, decision=replace(document.decision, server=more))
    assert any("rest on [6001]" in each for each in disagreeing(wrong))


PAGES = sorted(Path(__file__).parents[2].glob("reports/**/decision.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_no_kept_report_says_what_no_page_may_say(page: Path) -> None:
    assert [*misprints(page.read_text(encoding="utf-8"))] == []
