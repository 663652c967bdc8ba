"""Lay out one page for several models: decisions, four lists, all figures, what is missing."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from markupsafe import Markup

from advisor.estimate import Estimate
from advisor.evidence import Kind
from advisor.verdict import Change, Word
from agentload.model.record import Record
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.forest import ForestRows, forest_rows
from agentload.report.charts.spec import Band, ChartAxis, Lanes, LaneSpan, RuleLine
from agentload.report.formats.html import environment, security_policy, style
from agentload.report.formats.json import indented_json
from agentload.report.formats.md import render as as_markdown
from agentload.report.lookup import first
from agentload.report.parts import Cell, Listing, Table, Tone, in_grey, table
from agentload.report.record import ConfigRow, Measured, Missing, rows
from agentload.report.render import write_files
from agentload.report.sections.arms import need, words
from agentload.report.sections.opening import BANNERS, HEADINGS
from agentload.report.sections.rows import ABSENT

GIB: Final = 1 << 30
NOT_SEEN: Final = in_grey("not observed")
TOO_FEW: Final = in_grey("too few sessions")
UNKNOWN: Final = (ABSENT, NOT_SEEN, TOO_FEW)
KINDS: Final[tuple[Kind, ...]] = ("measured", "emulated", "simulated")
NOTES: Final[Mapping[str, str]] = {
    "TPOT p50": "Latencies are of turns that succeeded, with 95% intervals over sessions.",
    "output tokens/s": (
        "Output tokens/s are per workload, measured while the other workloads of the mix ran; "
        "rows of a whole server are totals."
    ),
    "KV pool, tokens": (
        "KV pool, GPU memory, accuracy and accepted drafts belong to the server, so they are equal "
        "in all rows of an arm."
    ),
    "GPU memory": (
        "Compare KV caches in pool tokens, not in GPU memory: servers fill memory to the same "
        "level for every dtype."
    ),
    "sessions at once": (
        "Sessions at once: the highest load without preemptions, queues, failures or a missed "
        "limit, and the lowest load with."
    ),
}
"""By the column that a note explains."""


class Scenario(Record):
    """One line of the page: what was decided of a model, and the figure behind it."""

    name: str
    model: str
    """As its servers call it; empty where the scenario has the same name."""
    where: str
    headline: str
    tone: Tone
    why: str
    report: str | None
    change: Change | None
    """Of turn latency, for the arm that the decision is about."""
    is_judged: bool
    """False: nothing of the change counts, because a validity check failed."""
    sure: tuple[str, ...]
    """How certain the effect is, and which calls and contexts it covers."""

    @property
    def figure(self) -> Cell:
        """Return the change in words."""
        if self.change is None:
            return ABSENT
        text = say.change(self.change.relative)
        return Cell(text=text, tone="plain" if self.is_judged else "muted")


class MatrixPage(Record):
    """Everything that the page says.

    What was measured never shares a table with what was not.
    """

    title: str
    models: tuple[Measured, ...]
    missing: tuple[Missing, ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return whether figures were measured, emulated or simulated, each kind once."""
        found = {each.document.kind for each in self.models}
        return tuple(kind for kind in KINDS if kind in found)

    @property
    def banners(self) -> tuple[str, ...]:
        """Say how the figures came about."""
        return tuple(BANNERS[kind] for kind in self.kinds)

    @property
    def headline(self) -> str:
        """Say for how many of the models each verdict was given."""
        found = Counter(each.document.decision.choice.verdict for each in self.models)
        is_fp8 = all(labels.is_fp8(each.evidence) for each in self.models)
        subject = "FP8" if is_fp8 else "the new setting"
        of_all = f" of {len(self.models)}"
        parts = []
        for word, phrase in COUNTED.items():
            if found[word]:
                parts.append(f"{phrase.format(subject)} {found[word]}{of_all}")
                subject = "it"  # the first part has named it, and how many models there are
                of_all = ""
        return say.join((self.title, ", ".join(parts)), ": ")

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Return a line for each model."""
        return tuple(map(_scenario, self.models))

    @property
    def subject(self) -> str:
        """Say what the first column names: a model where each has one scenario, named after it."""
        named = all(each.model == each.document.model for each in self.models)
        return "model" if named else "scenario"

    @property
    def forest(self) -> ForestRows | None:
        """Draw the change of turn latency of every model on one axis; None without any."""
        shown = self.scenarios
        spans = tuple(_span(lane, each) for lane, each in enumerate(shown) if each.change)
        if not spans:
            return None
        least = min(each.document.policy.min_change for each in self.models)
        chart = Lanes(
            name="scenarios",
            title="Change of turn latency",
            caption="",
            x=ChartAxis(label="change of turn latency, %", quantity="percent"),
            lanes=tuple(each.name for each in shown),
            spans=spans,
            bands=(Band(axis="x", low=-100 * least, high=100 * least),),
            rules=(RuleLine(axis="x", at=0.0),),
        )
        return forest_rows(chart, [each.name for each in shown])

    @property
    def lists(self) -> tuple[Listing, ...]:
        """Return the four lists, each item with its model."""
        own = [each.document.lists for each in self.models]
        out = []
        for place, (heading, word) in enumerate(HEADINGS):
            listings = [lists[place] for lists in own]
            headings = {listing.heading for listing in listings}
            common = headings.pop() if len(headings) == 1 else heading.format("a new setting")
            items = self._of_models([listing.items for listing in listings])
            out.append(Listing(heading=common, word=word, items=items))
        return tuple(out)

    @property
    def no_difference(self) -> tuple[str, ...]:
        """Return the classes that are in no list, each with its model."""
        return self._of_models([each.document.no_difference for each in self.models])

    def _of_models(self, items: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """Write the items of each model on one line behind its name, where there are any."""
        pairs = zip(self.models, items, strict=True)
        return tuple(f"{of.model}: {'; '.join(own)}" for of, own in pairs if own)

    @property
    def rows(self) -> tuple[ConfigRow, ...]:
        """Return the record."""
        return tuple(row for each in self.models for row in rows(each))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return the record as tables: of workloads, and of whole servers."""
        out = []
        for kind in self.kinds:
            of_kind = [(of, row) for of in self.models for row in rows(of) if row.kind == kind]
            own = [(of, row) for of, row in of_kind if row.workload is not None]
            whole = [(of, row) for of, row in of_kind if row.workload is None]
            marked = "" if kind == "measured" else f", {kind}"
            servers = f"Whole servers, all workloads{marked}"
            out.append(_table(f"Record{marked}", self.subject, own, left_out=OF_SERVERS))
            out.append(_table(servers, self.subject, whole, left_out=OF_CLASSES))
        return tuple(out)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what the columns mean that the tables have."""
        shown = {column for each in self.tables for column in each.columns}
        return tuple(note for column, note in NOTES.items() if column in shown)


COUNTED: Final[Mapping[Word, str]] = {
    "use": "use {} in",
    "avoid": "avoid {} in",
    "calibrate": "calibrate {} in",
    "no difference": "{} makes no difference in",
    "test further": "test {} further in",
}


def _scenario(of: Measured) -> Scenario:
    document = of.document
    decision = document.decision
    names = [each.name for each in of.evidence.challengers]
    choice = decision.choice
    about = next((name for name in (choice.arm, choice.runner_up, *names) if name in names), "")
    change = first(decision.changes, metric="turn_ms", arm=about, workload=None)
    found = of.verdict(about, None)
    is_judged = found is None or found.pays.state != "untested"
    sure = f"effect {document.sure.effect}" if is_judged else "could not be judged"
    covered = document.coverage.partition(";")[0]  # which calls and contexts
    return Scenario(
        name=of.model,
        model="" if document.model == of.model else document.model,
        where=document.where,
        headline=document.headline,
        tone=document.tone,
        why=document.why,
        report=of.report,
        change=change,
        is_judged=is_judged,
        sure=tuple(filter(None, (sure, covered.removeprefix("all of your calls, ")))),
    )


def _span(lane: int, of: Scenario) -> LaneSpan:
    """Draw a change in the colour of a challenger, or in grey where nothing of it counts."""
    assert of.change is not None
    found = of.change.relative
    low, high = found.closed_ends
    return LaneSpan(
        lane=lane,
        look="interval",
        low=100 * low,
        high=100 * high,
        at=100 * found.value,
        slot=1 if of.is_judged else None,
        tip=f"{of.name}: {say.change(found)}",
    )


def _verdict(of: Measured, row: ConfigRow) -> Cell:
    found = of.verdict(row.config, row.workload)
    if found is not None:
        missing = need(of.document.decision, found)
        return Cell(text=f"{words(found)}{missing}", tone=labels.VERDICT_TONES[found.verdict])
    is_reference = row.config == of.evidence.reference
    return Cell(text="reference", tone="muted") if is_reference else ABSENT


def _sessions(row: ConfigRow) -> Cell | str:
    held, broke = row.sessions_held, row.sessions_broke
    if held is None:
        if broke is None:
            return ABSENT
        return f"none: {broke} are too many"
    if broke is None:
        return f"{held} or more"
    return f"{held} ({broke} are too many)"


def _answers(of: Measured, row: ConfigRow) -> Cell | str:
    """Print the share of right answers, of the questions that the change is of where one is."""
    decides = _deciding(of, row.config)
    if decides is not None:
        share, asked = decides
    elif row.answers_right is not None and row.answers_asked:
        share = row.answers_right / row.answers_asked
        asked = row.answers_asked
    else:
        return ABSENT
    text = f"{say.tenths(share)} of {say.number(asked)}"
    if row.accuracy_change is None:
        return text
    return f"{text}; {say.points(row.accuracy_change)}"


def _deciding(of: Measured, arm: str) -> tuple[float, int] | None:
    """Return the share of right answers among the questions that decide, and their number."""
    for verdict in of.document.decision.server:
        asked, change = verdict.safe.answers, verdict.safe.estimate
        if asked is None or change is None:
            continue
        if arm == of.evidence.reference:
            return asked.reference, asked.questions
        if arm == verdict.arm:
            return asked.reference + change.value, asked.questions
    return None


def _rate(each: Estimate) -> str:
    return say.spread(each, say.number)


def _memory(held: float) -> str:
    return f"{say.number(held / GIB, 1)} GiB"


def _price(each: Estimate) -> str:
    return say.spread(each, say.number, factor=1_000)


Column: TypeAlias = tuple[str, Callable[[Any], str], Cell]
# What to do stands first: a record is wide.
COLUMNS: Final[Mapping[str, Column]] = {
    "model": ("model", str, ABSENT),
    "workload": ("workload", str, ABSENT),
    "arm": ("config", labels.arm, ABSENT),
    "verdict": ("verdict", str, ABSENT),
    "TTFT p50": ("ttft_p50_ms", say.estimate, ABSENT),
    "TTFT p95": ("ttft_p95_ms", say.estimate, ABSENT),
    "TPOT p50": ("itl_p50_ms", say.estimate, ABSENT),
    "output tokens/s": ("output_tokens_per_s", _rate, NOT_SEEN),
    "requests/s": ("requests_per_s", _rate, NOT_SEEN),
    "KV pool, tokens": ("pool_tokens", say.number, NOT_SEEN),
    "GPU memory": ("gpu_memory_bytes", _memory, NOT_SEEN),
    "sessions at once": ("sessions_held", str, ABSENT),
    "accuracy": ("answers_right", str, ABSENT),
    "drafts accepted": ("draft_acceptance", say.percent, ABSENT),
    "USD, 1,000 turns": ("usd_per_turn", _price, ABSENT),
}
"""By name: a row's field, how it is written (some by `_cell`), what stands for an absent one."""
OF_CLASSES: Final = {"workload", "TTFT p50", "TTFT p95", "TPOT p50"}
OF_SERVERS: Final = {"requests/s", "USD, 1,000 turns"}


