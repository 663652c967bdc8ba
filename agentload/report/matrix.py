"""One page for several models: the four lists over all of
them, a line for each, the record, and what is missing in it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from markupsafe import Markup

from advisor.estimate import Estimate
from advisor.evidence import Kind
from agentload.report import format as say
from agentload.report import labels
from agentload.report.formats.html import environment, security_policy, style
from agentload.report.formats.json import plain
from agentload.report.formats.md import rendered as as_markdown
from agentload.report.parts import Cell, Listing, Table, table
from agentload.report.record import Measured, Missing, ModelLine, Page, Row, rows
from agentload.report.sections.arms import need, words
from agentload.report.sections.opening import BANNERS, HEADINGS

GIB: Final = 1 << 30
NOT_SEEN: Final = Cell(text="not observed", tone="muted")
TOO_FEW: Final = Cell(text="too few sessions", tone="muted")
ABSENT: Final = Cell(text=say.ABSENT, tone="muted")
KINDS: Final[tuple[Kind, ...]] = ("measured", "emulated", "simulated")
NOTES: Final = (
    "Latencies are of turns that succeeded, with 95 % intervals over sessions.",
    (
        "Output tokens per second of a workload are its own, measured next to the others of "
        "the mix; those of a whole server are of all."
    ),
    (
        "KV pool, GPU memory, accuracy and accepted drafts are the server's: equal in all rows "
        "of a configuration."
    ),
    (
        "Compare KV caches in pool tokens: GPU memory is filled to the same share whatever the "
        "cache's dtype."
    ),
    (
        "Sessions are those that ran at once without preemptions, queues, failures or a broken "
        "limit, and the number that did not."
    ),
)


def page(title: str, models: Sequence[Measured], missing: Sequence[Missing]) -> Page:
    """Say what was found. What was measured never shares a table with what was not."""
    found = [(each, row) for each in models for row in rows(each)]
    kinds = [kind for kind in KINDS if any(each.document.kind == kind for each in models)]
    return Page(
        title=title,
        banners=tuple(BANNERS[kind] for kind in kinds),
        lists=tuple(_lists(models)),
        no_difference=tuple(
            _of_models((each.model, each.document.no_difference) for each in models)
        ),
        models=tuple(_line(each) for each in models),
        tables=tuple(
            table
            for kind in kinds
            for table in _tables([_said(of, row) for of, row in found if row.kind == kind], kind)
        ),
        rows=tuple(row for _, row in found),
        missing=tuple(missing),
        notes=NOTES if models else (),
    )


def _lists(models: Sequence[Measured]) -> Iterator[Listing]:
    subjects = {each.document.lists[0].heading for each in models}
    for place, (heading, word) in enumerate(HEADINGS):
        told = (
            models[0].document.lists[place].heading
            if len(subjects) == 1
            else heading.format("a new setting")
        )
        yield Listing(
            heading=told,
            word=word,
            items=tuple(
                _of_models((each.model, each.document.lists[place].items) for each in models)
            ),
        )


def _of_models(items: Iterator[tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    return (f"{model}: {'; '.join(own)}" for model, own in items if own)


def _line(of: Measured) -> ModelLine:
    document = of.document
    return ModelLine(
        model=of.model,
        kind=document.kind,
        headline=document.headline,
        where=document.where,
        report=of.report,
        run=document.run,
    )


Said = dict[str, Cell | str]
_SERVER: Final = (
    "KV pool, tokens",
    "GPU memory",
    "sessions at once",
    "accuracy",
    "drafts accepted",
)
# What to do stands first: a record is wide.
_RECORD: Final = (
    "model",
    "workload",
    "configuration",
    "verdict",
    "TTFT p50",
    "TTFT p95",
    "TPOT p50",
    "output tokens/s",
    *_SERVER,
)
_WHOLE: Final = (
    "model",
    "configuration",
    "verdict",
    "output tokens/s",
    "requests/s",
    *_SERVER,
    "USD, 1,000 turns",
)


def _tables(found: Sequence[tuple[Row, Said]], kind: Kind) -> Iterator[Table]:
    marked = "" if kind == "measured" else f", {kind}"
    yield _table(
        f"Record{marked}", [said for row, said in found if row.workload is not None], _RECORD
    )
    yield _table(
        f"Whole servers, all workloads{marked}",
        [said for row, said in found if row.workload is None],
        _WHOLE,
    )


def _table(title: str, found: Sequence[Said], columns: Sequence[str]) -> Table:
    # A measurement that was not ordered is no column; one that was ordered and is missing is one.
    kept = [name for name in columns if any(said[name] is not ABSENT for said in found)]
    return table(title, kept, ([said[name] for name in kept] for said in found))


def _said(of: Measured, row: Row) -> tuple[Row, Said]:
    """Say a row, column by column."""
    is_tail_short = row.ttft_p95_ms is None and row.ttft_p50_ms is not None
    said: Said = {
        "model": row.model,
        "workload": row.workload or "",
        "configuration": labels.arm(row.config),
        "verdict": _verdict(of, row),
        "TTFT p50": _latency(row.ttft_p50_ms),
        "TTFT p95": TOO_FEW if is_tail_short else _latency(row.ttft_p95_ms),
        "TPOT p50": _latency(row.itl_p50_ms),
        "output tokens/s": _rate(row.output_tokens_per_s),
        "requests/s": _rate(row.requests_per_s),
        "KV pool, tokens": NOT_SEEN if row.pool_tokens is None else say.tokens(row.pool_tokens),
        "GPU memory": NOT_SEEN
        if row.gpu_memory_bytes is None
        else f"{say.number(row.gpu_memory_bytes / GIB, 1)} GiB",
        "sessions at once": _sessions(row),
        "accuracy": _answers(row),
        "drafts accepted": ABSENT
        if row.draft_acceptance is None
        else say.percent(row.draft_acceptance),
        "USD, 1,000 turns": ABSENT
        if row.usd_per_turn is None
        else say.spread(row.usd_per_turn, say.number, factor=1_000),
    }
    return row, said


def _latency(found: Estimate | None) -> Cell | str:
    return ABSENT if found is None else say.estimate(found)


def _rate(found: Estimate | None) -> Cell | str:
    return NOT_SEEN if found is None else say.spread(found, say.number)


def _sessions(row: Row) -> Cell | str:
    if row.sessions_held is None:
        return ABSENT if row.sessions_broke is None else f"none: {row.sessions_broke} are too many"
    return f"{row.sessions_held}" + (
        " or more" if row.sessions_broke is None else f" ({row.sessions_broke} are too many)"
    )


def _answers(row: Row) -> Cell | str:
    if row.answers_right is None or not row.answers_asked:
        return ABSENT
    share = f"{say.number(100 * row.answers_right / row.answers_asked, 1)}% of {row.answers_asked}"
    return share if row.accuracy_change is None else f"{share}; {say.points(row.accuracy_change)}"


def _verdict(of: Measured, row: Row) -> Cell:
    verdict = of.verdict(row.config, row.workload)
    if verdict is None:
        return (
            Cell(text="reference", tone="muted") if row.config == of.evidence.reference else ABSENT
        )
    return Cell(text=f"{words(verdict)}{need(verdict)}", tone=labels.VERDICT_TONES[verdict.verdict])


FORMAT: Final = "agentload-matrix/1"
WIDE: Final = "body { max-width: 100rem; }\n"
"""A record has many columns."""


def write(page: Page, folder: Path, *, name: str = "matrix") -> tuple[Path, ...]:
    """Write `NAME.md`, `NAME.html` and `NAME.json`; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for suffix, text in (("md", markdown(page)), ("html", html(page)), ("json", json(page))):
        out.append(folder / f"{name}.{suffix}")
        out[-1].write_text(text, encoding="utf-8")
    return tuple(out)


def markdown(page: Page) -> str:
    """Render the page for GitHub and terminals."""
    return as_markdown("matrix.md.j2", page=page)


def html(page: Page) -> str:
    """Render the page as one file that needs no other."""
    styled = style() + WIDE
    # Our own style sheet, not a reader's words.
    return (
        environment()
        .get_template("matrix.html.j2")
        .render(page=page, style=Markup(styled), policy=security_policy(styled=styled))  # noqa: S704
    )


def json(page: Page) -> str:
    """Render the record for machines."""
    said = {
        "format": FORMAT,
        "title": page.title,
        "lists": {each.word: each.items for each in page.lists}
        | {"no difference": page.no_difference},
        "models": page.models,
        "record": page.rows,
        "missing": page.missing,
        "notes": page.notes,
    }
    return msgspec.json.format(msgspec.json.encode(said, enc_hook=plain), indent=2).decode() + "\n"
