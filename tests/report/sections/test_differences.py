"""The forest plot, and how the arms shift whole distributions."""

import math
from dataclasses import replace

import numpy as np
import pytest

from agentload.report.charts.spec import Chart, Lanes, Plot
from agentload.report.parts import Document
from agentload.verdict.looks import SpeedInterval
from tests.report import sample
from tests.report.telling import made


def chart(told: Document, name: str) -> Chart:
    return next(chart for group in told.groups for chart in group.charts if chart.name == name)


def forest(told: Document) -> Lanes:
    found = chart(told, "differences")
    assert isinstance(found, Lanes)
    return found


def test_the_first_chart_shows_every_class_on_every_arm_with_the_mix_on_top() -> None:
    found = forest(made())
    assert made().groups[0].charts[0] == found
    assert [label for label in found.lanes if not label.startswith(" ")] == [
        "your mix",
        "code",
        "long_chat",
        "rag",
    ]
    shown = [
        (found.lanes[each.lane - 1], each.slot, round(each.at or 0.0, 1))
        for each in found.spans
        if each.look == "interval"
    ]
    assert shown[:3] == [("your mix", 1, -5.5), ("your mix", 2, -6.0), ("code", 1, -9.0)]
    assert {
        (round(each.low, 6), round(each.high, 6)) for each in found.spans if each.look == "noise"
    } == {(-1.8, 1.8)}
    # Too small to matter, and where the interval of "no difference" ends.
    assert [(each.low, each.high) for each in found.bands] == [(-3.0, 3.0), (-6.0, 6.0)]


def test_one_wide_interval_does_not_flatten_the_others() -> None:
    decision = sample.decision()
    wide = replace(decision.changes[0], relative=sample.estimate(0.0, 9.0))
    found = forest(made(replace(decision, changes=(wide, *decision.changes[1:]))))
    assert (found.x.high or 0.0) < 30
    assert "extend beyond it" in found.caption


def test_the_looks_of_a_decision_are_drawn_row_by_row_and_an_open_end_reaches_the_frame() -> None:
    first = SpeedInterval(
        arm="fp8", pairs=4, value=-0.01, low=-math.inf, high=0.05, margin=0.03, is_open=True
    )
    last = replace(first, pairs=8, value=-0.05, low=-0.06, high=-0.04, is_open=False)
    facts = replace(sample.facts(), looks=(first, last))
    found = chart(made(facts=facts), "looks")
    assert isinstance(found, Lanes)
    assert found.lanes == ("4 pairs", "8 pairs")
    assert [(each.lane, each.at, each.high) for each in found.spans] == [
        (0, -1.0, 5.0),
        (1, -5.0, -4.0),
    ]
    assert found.spans[0].low == found.x.low
    assert found.spans[0].tip == "FP8, 4 pairs: −1.0% (at most +5.0)"
    one = made(facts=replace(facts, looks=(first,)))
    assert "looks" not in [each.name for group in one.groups for each in group.charts]


def shift(arm: str, factor: float, slow: float = 1.0) -> Plot:
    """Draw the shift of an arm whose calls take *factor* times as
    long as the reference's, the slowest tenth *slow* times more.
    """
    evidence = sample.evidence()
    base = evidence.calls("code", "bf16")
    assert base is not None
    late = base.turn_ms > np.quantile(base.turn_ms, 0.9)
    moved = replace(base, turn_ms=base.turn_ms * factor * np.where(late, slow, 1.0))
    observations = tuple(
        replace(each, calls=moved) if (each.workload, each.arm) == ("code", arm) else each
        for each in evidence.observations
    )
    found = chart(made(evidence=replace(evidence, observations=observations)), "shift-turn-code")
    assert isinstance(found, Plot)
    return found


def test_an_arm_that_is_faster_by_a_tenth_is_a_flat_line_a_tenth_below() -> None:
    series = next(each for each in shift("fp8", 0.9).series if each.slot == 1)
    assert series.ys == pytest.approx([-10.0] * len(series.xs))
    for edge in (series.lows, series.highs):
        assert edge == pytest.approx(series.ys)


def test_a_tail_that_got_slower_is_seen_at_the_right_end() -> None:
    series = next(each for each in shift("fp8", 1.0, slow=2.0).series if each.slot == 1)
    assert max(map(abs, series.ys[:6])) < 1.0 < series.ys[-1]


def test_a_band_holds_its_line() -> None:
    for each in shift("fp8", 0.97).series:
        assert all(
            low <= value <= high
            for low, value, high in zip(each.lows, each.ys, each.highs, strict=True)
        )


def test_the_shifts_of_a_class_have_equal_axes_that_hold_all_of_them() -> None:
    found = [
        each
        for group in made().groups
        for each in group.charts
        if isinstance(each, Plot) and each.name.startswith("shift-") and "-code" in each.name
    ]
    assert len(found) > 1
    (axis,) = {(each.y.low, each.y.high) for each in found}
    values = [value for each in found for of in each.series for value in (*of.lows, *of.highs)]
    assert axis[0] is not None
    assert axis[1] is not None
    assert axis[0] <= min(values) <= max(values) <= axis[1]


def test_the_pairs_of_a_single_class_are_drawn_once() -> None:
    evidence, decision = sample.evidence(), sample.decision()
    changes = tuple(
        replace(each, by_pair=(-0.1, -0.2), pair_ids=(0, 1)) for each in decision.changes
    )
    drawn = replace(decision, changes=changes)
    many = [chart.name for group in made(drawn).groups for chart in group.charts]
    assert "pairs" in many
    one = made(drawn, replace(evidence, workloads=evidence.workloads[:1]))
    names = [chart.name for group in one.groups for chart in group.charts]
    assert [name for name in names if name.startswith("pairs")] == ["pairs-code"]


def test_an_axis_of_pairs_names_whole_pairs() -> None:
    named = [each for group in made().groups for each in group.charts if each.name == "pairs"]
    assert all(isinstance(each, Plot) and each.x.whole for each in named)
