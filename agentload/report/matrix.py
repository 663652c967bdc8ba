"""One page for several models: the four lists over all of them, a line for each, the record, and what is missing in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from advisor.evidence import Kind
from advisor.verdict import ArmVerdict
from agentload.report import format as say
from agentload.report import labels
from agentload.report.formats.html import security_policy, style, tied
from agentload.report.formats.json import plain
from agentload.report.formats.md import environment as markdown_environment
from agentload.report.parts import Cell, Table, Tone
from agentload.report.record import Listed, Measured, Missing, ModelLine, Page, Row, rows
from agentload.report.sections.opening import BANNERS, HEADINGS
from agentload.report.sections.screens import need, words

GIB: Final = 1 << 30
NOT_SEEN: Final = Cell(text="not observed", tone="muted")
TOO_FEW: Final = Cell(text="too few sessions", tone="muted")
ABSENT: Final = Cell(text=say.ABSENT, tone="muted")
KINDS: Final[tuple[Kind, ...]] = ("measured", "emulated", "simulated")
NOTES: Final = (
    "Latencies are of turns that succeeded, with 95 % intervals over sessions.",
    "Output tokens per second of a workload are its own, beside the others of the mix; those of a whole server are of all.",
    "KV pool, GPU memory, right answers and accepted drafts are the server's, whatever it works on: equal in all rows of a configuration.",
    "Compare KV caches in pool tokens: GPU memory is filled to the same share whatever the cache's dtype.",
    "Sessions are those that ran at once without preemptions, queues, failures or a broken limit, and the number that did not.",
)


def page(title: str, models: Sequence[Measured], missing: Sequence[Missing]) -> Page:
    """Say what was found. What was measured never shares a table with what was not."""
    found = [(each, tuple(rows(each))) for each in models]
    kinds = [kind for kind in KINDS if any(each.document.kind == kind for each in models)]
    return Page(
        title=title,
        banners=tuple(BANNERS[kind] for kind in kinds),
        lists=tuple(_lists(models)),
        no_difference=tuple(_of_models((each.model, each.document.no_difference) for each in models)),
        models=tuple(_line(each) for each in models),
        tables=tuple(table for kind in kinds for table in _tables([each for each in found if each[0].document.kind == kind], kind)),
        rows=tuple(row for _, own in found for row in own),
        missing=tuple(missing),
        notes=NOTES if models else (),
    )


def _lists(models: Sequence[Measured]) -> Iterator[Listed]:
    subjects = {each.document.lists[0].heading for each in models}
    for place, (heading, word) in enumerate(HEADINGS):
        told = models[0].document.lists[place].heading if len(subjects) == 1 else heading.format("a new setting")
        yield Listed(heading=told, word=word, items=tuple(_of_models((each.model, each.document.lists[place].items) for each in models)))


def _of_models(items: Iterator[tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    return (f"{model}: {'; '.join(own)}" for model, own in items if own)


def _line(of: Measured) -> ModelLine:
    document = of.document
    return ModelLine(
        model=of.model, kind=document.kind, headline=document.headline, where=document.where, report=of.report, run=document.run
    )


Found = tuple[Measured, tuple[Row, ...]]
Column = tuple[str, Callable[[Measured, Row], Cell]]


def _tables(found: Sequence[Found], kind: Kind) -> Iterator[Table]:
    told = "" if kind == "measured" else f", {kind}"
    yield _table(f"Record{told}", found, (*_LATENCIES, *_SERVER), is_server=False)
    yield _table(f"Whole servers, all workloads{told}", found, (*_RATES, *_SERVER, *_COSTS), is_server=True)


def _table(title: str, found: Sequence[Found], columns: Sequence[Column], *, is_server: bool) -> Table:
    chosen = [(of, row) for of, own in found for row in own if (row.workload is None) == is_server]
    named: tuple[Column, ...] = (("model", _model), *(() if is_server else (("workload", _workload),)), ("configuration", _config))
    # What to do stands first: a record is wide.
    made = [(name, [cell(of, row) for of, row in chosen]) for name, cell in (*named, ("verdict", _verdict), *columns)]
    # What nobody asked for is no column; what was asked for and not seen is one.
    kept = [(name, cells) for name, cells in made if any(cell is not ABSENT for cell in cells)]
    return Table(
        title=title, columns=tuple(name for name, _ in kept), rows=tuple(zip(*(cells for _, cells in kept), strict=True)) if chosen else ()
    )


def _model(_: Measured, row: Row) -> Cell:
    return Cell(text=row.model)


def _config(_: Measured, row: Row) -> Cell:
    return Cell(text=labels.arm(row.config))


def _workload(_: Measured, row: Row) -> Cell:
    return Cell(text=row.workload or "")


def _sessions(_: Measured, row: Row) -> Cell:
    if row.sessions_held is None and row.sessions_broke is None:
        return ABSENT
    if row.sessions_held is None:
        return Cell(text=f"none: {row.sessions_broke} do not hold")
    return Cell(text=f"{row.sessions_held}" + (" or more" if row.sessions_broke is None else f" ({row.sessions_broke} do not hold)"))


def _answers(_: Measured, row: Row) -> Cell:
    if row.answers_right is None or not row.answers_asked:
        return ABSENT
    share = f"{say.number(100 * row.answers_right / row.answers_asked, 1)} % of {row.answers_asked}"
    return Cell(text=share if row.accuracy_change is None else f"{share}; {say.points(row.accuracy_change)}")


def _pool(_: Measured, row: Row) -> Cell:
    return NOT_SEEN if row.pool_tokens is None else Cell(text=say.tokens(row.pool_tokens))


def _memory(_: Measured, row: Row) -> Cell:
    return NOT_SEEN if row.gpu_memory_bytes is None else Cell(text=f"{say.number(row.gpu_memory_bytes / GIB, 1)} GiB")


def _acceptance(_: Measured, row: Row) -> Cell:
    return ABSENT if row.draft_acceptance is None else Cell(text=say.percent(row.draft_acceptance))


def _verdict(of: Measured, row: Row) -> Cell:
    verdict = _found(of, row)
    if verdict is None:
        return Cell(text="reference", tone="muted") if row.config == of.evidence.reference else ABSENT
    tone: Tone = labels.VERDICT_TONES[verdict.verdict]
    return Cell(text=f"{words(verdict)}{need(verdict)}", tone=tone)


def _found(of: Measured, row: Row) -> ArmVerdict | None:
    decision = of.document.decision
    verdicts = decision.server if row.workload is None else decision.classes
    return next((each for each in verdicts if (each.arm, each.workload) == (row.config, row.workload)), None)


def _figure(name: str) -> Callable[[Measured, Row], Cell]:
    def cell(_: Measured, row: Row) -> Cell:
        found = getattr(row, name)
        return ABSENT if found is None else Cell(text=say.estimate(found))

    return cell


def _tail(_: Measured, row: Row) -> Cell:
    if row.ttft_p95_ms is None and row.ttft_p50_ms is not None:
        return TOO_FEW
    return ABSENT if row.ttft_p95_ms is None else Cell(text=say.estimate(row.ttft_p95_ms))


def _rate(name: str) -> Callable[[Measured, Row], Cell]:
    def cell(_: Measured, row: Row) -> Cell:
        found = getattr(row, name)
        return NOT_SEEN if found is None else Cell(text=say.spread(found, say.number))

    return cell


def _thousand(_: Measured, row: Row) -> Cell:
    return ABSENT if row.usd_per_turn is None else Cell(text=say.spread(row.usd_per_turn, say.number, factor=1_000))


_LATENCIES: Final[tuple[Column, ...]] = (
    ("TTFT p50", _figure("ttft_p50_ms")),
    ("TTFT p95", _tail),
    ("ITL, median", _figure("itl_p50_ms")),
    ("output tokens/s", _rate("output_tokens_per_s")),
)
_RATES: Final[tuple[Column, ...]] = (("output tokens/s", _rate("output_tokens_per_s")), ("requests/s", _rate("requests_per_s")))
_SERVER: Final[tuple[Column, ...]] = (
    ("KV pool, tokens", _pool),
    ("GPU memory", _memory),
    ("sessions at once", _sessions),
    ("answers right", _answers),
    ("drafts accepted", _acceptance),
)
_COSTS: Final[tuple[Column, ...]] = (("USD, 1,000 turns", _thousand),)


FORMAT: Final = "agentload-matrix/1"
WIDE: Final = "body { max-width: 100rem; }\n"
"""A record has many columns."""


def write(page: Page, folder: Path) -> tuple[Path, ...]:
    """Write `matrix.md`, `matrix.html` and `matrix.json`; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for name, text in (("matrix.md", markdown(page)), ("matrix.html", html(page)), ("matrix.json", json(page))):
        (folder / name).write_text(text, encoding="utf-8")
        out.append(folder / name)
    return tuple(out)


def markdown(page: Page) -> str:
    """Render the page for GitHub and terminals."""
    text = markdown_environment().get_template("matrix.md.j2").render(page=page)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def html(page: Page) -> str:
    """Render the page as one file that needs no other."""
    environment = Environment(
        loader=PackageLoader("agentload.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"tied": tied}
    styled = style() + WIDE
    # Our own style sheet, not a reader's words.
    return environment.get_template("matrix.html.j2").render(page=page, style=Markup(styled), policy=security_policy(styled=styled))  # noqa: S704


def json(page: Page) -> str:
    """Render the record for machines."""
    said = {
        "format": FORMAT,
        "title": page.title,
        "lists": {each.word: each.items for each in page.lists} | {"no difference": page.no_difference},
        "models": page.models,
        "record": page.rows,
        "missing": page.missing,
        "notes": page.notes,
    }
    return msgspec.json.format(msgspec.json.encode(said, enc_hook=plain), indent=2).decode() + "\n"
