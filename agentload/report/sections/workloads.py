"""One workload class in full: its distributions, its block pairs and its figures, arm beside arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from advisor.verdict import Change, Figure
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Axis, Band, Plot, Rule, distribution, every
from agentload.report.parts import Cell, Group, Table, group, table
from agentload.report.sections.view import View

Metric = Literal["ttft_ms", "tpot_ms", "turn_ms"]
METRICS: Final[tuple[tuple[Metric, str], ...]] = (
    ("ttft_ms", "time to first token"),
    ("tpot_ms", "token latency"),
    ("turn_ms", "turn time"),
)
FIGURES: Final[dict[str, tuple[str, float | None]]] = {
    "ttft_ms": ("time to first token", None),
    "tpot_ms": ("token latency", None),
    "gap_ms": ("gap between chunks", None),
    "turn_ms": ("turn time", None),
    "phase_ms": ("mean by the server's clock", None),
    "within_slo": ("turns within the SLO", None),
    "dropped_share": ("turns that failed", None),
    "output_tokens_per_s": ("output tokens per second", 1),
    "requests_per_s": ("requests per second", 1),
    "goodput_per_s": ("requests within the SLO per second", 1),
    "hit_rate": ("cached prompt share", None),
    "ideal_hit_rate": ("cached prompt share, unbounded cache", None),
    "external_hit_rate": ("cached share of what was asked of the cache outside", None),
    "acceptance_rate": ("accepted draft tokens", None),
    "pool_tokens": ("KV pool, tokens", None),
    "page_bytes": ("KV page, KiB", 1 / 1024),
    "peak_kv_usage": ("KV pool in use, peak", None),
    "pool_filled_share": ("time with the KV pool full", None),
    "preemptions": ("preemptions", 1),
    "running_max": ("running requests, most", 1),
    "waiting_max": ("waiting requests, most", 1),
    "rejections": ("requests declined, queue full", 1),
    "max_concurrency": ("largest concurrency, as the server says", 1),
    "usd_per_turn": ("cost of 1,000 turns, USD", 1_000),
    "usd_per_mtok": ("cost of a million output tokens, USD", 1),
    "joule_per_token": ("energy of an output token, J", 1),
    "watts": ("power, W", 1),
    "power_capped_share": ("time at the power limit", None),
    "throttled_share": ("time slowed by heat or a brake", None),
    "clock_mhz": ("GPU clock under load, MHz", 1),
}
"""What a reader calls a figure, and by what it is multiplied where its name says the unit; the order is the table's."""


def workload(view: View, name: str) -> Group:
    """Show one class; with the charts a reader asks for when a verdict surprises."""
    title = f"Class: {name}"
    plots = (*(_distribution(view, name, metric, words) for metric, words in METRICS), *_pairs(view, name))
    return group(title, charts=plots, tables=(_changes(view, name), _figures(view, name))) or Group(title=title)


def server(view: View) -> Group | None:
    """Show the figures of the whole server."""
    return group("Whole server", charts=_pairs(view, None), tables=(_changes(view, None), _figures(view, None)))


def _distribution(view: View, name: str, metric: Metric, words: str) -> Plot:
    series = []
    for arm in view.arms:
        calls = view.evidence.calls(name, arm)
        xs, ys = ((), ()) if calls is None else distribution(getattr(calls, metric)[calls.ok])
        if xs:
            series.append(view.series(arm, "steps", xs, ys))
    return Plot(
        name=f"cdf-{metric.removesuffix('_ms')}-{labels.slug(name)}",
        title=f"{name}: {words}",
        caption=f"The share of calls whose {words} is at or below a value; further left is faster.",
        x=Axis(label=words, quantity="duration", scale="log"),
        y=Axis(label="share of calls", quantity="share", low=0.0, high=1.0),
        series=tuple(series),
    )


def _pairs(view: View, name: str | None) -> Iterator[Plot]:
    changes = [each for arm in view.arms[1:] if (each := view.change("turn_ms", arm, name)) is not None and each.by_pair]
    if not changes:
        return
    focus = next((each for each in changes if each.arm == view.focus), changes[0])
    low, high = (None if end is None else 100 * end for end in (focus.relative.low, focus.relative.high))
    against = labels.arm(view.evidence.reference)
    series = []
    for each in changes:
        pairs, values = every(each.pair_ids), [100 * value for value in every(each.by_pair)]
        tips = (f"{labels.arm(each.arm)}, pair {pair}: {say.signed(value, 1)} %" for pair, value in zip(pairs, values, strict=True))
        series.append(view.series(each.arm, "points", map(float, pairs), values, tips=tips))
    yield Plot(
        name=f"pairs-{labels.slug(name)}" if name else "pairs",
        title=f"{name or 'Whole server'}: turn time, pair by pair",
        caption=f"Each mark is one block pair against {against}; the band is the interval of {labels.arm(focus.arm)}.",
        x=Axis(label="block pair", quantity="count"),
        y=Axis(label="change of turn time, %", quantity="percent"),
        series=tuple(series),
        bands=(Band(axis="y", low=low, high=high, label="", slot=labels.slots(view.evidence)[focus.arm]),),
        rules=(Rule(axis="y", at=0.0, label="no change"),),
    )


def _changes(view: View, name: str | None) -> Table:
    """List what an arm changes, pair by pair, beside what two equal servers may differ by."""
    rows = (
        (
            words,
            *(say.change(each.relative) if each is not None else Cell(text=say.ABSENT, tone="muted") for each in changes),
            Cell(text=_floor(changes), tone="muted"),
        )
        for metric, words in METRICS
        if any(changes := [view.change(metric, arm, name) for arm in view.arms[1:]])
    )
    against = labels.arm(view.evidence.reference)
    columns = ("", *(labels.arm(arm) for arm in view.arms[1:]), "A/A, cannot rule out")
    return table(f"Changes of {name or 'the whole server'} against {against}, pair by pair", columns, rows)


def _floor(changes: Sequence[Change | None]) -> str:
    floors = [each.floor for each in changes if each is not None and each.floor is not None]
    return f"±{say.number(100 * max(floors), 1)} %" if floors else say.ABSENT


def _figures(view: View, name: str | None) -> Table:
    ours = [each for each in view.decision.figures if each.workload == name and each.kind == view.decision.kind]
    names = sorted(dict.fromkeys(each.name for each in ours), key=_rank)
    rows = ((called(figure), *(_field(view.figure(figure, arm, name)) for arm in view.arms)) for figure in names)
    return table(f"Figures of {name or 'the whole server'}", ("", *map(labels.arm, view.arms)), rows)


def _field(figure: Figure | None) -> Cell | str:
    if figure is None:
        return Cell(text=say.ABSENT, tone="muted")
    _, factor = FIGURES.get(figure.name.partition(".")[0], ("", None))
    return say.estimate(figure.estimate) if factor is None else say.spread(figure.estimate, say.number, factor=factor)


def called(figure: str) -> str:
    """Return what a reader calls a figure: `ttft_ms.p95` is `time to first token, p95`."""
    stem, _, part = figure.partition(".")
    words, _ = FIGURES.get(stem, (stem.replace("_", " "), None))
    return f"{words}, {part}" if part else words


def _rank(figure: str) -> tuple[int, str]:
    stem, _, part = figure.partition(".")
    known = list(FIGURES)
    return (known.index(stem) if stem in known else len(known), part)
