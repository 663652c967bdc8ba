"""One workload class in full: how the arms shift its
calls, its block pairs and its figures, arm by arm.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from advisor.estimate import Estimate
from advisor.verdict import Figure
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Axis, Band, Plot, Rule, every
from agentload.report.labels import WORDS
from agentload.report.parts import Cell, Group, Table, group, table
from agentload.report.sections.differences import shifts
from agentload.report.sections.view import View

FIGURES: Final[dict[str, dict[str, Any]]] = WORDS["figures"]
"""What a reader calls a figure (`says`), and what it is multiplied
by where its name says the unit (`times`); the order is the table's.
"""


def workload(view: View, name: str) -> Group:
    """Show one class; with the charts a reader asks for when a verdict surprises."""
    title = f"Class: {name}"
    return group(
        title, charts=(*shifts(view, name), *_pairs(view, name)), tables=(_figures(view, name),)
    ) or Group(title=title)


def server(view: View) -> Group | None:
    """Show the figures of the whole server."""
    return group("Whole server", charts=_pairs(view, None), tables=(_figures(view, None),))


def _pairs(view: View, name: str | None) -> Iterator[Plot]:
    changes = [
        each
        for arm in view.arms[1:]
        if (each := view.change("turn_ms", arm, name)) is not None and each.by_pair
    ]
    if not changes:
        return
    focus = next((each for each in changes if each.arm == view.focus), changes[0])
    low, high = (
        None if end is None else 100 * end for end in (focus.relative.low, focus.relative.high)
    )
    against = labels.arm(view.evidence.reference)
    series = []
    for each in changes:
        pairs, values = every(each.pair_ids), [100 * value for value in every(each.by_pair)]
        tips = (
            f"{labels.arm(each.arm)}, pair {pair}: {say.signed(value, 1)}%"
            for pair, value in zip(pairs, values, strict=True)
        )
        series.append(view.series(each.arm, "points", map(float, pairs), values, tips=tips))
    yield Plot(
        name=f"pairs-{labels.slug(name)}" if name else "pairs",
        title=f"{name or 'Whole server'}: turn latency, pair by pair",
        caption=f"Each mark is one block pair compared with {against}; the band is the interval of "
        f"{labels.arm(focus.arm)}.",
        x=Axis(label="block pair", quantity="count"),
        y=Axis(label="change of turn latency, %", quantity="percent"),
        series=tuple(series),
        bands=(
            Band(
                axis="y", low=low, high=high, label="", slot=labels.slots(view.evidence)[focus.arm]
            ),
        ),
        rules=(Rule(axis="y", at=0.0, label="no change"),),
    )


PEAKS: Final = ("peak_kv_usage", "running_max", "waiting_max")
SAMPLED: Final = (
    "Peaks are the largest of periodic samples: a short peak between two samples is missing, "
    "so do not compare them across arms."
)


def _figures(view: View, name: str | None) -> Table:
    ours = [
        each
        for each in view.decision.figures
        if each.workload == name and each.kind == view.decision.kind
    ]
    names = sorted(dict.fromkeys(each.name for each in ours), key=_rank)
    rows = (
        (called(figure), *_fields([view.figure(figure, arm, name) for arm in view.arms]))
        for figure in names
    )
    note = SAMPLED if any(figure in PEAKS for figure in names) else ""
    return table(
        f"Figures of {name or 'the whole server'}", ("", *map(labels.arm, view.arms)), rows, note
    )


def _fields(figures: Sequence[Figure | None]) -> Iterator[Cell | str]:
    """Print one figure of every arm, all with the decimals that the least certain of them earns."""
    known: list[Estimate] = [each.estimate for each in figures if each is not None]
    for each in figures:
        if each is None:
            yield Cell(text=say.ABSENT, tone="muted")
            continue
        factor = FIGURES.get(each.name.partition(".")[0], {}).get("times")
        yield (
            say.estimate(each.estimate, among=known)
            if factor is None
            else say.spread(each.estimate, say.number, factor=factor, among=known)
        )


def called(figure: str) -> str:
    """Return what a reader calls a figure: `ttft_ms.p95` is `time to first token, p95`."""
    stem, _, part = figure.partition(".")
    words: str = FIGURES.get(stem, {}).get("says", stem.replace("_", " "))
    return f"{words}, {part}" if part else words


def _rank(figure: str) -> tuple[int, str]:
    stem, _, part = figure.partition(".")
    known = list(FIGURES)
    return (known.index(stem) if stem in known else len(known), part)
