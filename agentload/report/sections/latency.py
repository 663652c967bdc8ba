"""Token latency against the batch's KV tokens, time to first token against computed tokens, and the break-even between arms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from advisor.evidence import Floats
from advisor.verdict import BreakEven, ItlLine, TtftCurve
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Axis, Band, Chart, Plot, Series, cloud
from agentload.report.parts import Cell, Group, Table
from agentload.report.sections.view import View

US, NS = 1e3, 1e6
"""In a millisecond."""


def break_evens(view: View) -> Table:
    """List from where on each arm is ahead."""
    return Table(
        title="Break-even",
        columns=("arm", "in KV tokens of the batch", "in tokens of one request", "published, for comparison"),
        rows=tuple(_break_even_row(each) for each in view.decision.break_even),
        note="The length at which the lines cross; inside the interval, a Fieller set, the arms cannot be told apart.",
    )


def _break_even_row(each: BreakEven) -> tuple[Cell, ...]:
    own = (
        f"{say.token_range(each.own_tokens, each.own_low, each.own_high)} at batch {say.significant(each.users)}"
        if each.own_tokens is not None
        else say.ABSENT
    )
    texts = (labels.arm(each.arm), break_even(each), own, say.tokens(each.prior_tokens))
    return tuple(Cell(text=text) for text in texts)


def break_even(each: BreakEven) -> str:
    """Say a break-even set in words and figures."""
    match each.shape:
        case "always":
            return "ahead at every length"
        case "none":
            return "ahead nowhere"
        case "unclear":
            return "not settled: neither arm is shown to be ahead"
        case "bounded" | "half-line" if each.tokens is not None:
            return f"ahead {each.ahead} {say.token_range(each.tokens, each.low, each.high)}"
        case "bounded" | "half-line":
            shown = each.high if each.ahead == "above" else each.low
            return "not settled" if shown is None else f"ahead {each.ahead} {say.tokens(shown)}"


def lines(view: View) -> Table:
    """List the fitted lines of token latency."""
    return Table(
        title="Token latency as a line over KV tokens",
        columns=("arm", "batch", "slope, ns per token", "the same by Theil–Sen", "intercept, ms", "bandwidth, TB/s", "straight"),
        rows=tuple(_line_row(line) for line in view.decision.itl),
        note="Bandwidth is the KV bytes of a token over the slope; above the GPU's peak the measurement would be broken.",
    )


def _line_row(line: ItlLine) -> tuple[Cell, ...]:
    texts = (
        labels.arm(line.arm),
        str(line.users),
        say.spread(line.slope_ms_per_token, say.number, factor=NS),
        say.spread(line.theil_sen_slope, say.number, factor=NS),
        say.spread(line.intercept_ms, say.number),
        say.spread(line.bandwidth_tb_s, say.number),
        "yes" if line.straight else "no",
    )
    return tuple(Cell(text=text) for text in texts)


def curves(view: View) -> Table:
    """List the fitted curves of time to first token."""
    return Table(
        title="Time to first token as a curve over computed tokens",
        columns=("arm", "quadratic, ns per token²", "linear, µs per token", "constant, ms", "fitted over, tokens"),
        rows=tuple(_curve_row(curve) for curve in view.decision.ttft),
    )


def _curve_row(curve: TtftCurve) -> tuple[Cell, ...]:
    low, high = curve.range_tokens
    texts = (
        labels.arm(curve.arm),
        say.spread(curve.a, say.number, factor=NS),
        say.spread(curve.b, say.number, factor=US),
        say.spread(curve.c, say.number),
        f"{say.tokens(low)} to {say.tokens(high)}",
    )
    return tuple(Cell(text=text) for text in texts)


CURVE_POINTS = 24
OUTLYING = 2.0
"""Times the 95th percentile."""
Points: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]


def latency(view: View) -> Group | None:
    """Show how latency grows with context in each arm, and where the arms cross."""
    charts = tuple(_charts(view))
    tables = tuple(table for table in (break_evens(view), lines(view), curves(view)) if table.rows)
    if not charts and not tables:
        return None
    return Group(
        title="Latency against context",
        charts=charts,
        tables=tables,
        note="Break-even is stated in KV tokens of the whole batch; the tokens of one request follow by dividing by the batch.",
    )


def _charts(view: View) -> Iterable[Chart]:
    itl = _itl(view)
    if itl.series:
        yield itl
    ttft = _ttft(view)
    if ttft.series:
        yield ttft


def _itl(view: View) -> Plot:
    slots = labels.slots(view.evidence)
    clouds = {arm: found for arm in view.arms if (found := _batch_tokens(view, arm))[0]}
    limit = _limit([value for _, ys in clouds.values() for value in ys])
    points = [
        Series(label=labels.arm(arm), slot=slots[arm], mark="points", xs=xs, ys=ys)
        for arm, cloud_of in clouds.items()
        for xs, ys in (_below(cloud_of, limit),)
    ]
    lines = [_fit(line, slots[line.arm]) for line in view.decision.itl]
    shown = [each for each in view.decision.break_even if each.arm == view.focus and each.shape in ("bounded", "half-line")]
    bands = tuple(Band(axis="x", low=each.low, high=each.high, label="break-even", slot=slots[each.arm]) for each in shown[:1])
    above = sum(len(ys) for _, ys in clouds.values()) - sum(len(series.ys) for series in points)
    caption = (
        "Each mark is a call.",
        "Lines are " if lines else "",
        f"Within the band {labels.arm(view.focus)} and {labels.arm(view.evidence.reference)} cannot be told apart." if bands else "",
        f"{say.plural(above, 'slower call')} not drawn, above the frame." if above else "",
    )
    return Plot(
        name="itl",
        title="Token latency against KV tokens of the batch",
        caption=" ".join(part for part in caption if part),
        x=Axis(label="KV tokens of the whole batch", quantity="tokens", low=0.0),
        y=Axis(label="ms per token", quantity="ms"),
        series=(*points, *lines),
        bands=bands,
    )


def _fit(line: ItlLine, slot: int) -> Series:
    ends = line.range_tokens
    values = tuple(line.intercept_ms.value + line.slope_ms_per_token.value * at for at in ends)
    return Series(label=f"{labels.arm(line.arm)}, fit at batch {line.users}", slot=slot, mark="line", xs=ends, ys=values)


def _limit(values: Sequence[float]) -> float:
    """Return the highest value worth a frame: a few calls of two or three tokens would press all others onto the axis."""
    return OUTLYING * float(np.quantile(values, 0.95)) if values else 0.0


def _below(points: Points, limit: float) -> Points:
    kept = [(x, y) for x, y in zip(*points, strict=True) if y <= limit]
    return tuple(x for x, _ in kept), tuple(y for _, y in kept)


def _batch_tokens(view: View, arm: str) -> Points:
    sweeps = [each for each in view.evidence.sweeps if each.arm == arm]
    if sweeps:
        return cloud(
            np.concatenate([each.context_tokens * each.users for each in sweeps]), np.concatenate([each.itl_ms for each in sweeps])
        )
    rows = [calls for name in view.workloads if (calls := view.evidence.calls(name, arm)) is not None and calls.batch_kv_tokens is not None]
    if not rows:
        return (), ()
    return cloud(_joined(each.batch_kv_tokens for each in rows), _joined(each.tpot_ms for each in rows))


def _ttft(view: View) -> Plot:
    slots = labels.slots(view.evidence)
    points, curves = [], []
    for arm in view.arms:
        xs, ys = _computed_tokens(view, arm)
        if xs:
            points.append(Series(label=labels.arm(arm), slot=slots[arm], mark="points", xs=xs, ys=ys))
    for curve in view.decision.ttft:
        at = np.linspace(*curve.range_tokens, CURVE_POINTS)
        ms = curve.a.value * at**2 + curve.b.value * at + curve.c.value
        label = f"{labels.arm(curve.arm)}, fit"
        curves.append(Series(label=label, slot=slots[curve.arm], mark="line", xs=tuple(at.tolist()), ys=tuple(ms.tolist())))
    return Plot(
        name="ttft",
        title="Time to first token against computed tokens",
        caption="Computed tokens are prompt tokens that the cache did not hold; each mark is a call.",
        x=Axis(label="computed tokens (prompt − cached)", quantity="tokens", low=0.0),
        y=Axis(label="time to first token", quantity="duration", low=0.0),
        series=(*points, *curves),
    )


def _computed_tokens(view: View, arm: str) -> Points:
    sweeps = [each for each in view.evidence.sweeps if each.arm == arm and each.computed_tokens is not None and each.ttft_ms is not None]
    if sweeps:
        return cloud(_joined(each.computed_tokens for each in sweeps), _joined(each.ttft_ms for each in sweeps))
    rows = [calls for name in view.workloads if (calls := view.evidence.calls(name, arm)) is not None and calls.computed_tokens is not None]
    if not rows:
        return (), ()
    return cloud(_joined(each.computed_tokens for each in rows), _joined(each.ttft_ms for each in rows))


def _joined(columns: Iterable[Floats | None]) -> Floats:
    return np.concatenate([column for column in columns if column is not None])
