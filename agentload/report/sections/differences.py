"""Show how far the arms are apart.

Every difference in one forest plot, and in each class the whole distribution, quantile by
quantile.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import scipy

from advisor.estimate import present
from advisor.evidence import Floats
from advisor.legs.speed import INDIFFERENT
from advisor.verdict import Change
from advisor.words import interval
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.scale import EDGE, equal_heights
from agentload.report.charts.spec import (
    Band,
    ChartAxis,
    Lanes,
    LaneSpan,
    Plot,
    RuleLine,
    Series,
    every,
)
from agentload.report.parts import Group, group
from agentload.report.sections.arms import classes
from agentload.report.sections.typical import METRICS, Metric, shared_times
from agentload.report.sections.view import View
from agentload.verdict.looks import SpeedInterval


def differences(view: View) -> Group | None:
    """Show every difference with the margin that counts and the noise, then as a table."""
    return group("Differences", charts=(forest(view), looks(view)), tables=(classes(view),))


MOST_SHOWN: Final = 3.0
"""Times the median distance of all ends from 0: an interval beyond it leaves the frame, where it
would flatten all others. Every estimate is inside.
"""


def forest(view: View) -> Lanes:
    """Draw each metric of each class on each arm.

    The estimate, its interval, the margin and the noise; the mix is on top.
    """
    lanes: list[str] = []
    spans: list[LaneSpan] = []
    for scope in _scopes(view):
        heading = [scope or "your mix"]
        for metric, words in METRICS:
            changes = view.changes(metric, scope)
            if any(changes):
                lanes += [*heading, f" {words}"]
                spans += _spans(view, len(lanes) - 1, changes)
                heading = []
    margin = 100 * view.policy.min_change
    low, high = _reach(spans, margin)
    return Lanes(
        name="differences",
        title=f"Change against {view.against}",
        caption=_caption(view, spans, low, high),
        x=_axis(view, low, high),
        lanes=tuple(lanes),
        spans=tuple(spans),
        arms=_arms(view),
        bands=(_around_zero(margin), _around_zero(INDIFFERENT * margin)),
        rules=(RuleLine(axis="x", at=0.0),),
        height=max(16.0, 10.0 * len(view.others)),
    )


def _axis(view: View, low: float, high: float) -> ChartAxis:
    label = f"change against {view.against}, %"
    return ChartAxis(label=label, quantity="percent", low=low, high=high)


def _arms(view: View) -> tuple[tuple[str, int], ...]:
    return tuple((labels.arm(arm), view.slots[arm]) for arm in view.others)


def _around_zero(end: float) -> Band:
    return Band(axis="x", low=-end, high=end)


def _scopes(view: View) -> tuple[str | None, ...]:
    """List the mix, and its classes where there are several."""
    if len(view.workloads) > 1:
        return (None, *view.workloads)
    return (None,)


def _reach(spans: Iterable[LaneSpan], margin: float) -> tuple[float, float]:
    """Return the ends of the axis, in percent.

    What counts as no difference and every estimate are inside, and intervals unless one would
    flatten all others.
    """
    low = -INDIFFERENT * margin
    high = INDIFFERENT * margin
    intervals = [span for span in spans if span.look == "interval"]
    for span in intervals:
        if span.at is not None:
            low = min(low, 1.1 * span.at)
            high = max(high, 1.1 * span.at)
    ends = [end for span in intervals for end in (span.low, span.high)]
    if ends:
        far = MOST_SHOWN * float(np.median(np.abs(ends)))
        low = min(low, max(min(ends), -far))
        high = max(high, min(max(ends), far))
    return _with_edges(low, high)


def _with_edges(low: float, high: float) -> tuple[float, float]:
    """Return the ends of an axis that leaves some room beyond these ends."""
    edge = EDGE * (high - low)
    return low - edge, high + edge


def _caption(view: View, spans: Sequence[LaneSpan], low: float, high: float) -> str:
    margin = 100 * view.policy.min_change
    least = f"±{say.shorten(margin)}%"
    most = f"±{say.shorten(INDIFFERENT * margin)}%"
    has_noise = any(span.look == "noise" for span in spans)
    leaves = any(span.low < low or span.high > high for span in spans)
    parts = {
        f"Left of 0 is faster than {view.against}.": True,
        f"In the inner band ({least}) a difference is too small to matter.": True,
        f"With “no difference” the interval ends in the outer band ({most}).": True,
        "The grey bar is by how much two identical servers may differ.": has_noise,
        "Intervals that reach the edge extend beyond it.": leaves,
    }
    return say.join_if(parts, " ")


def _spans(view: View, lane: int, changes: Iterable[Change | None]) -> Iterator[LaneSpan]:
    """Yield the noise of a metric, and over it the interval of each arm that was compared."""
    known = present(changes)
    floors = present(each.floor for each in known)
    if floors:
        noise = 100 * max(floors)
        tip = f"noise ±{say.number(noise, 1)}%"
        yield LaneSpan(lane=lane, look="noise", low=-noise, high=noise, tip=tip)
    for place, each in enumerate(known, start=1):
        found = each.relative
        low, high = found.closed_ends
        is_valid = view.has_valid_timings(each.arm, each.workload)
        counts = f"{say.plural(each.pairs, 'pair')}, {say.plural(each.calls, 'call')}"
        yield LaneSpan(
            lane=lane,
            look="interval",
            low=100 * low,
            high=100 * high,
            at=100 * found.value,
            slot=view.slots[each.arm] if is_valid else None,
            tip=f"{labels.arm(each.arm)}: {say.change(found)}, {counts}",
            offset=place / (len(known) + 1),
        )


def looks(view: View) -> Lanes:
    """Draw how the interval of what decides narrowed from look to look of a decision."""
    known = [each for each in view.facts.looks if each.arm in view.others]
    counts = sorted({each.pairs for each in known})
    margin = 100 * view.policy.min_change
    what = "Task latency" if view.policy.decide_by == "tasks" else "Turn latency"
    ends = [INDIFFERENT * margin, -INDIFFERENT * margin]
    for each in known:
        ends += [100 * end for end in (each.low, each.high) if math.isfinite(end)]
    low, high = _with_edges(min(ends), max(ends))
    later = " Once agents per GPU are measured, intervals are wider: either may decide."
    spans = (
        LaneSpan(
            lane=counts.index(each.pairs),
            look="interval",
            low=max(100 * each.low, low),
            high=min(100 * each.high, high),
            at=100 * each.value,
            slot=view.slots[each.arm],
            tip=_look_tip(each),
            offset=(view.others.index(each.arm) + 1) / (len(view.others) + 1),
        )
        for each in known
    )
    return Lanes(
        name="looks",
        title=f"{what} against {view.against}, look by look",
        caption=(
            f"Each row is what was known after that number of block pairs. Wholly left of the band "
            f"(±{say.shorten(margin)}%) an arm is faster, wholly right of it slower."
            f"{later if view.has_agents_per_gpu else ''}"
        ),
        x=_axis(view, low, high),
        lanes=tuple(say.plural(count, "pair") for count in counts),
        spans=tuple(spans) if len(counts) > 1 else (),
        arms=_arms(view),
        bands=(_around_zero(margin),),
        rules=(RuleLine(axis="x", at=0.0),),
        height=max(20.0, 12.0 * len(view.others)),
    )


def _look_tip(each: SpeedInterval) -> str:
    closed = (end if math.isfinite(end) else None for end in (each.low, each.high))
    ends = say.where_known(closed, lambda end: say.with_sign(100 * end, 1))
    change = f"{say.relative(each.value)} {interval(*ends)}"
    return f"{labels.arm(each.arm)}, {say.plural(each.pairs, 'pair')}: {change}"


QUANTILES: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
FEWEST_PAIRS: Final = 5
"""Below, the band of each quantile is wider than the plot: no evidence."""
MOST_PAIRS: Final = 150
"""As many as are looked at for a picture: more make no narrower a band that anyone could see."""


def shifts(view: View, name: str) -> tuple[Plot, ...]:
    """Draw, for each metric of a class, by how much the arms move each of its quantiles.

    The charts are neighbours, so their axes are equal.
    """
    margin = 100 * view.policy.min_change
    band = f"grey: ±{say.number(margin)}%"
    drawn = []
    for metric, words in METRICS:
        found = (_shift(view, name, arm, metric) for arm in view.others)
        kind = metric.removesuffix("_ms")
        plot = Plot(
            name=f"shift-{kind}-{labels.slug(name)}",
            title=f"{name}: change of {words}, from the fastest to the slowest calls",
            caption=(
                f"Below 0 is faster than {view.against}. Coloured bands: 95% intervals over "
                f"block pairs; {band}."
            ),
            x=ChartAxis(
                label="quantile of the calls of a block", quantity="share", low=0.0, high=1.0
            ),
            y=ChartAxis(label=f"change of {words}, %", quantity="percent"),
            series=tuple(each for each in found if each is not None),
            bands=(Band(axis="y", low=-margin, high=margin),),
            rules=(RuleLine(axis="y", at=0.0),),
        )
        drawn.append(plot)
    return equal_heights(drawn)


def _shift(view: View, name: str, arm: str, metric: Metric) -> Series | None:
    """Return the change of each quantile of an arm, with Student's interval.

    It is the mean over block pairs of the log ratio within a pair.
    """
    changed = view.evidence.calls(name, arm)
    base = view.evidence.calls(name, view.reference)
    if changed is None or base is None:
        return None
    times, pair = shared_times(base, changed, metric)
    ratios = []
    for each in every(np.unique(pair).tolist(), MOST_PAIRS):
        before, after = _quantiles(times[:, pair == each])
        ratios.append(np.log(after / before))
    count = len(ratios)
    if count < FEWEST_PAIRS:
        return None
    middle = np.mean(ratios, axis=0)
    spread = np.std(ratios, axis=0, ddof=1)
    half = scipy.special.stdtrit(count - 1, 0.975) * spread / np.sqrt(count)
    ends = np.stack([middle, middle - half, middle + half])
    at, low, high = (100 * np.expm1(ends)).tolist()
    tips = (_tip(arm, *each) for each in zip(QUANTILES, at, low, high, strict=True))
    shown = view.series(arm, "line", QUANTILES, at, tips=tips)
    return replace(shown, lows=tuple(low), highs=tuple(high))


def _quantiles(values: Floats) -> Floats:
    """Return the quantiles of each row, as `numpy.quantile` does in five times as long."""
    ordered = np.sort(values, axis=1)
    last = values.shape[1] - 1
    rank = last * np.array(QUANTILES)
    below = rank.astype(np.int64)
    low = ordered[:, below]
    high = ordered[:, np.minimum(below + 1, last)]
    between: Floats = low + (high - low) * (rank - below)
    return between


def _tip(arm: str, share: float, at: float, low: float, high: float) -> str:
    band = interval(say.with_sign(low, 1), say.with_sign(high, 1))
    quantile = f"{labels.arm(arm)}, {say.percent(share)} of the calls are faster"
    return f"{quantile}: {say.with_sign(at, 1)}% {band}"
