"""Show one workload class in full, or the whole server.

How the arms shift a class's calls, its block pairs and its figures, arm by arm.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from advisor.estimate import Estimate, present
from advisor.verdict import Change, Figure
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Band, ChartAxis, Plot, RuleLine, Series, every
from agentload.report.labels import WORDS
from agentload.report.lookup import first
from agentload.report.parts import Cell, Group, Table, group, table
from agentload.report.sections.bottleneck import bottleneck
from agentload.report.sections.differences import shifts
from agentload.report.sections.view import View

FIGURES: Final[dict[str, dict[str, Any]]] = WORDS["figures"]
"""What a reader calls a figure (`says`), and what it is multiplied by where its name says the
unit (`times`); the order is the table's.
"""


def workload(view: View, name: str) -> Group:
    """Show one class, with the charts that a reader asks for when a verdict surprises."""
    title = f"Class: {name}"
    charts = (*shifts(view, name), *_pairs(view, name))
    return group(title, charts=charts, tables=(_figures(view, name),)) or Group(title=title)


def server(view: View) -> Group | None:
    """Show the figures of the whole server; the pairs of a single class are drawn with it."""
    charts = _pairs(view, None) if len(view.workloads) != 1 else ()
    return group("Whole server", charts=charts, tables=(_figures(view, None),))


def _pairs(view: View, name: str | None) -> Iterator[Plot]:
    found = present(view.changes("turn_ms", name))
    changes = [each for each in found if each.by_pair]
    if not changes:
        return
    focus = first(changes, arm=view.focus) or changes[0]
    ends = (focus.relative.low, focus.relative.high)
    low, high = (None if end is None else 100 * end for end in ends)
    interval = Band(axis="y", low=low, high=high, slot=view.slots[focus.arm])
    yield Plot(
        name=f"pairs-{labels.slug(name)}" if name else "pairs",
        title=f"{name or 'Whole server'}: turn latency, pair by pair",
        caption=(
            f"Each mark is one block pair compared with {view.against}; the band is the "
            f"interval of {labels.arm(focus.arm)}."
        ),
        x=ChartAxis(label="block pair", quantity="count", whole=True),
        y=ChartAxis(label="change of turn latency, %", quantity="percent"),
        series=tuple(_by_pair(view, each) for each in changes),
        bands=(interval,),
        rules=(RuleLine(axis="y", at=0.0, label="no change"),),
    )


def _by_pair(view: View, change: Change) -> Series:
    pairs = every(change.pair_ids)
    values = [100 * value for value in every(change.by_pair)]
    tips = (
        f"{labels.arm(change.arm)}, pair {pair}: {say.with_sign(value, 1)}%"
        for pair, value in zip(pairs, values, strict=True)
    )
    return view.series(change.arm, "points", map(float, pairs), values, tips=tips)


PEAKS: Final = ("peak_kv_usage", "running_max", "waiting_max")
SAMPLED: Final = (
    "Peaks are the largest of periodic samples: a short peak between two samples is "
    "missing, so do not compare them across arms."
)


def _figures(view: View, name: str | None) -> Table:
    kind = view.decision.kind
    ours = [each for each in view.decision.figures if (each.workload, each.kind) == (name, kind)]
    names = sorted(dict.fromkeys(each.name for each in ours), key=_rank)
    rows: list[Sequence[Cell | str]] = []
    if name is None:
        rows += _bottlenecks(view)
    for figure in names:
        rows.append((figure_name(figure), *_fields(view.figures(figure, name))))
    title = f"Figures of {name or 'the whole server'}"
    columns = ("", *view.columns)
    note = SAMPLED if any(figure in PEAKS for figure in names) else ""
    return table(title, columns, rows, note)


def _bottlenecks(view: View) -> Iterator[tuple[str, ...]]:
    """Yield what the turns of each arm waited for most, with the evidence."""
    servers = dict(view.evidence.server)
    client = {each.arm: each for each in view.evidence.health}
    found = []
    for arm in view.arms:
        health = client.get(arm) or client.get(None)
        found.append(bottleneck(view.calls(arm), servers.get(arm), health))
    if any(found):
        yield ("bottleneck", *(each or say.ABSENT for each in found))


def _fields(figures: Sequence[Figure | None]) -> Iterator[Cell | str]:
    """Print one figure of every arm, with the decimals that the least certain arm earns."""
    known: list[Estimate] = [each.estimate for each in present(figures)]
    for each in figures:
        if each is None:
            yield Cell(text=say.ABSENT, tone="muted")
            continue
        factor = FIGURES.get(each.name.partition(".")[0], {}).get("times")
        if factor is None:
            yield say.estimate(each.estimate, among=known)
        else:
            yield say.spread(each.estimate, say.number, factor=factor, among=known)


def figure_name(figure: str) -> str:
    """Return what a reader calls a figure: `ttft_ms.p95` is `time to first token, p95`."""
    stem, _, part = figure.partition(".")
    words: str = FIGURES.get(stem, {}).get("says", stem.replace("_", " "))
    return f"{words}, {part}" if part else words


def _rank(figure: str) -> tuple[int, str]:
    stem, _, part = figure.partition(".")
    known = list(FIGURES)
    return (known.index(stem) if stem in known else len(known), part)
