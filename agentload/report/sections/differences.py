"""How far the arms are apart: every difference in one forest plot,
and in each class the whole distribution, quantile by quantile.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import scipy

from advisor.statistics.paired import same_turns
from advisor.verdict import Change
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Axis, Band, Lanes, Plot, Rule, Series, Span, every
from agentload.report.parts import Group, group
from agentload.report.sections.arms import METRICS, Metric, classes
from agentload.report.sections.view import View


def differences(view: View) -> Group | None:
    """Show every difference at once, with the margin
    that matters and the noise, then the same as a table.
    """
    return group("Differences", charts=(forest(view),), tables=(classes(view),))


LEAST_SHOWN: Final = 0.10
"""Half of the axis where all differences are smaller."""
MOST_SHOWN: Final = 3.0
"""Times the middle one of all ends: an interval beyond it leaves the
frame, where it would flatten all others. Every estimate is inside.
"""


def forest(view: View) -> Lanes:
    """Draw each metric of each class on each arm: the estimate,
    its interval, the margin and the noise; the mix is on top.
    """
    lanes: list[str] = []
    spans: list[Span] = []
    arms = view.arms[1:]
    for scope in (None, *view.workloads):
        found = [
            (words, [view.change(metric, arm, scope) for arm in arms]) for metric, words in METRICS
        ]
        if not any(any(changes) for _, changes in found):
            continue
        lanes.append(scope or "your mix")
        for words_, changes in found:
            if not any(changes):
                continue
            lanes.append(f" {words_}")
            spans += _spans(view, len(lanes) - 1, changes)
    ends = [abs(end) for span in spans if span.look == "interval" for end in (span.low, span.high)]
    values = [abs(span.at) for span in spans if span.at is not None]
    limit = max(
        100 * LEAST_SHOWN,
        1.1 * max(values, default=0.0),
        MOST_SHOWN * float(np.median(ends)) if ends else 0.0,
    )
    limit = min(limit, max(100 * LEAST_SHOWN, 1.1 * max(ends, default=0.0)))
    margin, reference = 100 * view.policy.min_change, labels.arm(view.evidence.reference)
    beyond = "Intervals that reach the edge extend beyond it." if ends and max(ends) > limit else ""
    noise = (
        "The grey bar is by how much two identical servers may differ."
        if any(span.look == "noise" for span in spans)
        else ""
    )
    told = (
        f"Left of 0 is faster than {reference}; within the band (±{say.number(margin)}%) a "
        "difference is too small to matter."
    )
    slots = labels.slots(view.evidence)
    return Lanes(
        name="differences",
        title=f"Change against {reference}",
        caption=" ".join(part for part in (told, noise, beyond) if part),
        x=Axis(label=f"change against {reference}, %", quantity="percent", low=-limit, high=limit),
        lanes=tuple(lanes),
        spans=tuple(spans),
        arms=tuple((labels.arm(arm), slots[arm]) for arm in arms),
        bands=(Band(axis="x", low=-margin, high=margin, label=""),),
        rules=(Rule(axis="x", at=0.0, label=""),),
        height=max(16.0, 10.0 * len(arms)),
    )


def _spans(view: View, lane: int, changes: Iterable[Change | None]) -> Iterator[Span]:
    known = [each for each in changes if each is not None]
    slots = labels.slots(view.evidence)
    if floors := [100 * each.floor for each in known if each.floor is not None]:
        yield Span(
            lane=lane,
            look="noise",
            low=-max(floors),
            high=max(floors),
            tip=f"noise ±{say.number(max(floors), 1)}%",
        )
    for index, each in enumerate(known):
        value, low, high = (
            100 * (end if end is not None else each.relative.value)
            for end in (each.relative.value, each.relative.low, each.relative.high)
        )
        tip = (
            f"{labels.arm(each.arm)}: {say.change(each.relative)}, "
            f"{say.plural(each.pairs, 'pair')}, {say.plural(each.calls, 'call')}"
        )
        offset = (index + 1) / (len(known) + 1)
        yield Span(
            lane=lane,
            look="interval",
            low=low,
            high=high,
            at=value,
            slot=slots[each.arm],
            tip=tip,
            offset=offset,
        )


QUANTILES: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
FEWEST_PAIRS: Final = 3
"""Below, no interval is worth a band."""
MOST_PAIRS: Final = 150
"""As many as are looked at for a picture: more make no narrower a band that anyone could see."""


def shifts(view: View, name: str) -> Iterator[Plot]:
    """Yield, for each metric of a class, by how much the arms move each quantile of its calls."""
    reference = labels.arm(view.evidence.reference)
    margin = 100 * view.policy.min_change
    for metric, words in METRICS:
        series = tuple(
            each for arm in view.arms[1:] if (each := _shift(view, name, arm, metric)) is not None
        )
        yield Plot(
            name=f"shift-{metric.removesuffix('_ms')}-{labels.slug(name)}",
            title=f"{name}: change of {words}, from the fastest to the slowest calls",
            caption=f"Below 0 is faster than {reference}. Coloured bands: 95% intervals over block "
            f"pairs; grey: ±{say.number(margin)}%.",
            x=Axis(label="quantile of the calls of a block", quantity="share", low=0.0, high=1.0),
            y=Axis(label=f"change of {words}, %", quantity="percent"),
            series=series,
            bands=(Band(axis="y", low=-margin, high=margin, label=""),),
            rules=(Rule(axis="y", at=0.0, label=""),),
        )


def _shift(view: View, name: str, arm: str, metric: Metric) -> Series | None:
    """Return the change of each quantile of an arm: the mean over block
    pairs of its log ratio within a pair, with Student's interval.
    """
    ours, theirs = (
        view.evidence.calls(name, arm),
        view.evidence.calls(name, view.evidence.reference),
    )
    if ours is None or theirs is None:
        return None
    left, right = same_turns(theirs, ours)
    values = np.stack([getattr(theirs, metric)[left], getattr(ours, metric)[right]])
    known = np.isfinite(values).all(axis=0) & (values > 0).all(axis=0)
    values, pair = values[:, known], theirs.pair[left][known]
    found = (
        np.quantile(values[:, pair == each], QUANTILES, axis=1).T
        for each in every(np.unique(pair).tolist(), MOST_PAIRS)
    )
    ratios = [np.log(changed / before) for before, changed in found]
    if len(ratios) < FEWEST_PAIRS:
        return None
    middle = np.mean(ratios, axis=0)
    half = (
        scipy.stats.t.ppf(0.975, len(ratios) - 1)
        * np.std(ratios, axis=0, ddof=1)
        / np.sqrt(len(ratios))
    )
    at, low, high = (100 * np.expm1(each) for each in (middle, middle - half, middle + half))
    tips = (
        f"{labels.arm(arm)}, {say.percent(share)} of the calls are faster: {say.signed(value, 1)}% "
        f"[{say.signed(down, 1)}, {say.signed(up, 1)}]"
        for share, value, down, up in zip(QUANTILES, at, low, high, strict=True)
    )
    shown = view.series(arm, "line", QUANTILES, at.tolist(), tips=tips)
    return replace(shown, lows=tuple(low.tolist()), highs=tuple(high.tolist()))
