"""Show time per output token against KV tokens, TTFT against computed tokens, and break-even."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from advisor.evidence import Calls, ContextSweep, Floats
from advisor.verdict import BreakEven, ItlLine
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Band, ChartAxis, Plot, Series, cloud
from agentload.report.lookup import first
from agentload.report.parts import Group, Table, group, table
from agentload.report.sections.view import View

US, NS = 1e3, 1e6
"""In a millisecond."""


def break_evens(view: View) -> Table:
    """List from which length on each arm is ahead."""
    columns = ("arm", "KV tokens of the batch", "per request", "published value")
    rows = (
        (labels.arm(each.arm), _ahead(view, each), _own(each), say.tokens(each.prior_tokens))
        for each in view.decision.break_even
    )
    note = (
        "The length at which the lines cross; within the interval (a Fieller set) the arms "
        "cannot be distinguished. Batches of equal size are compared, not equal turns."
    )
    return table("Break-even in time per output token", columns, rows, note)


def _ahead(view: View, each: BreakEven) -> str:
    """Say where an arm is ahead, with the change on equal turns where that does not show it."""
    said = break_even(each)
    found = view.change("tpot_ms", each.arm, None)
    if found is None:
        return said
    change = found.relative
    is_shown = {"always": change.is_below(0.0), "none": change.is_above(0.0)}
    if is_shown.get(each.shape, True):
        return said
    return f"{said}; not shown on equal turns: {say.change(change)}"


def _own(each: BreakEven) -> str | None:
    if each.own_tokens is None:
        return None
    length = say.token_range(each.own_tokens, each.own_low, each.own_high)
    return f"{length} at batch {say.significant(each.users)}"


def break_even(each: BreakEven) -> str:
    """Say a break-even set in words and figures."""
    match each.shape:
        case "always":
            return "ahead at every length"
        case "none":
            return "ahead nowhere"
        case "unclear":
            return "undecided: neither arm is clearly ahead"
        case "bounded" | "half-line" if each.tokens is not None:
            return f"ahead {each.ahead} {say.token_range(each.tokens, each.low, each.high)}"
        case "bounded" | "half-line":
            shown = each.high if each.ahead == "above" else each.low
            if shown is None:
                return "undecided"
            return f"ahead {each.ahead} {say.tokens(shown)}"


def lines(view: View) -> Table:
    """List the fitted lines of time per output token."""
    columns = (
        "arm",
        "batch",
        "slope, ns per token",
        "the same by Theil–Sen",
        "intercept, ms",
        "bandwidth, TB/s",
        "straight",
    )
    rows = (
        (
            labels.arm(line.arm),
            str(line.users),
            say.spread(line.slope_ms_per_token, say.number, factor=NS),
            say.spread(line.theil_sen_slope, say.number, factor=NS),
            say.spread(line.intercept_ms, say.number),
            say.spread(line.bandwidth_tb_s, say.number),
            "yes" if line.straight else "no",
        )
        for line in view.decision.itl
    )
    note = (
        "Bandwidth is the KV bytes of a token over the slope; above the GPU's peak the "
        "measurement would be broken."
    )
    return table("Time per output token as a line over KV tokens", columns, rows, note)


def curves(view: View) -> Table:
    """List the fitted curves of time to first token."""
    columns = (
        "arm",
        "quadratic, ns per token²",
        "linear, µs per token",
        "constant, ms",
        "fitted over, tokens",
    )
    rows = (
        (
            labels.arm(curve.arm),
            say.spread(curve.a, say.number, factor=NS),
            say.spread(curve.b, say.number, factor=US),
            say.spread(curve.c, say.number),
            " to ".join(map(say.tokens, curve.range_tokens)),
        )
        for curve in view.decision.ttft
    )
    return table("Time to first token as a curve over computed tokens", columns, rows)


CURVE_POINTS = 24
OUTLYING = 2.0
"""Times the 95th percentile."""
Points: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
Columns: TypeAlias = tuple[Floats | None, Floats | None]


def latency(view: View) -> Group | None:
    """Show how latency grows with context in each arm, and where the arms cross."""
    return group(
        "Latency against context",
        charts=(_itl(view), _ttft(view)),
        tables=(break_evens(view), lines(view), curves(view)),
        note=(
            "Break-even is stated in KV tokens of the whole batch; the tokens of one "
            "request follow by dividing by the batch."
        ),
    )


def _itl(view: View) -> Plot:
    """Draw the calls of every arm, without the few that would press all others together."""
    clouds = {
        arm: _points(
            view,
            arm,
            lambda sweep: (sweep.context_tokens * sweep.users, sweep.itl_ms),
            lambda calls: (calls.batch_kv_tokens, calls.tpot_ms),
        )
        for arm in view.arms
    }
    limit = _limit([value for _, ys in clouds.values() for value in ys])
    above = 0
    marks = []
    for arm, points in clouds.items():
        xs, ys = _below(points, limit)
        above += len(points[1]) - len(ys)
        marks.append(view.series(arm, "points", xs, ys))
    fits = [_fit(view, line) for line in view.decision.itl]
    bands = tuple(_band(view))
    apart = f"Within the band {labels.arm(view.focus)} and {view.against} cannot be distinguished."
    are = "is" if above == 1 else "are"
    caption = {
        "Each mark is a call.": True,
        "Lines are fits.": fits,
        apart: bands,
        f"{say.plural(above, 'slower call')} {are} off the chart.": above,
    }
    return Plot(
        name="itl",
        title="Time per output token against KV tokens of the batch",
        caption=say.join_if(caption, " "),
        x=ChartAxis(label="KV tokens of the whole batch", quantity="tokens", low=0.0),
        y=ChartAxis(label="ms per token", quantity="ms"),
        series=(*marks, *fits),
        bands=bands,
    )


def _band(view: View) -> Iterator[Band]:
    """Yield the break-even of the arm that the report speaks for, where it is a range."""
    ranges = [each for each in view.decision.break_even if each.shape in ("bounded", "half-line")]
    found = first(ranges, arm=view.focus)
    if found is not None:
        slot = view.slots[view.focus]
        yield Band(axis="x", low=found.low, high=found.high, label="break-even", slot=slot)


def _fit(view: View, line: ItlLine) -> Series:
    base = line.intercept_ms.value
    slope = line.slope_ms_per_token.value
    values = (base + slope * at for at in line.range_tokens)
    label = f"{labels.arm(line.arm)}, fit at batch {line.users}"
    return view.series(line.arm, "line", line.range_tokens, values, label=label)


def _limit(values: Sequence[float]) -> float:
    """Return the highest value worth a frame.

    A few calls of two or three tokens would press all others onto the axis.
    """
    if not values:
        return 0.0
    return OUTLYING * float(np.quantile(values, 0.95))


def _below(points: Points, limit: float) -> Points:
    below = [(x, y) for x, y in zip(*points, strict=True) if y <= limit]
    return tuple(x for x, _ in below), tuple(y for _, y in below)


def _points(
    view: View,
    arm: str,
    of_sweep: Callable[[ContextSweep], Columns],
    of_calls: Callable[[Calls], Columns],
) -> Points:
    """Return tokens and times of an arm: what its context sweeps have, or else its calls."""
    sweeps = (each for each in view.evidence.sweeps if each.arm == arm)
    points = _cloud(map(of_sweep, sweeps)) or _cloud(map(of_calls, view.calls(arm)))
    return points or ((), ())


def _cloud(columns: Iterable[Columns]) -> Points | None:
    """Join columns to points; None where either is missing."""
    known = [(xs, ys) for xs, ys in columns if xs is not None and ys is not None]
    if not known:
        return None
    xs, ys = zip(*known, strict=True)
    return cloud(np.concatenate(xs), np.concatenate(ys))


def _ttft(view: View) -> Plot:
    def times(found: ContextSweep | Calls) -> Columns:
        return found.computed_tokens, found.ttft_ms

    marks = []
    for arm in view.arms:
        xs, ys = _points(view, arm, times, times)
        if xs:
            marks.append(view.series(arm, "points", xs, ys))
    curves = []
    for curve in view.decision.ttft:
        at = np.linspace(*curve.range_tokens, CURVE_POINTS)
        ms = curve.a.value * at**2 + curve.b.value * at + curve.c.value
        label = f"{labels.arm(curve.arm)}, fit"
        curves.append(view.series(curve.arm, "line", at.tolist(), ms.tolist(), label=label))
    return Plot(
        name="ttft",
        title="Time to first token against computed tokens",
        caption="Computed tokens are prompt tokens not served from cache; each mark is a call.",
        x=ChartAxis(label="computed tokens (prompt − cached)", quantity="tokens", low=0.0),
        y=ChartAxis(label="time to first token", quantity="duration", low=0.0),
        series=(*marks, *curves),
    )