def _cell(of: Measured, row: ConfigRow, column: str) -> Cell | str:
    field, written, absent = COLUMNS[column]
    value = getattr(row, field)
    match column:
        case "verdict":
            return _verdict(of, row)
        case "sessions at once":
            return _sessions(row)
        case "accuracy":
            return _answers(of, row)
        case "TTFT p95" if value is None and row.ttft_p50_ms is not None:
            return TOO_FEW
        case _:
            return absent if value is None else written(value)


def _table(
    title: str,
    subject: str,
    found: Iterable[tuple[Measured, ConfigRow]],
    *,
    left_out: Collection[str],
) -> Table:
    """Lay rows out by *subject*, without the columns in *left_out* and those without a figure."""
    rows = list(found)
    heads, columns = [], []
    for name in COLUMNS:
        cells = [_cell(of, row, name) for of, row in rows]
        if name not in left_out and any(cell not in UNKNOWN for cell in cells):
            heads.append(subject if name == "model" else name)
            columns.append(cells)
    return table(title, heads, zip(*columns, strict=True))


FORMAT: Final = "agentload-matrix/1"
WIDE: Final = "body { max-width: 100rem; }\n"
"""A record has many columns."""


def write(page: MatrixPage, folder: Path, *, name: str = "matrix") -> tuple[Path, ...]:
    """Write `NAME.md`, `NAME.html` and `NAME.json`; return their paths."""
    texts = {"md": markdown(page), "html": html(page), "json": json(page)}
    return write_files(folder, ((f"{name}.{suffix}", text) for suffix, text in texts.items()))


def markdown(page: MatrixPage) -> str:
    """Render the page for GitHub and terminals."""
    return as_markdown("matrix.md.j2", page=page)


def html(page: MatrixPage) -> str:
    """Render the page as one file that needs no other."""
    styled = style() + WIDE
    template = environment().get_template("matrix.html.j2")
    return template.render(
        page=page,
        style=Markup(styled),  # noqa: S704  # it is ours, and holds nothing from a run
        policy=security_policy(styled=styled),
    )


def json(page: MatrixPage) -> str:
    """Render the record for machines."""
    said = {
        "format": FORMAT,
        "title": page.title,
        "lists": {each.word: each.items for each in page.lists}
        | {"no difference": page.no_difference},
        "models": [_line(each) for each in page.models],
        "record": page.rows,
        "missing": page.missing,
        "notes": page.notes,
    }
    return indented_json(said)


def _line(of: Measured) -> dict[str, str | None]:
    document = of.document
    return {
        "model": of.model,
        "kind": document.kind,
        "headline": document.headline,
        "where": document.where,
        "report": of.report,
        "run": document.run,
    }
